"""Fuzzing: schedule, mutate, judge, commit, until the budget is spent. Same command, same run: it goes on."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core import environment, store
from assay.core.chunks import Chunks
from assay.core.deadline import limited
from assay.core.errors import UsageError
from assay.core.precision import full_precision
from assay.core.randomness import Stream
from assay.core.units import seconds
from assay.engines.asking import answers_in, keep_answers
from assay.engines.campaign import Campaign, Progress
from assay.engines.cluster import Cluster, cluster_of
from assay.engines.found import Found
from assay.engines.guidance import Guidance
from assay.engines.jobs import refuse_black_box
from assay.engines.pool import check_travels
from assay.engines.protocol import warn_of_large
from assay.engines.rehearsal import rehearsed
from assay.engines.session import session
from assay.engines.siblings import SIBLINGS, for_siblings, siblings_of
from assay.engines.signs import check_ignored
from assay.engines.stability import Confirm, check_confirm
from assay.engines.twins import TWINS, Twins, twins_of
from assay.engines.waves import wave_of
from assay.engines.workshop import RunWorkshop
from assay.recipes.fitting import recipes_for
from assay.recipes.recipe import Recipe, Stages, ball_of, resolve
from assay.stages.objective import check_curvature
from assay.stages.schedules import Pooled
from assay.stages.workshop import WORKSHOP
from assay.subjects.bench import Data, fitted
from assay.subjects.data.load import load_data, training_of
from assay.subjects.hurried import hurried
from assay.subjects.sources.folded import folded
from assay.subjects.sources.hub import pinned
from assay.subjects.sources.load import load_target
from assay.subjects.target import START, Target, require, require_gradients

log = logging.getLogger("assay")

UNITS = {"cpu": 256, "cuda": 4096}  # seeds committed together: a commit takes as long as 100 steps on the CPU
LEAST_UNIT = 16  # where a unit is made smaller for a small budget
OPEN_SEEDS = 8  # open units hold so many seeds a lane: these stay full while the last, longest seeds of a unit end
LANES = {"cpu": 256, "cuda": 32768}
LANE_BYTES = 1 << 30  # of the memory that all lanes keep: inputs, queues, stored cases
LANE_SHARE = 0.25  # the same on a GPU, of what it has free; the passes take the rest, in smaller chunks where they must


@limited
def fuzz(
    recipe: str | Recipe,
    model: str | nn.Module | Target | Callable[..., Any],
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
    siblings: Sequence[str | nn.Module | Target] = (),
    resistant: str | nn.Module | Target | None = None,
    training: str | Data | None = None,
    unit: int | str = "auto",
    lanes: int | str = "auto",
    curvature: str = "auto",
    device: str = "auto",
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    fresh: bool = False,
    deterministic: bool = False,
    amp: bool = False,
    compiled: bool = False,
    confirm: str = "",
    ignore: Sequence[str] = (),
    call_timeout: str | float | None = None,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    wave: int | str = "auto",
    progress: Progress | None = None,
) -> Found:
    """Look for failing cases and keep them in a run folder; a run that exists is continued.

    Without ``time`` and ``cases`` every seed is worked once. Both budgets count over all sessions of a run. ``lanes``
    is how many seeds are worked at a time, ``curvature`` how second derivatives are taken (double, forward, linear;
    auto times them); neither is part of what makes a run this run. ``siblings`` are other models of the same task, for
    recipes that compare models; ``resistant`` is the model that a recipe with two of them tests, which it otherwise
    builds from ``model`` (time that no budget counts); ``training`` the data the model was trained with, for criteria
    that need to know and to build with (the training part of the set that ``data`` names, unless given). ``folder`` is
    that of a run inside another one. A model that only answers is sent at most ``queries`` inputs over all sessions,
    asked as ``ask`` says; its answers are kept in the run, and where the budget ends first the run is not ``complete``.

    A failure is stored where it fails again when asked anew; of a model that changes its mind, in 4 of 5 repeats, or as
    ``confirm`` says ("4/5"). Where the model raises, or takes longer than ``call_timeout`` for one call, the seeds
    under way are tried once more and then skipped and counted. Signs that a run is not working are logged and kept in
    ``warnings``, less those named by ``ignore``.

    With ``amp`` passes that take no gradient and look at no neuron are made in bfloat16, with ``compiled`` those that
    take no second derivative by a compiled net; every failure is judged by the model as it is, in float32.

    With ``ray`` ("local", or the address of a cluster) units are worked by so many ``workers``, each with a
    ``gpu_share``; nothing of that is part of what makes a run this run. Where a recipe learns as it goes, so many units
    as a ``wave`` has begin with the same knowledge: 1, or 4 with ``ray`` or ``deterministic``.
    """
    check_curvature(curvature)
    if cases is not None and cases < 1:
        raise UsageError(f"cases {cases} must be at least 1")
    if confirm:
        Confirm.parse(confirm)  # before anything is loaded
    ignored = check_ignored(ignore)
    cluster = cluster_of(ray, workers, gpu_share)
    if cluster is not None:
        refuse_black_box(model, queries, ask, white_box=white_box)
    model, siblings, resistant = pinned(model), [pinned(other) for other in siblings], pinned(resistant)
    seeds_from = load_data(data, part="train", size=size, like=model)
    named = load_target(
        model,
        data=seeds_from,
        device=device,
        mean=mean,
        std=std,
        queries=queries,
        ask=ask,
        white_box=white_box,
        answers=answers_in(run, folder, fresh=fresh),
    )
    check_confirm(confirm, named)
    seeds_from = fitted(named, seeds_from)
    ball = ball_of(eps, norm)
    warn_of_large(ball["eps"], ball["norm"], seeds_from)
    others = siblings_of(siblings, named, seeds_from, device, mean, std)
    stages = resolve(for_siblings(recipe, others), changes or {}, ball)
    loading = {"device": device, "mean": mean, "std": std}
    twins = twins_of(stages, model, named, resistant, seeds_from, training, size=size, **loading)
    if twins is not None and twins.given is not None and twins.given.fingerprint() in {o.fingerprint() for o in others}:
        raise UsageError("--with names the resistant model, which is the one under test: the two can never disagree")
    vulnerable = None if twins is None else named
    target = named if twins is None else twins.like_resistant
    starts, needs = START in stages.needs(), stages.needs() - {SIBLINGS, TWINS, START}
    for net in (target, *others, *(() if vulnerable is None else (vulnerable,))):
        require(net, needs, f"recipe {stages.name!r}", lambda gives: f"would work: {', '.join(recipes_for(gives))}")
    _check_others(stages, others, twins)
    begun = _begun_with(run, folder, fresh=fresh)
    unit = begun.get("unit", unit) if unit == "auto" else unit
    group = _number("unit", unit, UNITS, target)
    if unit == "auto" and stages.coverage is not None and cases is not None:  # a new run, which ends with a whole unit
        group = min(group, max(LEAST_UNIT, cases // 20))
    if "grad" in stages.needs():
        require_gradients(target, seeds_from.cases.x, f"recipe {stages.name!r}")
    asked = training is not None or starts or "activation" in needs  # others never ask, and reading may take seconds
    learnt = training_of(seeds_from, training, size=size) if asked else None
    if learnt is None and starts:
        learnt = seeds_from
    learnt = None if learnt is None else fitted(target, learnt)
    bench, profile, lane_bytes = rehearsed(target, others, stages, learnt, vulnerable)
    width = _width(lanes, target, lane_bytes)
    rng = Stream(seed, ("fuzz",))
    guidance = Guidance.of(stages, bench.observer, profile, rng)
    if cluster is not None:
        check_travels(target, *bench.roles.values())
    learns = guidance.coverage is not None or isinstance(stages.schedule(), Pooled)
    size_of_wave = wave_of(wave, begun, guidance, at_once=cluster is not None or deterministic) if learns else 1
    fits_to = starts or profile is not None  # whether something is fitted to the training data
    config: dict[str, dict[str, Any]] = {
        "run": {
            "kind": "fuzz",
            "seed": seed,
            "unit": group,
            "deterministic": deterministic,
            **({"amp": True} if amp else {}),
            **({"wave": size_of_wave} if size_of_wave > 1 else {}),
            **({"confirm": str(Confirm.parse(confirm))} if confirm else {}),
        },
        "target": {
            "model": model if isinstance(model, str) else "module",
            "fingerprint": named.fingerprint(),
            "classes": list(named.spec.classes),
            **({} if twins is None else twins.config(resistant)),
            **({"mean": list(mean), "std": list(std)} if mean or std else {}),
            **({"white_box": True} if white_box else {}),
            **({"siblings": [net.fingerprint() for net in others]} if others else {}),
            **({"with": [m if isinstance(m, str) else "module" for m in siblings]} if others else {}),
        },
        "data": {
            "spec": seeds_from.source or seeds_from.name,
            "fingerprint": seeds_from.fingerprint(),
            **({"size": size} if size else {}),
            **({"training": learnt.source or learnt.name} if learnt is not None and training is not None else {}),
            **({"training_fingerprint": learnt.fingerprint()} if learnt is not None and fits_to else {}),
        },
        "recipe": stages.config(),
        "budget": {
            name: limit
            for name, limit in (
                ("time", time if time is None else seconds(time)),
                ("cases", cases),
                ("queries", queries),
            )
            if limit is not None
        },
        **({"ask": {"how": ask}} if ask else {}),
    }
    with (
        store.opened(run, config, environment.describe(), fresh=fresh, folder=folder) as kept,
        session(deterministic=deterministic),
        full_precision(),
    ):
        tell = progress or (lambda _: None)
        workshop = RunWorkshop(kept, tell)
        keep_answers(named, kept.path)
        if twins is not None and twins.given is None:
            target = twins.resistant(kept, seed, lambda numbers: tell({"phase": "resistant", **numbers}))
            bench, profile, _ = rehearsed(target, others, stages, learnt, vulnerable)
            guidance = Guidance.of(stages, bench.observer, profile, rng)
        bench = replace(bench, chunks=Chunks(max(width, Chunks().size)))
        # Neurons are those of the net as it came: one with parts folded into each other has others.
        faster = target
        if bench.observer is None:
            faster = folded(target, seeds_from.cases.x)
            plain = compiled and "grad" not in _scored(stages)
            faster = hurried(faster, amp=amp, compiled=plain, rows=bench.chunks.size, fold=False)
        bench.kept.update({"coverage": guidance.coverage, WORKSHOP: workshop})
        with ExitStack() as at_work:
            for net in (target, faster, *bench.roles.values()):
                at_work.enter_context(net.ready())
            search = replace(bench, target=faster)
            campaign = Campaign(
                kept,
                bench,
                search,
                stages,
                rng,
                group,
                tell,
                guidance,
                whole_units=deterministic,
                wave=size_of_wave,
                confirm=confirm,
                ignored=ignored,
            )
            if not campaign.prepare(seeds_from):
                return campaign.found
            # Where bytes must repeat, nothing is timed and one unit is worked at a time: then its batches do not depend
            # on its neighbours.
            campaign.choose_look(width, "double" if deterministic and curvature == "auto" else curvature)
            one_by_one = guidance.coverage is not None and (cases is not None or cluster is not None)
            alone = deterministic or size_of_wave > 1 or one_by_one
            return campaign.go(width, _open_units(stages, width, group, alone), config["budget"], cluster)


def _scored(stages: Stages) -> set[str]:
    """What the scores and the objective ask of the net: of the gradient a slope takes another derivative."""
    return {need for bound in (*stages.objective.values(), *stages.score.values()) for need in bound.entry.needs}


def _check_others(stages: Stages, others: Sequence[Target], twins: Twins | None) -> None:
    """Refuse a recipe that compares models where there is none to compare with."""
    needs = stages.needs()
    if others and SIBLINGS not in needs:
        log.warning("recipe %s compares no models: --with only adds their neurons to what is covered", stages.name)
    if SIBLINGS in needs and not others and twins is None:
        raise UsageError(f"recipe {stages.name!r} compares models; name another of the same task: --with MODEL")


def _open_units(stages: Stages, width: int, group: int, alone: bool) -> int:
    # All parents of a pool take equally long, and it is to be as the unit before left it.
    if alone or isinstance(stages.schedule(), Pooled):
        return 1
    return 1 + math.ceil(OPEN_SEEDS * width / group)


def _number(what: str, given: int | str, usual: Mapping[str, int], target: Target) -> int:
    """A number from 1 up; ``auto`` is what suits the device."""
    if given == "auto":
        return usual.get(target.device.type, usual["cpu"])
    if not isinstance(given, int) or given < 1:
        raise UsageError(f"{what} is auto or a number from 1 up, got {given!r}")
    return given


def _begun_with(run: str | None, folder: Path | None, *, fresh: bool) -> Mapping[str, Any]:
    """How a run to be continued began; nothing of a new one."""
    place = folder or (None if run is None or fresh else store.place(run))
    told: Mapping[str, Any] = {} if place is None else store.begun_with(place).get("run", {})
    return told


def _width(lanes: int | str, target: Target, each: int) -> int:
    """How many lanes; ``auto`` is what suits the device, fewer where one keeps many bytes."""
    width = _number("lanes", lanes, LANES, target)
    cuda = target.device.type == "cuda"
    room = LANE_SHARE * torch.cuda.mem_get_info(target.device)[0] if cuda else LANE_BYTES
    return width if lanes != "auto" else max(1, min(width, int(room) // each))
