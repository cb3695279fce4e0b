"""Who tells the screen how far a hardening is."""

from collections.abc import Mapping
from typing import Any

from assay.engines.hardening_models import Progress
from assay.engines.hardening_setting import Say, Stopped
from assay.engines.stop import Stopper


class Teller:
    """Passes numbers on to the screen, and stops the work where the user pressed Ctrl-C."""

    def __init__(self, progress: Progress | None, stop: Stopper, rounds: int, first: int) -> None:
        self.progress, self.stop, self.rounds, self.first = progress or (lambda _: None), stop, rounds, first

    def __call__(self, **place: Any) -> Say:
        told = {**place, "rounds": self.rounds, "place": self._place(place.get("round", 0))}

        def say(numbers: Mapping[str, Any]) -> None:
            self.progress({**told, **numbers})
            if self.stop.interrupted:
                raise Stopped

        return say

    def _place(self, number: int) -> str:
        """A round as people count them: those that learn, from 1 on."""
        if number < self.first:
            return ("original", "resistant")[number]
        return f"round {number - self.first + 1} of {self.rounds}"
