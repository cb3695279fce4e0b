"""Do DeepHunter and TensorFuzz FIND? Nets with a planted defect, and how many cases it may take."""

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.engines.fuzz import fuzz
from assay.subjects.bench import Data

SIDE = 16
BLOB = InputSpec((1, SIDE, SIDE), (0.0, 1.0), ("left", "right"))


class LowAndFaint(nn.Module):
    """Tells a blob on the left from one on the right, but wrongly where it is both low in the image and faint."""

    def __init__(self) -> None:
        super().__init__()
        place = torch.arange(SIDE) - (SIDE - 1) / 2
        self.flatten = nn.Flatten()
        self.measure = nn.Linear(SIDE * SIDE, 3, bias=False)  # how bright, how far right, how far down
        across, down = place.expand(SIDE, SIDE), place[:, None].expand(SIDE, SIDE)
        self.measure.weight.data = torch.stack([torch.ones_like(across), across, down]).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        mass, right, down = self.measure(self.flatten(x)).unbind(1)
        mass = mass.clamp_min(1e-3)
        low, faint = torch.sigmoid(20 * (down / mass - 1.2)), torch.sigmoid(20 * (3.9 - mass))
        score = right / mass * (1 - 2 * low * faint)
        return torch.stack([-score, score], 1) * 5


def blobs(n: int, *, wide: bool) -> Data:
    """Blobs in the middle height and of one brightness, or ``wide``: low ones and faint ones too, but none is both.

    The net is right about all of them.
    """
    rng = torch.Generator().manual_seed(int(wide))
    draw = torch.rand(n, 3, generator=rng)
    y = torch.arange(n) % 2
    across = 3.0 + 9 * y + draw[:, 0] - 0.5
    down = 7.5 + (draw[:, 1] - 0.5) * torch.where(torch.arange(n) % 4 < 2, 6.0 if wide else 0.5, 0.5)
    bright = 0.55 - 0.25 * draw[:, 2] * (torch.arange(n) % 4 >= 2) * wide
    place = torch.arange(float(SIDE))
    lines = [torch.exp(-((place - centre[:, None]) ** 2) / 3) for centre in (down, across)]
    x = bright[:, None, None, None] * (lines[0][:, :, None] * lines[1][:, None, :])[:, None]
    return Data("blobs", Cases.of(x, y), BLOB)


def test_deephunter_finds_what_takes_two_transforms_and_others_do_not() -> None:
    """5000 cases: a blob that is moved or turned down by an affine transform and made faint by another."""
    net, seeds, training = LowAndFaint(), blobs(64, wide=False), blobs(2000, wide=True)
    assert (net(training.cases.x).argmax(1) == training.cases.y).all()
    found = fuzz("deephunter", net, seeds, training=training, run="hunter", cases=5_000)
    assert found.failures >= 50
    failures = found.load()
    mass, _, down = net.measure(failures.x.flatten(1)).unbind(1)
    assert ((mass < 4.1) & (down / mass > 1.0)).float().mean() > 0.9, "through the defect, not around it"
    assert failures.info["line_affine"].all()

    once = fuzz(
        "deephunter",
        net,
        seeds,
        training=training,
        run="once",
        cases=5_000,
        changes={"schedule": "per_seed(steps=80)"},
    )
    assert once.failures < found.failures / 4, "without going on from what covered something"
    noise = fuzz("noise", net, seeds, run="noise", cases=5_000, eps=0.2, changes={"schedule.steps": 80})
    assert noise.failures < found.failures / 20


POINTS = InputSpec((1, 6, 6), (0.0, 1.0), ("small", "large"))
MOST = 22.0  # of the sum of all values; seeds lie about 18, and one step of noise changes it by about 0.6


class NotANumber(nn.Module):
    """Takes the logarithm of what is below 0 where the sum of all values is above 22."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.sum = nn.Flatten(), nn.Linear(36, 1, bias=False)
        nn.init.ones_(self.sum.weight)

    def forward(self, x: Tensor) -> Tensor:
        level = self.sum(self.flatten(x)).squeeze(1)
        score = 3 * (level - 18) + torch.log(MOST - level) * 0.01
        return torch.stack([-score, score], 1)


class Lossy(NotANumber):
    """A second class from a sum of 21 up, told by a difference that half precision does not have until it is 1."""

    def forward(self, x: Tensor) -> Tensor:
        level = self.sum(self.flatten(x)).squeeze(1)
        beyond = ((level - 21).relu() + 2048) - 2048
        return torch.stack([3 * (level - 18), 3 * (level - 18) + 100 * beyond - 1], 1)


def points(n: int = 64) -> Data:
    x = 0.5 + 0.02 * torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return Data("points", Cases.of(x, torch.zeros(n, dtype=torch.int64)), POINTS)


def test_tensorfuzz_walks_to_a_nan_that_noise_does_not_reach() -> None:
    """5000 cases; each step of a line has to lead a little further."""
    found = fuzz("tensorfuzz-nan", NotANumber(), points(), run="walk", cases=5_000)
    assert found.failures >= 5
    failures = found.load()
    assert (failures.info["kind"] == 1).all()
    assert (failures.x.flatten(1).sum(1) > MOST).all()
    changes = {"oracle": "nonfinite", "seeds": "all", "schedule.steps": 80}
    noise = fuzz("noise", NotANumber(), points(), run="noise", cases=5_000, eps=0.25, changes=changes)
    assert noise.failures == 0
    blind = fuzz("tensorfuzz-nan", NotANumber(), points(), run="blind", cases=5_000, changes={"keep.gains.least": 1e9})
    assert blind.failures == 0, "nor the same steps from seeds alone"


def test_tensorfuzz_finds_where_half_precision_answers_otherwise() -> None:
    found = fuzz("tensorfuzz", Lossy(), points(), run="walk", cases=5_000)
    assert found.failures >= 5
    level = found.load().x.flatten(1).sum(1)
    assert ((level > 20.9) & (level < 22.2)).all()
    changes = {"oracle": "quantised", "seeds": "all", "schedule.steps": 80}
    noise = fuzz("noise", Lossy(), points(), run="noise", cases=5_000, eps=0.25, changes=changes)
    assert noise.failures < found.failures / 4


class Exact(NotANumber):
    """Every number on the way is far from where rounding could matter."""

    def forward(self, x: Tensor) -> Tensor:
        level = self.sum(self.flatten(x)).squeeze(1)
        return torch.stack([level * 0, level * 0 + 8], 1)


def test_tensorfuzz_reports_nothing_where_nothing_differs() -> None:
    assert fuzz("tensorfuzz", Exact(), points(), run="none", cases=2_000).failures == 0
