"""Noise on weights: as much as training changed, where it changed something, and nowhere else."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from assay.core.randomness import Stream
from assay.stages.trainers.shaken import shaken

RNG = Stream(5, ("noise",))


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)).eval()


def changed() -> Any:
    """Half of the convolution, one bias and the statistics are others; the dense weights are the same."""
    other = copy.deepcopy(net())
    with torch.no_grad():
        other[0].weight[:2] += 0.1 * torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(1))
        other[3].bias[1] -= 2.0
        other[1].running_mean += 1.0
        other[1].num_batches_tracked += 7
    return other


def test_noise_is_as_long_as_the_change_and_only_where_it_was() -> None:
    before, after = net(), changed()
    made: Any = shaken(before, after, RNG)
    for name, weight in before.named_parameters():
        other, moved = after.get_parameter(name), made.get_parameter(name)
        assert torch.equal(moved != weight, other != weight), name
        lengths = [float((x.detach() - weight.detach()).double().norm()) for x in (moved, other)]
        assert lengths[0] == pytest.approx(lengths[1], rel=1e-5), name
    assert not torch.equal(made[0].weight[:2], after[0].weight[:2])
    size = float((made[3].bias - before[3].bias).detach()[1].abs())
    assert size == pytest.approx(2.0), "of one entry alone the size, with either sign"
    for name, buffer in before.named_buffers():
        assert torch.equal(made.get_buffer(name), buffer), name


def test_the_same_stream_gives_the_same_noise_and_touches_neither() -> None:
    before, after = net(), changed()
    made: Any = [shaken(before, after, rng) for rng in (RNG, RNG, RNG.at(1))]
    first, again, other = made
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first[0].weight, other[0].weight)
    assert torch.equal(before[0].weight, net()[0].weight)
    assert torch.equal(after[0].weight, changed()[0].weight)


def test_noise_is_gaussian_and_not_the_change_in_another_order() -> None:
    before, after = nn.Linear(200, 200), nn.Linear(200, 200)
    with torch.no_grad():
        after.weight.copy_(before.weight + 0.01)
        after.bias.copy_(before.bias)
    noise = (shaken(before, after, RNG).get_parameter("weight") - before.weight).detach() / 0.01
    assert abs(float(noise.mean())) < 0.02
    assert float(noise.std()) == pytest.approx(1.0, abs=0.02)
    assert float((noise.abs() < 1).double().mean()) == pytest.approx(0.683, abs=0.01)


def test_where_nothing_changed_nothing_is_shaken() -> None:
    before = net()
    made = shaken(before, net(), RNG)
    assert made is not before
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), before.parameters(), strict=True))
