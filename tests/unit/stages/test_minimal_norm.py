"""C&W, DeepFool and FAB-T where the smallest adversarial change is known, and what comes back where there is none."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from assay.core import norms
from assay.core.aims import aim
from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.randomness import Rows, Stream
from assay.stages.attacks.cw import cw
from assay.stages.attacks.deepfool import deepfool
from assay.stages.attacks.fab_t import fab_t
from assay.stages.attacks.gradient import jacobian
from assay.stages.attacks.hyperplane import onto
from assay.stages.attacks.minimal import closer
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]
Attack = Callable[..., Tensor]
DUAL: dict[Norm, float] = {"linf": 1, "l2": 2, "l1": torch.inf}
ALL: list[tuple[Attack, Norm]] = [
    (cw, "l2"),
    (deepfool, "l2"),
    (deepfool, "linf"),
    (partial(fab_t, steps=40), "linf"),
    (partial(fab_t, steps=40), "l2"),
    (partial(fab_t, steps=40), "l1"),
]
every_attack = pytest.mark.parametrize(
    ("attack", "norm"), ALL, ids=lambda p: getattr(getattr(p, "func", p), "__name__", p)
)


def rng(n: int) -> Rows:
    return Stream(0).rows(torch.arange(n))


def near_grey(target: ModuleTarget, n: int = 12, spread: float = 0.02) -> tuple[Tensor, Tensor]:
    """Inputs so near the grey image, where all scores are 0, that the bounds play no part."""
    x = 0.5 + spread * torch.randn(n, *target.spec.shape, generator=torch.Generator().manual_seed(3))
    return x, target(x).argmax(1)


def closed_form(target: ModuleTarget, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
    """The distance (N,) from x to the nearest boundary of a linear net without bounds."""
    w = target.module.get_parameter("weight").detach()
    scores = target(x).detach()
    gaps = scores.gather(1, y[:, None]) - scores
    widths = torch.linalg.vector_norm(w[None] - w[y][:, None], DUAL[norm], dim=2)
    return torch.where(gaps > 0, gaps / widths, torch.inf).amin(1)


def with_net(target: ModuleTarget, net: nn.Module, bounds: tuple[float, float] = (0.0, 1.0)) -> ModuleTarget:
    return ModuleTarget(net, InputSpec(target.spec.shape, bounds, target.spec.classes))


class Counter:
    """Counts the rows that go through a net."""

    def __init__(self, target: ModuleTarget) -> None:
        self.rows = 0
        target.module.register_forward_hook(self.count)

    def count(self, module: nn.Module, arguments: tuple[Tensor, ...], out: Tensor) -> None:
        self.rows += len(arguments[0])

    def spent(self) -> int:
        rows, self.rows = self.rows, 0
        return rows


# ---- the distance is known


@pytest.mark.parametrize("classes", [2, 5])
@every_attack
def test_hits_the_closed_form_distance(attack: Attack, norm: Norm, classes: int, linear_target: Make) -> None:
    target = linear_target(classes=classes)
    x, y = near_grey(target)
    made = attack(target, x, y, rng=rng(len(x)), norm=norm, steps=300 if attack is cw else 40)
    assert (target(made).argmax(1) != y).all()
    ratio = norms.size(made - x, norm) / closed_form(target, x, y, norm)
    assert ratio.min() > 1 - 1e-3
    assert ratio.max() < 1.01


@pytest.mark.parametrize("c", [1e-3, 1e3])
def test_the_papers_binary_search_hits_it_too(c: float, linear_target: Make) -> None:
    target = linear_target(classes=2)
    x, y = near_grey(target, spread=0.1)
    made = cw(target, x, y, rng=rng(len(x)), adapt=0.0, lr=0.004, c=c, searches=10, steps=250)
    assert (target(made).argmax(1) != y).all()
    assert (norms.size(made - x, "l2") / closed_form(target, x, y, "l2") < 1.01).all()


def test_the_papers_c_stays_as_it_is(linear_target: Make) -> None:
    """Too small a constant never leaves the clean input's side; one that adapts gets there all the same."""
    target = linear_target(classes=2)
    x, y = near_grey(target, spread=0.1)
    far = closed_form(target, x, y, "l2") > 0.05
    plain, adapted = (
        cw(target, x, y, rng=rng(len(x)), lr=0.01, steps=400, c=0.3, searches=1, adapt=a) for a in (0.0, 0.02)
    )
    assert torch.equal(plain[far], x[far])
    assert far.any()
    assert (target(adapted).argmax(1) != y).all()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_fab_hits_the_distance_where_bounds_are_in_the_way(norm: Norm, linear_target: Make) -> None:
    target = linear_target(classes=2)
    x = torch.rand(16, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    x = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.5, x.round(), x)
    y = target(x).argmax(1)
    made = fab_t(target, x, y, rng=rng(16), norm=norm)
    w = target.module.get_parameter("weight").detach().double()
    gap = target(x).detach().double()
    exact = torch.tensor(
        [
            smallest(x[i].flatten().double(), w[1 - y[i]] - w[y[i]], float(gap[i, y[i]] - gap[i, 1 - y[i]]), norm)
            for i in range(16)
        ]
    )
    assert (exact > 1.001 * closed_form(target, x, y, norm)).sum() > 2  # the bounds do play their part
    assert (target(made).argmax(1) != y).all()
    ratio = norms.size((made - x).double(), norm) / exact
    assert ratio.min() > 1 - 1e-3
    assert ratio.max() < 1.01


# ---- projections


def smallest(t: Tensor, w: Tensor, gap: float, norm: Norm) -> float:
    """The least norm of d with w · d = gap and t + d in [0, 1]: a linear program, or l2 by halving."""
    low, high, n = (-t).numpy(), (1 - t).numpy(), len(t)
    if norm == "l2":
        below, above = 0.0, 1e9
        for _ in range(200):
            middle = (below + above) / 2
            reached = float(w @ torch.clamp(t + middle * gap * w, 0, 1)) - float(w @ t)
            below, above = (middle, above) if abs(reached) < abs(gap) else (below, middle)
        return float((torch.clamp(t + above * gap * w, 0, 1) - t).norm())
    if norm == "linf":
        above_all = np.hstack([np.vstack([np.eye(n), -np.eye(n)]), -np.ones((2 * n, 1))])
        cost, equal, box = np.r_[np.zeros(n), 1.0], np.r_[w.numpy(), 0.0], [*zip(low, high, strict=True), (0, None)]
        solved = linprog(cost, A_ub=above_all, b_ub=np.zeros(2 * n), A_eq=equal[None], b_eq=[gap], bounds=box)
    else:
        box = [(0.0, h) for h in high] + [(0.0, -v) for v in low]
        solved = linprog(np.ones(2 * n), A_eq=np.r_[w.numpy(), -w.numpy()][None], b_eq=[gap], bounds=box)
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_projection_is_the_smallest_move_in_the_box(norm: Norm) -> None:
    draw = torch.Generator().manual_seed(0)
    t = torch.rand(200, 5, generator=draw, dtype=torch.float64)
    t[::3] = t[::3].round()
    w = torch.randn(200, 5, generator=draw, dtype=torch.float64)
    w[::7, 0] = 0
    gap = torch.randn(200, generator=draw, dtype=torch.float64)
    move = onto(t, w, gap, (0.0, 1.0), norm)
    assert (t + move).min() >= -1e-12
    assert (t + move).max() <= 1 + 1e-12
    corner = torch.where(w * gap[:, None] > 0, 1 - t, -t) * (w != 0)
    meets = (w * corner).sum(1).abs() >= gap.abs()
    assert 50 < meets.sum() < 195  # both sorts are there
    assert torch.equal(move[~meets], corner[~meets])
    assert torch.allclose((w * move).sum(1)[meets], gap[meets], atol=1e-9)
    exact = [smallest(t[i], w[i], float(gap[i]), norm) for i in meets.nonzero().squeeze(1)]
    assert torch.allclose(norms.size(move, norm)[meets], torch.tensor(exact, dtype=torch.float64), atol=1e-7)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_projection_with_tiny_slopes_other_bounds_and_none_at_all(norm: Norm) -> None:
    draw = torch.Generator().manual_seed(0)
    t, w, gap = torch.rand(9, 6, generator=draw), torch.randn(9, 6, generator=draw), torch.randn(9, generator=draw) / 3
    move = onto(t, w, gap, (0.0, 1.0), norm)
    # In float32 the square of 1e-30 is 0; the plane is the same one.
    assert torch.allclose(onto(t, w * 1e-30, gap * 1e-30, (0.0, 1.0), norm), move, atol=1e-5)
    assert torch.allclose(onto(2 * t - 1, w, 2 * gap, (-1.0, 1.0), norm), 2 * move, atol=1e-5)
    assert not onto(t, 0 * w, gap, (0.0, 1.0), norm).any()
    assert onto(t[:0], w[:0], gap[:0], (0.0, 1.0), norm).shape == (0, 6)
    assert not onto(t, w, gap * torch.nan, (0.0, 1.0), norm).any()


# ---- what comes back


@every_attack
def test_a_row_that_cannot_be_fooled_comes_back_bit_identical(attack: Attack, norm: Norm, linear_target: Make) -> None:
    target = linear_target()
    with torch.no_grad():
        target.module.get_parameter("weight").zero_()
        target.module.get_parameter("bias").copy_(torch.tensor([3.0, 2.0, 1.0]))
    x = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    made = attack(target, x, torch.zeros(5, dtype=torch.int64), rng=rng(5), norm=norm, steps=5)
    assert torch.equal(made, x)


@every_attack
def test_only_rows_within_eps_count(attack: Attack, norm: Norm, linear_target: Make) -> None:
    target = linear_target()
    x, y = near_grey(target)
    exact = closed_form(target, x, y, norm)
    eps = float(exact.median()) * 1.05
    made = attack(target, x, y, rng=rng(len(x)), norm=norm, eps=eps)
    size, reachable = norms.size(made - x, norm), exact < eps / 1.02
    assert 0 < reachable.sum() < len(x)
    assert (size <= eps).all()
    assert (target(made).argmax(1) != y)[reachable].all()
    assert torch.equal(made[exact > eps], x[exact > eps])
    assert torch.equal(attack(target, x, y, rng=rng(len(x)), norm=norm, eps=float(exact.min()) / 2), x)


@every_attack
def test_a_row_wrong_from_the_start_comes_back_as_it_is(attack: Attack, norm: Norm, linear_target: Make) -> None:
    target = linear_target()
    x, y = near_grey(target)
    y[::2] = (y[::2] + 1) % 3
    made = attack(target, x, y, rng=rng(len(x)), norm=norm)
    assert torch.equal(made[::2], x[::2])
    assert (target(made).argmax(1) != y).all()
    assert (norms.size(made - x, norm)[1::2] > 0).all()


@every_attack
def test_double_and_half_precision(attack: Attack, norm: Norm, linear_target: Make) -> None:
    target = linear_target()
    x, y = near_grey(target)
    single = norms.size(attack(target, x, y, rng=rng(len(x)), norm=norm) - x, norm)
    double = with_net(target, linear_target().module.double())
    made = attack(double, x.double(), y, rng=rng(len(x)), norm=norm)
    assert made.dtype == torch.float64
    assert torch.allclose(norms.size(made - x.double(), norm).float(), single, rtol=0.01)
    half = with_net(target, linear_target().module.bfloat16())
    made = attack(half, x, y, rng=rng(len(x)), norm=norm)
    assert made.dtype == torch.float32
    right = half(x).argmax(1) == y
    assert (half(made).argmax(1) != y).all()
    # Scores in bfloat16 are off by up to 1 in 250 of the terms they are sums of, and so are the boundaries.
    assert torch.allclose(norms.size(made - x, norm)[right], single[right], atol=float(single.max()))


@every_attack
def test_empty_batch_and_vectors(attack: Attack, norm: Norm, linear_target: Make) -> None:
    target = linear_target(shape=(16,))
    x, y = near_grey(target)
    assert attack(target, x[:0], y[:0], rng=rng(0), norm=norm).shape == (0, 16)
    assert (target(attack(target, x, y, rng=rng(len(x)), norm=norm)).argmax(1) != y).all()


@every_attack
def test_bounds_are_the_targets_own(attack: Attack, norm: Norm, linear_target: Make) -> None:
    """The same net over [-1, 1] gives the same images, seen on that scale."""

    class Shifted(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net((x + 1) / 2)
            return out

    target = linear_target()
    x = torch.rand(10, 1, 4, 4, generator=torch.Generator().manual_seed(5)).mul_(4).round_().div_(4)
    y = target(x).argmax(1)
    made = attack(target, x, y, rng=rng(10), norm=norm)
    other = attack(with_net(target, Shifted(target.module), (-1.0, 1.0)), 2 * x - 1, y, rng=rng(10), norm=norm)
    assert (target(made).argmax(1) != y).all()
    assert other.min() >= -1
    assert other.max() <= 1
    assert torch.allclose(norms.size(other - (2 * x - 1), norm), 2 * norms.size(made - x, norm), rtol=5e-3)


@every_attack
def test_rows_stand_alone_and_weights_stay_clean(attack: Attack, norm: Norm, linear_target: Make) -> None:
    target = linear_target(classes=4)
    x, y = near_grey(target, spread=0.1)
    whole = attack(target, x, y, rng=rng(len(x)), norm=norm)
    assert not whole.requires_grad
    part = torch.tensor([7, 2, 5])
    some = attack(target, x[part], y[part], rng=rng(len(x))[part], norm=norm)
    assert torch.allclose(some, whole[part], atol=1e-5)
    assert all(weight.grad is None and weight.requires_grad for weight in target.module.parameters())


# ---- C&W


def test_cw_targeted_reaches_the_class_asked_for(linear_target: Make) -> None:
    target = linear_target(classes=4)
    x, y = near_grey(target)
    want = (y + 1 + torch.arange(len(x)) % 3) % 4
    made = cw(target, x, want, rng=rng(len(x)), targeted=True)
    assert torch.equal(target(made).argmax(1), want)
    already = cw(target, x, y, rng=rng(len(x)), targeted=True)
    assert torch.equal(already, x)


def test_cw_confidence_is_a_margin(linear_target: Make) -> None:
    target = linear_target()
    x, y = near_grey(target)
    made = cw(target, x, y, rng=rng(len(x)), confidence=0.5)
    margin = aim("margin").gain(target(made), y)
    assert margin.min() >= 0.5 - 1e-5
    assert margin.max() < 0.6


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_cw_does_not_care_for_the_scale_of_the_scores(scale: float, linear_target: Make) -> None:
    target, other = linear_target(), linear_target()
    with torch.no_grad():
        for weight in other.module.parameters():
            weight.mul_(scale)
    x, y = near_grey(target)
    one, two = (norms.size(cw(net, x, y, rng=rng(len(x))) - x, "l2") for net in (target, other))
    assert torch.allclose(one, two, rtol=1e-2)


def test_cw_keeps_to_its_budget_and_drops_rows_that_are_done(linear_target: Make) -> None:
    target = linear_target()
    count = Counter(target)
    x, y = near_grey(target)
    run = partial(cw, target, x, y, rng=rng(len(x)), steps=50, final_search=0)
    count.spent()
    run(searches=3, adapt=0.0, abort_early=False)
    assert count.spent() == (3 * 50 + 1) * len(x)
    run(searches=3, abort_early=False)  # all rows adversarial in the first search
    assert count.spent() == 51 * len(x)
    run(steps=400, abort_early=False)
    whole = count.spent()
    made = run(steps=400)
    assert count.spent() < 0.8 * whole
    eps = float(norms.size(made - x, "l2").max()) * 1.5
    run(eps=eps, early_stop=False, abort_early=False)
    assert count.spent() == 51 * len(x)
    run(eps=eps)
    assert count.spent() < 25 * len(x)


def test_cw_attacks_several_labels_at_once(linear_target: Make) -> None:
    """Loss and criterion are parameters: here a net whose answer is right when every label is."""
    target = linear_target(classes=4)
    x, _ = near_grey(target)
    y = (target(x) > 0).float()
    made = cw(target, x, y, rng=rng(len(x)), loss="multilabel", criterion="every_label")
    assert ((target(made) > 0) != (y > 0)).any(1).all()
    assert norms.size(made - x, "l2").max() < 0.1


# ---- DeepFool and FAB-T


def test_jacobian_of_a_linear_net_is_the_difference_of_its_weights(linear_target: Make) -> None:
    target = linear_target(classes=5)
    w = target.module.get_parameter("weight").detach()
    x, y = near_grey(target)
    rivals = torch.stack([(y + k) % 5 for k in (1, 3)], 1)
    scores = target(x).detach()
    with torch.no_grad():
        for k, (ahead, grad) in enumerate(jacobian(target, x, y, rivals)):
            assert not torch.is_grad_enabled()  # what the caller chose holds between the gradients too
            rival = rivals[:, k]
            assert torch.allclose(ahead, (scores.gather(1, rival[:, None]) - scores.gather(1, y[:, None])).squeeze(1))
            assert torch.allclose(grad.flatten(1), w[rival] - w[y], atol=1e-6)
    assert k == 1


def test_deepfool_looks_at_so_many_classes(linear_target: Make) -> None:
    """With two classes only the runner-up of the clean input is a rival, be another boundary nearer or not."""
    target = linear_target(classes=6)
    x, y = near_grey(target, 40)
    second = target(x).topk(2, 1).indices[:, 1]
    narrow = deepfool(target, x, y, rng=rng(40), classes=2)
    wide = deepfool(target, x, y, rng=rng(40), classes=6)
    assert (norms.size(wide - x, "l2") <= norms.size(narrow - x, "l2") * 1.001).all()
    assert (target(wide).argmax(1) != second).any()


def test_deepfool_drops_rows_that_are_fooled(linear_target: Make) -> None:
    target = linear_target(classes=3)
    count = Counter(target)
    x, y = near_grey(target)
    count.spent()
    deepfool(target, x, y, rng=rng(len(x)), final_search=0)
    assert count.spent() == 3 * len(x)  # the clean input, the slopes there, and the point beyond the boundary


def test_the_way_back_stays_adversarial_and_ends_at_the_boundary(linear_target: Make) -> None:
    target = linear_target()
    x, y = near_grey(target)
    far = deepfool(target, x, y, rng=rng(len(x)), overshoot=0.5, final_search=0)
    exact = closed_form(target, x, y, "l2")
    assert torch.allclose(norms.size(far - x, "l2"), 1.5 * exact, rtol=1e-3)
    near = closer(target, x, y, far, aim("margin"), 3)
    assert (target(near).argmax(1) != y).all()
    assert (norms.size(near - x, "l2") < 1.001 * exact).all()
    assert closer(target, x, y, far, aim("margin"), 0) is far


def test_fab_leaves_rows_alone_that_are_within_eps(linear_target: Make) -> None:
    target = linear_target()
    count = Counter(target)
    x, y = near_grey(target)
    eps = 1.2 * float(closed_form(target, x, y, "linf").max())
    count.spent()
    early = fab_t(target, x, y, rng=rng(len(x)), eps=eps)
    spent = count.spent()
    late = fab_t(target, x, y, rng=rng(len(x)), eps=eps, early_stop=False)
    assert spent <= 4 * len(x)
    assert count.spent() > 100 * len(x)
    assert (target(early).argmax(1) != y).all()
    assert norms.size(late - x, "linf").mean() < 0.99 * norms.size(early - x, "linf").mean()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_fab_finds_by_random_starts_what_has_no_slope_at_the_clean_input(norm: Norm) -> None:
    class Plateau(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rise = torch.relu(x[:, 0] - 0.52) + 0 * x[:, 1]
            return torch.stack([torch.full_like(rise, 0.1), rise], 1)

    target = ModuleTarget(Plateau(), InputSpec((2,), (0.0, 1.0), ("a", "b")))
    x, y = torch.full((60, 2), 0.5), torch.zeros(60, dtype=torch.int64)
    assert torch.equal(fab_t(target, x, y, rng=rng(60), norm=norm, steps=20), x)
    made = fab_t(target, x, y, rng=rng(60), norm=norm, steps=20, restarts=10)
    won = target(made).argmax(1) != y
    assert won.float().mean() > 0.9
    assert torch.equal(made[~won], x[~won])
    assert torch.allclose(norms.size(made - x, norm)[won], torch.tensor(0.12), rtol=0.05)
    assert not torch.equal(made, fab_t(target, x, y, rng=rng(120)[60:], norm=norm, steps=20, restarts=10))


# ---- what is refused


@pytest.mark.parametrize(
    ("attack", "params"),
    [
        (cw, {"norm": "linf"}),
        (cw, {"steps": 0}),
        (cw, {"searches": 0}),
        (cw, {"confidence": -1.0}),
        (cw, {"adapt": 0.5}),
        (deepfool, {"norm": "l1"}),
        (deepfool, {"classes": 1}),
        (deepfool, {"overshoot": 0.0}),
        (fab_t, {"norm": "l0"}),
        (fab_t, {"restarts": 0}),
        (fab_t, {"alpha_max": 2.0}),
        (fab_t, {"eps": -0.1}),
    ],
)
def test_bad_parameters_are_told_before_any_work(
    attack: Attack, params: dict[str, object], linear_target: Make
) -> None:
    target = linear_target()
    count = Counter(target)
    x = torch.rand(2, 1, 4, 4)
    with pytest.raises(UsageError):
        attack(target, x, torch.zeros(2, dtype=torch.int64), rng=rng(2), **params)
    assert count.spent() == 0
