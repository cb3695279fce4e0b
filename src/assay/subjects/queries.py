"""How often a target was asked, and how often it may be."""

from typing import Literal

from assay.core.errors import BudgetSpent, UsageError

Why = Literal["first", "retries", "repeats"]


class Queries:
    """A budget of inputs that may be sent. Every attempt counts, and it counts before it is made.

    ``asked`` is the sum of ``first`` (inputs sent for the first time), ``repeats`` (sent again because several answers
    were asked for) and ``retries`` (attempts that brought no answer, or made up for one). ``known`` inputs were not
    sent: their answers stood in the book.

    >>> some = Queries(10)
    >>> some.take(8)
    >>> some.left(), some.to_json()["first"]
    (2, 8)
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise UsageError(f"--queries is a number of inputs from 1 up, got {limit!r}")
        self.limit = limit
        self.first = self.retries = self.repeats = self.known = 0

    @property
    def asked(self) -> int:
        return self.first + self.retries + self.repeats

    def left(self) -> int | None:
        """How many more inputs may be sent; None where there is no limit."""
        return None if self.limit is None else max(0, self.limit - self.asked)

    def allow(self, n: int) -> None:
        """Refuse ``n`` more inputs that the budget does not hold."""
        if self.limit is not None and self.asked + n > self.limit:
            raise BudgetSpent(self.limit, self.asked, n)

    def take(self, n: int, why: Why = "first") -> None:
        """Count ``n`` inputs that are about to be sent."""
        self.allow(n)
        setattr(self, why, getattr(self, why) + n)

    def lost(self, n: int, why: Why) -> None:
        """Say that no answer came to ``n`` inputs taken as ``why``: they remain asked, as attempts in vain."""
        setattr(self, why, getattr(self, why) - n)
        self.retries += n

    def restore(self, asked: int, first: int, repeats: int) -> None:
        """Go on from counts that were kept; what brought no answer was an attempt in vain."""
        self.first, self.repeats, self.retries = first, repeats, asked - first - repeats

    def to_json(self) -> dict[str, int | None]:
        return {
            "limit": self.limit,
            "asked": self.asked,
            "first": self.first,
            "retries": self.retries,
            "repeats": self.repeats,
            "known": self.known,
        }
