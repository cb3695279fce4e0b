"""Nets in low precision: planted ones whose class flips, and ones whose class does not."""

import copy

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.subjects.bench import Bench
from assay.subjects.sources.folded import folded
from assay.subjects.sources.module import ModuleTarget, Normalised
from assay.subjects.sources.rounded import PRECISIONS, rounded


def target(net: nn.Module, shape: tuple[int, ...] = (2,), classes: int = 2) -> ModuleTarget:
    return ModuleTarget(net, InputSpec(shape, (0.0, 1.0), tuple(map(str, range(classes)))))


def differs(net: nn.Module, x: Tensor, dtype: str) -> list[bool]:
    bench = Bench(target(net, tuple(x.shape[1:])))
    told: list[bool] = bind("oracle", "quantised", {"dtype": dtype})(bench, Cases.of(x)).tolist()
    return told


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    net = nn.Linear(2, 2)
    net.weight.data, net.bias.data = torch.tensor(weight), torch.tensor(bias)
    return net


X = torch.tensor([[0.5, 0.25], [1.0, 0.5], [0.25, 1.0]])


def test_weights_that_half_precision_cannot_tell_apart() -> None:
    """1 + 2^-12 is 1 in float16 and bfloat16: then both classes score the same, and the first wins."""
    net = linear([[1.0, 0.0], [1.0 + 2**-12, 0.0]], [0.0, 0.0])
    assert differs(net, X, "float16") == [True, True, True]
    assert differs(net, X, "bfloat16") == [True, True, True]
    assert differs(net, X, "int8") == [False, False, False], "each output has steps of its own size"


def test_bfloat16_is_coarser_than_float16() -> None:
    net = linear([[1.0, 0.0], [1.0 + 2**-9, 0.0]], [0.0, 0.0])
    assert differs(net, X, "float16") == [False, False, False]
    assert differs(net, X, "bfloat16") == [True, True, True]


def test_a_weight_below_half_a_step_of_eight_bits() -> None:
    """0.003 beside 1 is less than half of 1/127: the second class loses its only score."""
    net = linear([[0.0, 0.0], [1.0, 0.003]], [0.0, 0.0])
    net.bias.data = torch.tensor([0.001, 0.0])
    x = torch.tensor([[0.0, 1.0], [0.5, 1.0]])
    assert differs(net, x, "int8") == [True, False]
    assert differs(net, x, "float16") == [False, False]


def test_what_both_hold_exactly_never_differs() -> None:
    net = linear([[1.0, -0.5], [0.5, 1.0]], [0.25, 0.0])
    x = torch.randint(0, 17, (200, 2), generator=torch.Generator().manual_seed(0)) / 16
    for dtype in PRECISIONS[:2]:
        assert not any(differs(net, x, dtype)), dtype
        assert torch.equal(rounded(target(net), dtype)(x), net(x).detach())


class Functional(nn.Module):
    """No layer at all: (x + 4096) - 4096 keeps a quarter in float32, and nothing in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        level = ((x.mean(1) + 4096) - 4096) - 0.2
        return torch.stack([-level, level], 1)


def test_every_operation_is_rounded_not_only_layers() -> None:
    x = torch.full((2, 2), 0.25)
    assert differs(Functional(), x, "float16") == [True, True]
    assert differs(Functional(), x, "int8") == [False, False]


class Huge(nn.Module):
    """Scores that pass through 100 000, which float16 does not have."""

    def forward(self, x: Tensor) -> Tensor:
        level = (x * 1e5).sum(1) / 1e5 - 0.5
        return torch.stack([-level, level], 1)


def test_overflow_differs_where_the_net_itself_is_finite() -> None:
    x = torch.tensor([[1.0, 0.0], [0.1, 0.1]])
    assert differs(Huge(), x, "float16") == [True, False]
    assert differs(Huge(), x, "bfloat16") == [False, False]


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.where(x[:, 0] > 0.9, torch.nan, x[:, 0]), x[:, 1]], 1)


def test_an_answer_that_is_no_number_is_for_the_other_oracle() -> None:
    x = torch.tensor([[1.0, 0.5], [0.0, 0.5]])
    assert differs(Broken(), x, "float16") == [False, False]
    bench = Bench(target(Broken()))
    nonfinite = bind("oracle", "nonfinite", {})
    assert nonfinite(bench, Cases.of(x)).tolist() == [True, False]
    told = Cases.of(x).note(logits=torch.tensor([[0.0, torch.inf], [9.0, -9.0]]))
    assert nonfinite(bench, told).tolist() == [True, False]
    assert nonfinite(bench, told[:0]).shape == (0,)


class InPlace(nn.Module):
    """Works on views and in place; every number is exact in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        h = x * 1
        h[:, 0].mul_(2)
        h += h.mean(1, keepdim=True).expand_as(h)
        first, second = h.unbind(1)
        return torch.stack([first.relu_(), torch.max(h, dim=1).values - second.detach()], 1)


def test_views_and_work_in_place_mean_what_they_meant() -> None:
    assert torch.equal(rounded(target(InPlace()), "float16")(X), InPlace()(X))


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(8 * 2 * 2, 3),
    )
    norm = net[1]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.running_mean = torch.randn(8) / 4
    norm.running_var = torch.rand(8) + 0.5
    return net


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_net_is_left_alone(dtype: str) -> None:
    net = conv_net().train()
    before, was = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    x = torch.rand(20, 1, 8, 8)
    there = target(net, (1, 8, 8), 3)
    full = there(x).detach()
    lower = rounded(there, dtype)(x)
    assert not torch.equal(lower, full)
    assert (lower - full).abs().max() < 0.05
    assert torch.equal(lower, rounded(there, dtype)(x)), "evaluation mode: dropout is off in the copy"
    assert [m.training for m in net.modules()] == was
    assert all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(there(x), full)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_is_what_kernels_in_that_precision_give(dtype: str) -> None:
    """But for the sums inside a layer, whose order and width are the kernels' own."""
    net = conv_net()
    there = folded(target(net, (1, 8, 8), 3), torch.rand(8, 1, 8, 8))
    assert isinstance(there, ModuleTarget)
    x = torch.rand(50, 1, 8, 8)
    half = getattr(torch, dtype)
    native = copy.deepcopy(there.module).eval().to(half)
    with torch.no_grad():
        want, full = native(x.to(half)).float(), there(x)
    ours = rounded(target(net, (1, 8, 8), 3), dtype)(x)
    assert (ours - want).abs().mean() < 0.35 * (full - want).abs().mean()


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("behind", [False, True])
def test_a_net_and_its_folded_twin_get_the_same_copy(dtype: str, behind: bool) -> None:
    net: nn.Module = conv_net()
    there = target(Normalised(net, (0.1,), (0.3,)) if behind else net, (1, 8, 8), 3)
    twin = folded(there, torch.rand(8, 1, 8, 8))
    assert twin is not there
    x = torch.rand(30, 1, 8, 8)
    assert torch.equal(rounded(there, dtype)(x), rounded(twin, dtype)(x))


def test_eight_bits_have_255_steps_for_each_output_of_convolutions_both_ways() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ConvTranspose2d(4, 3, 3), nn.Flatten(), nn.Linear(3 * 25, 2))
    lower = rounded(target(net, (2, 5, 5)), "int8")
    there = lower.net  # type: ignore[attr-defined]
    for place, axis in ((0, 0), (1, 1), (3, 0)):
        was, now = net.get_parameter(f"{place}.weight").detach(), there.get_parameter(f"{place}.weight")
        for i in range(was.shape[axis]):
            one, other = was.select(axis, i), now.select(axis, i)
            step = one.abs().max() / 127
            assert torch.allclose(other / step, (other / step).round(), atol=1e-3)
            assert (one - other).abs().max() <= step / 2 * 1.001
        assert torch.equal(net.get_parameter(f"{place}.bias"), there.get_parameter(f"{place}.bias"))
    zero = nn.Linear(2, 2)
    nn.init.zeros_(zero.weight)
    assert rounded(target(zero), "int8")(X).isfinite().all()


def test_the_copy_is_made_once() -> None:
    bench = Bench(target(linear([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])))
    oracle = bind("oracle", "quantised", {})
    oracle(bench, Cases.of(X))
    (first,) = bench.kept.values()
    assert oracle(bench, Cases.of(X[:0])).shape == (0,)
    (second,) = bench.kept.values()
    assert first is second


class Far:
    """A target that only answers."""

    spec, gives, device = InputSpec((2,), (0.0, 1.0), ("a", "b")), frozenset({"label"}), torch.device("cpu")

    def __call__(self, x: Tensor) -> Tensor:
        return x


def test_what_cannot_be_had_is_refused() -> None:
    with pytest.raises(UsageError, match=r"float61.*float16"):
        rounded(target(nn.Linear(2, 2)), "float61")
    with pytest.raises(UsageError, match="needs the net itself"):
        rounded(Far(), "float16")  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_gpu_gives_nearly_the_same_answers(dtype: str) -> None:
    x = torch.rand(50, 1, 8, 8)
    here = rounded(target(conv_net(), (1, 8, 8), 3), dtype)(x)
    there = rounded(target(conv_net().cuda(), (1, 8, 8), 3), dtype)(x.cuda())
    assert torch.allclose(there.cpu(), here, atol=0.01)
