"""A target in a hurry: answers in bfloat16 or by a compiled net, gradients as they are."""

import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.precision import full_precision, half_precision, halved
from assay.subjects.hurried import Hurried, hurried
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1, 8, 8), (0.0, 1.0), tuple("abc"))
CPU = torch.device("cpu")


@pytest.fixture
def target() -> ModuleTarget:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    found = ModuleTarget(net, SPEC)
    found.answers = 3
    return found


@pytest.fixture
def x() -> Tensor:
    return torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_answers_are_short_and_gradients_are_not(target: ModuleTarget, x: Tensor) -> None:
    fast = Hurried(target, amp=True, compiled=False, rows=16)
    with fast.ready(), torch.no_grad():
        short, whole = fast(x), target(x)
    assert short.dtype == torch.float32
    assert torch.equal(short, short.bfloat16().float()), "numbers that bfloat16 has"
    assert not torch.equal(short, whole)
    torch.testing.assert_close(short, whole, atol=0.02, rtol=0.02)
    with fast.ready():
        slopes = [torch.autograd.grad(net(at := x.clone().requires_grad_()).sum(), at)[0] for net in (fast, target)]
    assert torch.equal(*slopes)


def test_the_net_itself_is_left_alone(target: ModuleTarget, x: Tensor) -> None:
    before, strides = target.fingerprint(), [p.stride() for p in target.module.parameters()]
    Hurried(target, amp=True, compiled=False, rows=16)(x)
    assert target.fingerprint() == before
    assert [p.stride() for p in target.module.parameters()] == strides
    assert Hurried(target, amp=True, compiled=False, rows=16).fingerprint() == before


def test_a_compiled_net_sees_few_sizes_and_answers_the_same(
    target: ModuleTarget, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def compiled(net: Callable[[Tensor], Tensor], **settings: object) -> object:
        def asked(some: Tensor) -> Tensor:
            seen.append(len(some))
            return net(some)

        return asked

    monkeypatch.setattr(torch, "compile", compiled)
    fast = Hurried(target, amp=False, compiled=True, rows=32)
    with fast.ready():
        for n in (1, 2, 3, 8, 9, 10):
            at = x[:n].clone().requires_grad_()
            torch.testing.assert_close(fast(at), target(at))
            (slope,) = torch.autograd.grad(fast(at).square().sum(), at)
            (right,) = torch.autograd.grad(target(at).square().sum(), at)
            torch.testing.assert_close(slope, right)
    assert set(seen) == {2, 8, 32}


def test_a_net_really_compiled(target: ModuleTarget, x: Tensor) -> None:
    fast = Hurried(target, amp=False, compiled=True, rows=16, backend="aot_eager")
    with fast.ready():
        at = x.clone().requires_grad_()
        torch.testing.assert_close(fast(at), target(at))
        (slope,) = torch.autograd.grad(fast(at).sum(), at)
        (right,) = torch.autograd.grad(target(at).sum(), at)
    torch.testing.assert_close(slope, right)


def test_a_search_by_gradients_is_told_whole_numbers(target: ModuleTarget, x: Tensor) -> None:
    fast = Hurried(target, amp=True, compiled=False, rows=16)
    whole = fast.for_gradients()
    with fast.ready(), torch.no_grad():
        assert torch.allclose(whole(x), target(x), atol=1e-6)
        assert not torch.allclose(fast(x), target(x), atol=1e-6)
    assert whole._fast is fast._fast, "one copy of the net"


def test_batch_normalisation_is_folded_and_the_rest_is_not_copied(x: Tensor) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    net(x)
    made = hurried(ModuleTarget(net.eval(), SPEC), amp=False, compiled=False, rows=8)
    assert isinstance(made, Hurried)
    assert made.folds
    assert not made.replays
    with made.ready():
        at = x.clone().requires_grad_()
        torch.testing.assert_close(made(at), net(at))
        (slope,) = torch.autograd.grad(made(at).square().sum(), at)
        (right,) = torch.autograd.grad(net(at).square().sum(), at)
        torch.testing.assert_close(slope, right)


def test_a_net_is_taken_as_it_is_where_somebody_else_folds(x: Tensor) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).eval()
    target = ModuleTarget(net, SPEC)
    assert hurried(target, amp=False, compiled=False, rows=8, fold=False) is target
    short = hurried(target, amp=True, compiled=False, rows=8, fold=False)
    assert isinstance(short, Hurried)
    assert not short.folds


def test_a_net_that_can_neither_be_folded_nor_copied_stays_itself() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.end = nn.BatchNorm1d(64), nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.end(self.norm(x.flatten(1)))
            return out

        def __deepcopy__(self, memo: object) -> "Kept":
            raise RuntimeError("there is only one of me")

    target = ModuleTarget(Kept().eval(), SPEC)
    assert hurried(target, amp=False, compiled=False, rows=8) is target


class Jealous:
    def __deepcopy__(self, memo: object) -> "Jealous":
        raise pickle.PicklingError("there is only one lock")


@pytest.mark.parametrize("held", [threading.Lock(), Jealous()])
def test_a_net_with_convolutions_that_cannot_be_copied_stays_itself(held: object) -> None:
    net = two_convolutions()
    net.held = held  # type: ignore[assignment]
    target = ModuleTarget(net, SPEC)
    assert hurried(target, amp=False, compiled=False, rows=8) is target
    with pytest.raises((TypeError, pickle.PicklingError), match="lock"):
        hurried(target, amp=True, compiled=False, rows=8)


def test_nothing_asked_is_nothing_done_without_convolutions() -> None:
    target = ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), SPEC)
    assert hurried(target, amp=False, compiled=False, rows=8) is target


def two_convolutions() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 3)).eval()


def test_convolutions_of_a_cpu_are_searched_with_channels_last(x: Tensor) -> None:
    net = two_convolutions()
    target = ModuleTarget(net, SPEC)
    made = hurried(target, amp=False, compiled=False, rows=8)
    assert isinstance(made, Hurried)
    assert not made._fast.module.get_parameter("1.weight").is_contiguous()
    assert net.get_parameter("1.weight").is_contiguous(), "the net itself is left alone"
    with made.ready():
        at = x.clone().requires_grad_()
        torch.testing.assert_close(made(at), target(at))
        (slope,) = torch.autograd.grad(made(at).square().sum(), at)
        (right,) = torch.autograd.grad(target(at).square().sum(), at)
        torch.testing.assert_close(slope, right)
    assert hurried(target, amp=False, compiled=False, rows=8, fold=False) is target


def test_folded_convolutions_of_a_cpu_have_channels_last_too(x: Tensor) -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), *list(two_convolutions())[1:]).eval()
    made = hurried(ModuleTarget(net, SPEC), amp=False, compiled=False, rows=8)
    assert isinstance(made, Hurried)
    assert made.folds
    assert any(not weight.is_contiguous() for weight in made._fast.module.parameters())
    with made.ready():
        torch.testing.assert_close(made(x), net(x))


class OwnWay(nn.Sequential):
    """A net whose way forward somebody wrote, who may speak of numbers as if they lay in the usual order."""

    def forward(self, x: Tensor) -> Tensor:
        seen = self[1](self[0](x))
        out: Tensor = self[3](seen.view(len(x) * 4, 16).view(len(x), 64))
        return out


def hooked() -> nn.Sequential:
    """A net with a hook that speaks so."""
    net = two_convolutions()
    net[0].register_forward_hook(lambda _, __, out: out.view(len(out), -1).view_as(out))
    return net


def patched() -> nn.Sequential:
    """A net whose way forward somebody put in its place."""
    net = two_convolutions()
    net.forward = OwnWay(*net).forward  # type: ignore[method-assign]
    return net


@pytest.mark.parametrize("net", [OwnWay(*two_convolutions()), hooked()], ids=["own way", "hook"])
def test_in_bfloat16_too_a_way_that_somebody_wrote_keeps_its_order(net: nn.Module, x: Tensor) -> None:
    target = ModuleTarget(net.eval(), SPEC)
    fast = Hurried(target, amp=True, compiled=False, rows=16)
    assert all(weight.is_contiguous() for weight in fast._fast.module.parameters())
    with fast.ready(), torch.no_grad():
        torch.testing.assert_close(fast(x), target(x), atol=0.02, rtol=0.02)


def test_in_bfloat16_layers_that_are_known_are_laid_otherwise_by_groups_too(x: Tensor) -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 3)).eval()
    fast = Hurried(target := ModuleTarget(net, SPEC), amp=True, compiled=False, rows=16)
    assert not fast._fast.module.get_parameter("1.weight").is_contiguous()
    with fast.ready(), torch.no_grad():
        torch.testing.assert_close(fast(x), target(x), atol=0.02, rtol=0.02)


def test_the_order_goes_along_to_another_process_and_to_gradients(x: Tensor) -> None:
    made = hurried(ModuleTarget(two_convolutions(), SPEC), amp=False, compiled=False, rows=8)
    assert isinstance(made, Hurried)
    for other in (pickle.loads(pickle.dumps(made)), made.for_gradients()):
        assert other.orders
        assert not other._fast.module.get_parameter("1.weight").is_contiguous()
        torch.testing.assert_close(other(x), made(x))


def with_a_buffer_of_five_axes() -> nn.Sequential:
    net = two_convolutions()
    net.register_buffer("table", torch.zeros(1, 1, 1, 1, 3))
    return net


@pytest.mark.parametrize(
    "net",
    [
        with_a_buffer_of_five_axes(),
        hooked(),
        patched(),
        two_convolutions().double(),
        OwnWay(*two_convolutions()),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 3)),
        nn.Sequential(
            *two_convolutions(), nn.Sequential(nn.Unflatten(1, (1, 1, 1, 3)), nn.Conv3d(1, 1, 1), nn.Flatten())
        ),
    ],
    ids=["buffer", "hook", "patched", "double", "own way", "groups", "three axes"],
)
def test_a_net_that_may_not_be_laid_otherwise_is_searched_itself(net: nn.Module) -> None:
    target = ModuleTarget(net.eval(), SPEC)
    assert hurried(target, amp=False, compiled=False, rows=8) is target


def test_precision_is_as_asked_and_given_back() -> None:
    tf32 = torch.backends.cudnn.allow_tf32
    assert not halved(CPU)
    with half_precision(CPU):
        assert halved(CPU)
        with full_precision():
            assert not halved(CPU)
            assert not torch.backends.cudnn.allow_tf32
        assert halved(CPU)
    assert not halved(CPU)
    assert torch.backends.cudnn.allow_tf32 == tf32
    with half_precision(CPU, asked=False):
        assert not halved(CPU)
