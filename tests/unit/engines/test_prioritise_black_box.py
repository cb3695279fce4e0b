"""Prioritising a model that only answers: what it is asked, when, and what a spent budget leaves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.ids import input_ids
from assay.engines.ordering import Ordering
from assay.outputs.priority import priority_table
from assay.outputs.status import run_status
from assay.subjects.bench import Bench, Data
from rule import SPEC, drawn, scores_of

LBT = "lbt(net=mlp, tau=0.9, rounds=3, start=60, check=120, epochs=6, lr=0.01, mutants=30, rate=0.1)"


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


class Box:
    """A function that answers with probabilities, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        inputs = torch.from_numpy(x)
        self.asked += input_ids(inputs)
        answers: np.ndarray = scores_of(inputs).softmax(1).numpy()
        return answers


def _pool(*, labelled: bool = True) -> Data:
    x = drawn(200, 7)
    y = scores_of(x).argmax(1)
    y[::4] = (y[::4] + 1) % 3  # a quarter is wrong
    return Data("pool", Cases.of(x, y if labelled else None), SPEC)


TRAINING = Data("start", Cases.of(drawn(600, 1)), SPEC)


def _go(box: Any, by: str = LBT, **more: Any) -> assay.Prioritised:
    return assay.prioritise(box, more.pop("pool", None) or _pool(), by=by, k=50, training=TRAINING, **more)


def _of_pool(box: Box) -> int:
    return len(set(box.asked) & set(input_ids(_pool().cases.x)))


def test_the_pool_is_asked_last_and_once_to_measure() -> None:
    box = Box()
    result = _go(box)
    assert result.labelled == 200
    assert result.faults == 50
    pool = input_ids(_pool().cases.x)
    assert box.asked[0] == pool[0]  # the question to see what it answers with
    assert set(box.asked[-199:]) == set(pool[1:])
    assert len(box.asked) == len(set(box.asked))
    assert result.queries is not None
    assert result.queries["asked"] == len(box.asked)
    assert "pool_agreement" in result[LBT].facts


@pytest.mark.parametrize("how", [{"measure": False}, {"pool": _pool(labelled=False)}])
def test_it_is_not_asked_where_there_is_nothing_to_measure(how: dict[str, Any]) -> None:
    box = Box()
    result = _go(box, **how)
    assert _of_pool(box) <= 1  # the question to see may be of it
    assert result[LBT].order is not None
    assert result[LBT].measures is None
    assert result.chance is None
    assert bool((result.predicted == -1).all())
    assert result.to_json()["complete"]


def test_a_budget_too_small_to_measure_is_told_and_orders_all_the_same() -> None:
    box = Box()
    result = _go(box, queries=400)
    assert _of_pool(box) <= 1
    assert result[LBT].order is not None
    assert result[LBT].measures is None
    assert any("not measured" in note for note in result.notes)
    assert len(box.asked) <= 400


def test_the_order_is_that_of_the_same_model_as_a_white_box() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scores_of(x)

    order = _go(Net())[LBT].order
    assert order is not None
    assert order.equal(_go(Box())[LBT].order)  # type: ignore[arg-type]


def test_methods_that_need_the_pool_s_answers_stop_at_the_budget_and_go_on_with_a_larger_one() -> None:
    box = Box()
    first = _go(box, "gini", queries=120, run="r")
    assert not first.complete
    assert first["gini"].order is None
    assert "budget" in first["gini"].why_not
    assert len(box.asked) == 120
    again = _go(box, "gini", queries=120, run="r")
    assert not again.complete
    assert len(box.asked) == 120  # nothing left to ask with
    rest = _go(box, "gini", queries=400, run="r")
    assert rest.complete
    assert len(box.asked) == len(set(box.asked)) == 200
    undisturbed = _go(Box(), "gini")
    assert rest["gini"].order.equal(undisturbed["gini"].order)  # type: ignore[union-attr, arg-type]
    assert rest.queries is not None
    assert rest.queries["asked"] == 200


@pytest.mark.parametrize("queries", [330, 400, 520])
def test_the_same_command_again_gives_the_same_order_and_asks_nothing(queries: int) -> None:
    """With a budget that ends in the rounds of the stand-in, before the measuring, and after it."""
    box = Box()
    first = _go(box, queries=queries, run="again")
    asked = len(box.asked)
    again = _go(box, queries=queries, run="again")
    assert len(box.asked) == asked <= queries
    assert first[LBT].order.equal(again[LBT].order)  # type: ignore[union-attr, arg-type]
    assert first[LBT].facts["stand_in"] == again[LBT].facts["stand_in"]
    assert first.complete == again.complete


def test_a_stand_in_that_a_budget_cut_short_is_not_complete() -> None:
    hard = LBT.replace("tau=0.9, rounds=3", "tau=1.0, rounds=6")
    assert not _go(Box(), hard, queries=310, measure=False).complete  # starts from fewer
    assert _go(Box(), hard, queries=3000, measure=False).complete
    far = LBT.replace("tau=0.9", "tau=1.0").replace("check=120, epochs=6", "check=30, epochs=1")  # much is disputed
    cut = _go(Box(), far, queries=270, measure=False)  # enough to begin with
    assert not cut.complete
    assert cut[far].facts["stand_in"]["cut"]


def test_a_smaller_budget_on_a_finished_run_takes_nothing_away() -> None:
    box = Box()
    first = _go(box, queries=600, run="small")
    asked = len(box.asked)
    again = _go(box, queries=50, run="small")
    assert len(box.asked) == asked
    assert first[LBT].order.equal(again[LBT].order)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    "wrong", ["lbt(mutants=0)", "lbt(start=0)", "lbt(net=target)", "lbt(net=nosuch)", "fol(eps=0.1)"]
)
def test_what_is_refused_leaves_no_run_and_asks_nothing_but_to_see(wrong: str, tmp_path: Path) -> None:
    box = Box()
    with pytest.raises(UsageError):
        _go(box, wrong, run="refused", queries=1000)
    assert len(box.asked) <= 1
    assert not list(tmp_path.rglob("journal.jsonl"))


def test_a_pool_that_was_not_measured_is_not_said_to_have_no_labels() -> None:
    result = _go(Box(), measure=False)
    assert "not measured" in str(priority_table(result).title)
    assert result.to_json()["faults"] is None
    assert "no labels" in str(priority_table(_go(Box(), pool=_pool(labelled=False))).title)


def test_methods_are_not_shown_labels() -> None:
    target = assay.load_target(Box(), data=_pool())
    work = Ordering(Bench(target), _pool(), [], 0)
    assert bool((work._unseen().y == -1).all())


def test_a_run_keeps_orders_and_is_not_another_one_s() -> None:
    result = _go(Box(), run="kept")
    assert result.run is not None
    told = json.loads((result.run / "state" / "orders-001.json").read_text())
    assert told["methods"][0]["rows"] == result[LBT].order.tolist()  # type: ignore[union-attr]
    assert told["complete"]
    with pytest.raises(UsageError, match="another configuration"):
        _go(Box(), "gini", run="kept")


def test_orders_of_a_black_box_need_no_more_than_they_say() -> None:
    box = Box()
    result = _go(box, f"{LBT}, gini, random, fol(eps=0.1)", ask="labels=true")
    assert result[LBT].order is not None
    assert result["random"].order is not None
    assert "prob" in result["gini"].why_not
    assert "grad" in result["fol(eps=0.1)"].why_not


def test_random_alone_asks_nothing_but_to_measure() -> None:
    box = Box()
    assert _go(box, "random", measure=False)["random"].order is not None
    assert len(box.asked) <= 1


def test_progress_counts_methods() -> None:
    seen: list[tuple[int, str]] = []
    _go(Box(), "gini, random, margin", progress=lambda told: seen.append((told["done"], told["by"])))
    assert seen == [(0, "random"), (1, "gini"), (2, "margin")]


def test_status_tells_what_was_put_in_order_and_how_far_it_went() -> None:
    result = _go(Box(), "gini", queries=120, run="told")
    assert result.run is not None
    told = run_status(store.read(result.run))
    assert told["by"] == "gini"
    assert told["pool"] == "pool"
    assert told["complete"] is False
    assert (told["queries"], told["limit"]) == (120, 120)
