"""The gradient attacks on linear models, where the best point of the ball is known."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.core.cases import InputSpec
from assay.core.randomness import Stream
from assay.stages.attacks.bim import bim
from assay.stages.attacks.climb import Climb
from assay.stages.attacks.fgsm import fgsm
from assay.stages.attacks.mim import mim
from assay.stages.attacks.pgd import pgd
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]


def test_fgsm_on_two_classes_is_the_sign_of_the_weights(linear_target: Make) -> None:
    target = linear_target(classes=2)
    w = target.module.get_parameter("weight")
    x = torch.full((1, 1, 4, 4), 0.5)
    y = torch.tensor([0])
    made = fgsm(target, x, y, rng=Stream(0).rows(torch.arange(1)), eps=0.1)
    if target(x).argmax(1).item() == 0:
        assert torch.allclose(made, x + 0.1 * (w[1] - w[0]).sign().view_as(x), atol=1e-6)
    flipped = fgsm(target, x, 1 - y, rng=Stream(0).rows(torch.arange(1)), eps=0.1)
    if target(x).argmax(1).item() == 1:
        assert torch.allclose(flipped, x + 0.1 * (w[0] - w[1]).sign().view_as(x), atol=1e-6)


@pytest.mark.parametrize("attack", [bim, mim, pgd])
def test_linf_reaches_the_best_corner(attack: Callable[..., torch.Tensor], linear_target: Make) -> None:
    """Without early stop every step goes the same way on a linear model, so the corner is reached and kept."""
    target = linear_target(classes=2)
    w = target.module.get_parameter("weight").detach()
    x = torch.full((5, 1, 4, 4), 0.5)
    y = torch.zeros(5, dtype=torch.int64)
    made = attack(target, x, y, rng=Stream(0).rows(torch.arange(5)), eps=0.1, steps=40, step=0.2, early_stop=False)
    assert torch.allclose(made, x + 0.1 * (w[1] - w[0]).sign().view(1, 1, 4, 4), atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_falling_steps_fall_evenly(norm: str, linear_target: Make) -> None:
    """On a linear model all steps go one way: of four, 1, 3/4, 1/2 and 1/4 of the first, which add up to 2.5 of it."""
    target = linear_target(classes=2)
    x, y = torch.full((5, 1, 4, 4), 0.5), torch.zeros(5, dtype=torch.int64)
    rng = Stream(0).rows(torch.arange(5))

    def gone(**how: Any) -> torch.Tensor:
        return pgd(target, x, y, rng=rng, eps=0.4, norm=norm, random_start=False, early_stop=False, **how) - x

    first = gone(steps=1, step=0.1)
    assert first.abs().sum() > 0
    assert torch.allclose(gone(steps=4, step=0.1, falling=True), 2.5 * first, atol=1e-6)
    assert torch.allclose(gone(steps=4, step=0.1), 4 * first, atol=1e-6)


def test_falling_steps_find_what_equal_ones_step_over() -> None:
    """What is wrong lies in a tenth of the ball: five equal steps of its radius jump over it, falling ones come in."""

    class Slit(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            away = (x - 0.56).abs().sum(1)  # 0.06 from the seeds
            return torch.stack([torch.full_like(away, -0.005), -away], 1)

    target = ModuleTarget(Slit(), InputSpec((1,), (0.0, 1.0), ("a", "b")))
    x, y = torch.full((400, 1), 0.5), torch.zeros(400, dtype=torch.int64)
    left = {}
    for falling in (False, True):
        rng = Stream(0).rows(torch.arange(400))
        made = pgd(target, x, y, rng=rng, eps=0.1, steps=5, step=1.0, falling=falling, early_stop=False)
        left[falling] = int((target(made).argmax(1) == y).sum())
    assert left[False] > 300
    assert left[True] < left[False] / 2


def test_l2_reaches_the_best_point_of_the_sphere(linear_target: Make) -> None:
    target = linear_target(classes=2)
    w = target.module.get_parameter("weight").detach()
    x = torch.full((3, 1, 4, 4), 0.5)
    made = pgd(
        target,
        x,
        torch.zeros(3, dtype=torch.int64),
        rng=Stream(0).rows(torch.arange(3)),
        eps=0.3,
        norm="l2",
        steps=200,
        step=0.2,
        early_stop=False,
    )
    best = 0.3 * (w[1] - w[0]) / (w[1] - w[0]).norm()
    assert torch.allclose(made, x + best.view(1, 1, 4, 4), atol=2e-3)


def test_targeted_reaches_the_class_asked_for(linear_target: Make) -> None:
    target = linear_target(classes=4)
    x = torch.full((4, 1, 4, 4), 0.5)
    want = torch.arange(4)
    made = pgd(target, x, want, rng=Stream(0).rows(torch.arange(4)), eps=0.3, targeted=True)
    assert torch.equal(target(made).argmax(1), want)


def test_early_stop_gives_the_same_success(linear_target: Make) -> None:
    target = linear_target()
    x = torch.rand(64, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    fooled = []
    for early in (True, False):
        made = pgd(target, x, y, rng=Stream(0).rows(torch.arange(64)), eps=0.1, early_stop=early)
        fooled.append(target(made).argmax(1) != y)
    assert fooled[0].sum() >= fooled[1].sum() > 0


def test_early_stop_saves_passes(linear_target: Make) -> None:
    target = linear_target()
    rows = 0

    def count(module: object, arguments: tuple[torch.Tensor, ...], out: object) -> None:
        nonlocal rows
        rows += len(arguments[0])

    hook = target.module.register_forward_hook(count)
    x = torch.full((32, 1, 4, 4), 0.5) + 0.01 * torch.randn(32, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    spent = {}
    for early in (True, False):
        rows = 0
        pgd(target, x, y, rng=Stream(0).rows(torch.arange(32)), eps=0.2, early_stop=early)
        spent[early] = rows
    hook.remove()
    assert spent[False] == 40 * 32
    assert spent[True] < 0.3 * spent[False]


def test_restarts_help_and_only_touch_what_is_left() -> None:
    """A net with a hidden weak corner that one random start in four leads to."""

    class Pit(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = x[:, 0], x[:, 1]
            depth = torch.relu(a - 0.58) * torch.relu(b - 0.58)
            return torch.stack([torch.full_like(a, 1e-3), 10 * depth], 1)

    target = ModuleTarget(Pit(), InputSpec((2,), (0.0, 1.0), ("a", "b")))
    x, y = torch.full((200, 2), 0.5), torch.zeros(200, dtype=torch.int64)
    left = {}
    for restarts in (1, 10):
        made = pgd(target, x, y, rng=Stream(0).rows(torch.arange(200)), eps=0.2, restarts=restarts)
        left[restarts] = int((target(made).argmax(1) == y).sum())
    assert left[1] > 100
    assert left[10] < left[1] / 2


def test_double_precision_stays_double(linear_target: Make) -> None:
    target = linear_target()
    target.module.double()
    x = torch.rand(4, 1, 4, 4, dtype=torch.float64)
    made = pgd(target, x, target(x).argmax(1), rng=Stream(0).rows(torch.arange(4)), eps=0.1, norm="l2")
    assert made.dtype == torch.float64


def test_momentum_scales_each_gradient_by_its_mean_size(linear_target: Make) -> None:
    """On a linear two-class model all scaled gradients are alike, so momentum changes nothing but the length."""
    target = linear_target(classes=2)
    x, y = torch.full((2, 1, 4, 4), 0.5), torch.zeros(2, dtype=torch.int64)
    rng = Stream(0).rows(torch.arange(2))
    with_momentum, without = (
        Climb(eps=0.2, norm="l2", steps=3, step=0.1, decay=decay, early_stop=False)(target, x, y, rng)
        for decay in (1.0, 0.0)
    )
    assert torch.allclose(with_momentum, without, atol=1e-5)


def test_momentum_keeps_what_it_gathered(linear_target: Make) -> None:
    """After a turn of the slope the old direction still counts: mim overshoots where bim turns at once."""

    class Ridge(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([(x[:, 0] - 0.58).abs(), torch.zeros(len(x))], 1)

    target = ModuleTarget(Ridge(), InputSpec((1,), (0.0, 1.0), ("a", "b")))
    x, y = torch.tensor([[0.5]]), torch.tensor([0])
    rng = Stream(0).rows(torch.arange(1))
    ends = [
        float(Climb(eps=0.4, norm="linf", steps=4, step=0.125, decay=decay, early_stop=False)(target, x, y, rng))
        for decay in (0.0, 1.0)
    ]
    assert ends == [pytest.approx(0.6), pytest.approx(0.65)]


def test_restarts_never_throw_a_success_away() -> None:
    """With three classes an adversarial point may have a lower loss than one that is not: it is kept all the same."""

    class Bowl(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = x[:, 0]
            # Far to the left class 1 just wins; to the right two rivals together weigh more, but neither wins.
            own = torch.zeros_like(a)
            one = torch.where(a < 0.3, 0.05, -0.05) + 0 * a
            two = torch.where(a > 0.6, -0.01, -3.0) + 0.001 * a
            return torch.stack([own, one, two], 1)

    target = ModuleTarget(Bowl(), InputSpec((1,), (0.0, 1.0), ("a", "b", "c")))
    x, y = torch.full((60, 1), 0.5), torch.zeros(60, dtype=torch.int64)
    rng = Stream(0).rows(torch.arange(60))
    left = [
        int((target(pgd(target, x, y, rng=rng, eps=0.4, steps=1, step=1e-3, restarts=n)).argmax(1) == y).sum())
        for n in (1, 40)
    ]
    assert left[0] > 20
    assert left[1] == 0
