"""TensorFuzz's mutation."""

import pytest
import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget


def made(cases: Cases, bounds: tuple[float, float], **params: object) -> Tensor:
    spec = InputSpec((50,), bounds, ("a", "b"))
    stage = bind("mutator", "jitter", params)
    x: Tensor = stage(Bench(ModuleTarget(nn.Linear(50, 2), spec)), cases, rng=Stream(0).rows(cases.origin))
    return x


def middle(n: int, bounds: tuple[float, float]) -> Cases:
    x = torch.full((n, 50), sum(bounds) / 2)
    return Cases.of(x).note(seed_x=x)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0), (0.0, 255.0)])
def test_sigma_is_in_halves_of_the_range(bounds: tuple[float, float]) -> None:
    half = (bounds[1] - bounds[0]) / 2
    gap = (made(middle(400, bounds), bounds) - sum(bounds) / 2) / half
    assert float(gap.std()) == pytest.approx(0.2, rel=0.02)
    assert abs(float(gap.mean())) < 0.005
    assert float(made(middle(400, bounds), bounds, sigma=0.05).std()) == pytest.approx(0.05 * half, rel=0.02)


def test_nothing_leaves_the_bounds() -> None:
    x = made(middle(50, (-1.0, 1.0)), (-1.0, 1.0), sigma=5.0)
    assert x.min() == -1
    assert x.max() == 1


def test_noise_is_added_to_the_parent_and_its_sum_clipped_around_the_seed() -> None:
    seed = torch.zeros(80, 50)
    parent = Cases.of(seed + 0.25).note(seed_x=seed)
    free = made(parent, (-1.0, 1.0))
    assert abs(float(free.mean()) - 0.25) < 0.01
    near = made(parent, (-1.0, 1.0), eps=0.3)
    assert near.abs().max() <= 0.3 + 1e-6
    assert torch.allclose(near, free.clamp(-0.3, 0.3), atol=1e-6)
    length = norms.size(made(parent, (-1.0, 1.0), eps=1.0, norm="l2"), "l2")
    assert torch.allclose(length, torch.ones(80), atol=1e-5)


@pytest.mark.parametrize("sigma", [0.0, -0.1])
def test_a_sigma_that_means_nothing_is_refused(sigma: float) -> None:
    with pytest.raises(UsageError, match="sigma must be above 0"):
        made(middle(0, (0.0, 1.0)), (0.0, 1.0), sigma=sigma)
