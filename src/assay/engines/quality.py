"""Are the failures of a run real? How far they are from their seeds, and what another model says of them."""

from dataclasses import dataclass
from typing import Any

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.engines.evaluation import Share
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target
from assay.subjects.target import answer


@dataclass(frozen=True, slots=True)
class Quality:
    """Medians over the failures; ``witness`` is the share that an independent model still gives their label."""

    linf: float
    l2: float
    ssim: float | None  # of images only
    witness: Share | None

    def to_json(self) -> dict[str, Any]:
        return {
            "linf": self.linf,
            "l2": self.l2,
            "ssim": self.ssim,
            "witness": None if self.witness is None else self.witness.to_json(),
        }


def quality_of(failures: Cases, data: Data, witness: Any = None, *, device: str = "auto") -> Quality:
    """The quality of failures that grew from ``data``; a ``witness`` is a model that was not attacked."""
    share = None
    if witness is not None:
        other = load_target(witness, data=data, device=device)
        if other.spec.shape != data.spec.shape:
            raise UsageError(f"the witness takes inputs of shape {other.spec.shape}, the cases have {data.spec.shape}")
        right = answer(other, failures.x, Chunks()).argmax(1).cpu() == failures.y
        share = Share(int(right.sum()), len(failures))
    linf, l2, ssim = (float(failures.info[name].median()) for name in ("linf", "l2", "ssim"))
    return Quality(linf, l2, ssim if failures.x.dim() == 4 else None, share)
