"""Controls: as long as what another mutator does, in another direction."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.losses import cross_entropy
from assay.core.norms import size
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.mutators.as_long import moved
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

SHAPE = (1, 6, 6)


def bench(bounds: tuple[float, float] = (0.0, 1.0)) -> Bench:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, 3))
    return Bench(ModuleTarget(net, InputSpec(SHAPE, bounds, ("a", "b", "c"))))


def cases(n: int = 40) -> Cases:
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(n, *SHAPE, generator=rng)
    x[x < 0.4] = 0.0  # a background from which half of all directions lead nowhere
    return Cases.of(x, torch.randint(3, (n,), generator=rng))


def test_moved_by_hand() -> None:
    x = torch.tensor([[0.5, 0.5], [0.5, 0.9], [0.5, 0.9], [0.0, 0.0], [0.5, 0.5]])
    way = torch.tensor([[3.0, 4.0], [1.0, 1.0], [1.0, 1.0], [-1.0, 1.0], [0.0, 0.0]])
    far = torch.tensor([0.25, 0.1, 9.0, 0.3, 0.3])
    wanted = torch.tensor(
        [
            [0.65, 0.7],  # nothing is clipped: 0.25 · (3, 4) / 5
            [0.5 + 0.1 / 2**0.5, 0.9 + 0.1 / 2**0.5],  # likewise
            [1.0, 1.0],  # farther than there is room
            [0.0, 0.3],  # the first entry has no room, the second goes the whole way
            [0.5, 0.5],  # no direction
        ]
    )
    assert torch.allclose(moved(x, way, far, (0.0, 1.0)), wanted, atol=1e-6)
    clipped = moved(x[1:2], way[1:2], torch.tensor([0.2]), (0.0, 1.0))
    assert torch.allclose(clipped, torch.tensor([[0.5 + (0.2**2 - 0.1**2) ** 0.5, 1.0]]), atol=1e-6)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-2.0, 3.0)])
def test_moved_against_a_search(bounds: tuple[float, float]) -> None:
    """The same factor as halving finds: the length after clipping grows with it."""
    some, rng = cases(), torch.Generator().manual_seed(2)
    x = some.x * (bounds[1] - bounds[0]) + bounds[0]
    way = torch.randn(x.shape, generator=rng)
    far = torch.rand(len(x), generator=rng) * 0.4 * (bounds[1] - bounds[0]) * 6
    low, high = torch.zeros(len(x)), torch.full((len(x),), 1e3)
    for _ in range(80):
        middle = (low + high) / 2
        long = size((x + middle.view(-1, 1, 1, 1) * way).clamp(*bounds) - x, "l2") > far
        low, high = torch.where(long, low, middle), torch.where(long, middle, high)
    slow = (x + low.view(-1, 1, 1, 1) * way).clamp(*bounds)
    assert torch.allclose(moved(x, way, far, bounds), slow, atol=1e-3 * (bounds[1] - bounds[0]))


INNER = "jitter(sigma=0.5)"


@pytest.mark.parametrize("name", ["noise_as", "fgsm_as"])
def test_controls_are_as_long_as_the_other(name: str) -> None:
    here, some = bench(), cases()
    rng = Stream(3).rows(some.origin)
    far = size(bind("mutator", "jitter", {"sigma": 0.5})(here, some, rng=rng.at(0)) - some.x, "l2")
    made = bind("mutator", name, {"of": INNER})(here, some, rng=rng)
    assert torch.allclose(size(made - some.x, "l2"), far, rtol=1e-4)
    assert made.min() >= 0
    assert made.max() <= 1


def test_noise_has_no_direction_of_its_own() -> None:
    here, some = bench(), cases(200)
    made = bind("mutator", "noise_as", {"of": INNER})(here, some, rng=Stream(3).rows(some.origin))
    again = bind("mutator", "noise_as", {"of": INNER})(here, some, rng=Stream(4).rows(some.origin))
    moves = [(x - some.x)[some.x > 0.4] for x in (made, again)]  # where neither side is near
    assert abs(float(torch.corrcoef(torch.stack(moves))[0, 1])) < 0.1


def test_fgsm_goes_along_the_sign_of_the_gradient() -> None:
    here, some = bench(), cases()
    x = some.x.clone().requires_grad_()
    slope = torch.autograd.grad(cross_entropy(here.target(x), some.y).sum(), x)[0]
    made = bind("mutator", "fgsm_as", {"of": INNER})(here, some, rng=Stream(3).rows(some.origin))
    move = made - some.x
    assert ((move == 0) | (move.sign() == slope.sign())).all()
    for row in move:  # one size, but for entries that have met the end of the range
        sizes = row[row != 0].abs()
        assert (sizes > 0.99 * sizes.max()).float().mean() > 0.3
    before, after = (cross_entropy(here.target(z), some.y).sum() for z in (some.x, made))
    assert after > before


def test_controls_of_a_generator(tmp_path: Path) -> None:
    """The length is that of the candidate asked for."""
    from assay.core.cases import InputSpec
    from assay.stages.aeg import Making, trained
    from assay.stages.trainers.watch import Unwatched
    from assay.subjects.bench import Data

    x = torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    spec = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))
    given = Data("made/train", Cases.of(x, torch.arange(30) % 3), spec)
    aeg = trained(given, Making(images=16, epochs=2, width=4, snapshots=2), torch.device("cpu"), Unwatched())
    aeg.save(tmp_path / "aeg.safetensors")
    here = Bench(ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), spec))
    for number in (0, 3):
        numbers = torch.full((30,), number)
        made = aeg.made(x, numbers)
        text = f"cyclegan(aeg={tmp_path / 'aeg.safetensors'})"
        for name in ("noise_as", "fgsm_as"):
            some = given.cases.note(candidate=numbers)
            other: Tensor = bind("mutator", name, {"of": text})(here, some, rng=Stream(0).rows(some.origin))
            assert torch.allclose(size(other - x, "l2"), size(made - x, "l2"), rtol=1e-4)
            assert not torch.allclose(other, made, atol=0.05)


def test_what_cannot_be_is_refused() -> None:
    here, some = bench(), cases()
    rng = Stream(0).rows(some.origin)
    with pytest.raises(UsageError, match="unknown mutator 'cyclegun'; did you mean 'cyclegan'"):
        bind("mutator", "noise_as", {"of": "cyclegun"})(here, some, rng=rng)
    with pytest.raises(UsageError, match="needs eps"):
        bind("mutator", "noise_as", {"of": "attacked"})(here, some, rng=rng)
    with pytest.raises(UsageError, match="sides of 8 pixels or more, and inputs are 1×6×6"):
        bind("mutator", "noise_as", {})(here, some, rng=rng)
