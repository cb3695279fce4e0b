"""ADAPT: features by hand, selection against brute force, generations that follow each other as they should."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.coverage import Coverage
from assay.stages.strategies.activity import SEED_COVERED
from assay.stages.strategies.adapt import Adapting
from assay.stages.strategies.evolution import best_cover, bred
from assay.stages.strategies.features import changing, fixed, tenths
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.zoo.lenet import lenet1

SPEC = InputSpec((1, 28, 28), (0.0, 1.0), tuple("0123456789"))
WIDTH = 52


@pytest.fixture(scope="module")
def eyes() -> Observer:
    """LeNet-1: conv 4, pool 4, conv 12, pool 12, logits 10, softmax 10."""
    torch.manual_seed(1)
    return Observer.of([ModuleTarget(lenet1(shape=SPEC.shape, classes=10), SPEC)], "auto", ends=True)


def seen(values: Tensor) -> Seen:
    n = len(values)
    return Seen(torch.zeros(n, 10), torch.zeros(n, 0, 10), values, torch.zeros(n, 6), torch.ones(n, 6))


def nc(observer: Observer) -> Coverage:
    made: Coverage = bind("criterion", "nc", {})().begin(observer, None)
    return made


def begun(observer: Observer, **params: object) -> Adapting:
    made: Adapting = bind("strategy", "adapt", params)().begin(observer, Stream(7))
    return made


def lanes(chooser: Adapting, n: int) -> Cases:
    no = torch.zeros(n, dtype=torch.bool)
    blank = Cases.of(torch.zeros(n, 1, 28, 28)).note(opening=no, ended=no, step=torch.ones(n, dtype=torch.int64))
    return chooser.start(blank)


def test_fixed_features_of_lenet1(eyes: Observer) -> None:
    table = fixed(eyes)
    assert table.shape == (WIDTH, 17)
    quarters = [0] * 4 + [0] * 4 + [1] * 12 + [2] * 12 + [2] * 10 + [3] * 10  # layers 0..5 of 6, times 4, over 6
    assert table[:, :4].argmax(1).tolist() == quarters
    kinds = [12] * 4 + [11] * 4 + [12] * 12 + [11] * 12 + [13] * 10 + [14] * 10
    assert (10 + table[:, 10:].argmax(1)).tolist() == kinds
    assert (table[:, :4].sum(1) == 1).all()
    assert (table[:, 4:10].sum(1) == 1).all()
    assert (table[:, 10:].sum(1) == 1).all()


def test_weight_features_are_tenths_of_all_neurons_and_the_lower_half(eyes: Observer) -> None:
    """Ends at 46, 41, 36, 31 and 26 of 52, as the paper's code cuts them; the 30-40 % are there."""
    net = eyes.targets[0].module  # type: ignore[attr-defined]
    flat = [m.weight.detach().flatten(1).mean(1).numpy() for m in (net.conv1, net.conv2, net.out)]
    weight = np.concatenate([flat[0], np.zeros(4), flat[1], np.zeros(12), flat[2], np.zeros(10)])
    order = np.argsort(weight, kind="stable")
    expected = np.zeros((WIDTH, 6))
    for column, (start, stop) in enumerate([(46, 52), (41, 46), (36, 41), (31, 36), (26, 31), (0, 26)]):
        expected[order[start:stop], column] = 1
    assert np.array_equal(fixed(eyes)[:, 4:10].numpy(), expected)
    assert fixed(eyes)[:, 7].sum() == 5


def test_changing_features_by_hand() -> None:
    counts = torch.tensor([0, 5, 1, 0, 9, 2, 3, 4, 6, 7, 8, 10])  # ten were active: one in each tenth
    failing = torch.tensor([False, True] + [False] * 10)
    table = changing(counts, failing)
    assert table[:, 0].tolist() == failing.float().tolist()
    assert table[:, 1].nonzero().flatten().tolist() == [0, 3]
    places = {int(row): int(column) for row, column in table[:, 2:].nonzero()}
    assert places == {11: 0, 4: 1, 10: 2, 9: 3, 8: 4, 1: 5, 7: 6, 6: 7, 5: 8, 2: 9}


def test_tenths_of_few() -> None:
    """Of three, the ends of the tenths fall at 0, 0, 0, 1, 1, 1, 2, 2, 2."""
    assert tenths(torch.tensor([5, 3, 4]), torch.tensor(3)).tolist() == [9, 3, 6]
    assert changing(torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.bool))[:, 1].tolist() == [1.0] * 4


def greedy(covered: np.ndarray, n: int) -> list[int]:
    """The obvious way."""
    chosen: list[int] = []
    done = np.zeros(covered.shape[1], bool)
    while len(chosen) < n:
        gains = [int((row & ~done).sum()) for row in covered]
        if max(gains) == 0:
            break
        chosen.append(gains.index(max(gains)))
        done |= covered[chosen[-1]]
    rest = sorted((i for i in range(len(covered)) if i not in chosen), key=lambda i: (-covered[i].sum(), i))
    return (chosen + rest)[:n]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_the_best_cover_is_greedy_and_topped_up_by_the_largest(share: float) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 5, 20):
        covered = rng.random((20, 30)) < share
        assert best_cover(torch.from_numpy(covered), n).tolist() == greedy(covered, n)


def test_the_greedy_cover_is_near_the_best_there_is() -> None:
    """At least 1 - 1/e of what any five of twelve cover, by trying them all."""
    rng = np.random.default_rng(1)
    covered = rng.random((12, 40)) < 0.1
    best = max(covered[list(rows)].any(0).sum() for rows in itertools.combinations(range(12), 5))
    assert covered[best_cover(torch.from_numpy(covered), 5).numpy()].any(0).sum() >= (1 - 1 / np.e) * best


def test_records_that_cover_nothing_are_chosen_once_each() -> None:
    assert best_cover(torch.zeros(4, 3, dtype=torch.bool), 3).tolist() == [0, 1, 2]
    assert best_cover(torch.zeros(2, 3, dtype=torch.bool), 5).tolist() == [0, 1]


def test_children_take_each_entry_from_either_parent_and_stay_in_bounds() -> None:
    parents = torch.arange(1, 5)[:, None].expand(4, 29) / 1.0
    children = bred(parents, 8, 5.0, 0.0, torch.Generator().manual_seed(0))
    assert children.shape == (8, 29)
    for left, right in children.view(4, 2, 29):  # two of one pair: at most two values in both
        assert len(torch.cat([left, right]).unique()) <= 2
    mixed = [child for child in children if len(child.unique()) == 2]
    assert mixed, "two orders that differ give pairs that differ"
    share = torch.stack([(child == child.unique()[0]).float().mean() for child in mixed]).mean()
    assert 0.3 < share < 0.7
    noisy = bred(torch.full((50, 29), 4.0), 100, 5.0, 1.0, torch.Generator().manual_seed(0))
    assert noisy.max() == 5.0
    assert float((noisy < 4.0).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert float((noisy == 5.0).float().mean()) == pytest.approx(0.159, abs=0.03), "beyond one deviation: clipped"


def test_the_highest_scores_are_pushed(eyes: Observer) -> None:
    """A vector that likes pools alone pushes pools; one that likes what never was active, that."""
    chooser = begun(eyes, k=16)
    here = lanes(chooser, 2)
    vectors = torch.zeros(2, 29)
    vectors[0, 11], vectors[1, 18] = 3.0, 3.0
    here, coverage = here.note(vector=vectors), nc(eyes)
    rng = Stream(0).rows(torch.arange(2))
    pools = {*range(4, 8), *range(20, 32)}
    first = chooser.choose(here, seen(torch.zeros(2, WIDTH)), coverage, rng)
    assert set(first.neurons[0].tolist()) == pools
    values = torch.ones(2, WIDTH)
    values[:, :16] = 0.0
    yes, no = torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    here = chooser.learn(here, seen(values), no, yes)
    second = chooser.choose(here, seen(values), coverage, rng)
    assert set(second.neurons[0].tolist()) == pools
    assert set(second.neurons[1].tolist()) == {*range(16)}
    assert (second.signs == 1).all()


def test_scores_are_features_times_vector(eyes: Observer) -> None:
    chooser, coverage = begun(eyes, k=10), nc(eyes)
    here = lanes(chooser, 30)
    values = torch.rand(30, WIDTH, generator=torch.Generator().manual_seed(2))
    rng = Stream(0).rows(torch.arange(30))
    chooser.choose(here, seen(values), coverage, rng)
    yes = torch.ones(30, dtype=torch.bool)
    here = chooser.learn(here, seen(values), values[:, 0] > 0.8, yes)
    table = torch.cat([fixed(eyes), changing(chooser.counts, chooser.failing)], 1).double()
    assert torch.equal(chooser.counts, (values > 0.5).sum(0))
    assert torch.equal(chooser.failing, ((values > 0.5) & (values[:, :1] > 0.8)).any(0))
    drawn = chooser.choose(here, seen(values), coverage, rng).neurons
    for row in range(30):
        scores = table @ here.info["vector"][row].double()
        tenth = scores.sort(descending=True).values[9]
        assert (scores[drawn[row]] >= tenth - 1e-3).all()


def test_vectors_are_handed_out_in_turn_and_bred_when_spent(eyes: Observer) -> None:
    chooser, coverage = begun(eyes, population=6, records=8, parents=0.5), nc(eyes)
    first = chooser.vectors.clone()
    assert first.abs().max() <= 5
    here = lanes(chooser, 4)
    assert torch.equal(here.info["vector"], first[:4])
    more = lanes(chooser, 4)
    assert torch.equal(more.info["vector"], first[[4, 5, 0, 1]]), "more lanes than vectors: from the first again"
    values = torch.zeros(4, WIDTH)
    values[torch.arange(4), torch.arange(4)] = 1.0
    rng = Stream(0).rows(torch.arange(4))
    chooser.choose(here, seen(values), coverage, rng)
    yes = torch.ones(4, dtype=torch.bool)
    here = chooser.learn(here, seen(values), ~yes, yes)
    chooser.end(here)
    assert torch.equal(chooser.vectors, first)
    assert torch.equal(chooser.covered, values.bool())
    chooser.end(chooser.learn(more, seen(values.flip(0)), ~yes, yes)[:2])
    assert chooser.generation == 1
    assert chooser.vectors.shape == first.shape
    assert not torch.isin(chooser.vectors, first).any()
    fresh = lanes(chooser, 1)
    assert torch.equal(fresh.info["vector"], chooser.vectors[:1])
    assert not fresh.info["pass_covered"].any(), "the first of a generation begins with nothing covered"
    assert not fresh.info[SEED_COVERED].any()
    assert len(chooser.used) == 6
    chooser.end(here)
    assert len(chooser.used) == 8, "only the last records are kept"
    assert torch.equal(chooser.used[-4:], first[:4])


def test_a_seed_counts_but_is_no_part_of_its_pass(eyes: Observer) -> None:
    chooser, coverage = begun(eyes), nc(eyes)
    here = lanes(chooser, 1).note(opening=torch.ones(1, dtype=torch.bool), step=torch.zeros(1, dtype=torch.int64))
    values, no = torch.eye(WIDTH)[:1], torch.zeros(1, dtype=torch.bool)
    chooser.choose(here, seen(values), coverage, Stream(0).rows(torch.arange(1)))
    here = chooser.learn(here, seen(values), no, no)
    assert chooser.counts[0] == 1
    assert here.info[SEED_COVERED][0, 0]
    assert not here.info["pass_covered"].any()
    again = here.note(step=torch.ones(1, dtype=torch.int64))  # taken from the queue: it was counted when it was made
    chooser.learn(again, seen(values), no, no)
    assert chooser.counts[0] == 1


def test_the_same_stream_gives_the_same_generations(eyes: Observer) -> None:
    def after(rounds: int, restart: bool) -> Tensor:
        chooser, coverage = begun(eyes, population=10), nc(eyes)
        draw = torch.Generator().manual_seed(4)
        for _ in range(rounds):
            here, values = lanes(chooser, 7), torch.rand(7, WIDTH, generator=draw)
            chooser.choose(here, seen(values), coverage, Stream(0).rows(torch.arange(7)))
            yes = torch.ones(7, dtype=torch.bool)
            chooser.end(chooser.learn(here, seen(values), values[:, 0] > 0.5, yes))
            if restart:
                state = chooser.state()
                chooser = begun(eyes, population=10)
                chooser.load(state)
        return chooser.vectors

    assert torch.equal(after(9, restart=False), after(9, restart=False))
    assert torch.equal(after(9, restart=False), after(9, restart=True))


def test_it_learns_to_push_what_covers(eyes: Observer) -> None:
    """Where a pass covers much if its vector likes pools, the vectors come to like pools."""
    chooser, coverage = begun(eyes, population=50), nc(eyes)
    draw = torch.Generator().manual_seed(0)
    before = chooser.vectors[:, 11].mean()
    for _ in range(20):
        here = lanes(chooser, 50)
        reach = (4 * here.info["vector"][:, 11]).clamp_min(0)[:, None]
        values = (torch.rand(50, WIDTH, generator=draw) * WIDTH < reach).float()
        chooser.choose(here, seen(values), coverage, Stream(0).rows(torch.arange(50)))
        yes = torch.ones(50, dtype=torch.bool)
        chooser.end(chooser.learn(here, seen(values), ~yes, yes))
    assert chooser.generation == 20
    assert chooser.vectors[:, 11].mean() > before + 1.5


def test_nonsense_is_refused() -> None:
    for params in ({"population": 0}, {"records": 0}, {"parents": 0.0}, {"parents": 1.5}, {"population": 1}):
        with pytest.raises(UsageError, match="must be at least 1"):
            bind("strategy", "adapt", params)()
    with pytest.raises(UsageError, match="bound must be above 0"):
        bind("strategy", "adapt", {"bound": 0.0})()
