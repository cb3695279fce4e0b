"""A case that covers something new."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.strategies.activity import SEED_COVERED, active
from assay.subjects.bench import Bench

BY = ("all", "seed")


@register("filter", paper="DLFuzz 2018")
def gains(
    bench: Bench,
    cases: Cases,
    *,
    least: float = 0.0,
    wanes: bool = False,
    within: float | None = None,
    by: str = "all",
) -> Tensor:
    """The case added more than the share ``least`` to the coverage.

    To that of ``all`` cases, or by ``seed``: to that of the cases of the same seed, which the strategies adapt and
    uncovered(by=seed) keep. With ``wanes`` the share is divided by the place of the seed in the list, counted from 1:
    the first seeds find much that is new. ``within`` also asks for a distance below that share of the seed's length.
    """
    if by not in BY:
        raise UsageError(f"gains: by is one of {', '.join(BY)}; got {by!r}")
    coverage = bench.kept.get("coverage")
    if "gain" not in cases.info or coverage is None:
        raise UsageError("gains asks what a case covers, and this recipe has no criterion; give one: --set coverage=nc")
    gain = cases.info["gain"] if by == "all" else _new_to_seed(bench, cases)
    # A criterion without an upper end has no share: there ``least`` is in its own measure.
    total = coverage.total or 1
    asked = least * total / (cases.info["row"] + 1) if wanes else least * total
    good: Tensor = gain > asked
    if within is not None:
        away = norms.size(cases.x - cases.info["seed_x"], "l2")
        good = good & (away < within * norms.size(cases.info["seed_x"], "l2"))
    return good


def _new_to_seed(bench: Bench, cases: Cases) -> Tensor:
    """How many neurons each case covers that no case of its seed has covered, (N,)."""
    if SEED_COVERED not in cases.info:
        raise UsageError("gains(by=seed) needs a strategy that keeps what a seed covers: adapt or uncovered(by=seed)")
    return (active(bench.kept["coverage"], bench.seen(cases)) & ~cases.info[SEED_COVERED]).sum(1)
