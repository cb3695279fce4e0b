"""A borrowed module comes back exactly as it was."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.modes import eval_mode


class Net(nn.Module):
    """Everything a user's net may do: normalisation, dropout, a counter it writes, a buffer it replaces."""

    calls: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.head = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1), persistent=False)
        self.register_buffer("unused", None)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x.detach().mean().reshape(1)
        out: Tensor = self.head(self.body(x))
        return out


def mixed() -> Net:
    """Some parts in training mode, some not; some weights frozen, some with a gradient."""
    torch.manual_seed(0)
    net = Net().train()
    net.head.eval()
    net.body[1].eval()
    net.head.bias.requires_grad_(False)
    net.body[0].weight.grad = torch.full((4, 3), 0.25)
    net.body.register_forward_hook(lambda *_: None)
    net.register_forward_pre_hook(lambda *_: None)
    net.head.register_full_backward_hook(lambda *_: None)
    return net


def hooks(net: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [len(getattr(m, kind)) for m in net.modules() for kind in kinds]


def state(net: nn.Module) -> dict[str, Any]:
    """All that must not change, values as copies, objects by identity."""
    return {
        "training": [m.training for m in net.modules()],
        "weights": [(id(p), p.requires_grad, id(p.grad), p.detach().clone().tolist()) for p in net.parameters()],
        "grads": [None if p.grad is None else p.grad.clone().tolist() for p in net.parameters()],
        "buffers": [(name, id(b), b.clone().tolist()) for name, b in net.named_buffers()],
        "keys": [list(m._buffers) for m in net.modules()],
        "hooks": hooks(net),
    }


def test_inside_everything_is_in_evaluation_mode_without_weight_gradients() -> None:
    net = mixed()
    with eval_mode(net) as borrowed:
        assert borrowed is net
        assert not any(m.training for m in net.modules())
        assert not any(p.requires_grad for p in net.parameters())


def test_results_are_those_of_evaluation_mode() -> None:
    net, x = mixed(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    with eval_mode(net):
        borrowed = net(x)
    assert torch.equal(borrowed, net.eval()(x))


def test_gradients_reach_the_input_and_no_weight() -> None:
    net, x = mixed(), torch.ones(2, 3, requires_grad=True)
    with eval_mode(net):
        net(x).sum().backward()
    assert x.grad is not None
    assert net.head.weight.grad is None
    grad = dict(net.named_parameters())["body.0.weight"].grad
    assert grad is not None
    assert grad.tolist() == [[0.25] * 3] * 4


def test_the_module_comes_back_as_it_was() -> None:
    net = mixed()
    before = state(net)
    with eval_mode(net):
        net(torch.ones(2, 3))
        net(torch.ones(2, 3))
        assert net.calls.item() == 2.0
        assert net.last.item() == 1.0
    assert state(net) == before


def test_the_module_comes_back_as_it_was_after_an_error() -> None:
    net = mixed()
    before = state(net)
    with pytest.raises(RuntimeError, match="mat1 and mat2"), eval_mode(net):
        net(torch.ones(2, 7))  # counted, and then the first layer raises
    assert state(net) == before


def test_what_the_body_changes_is_put_back() -> None:
    net = mixed()
    before = state(net)
    with eval_mode(net):
        net.body[2].train()
        net.head.weight.requires_grad_(True)
        net(torch.ones(8, 3, requires_grad=True)).sum().backward()
        assert net.head.weight.grad is not None
        net.body[0].weight.grad = None
        net.head.bias.grad = torch.ones(2)
    assert state(net) == before


def test_borrowing_twice_nests() -> None:
    net = mixed()
    before = state(net)
    with eval_mode(net):
        inside = state(net)
        with eval_mode(net):
            net(torch.ones(1, 3))
        assert state(net) == inside
    assert state(net) == before


def test_shared_parts_are_handled_once() -> None:
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, nn.Dropout(), shared)
    net.train()
    shared.eval()
    before = state(net)
    with eval_mode(net):
        net(torch.ones(1, 2))
    assert state(net) == before


def test_buffers_made_in_inference_mode_are_restored() -> None:
    net = Net().eval()
    with torch.inference_mode():
        net.calls = torch.zeros(1)
    with torch.inference_mode(), eval_mode(net):
        net(torch.ones(1, 3))
        assert net.calls.item() == 1.0
    assert net.calls.item() == 0.0


def test_a_module_without_weights_can_be_borrowed() -> None:
    flatten = nn.Flatten().train()
    with eval_mode(flatten):
        assert not flatten.training
    assert flatten.training


def test_statistics_that_batch_normalisation_writes_are_put_back() -> None:
    net = mixed()
    before = state(net)
    with eval_mode(net):
        net.body[1].train()
        net(torch.randn(8, 3, generator=torch.Generator().manual_seed(2)))
        assert state(net)["buffers"] != before["buffers"]
    assert state(net) == before


class Statistics(nn.Module):
    """Normalises by the batch at hand, whatever the mode."""

    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, self.mean, self.variance, training=True)


def test_statistics_written_by_the_function_are_put_back() -> None:
    net = Statistics().eval()
    with eval_mode(net):
        net(torch.randn(8, 3, generator=torch.Generator().manual_seed(2)))
        assert net.mean.abs().max().item() > 0
    assert (net.mean.tolist(), net.variance.tolist()) == ([0.0] * 3, [1.0] * 3)


class Lazy(nn.Module):
    """Fills a buffer that was None and adds one, both in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("empty", None)

    def forward(self, x: Tensor) -> Tensor:
        self.empty = x.detach().sum()
        self.register_buffer("added", x.detach())
        return x


def test_buffers_filled_or_added_in_forward_are_gone() -> None:
    net = Lazy()
    with eval_mode(net):
        net(torch.ones(2))
        assert set(dict(net.named_buffers())) == {"empty", "added"}
    assert net._buffers == {"empty": None}
