"""Does it FIND? Models with a planted defect, and how many calls it may take."""

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.randomness import Stream
from assay.engines.fuzz import fuzz
from assay.stages.attacks.pgd import pgd
from assay.subjects.bench import Data
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1, 6, 6), (0.0, 1.0), ("dark", "light"))


class Planted(nn.Module):
    """Tells dark from light, but answers wrongly where pixel (2, 3) is bright and pixel (4, 1) is dark."""

    def forward(self, x: Tensor) -> Tensor:
        level = x.flatten(1).mean(1)
        trigger = torch.sigmoid(40 * (x[:, 0, 2, 3] - 0.62)) * torch.sigmoid(40 * (0.38 - x[:, 0, 4, 1]))
        score = (level - 0.5) * (1 - 2 * trigger)
        return torch.stack([-score, score], 1) * 20


def seeds(n: int = 64) -> Data:
    rng = torch.Generator().manual_seed(0)
    x = (0.5 + 0.03 * torch.randn(n, 1, 6, 6, generator=rng)).clamp(0, 1)
    x = x + 0.1 * torch.sign(x.flatten(1).mean(1) - 0.5)[:, None, None, None]
    return Data("planted", Cases.of(x, (x.flatten(1).mean(1) > 0.5).long()), SPEC)


def triggered(x: Tensor) -> Tensor:
    return (x[:, 0, 2, 3] > 0.55) & (x[:, 0, 4, 1] < 0.45)


def test_noise_finds_the_planted_trigger() -> None:
    found = fuzz("noise", Planted(), seeds(), run="a", eps=0.25, changes={"schedule.steps": 200})
    cases = found.load()
    assert found.failures >= 32, "half of the seeds, within 200 cases each"
    assert triggered(cases.x).float().mean() > 0.9, "and through the trigger, not around it"
    assert not triggered(seeds().cases.x).any()


def test_pgd_finds_it_within_its_steps() -> None:
    data = seeds()
    target = ModuleTarget(Planted(), SPEC)
    made = pgd(target, data.cases.x, data.cases.y, rng=Stream(0).rows(data.cases.origin), eps=0.25, restarts=3)
    assert (target(made).argmax(1) != data.cases.y).float().mean() > 0.9


def test_fol_fuzz_breaks_more_seeds_than_noise_with_fewer_cases() -> None:
    guided = fuzz("robot", Planted(), seeds(), run="a")
    control = fuzz("noise", Planted(), seeds(), run="b", eps=0.25, changes={"schedule.steps": 200})
    assert guided.broken > control.broken
    assert guided.cases < control.cases / 3
    assert guided.load().info["linf"].median() < 0.25, "and mostly nearer by"
