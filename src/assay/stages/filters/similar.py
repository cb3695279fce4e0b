"""Deep features that stay alike."""

import math

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench

COLUMNS = {"parent": "line_cosine", "root": "line_root"}


@register("filter", paper="CAGFuzz 2022")
def similar(bench: Bench, cases: Cases, *, least: float = 0.9, of: str = "parent") -> Tensor:
    """The features are more similar than ``least`` (cosine) to those of the parent, or to those of the ``root``.

    What the similarity of each case is, the mutator ``nearest`` has measured; its extractor says what 0.9 means.
    """
    if of not in COLUMNS:
        raise UsageError(f"similar: of is one of {', '.join(COLUMNS)}; got {of!r}")
    if not -1 <= least < 1 or math.isnan(least):
        raise UsageError(f"similar: least is a cosine, from -1 and below 1; got {least}")
    if COLUMNS[of] not in cases.info:
        raise UsageError(
            "similar compares deep features, and this mutator measures none; put it inside nearest: "
            "--set 'mutate=nearest(of=noise)'"
        )
    return cases.info[COLUMNS[of]] > least
