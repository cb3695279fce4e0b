"""Trainings whose batches are shared by unlike attacks: several norms, corruptions, rotations."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.aims import alike
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.losses import divergence
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.loop import Moment
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Data, Splits, with_validation
from assay.subjects.data.load import load_splits

WIDE = 36
SPEC = InputSpec((WIDE + 1,), (0.0, 1.0), ("a", "b"))
HOW = "steps=5, step=0.4, early_stop=false"
NORMS = f"pgd({HOW}), pgd(norm=l2, eps=0.45, {HOW}), pgd(norm=l1, eps=0.6, {HOW})"
IMAGES = InputSpec((1, 8, 8), (0.0, 1.0), tuple("0123456789"))


def ways(n: int, seed: int) -> Cases:
    """The first number alone tells the class, and cannot be turned by 0.1; 36 others tell it together, less surely.

    A step of 0.45 in l2, or of 0.6 in l1, turns the one and not the many.
    """
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    side = 2.0 * y - 1
    many = 0.5 + 0.12 * side[:, None] + 0.12 * torch.randn(n, WIDE, generator=rng)
    return Cases.of(torch.cat([(0.5 + 0.3 * side)[:, None], many], 1).clamp(0, 1), y)


def net(inside: int, outside: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(inside, 32), nn.ReLU(), nn.Linear(32, outside))


def held(module: nn.Module, attack: str, some: Cases, spec: InputSpec) -> float:
    searches = Searches(attack, module, spec, eps=0.1, norm="linf", batch=500)
    return float(searches.held(module.eval(), some, Stream(1)).float().mean())


def test_each_norm_has_its_own_ball() -> None:
    module, some = net(WIDE + 1, 2), ways(30, 0)
    made = Searches(NORMS, module, SPEC, eps=0.1, norm="linf", batch=30).made(
        module, some.x, some.y, some.origin, Stream(0)
    )
    linf, l2, l1 = (made - some.x).split(10)
    assert float(linf.abs().amax()) == pytest.approx(0.1, abs=1e-5)
    assert float(l2.norm(dim=1).amin()) > 0.3
    assert float(l2.norm(dim=1).amax()) == pytest.approx(0.45, abs=1e-4)
    assert float(l1.abs().sum(1).amin()) > 0.3
    assert float(l1.abs().sum(1).amax()) == pytest.approx(0.6, abs=1e-4)


def test_several_norms_in_training_hold_in_those_norms() -> None:
    data = Splits("ways", Data("train", ways(300, 0), SPEC), Data("val", ways(150, 1), SPEC))
    found = {}
    for attack in (f"pgd({HOW})", NORMS):
        fit = bind("trainer", "adversarial", {"epochs": 20, "batch": 30, "lr": 0.01, "eps": 0.1, "attack": attack})
        module = fit(net(WIDE + 1, 2), data, None, rng=Stream(0), watch=Unwatched())
        l2, l1 = "pgd(norm=l2, eps=0.45, steps=20)", "pgd(norm=l1, eps=0.6, steps=20)"
        found[attack] = [held(module, one, ways(300, 2), SPEC) for one in (l2, l1)]
    alone, several = found.values()
    assert several[0] > alone[0] + 0.15
    assert several[1] > alone[1] + 0.5


@pytest.mark.parametrize(
    ("more", "broken"),
    [
        ("corrupt(kind=contrast, severity=5)", "corrupt(kind=contrast, severity=5)"),
        ("corrupt(kind=any, severity=0)", "corrupt(kind=motion_blur, severity=5)"),
        ("spatial(search=random, tries=3)", "spatial(search=random, tries=20)"),
    ],
)
@pytest.mark.parametrize("trainer", ["adversarial", "trades"])
def test_what_is_mixed_in_is_withstood(trainer: str, more: str, broken: str) -> None:
    digits = with_validation(load_splits("digits"))
    pgd = "pgd(steps=2, step=0.6, early_stop=false)"
    found = {}
    for attack in (pgd, f"{pgd}, {more}"):
        fit = bind("trainer", trainer, {"epochs": 8, "batch": 40, "lr": 0.005, "eps": 0.03, "attack": attack})
        module = fit(net(64, 10), digits, None, rng=Stream(0), watch=Unwatched())
        found[attack] = held(module, broken, digits.part("test").cases, digits.part("test").spec)
    alone, mixed = found.values()
    assert mixed > alone + 0.03


def moment(progress: float, *log: dict[str, float]) -> Moment:
    return Moment(Stream(0), progress, log)


def test_balls_that_grow_leave_what_has_none() -> None:
    searches = Searches("pgd, corrupt(kind=jpeg)", net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8)
    pgd, corrupt = searches.at(moment(0.1), Growth(warm=0.5)).all
    assert pgd.params["eps"] == pytest.approx(0.2 * 4 / 16)
    assert {**pgd.params, "eps": 0.2} == searches.all[0].params
    assert corrupt == searches.all[1]
    assert searches.at(moment(0.5), Growth(warm=0.5)) is searches


@pytest.mark.parametrize(("done", "ball"), [(0.0, 1), (0.1, 6), (0.15, 9), (0.29, 16), (0.8, 16)])
def test_balls_grow_by_sixteenths(done: float, ball: int) -> None:
    assert Growth(warm=0.3).ball(done) == ball / 16


def test_steps_double_where_the_net_fools_its_searches() -> None:
    searches = Searches("pgd(steps=4, step=0.5), fgsm", net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8)
    fooled, honest, small = {"own": 0.9, "fooled": 1.0}, {"own": 0.9, "fooled": 0.0}, {"score": 0.1}

    def steps(*log: dict[str, float], guard: float = 0.05) -> tuple[int, float]:
        pgd, fgsm = searches.at(moment(0.5, *log), Growth(guard=guard)).all
        assert fgsm.params == searches.all[1].params
        return pgd.params["steps"], pgd.params["step"]

    assert steps() == steps(honest) == steps(small) == (4, 0.5)
    assert steps(small, fooled, honest) == pytest.approx((8, 0.5 / 2**0.5))
    assert steps(fooled, fooled, honest) == pytest.approx((16, 0.25))
    assert steps(*[fooled] * 9) == pytest.approx((32, 0.5 / 8**0.5))
    assert steps(fooled, guard=0.0) == (4, 0.5)


def test_a_small_difference_counts_where_two_epochs_were_no_better() -> None:
    growth = Growth(guard=0.03)

    def times(*scores: float, beyond: float = 1.0) -> int:
        return growth.times([{"score": score, "beyond": beyond, "fooled": 0.0} for score in scores])

    assert times(0.1, 0.2, 0.3, 0.4) == 1, "it learns"
    assert times(0.1, 0.3, 0.2) == 1
    assert times(0.1, 0.3, 0.2, 0.3) == 2
    assert times(0.1, 0.3, 0.2, 0.3, 0.3) == 2, "two more, with the new steps"
    assert times(0.1, 0.3, 0.2, 0.3, 0.3, 0.3) == 4
    assert times(0.1, 0.3, 0.2, 0.3, 0.3, 0.3, beyond=0.0) == 1
    small = [{"score": score, "fooled": 0.0} for score in (0.6, 0.5, 0.4, 0.3)]  # a robust net, while balls grow
    assert growth.times([*small, {"score": 0.4, "beyond": 1.0}, {"score": 0.4, "beyond": 1.0}]) == 1


def test_an_epoch_of_doubled_steps_is_planned_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: dict[str, Any] = {}
    monkeypatch.setattr("assay.stages.trainers.searches.fit", lambda *_, **how: planned.update(how))
    searches = Searches("pgd(steps=4, step=0.5), fgsm", net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8)
    digits, fooled = with_validation(load_splits("digits")), {"score": 0.1, "fooled": 1.0}
    for warm, judged in ((0.0, 1.0), (0.3, 1.2)):
        how: dict[str, Any] = {"rng": Stream(0), "watch": Unwatched(), "growth": Growth(warm, guard=0.03)}
        searches.learn(net(64, 10), digits, None, Plan(epochs=1), lambda *_: (), **how)
        assert [planned["cost"]([fooled] * n) for n in (0, 1, 2)] == [1 + 2.5, 1 + 4.5, 1 + 8.5]
        assert planned["judging"] == pytest.approx(judged * searches.judging(digits.part("val").cases))


@pytest.mark.parametrize(("steps", "most"), [(1, 32), (5, 40), (7, 28), (40, 40), (60, 60)])
def test_steps_double_no_further_than_to_forty(steps: int, most: int) -> None:
    searches = Searches(f"pgd(steps={steps}, step=0.5)", net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8)
    log = [{"score": 0.1, "fooled": 1.0}] * 9
    (pgd,) = searches.at(moment(0.5, *log), Growth(guard=0.03)).all
    assert (pgd.params["steps"], pgd.params["step"]) == (most, pytest.approx(0.5 * (steps / most) ** 0.5))


def test_steps_that_fall_begin_as_large_as_before_they_doubled() -> None:
    searches = Searches("pgd(steps=5, step=0.9, falling=true)", net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8)
    (pgd,) = searches.at(moment(0.5, {"score": 0.1, "fooled": 1.0}), Growth(guard=0.03)).all
    assert (pgd.params["steps"], pgd.params["step"], pgd.params["falling"]) == (10, 0.9, True)


@pytest.mark.parametrize(
    ("own", "score", "n", "beyond", "far"),
    [
        (0.90, 0.88, 1000, 0, 0),
        (0.90, 0.86, 1000, 0, 0),
        (0.90, 0.85, 1000, 1, 0),
        (0.90, 0.65, 1000, 1, 0),
        (0.90, 0.63, 1000, 1, 1),
        (0.12, 0.00, 1000, 1, 0),
        (0.13, 0.00, 1000, 1, 1),
        (0.9, 0.85, 20, 0, 0),
        (0.9, 0.4, 20, 1, 0),
        (0.9, 0.1, 20, 1, 1),
    ],
)
def test_a_net_fools_its_searches_where_the_difference_is_beyond_the_guard_and_chance(
    own: float, score: float, n: int, beyond: int, far: int
) -> None:
    assert Growth(guard=0.03).seen(own, score, n) == {"own": own, "beyond": beyond, "fooled": far}
    assert Growth(guard=0.03).seen(own, score, n, whole=False) == {"fooled": far}
    assert Growth().seen(own, score, n) == {"own": own}
    assert Growth().seen(own, score, n, whole=False) == {}


@pytest.mark.parametrize(
    ("attack", "growth", "words"),
    [
        ("fgsm", {"guard": 0.1}, "guard doubles the steps of searches, and fgsm has none"),
        ("pgd", {"guard": -0.1}, "warm is a share of the training and guard one of cases"),
        ("pgd", {"warm": -0.1}, "warm is a share of the training"),
    ],
)
def test_what_cannot_grow_is_refused(attack: str, growth: dict[str, float], words: str) -> None:
    digits = with_validation(load_splits("digits"))
    fit = bind("trainer", "adversarial", {"epochs": 1, "eps": 0.1, "attack": attack, **growth})
    with pytest.raises(UsageError, match=words):
        fit(net(64, 10), digits, None, rng=Stream(0), watch=Unwatched())


def test_attacks_without_a_ball_are_judged_by_themselves() -> None:
    searches = Searches("deepfool(eps=null), pgd(steps=1)", net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8)
    val = with_validation(load_splits("digits")).part("val").cases[:8]
    assert 0 <= searches.judge(Stream(0))(net(64, 10), val)["score"] <= 1
    (deepfool, _) = searches.at(moment(0.1), Growth(warm=0.5)).all
    assert deepfool.params["eps"] is None


def test_how_long_judging_takes() -> None:
    val = with_validation(load_splits("digits")).part("val").cases[:30]

    def judging(attacks: str, each: float = 0.0) -> float:
        return Searches(attacks, net(64, 10), IMAGES, eps=0.2, norm="linf", batch=8).judging(val, each)

    assert judging("pgd(steps=9)") == 30 * (10 + 20) / 10
    assert judging("pgd(steps=9)", each=2) == 30 * (10 + 20) / 2
    assert judging("corrupt(kind=jpeg)") == 30, "there is no better search than that"


class Rough(nn.Module):
    """The first class where the mean is below a half; ripples make slopes lead nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        far = self.weight * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-far, far + 0.01 * torch.sin(400 * far)], 1)


def test_epochs_are_chosen_by_a_better_search_than_the_training_has() -> None:
    """The ripples of the net stop a search of one step; the score sees through, and the log tells both."""
    x = torch.rand(200, 1, 2, 2, generator=torch.Generator().manual_seed(0)) * 0.2 + 0.3
    val = Cases.of(x, torch.zeros(200, dtype=torch.int64))
    spec = InputSpec((1, 2, 2), (0.0, 1.0), ("low", "high"))
    searches = Searches("pgd(steps=1, step=0.1, early_stop=false)", Rough(), spec, eps=0.15, norm="linf", batch=8)
    told = searches.judge(Stream(0))(Rough(), val)
    assert told["val_accuracy"] > told["own"] > told["score"] + 0.1
    searches.at(moment(0.49), Growth(warm=0.5))
    searches.at(moment(0.6), Growth(warm=0.5))
    assert "own" in searches.judge(Stream(0))(Rough(), val), "one in the whole ball from its first batch on"
    searches.at(Moment(Stream(1), 0.1), Growth(warm=0.5))
    searches.at(Moment(Stream(1), 0.6), Growth(warm=0.5))
    assert "own" not in searches.judge(Stream(0))(Rough(), val), "an epoch that was in small balls, too, does not count"
    growth = Growth(warm=0.5, guard=0.03)
    searches.at(Moment(Stream(2), 0.6), growth)
    whole = searches.judge(Stream(0), growth)(Rough(), val)
    assert whole["beyond"] == 1
    searches.at(Moment(Stream(3), 0.0), growth)
    small = searches.judge(Stream(0), growth)(Rough(), val)
    assert small["score"] == whole["score"], "epochs are chosen in the whole ball"
    assert "beyond" not in small
    assert small["fooled"] == 0, "in a sixteenth of it no search finds much"


def test_what_climbs_has_its_loss_and_the_others_have_labels() -> None:
    seen: dict[str, Tensor] = {}

    def told(name: str) -> object:
        def attack(target: object, x: Tensor, y: Tensor, **params: object) -> Tensor:
            seen[name] = y
            return x

        return attack

    module, some = net(WIDE + 1, 2), ways(20, 0)
    searches = Searches("pgd, deepfool", module, SPEC, eps=0.2, norm="l2", batch=20)
    apart = searches.climbing(loss=divergence, criterion=alike)
    assert [one.params.get("loss") for one in apart.all] == [divergence, searches.all[1].params.get("loss")]
    for one in apart.all:
        object.__setattr__(one, "function", told(one.entry.name))
    log_p = torch.randn(20, 2).log_softmax(1)
    apart.made(module, some.x, some.y, some.origin, Stream(0), log_p)
    assert torch.equal(seen["pgd"], log_p[:10])
    assert torch.equal(seen["deepfool"], some.y[10:])
    with pytest.raises(UsageError, match="'deepfool' has no converged"):
        Searches("deepfool, corrupt", module, SPEC, eps=0.2, norm="l2", batch=20).climbing(converged=0.1)


def test_a_search_for_other_answers_may_stop_at_one() -> None:
    """TRADES hands over probabilities in the place of labels; a class that changes is told from them."""
    data = Splits("ways", Data("train", ways(60, 0), SPEC), Data("val", ways(60, 1), SPEC))
    fit = bind("trainer", "trades", {"epochs": 1, "batch": 30, "eps": 0.1, "attack": "pgd(steps=3)"})
    made = fit(net(WIDE + 1, 2), data, None, rng=Stream(0), watch=Unwatched())
    assert all(bool(weight.isfinite().all()) for weight in made.parameters())
    log_p = torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log()
    assert alike(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), log_p).tolist() == [True, False]
