"""Every case as a seed, right or wrong."""

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("seeder", name="all")
def every(bench: Bench, cases: Cases, *, rng: Stream) -> Cases:
    """All cases, in order."""
    return cases
