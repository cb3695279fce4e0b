"""How a generator is made."""

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from assay.core.errors import UsageError
from assay.stages.trainers.plan import Plan

LOSSES = ("lsgan", "log")
RANDOM_HALF = "random_half"


@dataclass(frozen=True, slots=True)
class Making:
    """The two domains, the nets and their training.

    ``split`` is ``random_half`` or ``class_pair(a,b)``; an epoch draws ``images`` of each domain. ``beta`` is Adam's
    first; ``schedule`` is how the learning rate falls, as in every training. ``cycle`` and ``identity`` weigh the
    losses of these names; ``buffer`` is how many fakes of each domain are kept to be shown to its critic again.
    ``flip`` mirrors half of the images. Without ``first_norm`` the first block of a generator is not normalised, which
    keeps brightness and contrast. The newest ``snapshots`` epochs are kept.
    """

    split: str = RANDOM_HALF
    images: int = 2000
    epochs: int = 8
    batch: int = 8
    width: int = 32
    lr: float = 2e-4
    beta: float = 0.5
    schedule: str = "constant"
    loss: str = "lsgan"
    cycle: float = 10.0
    identity: float = 1.0
    buffer: int = 50
    flip: bool = False
    first_norm: bool = True
    snapshots: int = 5
    seed: int = 0

    def check(self) -> None:
        """Refuse what makes no sense."""
        if self.loss not in LOSSES:
            raise UsageError(f"loss is one of {', '.join(LOSSES)}; got {self.loss!r}")
        for name, least in (("images", 1), ("width", 1), ("snapshots", 1), ("buffer", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.beta < 1:
            raise UsageError(f"beta must be in [0, 1), got {self.beta}")
        for name in ("cycle", "identity"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} is a weight of 0 or more, got {getattr(self, name)}")
        self.plan().check()
        self.pair  # noqa: B018  refuses what it cannot read

    def plan(self) -> Plan:
        """The same for the training loop."""
        return Plan(self.epochs, self.batch, self.lr, schedule=self.schedule, momentum=self.beta)

    @property
    def pair(self) -> tuple[str, str] | None:
        """The two classes that are the domains, None where the domains are random halves."""
        if self.split == RANDOM_HALF:
            return None
        match = re.fullmatch(r"class_pair\(\s*([^,]+?)\s*,\s*([^,]+?)\s*\)", self.split)
        if match is None or match[1] == match[2]:
            raise UsageError(f"split is {RANDOM_HALF} or class_pair(a,b) with two classes, got {self.split!r}")
        return match[1], match[2]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
