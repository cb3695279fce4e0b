"""Which neurons are pushed: probabilities counted on a tiny net, and what every strategy must keep."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind, names
from assay.core.shards import decode, encode
from assay.stages.coverage import Coverage
from assay.stages.coverage.profile import Profile
from assay.stages.strategies import Chooser, Push
from assay.stages.strategies.activity import SEED_COVERED, active, covered
from assay.stages.strategies.drawing import draw
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((3,), (-1.0, 1.0), ("a", "b"))
DRAWS = 20_000


def net(seed: int = 0) -> ModuleTarget:
    torch.manual_seed(seed)
    return ModuleTarget(nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)), SPEC)


def observer(nets: int = 1) -> Observer:
    """Ten neurons a net: six of a dense layer, two logits, two of the softmax."""
    return Observer.of([net(seed) for seed in range(nets)], "auto", ends=True)


def nc(eyes: Observer, threshold: float = 0.5) -> Coverage:
    made: Coverage = bind("criterion", "nc", {"threshold": threshold, "scaled": False})().begin(eyes, None)
    return made


def seen(values: Tensor) -> Seen:
    """As if the neurons had these values; every layer reaches from 0 to 1."""
    n = len(values)
    ends = torch.zeros(n, 3), torch.ones(n, 3)
    return Seen(torch.zeros(n, 2), torch.zeros(n, 0, 2), values, *ends)


def lanes(n: int, **columns: Tensor) -> Cases:
    no = torch.zeros(n, dtype=torch.bool)
    usual = {"opening": no, "ended": no, "step": torch.ones(n, dtype=torch.int64)}
    return Cases.of(torch.zeros(n, 3)).note(**{**usual, **columns})


def began(name: str, eyes: Observer, **params: object) -> Chooser:
    made: Chooser = bind("strategy", name, params)().begin(eyes, Stream(3))
    return made


def pushes(chooser: Chooser, values: Tensor, coverage: Coverage) -> Push:
    here = chooser.start(lanes(len(values)))
    return chooser.choose(here, seen(values), coverage, Stream(5).rows(torch.arange(len(values))))


def shares(push: Push, width: int = 10) -> Tensor:
    """How often each neuron was pushed, of all pushes."""
    return torch.zeros(width).index_add(0, push.neurons.flatten(), push.signs.flatten().abs()) / push.signs.abs().sum()


def counted_as(chooser: Chooser, counts: list[int], coverage: Coverage) -> None:
    """Let each neuron be active so often."""
    pushes(chooser, torch.zeros(1, 10), coverage)  # it meets the criterion when it first chooses
    values = (torch.arange(max(counts))[:, None] < torch.tensor(counts)).float()
    here, n = chooser.start(lanes(len(values))), len(values)
    chooser.learn(here, seen(values), torch.zeros(n, dtype=torch.bool), torch.ones(n, dtype=torch.bool))


def test_often_draws_by_how_often_and_rare_by_how_far_behind() -> None:
    eyes = observer()
    counts = [0, 1, 2, 3, 4, 0, 0, 0, 0, 10]
    often, rare = (began(name, eyes, k=1) for name in ("often", "rare"))
    for chooser in (often, rare):
        counted_as(chooser, counts, nc(eyes))
    weight = torch.tensor(counts, dtype=torch.float32)
    nothing = torch.zeros(DRAWS, 10)
    assert torch.allclose(shares(pushes(often, nothing, nc(eyes))), weight / weight.sum(), atol=0.01)
    lag = 10 - weight
    assert torch.allclose(shares(pushes(rare, nothing, nc(eyes))), lag / lag.sum(), atol=0.01)


@pytest.mark.parametrize("name", ["often", "rare"])
def test_before_anything_was_active_any_neuron_is_as_good(name: str) -> None:
    eyes = observer()
    drawn = pushes(began(name, eyes, k=1), torch.zeros(DRAWS, 10), nc(eyes))
    assert torch.allclose(shares(drawn), torch.full((10,), 0.1), atol=0.01)


def test_draws_are_one_after_another_without_repetition() -> None:
    """With weights 1, 2, 3: the second neuron is drawn by what is left when the first is gone."""
    drawn = draw(torch.tensor([[1.0, 2.0, 3.0]]).expand(DRAWS, -1), 2, Stream(0).rows(torch.arange(DRAWS))).neurons
    for first, second, chance in ((2, 1, 3 / 6 * 2 / 3), (0, 2, 1 / 6 * 3 / 5), (1, 0, 2 / 6 * 1 / 4)):
        hit = (drawn[:, 0] == first) & (drawn[:, 1] == second)
        assert float(hit.float().mean()) == pytest.approx(chance, abs=0.012)
    assert (drawn[:, 0] != drawn[:, 1]).all()


def test_what_weighs_nothing_is_not_pushed() -> None:
    drawn = draw(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), 2, Stream(0).rows(torch.arange(2)))
    assert drawn.signs.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert drawn.neurons[0, 0] == 1


def test_heavy_draws_from_the_top_by_incoming_weight() -> None:
    target = net()
    weights = [[0.1] * 3, [0.9] * 3, [-5.0] * 3, [0.8] * 3, [0.2] * 3, [0.3] * 3]
    with torch.no_grad():
        target.module[0].weight.copy_(torch.tensor(weights))  # type: ignore[index]
        target.module[2].weight.copy_(torch.tensor([[-1.0] * 6, [0.5] * 6]))  # type: ignore[index]
    eyes = Observer.of([target], "auto")
    drawn = pushes(began("heavy", eyes, k=1, share=0.3), torch.zeros(DRAWS, 10), nc(eyes))
    expected = torch.zeros(10)
    expected[[1, 3, 7]] = 1 / 3
    assert torch.allclose(shares(drawn), expected, atol=0.015)
    few = pushes(began("heavy", eyes, k=5), torch.zeros(1, 10), nc(eyes))
    assert few.signs.sum() == 1, "a tenth of ten neurons is one"
    assert few.neurons[0, 0] == 1
    every = pushes(began("heavy", eyes, k=10, share=1.0), torch.zeros(1, 10), nc(eyes))
    assert sorted(every.neurons[0, every.signs[0] > 0].tolist()) == [*range(8)], "the softmax has no weights"


def test_heavy_needs_weights() -> None:
    eyes = Observer.of([net()], "softmax")
    with pytest.raises(UsageError, match="none of the layers looked at has weights"):
        began("heavy", eyes, k=1)


def test_near_pushes_up_above_the_threshold_and_down_below() -> None:
    eyes = observer()
    values = torch.tensor([[0.5, 0.51, 0.74, 0.76, 0.49, 0.31, 0.29, 0.0, 1.0, 0.5]]).repeat(DRAWS, 1)
    drawn = pushes(began("near", eyes, k=3), values, nc(eyes))
    assert set(drawn.neurons[:, 0].tolist()) == {1, 2}
    assert set(map(tuple, drawn.neurons[:, 1:].sort(1).values.tolist())) == {(4, 5)}
    assert (drawn.signs == torch.tensor([1.0, -1.0, -1.0])).all()
    assert float((drawn.neurons[:, 0] == 1).float().mean()) == pytest.approx(0.5, abs=0.015)
    wide = pushes(began("near", eyes, k=4, threshold=0.75), values, nc(eyes))
    assert (wide.signs == torch.tensor([1.0, 0.0, -1.0, 0.0])).all(), "3 alone above, 2 alone below"
    assert wide.neurons[0, [0, 2]].tolist() == [3, 2]


def test_near_scales_by_the_layer() -> None:
    eyes = observer()
    values = torch.full((1, 10), 4.0)
    values[0, 0] = 6.2
    low, high = torch.tensor([[4.0, 4.0, 4.0]]), torch.tensor([[8.0, 4.0, 4.0]])
    flat = Seen(torch.zeros(1, 2), torch.zeros(1, 0, 2), values, low, high)
    chooser = began("near", eyes, k=2)
    drawn = chooser.choose(lanes(1), flat, nc(eyes), Stream(0).rows(torch.arange(1)))
    assert drawn.signs.tolist() == [[1.0, 0.0]], "0.55 of its layer; flat layers are at 0"
    assert drawn.neurons[0, 0] == 0


def test_mixed_splits_evenly_and_draws_apart() -> None:
    eyes = observer()
    chooser = began("mixed", eyes, of="often, near(above=0.1), random", m=8)
    assert chooser.k == 8
    assert [part.k for part in chooser.parts] == [3, 3, 2]  # type: ignore[attr-defined]
    drawn = pushes(chooser, torch.full((50, 10), 0.55), nc(eyes))
    assert drawn.neurons.shape == drawn.signs.shape == (50, 8)
    assert not torch.equal(drawn.neurons[:, :2], drawn.neurons[:, 6:]), "parts do not draw the same numbers"
    with pytest.raises(UsageError, match="names 3 strategies"):
        began("mixed", eyes, of="often, near, random", m=2)
    with pytest.raises(UsageError, match="leave k out"):
        began("mixed", eyes, of="often(k=3)")


def test_uncovered_takes_one_of_each_net_until_none_is_left() -> None:
    eyes = observer(2)
    coverage = nc(eyes)
    values = torch.zeros(1, 20)
    values[0, [*range(9), *range(10, 16)]] = 1.0
    coverage.add(seen(values))
    drawn = pushes(began("uncovered", eyes), torch.zeros(DRAWS, 20), coverage)
    assert drawn.neurons.shape == (DRAWS, 2)
    assert (drawn.neurons[:, 0] == 9).all(), "the one that is left in the first net"
    share = torch.bincount(drawn.neurons[:, 1], minlength=20) / DRAWS
    assert torch.allclose(share[16:], torch.full((4,), 0.25), atol=0.015)
    coverage.add(seen(torch.ones(1, 20)))
    full = pushes(began("uncovered", eyes), torch.zeros(DRAWS, 20), coverage)
    assert torch.allclose(shares(full, 20), torch.full((20,), 0.05), atol=0.01), "all are covered: any of each net"


def test_uncovered_by_seed_knows_only_the_cases_of_that_seed() -> None:
    eyes = observer()
    coverage, chooser = nc(eyes), began("uncovered", eyes, k=9, by="seed")
    values = torch.eye(10)[[0, 5]]
    coverage.add(seen(torch.ones(1, 10)))  # what others covered does not count
    here = chooser.start(lanes(2, opening=torch.ones(2, dtype=torch.bool)))
    rng = Stream(1).rows(torch.arange(2))
    first = chooser.choose(here, seen(values), coverage, rng)
    assert 0 not in first.neurons[0], "nine of ten, and not the one that the seed itself covers"
    assert 5 not in first.neurons[1]
    no = torch.zeros(2, dtype=torch.bool)
    here = chooser.learn(here, seen(values), no, no)
    assert here.info[SEED_COVERED].sum(1).tolist() == [1, 1], "the seed covers, too"
    here = here.note(opening=no)
    made = 1 - torch.eye(10)[[7, 8]]
    here = chooser.learn(here, seen(made), no, torch.tensor([True, False]))
    assert here.info[SEED_COVERED].sum(1).tolist() == [9, 1], "what does not count covers nothing"
    last = chooser.choose(here, seen(values), coverage, rng)
    assert last.neurons[0, 0] == 7


@pytest.mark.parametrize(("criterion", "params"), [("tknp", {}), ("cc", {})])
def test_a_criterion_that_knows_no_neurons_is_refused(criterion: str, params: Mapping[str, object]) -> None:
    eyes = observer()
    coverage = bind("criterion", criterion, params)().begin(eyes, None)
    with pytest.raises(UsageError, match="use one of neurons: nc"):
        pushes(began("uncovered", eyes), torch.zeros(2, 10), coverage)


def test_neurons_of_several_cells_are_active_in_any_and_covered_in_all() -> None:
    eyes = observer()
    profile = Profile(torch.zeros(10), torch.ones(10), torch.full((10,), 0.5), torch.ones(10), 5)
    coverage: Coverage = bind("criterion", "kmnc", {"k": 2})().begin(eyes, profile)
    values = torch.full((1, 10), 2.0)  # out of every section
    values[0, 3] = 0.2
    assert active(coverage, seen(values)).nonzero().tolist() == [[0, 3]]
    coverage.add(seen(values))
    assert not covered(coverage, 10).any()
    values[0, 3] = 0.9
    coverage.add(seen(values))
    assert covered(coverage, 10).nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize("name", names("strategy"))
def test_every_strategy(name: str) -> None:
    """The same draws again, whatever the company; k neurons that exist; a state that survives a file."""
    eyes = observer()
    coverage, more = nc(eyes), {} if name == "mixed" else {"k": 4}
    if name == "mixed":
        more = {"m": 4}
    values = torch.rand(12, 10, generator=torch.Generator().manual_seed(0))
    chooser, rows = began(name, eyes, **more), torch.arange(12)
    here = chooser.start(lanes(12, opening=torch.ones(12, dtype=torch.bool), step=torch.zeros(12, dtype=torch.int64)))
    drawn = chooser.choose(here, seen(values), coverage, Stream(5).rows(rows))
    assert chooser.k == 4
    assert drawn.neurons.shape == drawn.signs.shape == (12, 4)
    assert drawn.neurons.dtype == torch.int64
    assert drawn.neurons.min() >= 0
    assert drawn.neurons.max() < 10
    assert set(drawn.signs.flatten().tolist()) <= {-1.0, 0.0, 1.0}
    again = chooser.choose(here[3:7], seen(values)[3:7], coverage, Stream(5).rows(rows[3:7]))
    assert torch.equal(again.neurons, drawn.neurons[3:7])
    assert torch.equal(again.signs, drawn.signs[3:7])
    failing = values[:, 0] > 0.5
    here = chooser.learn(here, seen(values), failing, torch.zeros(12, dtype=torch.bool))
    here = here.note(opening=torch.zeros(12, dtype=torch.bool))
    here = chooser.learn(here, seen(values.flip(0)), failing, torch.ones(12, dtype=torch.bool))
    assert chooser.end(here[failing]) is None  # type: ignore[func-returns-value]
    other = began(name, eyes, **more)
    other.load(decode(encode({"none": torch.zeros(1), **chooser.state()})))
    one, two = (c.choose(here, seen(values), coverage, Stream(6).rows(rows)) for c in (chooser, other))
    assert torch.equal(one.neurons, two.neurons)
    assert {n: t.tolist() for n, t in other.state().items()} == {n: t.tolist() for n, t in chooser.state().items()}


@pytest.mark.parametrize("name", sorted({*names("strategy")} - {"mixed"}))
def test_more_neurons_than_there_are_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="k=11 neurons are to be pushed, and the layers looked at have 10"):
        began(name, observer(), k=11)
    with pytest.raises(UsageError, match="at least one neuron"):
        began(name, observer(), k=0)


def test_no_lanes_no_trouble() -> None:
    eyes = observer()
    for name in names("strategy"):
        chooser = began(name, eyes, **({"m": 4} if name == "mixed" else {"k": 4}))
        none = chooser.start(lanes(0))
        drawn = chooser.choose(none, seen(torch.zeros(0, 10)), nc(eyes), Stream(0).rows(torch.arange(0)))
        assert drawn.neurons.shape == (0, 4)
        empty = torch.zeros(0, dtype=torch.bool)
        chooser.end(chooser.learn(none, seen(torch.zeros(0, 10)), empty, empty))
