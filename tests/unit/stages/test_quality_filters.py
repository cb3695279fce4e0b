"""Quality filters: levels by hand, similarities of images that need no computer, distances to seed and start."""

import math

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.registry import bind, lookup
from assay.stages.filters.levels import FIXED, LEVELS, level
from assay.stages.filters.quality import KINDS
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

C1 = 0.01**2  # of structural similarity, for a range of 1


def bench(shape: tuple[int, ...] = (1, 5, 5), bounds: tuple[float, float] = (0.0, 1.0), chunk: int = 512) -> Bench:
    net = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 2))
    return Bench(ModuleTarget(net, InputSpec(shape, bounds, ("a", "b"))), chunks=Chunks(chunk))


def flat(*values: float, shape: tuple[int, ...] = (1, 5, 5)) -> Tensor:
    """Images of one value each; in float32 the variance of such an image is 1e-7, and its similarity off by 1e-4."""
    return torch.tensor(values, dtype=torch.float64).view(-1, *(1 for _ in shape)).expand(-1, *shape).clone()


def made_from(seed: Tensor, x: Tensor) -> Cases:
    return Cases.of(x).note(seed_x=seed)


def verdict(name: str, ground: Bench, some: Cases, **params: object) -> list[bool]:
    told: list[bool] = bind("filter", name, params)(ground, some).tolist()
    return told


def similarity(a: float, b: float) -> float:
    """Of two images without structure: only their means differ."""
    return (2 * a * b + C1) / (a * a + b * b + C1)


# Levels.


@pytest.mark.parametrize(
    ("n", "keep", "kept"),
    [(10, 0.6, 6), (5, 0.6, 3), (7, 0.6, 4), (4, 0.6, 2), (3, 0.6, 2), (2, 0.6, 1), (1, 0.6, 1), (101, 0.6, 61)]
    + [(n, 1.0, n) for n in (1, 2, 7)]
    + [(7, 0.01, 1), (100, 0.55, 55)],
)
@pytest.mark.parametrize("low", [False, True])
def test_a_level_keeps_the_nearest_whole_number_of_values(n: int, keep: float, kept: int, low: bool) -> None:
    values = torch.randperm(n, generator=torch.Generator().manual_seed(n)).float()
    found = level(bench(), "some", values, keep=keep, low=low)
    best = sorted(values.tolist(), reverse=not low)[:kept]
    assert found == best[-1]
    assert int((values <= found if low else values >= found).sum()) == kept


def test_ties_are_kept() -> None:
    values = torch.tensor([0.5, 0.5, 0.5, 0.9, 0.1])
    assert int((values >= level(bench(), "some", values, keep=0.4)).sum()) == 4
    assert int((values <= level(bench(), "some", values, keep=0.4, low=True)).sum()) == 4


def test_a_level_is_fixed_once_and_under_its_name() -> None:
    ground = bench()
    assert math.isnan(level(ground, "some", torch.zeros(0), keep=0.5))
    assert math.isnan(level(ground, "some", torch.tensor([float("nan"), float("inf")]), keep=0.5))
    assert ground.kept["levels"] == {}, "nothing fixes nothing"
    first = level(ground, "some", torch.tensor([0.25, float("nan"), 0.75]), keep=0.5)
    assert first == 0.75, "what is no number is no seed to keep"
    assert level(ground, "some", torch.zeros(9), keep=1.0) == 0.75
    assert level(ground, "other", torch.ones(9), keep=1.0) == 1.0
    assert ground.kept["levels"] == {"some": 0.75, "other": 1.0}
    again = bench()
    again.kept["levels"] = {"some": 0.125}  # as a run that goes on finds it
    assert level(again, "some", torch.ones(3), keep=0.5) == 0.125


def test_once_the_seeds_are_chosen_no_level_is_fixed_any_more() -> None:
    ground = bench()
    ground.kept.update({LEVELS: {"ssim": 0.9}, FIXED: True})
    some = made_from(flat(0.5, 0.5), flat(0.6, 0.9))
    assert verdict("quality", ground, some) == [True, False]
    assert verdict("close", ground, some, most=0.3) == [True, False]
    with pytest.raises(UsageError, match="close knows its level from the seeds, and no step of theirs asked for it"):
        verdict("close", ground, some)
    with pytest.raises(UsageError, match="ssim: keep is a share of the seeds and belongs to them"):
        verdict("quality", ground, some, keep=0.99)


def test_a_level_that_is_given_to_the_seeds_holds_for_the_cases_too() -> None:
    ground = bench()
    some = made_from(flat(0.5, 0.5), flat(0.6, 0.9))
    assert verdict("quality", ground, some, least=0.9) == [True, False]
    assert ground.kept[LEVELS] == {"ssim": 0.9}
    ground.kept[FIXED] = True
    assert verdict("quality", ground, some) == [True, False]
    assert verdict("quality", ground, some, least=0.5) == [True, True]
    assert ground.kept[LEVELS] == {"ssim": 0.9}, "what cases are asked is not the seeds' level"


@pytest.mark.parametrize("name", ["ssim", "tenengrad", "close", "quality"])
@pytest.mark.parametrize("keep", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(name: str, keep: float) -> None:
    some = made_from(flat(0.5), flat(0.5))
    with pytest.raises(UsageError, match="keep is the share of the seeds to keep, above 0 and at most 1"):
        lookup("filter", name)[1](bench(), some, keep=keep)


# Structural similarity.


def test_similarity_of_flat_images_by_hand() -> None:
    """0.5 against 0.5, 0.6, 0.9, 0.1, 0: 1, 0.984, 0.849, 0.385, 0.0004."""
    x = flat(0.5, 0.6, 0.9, 0.1, 0.0)
    some = made_from(flat(*[0.5] * 5), x)
    values = [similarity(0.5, b) for b in (0.5, 0.6, 0.9, 0.1, 0.0)]
    assert values == pytest.approx([1.0, 0.98361, 0.84908, 0.38485, 0.00040], abs=1e-5)
    for i, value in enumerate(values):
        above = [other > value + 2e-6 for other in values]
        assert verdict("ssim", bench(), some, least=value + 1e-6) == above
        assert verdict("ssim", bench(), some, least=value - 1e-6) == [a or i == j for j, a in enumerate(above)]


def test_similarity_keeps_the_best_share_and_remembers_where_that_was() -> None:
    ground = bench(chunk=2)
    some = made_from(flat(*[0.5] * 5), flat(0.9, 0.5, 0.0, 0.6, 0.1))
    assert verdict("ssim", ground, some) == [True, True, False, True, False]
    assert ground.kept["levels"] == {"ssim": pytest.approx(similarity(0.5, 0.9), abs=1e-6)}
    later = made_from(flat(*[0.5] * 3), flat(0.1, 0.88, 0.92))
    assert verdict("ssim", ground, later) == [False, True, False]
    assert verdict("quality", ground, later) == [False, True, False], "it shares the level"
    assert verdict("ssim", bench(), some, keep=1.0) == [True] * 5
    assert verdict("ssim", bench(), some, keep=0.2) == [False, True, False, False, False]


def test_similarity_is_that_of_the_unit_range() -> None:
    """Twice as wide and shifted: the same images."""
    x, seed = flat(0.6, 0.1), flat(0.5, 0.5)
    wide = made_from(seed * 4 - 1, x * 4 - 1)
    for least, told in ((0.98, [True, False]), (0.384, [True, True]), (0.386, [True, False]), (0.985, [False, False])):
        assert verdict("ssim", bench(bounds=(-1.0, 3.0)), wide, least=least) == told
        assert verdict("ssim", bench(), made_from(seed, x), least=least) == told


@pytest.mark.parametrize("shape", [(3, 6, 7), (1, 2, 2), (1, 1, 9), (1, 28, 28)])
def test_similarity_of_colour_and_of_images_below_the_window(shape: tuple[int, ...]) -> None:
    seed, x = flat(0.5, 0.5, shape=shape), flat(0.5, 0.9, shape=shape)
    assert verdict("ssim", bench(shape), made_from(seed, x), least=0.9) == [True, False]
    if shape[0] == 3:
        x[1] = seed[1]
        x[1, 0] = 0.9  # one channel of three: (2 + 0.84908) / 3 = 0.94969
        assert verdict("ssim", bench(shape), made_from(seed, x), least=0.9496) == [True, True]
        assert verdict("ssim", bench(shape), made_from(seed, x), least=0.9498) == [True, False]


def test_a_case_without_a_seed_is_its_own_and_one_that_is_no_image_is_refused() -> None:
    assert verdict("ssim", bench(), Cases.of(flat(0.5, 0.9)), least=0.9999) == [True, True]
    broken = made_from(flat(0.5, 0.5), flat(0.5, float("nan")))
    assert verdict("ssim", bench(), broken, keep=1.0) == [True, False]
    vectors = Cases.of(torch.rand(2, 4))
    for name in ("ssim", "tenengrad"):
        with pytest.raises(UsageError, match=f"{name} needs images, and this target takes vectors; use .* close"):
            bind("filter", name, {})(bench((4,)), vectors)


@pytest.mark.parametrize("name", ["ssim", "close", "quality", "tenengrad"])
def test_no_cases_fix_no_level(name: str) -> None:
    ground = bench()
    none = made_from(flat(), flat())
    params: dict[str, object] = {"most": None} if name == "tenengrad" else {}
    assert bind("filter", name, params)(ground, none).dtype == torch.bool
    assert verdict(name, ground, none, **params) == []
    assert not ground.kept.get("levels")


# Gradient energy.


def edge(height: int, width: int, channels: int = 1) -> Tensor:
    """Black left, white right of the middle: 4 at the two columns that meet, 8 a row."""
    image = torch.zeros(1, channels, height, width)
    image[..., width // 2 :] = 1.0
    return image


def dot() -> Tensor:
    """One white pixel: 2 above, below and at each side, the root of 2 at each corner."""
    image = torch.zeros(1, 1, 5, 5)
    image[..., 2, 2] = 1.0
    return image


def test_gradient_energy_by_hand() -> None:
    spot = 8 + 4 * math.sqrt(2)
    some = Cases.of(torch.cat([flat(0.7).float(), dot(), edge(5, 5), dot() / 2]))
    values = [0.0, spot, 40.0, spot / 2]
    for value in values[1:]:
        expected = [other < value - 1e-4 for other in values]
        assert verdict("tenengrad", bench(), some, most=value - 1e-4) == expected
        assert verdict("tenengrad", bench(), some, most=value + 1e-4) == [other < value + 1e-4 for other in values]
    assert verdict("tenengrad", bench(), some, most=40.0) == [True, True, False, True], "below, not at"
    assert verdict("tenengrad", bench(), some) == [True] * 4


def test_gradient_energy_keeps_the_smoothest_share() -> None:
    some = Cases.of(torch.cat([edge(5, 5), dot(), flat(0.7).float(), dot() / 2, edge(5, 5)]))
    ground = bench()
    assert verdict("tenengrad", ground, some, most=None) == [False, True, True, True, False]
    assert ground.kept["levels"] == {"tenengrad": pytest.approx(8 + 4 * math.sqrt(2))}
    assert verdict("tenengrad", ground, Cases.of(edge(5, 5) * 0.3), most=None) == [True]
    assert verdict("tenengrad", ground, Cases.of(edge(5, 5) * 0.4), most=None) == [False]
    assert verdict("tenengrad", bench(), some, most=None, keep=0.8) == [True] * 5, "of two alike both"


def test_gradient_energy_of_colour_and_another_range() -> None:
    """Red alone has luma 0.299; in bounds from -1 to 3 an edge from -1 to 3 is one from 0 to 1."""
    red = torch.zeros(1, 3, 4, 6)
    red[:, :1] = edge(4, 6)
    assert verdict("tenengrad", bench((3, 4, 6)), Cases.of(red), most=0.299 * 32 + 1e-3) == [True]
    assert verdict("tenengrad", bench((3, 4, 6)), Cases.of(red), most=0.299 * 32 - 1e-3) == [False]
    wide = Cases.of(edge(4, 6) * 4 - 1)
    assert verdict("tenengrad", bench((1, 4, 6), (-1.0, 3.0)), wide, most=32.001) == [True]
    assert verdict("tenengrad", bench((1, 4, 6), (-1.0, 3.0)), wide, most=31.999) == [False]


# Distance.


def lines(*rows: tuple[float, float]) -> Tensor:
    return torch.tensor(rows)


def test_close_by_hand() -> None:
    seed = lines((3.0, 4.0), (3.0, 4.0), (3.0, 4.0), (0.0, 0.0), (0.0, 0.0))
    x = lines((3.0, 4.0), (3.0, 5.0), (6.0, 8.0), (0.0, 0.0), (0.0, 1e-3))
    some, ground = made_from(seed, x), bench((2,), (0.0, 10.0))
    for most, told in ((0.2, [True, True]), (0.1999, [True, False])):
        assert verdict("close", bench((2,), (0.0, 10.0)), some, most=most) == [*told, False, True, False]
    assert verdict("close", bench((2,), (0.0, 10.0)), some, most=1.0) == [True, True, True, True, False]
    shifted = made_from(seed * 2 - 10, x * 2 - 10)
    assert verdict("close", bench((2,), (-10.0, 10.0)), shifted, most=0.21) == [True, True, False, True, False]
    assert verdict("close", ground, some[:3], keep=0.6) == [True, True, False]
    assert ground.kept["levels"] == {"close": pytest.approx(0.2)}
    assert verdict("close", ground, some) == [True, True, False, True, False]
    assert verdict("close", bench((2,)), Cases.of(x), most=0.0) == [True] * 5, "their own seeds"
    assert verdict("close", bench((2,)), made_from(seed[:1], lines((float("nan"), 4.0))), keep=1.0) == [False]


def test_quality_is_chosen_by_the_kind_of_input() -> None:
    assert set(KINDS) == {"image", "vector"}
    images, vectors = bench(), bench((2,), (0.0, 10.0))
    assert verdict("quality", images, made_from(flat(*[0.5] * 5), flat(0.9, 0.5, 0.0, 0.6, 0.1))) == [
        True, True, False, True, False,
    ]  # fmt: skip
    assert list(images.kept["levels"]) == ["ssim"]
    far = made_from(lines(*[(3.0, 4.0)] * 3), lines((3.0, 4.0), (6.0, 8.0), (3.0, 5.0)))
    assert verdict("quality", vectors, far) == [True, False, True]
    assert vectors.kept["levels"] == {"close": pytest.approx(0.2)}
    assert verdict("quality", bench(), made_from(flat(0.5, 0.5), flat(0.6, 0.9)), least=0.9) == [True, False]
    with pytest.raises(UsageError, match=r"use close\(most=…\)"):
        verdict("quality", vectors, far, least=0.9)


# Of seed and of start.


def test_distances_are_of_the_seed_or_of_the_start() -> None:
    seed, start = torch.tensor([[0.6, 0.8]]), torch.tensor([[0.0, 2.0]])  # of length 1 and 2
    x = torch.tensor([[0.0, 1.4]])
    ground = bench((2,), (0.0, 3.0))
    some = made_from(seed, x).note(before_x=seed, fol=torch.ones(1), best_fol=torch.zeros(1))
    both = some.note(start_x=start)
    # The root of 0.72 from the seed, 0.849 of its length; 0.6 from the start, 0.3 of its length.
    for name, key in (("within", "relative"), ("rises", "within")):
        assert verdict(name, ground, both, **{key: 0.8}) == [False]
        assert verdict(name, ground, both, **{key: 0.86}) == [True]
        assert verdict(name, ground, both, of="start", **{key: 0.29}) == [False]
        assert verdict(name, ground, both, of="start", **{key: 0.31}) == [True]
        assert verdict(name, ground, some, of="start", **{key: 0.8}) == [False], "without a start it is the seed"
        with pytest.raises(UsageError, match="one of seed, start; got 'parent'"):
            verdict(name, ground, both, of="parent")
    assert verdict("within", ground, both, relative=None, eps=0.61) == [True]
    assert verdict("within", ground, both, relative=None, eps=0.6 - 1e-3, of="start") == [False]
    assert verdict("within", ground, both, relative=None, eps=0.6, of="start") == [True]
    # A step of 0.849 is more than 0.8 of the seed's length and less than 0.8 of the start's.
    assert verdict("rises", ground, both, moved=0.8) == [True]
    assert verdict("rises", ground, both, moved=0.8, of="start") == [False]
