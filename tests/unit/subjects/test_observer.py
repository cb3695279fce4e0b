"""One pass that gives answers and neurons."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.subjects.observer import Observer
from assay.subjects.sources.module import ModuleTarget, Normalised

SPEC = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))
X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def lenet(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net: nn.Module = bind("model", "lenet5", {}, {"shape": SPEC.shape, "classes": 3})()
    return net


def resnet() -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = bind("model", "resnet20", {}, {"shape": SPEC.shape, "classes": 3})()
    return net


def normalised() -> nn.Module:
    return Normalised(lenet(), (0.3,), (0.2,))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.embed(x[:, 0]).mean(1))
        return out


NETS = (lenet, resnet, normalised, Tokens)


@pytest.mark.parametrize("make", NETS)
def test_answers_are_those_of_the_bare_net_after_one_pass(make: Callable[[], nn.Module]) -> None:
    net = make()
    target = ModuleTarget(net, SPEC)
    observer = Observer.of([target], "auto", ends=True)
    calls: list[int] = []
    handles = [
        m.register_forward_hook(lambda *_, n=name: calls.append(n)) for name, m in enumerate(net.modules())
    ]  # the net's own hooks stay its own
    bare = target(X)
    once = sorted(calls)
    calls.clear()
    seen = observer(X)
    assert sorted(calls) == once, "as many calls of every module as a bare pass"
    assert torch.equal(seen.logits, bare)
    assert seen.neurons.shape == (5, observer.neurons)
    assert seen.others.shape == (5, 0, 3)
    for handle in handles:
        handle.remove()
    assert not any(m._forward_hooks for m in net.modules()), "nothing is left behind"


def test_neurons_are_means_over_space_and_ends_of_the_whole_output() -> None:
    net = lenet().eval()
    observer = Observer.of([ModuleTarget(net, SPEC)], "auto", ends=True)
    with torch.no_grad():
        seen = observer(X)
        at, outputs = X, {}
        for name, module in net.named_children():
            at = module(at)
            outputs[name] = at
        outputs |= {"logits": at, "softmax": at.softmax(1)}
    for i, (layer, s) in enumerate(zip(observer.each, observer.slices, strict=True)):
        out = outputs[layer.name]
        expected = out.flatten(2).mean(2) if out.dim() == 4 else out
        assert torch.allclose(seen.neurons[:, s], expected, atol=1e-6), layer
        assert torch.equal(seen.low[:, i], out.flatten(1).amin(1))
        assert torch.equal(seen.high[:, i], out.flatten(1).amax(1))


def test_of_three_axes_the_mean_is_over_the_middle_one() -> None:
    net = Tokens()
    seen = Observer.of([ModuleTarget(net, SPEC)], "embed")(X)
    assert torch.allclose(seen.neurons, net.embed(X[:, 0]).mean(1), atol=1e-6)


def test_of_four_axes_the_mean_is_over_those_between_where_channels_are_last() -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.act, self.out = nn.Linear(1, 6), nn.GELU(), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.act(self.embed(x.permute(0, 2, 3, 1))).mean((1, 2)))
            return out

    net = Patches()
    observer = Observer.of([ModuleTarget(net, SPEC)], "act", ends=True)
    seen, whole = observer(X), net.act(net.embed(X.permute(0, 2, 3, 1)))
    assert torch.allclose(seen.neurons, whole.flatten(1, 2).mean(1), atol=1e-6)
    assert torch.equal(seen.high[:, 0], whole.flatten(1).amax(1))


class InPlace(nn.Module):
    """Joins as torchvision's nets do: the sum and its activation are written over the output of the norm."""

    def __init__(self, dims: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        flat = dims == 0
        self.first = nn.Linear(64, 4) if flat else nn.Conv2d(1, 4, 3, padding=1)
        self.second = nn.Linear(4, 4) if flat else nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4) if flat else nn.BatchNorm2d(4)
        self.relu, self.join, self.out = nn.ReLU(inplace=True), nn.ReLU(inplace=True), nn.Linear(4, 3)
        self.flat = flat

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The values of the three hidden layers, without writing over any."""
        before = self.first(x.flatten(1) if self.flat else x).relu()
        norm = self.norm(self.second(before))
        return before, norm, (norm + before).relu()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x.flatten(1) if self.flat else x))
        out = self.norm(self.second(x))
        out += x
        out = self.join(out)
        answer: Tensor = self.out(out if self.flat else out.mean((2, 3)))
        return answer


@pytest.mark.parametrize("dims", [0, 2])
def test_what_is_written_over_later_is_seen_as_it_was(dims: int) -> None:
    net = InPlace(dims).eval()
    target = ModuleTarget(net, SPEC)
    with torch.no_grad():
        seen, parts = Observer.of([target], "relu, norm, join", ends=True)(X), net.parts(X)
        linear = Observer.of([target], "first")(X).neurons
    expected = [part.flatten(2).mean(2) if part.dim() == 4 else part for part in parts]
    assert torch.allclose(seen.neurons, torch.cat(expected, 1), atol=1e-6)
    assert torch.allclose(seen.low, torch.stack([part.flatten(1).amin(1) for part in parts], 1), atol=1e-6)
    assert bool((seen.neurons[:, 4:8] < 0).any()), "the norm before its sum was written over it"
    assert bool((linear < 0).any()), "the layer before its activation was"
    with torch.enable_grad():
        x = X.clone().requires_grad_()
        Observer.of([target], "auto")(x).neurons.sum().backward()
    assert x.grad is not None


def test_a_module_called_twice_gives_both_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.a, self.b = nn.ReLU(), nn.Linear(64, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(self.act(self.act(self.a(x.flatten(1))) - 0.1))
            return out

    net = Twice()
    seen = Observer.of([ModuleTarget(net, SPEC)], "act")(X)
    first = net.act(net.a(X.flatten(1)))
    assert torch.equal(seen.neurons, torch.cat((first, net.act(first - 0.1)), 1))
    assert not torch.equal(seen.neurons[:, :4], seen.neurons[:, 4:])


def test_gradients_flow_from_neurons_and_answers_to_the_input() -> None:
    observer = Observer.of([ModuleTarget(lenet(), SPEC)], "auto")
    x = X.clone().requires_grad_()
    seen = observer(x)
    logit = observer.slices[-2].start  # the first logit is a neuron as well
    conv, one, other = (
        torch.autograd.grad(value.sum(), x, retain_graph=True)[0]
        for value in (seen.neurons[:, 3], seen.neurons[:, logit], seen.logits[:, 0])
    )
    assert bool(conv.abs().sum() > 0)
    assert bool(one.abs().sum() > 0)
    assert torch.equal(one, other)
    assert not seen.detach().neurons.requires_grad


def test_several_nets_lie_one_after_the_other() -> None:
    nets = [ModuleTarget(lenet(seed), SPEC) for seed in range(3)]
    observer = Observer.of(nets, "conv*,logits", ends=True)
    seen = observer(X)
    apart = [Observer.of([net], "conv*,logits", ends=True)(X) for net in nets]
    assert torch.equal(seen.logits, nets[0](X))
    assert torch.equal(seen.others, torch.stack([net(X) for net in nets[1:]], 1))
    for column in ("neurons", "low", "high"):
        assert torch.equal(getattr(seen, column), torch.cat([getattr(one, column) for one in apart], 1))
    assert observer.neurons == 3 * 25
    assert [(s.start, s.stop) for s in observer.slices][3:5] == [(25, 31), (31, 47)]
    assert observer.text() == "conv*,logits: 75 neurons in 9 layers of 3 nets"
    mixed = Observer.of([nets[0], ModuleTarget(resnet(), SPEC), nets[1]], "auto")
    assert mixed.text() == "auto: 508 neurons in 16 layers of 2 nets; auto: 1190 neurons in 33 layers"
    assert mixed.neurons == 508 + 1190


def test_chunks_give_the_same_rows_without_gradients() -> None:
    observer = Observer.of([ModuleTarget(lenet(), SPEC)], "auto", ends=True)
    whole, parts = observer(X), observer.all(X, Chunks(2))
    for column in ("logits", "neurons", "low", "high"):
        assert torch.allclose(getattr(whole, column), getattr(parts, column), atol=1e-6)
    assert not parts.neurons.requires_grad
    assert len(observer.all(X[:0], Chunks(2))) == 0
    assert torch.equal(parts[1:3].low, parts.low[1:3])


def test_without_ends_there_are_no_columns_of_them() -> None:
    seen = Observer.of([ModuleTarget(lenet(), SPEC)], "auto")(X)
    assert seen.low.shape == seen.high.shape == (5, 0)


def test_half_precision_is_seen_in_single() -> None:
    net = lenet().to(torch.bfloat16)
    seen = Observer.of([ModuleTarget(net, SPEC)], "auto", ends=True)(X)
    assert {seen.logits.dtype, seen.neurons.dtype, seen.low.dtype} == {torch.float32}


def test_a_layer_that_is_not_always_run_is_refused_when_it_is_missed() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(64, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.skip = False

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x.flatten(1))
            out: Tensor = self.out(x if self.skip else self.b(x))
            return out

    net = Sometimes()
    observer = Observer.of([ModuleTarget(net, SPEC)], "auto")
    net.skip = True
    with pytest.raises(UsageError, match="did not run its layer b"):
        observer(X)
