"""The trust checks alone, without a suite."""

from collections.abc import Sequence
from typing import Any

from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import entries
from assay.core.units import budget
from assay.engines.checks import KNOWN_NORMS, checks_only, ignored
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
) -> dict[str, Any]:
    """Whether numbers measured on this model in this ball could be trusted: which checks were made, which fired."""
    if norm not in KNOWN_NORMS:
        raise UsageError(f"the checks attack in {', '.join(KNOWN_NORMS)}, not in {norm}")
    target, _, labelled = load_subject(model, data, device=device, mean=mean, std=std)
    with session(deterministic=False), target.ready():
        warnings = checks_only(target, labelled, budget(eps), norm, Stream(seed, ("eval", "checks")), ignore)
    skipped = ignored(ignore)
    known = [entry for entry in entries("check") if entry.name not in skipped]
    made = [entry.name for entry in known if set(entry.needs) <= target.gives]
    apart = [entry.name for entry in known if entry.name not in made]
    return {
        "checks": made,
        "not_applicable": apart,
        "ignored": sorted(skipped),
        "warnings": warnings,
        "unreliable": bool(warnings),
    }
