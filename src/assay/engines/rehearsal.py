"""What is tried before a run folder is made: what cannot work is refused there and then."""

from collections.abc import Iterator

import torch

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.engines.guidance import Guidance, observer_of, profile_for
from assay.engines.lanes import Lanes
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.coverage.profile import Profile
from assay.stages.objective import Look
from assay.subjects.bench import Bench, Data
from assay.subjects.target import Target


def rehearsed(
    target: Target, others: tuple[Target, ...], stages: Stages, training: Data
) -> tuple[Bench, Profile | None]:
    """A bench that sees what the recipe asks for, and the profile of its criterion, after every stage was tried."""
    observer = observer_of(stages, target, others)
    roles = {f"sibling{i}": net for i, net in enumerate(others, 1)}
    bench = Bench(target, roles, observer=observer, training=training)
    with target.ready():
        profile = profile_for(stages, observer, training, bench.chunks)
        _rehearse(bench, stages, Guidance.of(stages, observer, profile, Stream(0)))
    return bench, profile


def empty_lanes(bench: Bench, stages: Stages, n: int) -> Cases:
    """Lanes at seeds that are nothing."""
    none = torch.zeros(n, dtype=torch.int64, device=bench.target.device)
    seeds = Cases(torch.zeros(n, *bench.target.spec.shape, device=bench.target.device), none, none)
    return _at(bench, stages, seeds, Guidance())


def _at(bench: Bench, stages: Stages, seeds: Cases, guidance: Guidance) -> Cases:
    look = Look(stages.objective, stages.weights, stages.score)
    empty: Iterator[Unit] = iter(())
    lanes = Lanes(bench, stages, stages.schedule(), look, seeds, Stream(0), empty, guidance, width=1, open_units=1)
    return lanes.at(seeds)


def _rehearse(bench: Bench, stages: Stages, guidance: Guidance) -> None:
    """Every stage of ours once on no cases at all: what cannot work is refused before a run folder is made."""
    ours = {name: score for name, score in stages.score.items() if not score.from_file}
    climbed = {name: score for name, score in stages.objective.items() if not score.from_file}
    look = Look(climbed, stages.weights, ours, chooser=guidance.chooser, coverage=guidance.coverage)
    none = torch.zeros(0, dtype=torch.int64, device=bench.target.device)
    seeds = Cases(torch.zeros(0, *bench.target.spec.shape, device=bench.target.device), none, none)
    lanes = _at(bench, stages, seeds, guidance).note(row=none, key=none)
    if not stages.mutate.from_file:
        stages.mutate(bench, lanes, rng=Stream(0).rows(lanes.origin))
    made = look(bench, lanes.note(before_x=lanes.x, **{name: lanes.x.new_zeros(0) for name in stages.score}))
    if guidance.coverage is not None:
        made = made.note(gain=guidance.gains(bench, made, made.info["ended"]))
    bench.kept["coverage"] = guidance.coverage
    for judge in (stages.oracle, *stages.valid.values(), *stages.keep.values()):
        if not judge.from_file:
            judge(bench, made)
