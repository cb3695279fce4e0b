"""Random numbers that depend on seed, path and row, and on nothing else."""

import hashlib
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from assay.core.randomness import Rows, Stream, generator


def draw(*path: int | str, seed: int = 1) -> list[float]:
    values: list[float] = torch.rand(4, generator=generator(seed, *path)).tolist()
    return values


def rows(n: int, *path: int | str) -> Rows:
    return Stream(3, path).rows(torch.arange(n))


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def test_a_generator_depends_on_seed_and_path_only() -> None:
    torch.manual_seed(0)
    first = draw("shuffle", 3)
    torch.manual_seed(1)
    torch.rand(10)
    assert draw("shuffle", 3) == first


def test_a_generator_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    draw("shuffle", 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_part_of_the_path_matters() -> None:
    drawn = [draw(), draw(1), draw("1"), draw(1, 1), draw("1", 1), draw(1, "1"), draw("11"), draw(11), draw(1, seed=2)]
    assert len({tuple(d) for d in drawn}) == len(drawn)


def test_a_stream_is_its_seed_and_path() -> None:
    stream = Stream(1).at("a").at(2, "b")
    assert stream == Stream(1, ("a", 2, "b"))
    assert torch.rand(4, generator=stream.generator()).tolist() == draw("a", 2, "b")


def test_a_rows_numbers_do_not_depend_on_batch_or_position() -> None:
    stream = Stream(5, ("fuzz",))
    whole = stream.rows(torch.arange(10)).uniform((3, 2))
    alone = stream.rows(torch.tensor([7])).uniform((3, 2))
    moved = stream.rows(torch.tensor([7, 2, 100])).uniform((3, 2))
    assert torch.equal(alone[0], whole[7])
    assert torch.equal(moved[:2], whole[[7, 2]])


def test_rows_of_rows_keep_their_numbers() -> None:
    some = rows(10)
    mask = torch.arange(10) % 3 == 0
    assert torch.equal(some[mask].normal((4,)), some.normal((4,))[mask])
    assert torch.equal(some[2:5].integers((4,), 9), some.integers((4,), 9)[2:5])


def test_a_wider_draw_starts_with_the_narrow_one() -> None:
    assert torch.equal(rows(4).uniform((9,))[:, :5], rows(4).uniform((5,)))


def test_ids_of_several_columns_name_rows() -> None:
    ids = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1]])
    keys = Stream(1).rows(ids).key
    assert len(set(keys.tolist())) == 4
    assert torch.equal(Stream(1).rows(ids[2:3]).key, keys[2:3])


def test_an_id_may_be_any_integer() -> None:
    ids = torch.tensor([-1, 0, 2**62, -(2**63), 2**63 - 1])
    assert len(set(Stream(1).rows(ids).key.tolist())) == 5


def test_labels_never_meet() -> None:
    key = rows(1)
    keys = {key.at(label).key.item() for label in range(-8, 4000)}
    assert len(keys) == 4008
    assert key.key.item() not in keys


def test_the_order_of_labels_matters() -> None:
    assert not torch.equal(rows(1).at(1).at(2).key, rows(1).at(2).at(1).key)


def test_seed_and_path_change_the_rows() -> None:
    ids = torch.arange(3)
    drawn = [Stream(s, p).rows(ids).key.tolist() for s, p in ((1, ()), (2, ()), (1, ("a",)), (1, (0,)), (1, ("0",)))]
    assert len({tuple(d) for d in drawn}) == 5


def test_uniform_has_the_range_mean_and_variance_of_the_unit_interval() -> None:
    u = rows(500).uniform((400,)).double()
    assert u.shape == (500, 400)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    # 200 000 numbers: four standard errors are 0.0026 for the mean and 0.0007 for the variance.
    assert u.mean().item() == pytest.approx(1 / 2, abs=0.0026)
    assert u.var().item() == pytest.approx(1 / 12, abs=0.0007)


@pytest.mark.parametrize("bins", [2, 16, 1000])
def test_the_histogram_of_uniform_is_flat(bins: int) -> None:
    counts = torch.histc(rows(500, bins).uniform((400,)).double(), bins, 0.0, 1.0)
    assert 0.001 < float(stats.chisquare(counts.numpy()).pvalue) < 0.999


def test_every_row_and_every_place_is_flat_by_itself() -> None:
    u = rows(2000).uniform((40,)).double()
    first_bits = (u >= 0.5).double()
    assert (first_bits.mean(0) - 0.5).abs().max().item() < 0.5 * 4.5 / 2000**0.5
    assert (first_bits.mean(1) - 0.5).abs().max().item() < 0.5 * 5.0 / 40**0.5


def test_uniform_is_scaled_to_its_interval() -> None:
    u = rows(50).uniform((40,))
    assert torch.allclose(rows(50).uniform((40,), -2.0, 4.0), u * 6.0 - 2.0)


def test_neighbouring_rows_places_and_labels_are_uncorrelated() -> None:
    u = rows(400).uniform((400,)).double()
    limit = 4.0 / 400  # four standard errors of a correlation of 160 000 pairs
    assert abs(correlation(u[:-1], u[1:])) < limit
    assert abs(correlation(u[:, :-1], u[:, 1:])) < limit
    assert abs(correlation(u[:-1, 1:], u[1:, :-1])) < limit
    assert abs(correlation(rows(400).at(0).uniform((400,)), rows(400).at(1).uniform((400,)))) < limit
    assert abs(correlation(u, Stream(4).rows(torch.arange(400)).uniform((400,)))) < limit


def test_no_number_is_shared_by_many_rows() -> None:
    u = rows(1000).uniform((20,))
    # 20 000 of 2^24 values: about 12 pairs meet by chance.
    assert u.unique().numel() > 20_000 - 40


def test_normal_has_the_moments_of_the_normal_distribution() -> None:
    z = rows(500).normal((400,)).double()
    assert bool(z.isfinite().all())
    assert z.mean().item() == pytest.approx(0.0, abs=0.009)
    assert z.var().item() == pytest.approx(1.0, abs=0.013)
    assert (z**3).mean().item() == pytest.approx(0.0, abs=0.035)
    assert (z**4).mean().item() == pytest.approx(3.0, abs=0.09)
    assert float(stats.kstest(z.flatten()[:20_000].numpy(), "norm").pvalue) > 0.001


def test_normal_is_uncorrelated_between_rows_and_places() -> None:
    z = rows(400).normal((400,)).double()
    assert abs(correlation(z[:-1], z[1:])) < 0.01
    assert abs(correlation(z[:, :-1], z[:, 1:])) < 0.01


@pytest.mark.parametrize("high", [1, 2, 7, 256])
def test_integers_reach_all_of_their_range_evenly(high: int) -> None:
    drawn = rows(300).integers((200,), high)
    assert drawn.dtype == torch.int64
    counts = torch.bincount(drawn.flatten(), minlength=high)
    assert len(counts) == high
    assert high == 1 or float(stats.chisquare(counts.numpy()).pvalue) > 0.001


def test_no_rows_and_no_places() -> None:
    assert rows(0).uniform((3,)).shape == (0, 3)
    assert rows(0).normal((2, 2)).shape == (0, 2, 2)
    assert rows(2).uniform((0,)).shape == (2, 0)
    assert rows(2).uniform(()).shape == (2,)
    assert len(rows(0)) == 0


def mixed(z: int) -> int:
    """The finaliser of splitmix64 on Python's unbounded integers."""
    z = (z + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def scrambled(h: int) -> int:
    h = (h ^ h >> 16) * 0x21F0AAAD % 2**32
    h = (h ^ h >> 15) * 0x735A2D97 % 2**32
    return h ^ h >> 15


def unit(key: int, place: int) -> float:
    bits = scrambled(scrambled((place * 0x9E3779B9 + key) % 2**32) ^ key >> 32)
    return (bits >> 8) / 2**24


def test_the_numbers_themselves_are_a_promise() -> None:
    """A stored run is redone from its seed: another hash would change what old runs mean."""
    start = int.from_bytes(hashlib.sha256(repr((3, ("str", "pgd"), ("int", "7"))).encode()).digest()[:8], "little")
    ours = Stream(3, ("pgd", 7)).rows(torch.tensor([0, 5, -1]))
    for row, number in enumerate((0, 5, -1)):
        key = mixed(start ^ mixed(number % 2**64))
        assert int(ours.key[row]) % 2**64 == key
        assert ours.uniform((6,))[row].tolist() == [unit(key, place) for place in range(6)]
        below = mixed((key + 0x9E3779B97F4A7C15 * 3) % 2**64)
        assert int(ours.at(2).key[row]) % 2**64 == below


def test_normal_is_the_transform_of_two_uniform_draws() -> None:
    some = rows(5)
    u, v = some.at(-2).uniform((4,)).double(), some.at(-3).uniform((4,)).double()
    right = (-2 * torch.log1p(-u)).sqrt() * torch.cos(2 * math.pi * v)
    assert torch.allclose(some.normal((4,)).double(), right, atol=1e-5)


def test_wide_integers_reach_every_bit() -> None:
    drawn = rows(20).integers((100,), 2**30)
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < 2**30
    for bit in range(30):
        assert 0.4 < ((drawn >> bit) & 1).double().mean().item() < 0.6


def test_pieces_of_a_path_cannot_be_mistaken_for_others() -> None:
    paths: list[tuple[int | str, ...]] = [
        (),
        ("",),
        ("", ""),
        ("a", "b"),
        ("a/b",),
        ("ab",),
        ("a', 'b",),
        ("a'), ('str', 'b",),
        (1,),
        ("1",),
        (1, 2),
        (12,),
        ("1", 2),
        ("(1, 2)",),
    ]
    assert len({generator(0, *path).initial_seed() for path in paths}) == len(paths)
    assert len({int(Stream(0, path).rows(torch.zeros(1)).key[0]) for path in paths}) == len(paths)
