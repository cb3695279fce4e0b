"""The numbers of one model on one part of the data, as hardening compares them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.engines.evaluation import Evaluation, Share


@dataclass(frozen=True, slots=True)
class Measured:
    """A model on one part of the data, every attack on every input.

    ``attacks`` and ``worst`` are white box, made anew on this model; ``static`` ones were made on the original model.
    """

    clean: Share
    attacks: dict[str, Share]
    worst: Share
    static: dict[str, Share]
    static_worst: Share
    warnings: list[dict[str, str]] = field(default_factory=list)
    fol: float | None = None  # median over fresh PGD examples, None where it was not asked for or is not finite

    @staticmethod
    def of(result: Evaluation, fol: float | None = None) -> "Measured":
        assert result.static_worst is not None  # both columns are always asked for
        return Measured(
            result.clean,
            {name: outcome.left for name, outcome in result.attacks.items()},
            result.worst,
            {name: outcome.left for name, outcome in result.static.items()},
            result.static_worst,
            result.warnings,
            fol if fol is not None and math.isfinite(fol) else None,
        )

    @property
    def unreliable(self) -> bool:
        return bool(self.warnings)

    @property
    def mean(self) -> float:
        """The mean accuracy over the attacks, white box; every one saw every input."""
        shares = self.attacks.values()
        return sum(share.right for share in shares) / max(sum(share.n for share in shares), 1)

    def shares(self) -> dict[str, Share]:
        """The accuracies requirements speak of; white box only."""
        return {"clean": self.clean, "robust": self.worst, **self.attacks}

    def numbers(self, original: "Measured") -> dict[str, float]:
        """What requirements speak of; white box only."""
        drop = (original.clean.right - self.clean.right) / self.clean.n  # of counts: 0.99 - 0.98 is not 0.01
        return {
            "clean_drop": drop,
            "fol": math.nan if self.fol is None else self.fol,
            **{name: share.accuracy for name, share in self.shares().items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "clean": _told(self.clean),
            "attacks": {name: _told(share) for name, share in self.attacks.items()},
            "worst": _told(self.worst),
            "static": {
                "attacks": {name: _told(share) for name, share in self.static.items()},
                "worst": _told(self.static_worst),
            },
            "warnings": self.warnings,
            "unreliable": self.unreliable,
            **({} if self.fol is None else {"fol": self.fol}),
        }

    @staticmethod
    def of_json(told: Mapping[str, Any]) -> "Measured":
        static = told["static"]
        return Measured(
            _share(told["clean"]),
            {name: _share(share) for name, share in told["attacks"].items()},
            _share(told["worst"]),
            {name: _share(share) for name, share in static["attacks"].items()},
            _share(static["worst"]),
            told["warnings"],
            told.get("fol"),
        )


def _told(share: Share) -> dict[str, Any]:
    return {"right": share.right, **share.to_json()}


def _share(told: Mapping[str, Any]) -> Share:
    return Share(told["right"], told["n"])
