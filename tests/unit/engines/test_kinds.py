"""Kinds of failures: how many a run has, told the same however it came about, and one of each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core import clusters, store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.engines import kinds as module
from assay.engines.found import Found, load_failures
from assay.engines.kinds import Kinds, Pair, kinds_in, kinds_of, one_of_each
from assay.engines.lanes import NONFINITE
from assay.engines.old_failures import old_failures
from assay.engines.stored import fails_in
from assay.outputs.shrunk import kinds_facts, shrunk_facts
from assay.outputs.status import readable, run_status
from assay.subjects.bench import Data

SIDE = 16


class TwoPlaces(nn.Module):
    """Says the other class where the upper left or the lower right corner is light, and nothing else matters to it."""

    def forward(self, x: Tensor) -> Tensor:
        own = x[:, 0, 7:9, 7:9].mean((1, 2)) - 0.5  # the middle tells the class
        light = torch.maximum(x[:, 0, :4, :4].mean((1, 2)), x[:, 0, 12:, 12:].mean((1, 2))) > 0.5
        own = torch.where(light, -own, own)
        return torch.stack([-own, own], 1)


def failures_of_two_places(n: int) -> Cases:
    """Both classes, failing by either corner, lit by any amount that does it."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 2
    seeds = 0.2 * torch.rand(n, 1, SIDE, SIDE, generator=rng)
    seeds[:, :, 7:9, 7:9] = y.view(-1, 1, 1, 1).float()
    x = seeds.clone()
    for row in range(n):
        place = slice(0, 4) if torch.rand((), generator=rng) < 0.5 else slice(12, 16)
        x[row, 0, place, place] = 0.5 + 0.5 * torch.rand((), generator=rng)
    return Cases.of(x, y).note(seed_x=seeds)


def test_a_net_that_fails_by_two_places_has_two_kinds_for_each_pair_of_classes() -> None:
    cases = failures_of_two_places(200)
    with torch.no_grad():
        pred = TwoPlaces()(cases.x).argmax(1)
    assert bool((pred != cases.y).all())
    cases = cases.note(pred=pred)
    kinds = kinds_of(cases)
    assert int(kinds.max()) + 1 == 4
    corner = (cases.x[:, 0, 0, 0] >= 0.5).long()
    assert len(torch.stack([cases.y, corner, kinds], 1).unique(dim=0)) == 4, "class and corner tell the kind"
    few = one_of_each(cases)
    assert kinds[few].tolist() == [0, 1, 2, 3]
    size = (cases.x - cases.info["seed_x"]).flatten(1).norm(dim=1)
    for kind, row in enumerate(few.tolist()):
        assert size[row] == size[kinds == kind].min()


@pytest.fixture
def digits_run(digits_model: str) -> Found:
    return assay.fuzz("noise", digits_model, "digits/train[:200]", run="digits", eps=0.4, unit=40)


def told(run: Path) -> Mapping[str, Any]:
    counted = kinds_in(store.read(run))
    assert counted is not None
    return counted.to_json()


def test_status_json_and_the_run_tell_the_same_and_selections_take_one_of_each(digits_run: Found) -> None:
    failures = load_failures(store.read(digits_run.run))
    kinds = digits_run.kinds()
    assert kinds is not None
    assert len(kinds) == int(kinds_of(failures).max()) + 1
    assert sum(pair.failures for pair in kinds.pairs) == len(failures)
    assert [pair.failures for pair in kinds.pairs] == sorted((pair.failures for pair in kinds.pairs), reverse=True)
    status = run_status(store.read(digits_run.run))
    assert status["kinds"] == kinds.to_json() == told(digits_run.run)
    shown = readable(status)
    assert shown["kinds of failures"].startswith(f"{len(kinds)}\n")
    assert (shown["distinct by seed and class"], "distinct" in shown) == (str(digits_run.distinct), False)
    picked = assay.select("digits", by="random", k=10_000, distinct=True)
    assert len(picked) == picked.of == len(kinds)
    assert picked.dropped == {"same_kind": len(failures) - len(kinds)}
    rows = decode((digits_run.run / picked.file).read_bytes())["rows"]
    assert sorted(kinds_of(failures)[rows].tolist()) == list(range(len(kinds)))
    assert len(assay.select("digits", by="random", k=10_000)) == len(failures), "another selection"
    assert assay.select("digits", by="random", k=10_000, distinct=True).new is False


def test_a_run_in_two_parts_tells_what_one_in_a_go_does(digits_model: str, digits_run: Found) -> None:
    given: dict[str, Any] = {"eps": 0.4, "unit": 40, "run": "parts"}
    first = assay.fuzz("noise", digits_model, "digits/train[:200]", cases=1500, **given)
    before, some = told(first.run), kinds_of(load_failures(store.read(first.run)))
    assay.fuzz("noise", digits_model, "digits/train[:200]", **given)
    assert told(first.run) == told(digits_run.run) != before
    every = kinds_of(load_failures(store.read(first.run)))
    assert torch.equal(every[: len(some)], some), "what came later changed nothing"


def test_kinds_of_many_failures_are_kept_in_the_cache(digits_run: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = told(digits_run.run)
    monkeypatch.setattr(module, "MANY", 1)
    calls = []
    counted = module._counted

    def watched(run: Store, shards: list[str]) -> Tensor:
        calls.append(run.name)
        return counted(run, shards)

    monkeypatch.setattr(module, "_counted", watched)
    assert [told(digits_run.run) for _ in range(3)] == [expected] * 3
    assert calls == ["digits"]


class Odd(nn.Module):
    """Goes by how light an image is; where it is lighter still, the second score is no number, and the argmax 1."""

    def forward(self, x: Tensor) -> Tensor:
        lead = x.flatten(1).mean(1) - 0.5
        return torch.stack([-lead, torch.where(lead > 0.05, torch.nan, lead)], 1)


def test_of_a_pool_answers_without_a_number_fail_though_their_argmax_is_the_label() -> None:
    cases = Cases.of(torch.full((10, 1, 4, 4), 0.54), torch.ones(10, dtype=torch.int64))
    data = Data("light", cases, InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b")))
    changes = {"oracle": "every", "schedule": "per_seed(steps=20, failures=20)"}
    found = assay.fuzz("noise", Odd(), data, run="pool", eps=0.3, changes=changes)
    pool = load_failures(store.read(found.run))
    odd = pool.info["kind"] == NONFINITE
    assert 0 < int(odd.sum()) < len(pool)
    assert bool((pool.info["pred"] == pool.y)[odd].all()), "by their argmax they would be right"
    fail = int((odd | (pool.info["pred"] != pool.y)).sum())
    run = store.read(found.run)
    assert int(fails_in(run, pool).sum()) == fail == len(old_failures(run))
    kinds = told(found.run)
    assert {pair["to"] for pair in kinds["pairs"]} == {"a", "no number"}
    assert sum(pair["failures"] for pair in kinds["pairs"]) == fail
    assert assay.select("pool", by="random", k=10_000, distinct=True).of == kinds["count"]
    assert found.shrink(model=Odd(), by="pixels").of == kinds["count"]


def test_answers_that_are_no_number_are_a_wrong_class_of_their_own() -> None:
    seeds = torch.full((20, 1, 4, 4), 0.49)
    data = Data(
        "flat", Cases.of(seeds, torch.zeros(20, dtype=torch.int64)), InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b"))
    )
    found = assay.fuzz(
        "noise", Odd(), data, run="odd", eps=0.4, changes={"schedule": "per_seed(steps=200, failures=9)"}
    )
    pairs = {(pair["from"], pair["to"]): pair["failures"] for pair in told(found.run)["pairs"]}
    assert set(pairs) == {("a", "b"), ("a", "no number")}
    assert sum(pairs.values()) == found.failures


def test_a_shard_that_is_none_is_named(digits_run: Found) -> None:
    with store.continued(digits_run.run) as run:
        run.commit(
            {"cases/step-999999.safetensors": encode({"x": torch.zeros(1, 1, 8, 8)})}, kind="fuzz", unit=9, rows=[]
        )
    with pytest.raises(UsageError, match=r"step-999999\.safetensors is no shard of failures: it has no column 'y'"):
        kinds_in(store.read(digits_run.run))


def test_a_found_run_shrinks_one_of_each_kind(digits_run: Found) -> None:
    kinds = digits_run.kinds()
    assert kinds is not None
    made = digits_run.shrink(k=6)
    assert (made.of, made.number) == (6, 1)
    assert made.left_out == {
        "same_kind": digits_run.failures - len(kinds),
        "beyond_k": len(kinds) - 6,
    }
    words = f"{digits_run.failures - len(kinds)} like one that was taken, {len(kinds) - 6} beyond the first 6"
    assert shrunk_facts(made)["left out"] == words
    assert digits_run.shrink(k=3, distinct=False).left_out == {"beyond_k": digits_run.failures - 3}


def test_where_no_more_kinds_are_told_apart_that_is_said() -> None:
    most = clusters.MOST
    told = Kinds((Pair(0, 1, 900, most), Pair(1, 0, 40, most - 1)), ("a", "b")).to_json()
    assert [pair["capped"] for pair in told["pairs"]] == [True, False]
    assert (told["count"], told["capped"]) == (2 * most - 1, True)
    lines = kinds_facts(told)["kinds of failures"].split("\n")
    assert lines == ["63 or more", "a → b: 900 of 32 or more kinds", "b → a: 40 of 31 kinds"]
    assert Kinds((Pair(1, 0, 40, most - 1),), ("a", "b")).to_json()["capped"] is False
