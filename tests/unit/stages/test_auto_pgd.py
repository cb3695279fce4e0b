"""Auto-PGD on models whose best point is known, and its active set."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind
from assay.core.specs import step
from assay.stages.attacks.apgd_ce import apgd_ce
from assay.stages.attacks.apgd_dlr import apgd_dlr
from assay.stages.attacks.apgd_t import apgd_t
from assay.stages.attacks.auto_pgd import checkpoints
from assay.stages.attacks.rivals import at_once, rivals_of
from assay.subjects.counted import Counted
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]


def rows(n: int) -> Rows:
    return Stream(0).rows(torch.arange(n))


def test_checkpoints_as_in_the_paper() -> None:
    assert sorted(checkpoints(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(1) == {1}
    assert max(checkpoints(10)) <= 10


@pytest.mark.parametrize("attack", [apgd_ce, apgd_dlr])
def test_reaches_the_best_corner_of_a_linear_model(attack: Callable[..., Tensor], linear_target: Make) -> None:
    target = linear_target(classes=2)
    w = target.module.get_parameter("weight").detach()
    x, y = torch.full((5, 1, 4, 4), 0.5), torch.zeros(5, dtype=torch.int64)
    made = attack(target, x, y, rng=rows(5), eps=0.1, early_stop=False)
    # The last adversarial point is kept; on a linear model every step rises, so it is the corner.
    assert torch.allclose(made, x + 0.1 * (w[1] - w[0]).sign().view(1, 1, 4, 4), atol=1e-5)


def test_the_step_shrinks_into_a_narrow_valley() -> None:
    """A ridge far narrower than the first step: only halved steps settle on it."""

    class Ridge(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            height = -(1000 * (x[:, 0] - 0.6123)).abs() + 1  # above 0 only within 0.001 of 0.6123
            return torch.stack((torch.zeros_like(height), height), 1)

    target = ModuleTarget(Ridge(), InputSpec((1,), (0.0, 1.0), ("flat", "ridge")))
    x, y = torch.tensor([[0.5], [0.55]]), torch.tensor([0, 0])
    made = apgd_ce(target, x, y, rng=rows(2), eps=0.2, steps=200)
    assert (target(made).argmax(1) == 1).all()


def test_rows_that_are_done_cost_nothing(linear_target: Make) -> None:
    target = Counted(linear_target())
    x = (0.5 + 0.01 * torch.randn(32, 1, 4, 4, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    y = target(x).argmax(1)
    target.forward = target.gradient = 0
    apgd_ce(target, x, y, rng=rows(32), eps=0.2, steps=100)
    assert target.gradient < 32 * 10
    target.gradient = 0
    apgd_ce(target, x, y, rng=rows(32), eps=0.2, steps=100, early_stop=False)
    assert target.gradient == 32 * 101


def test_targets_are_the_likeliest_wrong_classes(linear_target: Make) -> None:
    target = linear_target(classes=5)
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    scores = target(x)
    rivals = rivals_of(target, x, scores.argmax(1), 9)
    assert torch.equal(rivals, scores.argsort(1, descending=True)[:, 1:])


def test_rivals_are_tried_together_where_there_is_room() -> None:
    assert at_once(0, 9, left=6) == range(1), "the likeliest alone"
    assert at_once(1, 9, left=16) == range(1, 5)
    assert at_once(5, 9, left=6) == range(5, 9)
    assert at_once(1, 9, left=200) == range(1, 2)


def test_targeted_breaks_what_needs_the_third_class(linear_target: Make) -> None:
    """Class 2 wins inside the ball, class 1 is nearer in score but cannot win: only a target further down helps."""

    class Trap(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a = x[:, 0]
            return torch.stack((torch.ones_like(a), 0.9 - (a - 0.5).abs(), -3 + 40 * (a - 0.5)), 1)

    target = ModuleTarget(Trap(), InputSpec((1,), (0.0, 1.0), ("own", "near", "far")))
    x, y = torch.tensor([[0.5]]), torch.tensor([0])
    made = apgd_t(target, x, y, rng=rows(1), eps=0.2)
    assert target(made).argmax(1).item() == 2


def test_expectation_over_draws_averages_gradients() -> None:
    class Noisy(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            Noisy.calls += 1
            lean = x.sum(1) * (3.0 if Noisy.calls % 2 else -2.0)  # half the draws point down, the mean up
            return torch.stack((torch.zeros_like(lean), lean - 3), 1)

    target = ModuleTarget(Noisy(), InputSpec((2,), (0.0, 1.0), ("a", "b")))
    Noisy.calls = 0
    made = apgd_ce(
        target, torch.full((1, 2), 0.5), torch.tensor([0]), rng=rows(1), eps=0.05, steps=4, eot=6, early_stop=False
    )
    assert Noisy.calls == 6 * 5
    assert torch.allclose(made, torch.full((1, 2), 0.55))


def test_restarts_go_on_with_what_is_left_only() -> None:
    """Values near the line break in the first run; the others take every step of every run."""

    class Line(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat((0.5 - x, x - 0.5), 1)

    target = Counted(ModuleTarget(Line(), InputSpec((1,), (0.0, 1.0), ("low", "high"))))
    x, y = torch.tensor([[0.45], [0.1], [0.2]]), torch.zeros(3, dtype=torch.int64)
    made = apgd_ce(target, x, y, rng=rows(3), eps=0.1, steps=10, restarts=4)
    assert (target(made).argmax(1) == 1).tolist() == [True, False, False]
    assert 2 * 4 * 11 < target.gradient <= 2 * 4 * 11 + 3
    assert torch.allclose(made[1:], x[1:] + 0.1), "a row that was not fooled is at its best point"


def test_nonsense_is_refused(linear_target: Make) -> None:
    target, x, y = linear_target(), torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    for wrong in ("steps=0", "restarts=0", "eot=0", "norm=l1"):
        with pytest.raises(UsageError):
            bind("attack", *step(f"apgd_ce({wrong})"), {"eps": 0.1})(target, x, y, rng=rows(2))
    with pytest.raises(UsageError, match="at least one target"):
        apgd_t(target, x, y, rng=rows(2), eps=0.1, targets=0)
