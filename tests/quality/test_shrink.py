"""Does shrinking find exactly what a model looks at?"""

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.images import to_bytes, to_float
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


@pytest.mark.parametrize("by", ["blocks,pixels", "pixels", "blocks(side=7),blocks(side=2),pixels"])
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


class OnePixel(nn.Module):
    """Class 1 where one pixel is above a threshold, else 0."""

    threshold, place = 0.3777, 402

    def forward(self, x: Tensor) -> Tensor:
        above = x.flatten(1)[:, self.place] - self.threshold
        return torch.stack([-above, above], 1)


@pytest.mark.parametrize("on_levels", [True, False], ids=["8-bit seeds", "seeds between levels"])
def test_one_pixel_is_left_just_above_the_threshold_on_a_level_of_8_bits(on_levels: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    seeds = 0.3 * torch.rand(CASES, 1, SIDE, SIDE, generator=rng)
    seeds = to_float(to_bytes(seeds)) if on_levels else seeds
    x = 0.5 + 0.5 * torch.rand(CASES, 1, SIDE, SIDE, generator=rng)
    spec = InputSpec((1, SIDE, SIDE), (0.0, 1.0), ("no", "yes"))
    target = ModuleTarget(OnePixel(), spec, torch.device("cpu"))
    made = shrunk(Bench(target), Cases.of(x, torch.zeros(CASES, dtype=torch.int64)).note(seed_x=seeds))
    least = to_float(torch.tensor(97, dtype=torch.uint8))  # 96 / 255 is 0.3765
    expected = seeds.clone()
    expected.flatten(1)[:, OnePixel.place] = least
    assert torch.equal(made.x, expected)
    for column in ("failing", "minimal", "eight_bit"):
        assert bool(made.info[column].all()), column
    assert made.info["changed"].tolist() == [1] * CASES
    assert made.info["linf"].allclose((least - seeds).flatten(1)[:, OnePixel.place]), "told against the seed itself"
    with torch.no_grad():  # as a picture of it is read
        assert bool((target(to_float(to_bytes(made.x))).argmax(1) == 1).all())
