"""Whom the search inside a training asks: a net that follows the one that learns."""

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.stages.trainers.inner import Inner

SPEC = InputSpec((3, 6, 6), (0.0, 1.0), ("a", "b"))


def net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))


def inputs() -> Tensor:
    return torch.rand(16, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def test_it_is_the_net_as_it_is_now_in_evaluation_mode() -> None:
    learning, inner, x = net(), Inner(SPEC), inputs()
    optimiser = torch.optim.SGD(learning.parameters(), 0.001)
    for _ in range(5):
        learning(x).square().sum().backward()
        optimiser.step()
        asked = inner.of(learning, x)
        with torch.no_grad():
            right = learning.eval()(x)
        learning.train()
        torch.testing.assert_close(asked(x), right)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in asked.module.modules())
    assert all(weight.requires_grad for weight in learning.parameters())


def test_a_fold_gone_wrong_is_found_out() -> None:
    """The convolution of a shared weight: folded into one place, it would change the other."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.norm, self.two, self.end = (
                nn.Conv2d(3, 3, 1, bias=False),
                nn.BatchNorm2d(3),
                nn.Conv2d(3, 3, 1, bias=False),
                nn.Linear(108, 2),
            )
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.end((self.norm(self.one(x)) + self.two(x)).flatten(1))
            return out

    learning, inner, x = Tied(), Inner(SPEC), inputs()
    inner.of(learning, x)  # a new net: statistics of 0 and 1 hide it
    learning(x)
    for _ in range(3):
        asked = inner.of(learning, x)
    with torch.no_grad():
        torch.testing.assert_close(asked(x), learning.eval()(x))


def test_another_net_is_another_target() -> None:
    inner, x = Inner(SPEC), inputs()
    first, second = net(), net()
    with torch.no_grad():
        second[4].weight.mul_(2)  # type: ignore[operator]  # a Linear
    inner.of(first, x)
    torch.testing.assert_close(inner.of(second, x)(x), second.eval()(x).detach())
