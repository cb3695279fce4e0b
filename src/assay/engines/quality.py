"""Are the failures of a run real? How far they are from their seeds, how they score, what another model says."""

from dataclasses import dataclass, replace
from typing import Any

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.specs import canonical
from assay.core.store import Store
from assay.engines.evaluation import Share
from assay.engines.found import load_failures
from assay.engines.resistant_model import RESISTANT
from assay.engines.stored import class_names, identity_of
from assay.subjects.bench import Data, class_places, fitted
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, answer

ALIKE = 0.9  # cosine of deep features above which CAGFuzz calls images alike


@dataclass(frozen=True, slots=True)
class Quality:
    """Medians over the failures; ``witness`` is the share that an independent model still gives their label.

    ``scores`` are those that the recipe stores with every failure, each apart: a sum hides which of its terms rules it.
    """

    linf: float
    l2: float
    ssim: float | None  # of images only
    scores: dict[str, float | None]  # None where no failure has a finite one
    witness: Share | None = None
    vulnerable: Share | None = None  # of two models, how many the vulnerable one gets wrong too
    cosine: float | None = None  # of deep features, to the parent, where the mutator measured it
    alike: Share | None = None  # and how many are as like their root as a case must be like its parent

    def to_json(self) -> dict[str, Any]:
        return {
            "linf": self.linf,
            "l2": self.l2,
            "ssim": self.ssim,
            "scores": self.scores,
            "witness": None if self.witness is None else self.witness.to_json(),
            **({} if self.vulnerable is None else {"vulnerable": self.vulnerable.to_json()}),
            **({} if self.alike is None else {"cosine": self.cosine, "alike": self.alike.to_json()}),
        }


def witness_of(model: Any, data: Data, device: str = "auto") -> Target:
    """A model that is not attacked and takes what grows from ``data``; one that cannot is refused."""
    other = load_target(model, data=data, device=device)
    if other.spec.shape != data.spec.shape:
        raise UsageError(f"the witness takes inputs of shape {other.spec.shape}, {data.name} has {data.spec.shape}")
    try:
        class_places(data.spec.classes, other.spec.classes, data.name)
    except UsageError as error:
        raise UsageError(f"the witness cannot judge what grows from {data.name}: {error}") from error
    return other


def quality_of(run: Store, witness: Target | None = None, named: tuple[str, ...] = ()) -> Quality:
    """The quality of the failures of a run; a ``witness`` is a model that was not attacked.

    Labels are in the order of the attacked target's classes; where those are mere numbers, of the ``named`` classes of
    the data.
    """
    failures = load_failures(run)
    share = None
    if witness is not None:
        classes = class_names(run, failures)
        if all(c.isdecimal() for c in classes) and not all(c.isdecimal() for c in named):
            classes = named
        spec = replace(witness.spec, shape=tuple(failures.x.shape[1:]), classes=classes)
        y = fitted(witness, Data(f"run {run.name}", failures, spec)).cases.y
        share = Share(int((answer(witness, failures.x, Chunks()).argmax(1).cpu() == y).sum()), len(failures))
    return replace(medians_of(run, failures), witness=share)


def medians_of(run: Store, failures: Cases) -> Quality:
    """The quality of these failures of a run, without a witness."""
    linf, l2, ssim = (float(failures.info[name].median()) for name in ("linf", "l2", "ssim"))
    both = None
    if "others_pred" in failures.info and {RESISTANT, "built_from"} & set(identity_of(run).get("target", {})):
        both = Share(int((failures.info["others_pred"][:, -1] != failures.y).sum()), len(failures))
    told = Quality(linf, l2, ssim if failures.x.dim() == 4 else None, _scores(run, failures), vulnerable=both)
    if not {"line_cosine", "line_root"} <= set(failures.info):
        return told
    # The cosine is taken to the parent, and over generations a line may drift away from its root.
    alike = int((failures.info["line_root"] > ALIKE).sum())
    return replace(told, cosine=float(failures.info["line_cosine"].median()), alike=Share(alike, len(failures)))


def _scores(run: Store, failures: Cases) -> dict[str, float | None]:
    """The median of each score, in the recipe's order; a failure may be one because its numbers are not finite."""
    columns = {canonical(name): (name, column) for name, column in failures.info.items()}
    medians: dict[str, float | None] = {}
    for text in identity_of(run).get("recipe", {}).get("score", ()):
        key = canonical(text.partition("(")[0].strip().rpartition(":")[2])
        if key in columns:
            name, column = columns[key]
            values = column.double()
            values = values[values.isfinite()]
            medians[name] = float(values.median()) if len(values) else None
    return medians
