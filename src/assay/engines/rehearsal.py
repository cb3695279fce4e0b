"""What is tried before a run folder is made: what cannot work is refused there and then."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.engines.guidance import Guidance, observer_of, profile_for
from assay.engines.lanes import Lanes
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.coverage.profile import Profile
from assay.stages.filters.levels import FIXED, LEVELS
from assay.stages.objective import Look
from assay.stages.twins import VULNERABLE
from assay.stages.workshop import REHEARSAL
from assay.subjects.bench import Bench, Data
from assay.subjects.target import Target


class Rehearsed(NamedTuple):
    """A bench that sees what the recipe asks for, the profile of its criterion, and how many bytes a lane keeps."""

    bench: Bench
    profile: Profile | None
    lane_bytes: int


def rehearsed(
    target: Target,
    others: tuple[Target, ...],
    stages: Stages,
    training: Data | None,
    vulnerable: Target | None = None,
) -> Rehearsed:
    """What a run needs, after every stage was tried."""
    observer = observer_of(stages, target, others)
    roles = {f"sibling{i}": net for i, net in enumerate(others, 1)}
    roles |= {} if vulnerable is None else {VULNERABLE: vulnerable}
    bench = Bench(target, roles, observer=observer, training=training)
    with target.ready():
        profile = profile_for(stages, observer, training, bench.chunks)
        guidance = Guidance.of(stages, observer, profile, Stream(0))
        bench.kept[REHEARSAL] = True
        _rehearse(bench, stages, guidance)
        del bench.kept[REHEARSAL]
        one = _lanes(bench, stages, 1, guidance)
    return Rehearsed(bench, profile, one.x.nbytes + sum(column.nbytes for column in one.info.values()))


def _lanes(bench: Bench, stages: Stages, n: int, guidance: Guidance) -> Cases:
    """Lanes at seeds that are nothing."""
    none = torch.zeros(n, dtype=torch.int64, device=bench.target.device)
    seeds = Cases(torch.zeros(n, *bench.target.spec.shape, device=bench.target.device), none, none)
    look = Look(stages.objective, stages.weights, stages.score)
    empty: Iterator[Unit] = iter(())
    lanes = Lanes(bench, stages, stages.schedule(), look, seeds, Stream(0), empty, guidance, width=1, open_units=1)
    return lanes.at(seeds)


def _rehearse(bench: Bench, stages: Stages, guidance: Guidance) -> None:
    """Every stage of ours once on no cases at all: what cannot work is refused before a run folder is made."""
    ours = {name: score for name, score in stages.score.items() if not score.from_file}
    climbed = {name: score for name, score in stages.objective.items() if not score.from_file}
    look = Look(climbed, stages.weights, ours, chooser=guidance.chooser, coverage=guidance.coverage)
    bench.kept["coverage"] = guidance.coverage
    lanes = _lanes(bench, stages, 0, guidance)
    lanes = lanes.note(row=lanes.origin, key=lanes.origin)
    if not stages.mutate.from_file:
        stages.mutate(bench, lanes, rng=Stream(0).rows(lanes.origin))
    made = look(bench, lanes.note(before_x=lanes.x, **{name: lanes.x.new_zeros(0) for name in stages.score}))
    if guidance.coverage is not None:
        made = made.note(gain=guidance.gains(bench, made, made.info["ended"]))
    _rehearse_seeds(bench, stages)
    judges = {"oracle": {stages.oracle.entry.name: stages.oracle}}
    judges |= {"opinions": dict(stages.opinions), "valid": dict(stages.valid), "keep": dict(stages.keep)}
    for field, name, judge in ((f, n, j) for f, some in judges.items() for n, j in some.items()):
        if judge.from_file:
            continue
        try:
            judge(bench, made)
        except UsageError as error:
            raise UsageError(f"{field} has {name}: {error}") from error
    for name in (LEVELS, FIXED):
        bench.kept.pop(name, None)


def _rehearse_seeds(bench: Bench, stages: Stages) -> None:
    """The seeders of the chain on no case, its filters on one that is nothing; a level that none fixes is refused."""
    none = torch.zeros(1, dtype=torch.int64)
    x = torch.zeros(1, *bench.target.spec.shape)
    one = Cases(x, none, none, {"seed_x": x})
    for name, bound in stages.seeds.items():
        if bound.entry.kind != "filter":
            if not bound.from_file:
                bound(bench, one[:0], rng=Stream(0))
            continue
        try:
            bound(bench, one)
        except KeyError as lacking:
            raise UsageError(
                f"filter {name!r} asks for {lacking}, which seeds do not have; it belongs to valid or keep"
            ) from lacking
    bench.kept[FIXED] = True
