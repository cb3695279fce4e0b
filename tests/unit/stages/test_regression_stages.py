"""What a regression is, and the score that leads to one, on answers made by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.losses import log_odds
from assay.core.registry import bind
from assay.stages.objective import Look
from assay.subjects.bench import Bench
from assay.subjects.observer import Observer
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]


def told(own: list[list[float]], others: list[list[list[float]]], y: list[int]) -> Cases:
    """Cases that carry their answers: the target's, and those of the older versions."""
    return Cases.of(torch.rand(len(y), 1, 4, 4), torch.tensor(y)).note(
        logits=torch.tensor(own).log(), others=torch.tensor(others).log()
    )


@pytest.fixture
def bench(linear_target: Make) -> Bench:
    return Bench(linear_target(seed=0), {"old": linear_target(seed=1)})


def test_the_old_one_right_and_the_new_one_wrong(bench: Bench) -> None:
    right, wrong, other = [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]
    cases = told([right, wrong, wrong, right, wrong], [[right], [right], [wrong], [wrong], [other]], [0] * 5)
    judge = bind("oracle", "regressed", {})
    assert judge(bench, cases).tolist() == [False, True, False, False, False]
    two = told([wrong, wrong], [[right, right], [right, wrong]], [0, 0])
    assert judge(Bench(bench.target), two).tolist() == [True, False], "of several versions all are to be right"
    asked = Cases.of(torch.rand(60, 1, 4, 4), torch.arange(60) % 3)
    classes = [net(asked.x).argmax(1) == asked.y for net in (bench.target, bench.roles["old"])]
    assert torch.equal(judge(bench, asked), classes[1] & ~classes[0]), "asked anew"
    assert judge(bench, asked).any()


def test_a_lead_asks_that_both_are_sure(bench: Bench) -> None:
    sure, near = [0.8, 0.1, 0.1], [0.45, 0.4, 0.15]
    wrong, nearly = [0.1, 0.8, 0.1], [0.4, 0.45, 0.15]
    cases = told([wrong, nearly, wrong, nearly], [[sure], [sure], [near], [near]], [0] * 4)
    leads = {lead: bind("oracle", "regressed", {"lead": lead})(bench, cases).tolist() for lead in (0.0, 0.04, 0.5, 0.9)}
    assert leads == {0.0: [True] * 4, 0.04: [True] * 4, 0.5: [True, False, False, False], 0.9: [False] * 4}
    for bad in (-0.1, 1.0):
        with pytest.raises(UsageError, match="lead is a difference of probabilities"):
            bind("oracle", "regressed", {"lead": bad})(bench, cases)


def test_a_lead_is_refused_where_nobody_tells_probabilities(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.roles["old"], "gives", frozenset({"label"}))
    cases = Cases.of(torch.rand(4, 1, 4, 4), torch.zeros(4).long())
    assert len(bind("oracle", "regressed", {})(bench, cases)) == 4
    with pytest.raises(UsageError, match=r"oracle 'regressed' with a lead \(--set oracle.lead=0\) needs prob"):
        bind("oracle", "regressed", {"lead": 0.5})(bench, cases)


def test_the_score_is_the_formula(bench: Bench) -> None:
    rng = torch.Generator().manual_seed(0)
    cases = Cases.of(torch.rand(30, 1, 4, 4, generator=rng), torch.arange(30) % 3)
    own, old = (log_odds(net(cases.x), cases.y) for net in (bench.target, bench.roles["old"]))
    for weight, sure in ((1.0, 2.0), (0.5, 0.0)):
        score = bind("score", "regressing", {"weight": weight, "sure": sure})(bench, cases)
        assert torch.allclose(score, own.clamp_max(sure) - weight * (1 + (old + sure).exp()).log(), atol=1e-5)
    assert len(bind("score", "regressing", {})(bench, cases[:0])) == 0
    best = told([[0.01, 0.98, 0.01]], [[[0.98, 0.01, 0.01]]], [0])
    worst = told([[0.98, 0.01, 0.01]], [[[0.01, 0.98, 0.01]]], [0])
    score = bind("score", "regressing", {})
    assert score(bench, best) > score(bench, best.note(logits=best.info["others"][:, 0])) > score(bench, worst)


def test_its_slope_is_the_derivative(linear_target: Make) -> None:
    new, old = (linear_target(seed=seed) for seed in (0, 1))
    for net in (new, old):
        net.module.double()
    bench = Bench(new, {"old": old}, observer=Observer.of([new, old], "none"))
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cases = Cases.of(x, torch.arange(6) % 3)
    look = Look({"regressing": bind("score", "regressing", {})}, {"regressing": 1.0}, {})
    slope = look(bench, cases).info["slope"].flatten(1)

    def value(x: Tensor) -> Tensor:
        worth: Tensor = look.objective["regressing"](bench, cases.with_x(x))
        return worth

    steps = 1e-6 * torch.eye(16, dtype=torch.float64).view(16, 1, 4, 4)
    differences = torch.stack([(value(x + d) - value(x - d)) / 2e-6 for d in steps], 1)
    assert torch.allclose(slope, differences, atol=1e-5)
    assert slope.abs().max() > 1e-2
