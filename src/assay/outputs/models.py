"""Which models a run asked: the one it tested, and those beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.store import Store
from assay.engines.resistant_model import RESISTANT


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a run as they were named; ``vulnerable`` is None where it tests no pair."""

    tested: str
    vulnerable: str | None = None
    siblings: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """What the tested model is called in a sentence."""
        return "target" if self.vulnerable is None else "resistant model"

    def facts(self) -> dict[str, str]:
        """Both of a pair; nothing where there is one model, which whoever asks has named."""
        return {} if self.vulnerable is None else {"tested model": self.tested, "vulnerable model": self.vulnerable}


def models_of(identity: Mapping[str, Any]) -> Models:
    """The models of the run that began with this configuration."""
    told = identity.get("target", {})
    model, siblings = str(told.get("model", "?")), tuple(told.get("with", ()))
    # A hardening is of the model that was given, whatever else is fuzzed in its rounds.
    if identity.get("run", {}).get("kind") != "fuzz" or not {RESISTANT, "built_from"} & set(told):
        return Models(model, None, siblings)
    return Models(told.get(RESISTANT, f"resistant model built from {model}"), model, siblings)


def built_numbers(run: Store) -> dict[str, float]:
    """What the resistant model that a run built reached on validation data; {} where it built none."""
    line = next(run.commits(RESISTANT), None)
    return {} if line is None else dict(line.meta.get("numbers", {}))


def built_facts(run: Store) -> dict[str, str]:
    """The same in words."""
    told = built_numbers(run)
    if "failures_accuracy" not in told:
        return {}
    clean, withstood = told["val_accuracy"], told["failures_accuracy"]
    words = f"clean {clean:.1%}, right on {withstood:.1%} of kept-back attacks that fool the vulnerable one (static)"
    return {"resistant model, validation": words}
