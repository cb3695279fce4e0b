"""The attacks by scores and by labels alone, on models whose best answer is known."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.aims import aim
from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.stages.attacks.boundary import boundary
from assay.stages.attacks.hop_skip_jump import hop_skip_jump
from assay.stages.attacks.square import square
from assay.stages.attacks.squares import Bumps, Corners, Grid, share_at
from assay.subjects.counted import Counted
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Need

Make = Callable[..., ModuleTarget]
Attack = Callable[..., Tensor]
BY_LABEL = [hop_skip_jump, boundary]


def rows(n: int, seed: int = 0) -> Rows:
    return Stream(seed).rows(torch.arange(n))


def firm(target: ModuleTarget) -> ModuleTarget:
    """The same slopes, but class 0 wins everywhere."""
    target.module.get_parameter("bias").data[0] += 1000
    return target


class OneHot:
    """A target that gives nothing but labels, as one-hot scores."""

    gives: frozenset[Need] = frozenset({"label"})

    def __init__(self, target: ModuleTarget) -> None:
        self.target, self.spec, self.device = target, target.spec, target.device

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            scores = self.target(x)
        return torch.zeros_like(scores).scatter_(1, scores.argmax(1, keepdim=True), 1.0)

    def ready(self) -> AbstractContextManager[object]:
        return nullcontext()

    def fingerprint(self) -> str:
        return self.target.fingerprint()


class Constant(nn.Module):
    """Class 0, whatever comes."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.0]], dtype=x.dtype).expand(len(x), -1)


# Square ------------------------------------------------------------------------------------------------------------


def test_the_schedule_is_the_one_the_docstring_states() -> None:
    halved = [(10, 0), (11, 1), (51, 2), (201, 3), (501, 4), (1001, 5), (2001, 6), (4001, 7), (6001, 8), (8001, 9)]
    for step, times in halved:
        assert share_at(step, 500, 0.8, rescale=False) == 0.8 / 2**times
        assert share_at(step, 10_000, 0.8, rescale=True) == 0.8 / 2**times
    assert [share_at(step, 500, 0.8, rescale=True) for step in (0, 1, 499)] == [0.8, 0.4, 0.8 / 512]


def test_square_finds_the_best_corner_of_the_ball(linear_target: Make) -> None:
    """On two classes the best corner is the sign of the weights; every entry is at an end of the ball on the way."""
    target = firm(linear_target(classes=2))
    w = target.module.get_parameter("weight").detach()
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(6, dtype=torch.int64)
    made = square(target, x, y, rng=rows(6), eps=0.1, queries=400)
    assert torch.equal(made, (x + 0.1 * (w[1] - w[0]).sign().view(1, 1, 4, 4)).clamp(0, 1))
    early = square(target, x, y, rng=rows(6), eps=0.1, queries=10)
    assert not torch.equal(early, made)
    assert ((early == (x + 0.1).clamp(0, 1)) | (early == (x - 0.1).clamp(0, 1))).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_square_only_ever_raises_the_loss(norm: str, linear_target: Make) -> None:
    target = firm(linear_target((3, 6, 5)))
    x = torch.rand(8, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(8, dtype=torch.int64)
    gains = []
    for queries in (1, 2, 5, 20, 100):
        made = square(target, x, y, rng=rows(8), eps=0.3, norm=norm, queries=queries, rescale=False)
        gains.append(aim("margin").gain(target(made), y))
        assert (norms.size(made - x, norms.check(norm)) <= 0.3 * (1 + 1e-5)).all()
    rises = torch.stack(gains).diff(dim=0)
    assert (rises >= 0).all()
    assert (rises.sum(0) > 0).all()


def test_square_in_l2_comes_near_the_best_point(linear_target: Make) -> None:
    target = firm(linear_target((1, 8, 8), classes=2))
    w = target.module.get_parameter("weight").detach()
    x, y = torch.full((4, 1, 8, 8), 0.5), torch.zeros(4, dtype=torch.int64)
    made = square(target, x, y, rng=rows(4), eps=0.5, norm="l2", queries=1000)
    rise = (made - x).flatten(1) @ (w[1] - w[0])
    assert (rise > 0.6 * 0.5 * (w[1] - w[0]).norm()).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("queries", [1, 7, 130])
def test_square_asks_as_often_as_it_may_and_no_more(norm: str, queries: int, linear_target: Make) -> None:
    counted = Counted(firm(linear_target()))
    x, y = torch.full((5, 1, 4, 4), 0.5), torch.zeros(5, dtype=torch.int64)
    square(counted, x, y, rng=rows(5), eps=0.1, norm=norm, queries=queries, restarts=2)
    assert counted.forward == 5 * queries * 2
    assert counted.gradient == 0


def test_square_asks_nothing_more_of_fooled_rows(linear_target: Make) -> None:
    target = linear_target((1, 8, 8))
    counted = Counted(target)
    x = 0.5 + 0.02 * torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    made = square(counted, x, y, rng=rows(32), eps=0.2, queries=500, restarts=3)
    assert (target(made).argmax(1) != y).all()
    assert counted.forward < 32 * 50


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_square_gives_a_row_the_same_in_any_batch(norm: str, linear_target: Make) -> None:
    target = linear_target((2, 6, 6))
    x = torch.rand(12, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    whole = square(target, x, y, rng=rows(12), eps=0.1, norm=norm, queries=90)
    for size in (1, 5):
        parts = [
            square(target, x[part], y[part], rng=rows(12)[part], eps=0.1, norm=norm, queries=90)
            for part in torch.arange(12).split(size)
        ]
        assert torch.allclose(torch.cat(parts), whole, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_no_linf_proposal_is_the_point_itself(channels: int) -> None:
    kind = Corners(channels, Grid(5, 5, torch.device("cpu")), 0.1, (0.0, 1.0), torch.float32)
    x = torch.full((200, channels, 25), 0.5)
    at = kind.start(x, rows(200))
    for share in (0.3, 0.001):
        plan = kind.plan([share], rows(200, 1).uniform((1, kind.numbers)))
        before = at.clone()
        kind.write(at, x, share, [part[:, 0] for part in plan])
        assert ((at != before).flatten(1).sum(1) > 0).all()


def test_an_l2_proposal_spends_the_whole_budget() -> None:
    kind = Bumps(2, Grid(9, 9, torch.device("cpu")), 0.7, (-9.0, 9.0), torch.float64)
    x = torch.zeros(20, 2, 81, dtype=torch.float64)
    at = kind.start(x, rows(20))
    for step in range(30):
        plan = kind.plan([0.2], rows(20, step).uniform((1, kind.numbers)))
        kind.write(at, x, 0.2, [part[:, 0] for part in plan])
        assert torch.allclose(at.flatten(1).norm(dim=1), torch.full((20,), 0.7, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(12,), (2, 3, 5), (1, 1, 1)])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_square_takes_any_shape_bounds_and_precision(shape: tuple[int, ...], norm: str, linear_target: Make) -> None:
    target = linear_target(shape)
    target.spec = InputSpec(shape, (-1.0, 1.0), target.spec.classes)
    target.module.double()
    x = torch.rand(6, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    y = target(x).argmax(1)
    made = square(target, x, y, rng=rows(6), eps=0.3, norm=norm, queries=60)
    assert made.shape == x.shape
    assert made.dtype == torch.float64
    assert made.abs().max() <= 1
    assert (norms.size(made - x, norms.check(norm)) <= 0.3 * (1 + 1e-9)).all()
    assert (made != x).any()


def test_windows_of_a_vector_are_as_large_as_those_of_an_image() -> None:
    device = torch.device("cpu")
    assert Grid(28, 28, device).sides(0.8) == (25, 25)
    assert Grid(28, 28, device).sides(0.0001) == (1, 1)
    assert Grid(1, 100, device).sides(0.4) == (1, 40)
    assert Grid(40, 10, device).sides(0.8) == (32, 10)


def test_square_reaches_the_class_asked_for(linear_target: Make) -> None:
    target = linear_target((1, 8, 8), classes=4)
    x, want = torch.full((4, 1, 8, 8), 0.5), torch.arange(4)
    for norm, eps in (("linf", 0.2), ("l2", 1.5)):
        made = square(target, x, want, rng=rows(4), eps=eps, norm=norm, queries=300, targeted=True)
        assert torch.equal(target(made).argmax(1), want)


def test_restarts_keep_the_better_of_two_ends(linear_target: Make) -> None:
    target = firm(linear_target((1, 8, 8)))
    x, y = torch.full((20, 1, 8, 8), 0.5), torch.zeros(20, dtype=torch.int64)
    gain = [
        aim("margin").gain(target(square(target, x, y, rng=rows(20), eps=0.1, queries=3, restarts=n)), y)
        for n in (1, 5)
    ]
    assert (gain[1] >= gain[0]).all()
    assert (gain[1] > gain[0]).any()


@pytest.mark.parametrize("bad", [{"norm": "l1"}, {"queries": 0}, {"p_init": 0.0}, {"restarts": 0}, {"norm": "l3"}])
def test_square_refuses_what_it_cannot_do(bad: dict[str, object], linear_target: Make) -> None:
    target = linear_target()
    x, y = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)
    given: dict[str, object] = {"eps": 0.1, "queries": 5} | bad
    with pytest.raises(UsageError):
        square(target, x, y, rng=rows(2), **given)  # type: ignore[arg-type]


# By labels alone ---------------------------------------------------------------------------------------------------


def near_the_border(target: ModuleTarget, n: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels, and weights of the score difference: the box is far away, so distances are in closed form."""
    x = 0.5 + 0.03 * torch.randn(n, *target.spec.shape, generator=torch.Generator().manual_seed(2))
    w = target.module.get_parameter("weight").detach()
    return x, target(x).argmax(1), w[1] - w[0]


@pytest.mark.parametrize(
    ("attack", "norm", "dual", "queries", "worse"),
    [
        (hop_skip_jump, "l2", 2.0, 2000, 1.05),
        (hop_skip_jump, "linf", 1.0, 2000, 1.2),
        (boundary, "l2", 2.0, 1500, 1.1),
    ],
)
def test_labels_alone_lead_to_the_nearest_point(
    attack: Attack, norm: str, dual: float, queries: int, worse: float, linear_target: Make
) -> None:
    """The distance to a plane is |score difference| over the dual norm of the weights."""
    target = linear_target((1, 6, 6), classes=2)
    x, y, w = near_the_border(target)
    scores = target(x).detach()
    closest = (scores[:, 1] - scores[:, 0]).abs() / w.norm(p=dual)
    made = attack(OneHot(target), x, y, rng=rows(8), norm=norm, queries=queries)
    assert (target(made).argmax(1) != y).all()
    share = norms.size(made - x, norms.check(norm)) / closest
    assert (share > 0.999).all()
    assert (share < worse).all()


@pytest.mark.parametrize("attack", BY_LABEL)
@pytest.mark.parametrize("queries", [1, 2, 9, 40, 150])
def test_no_row_is_asked_more_often_than_allowed(attack: Attack, queries: int, linear_target: Make) -> None:
    target = linear_target((1, 6, 6))
    x = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    spent = []
    for i in range(4):
        counted = Counted(OneHot(target))
        attack(counted, x[i : i + 1], y[i : i + 1], rng=rows(4)[i : i + 1], queries=queries)
        spent.append(counted.forward)
    assert max(spent) <= queries
    together = Counted(OneHot(target))
    attack(together, x, y, rng=rows(4), queries=queries)
    assert together.forward == sum(spent)


@pytest.mark.parametrize("attack", BY_LABEL)
def test_rows_that_cannot_be_fooled_or_are_wrong_come_back_clean(attack: Attack) -> None:
    target = ModuleTarget(Constant(), InputSpec((3, 4), (0.0, 1.0), ("a", "b")))
    x = torch.rand(4, 3, 4)
    made = attack(target, x, torch.tensor([0, 1, 0, 1]), rng=rows(4), queries=100)
    assert torch.equal(made, x)
    assert made is not x


@pytest.mark.parametrize("attack", BY_LABEL)
def test_with_eps_a_row_is_within_it_or_clean(attack: Attack, linear_target: Make) -> None:
    target = linear_target((1, 6, 6), classes=2)
    x, y, _ = near_the_border(target, 16)
    alone = attack(target, x, y, rng=rows(16), queries=400)
    reach = norms.size(alone - x, "l2").median().item()
    counted = Counted(target)
    made = attack(counted, x, y, rng=rows(16), queries=400, eps=reach)
    fooled = target(made).argmax(1) != y
    assert (norms.size(made - x, "l2") <= reach).all()
    assert torch.equal(made[~fooled], x[~fooled])
    assert 0 < int(fooled.sum()) < 16
    assert counted.forward < 0.9 * 16 * 400  # those within eps ended there


@pytest.mark.parametrize("attack", BY_LABEL)
def test_labels_alone_reach_the_class_asked_for(attack: Attack, linear_target: Make) -> None:
    target = linear_target((1, 6, 6), classes=4)
    target.spec = InputSpec((1, 6, 6), (-1.0, 1.0), target.spec.classes)
    target.module.double()
    x = torch.rand(4, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    want = (target(x).argmax(1) + 1) % 4
    made = attack(OneHot(target), x, want, rng=rows(4), queries=400, targeted=True)
    assert made.dtype == torch.float64
    assert torch.equal(target(made).argmax(1), want)
    assert made.abs().max() <= 1
    assert attack(target, x[:0], want[:0], rng=rows(0)).shape == (0, 1, 6, 6)


@pytest.mark.parametrize("attack", BY_LABEL)
def test_a_start_is_found_where_all_uniform_noise_is_of_one_class(attack: Attack) -> None:
    class Bright(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mean = x.flatten(1).mean(1)
            return torch.stack([0.8 - mean, mean - 0.8], 1)

    target = ModuleTarget(Bright(), InputSpec((1, 12, 12), (0.0, 1.0), ("dark", "bright")))
    x, y = torch.full((8, 1, 12, 12), 0.5), torch.zeros(8, dtype=torch.int64)
    made = attack(target, x, y, rng=rows(8), queries=400)
    assert (target(made).argmax(1) == 1).all()


@pytest.mark.parametrize("attack", BY_LABEL)
def test_many_rows_are_asked_in_calls_of_bounded_size(attack: Attack, linear_target: Make) -> None:
    target = linear_target((1, 4, 4), classes=2)
    largest = 0

    def watch(module: object, arguments: tuple[Tensor, ...], out: object) -> None:
        nonlocal largest
        largest = max(largest, len(arguments[0]))

    x = torch.rand(600, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = target(x).argmax(1)
    hook = target.module.register_forward_hook(watch)
    made = attack(target, x, y, rng=rows(600), queries=80)
    hook.remove()
    assert largest == 256
    assert (target(made).argmax(1) != y).float().mean() > 0.95


@pytest.mark.parametrize("attack", BY_LABEL)
@pytest.mark.parametrize("bad", [{"norm": "l1"}, {"queries": 0}, {"starts": 0}, {"eps": -1.0}])
def test_label_attacks_refuse_what_they_cannot_do(attack: Attack, bad: dict[str, object], linear_target: Make) -> None:
    x, y = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(UsageError):
        attack(linear_target(), x, y, rng=rows(2), **bad)
    with pytest.raises(UsageError, match="not linf"):
        boundary(linear_target(), x, y, rng=rows(2), norm="linf")
