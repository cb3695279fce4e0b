"""How a black box is asked: the one option ``--ask "rate=50, timeout=10, retries=5, batch=64, repeats=3"``."""

import math
from dataclasses import dataclass, fields

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, step
from assay.subjects.sources.patience import Patience


@dataclass(frozen=True, slots=True)
class Asking:
    """What ``--ask`` says; None where it is left to the target.

    ``rate`` is inputs a second, ``timeout`` seconds a question, ``retries`` attempts after the first, ``batch`` the
    most inputs a question, ``repeats`` how often each input is sent, ``labels`` that nothing but labels is used,
    ``classes`` how many there are.
    """

    rate: float | None = None
    timeout: float | None = None
    retries: int | None = None
    batch: int | None = None
    repeats: int = 1
    labels: bool = False
    classes: int | None = None

    def __post_init__(self) -> None:
        for name in ("rate", "timeout"):
            given = getattr(self, name)
            if given is not None and (not _number(given) or not 0 < given < math.inf):
                raise UsageError(f"--ask {name} must be a number above 0, got {given!r}")
        for name, least in (("retries", 0), ("batch", 1), ("repeats", 1), ("classes", 2)):
            given = getattr(self, name)
            optional = given is None and name != "repeats"
            if not optional and (isinstance(given, bool) or not isinstance(given, int) or given < least):
                raise UsageError(f"--ask {name} must be a whole number from {least} up, got {given!r}")
        if not isinstance(self.labels, bool):
            raise UsageError(f"--ask labels is true or false, got {self.labels!r}")

    def patience(self, retries: int) -> Patience:
        """How the target is treated, ``retries`` being what its kind does where nothing was said."""
        return Patience(retries if self.retries is None else self.retries, self.rate)

    def refuse(self, what: str, *names: str) -> None:
        """Refuse settings that mean nothing for a target of that kind."""
        for name in names:
            if getattr(self, name) is not None:
                raise UsageError(f"--ask {name} means nothing for {what}; leave it out")


def asking(text: str) -> Asking:
    """The settings of ``--ask``.

    >>> asking("rate=50, repeats=3").repeats
    3
    """
    if not text.strip():
        return Asking()
    _, given = step(f"ask({text})")
    known = [field.name for field in fields(Asking)]
    for name in given:
        if name not in known:
            raise UsageError(f"--ask has no setting {name!r}; {did_you_mean(name, known)}")
    return Asking(**given)


def _number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)
