"""Asking what may fail: again after a pause that grows, no faster than allowed, and giving up with a reason."""

import logging
import os
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from assay.core.errors import AssayError, NoAnswer, UsageError
from assay.core.randomness import Stream

log = logging.getLogger("assay")

Got = TypeVar("Got")

_FIRST, _LONGEST, _LONGEST_WISH = 0.1, 10.0, 60.0  # seconds


class TryAgain(Exception):
    """An attempt that failed and may go well another time; ``after`` is how long we are asked to wait."""

    ends_as: type[AssayError] = NoAnswer  # where it is the last one

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class BadAnswer(TryAgain):
    """Something came back that is no answer to the question."""


class Patience:
    """How often to try again, and how many inputs a second to send at most."""

    def __init__(
        self, retries: int = 0, rate: float | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.retries, self.rate, self.sleep = retries, rate, sleep
        self._free_at = 0.0
        self._lots = Stream(os.getpid()).at("pause").generator()  # several clients must not come back together

    def persist(self, work: Callable[[], Got], who: str, *, inputs: int = 0, again: Callable[[], None]) -> Got:
        """What ``work`` gives; ``again`` is called before every attempt but the first."""
        attempt = 0
        while True:
            self._keep_the_rate(inputs)
            try:
                return work()
            except TryAgain as error:
                if attempt == self.retries:
                    tried = f" ({attempt + 1} attempts)" if attempt else ""
                    if isinstance(error, BadAnswer):
                        raise UsageError(f"{who} {error}{tried}") from error
                    raise error.ends_as(f"{who} {error}{tried}; what it answered before is kept") from error
                pause = self._pause(attempt, error.after)
                log.info("%s %s; asking again in %.1f s", who, error, pause)
            again()
            self.sleep(pause)
            attempt += 1

    def _pause(self, attempt: int, wish: float | None) -> float:
        """Doubling from a tenth of a second, half of it drawn by lot, and at least what the target wishes."""
        longest = min(_LONGEST, _FIRST * 2.0**attempt)
        pause = longest * (0.5 + 0.5 * float(torch.rand((), generator=self._lots)))
        return max(pause, min(wish or 0.0, _LONGEST_WISH))

    def _keep_the_rate(self, inputs: int) -> None:
        if self.rate is None:
            return
        now = time.monotonic()
        if now < self._free_at:
            self.sleep(self._free_at - now)
        self._free_at = max(now, self._free_at) + inputs / self.rate


def printable(text: str, most: int = 200) -> str:
    """Foreign text as a message may quote it: one line, no control characters, not too long.

    >>> printable("a\\x1b[31m\\nb")
    'a [31m b'
    """
    plain = "".join(c if c.isprintable() else " " for c in text[: 4 * most]).strip()
    return plain if len(plain) <= most else plain[: most - 1] + "…"
