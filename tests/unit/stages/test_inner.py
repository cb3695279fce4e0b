"""Whom the search inside a training asks: a net that follows the one that learns."""

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.randomness import Stream
from assay.stages.trainers.inner import Inner

HERE = Stream(0)
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
        asked = inner.of(learning, x, HERE)
        with torch.no_grad():
            right = learning.eval()(x)
        learning.train()
        torch.testing.assert_close(asked(x), right)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in asked.module.modules())
    assert all(weight.requires_grad for weight in learning.parameters())


class Gaining(nn.Module):
    """Computes with a number that is no weight, and so a constant to who traces it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gain = net(), 1.0

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) * self.gain
        return out


def test_a_fold_gone_wrong_is_found_out() -> None:
    learning, inner, x = Gaining(), Inner(SPEC), inputs()
    for _ in range(3):
        inner.of(learning, x, HERE)
    learning.gain = 3.0
    asked = inner.of(learning, x, HERE)  # the fourth time
    with torch.no_grad():
        right = learning.eval()(x)
    torch.testing.assert_close(asked(x), right)
    torch.testing.assert_close(inner.of(learning, x, HERE)(x), right)


def test_every_epoch_looks_for_itself() -> None:
    """What an epoch does must not depend on those before it: a training that goes on would do otherwise."""
    learning, inner, x = Gaining(), Inner(SPEC), inputs()
    for _ in range(5):
        inner.of(learning, x, HERE)
    learning.gain = 3.0
    with torch.no_grad():
        right = learning.eval()(x)
    torch.testing.assert_close(inner.of(learning, x, HERE.at(1))(x), right)
    learning.gain = 1.0
    again = inner.of(learning, x, HERE.at(2))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in again.module.modules()), "trusted anew"


def test_another_net_is_another_target() -> None:
    inner, x = Inner(SPEC), inputs()
    first, second = net(), net()
    with torch.no_grad():
        second[4].weight.mul_(2)  # type: ignore[operator]  # a Linear
    inner.of(first, x, HERE)
    torch.testing.assert_close(inner.of(second, x, HERE)(x), second.eval()(x).detach())
