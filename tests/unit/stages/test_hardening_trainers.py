"""Trainers that attack as they train: their losses by hand, weights led astray, attacks in parts."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.losses import boosted, divergence
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.specs import step
from assay.stages.trainers import loop
from assay.stages.trainers.descent import Descent
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.watch import Unwatched
from assay.subjects.sources.module import ModuleTarget
from sides import SPEC, cases, net, splits
from watching import StateKeeper

EPS = 0.15


def test_divergence_and_boosted_cross_entropy_by_hand() -> None:
    p, q = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.5, 0.25]])
    right = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert divergence(q.log(), p.log()).item() == pytest.approx(right, abs=1e-6)
    assert boosted(q.log(), torch.tensor([0])).item() == pytest.approx(-math.log(0.25) - math.log(0.5001), abs=1e-6)
    assert boosted(q.log(), torch.tensor([1])).item() == pytest.approx(-math.log(0.5) - math.log(0.7501), abs=1e-6)


def test_the_slope_of_a_sure_net_is_finite() -> None:
    clean = torch.tensor([[200.0, -200.0]], requires_grad=True)
    moved = torch.tensor([[-200.0, 200.0]], requires_grad=True)
    divergence(moved, clean.log_softmax(1)).sum().backward()
    assert clean.grad is not None
    assert moved.grad is not None
    assert bool(clean.grad.isfinite().all())
    assert bool(moved.grad.isfinite().all())


def test_weights_led_astray_by_hand_and_back_bit_by_bit() -> None:
    module, some = net(), cases(20)
    weights = [w.detach().clone() for w in module.parameters()]
    optimiser = torch.optim.SGD(module.parameters(), 0.1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(module(x), y)

    # By hand: up by a tenth of each matrix's length, the gradient there, the step from where it was.
    other = net()
    other.load_state_dict(module.state_dict())
    nn.functional.cross_entropy(other(some.x), some.y).backward()
    with torch.no_grad():
        for w in other.parameters():
            assert w.grad is not None
            if w.dim() > 1:
                w.add_(0.1 * w.norm() * w.grad / w.grad.norm())
            w.grad = None
    nn.functional.cross_entropy(other(some.x), some.y).backward()
    wanted = [w - 0.1 * there.grad for w, there in zip(weights, other.parameters(), strict=True)]  # type: ignore[operator]
    Descent(module, optimiser, loss, awp=0.1).step(some.x, some.y)
    for w, want in zip(module.parameters(), wanted, strict=True):
        torch.testing.assert_close(w.detach(), want)
    still = torch.optim.SGD(module.parameters(), 0.0)
    before = [w.detach().clone() for w in module.parameters()]
    Descent(module, still, loss, awp=0.1).step(some.x, some.y)
    assert all(torch.equal(w, was) for w, was in zip(module.parameters(), before, strict=True))


def test_statistics_do_not_see_the_way_up() -> None:
    twins = [nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)) for _ in range(2)]
    twins[1].load_state_dict(twins[0].state_dict())
    some = cases(20)
    for module, awp in zip(twins, (0.0, 1e-9), strict=True):
        optimiser = torch.optim.SGD(module.parameters(), 0.0)
        Descent(module, optimiser, lambda x, y, m=module: nn.functional.cross_entropy(m(x), y), awp=awp).step(
            some.x, some.y
        )
    for mine, other in zip(twins[0].buffers(), twins[1].buffers(), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_list_of_attacks_shares_a_batch() -> None:
    module, some = net(), cases(40)
    searches = Searches(
        "fgsm(early_stop=false), fgsm(norm=l2, eps=0.3, early_stop=false)",
        module,
        SPEC,
        eps=0.05,
        norm="linf",
        batch=40,
    )
    made = searches.made(module, some.x, some.y, some.origin, Stream(0))
    away = made - some.x
    assert float(away[:20].abs().amax()) <= 0.05 + 1e-6
    assert float(away[20:].abs().amax()) > 0.05
    assert float(away[20:].norm(dim=1).amax()) <= 0.3 + 1e-6


def test_no_attack_is_refused_and_so_is_one_that_climbs_nothing() -> None:
    with pytest.raises(UsageError, match="learns from attacks"):
        Searches("", net(), SPEC, eps=0.1, norm="linf", batch=8)
    with pytest.raises(UsageError, match="has no loss"):
        Searches("deepfool", net(), SPEC, eps=0.1, norm="l2", batch=8).climbing(loss=divergence)


def test_what_a_linear_function_can_still_gain_by_hand() -> None:
    slope, delta = torch.tensor([[3.0, -4.0]]), torch.tensor([[0.1, 0.1]])
    gone = 3 * 0.1 - 4 * 0.1
    for norm, most in (("linf", 0.5 * 7), ("l2", 0.5 * 5), ("l1", 0.5 * 4)):
        assert norms.first_order(slope, delta, 0.5, norms.check(norm)).item() == pytest.approx(most - gone, abs=1e-6)
    best = torch.tensor([[0.5, -0.5]])
    assert norms.first_order(slope, best, 0.5, "linf").item() == 0


class Asked(ModuleTarget):
    """Counts the rows of each pass that takes a gradient."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module, SPEC)
        self.rows: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            self.rows.append(len(x))
        return super().__call__(x)


def test_rows_that_have_converged_stop_and_keep_their_point() -> None:
    """The loss of a linear net is climbed by one step of the whole ball; from there nothing is left to gain."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear = nn.Sequential(nn.Linear(9, 2))
    some, how = cases(20), {"eps": 0.01, "steps": 6, "step": 2.0, "random_start": False, "early_stop": False}
    made, asked = {}, {}
    for converged in (0.0, 1e-6):
        target = Asked(linear)
        attack = bind("attack", "pgd", {**how, "converged": converged})
        made[converged] = attack(target, some.x, some.y, rng=Stream(0).rows(some.origin))
        asked[converged] = target.rows
    assert torch.equal(made[0.0], made[1e-6])
    assert asked == {0.0: [20] * 6, 1e-6: [20, 20]}


def test_dynamic_searches_less_at_first_and_whole_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    climbing = Searches.climbing

    def watched(self: Searches, **params: float) -> Searches:
        seen.append(params["converged"])
        return climbing(self, **params)

    monkeypatch.setattr(Searches, "climbing", watched)
    fit = bind("trainer", "dynamic", {"epochs": 4, "batch": 200, "eps": EPS, "loose": 0.4, "until": 0.5})
    fit(net(), splits(), None, rng=Stream(0), watch=Unwatched())
    assert seen == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("trainer", ["adversarial", "trades", "mart", "dynamic(loose=0)", "fast"])
def test_balls_grow_in_the_warm_part(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By sixteenths; an eighth of the training is two eighths of its warm part, and the fifth of sixteen."""
    sizes: list[float] = []
    made = Searches.made

    def watched(self: Searches, net: nn.Module, x: Tensor, *rest: Any) -> Tensor:
        out = made(self, net, x, *rest)
        sizes.append(float((out - x).abs().amax()))
        return out

    monkeypatch.setattr(Searches, "made", watched)
    name, params = step(trainer)
    fit = bind("trainer", name, {"epochs": 4, "batch": 200, "eps": 0.2, "warm": 0.5, **params})
    fit(net(), splits(), None, rng=Stream(0), watch=Unwatched())
    if trainer == "fast":  # which looks at the first batch of each epoch a second time
        assert sizes[::3] == pytest.approx(sizes[1::3], abs=1e-5)
        del sizes[1::3]
    assert sizes == pytest.approx([0.0125, 0.0625, 0.1125, 0.1625, 0.2, 0.2, 0.2, 0.2], abs=1e-5)


@pytest.mark.parametrize("trainer", ["adversarial", "trades", "mart"])
def test_a_training_whose_searches_grew_goes_on_the_same(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Growth, "seen", lambda self, own, score, n, whole: {"fooled": float(whole)})
    given = {"epochs": 4, "batch": 200, "eps": EPS, "guard": 0.03, "warm": 0.2, "ema": 0.9}
    whole = StateKeeper()
    fit = bind("trainer", trainer, given)
    one = fit(net(), splits(), None, rng=Stream(0), watch=whole)
    passes = [row["passes"] for row in whole.states[-1].log]
    assert passes[0] == passes[1] < passes[2] < passes[3], "the first epoch begins in a small ball and does not count"
    later = StateKeeper(whole.states[1])
    other = fit(net(), splits(), None, rng=Stream(0), watch=later)
    assert [row["passes"] for row in later.states[-1].log] == passes
    for mine, same in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, same)


class Noted(Unwatched):
    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def note(self, facts: Mapping[str, Any]) -> None:
        self.facts |= facts


def test_a_net_that_fools_one_step_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the one step makes nothing, the net does far better under it than under PGD, and another takes over."""
    made, by = Searches.made, []

    def blunt(self: Searches, net: nn.Module, x: Tensor, *rest: Any) -> Tensor:
        steps = self.all[0].params["steps"]
        by.append(steps)
        return x if steps == 1 else made(self, net, x, *rest)

    monkeypatch.setattr(Searches, "made", blunt)
    watch = Noted()
    fit = bind("trainer", "fast", {"epochs": 8, "batch": 40, "eps": EPS, "lr": 0.02})
    fit(net(), splits(), None, rng=Stream(0), watch=watch)
    assert by.count(4) > 0
    assert watch.facts["overfitted_to_one_step"] == by.count(4) / 10, "ten batches an epoch, one look each"


@pytest.mark.parametrize(("last", "told"), [(0.33, True), (0.36, False)])
def test_a_score_that_falls_by_more_than_chance_is_told(
    last: float, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Two standard errors of a share of 40 cases are 0.158."""
    scores = iter([0.3, 0.5, 0.48, last])
    watch = Noted()
    loop.fit(
        net(),
        cases(40),
        cases(40, 1),
        Plan(4, 20, 0.01),
        rng=Stream(0),
        watch=watch,
        judge=lambda net, val: {"score": next(scores), "val_loss": 0.0, "val_accuracy": 0.0},
    )
    assert watch.facts == ({"overfitting": "0.500 in epoch 2, 0.330 in the last"} if told else {})
    assert ("fell from 0.500 in epoch 2 to 0.330" in caplog.text) == told


@pytest.mark.parametrize("name", ["adversarial", "trades", "mart", "dynamic", "fast"])
@pytest.mark.parametrize("awp", [0.0, 0.01])
def test_it_learns_to_withstand(name: str, awp: float) -> None:
    """Plain training leans on the eight; what withstands leans on the one."""
    held = {}
    for trainer, more in (("plain", {}), (name, {"eps": EPS, "awp": awp})):
        fit = bind("trainer", trainer, {"epochs": 30, "batch": 40, "lr": 0.02, **more})
        module = fit(net(), splits(), None, rng=Stream(0), watch=Unwatched()).eval()
        searches = Searches("pgd(steps=20)", module, SPEC, eps=EPS, norm="linf", batch=100)
        held[trainer] = searches.judge(Stream(1))(module, cases(200, 2))["score"]
    assert held[name] >= 0.7
    assert held["plain"] <= 0.4
