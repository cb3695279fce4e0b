"""Kinds of failures: how many a run has, told the same however it came about, and one of each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.engines import kinds as module
from assay.engines.found import Found, load_failures
from assay.engines.kinds import kinds_in, kinds_of, one_of_each
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
    assert readable(status)["kinds of failures"].startswith(f"{len(kinds)}\n")
    picked = assay.select("digits", by="random", k=10_000, distinct=True)
    assert len(picked) == picked.of == len(kinds)
    assert picked.dropped == {"of a kind that is there": len(failures) - len(kinds)}
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

    def watched(run: Store, shards: list[str], *, every: bool) -> Tensor:
        calls.append(run.name)
        return counted(run, shards, every=every)

    monkeypatch.setattr(module, "_counted", watched)
    assert [told(digits_run.run) for _ in range(3)] == [expected] * 3
    assert calls == ["digits"]


def test_answers_that_are_no_number_are_a_wrong_class_of_their_own() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            lead = x.flatten(1).mean(1) - 0.5
            return torch.stack([-lead, torch.where(lead > 0.05, torch.nan, lead)], 1)

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
        "of a kind that is there": digits_run.failures - len(kinds),
        "after the first": len(kinds) - 6,
    }
    assert digits_run.shrink(k=3, distinct=False).left_out == {"after the first": digits_run.failures - 3}
