"""Every criterion against a slow and obvious reference, in batches and one case at a time."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.registry import bind, names
from assay.core.specs import step
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import Bitmap
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.tknp import Patterns
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.module import ModuleTarget

NAN, INF = float("nan"), float("inf")
SPEC = InputSpec((5,), (0.0, 1.0), ("a", "b", "c"))
CELLS = [
    "nc",
    "nc(threshold=0)",
    "nc(threshold=0.25, scaled=false)",
    "kmnc(k=1)",
    "kmnc(k=7)",
    "kmnc",
    "nbc",
    "nbc(std=0.5)",
    "nbc(buckets=10)",
    "nbc(std=1, buckets=3)",
    "snac",
    "snac(std=0.5)",
    "snac(buckets=10)",
    "tknc(k=1)",
    "tknc(k=3)",
    "tknc(k=100)",
    "bknc(k=1)",
    "bknc(k=3)",
]
OTHERS = ["tknp(k=1)", "tknp(k=2)", "cc(distance=1.5)", "cc(distance=0)", "cc(distance=1, layers=logits)"]
EVERY = [*CELLS, *OTHERS, "nlc", "nlc(growing=true)"]


def observer() -> Observer:
    """Layers of 6, 4, 3 and 3 neurons."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    return Observer.of([ModuleTarget(net, SPEC)], "auto", ends=True)


LAYERS = [slice(0, 6), slice(6, 10), slice(10, 13), slice(13, 16)]
WIDTH = 16


def profile() -> Profile:
    """Ranges of every sort: neuron 2 has one value, neuron 5 is always 0, neuron 9 was infinite."""
    low = torch.linspace(-1, 0.5, WIDTH)
    high = low + torch.linspace(0.1, 2, WIDTH)
    high[2] = low[2]
    low[5] = high[5] = 0.0
    high[9] = INF
    std = (high - low) / 4
    return Profile(low, high, (low + high) / 2, std, 100)


def values(n: int, seed: int = 0) -> Tensor:
    """Values inside, outside and on the ends of ranges and sections, ties within layers, NaN and infinity."""
    rng = torch.Generator().manual_seed(seed)
    known = profile()
    made = torch.rand(n, WIDTH, generator=rng) * 4 - 2
    made[torch.rand(n, WIDTH, generator=rng) < 0.2] = 0.0
    for shifted in (known.low, known.high, known.low + (known.high - known.low) * 3 / 7, known.high + known.std / 2):
        at = torch.rand(n, WIDTH, generator=rng) < 0.08
        made = torch.where(at, shifted, made)
    for odd in (NAN, INF, -INF):
        made[torch.rand(n, WIDTH, generator=rng) < 0.02] = odd
    return made


def seen(neurons: Tensor) -> Seen:
    """As a net would give it: the ends of a layer lie beyond its channels' means, some layers are flat."""
    n = len(neurons)
    low = torch.stack([neurons[:, s].amin(1) for s in LAYERS], 1) - 0.5
    high = torch.stack([neurons[:, s].amax(1) for s in LAYERS], 1) + 0.5
    low[::5, 1] = high[::5, 1] = 0.3
    return Seen(torch.zeros(n, 3), torch.zeros(n, 0, 3), neurons, low, high)


def begun(text: str) -> Coverage:
    criterion: Criterion = bind("criterion", *step(text))()
    return criterion.begin(observer(), profile() if criterion.profiled else None)


# The references: which cells a case reaches, told by what the papers say and nothing else.
Cells = set[Hashable]


def nc_cells(given: Seen, row: int, threshold: float = 0.5, scaled: bool = True) -> Cells:
    found: Cells = set()
    for layer, s in enumerate(LAYERS):
        low, high = float(given.low[row, layer]), float(given.high[row, layer])
        for n in range(s.start, s.stop):
            value = float(given.neurons[row, n])
            if scaled:
                value = (value - low) / (high - low) if high > low else 0.0
            if value > threshold:
                found.add(n)
    return found


def kmnc_cells(given: Seen, row: int, k: int = 1000) -> Cells:
    low, high = (ends.numpy() for ends in (profile().low, profile().high))
    found: Cells = set()
    for n, value in enumerate(given.neurons[row].numpy()):
        if high[n] > low[n] and np.isfinite(high[n]) and low[n] <= value <= high[n]:
            found.add((n, min(int(np.floor((value - low[n]) / (high[n] - low[n]) * np.float32(k))), k - 1)))
    return found


def nbc_cells(given: Seen, row: int, std: float = 0.0, buckets: int = 0, both: bool = True) -> Cells:
    known = profile()
    found: Cells = set()
    for n, value in enumerate(given.neurons[row].numpy()):
        low, high, spread = (column[n].numpy() for column in (known.low, known.high, known.std))
        if not np.isfinite(high - low):
            continue
        width = (high - low) / np.float32(1000)
        more = np.float32(std) * spread if std else np.float32(0)
        for side, beyond in (("low", low - more - value), ("high", value - (high + more))):
            if beyond > 0 and (both or side == "high"):
                far = int(beyond / width) if width > 0 and beyond / width < buckets else buckets
                found.add((n, side, far if buckets else 0))
    return found


def snac_cells(given: Seen, row: int, std: float = 0.0, buckets: int = 0) -> Cells:
    return nbc_cells(given, row, std, buckets, both=False)


def tknc_cells(given: Seen, row: int, k: int = 2, sign: int = -1) -> Cells:
    found: Cells = set()
    for s in LAYERS:
        named = [(sign * float(given.neurons[row, n]), n) for n in range(s.start, s.stop)]
        ranked = sorted((INF if value != value else value, n) for value, n in named)
        found |= {n for _, n in ranked[:k] if not bool(given.neurons[row, n].isnan())}
    return found


def bknc_cells(given: Seen, row: int, k: int = 2) -> Cells:
    return tknc_cells(given, row, k, sign=1)


def tknp_cells(given: Seen, row: int, k: int = 2) -> Cells:
    return set() if bool(given.neurons[row].isnan().any()) else {frozenset(tknc_cells(given, row, k))}


REFERENCE: dict[str, Callable[..., Cells]] = {
    "nc": nc_cells,
    "kmnc": kmnc_cells,
    "nbc": nbc_cells,
    "snac": snac_cells,
    "tknc": tknc_cells,
    "bknc": bknc_cells,
    "tknp": tknp_cells,
}


def reference(text: str, given: Seen) -> list[Cells]:
    name, params = step(text)
    return [REFERENCE[name](given, row, **params) for row in range(len(given))]


def added_in_turn(rows: Iterable[Cells], already: Cells) -> list[int]:
    counts = []
    for cells in rows:
        counts.append(len(cells - already))
        already |= cells
    return counts


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # infinity less infinity, in the references
@pytest.mark.parametrize("text", [*CELLS, "tknp(k=1)", "tknp(k=3)"])
def test_cells_are_those_of_the_paper(text: str) -> None:
    coverage, covered = begun(text), set[Hashable]()
    for seed, n in enumerate((40, 1, 7, 0, 600)):
        given = seen(values(n, seed))
        cells = reference(text, given)
        assert coverage.active(given).tolist() == [len(reached) for reached in cells]
        assert coverage.gain(given).tolist() == [len(reached - covered) for reached in cells]
        assert coverage.add(given).tolist() == added_in_turn(cells, covered)
        assert coverage.covered() == len(covered)
    assert covered, "the values reach something"


TOTALS = {
    "nc": 16,
    "kmnc(k=7)": 7 * 13,  # less neurons 2 and 5 of one value, and 9 that has no end
    "nbc": 30,
    "nbc(buckets=10)": 22 * 13 + 2 * 2,  # outside one value there is no width
    "snac": 15,
    "snac(buckets=10)": 11 * 13 + 2,
    "tknc": 16,
    "bknc": 16,
    "tknp": 0,
    "nlc": 0,
    "cc": 0,
}


@pytest.mark.parametrize(("text", "total"), TOTALS.items())
def test_total_is_what_can_be_covered(text: str, total: int) -> None:
    coverage = begun(text)
    assert coverage.total == total
    assert coverage.covered() == 0


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("text", ["nc(threshold=0)", "kmnc(k=7)", "nbc(buckets=2)", "snac", "tknc(k=1)", "bknc"])
def test_layers_are_counted_apart(text: str) -> None:
    coverage, given = begun(text), seen(values(50))
    assert isinstance(coverage, Bitmap)
    coverage.add(given)
    reached = set().union(*reference(text, given))
    expected = [len({c for c in reached if (c if isinstance(c, int) else c[0]) in range(16)[s]}) for s in LAYERS]  # type: ignore[index]
    rows = coverage.per_layer()
    assert [covered for _, covered, _ in rows] == expected
    assert [label for label, _, _ in rows] == ["1", "3", "logits", "softmax"]
    assert sum(total for _, _, total in rows) == coverage.total


@pytest.mark.parametrize("text", EVERY)
def test_a_batch_is_as_its_cases_one_at_a_time(text: str) -> None:
    whole, apart = begun(text), begun(text)
    for seed in range(3):
        given = seen(values(60, seed))
        rows = [given[i : i + 1] for i in range(len(given))]
        alone = torch.cat([apart.gain(row) for row in rows])
        assert torch.allclose(whole.gain(given).double(), alone.double(), rtol=1e-9, atol=1e-12)
        assert torch.equal(whole.active(given), torch.cat([apart.active(row) for row in rows]))
        added = torch.cat([apart.add(row) for row in rows])
        assert torch.allclose(whole.add(given).double(), added.double(), rtol=1e-9, atol=1e-12)
        assert whole.covered() == pytest.approx(apart.covered(), rel=1e-12)
    assert whole.covered() > 0


@pytest.mark.parametrize("text", EVERY)
def test_gain_changes_nothing_and_what_was_added_gains_nothing(text: str) -> None:
    coverage, given = begun(text), seen(values(30))
    before = coverage.gain(given)
    assert torch.equal(before, coverage.gain(given))
    assert coverage.covered() == 0
    coverage.add(given)
    if "nlc" not in text:  # where a case far out makes a suite vary more each time it comes
        assert not coverage.gain(given).any()


@pytest.mark.parametrize("text", EVERY)
def test_state_goes_round(text: str) -> None:
    coverage, given = begun(text), seen(values(40))
    coverage.add(given)
    state = coverage.state()
    assert all(tensor.device.type == "cpu" for tensor in state.values())
    again = begun(text)
    again.add(seen(values(20, seed=9)))  # forgotten
    again.load(state)
    assert again.covered() == pytest.approx(coverage.covered(), rel=1e-12)
    more = seen(values(40, seed=1))
    assert torch.allclose(again.add(more).double(), coverage.add(more).double(), rtol=1e-9, atol=1e-12)
    assert again.covered() == pytest.approx(coverage.covered(), rel=1e-12)


# Of growing and of distances it matters what came first; what merging means there is tested below.
@pytest.mark.parametrize("text", [*CELLS, "tknp(k=1)", "tknp(k=3)", "nlc"])
def test_merged_is_as_both_added(text: str) -> None:
    one, other, both = begun(text), begun(text), begun(text)
    first, second = seen(values(40)), seen(values(70, seed=1))
    one.add(first)
    other.add(second)
    one.merge(other.state())
    both.add(first)
    both.add(second)
    assert one.covered() == pytest.approx(both.covered(), rel=1e-12)
    again = seen(values(10, seed=2))
    assert torch.allclose(one.gain(again).double(), both.gain(again).double(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("text", EVERY)
def test_merging_nothing_changes_nothing(text: str) -> None:
    coverage = begun(text)
    coverage.merge(begun(text).state())
    assert coverage.covered() == 0
    coverage.add(seen(values(20)))
    covered = coverage.covered()
    coverage.merge(begun(text).state())
    assert coverage.covered() == pytest.approx(covered, rel=1e-12)


@pytest.mark.parametrize("text", EVERY)
def test_no_cases_are_no_gain(text: str) -> None:
    coverage, none = begun(text), seen(values(0))
    assert [len(found(none)) for found in (coverage.active, coverage.gain, coverage.add)] == [0, 0, 0]
    assert coverage.covered() == 0


@pytest.mark.parametrize("text", [t for t in EVERY if "growing" not in t])
def test_memory_does_not_grow_with_cases(text: str) -> None:
    coverage = begun(text)

    def held() -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in _tensors(coverage))

    coverage.add(seen(values(50)))
    before = held()
    assert before
    for seed in range(100):
        coverage.add(seen(values(50, seed)))
    assert held() == before


def _tensors(thing: Any) -> list[Tensor]:
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, (tuple, list)):
        return [tensor for part in thing for tensor in _tensors(part)]
    fields = getattr(type(thing), "__dataclass_fields__", {})
    return [tensor for name in fields for tensor in _tensors(getattr(thing, name))]


def covariance(rows: np.ndarray[Any, Any]) -> float:
    return float(np.abs(np.atleast_2d(np.cov(rows.T, bias=True))).mean()) if len(rows) else 0.0


def finite(given: Seen, s: slice) -> np.ndarray[Any, Any]:
    rows: np.ndarray[Any, Any] = given.neurons[:, s].double().numpy()
    kept: np.ndarray[Any, Any] = rows[np.isfinite(rows).all(1)]
    return kept


def test_nlc_is_the_mean_absolute_covariance_of_all_that_came() -> None:
    coverage, batches = begun("nlc"), [seen(values(n, n)) for n in (1, 30, 2, 500)]
    before = [0.0] * len(LAYERS)
    rows = [np.zeros((0, s.stop - s.start)) for s in LAYERS]
    for given in batches:
        gains = coverage.add(given)
        for i in range(len(given)):
            rows = [np.concatenate((r, finite(given[i : i + 1], s))) for r, s in zip(rows, LAYERS, strict=True)]
            now = [covariance(r) for r in rows] if i < 40 or i == len(given) - 1 else []
            if now and i < 40:
                expected = sum(max(0.0, a - b) for a, b in zip(now, before, strict=True))
                assert float(gains[i]) == pytest.approx(expected, abs=1e-9)
            before = now
        assert coverage.covered() == pytest.approx(sum(covariance(r) for r in rows), rel=1e-9)


def test_growing_nlc_takes_only_what_makes_a_layer_grow() -> None:
    coverage, given = begun("nlc(growing=true)"), seen(values(80))
    taken = [np.zeros((0, s.stop - s.start)) for s in LAYERS]
    total = 0.0
    for i, gain in enumerate(coverage.add(given).tolist()):
        expected = 0.0
        for place, s in enumerate(LAYERS):
            row = finite(given[i : i + 1], s)
            growth = covariance(np.concatenate((taken[place], row))) - covariance(taken[place])
            if len(row) and (growth > 0 or not len(taken[place])):
                taken[place] = np.concatenate((taken[place], row))
                expected += max(0.0, growth)
        assert gain == pytest.approx(expected, abs=1e-9)
        total += expected
    assert coverage.covered() == pytest.approx(total, rel=1e-9), "it never shrinks"
    assert [len(t) < 75 for t in taken] == [True] * 4


def test_nlc_keeps_its_digits_far_from_zero() -> None:
    coverage = begun("nlc")
    near = torch.randn(400, WIDTH, generator=torch.Generator().manual_seed(3)).double()
    for block in (near + 1e6).split(37):
        coverage.add(Seen(*(torch.zeros(len(block), 0),) * 2, block, *(torch.zeros(len(block), 0),) * 2))
    assert coverage.covered() == pytest.approx(sum(covariance(near[:, s].numpy()) for s in LAYERS), rel=1e-7)


def test_nlc_holds_its_covariances_and_no_more() -> None:
    coverage = begun("nlc")
    coverage.add(seen(values(60)))
    width = sum((s.stop - s.start) ** 2 + 2 * (s.stop - s.start) + 2 for s in LAYERS)
    assert sum(tensor.untyped_storage().nbytes() for tensor in _tensors(coverage)) <= 8 * width


def test_nlc_refuses_layers_too_wide_to_keep() -> None:
    net = nn.Sequential(nn.Linear(5, 12_000), nn.ReLU(), nn.Linear(12_000, 3))
    wide = Observer.of([ModuleTarget(net, SPEC)], "auto")
    with pytest.raises(UsageError, match=r"1 has 12000 neurons.*--layers"):
        bind("criterion", "nlc", {})().begin(wide, None)


def novel(rows: np.ndarray[Any, Any], kept: list[Any], distance: float, most: int) -> list[bool]:
    found = []
    for row in rows:
        last = kept[-most:]
        found.append(bool(np.isfinite(row).all()) and all(np.linalg.norm(row - other) > distance for other in last))
        kept += [row] if found[-1] else []
    return found


@pytest.mark.parametrize(
    ("distance", "most"), [(0.0, 4096), (0.7, 4096), (1.5, 4096), (0.7, 20), (0.7, 1), (0.0, 7), (100.0, 5)]
)
def test_cc_keeps_what_is_far_from_all_before(distance: float, most: int) -> None:
    coverage = begun(f"cc(distance={distance}, most={most})")
    kept: list[list[Any]] = [[] for _ in LAYERS]
    for seed, n in enumerate((50, 1, 300)):
        given = seen(values(n, seed))
        expected = np.zeros(n, dtype=int)
        for own, s in zip(kept, LAYERS, strict=True):
            expected += np.array(novel(given.neurons[:, s].numpy(), own, distance, most), dtype=int)
        assert coverage.add(given).tolist() == expected.tolist()
        assert coverage.covered() == sum(map(len, kept))
        for i, own in enumerate(kept):
            assert np.array_equal(coverage.state()[f"layer{i}"].numpy(), np.array(own[-most:]))
    assert (coverage.covered() > most * len(LAYERS)) == (most < 50 and distance < 1), "some were let go"


def line(*places: float) -> Seen:
    """Cases whose neurons all lie at one place."""
    return seen(torch.tensor(places)[:, None].repeat(1, WIDTH))


def test_cc_lets_the_oldest_go_and_goes_on() -> None:
    coverage = begun("cc(distance=1, layers=logits, most=3)")
    assert coverage.add(line(0, 10, 20, 0)).tolist() == [1, 1, 1, 0]
    assert coverage.gain(line(0, 10, 20, 30)).tolist() == [0, 0, 0, 1]
    assert coverage.add(line(30, 0, 20, 30, 10)).tolist() == [1, 1, 0, 0, 1], "each lets one go: 0, 10 and 20"
    assert coverage.state()["layer0"][:, 0].tolist() == [30, 0, 10], "the oldest first"
    assert coverage.gain(line(0, 10, 20, 30)).tolist() == [0, 0, 1, 0]
    assert coverage.covered() == 6, "all that were new when they came"
    held = begun("cc(distance=1, layers=logits, most=3)")
    held.add(line(0, 10, 20))
    state = held.state()
    held.add(line(30))
    assert state["layer0"][:, 0].tolist() == [0, 10, 20], "a state stays as it was"


def test_a_full_cc_goes_round() -> None:
    for most in (3, 2, 5):  # into a table of the same size, a smaller and a larger one
        coverage, again = (begun(f"cc(distance=1, layers=logits, most={size})") for size in (3, most))
        coverage.add(line(0, 10, 20, 30, 40))
        again.add(line(7))
        again.load(coverage.state())
        assert (again.covered(), again.state()["layer0"][:, 0].tolist()) == (5, [20, 30, 40][-most:])
        assert again.gain(line(0, 7, 40)).tolist() == [1, 1, 0]
        again.add(line(50))
        assert again.state()["layer0"][:, 0].tolist() == [20, 30, 40, 50][-most:]
        assert again.covered() == 6
    other = begun("cc(distance=1, layers=logits, most=3)")
    other.add(line(100, 110, 40))
    other.merge(coverage.state())
    assert other.state()["layer0"][:, 0].tolist() == [40, 20, 30], "40 was near"
    assert other.covered() == 5


def test_a_cc_state_from_before_the_ring_is_read() -> None:
    coverage, again = begun("cc(distance=0.7)"), begun("cc(distance=0.7)")
    coverage.add(seen(values(30)))
    again.load({name: tensor for name, tensor in coverage.state().items() if name != "counts"})
    assert again.covered() == coverage.covered()


def test_cc_looks_at_the_layers_it_names() -> None:
    given = seen(values(50))
    whole, some = begun("cc(distance=0.7)"), begun('cc(distance=0.7, layers="logits,soft*")')
    whole.add(given)
    some.add(given)
    assert some.state().keys() == {"layer0", "layer1", "counts"}
    assert torch.equal(some.state()["layer0"], whole.state()["layer2"])
    with pytest.raises(UsageError, match="did you mean 'logits'"):
        begun("cc(layers=logit)")


def test_cc_merges_what_is_far_from_its_own() -> None:
    one, other = begun("cc(distance=0.7)"), begun("cc(distance=0.7)")
    one.add(seen(values(30)))
    other.add(seen(values(30, seed=1)))
    kept = [list(one.state()[f"layer{i}"].numpy()) for i in range(4)]
    for i, own in enumerate(kept):
        novel(other.state()[f"layer{i}"].numpy(), own, 0.7, 4096)
    one.merge(other.state())
    assert one.covered() == sum(map(len, kept))


def test_a_full_table_of_patterns_stops_counting_but_never_forgets() -> None:
    coverage = begun("tknp(k=2, most=50)")
    assert isinstance(coverage, Patterns)
    assert coverage.slots == 64
    given = seen(torch.rand(500, WIDTH, generator=torch.Generator().manual_seed(0)))
    added = coverage.add(given)
    different = len(set().union(*reference("tknp(k=2)", given)))
    assert 50 < int(added.sum()) == coverage.covered() <= 64 < different
    assert not coverage.gain(given[added.nonzero().flatten()]).any()
    state = coverage.state()
    assert len(state["hashes"]) == coverage.covered()
    again = begun("tknp(k=2, most=1000)")
    again.load(state)
    again.add(given)
    assert again.covered() == different


@pytest.mark.parametrize("text", EVERY)
def test_cases_of_nothing_but_nan_cover_nothing(text: str) -> None:
    coverage, given = begun(text), seen(torch.full((3, WIDTH), NAN))
    for found in (coverage.active, coverage.gain, coverage.add):
        assert found(given).tolist() == [0, 0, 0]
    assert coverage.covered() == 0


def test_a_nan_leaves_no_pattern_and_its_layer_the_other_neurons() -> None:
    row = torch.arange(WIDTH).float()
    row[5] = NAN
    assert begun("tknp").add(seen(row[None])).tolist() == [0]
    assert begun("tknc(k=1)").add(seen(row[None])).tolist() == [4], "the largest that is a number, in each layer"
    row[:6] = NAN
    assert [begun(f"{name}(k=1)").add(seen(row[None])).tolist() for name in ("tknc", "bknc")] == [[3], [3]]


def test_the_order_of_equal_neurons_does_not_make_a_pattern() -> None:
    coverage = begun("tknp(k=3)")
    row = torch.arange(WIDTH).float()
    same = row.clone()
    same[[4, 5]] = same[[5, 4]]  # both are among the three largest either way
    assert coverage.add(seen(torch.stack((row, same)))).tolist() == [1, 0]


@pytest.mark.parametrize(
    "text",
    [
        "nc(threshold=1)",
        "nc(threshold=-0.1)",
        "kmnc(k=0)",
        "nbc(std=-1)",
        "snac(buckets=-1)",
        "tknc(k=0)",
        "bknc(k=0)",
        "tknp(k=0)",
        "tknp(most=0)",
        "cc(distance=-1)",
        "cc(most=0)",
        'cc(layers="")',
        "cc(most=100000000)",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=step(text)[0]):
        begun(text)


@pytest.mark.parametrize("text", ["kmnc", "nbc", "snac"])
def test_ranges_need_a_profile_of_these_neurons(text: str) -> None:
    criterion: Criterion = bind("criterion", text, {})()
    with pytest.raises(UsageError, match="give --training"):
        criterion.begin(observer(), None)
    short = Profile(*(torch.zeros(3),) * 4, 1)
    with pytest.raises(UsageError, match="3 neurons, the layers have 16"):
        criterion.begin(observer(), short)


@pytest.mark.parametrize("text", ["nc", "kmnc(k=7)", "nlc", "cc"])
def test_a_state_of_other_layers_is_refused(text: str) -> None:
    criterion: Criterion = bind("criterion", *step(text))()
    net = nn.Sequential(nn.Linear(5, 70), nn.ReLU(), nn.Linear(70, 3))
    other = Observer.of([ModuleTarget(net, SPEC)], "1", ends=True)
    ranges = Profile(torch.zeros(70), torch.ones(70), torch.zeros(70), torch.ones(70), 2)
    coverage = criterion.begin(other, ranges)
    coverage.add(Seen(*(torch.zeros(4, 0),) * 2, torch.rand(4, 70), torch.zeros(4, 1), torch.ones(4, 1)))
    with pytest.raises(UsageError, match="this state is of"):
        begun(text).load(coverage.state())


def test_every_criterion_is_tested_here() -> None:
    tested = {step(text)[0] for text in EVERY}
    assert tested >= set(names("criterion")) - {"sc"}, "sc has tests of its own"
