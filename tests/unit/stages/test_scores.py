"""Scores against brute force, finite differences and hand-made numbers."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.losses import cross_entropy
from assay.core.registry import Bound, bind
from assay.core.specs import step
from assay.stages.scores.entropy import entropy
from assay.stages.scores.fol import fol
from assay.stages.scores.gini import gini
from assay.stages.scores.margin import margin
from assay.stages.scores.max_p import max_p
from assay.stages.scores.rivals import rivals
from assay.stages.scores.true_prob import true_prob
from assay.stages.scores.zol import zol
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

WIDTH, BOUNDS, EPS = 6, (-1.0, 2.0), 0.3


def tanh_bench(seed: int = 0) -> Bench:
    """A smooth net over six numbers from -1 to 2, in float64."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return Bench(ModuleTarget(net, InputSpec((WIDTH,), BOUNDS, ("a", "b", "c", "d"))))


def some_cases(n: int = 5) -> Cases:
    """Cases within EPS of their seeds, of which some lie at the bounds."""
    rng = torch.Generator().manual_seed(3)
    seed = torch.rand(n, WIDTH, generator=rng, dtype=torch.float64) * 3 - 1
    seed[:, 0], seed[:, 1] = BOUNDS[0] + 0.1, BOUNDS[1]
    x = (seed + (torch.rand(n, WIDTH, generator=rng, dtype=torch.float64) * 2 - 1) * EPS).clamp(*BOUNDS)
    return Cases.of(x, torch.randint(4, (n,), generator=rng)).note(seed_x=seed)


def gains(bench: Bench, cases: Cases, points: Tensor) -> Tensor:
    """<point - x, g> of every point (N, P, WIDTH), the largest for each case."""
    slope = bench.gradient(cases)
    return torch.einsum("npw,nw->np", points - cases.x[:, None], slope).amax(1)


def corners(low: Tensor, high: Tensor) -> Tensor:
    """Every corner of the boxes from low to high (N, WIDTH), (N, 2^WIDTH, WIDTH)."""
    choose = torch.tensor(list(itertools.product((False, True), repeat=WIDTH)))
    return torch.where(choose, high[:, None], low[:, None])


def with_graph(bench: Bench, cases: Cases) -> Cases:
    """The cases as an engine hands them to an objective: logits and gradient attached to the graph of x."""
    x = cases.x.detach().clone().requires_grad_()
    logits = bench.target(x)
    slope = torch.autograd.grad(cross_entropy(logits, cases.y).sum(), x, create_graph=True)[0]
    return cases.with_x(x).note(logits=logits, gradient=slope)


def test_fol_linf_is_the_maximum_over_the_corners_of_the_ball() -> None:
    bench, cases = tanh_bench(), some_cases()
    seed = cases.info["seed_x"]
    best = gains(bench, cases, corners(seed - EPS, seed + EPS))
    assert torch.allclose(fol(bench, cases, eps=EPS, norm="linf"), best, rtol=1e-12)
    assert (best > 0).all()


def test_fol_in_the_box_is_the_maximum_over_the_corners_of_what_is_left_of_the_ball() -> None:
    bench, cases = tanh_bench(), some_cases()
    seed = cases.info["seed_x"]
    best = gains(bench, cases, corners((seed - EPS).clamp_min(BOUNDS[0]), (seed + EPS).clamp_max(BOUNDS[1])))
    found = fol(bench, cases, eps=EPS, norm="linf", box=True)
    assert torch.allclose(found, best, rtol=1e-12)
    assert (found < fol(bench, cases, eps=EPS, norm="linf") - 1e-3).any(), "the bounds must bind somewhere"


def test_fol_l2_exact_is_the_maximum_over_the_sphere() -> None:
    bench, cases = tanh_bench(), some_cases()
    direction = torch.randn(1, 200_000, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sphere = cases.info["seed_x"][:, None] + EPS * direction / direction.norm(dim=2, keepdim=True)
    best = gains(bench, cases, sphere)
    found = fol(bench, cases, eps=EPS, exact=True)
    assert (best <= found).all()
    assert (found - best < 0.02 * fol(bench, cases, eps=EPS)).all()


def test_fol_l2_as_printed_is_the_scaled_norm_of_the_gradient() -> None:
    bench, cases = tanh_bench(), some_cases()
    length = bench.gradient(cases).square().sum(1).sqrt()
    assert torch.allclose(fol(bench, cases, eps=EPS), EPS * length, rtol=1e-12)
    span = BOUNDS[1] - BOUNDS[0]
    assert torch.allclose(fol(bench, cases), span * length, rtol=1e-12), "without eps the factor is the range"
    assert torch.allclose(fol(bench, cases, eps=2.0), 2 * length, rtol=1e-12)


def test_fol_is_zero_where_the_linear_loss_cannot_rise() -> None:
    bench, cases = tanh_bench(), some_cases()
    slope, seed = bench.gradient(cases), cases.info["seed_x"]
    end = cases.with_x(seed + EPS * slope.sign()).note(gradient=slope)
    assert fol(bench, end, eps=EPS, norm="linf").abs().max() < 1e-14
    top = cases.with_x(seed + EPS * slope / slope.norm(dim=1, keepdim=True)).note(gradient=slope)
    assert fol(bench, top, eps=EPS, exact=True).abs().max() < 1e-14


def test_a_case_without_a_seed_is_its_own() -> None:
    bench, cases = tanh_bench(), some_cases().drop("seed_x")
    slope = bench.gradient(cases)
    assert torch.allclose(fol(bench, cases, eps=EPS, norm="linf"), EPS * slope.abs().sum(1))
    assert torch.allclose(fol(bench, cases, eps=EPS, exact=True), EPS * slope.norm(dim=1))
    # The seed is a constant also then: moving away from it along the gradient lowers the score.
    attached = with_graph(bench, cases).note(gradient=slope)
    (way,) = torch.autograd.grad(fol(bench, attached, eps=EPS, norm="linf").sum(), attached.x)
    assert torch.allclose(way, -slope)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"norm": "linf"}, "needs eps"),
        ({"exact": True}, "needs eps"),
        ({"norm": "l1", "eps": 0.1}, "linf and l2, got 'l1'"),
        ({"norm": "l3"}, "one of linf, l2, l1, l0"),
        ({"eps": 0.1, "box": True}, "norm=linf, got 'l2'"),
        ({"eps": -0.1}, "must not be negative"),
    ],
)
def test_fol_refuses_what_it_cannot_mean(params: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        bind("score", "fol", params)(tanh_bench(), some_cases())


SCORES = [
    "zol",
    "gini",
    "entropy",
    "lib",
    "lib(beta=0)",
    "max_p",
    "margin",
    "true_prob",
    "rivals(k=3)",
    "fol",
    f"fol(eps={EPS}, exact=true)",
    f"fol(eps={EPS}, norm=linf)",
    f"fol(eps={EPS}, norm=linf, box=true)",
]


def bound(text: str) -> Bound:
    return bind("score", *step(text))


@pytest.mark.parametrize("text", SCORES)
def test_slopes_of_scores_are_those_of_finite_differences(text: str) -> None:
    bench, cases = tanh_bench(), some_cases()
    score = bound(text)
    cases = cases.note(seed_logits=bench.target(cases.info["seed_x"]).detach())
    attached = with_graph(bench, cases)
    (slope,) = torch.autograd.grad(score(bench, attached).sum(), attached.x)
    small = 1e-6
    for place in range(WIDTH):
        shift = torch.zeros(WIDTH, dtype=torch.float64)
        shift[place] = small
        up, down = (score(bench, cases.with_x(cases.x + sign * shift)) for sign in (1, -1))
        assert torch.allclose(slope[:, place], (up - down) / (2 * small), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("text", SCORES)
def test_scores_build_a_graph_only_where_there_is_one(text: str) -> None:
    bench, cases = tanh_bench(), some_cases()
    score = bound(text)
    plain = score(bench, cases)
    attached = score(bench, with_graph(bench, cases))
    assert not plain.requires_grad
    assert attached.requires_grad
    assert torch.allclose(plain, attached.detach(), rtol=1e-12)


@pytest.mark.parametrize("text", SCORES)
def test_slopes_are_finite_where_the_target_is_as_sure_as_can_be(text: str) -> None:
    """Logits of ±1e4 in float32, right and wrong ones: probabilities are 0 and 1, and the gradient is 0 where right."""
    weight = torch.tensor([[1e4] * WIDTH, [-1e4] * WIDTH, [0.0] * WIDTH, [0.0] * WIDTH])
    net = nn.Linear(WIDTH, 4, bias=False)
    net.weight = nn.Parameter(weight)
    bench = Bench(ModuleTarget(net, InputSpec((WIDTH,), BOUNDS, ("a", "b", "c", "d"))))
    cases = Cases.of(torch.ones(2, WIDTH), torch.tensor([0, 1])).note(seed_x=torch.full((2, WIDTH), 0.9))
    attached = with_graph(bench, cases)
    assert attached.info["gradient"][0].abs().max() == 0
    values = bound(text)(bench, attached)
    (slope,) = torch.autograd.grad(values.sum(), attached.x)
    assert values.isfinite().all()
    assert slope.isfinite().all()


def test_the_second_derivative_is_finite_where_the_gradient_is_zero() -> None:
    """A flat target: the loss has gradient exactly 0 everywhere, and its norm is climbed."""
    net = nn.Sequential(nn.Linear(WIDTH, 3), nn.Tanh(), nn.Linear(3, 4))
    nn.init.zeros_(net[0].weight)  # type: ignore[arg-type]
    bench = Bench(ModuleTarget(net, InputSpec((WIDTH,), BOUNDS, ("a", "b", "c", "d"))))
    attached = with_graph(bench, Cases.of(torch.ones(3, WIDTH), torch.tensor([0, 1, 2])))
    for params in ({}, {"eps": 0.1, "exact": True}, {"eps": 0.1, "norm": "linf"}):
        values = bind("score", "fol", params)(bench, attached)
        (slope,) = torch.autograd.grad(values.sum(), attached.x, retain_graph=True)
        assert values.tolist() == [0.0, 0.0, 0.0], "not 1e-6: a bound such as 1e-18 is compared with it"
        assert slope.isfinite().all()


def test_the_safe_length_is_the_plain_one_with_the_slope_of_the_smooth_one() -> None:
    flat = torch.tensor([[3.0, -4.0], [3e-6, 4e-6], [6e-30, 8e-30], [0.0, 0.0]], requires_grad=True)
    length = norms.safe_length(flat)
    assert length.tolist() == pytest.approx([5.0, 5e-6, 1e-29, 0.0], rel=1e-6, abs=0.0)
    (slope,) = torch.autograd.grad(length.sum(), flat)
    smooth = (flat.detach().square().sum(1, keepdim=True) + 1e-12).sqrt()
    assert torch.allclose(slope, flat.detach() / smooth)
    assert slope[1].tolist() == pytest.approx([0.6 * 5 / math.sqrt(26), 0.8 * 5 / math.sqrt(26)])
    assert norms.safe_length(torch.zeros(0, 2, 2)).shape == (0,)


def with_probabilities(*rows: tuple[float, ...]) -> tuple[Bench, Cases]:
    """Cases of label 0 with these probabilities, by way of the column."""
    share = torch.tensor(rows, dtype=torch.float64)
    x = torch.zeros(len(rows), WIDTH, dtype=torch.float64)
    return tanh_bench(), Cases.of(x, torch.zeros(len(rows), dtype=torch.int64)).note(logits=share.log())


def test_scores_of_probabilities_by_hand() -> None:
    bench, cases = with_probabilities((0.5, 0.25, 0.125, 0.125), (0.25,) * 4, (0.1, 0.6, 0.2, 0.1))
    assert gini(bench, cases).tolist() == pytest.approx([1 - 0.34375, 0.75, 1 - 0.42])
    assert entropy(bench, cases)[:2].tolist() == pytest.approx([1.75 * math.log(2), 2 * math.log(2)])
    assert max_p(bench, cases).tolist() == pytest.approx([0.5, 0.75, 0.4])
    assert margin(bench, cases).tolist() == pytest.approx([0.75, 1.0, 0.6])
    assert true_prob(bench, cases).tolist() == pytest.approx([0.5, 0.25, 0.1])
    assert zol(bench, cases).tolist() == pytest.approx([math.log(2), 2 * math.log(2), math.log(10)])


def test_rivals_are_the_likeliest_classes_of_the_seed_beside_the_label() -> None:
    bench, cases = with_probabilities((0.1, 0.6, 0.2, 0.1), (0.7, 0.0625, 0.125, 0.1125))
    assert rivals(bench, cases, k=2).tolist() == pytest.approx([0.6, 0.125])
    assert rivals(bench, cases, k=3).tolist() == pytest.approx([0.8, 0.2375])
    assert rivals(bench, cases).tolist() == pytest.approx([0.9, 0.3]), "with few classes all others"
    seed = torch.tensor([[9.0, 1.0, 2.0, 3.0], [0.0, 3.0, 2.0, 1.0]])
    assert rivals(bench, cases.note(seed_logits=seed), k=2).tolist() == pytest.approx([0.1, 0.0625])
    with pytest.raises(UsageError, match="at least 2, got 1"):
        rivals(bench, cases, k=1)


def test_sure_cases_do_not_tie() -> None:
    """In float32 one minus a probability of 1 - 1e-12 is 0; gini, max_p and the slope of true_prob still tell apart."""
    logits = torch.tensor([[28.0, 0.0, -50.0], [30.0, 0.0, -50.0]], requires_grad=True)
    cases = Cases.of(torch.zeros(2, WIDTH), torch.tensor([0, 0])).note(logits=logits)
    assert gini(tanh_bench(), cases).tolist() == pytest.approx([2 * math.exp(-28), 2 * math.exp(-30)])
    assert max_p(tanh_bench(), cases).tolist() == pytest.approx([math.exp(-28), math.exp(-30)])
    (slope,) = torch.autograd.grad(true_prob(tanh_bench(), cases).sum(), logits)
    assert slope[:, 0].tolist() == pytest.approx([math.exp(-28), math.exp(-30)])
    assert slope[:, 1].tolist() == pytest.approx([-math.exp(-28), -math.exp(-30)])
