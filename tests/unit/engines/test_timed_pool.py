"""The loop of CAGFuzz with a plain mutator: who joins has more active neurons than its parent, and lanes remember."""

from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.core.shards import decode
from assay.engines.found import Found
from assay.recipes.recipe import Recipe
from assay.stages.coverage.nc import nc
from assay.subjects.bench import Bench
from assay.subjects.observer import Observer

LOOP = Recipe(
    name="loop",
    summary="Noise in the loop of CAGFuzz.",
    mutate="noise(eps=0.25)",
    score=("active",),
    keep=("outdoes(score=active)",),
    coverage="nc(threshold=0.1)",
    schedule="pool(pick=time, mutants=3, depth=2)",
)


def looped(model: str, run: str, **more: Any) -> Found:
    return assay.fuzz(LOOP, model, "digits/train[:60]", run=run, **({"cases": 1500, "unit": 20} | more))


def pool_of(found: Found) -> Cases:
    """Everything that joined, in order; numbers follow those of the seeds."""
    kept = store.read(found.run)
    names = [name for line in kept.commits("fuzz") for name in line.files if name.startswith("state/pool-")]
    parts = [decode(kept.file(name)) for name in names]
    return Cases.cat([Cases(p.pop("x"), p.pop("y"), p.pop("origin"), p) for p in parts])


def test_who_joins_has_more_active_neurons_than_its_parent(digits_model: str) -> None:
    found = looped(digits_model, "timed")
    joined = pool_of(found)
    target = assay.load_target(digits_model)
    seeds = assay.load_data("digits/train[:60]").cases
    seeds = seeds[target(seeds.x).argmax(1) == seeds.y]
    every = torch.cat([seeds.x, joined.x])
    observer = Observer.of([target], "auto", ends=True)
    counts = nc(threshold=0.1).begin(observer, None).active(observer(every))
    parent, number = joined.info["parent"], torch.arange(len(joined)) + len(seeds)
    assert len(joined) > 20
    assert bool((counts[number] > counts[parent]).all())
    assert joined.info["active"].tolist() == counts[number].tolist()
    depth = torch.cat([torch.zeros(len(seeds), dtype=torch.int64), joined.info["depth"]])
    assert bool((depth[number] == depth[parent] + 1).all())
    assert int(depth.max()) == 1  # what is made of these is as deep as it may, and would be taken for nothing
    assert bool((target(joined.x).argmax(1) == joined.y).all())  # failures are stored, not gone on from


def test_failures_join_where_that_is_asked(digits_model: str) -> None:
    changes = {"schedule.failing": True, "mutate.eps": 0.5}
    joined = pool_of(looped(digits_model, "all", changes=changes))
    assert bool((assay.load_target(digits_model)(joined.x).argmax(1) != joined.y).any())


def test_a_run_in_two_sessions_is_a_run_in_one(digits_model: str) -> None:
    whole = looped(digits_model, "whole", deterministic=True)
    looped(digits_model, "parts", deterministic=True, cases=400)
    parts = looped(digits_model, "parts", deterministic=True)
    assert (whole.cases, whole.failures) == (parts.cases, parts.failures)
    for one, other in zip(_files(whole), _files(parts), strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def _files(found: Found) -> list[Path]:
    return sorted(path for part in ("cases", "state") for path in (found.run / part).iterdir())


MUTATOR = """
import torch

def counting(bench, cases, *, rng):
    seen = cases.info.get("lane_seen", torch.zeros_like(cases.origin))
    first = cases.info.get("lane_first", torch.zeros_like(cases.x))
    first = torch.where((seen == 0)[:, None, None, None], cases.x, first)
    return cases.with_x((first + 0.01 * (seen + 1)[:, None, None, None]).clamp(0, 1)).note(
        lane_seen=seen + 1, lane_first=first, line_seen=(seen + 1).float())
"""


def test_a_mutator_keeps_columns_in_its_lane_while_it_works_one_parent(digits_model: str) -> None:
    """The third case of a parent is the parent moved by 0.03: the lane counted, and a new parent begins anew."""
    Path("own.py").write_text(MUTATOR)
    changes = {"mutate": "own.py:counting", "oracle": "every", "schedule": "pool(mutants=3)", "keep": []}
    found = looped(digits_model, "own", changes=changes | {"score": []}, cases=200).load()
    assert set(found.info["line_seen"].tolist()) == {1.0, 2.0, 3.0}
    assert bool((found.info["line_seen"] == found.info["step"]).all())
    moved = (found.x - found.info["seed_x"]).flatten(1).amax(1)
    assert torch.allclose(moved, 0.01 * found.info["line_seen"], atol=1e-6)


@pytest.mark.parametrize(("kind", "name", "word"), [("score", "active", "coverage=nc"), ("filter", "outdoes", "=pool")])
def test_what_is_lacking_is_said(kind: str, name: str, word: str, digits_model: str) -> None:
    bench = Bench(assay.load_target(digits_model))
    with pytest.raises(UsageError, match=word):
        bind(kind, name, {})(bench, Cases.of(torch.zeros(1, 1, 8, 8)))
