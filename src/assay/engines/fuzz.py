"""Fuzzing: schedule, mutate, judge, commit, until the budget is spent. Same command, same run: it goes on."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core import environment, store
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.units import seconds
from assay.engines.campaign import Campaign, Progress
from assay.engines.found import Found
from assay.engines.lanes import Lanes
from assay.engines.protocol import warn_of_large
from assay.engines.session import session
from assay.recipes.recipe import Recipe, Stages, ball_of, resolve
from assay.stages.objective import Look, check_curvature
from assay.subjects.bench import Bench, Data, fitted
from assay.subjects.data.load import load_data
from assay.subjects.sources.folded import folded
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, require, require_gradients

UNITS = {"cpu": 256, "cuda": 4096}  # seeds committed together: a commit takes as long as 100 steps on the CPU
OPEN_SEEDS = 8  # open units hold so many seeds a lane: these stay full while the last, longest seeds of a unit end
LANES = {"cpu": 256, "cuda": 8192}
LANE_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}  # of the memory that all lanes keep: inputs, queues, stored cases


def fuzz(
    recipe: str | Recipe,
    model: str | nn.Module | Target,
    data: str | Data,
    *,
    run: str | None = None,
    folder: Path | None = None,
    time: str | float | None = None,
    cases: int | None = None,
    seed: int = 0,
    eps: str | float | None = None,
    norm: str | None = None,
    changes: Mapping[str, Any] | None = None,
    unit: int | str = "auto",
    lanes: int | str = "auto",
    curvature: str = "auto",
    device: str = "auto",
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    fresh: bool = False,
    deterministic: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Look for failing cases and keep them in a run folder; a run that exists is continued.

    Without ``time`` and ``cases`` every seed is worked once. Both budgets count over all sessions of a run. ``lanes``
    is how many seeds are worked at a time, ``curvature`` how second derivatives are taken (double, forward, linear;
    auto times them); neither is part of what makes a run this run. ``folder`` is that of a run inside another one.
    """
    check_curvature(curvature)
    if cases is not None and cases < 1:
        raise UsageError(f"cases {cases} must be at least 1")
    seeds_from = load_data(data, part="train", size=size)
    target = load_target(model, data=seeds_from, device=device, mean=mean, std=std)
    seeds_from = fitted(target, seeds_from)
    ball = ball_of(eps, norm)
    warn_of_large(ball["eps"], ball["norm"], seeds_from)
    stages = resolve(recipe, changes or {}, ball)
    require(target, stages.needs(), f"recipe {stages.name!r}")
    group = _number("unit", _units_so_far(unit, run, folder, fresh=fresh), UNITS, target)
    if "grad" in stages.needs():
        require_gradients(target, seeds_from.cases.x, f"recipe {stages.name!r}")
    rehearse(Bench(target), stages)
    width = _width(lanes, Bench(target), stages)
    config: dict[str, dict[str, Any]] = {
        "run": {"kind": "fuzz", "seed": seed, "unit": group, "deterministic": deterministic},
        "target": {
            "model": model if isinstance(model, str) else "module",
            "fingerprint": target.fingerprint(),
            "classes": list(target.spec.classes),
            **({"mean": list(mean), "std": list(std)} if mean or std else {}),
        },
        "data": {
            "spec": seeds_from.source or seeds_from.name,
            "fingerprint": seeds_from.fingerprint(),
            **({"size": size} if size else {}),
        },
        "recipe": stages.config(),
        "budget": {
            k: v for k, v in (("time", time if time is None else seconds(time)), ("cases", cases)) if v is not None
        },
    }
    with (
        store.opened(run, config, environment.describe(), fresh=fresh, folder=folder) as kept,
        session(deterministic=deterministic),
    ):
        bench = Bench(target, chunks=Chunks(max(width, Chunks().size)))
        faster = folded(target, seeds_from.cases.x)
        with target.ready(), faster.ready():
            search = Bench(faster, chunks=bench.chunks)
            campaign = Campaign(
                kept,
                bench,
                search,
                stages,
                Stream(seed, ("fuzz",)),
                group,
                progress or (lambda _: None),
                whole_units=deterministic,
            )
            campaign.prepare(seeds_from)
            # Where bytes must repeat, nothing is timed and one unit is worked at a time: then its batches do not depend
            # on its neighbours.
            campaign.choose_look(width, "double" if deterministic and curvature == "auto" else curvature)
            open_units = 1 if deterministic else 1 + math.ceil(OPEN_SEEDS * width / group)
            return campaign.go(width, open_units, config["budget"])


def _number(what: str, given: int | str, usual: Mapping[str, int], target: Target) -> int:
    """A number from 1 up; ``auto`` is what suits the device."""
    if given == "auto":
        return usual.get(target.device.type, usual["cpu"])
    if not isinstance(given, int) or given < 1:
        raise UsageError(f"{what} is auto or a number from 1 up, got {given!r}")
    return given


def _units_so_far(unit: int | str, run: str | None, folder: Path | None, *, fresh: bool) -> int | str:
    """The size of units that a run to be continued has already, where nobody asks for another."""
    place = folder or (None if run is None or fresh else store.runs_root() / run)
    if unit != "auto" or place is None:
        return unit
    size: int | str = store.begun_with(place).get("run", {}).get("unit", unit)
    return size


def _width(lanes: int | str, bench: Bench, stages: Stages) -> int:
    """How many lanes; ``auto`` is what suits the device, fewer where inputs are large."""
    if lanes != "auto":
        return _number("lanes", lanes, LANES, bench.target)
    one = _empty_lanes(bench, stages, 1)
    each = one.x.nbytes + sum(column.nbytes for column in one.info.values())
    room = LANE_BYTES.get(bench.target.device.type, LANE_BYTES["cpu"]) // each
    return max(1, min(_number("lanes", lanes, LANES, bench.target), room))


def _empty_lanes(bench: Bench, stages: Stages, n: int) -> Cases:
    """Lanes at seeds that are nothing."""
    none = torch.zeros(n, dtype=torch.int64, device=bench.target.device)
    seeds = Cases(torch.zeros(n, *bench.target.spec.shape, device=bench.target.device), none, none)
    look = Look(stages.objective, stages.weights, stages.score)
    return Lanes(bench, stages, stages.schedule(), look, seeds, Stream(0), iter(()), width=1, open_units=1).at(seeds)


def rehearse(bench: Bench, stages: Stages) -> None:
    """Every stage of ours once on no cases at all: what cannot work is refused before a run folder is made."""
    ours = {name: score for name, score in stages.score.items() if not score.from_file}
    climbed = {name: score for name, score in stages.objective.items() if not score.from_file}
    look = Look(climbed, stages.weights, ours)
    lanes = _empty_lanes(bench, stages, 0)
    if not stages.mutate.from_file:
        stages.mutate(bench, lanes, rng=Stream(0).rows(lanes.origin))
    made = look(bench, lanes.note(before_x=lanes.x, **{name: lanes.x.new_zeros(0) for name in stages.score}))
    for judge in (stages.oracle, *stages.valid.values(), *stages.keep.values()):
        if not judge.from_file:
            judge(bench, made)
