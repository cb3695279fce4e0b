"""Does shrinking find exactly what a model looks at?"""

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.engines.shrunk import shrunk
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

SIDE, CASES = 28, 256
LOOKED_AT = (37, 402, 700)


class ThreePixels(nn.Module):
    """Class 1 where each of three pixels is well above zero, else 0; nothing else matters to it."""

    def forward(self, x: Tensor) -> Tensor:
        least = x.flatten(1)[:, list(LOOKED_AT)].amin(1) - 0.3
        return torch.stack([-least, least], 1)


@pytest.mark.parametrize("by", ["auto", "pixels", "blocks(side=7),blocks(side=2),pixels"])
def test_every_case_keeps_exactly_the_three_pixels(by: str) -> None:
    rng = torch.Generator().manual_seed(0)
    seeds = 0.25 * torch.rand(CASES, 1, SIDE, SIDE, generator=rng)
    x = 0.5 + 0.5 * torch.rand(CASES, 1, SIDE, SIDE, generator=rng)
    # Each case is like its seed somewhere, but not at the three places.
    like = torch.rand(CASES, 1, SIDE, SIDE, generator=rng) < 0.3
    like.flatten(1)[:, list(LOOKED_AT)] = False
    x = torch.where(like, seeds, x)
    spec = InputSpec((1, SIDE, SIDE), (0.0, 1.0), ("no", "yes"))
    cases = Cases.of(x, torch.zeros(CASES, dtype=torch.int64)).note(seed_x=seeds)
    made = shrunk(Bench(ModuleTarget(ThreePixels(), spec, torch.device("cpu"))), cases, by=by)
    expected = seeds.clone()
    expected.flatten(1)[:, list(LOOKED_AT)] = x.flatten(1)[:, list(LOOKED_AT)]
    assert torch.equal(made.x, expected)
    assert bool(made.info["minimal"].all())
    assert made.info["changed"].tolist() == [3] * CASES
    assert made.info["questions"].double().mean() < 110, "a hundred questions, not as many as there are pixels"
