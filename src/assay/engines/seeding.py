"""The seeds of a campaign: chosen once by the recipe's chain and committed, so that a resumed run has the same."""

import logging
from typing import Any

import torch

from assay.core.cases import MINED, UNLABELLED, Cases
from assay.core.errors import NothingToTest
from assay.core.randomness import Stream
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.recipes.recipe import Stages
from assay.stages.filters.levels import FIXED, LEVELS
from assay.subjects.bench import Bench, Data

log = logging.getLogger("assay")

FILE = "state/seeds.safetensors"
LABELLED = "labelled"  # the column that says which labels were given; where all were there is none
UNLIKE = 0.5  # SSIM below which an image is another one to most eyes


def seeds_of(folder: Store, stages: Stages, bench: Bench, data: Data, rng: Stream) -> Cases:
    """The seeds; those that a seeder made have the columns ``seed_x``, the clean parent, and what was noted of them."""
    if next(folder.commits("seeds"), None) is None:
        _choose(folder, stages, bench, data, rng)
    told = seeding(folder)
    bench.kept.update({LEVELS: dict(told["levels"]), FIXED: True})
    kept = decode(folder.file(FILE))
    place = kept["place"]
    columns = {MINED: kept[MINED]} if MINED in kept else {}
    if told["grown"]:
        columns["seed_x"] = data.cases.x[place]
    if told["unlabelled"]:
        columns[LABELLED] = data.cases.y[place] != UNLABELLED
    return Cases(kept.get("x", data.cases.x[place]), kept["y"], data.cases.origin[place], columns)


def seeding(folder: Store) -> dict[str, Any]:
    """How the seeds came about: of how many cases each step left how many, at which levels; {} before it is known."""
    line = next(folder.commits("seeds"), None)
    if line is None:
        return {}
    known = {"seeds": 0, "of": 0, "steps": {}, "levels": {}, "unlabelled": 0, "grown": False, "mined": False}
    told = {name: line.meta.get(name, blank) for name, blank in known.items()}
    return told | {"steps": dict(told["steps"])}


def _choose(folder: Store, stages: Stages, bench: Bench, data: Data, rng: Stream) -> None:
    for name in (LEVELS, FIXED):
        bench.kept.pop(name, None)
    chosen = data.cases.note(place=torch.arange(len(data)))
    steps: dict[str, int] = {}
    if len(stages.seeds) > 1:  # attacks may take a minute, which no budget counts
        log.info("choosing seeds from %d cases: %s", len(data), ", then ".join(stages.seeds))
    for number, (name, bound) in enumerate(stages.seeds.items()):
        chosen = _step(bound, bench, chosen, rng.at(*([number] if number else [])))
        steps[name] = len(chosen)
        if not len(chosen):
            raise NothingToTest(_nothing(name, steps, len(data)))
    _tell(stages, data, steps)
    floor = any(bound.params.get("least") is not None for bound in stages.seeds.values())
    if not floor and bench.kept.get(LEVELS, {}).get("ssim", 1.0) < UNLIKE:
        log.warning(
            "the seeds are as little like their clean parents as SSIM %.2f: the filter keeps the best of what the "
            "attack made, whatever that is; a smaller --eps, or a floor (--set seeds.quality.least=0.7), keeps better",
            bench.kept[LEVELS]["ssim"],
        )
    place = chosen.info["place"]
    kept = {"place": place, "y": chosen.y}
    if not torch.equal(chosen.x, data.cases.x[place]):  # seeds the seeder made; others are in the data
        kept["x"] = chosen.x
    if MINED in chosen.info:
        kept[MINED] = chosen.info[MINED]
    folder.commit(
        {FILE: encode(kept)},
        kind="seeds",
        seeds=len(chosen),
        of=len(data),
        steps=list(steps.items()),  # pairs: the journal sorts the names of a table
        levels=bench.kept.get(LEVELS, {}),
        unlabelled=int((data.cases.y[place] == UNLABELLED).sum()),
        grown="seed_x" in chosen.info,
        mined=MINED in chosen.info,
        bounds=list(bench.target.spec.bounds),
    )


def _step(bound: Any, bench: Bench, cases: Cases, rng: Stream) -> Cases:
    if bound.entry.kind != "filter":
        seeds: Cases = bound(bench, cases, rng=rng)
        return seeds
    return cases[bound(bench, cases).to(cases.x.device)]


def _nothing(name: str, steps: dict[str, int], of: int) -> str:
    if len(steps) == 1:
        return (
            f"the seeder {name!r} leaves none of {of} cases: "
            "the target gets every one wrong, or the data are not what it was trained for"
        )
    return f"no seed is left: of {of} cases {', '.join(f'{step} left {count}' for step, count in steps.items())}"


def _tell(stages: Stages, data: Data, steps: dict[str, int]) -> None:
    unlabelled = int((data.cases.y == UNLABELLED).sum())
    if unlabelled:
        who = "model" if stages.resistant is None else "vulnerable model"
        log.warning("%d of %d cases have no label: what the %s says of them counts", unlabelled, len(data), who)
    if len(steps) > 1:
        log.info("seeds: of %d cases %s", len(data), ", ".join(f"{name} left {n}" for name, n in steps.items()))
        return
    ((name, count),) = steps.items()
    left_out = len(data) - count
    # A seeder that asks the target nothing leaves cases out by design.
    tell = log.warning if left_out > len(data) / 2 and stages.seeds[name].entry.needs else log.info
    if left_out:
        tell("%d of %d cases are left out by seeder %s", left_out, len(data), name)
