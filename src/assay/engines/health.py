"""The trust checks alone, without a suite."""

from collections.abc import Sequence
from typing import Any

from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import names
from assay.core.units import budget
from assay.engines.asking import asked_of
from assay.engines.checks import KNOWN_NORMS, checks_only, ignored, not_made
from assay.engines.session import session
from assay.engines.subject import load_subject
from assay.subjects.bench import Data


def check_trust(
    model: Any,
    data: str | Data,
    *,
    eps: str | float,
    norm: str = "linf",
    ignore: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
) -> dict[str, Any]:
    """Whether numbers measured on this model in this ball could be trusted: which checks were made, which fired."""
    if norm not in KNOWN_NORMS:
        raise UsageError(f"the checks attack in {', '.join(KNOWN_NORMS)}, not in {norm}")
    target, _, labelled = load_subject(
        model, data, device=device, mean=mean, std=std, queries=queries, ask=ask, white_box=white_box
    )
    with session(deterministic=False), target.ready():
        warnings = checks_only(target, labelled, budget(eps), norm, Stream(seed, ("eval", "checks")), ignore)
    skipped = ignored(ignore)
    apart = {name: reason for name, reason in not_made(target).items() if name not in skipped}
    asked = asked_of(target)
    return {
        "checks": [name for name in names("check") if name not in skipped and name not in apart],
        "not_applicable": apart,
        **({} if asked is None else {"queries": asked}),
        "ignored": sorted(skipped),
        "warnings": warnings,
        "unreliable": bool(warnings),
    }
