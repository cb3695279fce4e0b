"""JSMA: the pair it picks, how much it changes, what it costs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.stages.attacks.jsma import jsma
from assay.stages.attacks.saliency import best_pair, top_pair
from assay.subjects.counted import Counted
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]


def rows(n: int) -> Rows:
    return Stream(0).rows(torch.arange(n))


def changed(made: Tensor, x: Tensor) -> Tensor:
    return (made != x).flatten(1).sum(1)


def brute(rise: Tensor, fall: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The best score over all pairs (N,), and all scores (N, D, D)."""
    up, down = rise[:, :, None] + rise[:, None], fall[:, :, None] + fall[:, None]
    fits = (up > 0) & (down > 0) & allowed[:, :, None] & allowed[:, None]
    score = torch.where(fits & ~torch.eye(rise.shape[1], dtype=torch.bool), up * down, -1.0)
    return score.flatten(1).amax(1), score


@pytest.mark.parametrize("tilt", [0.0, 0.9, -0.9])
def test_the_pair_is_the_best_of_all(tilt: float) -> None:
    """Whether slopes agree, are independent or pull against each other (many entries worth looking at)."""
    rng = torch.Generator().manual_seed(0)
    rise, other = torch.randn(2, 100, 40, generator=rng, dtype=torch.float64)
    fall = tilt * rise + (1 - abs(tilt)) * other
    allowed = torch.rand(100, 40, generator=rng) < 0.7
    pair, found = best_pair(rise, fall, allowed)
    best, score = brute(rise, fall, allowed)
    assert torch.equal(found, best > 0)
    picked = score[torch.arange(100), pair[:, 0], pair[:, 1]]
    assert torch.allclose(picked[found], best[found])
    assert found.float().mean() > 0.5


def test_the_pair_is_the_best_among_ties_and_twins() -> None:
    rise = torch.tensor([[1.0, 1.0, 1.0, 0.0], [2.0, 0.0, 2.0, 0.0]])
    fall = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0]])
    allowed = torch.ones(2, 4, dtype=torch.bool)
    pair, found = best_pair(rise, fall, allowed)
    best, score = brute(rise, fall, allowed)
    assert found.all()
    assert torch.equal(score[torch.arange(2), pair[:, 0], pair[:, 1]], best)
    assert best.tolist() == [4.0, 4.0]


def test_fewer_candidates_give_a_pair_that_is_allowed_and_nearly_as_good() -> None:
    rng = torch.Generator().manual_seed(1)
    rise, fall = torch.randn(2, 200, 60, generator=rng)
    allowed = torch.rand(200, 60, generator=rng) < 0.7
    pair, found = best_pair(rise, fall, allowed, most=4)
    best, score = brute(rise, fall, allowed)
    picked = score[torch.arange(200), pair[:, 0], pair[:, 1]]
    assert (picked[found] > 0).all()
    assert (picked / best)[found].mean() > 0.9


def test_no_pair_where_none_helps() -> None:
    some = torch.ones(1, 5, dtype=torch.bool)
    assert not best_pair(torch.full((1, 5), -1.0), torch.ones(1, 5), some)[1]
    assert not best_pair(torch.ones(1, 5), torch.ones(1, 5), ~some)[1]
    assert not top_pair(torch.full((1, 5), -1.0), some)[1]
    assert top_pair(torch.tensor([[3.0, -1.0, 2.0, 5.0, 0.0]]), some)[0].tolist() == [[3, 0]]


@pytest.mark.parametrize("scores", ["logit", "prob"])
@pytest.mark.parametrize("theta", [1.0, -1.0])
def test_one_step_on_a_linear_model_changes_the_most_salient_pair(
    scores: str, theta: float, linear_target: Make
) -> None:
    target = linear_target((1, 4, 4), classes=3)
    w = target.module.get_parameter("weight").detach()
    # Near the point where all classes tie, two entries suffice to win for any class.
    x = 0.5 + 1e-3 * torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    want = (target(x).argmax(1) + 1) % 3
    rise = w[want]
    fall = rise - w.sum(0)
    if scores == "prob":
        share = target(x).detach().softmax(1)
        rise = rise - share @ w
        fall = rise
    _, score = brute(theta * rise, theta * fall, torch.ones(3, 16, dtype=torch.bool))
    made = jsma(target, x, want, rng=rows(3), eps=2, theta=theta, scores=scores, targeted=True)
    assert torch.equal(target(made).argmax(1), want)
    for i in range(3):
        p, q = divmod(int(score[i].argmax()), 16)
        assert set((made != x).flatten(1)[i].nonzero().flatten().tolist()) == {p, q}
        assert made.flatten(1)[i, [p, q]].tolist() == [float(theta > 0)] * 2


@pytest.mark.parametrize("theta", [1.0, 0.3, -0.4])
def test_changes_at_most_the_share_it_may_and_fails_clean(theta: float, linear_target: Make) -> None:
    target = linear_target((2, 6, 6))
    target.spec = InputSpec((2, 6, 6), (-1.0, 1.0), target.spec.classes)
    x = torch.rand(40, 2, 6, 6, generator=torch.Generator().manual_seed(0)) * 2 - 1
    y = target(x).argmax(1)
    made = jsma(target, x, y, rng=rows(40), gamma=0.06, theta=theta)
    fooled = target(made).argmax(1) != y
    assert 0 < int(fooled.sum()) < 40
    assert changed(made, x).max() <= 4  # 6 % of 72 entries
    assert torch.equal(made[~fooled], x[~fooled])
    assert made.abs().max() <= 1
    steps = ((made - x) / (2 * theta)).flatten(1)
    assert (steps >= 0).all()
    if abs(theta) < 1:
        assert (steps > 1.001).any()  # an entry may go further when the budget is spent


def test_rows_that_are_wrong_already_and_rows_that_never_will_be_come_back_clean() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 0.0])

    target = ModuleTarget(Constant(), InputSpec((5,), (0.0, 1.0), ("a", "b")))
    x = torch.rand(4, 5)
    for targeted in (True, False):
        made = jsma(target, x, torch.tensor([0, 1, 0, 1]), rng=rows(4), gamma=1.0, targeted=targeted)
        assert torch.equal(made, x)


@pytest.mark.parametrize("scores", ["prob", "logit"])
def test_a_second_class_is_tried_where_the_likeliest_cannot_be_reached(scores: str) -> None:
    class Wall(nn.Module):
        """Class 1 is the runner-up but stays behind; class 2 is far off and rises with every entry but the last."""

        def forward(self, x: Tensor) -> Tensor:
            last = x[:, -1:]
            every = x.sum(1, keepdim=True)
            return torch.cat([1 - 0.01 * every, 0.1 * last + 0.8, every - last], 1)

    target = ModuleTarget(Wall(), InputSpec((6,), (0.0, 1.0), ("a", "b", "c")))
    x, y = torch.zeros(3, 6), torch.zeros(3, dtype=torch.int64)
    y[2] = 1  # wrong as it is
    one, two = (jsma(target, x, y, rng=rows(3), eps=2, scores=scores, targets=n) for n in (1, 2))
    assert torch.equal(one, x)
    assert target(two).argmax(1).tolist() == [2, 2, 0]


def test_costs_one_pass_a_step_and_two_with_logits(linear_target: Make) -> None:
    target = linear_target((1, 6, 6))
    target.module.get_parameter("bias").data[0] += 1000  # nobody is fooled, all steps are taken
    x, y = torch.full((5, 1, 6, 6), 0.5), torch.zeros(5, dtype=torch.int64)
    for scores, passes in (("prob", 1), ("logit", 2)):
        counted = Counted(target)
        jsma(counted, x, y + 1, rng=rows(5), eps=8, scores=scores, targeted=True)
        assert counted.gradient == 5 * 4 * passes
        assert counted.forward == 5 * (4 + 1)


def test_memory_is_linear_in_the_entries() -> None:
    width, largest = 20_000, 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for made in out if isinstance(out, (tuple, list)) else (out,):
                largest = max(largest, made.numel() if isinstance(made, Tensor) else 0)
            return out

    weight = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    net = nn.Linear(width, 3)
    net.weight.data, net.bias.data = weight, -weight.sum(1) / 2
    target = ModuleTarget(net, InputSpec((width,), (0.0, 1.0), ("a", "b", "c")))
    x = torch.full((1, width), 0.5)
    with Watch():  # type: ignore[no-untyped-call]
        made = jsma(target, x, torch.tensor([1]), rng=rows(1), eps=20, scores="logit", targeted=True)
    assert target(made).argmax(1).tolist() == [1]
    assert width <= largest <= 4 * width


def test_double_precision_and_empty_batches(linear_target: Make) -> None:
    target = linear_target()
    target.module.double()
    x = torch.rand(4, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    for scores in ("prob", "logit"):
        made = jsma(target, x, y, rng=rows(4), eps=8, scores=scores)
        assert made.dtype == torch.float64
        assert (target(made).argmax(1) != y).any()
        assert jsma(target, x[:0], y[:0], rng=rows(0), eps=8, scores=scores).shape == (0, 1, 4, 4)


@pytest.mark.parametrize(
    "bad",
    [
        {"norm": "linf"},
        {"theta": 0.0},
        {"theta": 1.5},
        {"gamma": 0.0},
        {"scores": "loss"},
        {"targets": 0},
        {"eps": 1},
        {"gamma": 0.1},  # one entry of 16: no pair
    ],
)
def test_refuses_what_it_cannot_do(bad: dict[str, Any], linear_target: Make) -> None:
    x, y = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(UsageError):
        jsma(linear_target(), x, y, rng=rows(2), **bad)
