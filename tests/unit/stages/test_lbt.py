"""LBT as a selector: orders, controls, what it asks and what it tells."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.ids import input_ids
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.core.sprt import Sprt, three_tiers, upper_mean
from assay.stages.mutant_scores import scored
from assay.stages.scores.gini import impurity
from assay.stages.selectors.lbt import lbt
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.module import ModuleTarget
from rule import SPEC, Rule, drawn

HOW: dict[str, Any] = {
    "net": "mlp",
    "tau": 0.9,
    "rounds": 3,
    "start": 100,
    "check": 150,
    "epochs": 8,
    "lr": 1e-2,
    "mutants": 60,
    "rate": 0.1,
}


def _bench(target: Any = None) -> Bench:
    return Bench(target or Rule(), training=Data("drawn", Cases.of(drawn(800, 0)), SPEC))


def _margin(x: Tensor) -> Tensor:
    """How far an input is from the rule's boundary."""
    first, second = (x[:, :3] + x[:, 3:]).topk(2, dim=1).values.unbind(1)
    return first - second


POOL = Cases.of(drawn(400, 5))


@pytest.mark.parametrize("order", ["sprt", "ms", "lcr", "gini"])
def test_inputs_near_the_boundary_come_first_and_the_model_is_never_asked_about_them(order: str) -> None:
    target = Rule()
    rows = lbt(_bench(target), POOL, 400, rng=Stream(1), order=order, **HOW)
    assert sorted(rows.tolist()) == list(range(400))
    margin = _margin(POOL.x)[rows]
    assert margin[:80].mean() < 0.6 * margin[-80:].mean()
    assert not set(target.asked) & set(input_ids(POOL.x))


def test_inputs_that_are_in_the_pool_are_not_started_from() -> None:
    target, both = Rule(), drawn(800, 0)
    bench = Bench(target, training=Data("drawn", Cases.of(both), SPEC))
    lbt(bench, Cases.of(both[:300]), 5, rng=Stream(1), order="gini", **HOW)
    assert len(target.asked) > 400
    assert not set(target.asked) & set(input_ids(both[:300]))


def test_the_order_is_that_of_the_specification_from_the_parts() -> None:
    bench = _bench()
    rows = lbt(bench, POOL, 400, rng=Stream(1), **HOW)
    subject = bench.kept["stand-in"]
    family = next(value for key, value in bench.kept.items() if key.startswith("mutants "))
    agree = subject.target(subject.val.x).argmax(1) == subject.val.y
    clean = scored(subject.net, family.mutants, subject.val.x[agree], chunks=Chunks())
    assert family.kappa == pytest.approx(upper_mean(clean.lcr))
    test = Sprt.around(family.kappa, 0.1)
    found = scored(subject.net, family.mutants, POOL.x, sprt=test, chunks=Chunks())
    expected = three_tiers(found.decision, found.at, found.llr / found.asked, found.distance)
    assert rows.equal(expected)


def test_orders_by_one_score_ask_every_mutant() -> None:
    bench = _bench()
    by_ms = lbt(bench, POOL, 400, rng=Stream(1), order="ms", **HOW)
    subject = bench.kept["stand-in"]
    family = next(value for key, value in bench.kept.items() if key.startswith("mutants "))
    found = scored(subject.net, family.mutants, POOL.x, chunks=Chunks())
    assert bool((found.asked == 60).all())
    assert bool((found.distance[by_ms].diff() <= 0).all())
    by_lcr = lbt(bench, POOL, 400, rng=Stream(1), order="lcr", **HOW)
    keys = torch.stack([found.lcr[by_lcr], found.distance[by_lcr]], 1)
    assert all(a[0] > b[0] or (a[0] == b[0] and a[1] >= b[1]) for a, b in itertools.pairwise(keys))


def test_the_control_is_the_stand_in_s_own_impurity() -> None:
    bench = _bench()
    rows = lbt(bench, POOL, 50, rng=Stream(1), order="gini", **HOW)
    with torch.no_grad():
        expected = impurity(bench.kept["stand-in"].target(POOL.x)).double().argsort(descending=True, stable=True)
    assert rows.equal(expected[:50])


@pytest.mark.parametrize("rate", [0.1, 0.003])  # the small one changes few weights, often to no effect
def test_mutants_are_valid_where_the_stand_in_was_checked(rate: float) -> None:
    bench = _bench()
    lbt(bench, POOL, 50, rng=Stream(1), **HOW | {"rate": rate, "operators": "gf"})
    subject = bench.kept["stand-in"]
    family = next(value for key, value in bench.kept.items() if key.startswith("mutants "))
    own = subject.target(subject.val.x).argmax(1)
    least = 0.9 * float((own == subject.val.y).double().mean())
    for i in range(len(family.mutants)):
        with torch.no_grad(), family.mutants.applied(i) as net:
            answers = net(subject.val.x).argmax(1)
        assert float((answers == subject.val.y).double().mean()) >= least
        assert bool((answers != own).any())


def test_variants_share_a_stand_in_and_a_seed_makes_another() -> None:
    bench, target = _bench(), None
    lbt(bench, POOL, 50, rng=Stream(1, ("a",)), **HOW)
    target = bench.target
    before = len(target.asked)  # type: ignore[attr-defined]
    lbt(bench, POOL, 50, rng=Stream(1, ("b",)), **HOW | {"order": "gini"})
    lbt(bench, POOL, 50, rng=Stream(1, ("c",)), **HOW | {"rate": 0.2})
    assert len(target.asked) == before  # type: ignore[attr-defined]
    lbt(bench, POOL, 50, rng=Stream(2, ("a",)), **HOW)
    assert len(target.asked) > before  # type: ignore[attr-defined]


def test_what_it_tells() -> None:
    bench = _bench()
    lbt(bench, POOL, 50, rng=Stream(1), **HOW | {"delta": 0.5})
    told = bench.told()
    assert told["mutants"] == 60
    assert set(told["rejected"]) == {"gf", "nai", "ns"}
    assert told["sensitive"] + told["stable"] + told["undecided"] == 400
    assert told["p1"] == pytest.approx(3 * told["p0"], rel=1e-4)
    assert told["stand_in"]["agreement"] >= 0.85
    assert 0 < told["saved"] < 1
    assert not bench.told()  # once


def test_values_in_the_place_of_labels() -> None:
    bench = _bench()
    rows = lbt(bench, POOL, 400, rng=Stream(1), **HOW | {"answers": "values", "tau": 0.999, "epochs": 20})
    assert bench.told()["tolerance"] > 0
    assert sorted(rows.tolist()) == list(range(400))
    subject = bench.kept["stand-in"]
    assert subject.agreement > 0.9  # R²
    family = next(value for key, value in bench.kept.items() if key.startswith("mutants "))
    with torch.no_grad():
        error = (subject.target(subject.val.x) - subject.answers.numbers).abs().amax(1)
    assert family.tolerance == pytest.approx(float(error.square().mean().sqrt()), rel=1e-4)
    found = scored(
        subject.net,
        family.mutants,
        POOL.x,
        sprt=Sprt.around(family.kappa, 0.1),
        tolerance=family.tolerance,
        chunks=Chunks(),
    )
    assert rows.equal(three_tiers(found.decision, found.at, found.llr / found.asked, found.distance))


def test_values_that_the_stand_in_does_not_explain_are_refused() -> None:
    with pytest.raises(UsageError, match="explains nothing"):
        lbt(_bench(), POOL, 5, rng=Stream(1), **HOW | {"answers": "values", "epochs": 1, "lr": 1e-7, "rounds": 1})


def test_a_net_that_operators_cannot_change_is_refused_before_the_model_is_asked(tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text("from torch import nn\n\ndef flat():\n    return nn.Linear(6, 3)\n")
    target = Rule()
    with pytest.raises(UsageError, match="nai needs"):
        lbt(_bench(target), POOL, 5, rng=Stream(1), **HOW | {"net": f"{tmp_path}/flat.py:flat"})
    assert not target.asked


def test_mutants_of_the_model_itself_leave_it_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)).train()
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=Stream(0, (name,)).generator()))
    before = [p.clone() for p in net.parameters()]
    bench = _bench(ModuleTarget(net, SPEC))
    rows = lbt(bench, POOL, 400, rng=Stream(1), **HOW | {"net": "target"})
    assert all(a.equal(b) for a, b in zip(before, net.parameters(), strict=True))
    assert net.training
    assert bench.told()["stand_in"]["stopped"] == "the model itself"
    with torch.no_grad(), eval_mode(net):
        first, second = net(POOL.x).topk(2, dim=1).values.unbind(1)
    margin = (first - second)[rows]
    assert margin[:80].mean() < 0.6 * margin[-80:].mean()
    with pytest.raises(UsageError, match="train"):
        lbt(_bench(), POOL, 50, rng=Stream(1), **HOW | {"net": "target"})


def test_an_empty_pool_and_k_of_it() -> None:
    assert lbt(_bench(), POOL[:0], 5, rng=Stream(1), **HOW).tolist() == []
    assert len(lbt(_bench(), POOL, 7, rng=Stream(1), **HOW)) == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "best"},
        {"answers": "numbers"},
        {"mutants": 0},
        {"rate": 0.0},
        {"delta": 1.0},
        {"operators": "gf, xx"},
        {"operators": ""},
        {"alpha": 0.0},
    ],
)
def test_nonsense_is_refused_before_the_model_is_asked(wrong: dict[str, Any]) -> None:
    target = Rule()
    with pytest.raises(UsageError):
        lbt(_bench(target), POOL, 5, rng=Stream(1), **HOW | wrong)
    assert not target.asked
