"""Scores of mutants against full copies of the net that are asked one input at a time."""

import copy
import functools
import math

import pytest
import torch
from torch import Tensor, nn

from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.sprt import SENSITIVE, STABLE, UNDECIDED, Sprt
from assay.stages import mutant_scores, shortcuts
from assay.stages.mutant_scores import MutantScores, scored
from assay.stages.mutants import Mutants, made
from assay.stages.shortcuts import Shortcuts, chain_of
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.sources.module import Normalised

RNG = Stream(11)
COLUMNS = ("changes", "asked", "distance", "decision", "at", "llr")


class Counting(nn.Module):
    """Hands on what it gets and counts the rows; not of pairs, by which a net is tried."""

    rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x) if len(x) != 2 else 0
        return x


class Closed(nn.Module):
    """A net of which nothing is known but its answers."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def chain() -> nn.Sequential:
    """In double precision: no two answers are so close that the size of a batch would decide between them."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 10, 3), nn.BatchNorm2d(10), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(Counting(), *layers, nn.Linear(90, 16), nn.Tanh(), nn.Linear(16, 4)).double().eval()


def nets() -> dict[str, nn.Module]:
    return {"chain": chain(), "closed": Closed(chain()), "normalised": Normalised(chain(), [0.3], [0.7]).eval()}


def images(n: int = 40) -> Tensor:
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def family(
    net: nn.Module, count: int = 30, rate: float = 0.1, operators: tuple[str, ...] = ("gf", "nai", "ns")
) -> Mutants:
    return made(net, lambda _: True, count=count, operators=operators, rate=rate, rng=RNG)


def one_by_one(net: nn.Module, mutants: Mutants, x: Tensor) -> tuple[Tensor, Tensor]:
    """The net's answers and those of every mutant, (mutants, N, K): each a copy of its own, each input alone."""
    found = []
    for i in range(len(mutants)):
        mutant = copy.deepcopy(net)
        for name, (index, values) in mutants.difference(i).items():
            mutant.get_parameter(name).data.view(-1)[index] = values
        found.append(torch.cat([mutant(row[None]) for row in x]))
    return torch.cat([net(row[None]) for row in x]).detach(), torch.stack(found).detach()


@functools.cache
def reference(kind: str) -> tuple[nn.Module, Mutants, Tensor, Tensor]:
    """A net, 80 mutants, and their answers one by one."""
    net = nets()[kind]
    mutants = family(net, count=80)
    return net, mutants, *one_by_one(net, mutants, images())


def by_textbook(changed: list[bool], test: Sprt) -> tuple[int, int, float]:
    """Decision, mutants it took and ratio there, one mutant after the other."""
    ratio = 0.0
    for n, change in enumerate(changed, 1):
        ratio += math.log(test.p1 / test.p0) if change else math.log((1 - test.p1) / (1 - test.p0))
        if ratio >= math.log((1 - test.beta) / test.alpha):
            return SENSITIVE, n, ratio
        if ratio <= math.log(test.beta / (1 - test.alpha)):
            return STABLE, n, ratio
    return UNDECIDED, len(changed), ratio


def same(one: MutantScores, other: MutantScores) -> bool:
    exact = all(torch.equal(getattr(one, c), getattr(other, c)) for c in COLUMNS if c != "distance")
    return exact and torch.allclose(one.distance, other.distance, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(nets()))
@pytest.mark.parametrize("size", [1, 7, 512])
def test_scores_are_those_of_copies_asked_one_by_one(kind: str, size: int) -> None:
    x = images()
    net, mutants, own, answers = reference(kind)
    found = scored(net, mutants, x, chunks=Chunks(size))
    changed = answers.argmax(2) != own.argmax(1)
    assert 0 < int(changed.sum()) < changed.numel()
    assert torch.equal(found.changes, changed.sum(0))
    assert torch.allclose(found.distance, (answers.softmax(2) - own.softmax(1)).abs().sum(2).mean(0) / 2, atol=1e-12)
    assert torch.equal(found.asked, torch.full((40,), 80))
    assert torch.allclose(found.lcr, changed.double().mean(0))
    assert (found.decision == UNDECIDED).all()
    assert torch.equal(found.at, found.asked)
    assert [getattr(found, c).dtype for c in COLUMNS] == [
        torch.int64, torch.int64, torch.float64, torch.int8, torch.int64, torch.float64,
    ]  # fmt: skip


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("kind", sorted(nets()))
@pytest.mark.parametrize("worth", [0.0, 0.5, 0.95, 1.0])
def test_the_test_decides_as_a_scalar_one_does(
    kind: str, early: bool, worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_scores, "WORTH", worth)
    x, test = images(), Sprt.around(0.1, 0.5)
    net, mutants, own, answers = reference(kind)
    changed = answers.argmax(2) != own.argmax(1)
    found = scored(net, mutants, x, sprt=test, early=early, chunks=Chunks(16))
    assert set(found.decision.tolist()) == {SENSITIVE, UNDECIDED, STABLE}
    for row in range(len(x)):
        decision, at, ratio = by_textbook(changed[:, row].tolist(), test)
        asked = at if early else 80
        away = (answers[:asked, row].softmax(1) - own[row].softmax(0)).abs().sum(1) / 2
        assert [int(c[row]) for c in (found.decision, found.at, found.asked)] == [decision, at, asked]
        assert found.llr[row] == pytest.approx(ratio)
        assert found.changes[row] == changed[:asked, row].sum()
        assert found.distance[row] == pytest.approx(float(away.mean()), abs=1e-12)


def test_inputs_that_are_decided_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant_scores, "WORTH", 1.0)
    counting = Counting()
    net, x = Closed(nn.Sequential(counting, chain())), images()
    mutants = family(net, count=80)
    found = scored(net, mutants, x, sprt=Sprt.around(0.1, 0.5), chunks=Chunks(100))
    open_after = [int((found.at > n).sum()) for n in range(80)]
    assert counting.rows == len(x) + sum(n for n in open_after if n != 2)
    assert counting.rows < 0.8 * 80 * len(x)


def test_layers_before_the_first_change_are_run_once() -> None:
    net, x, counters = chain(), images(), [Counting() for _ in range(3)]
    for place, counter in zip((9, 7, 2), counters, strict=True):  # behind each of the weighted layers
        net.insert(place, counter)
    mutants = family(net, operators=("nai", "ns"), rate=0.05)
    touched = [mutants.touched(i) for i in range(len(mutants))]
    first = sum("1.weight" in names for names in touched)
    assert 0 < first < len(mutants)
    scored(net, mutants, x, chunks=Chunks(20))
    assert [counter.rows for counter in counters] == [40 * (1 + n) for n in (len(mutants), len(mutants), first)]


def test_a_layer_that_is_used_twice_counts_from_its_first_use() -> None:
    torch.manual_seed(0)
    twice = nn.Linear(12, 12)
    net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), twice, nn.ReLU(), twice, nn.ReLU(), nn.Linear(12, 3)).double()
    x = torch.rand(30, 5, dtype=torch.float64)
    mutants = family(net, operators=("nai", "ns", "ws"), rate=0.3)
    own, answers = one_by_one(net, mutants, x)
    found = scored(net, mutants, x, chunks=Chunks(8))
    assert torch.equal(found.changes, (answers.argmax(2) != own.argmax(1)).sum(0))


def test_a_chain_is_not_cut_before_what_writes_into_its_input() -> None:
    class Rectified(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.dense(x.relu_())
            return out

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 12), nn.Identity(), Rectified(), nn.Linear(12, 3)).double()
    x = torch.rand(30, 5, dtype=torch.float64)
    mutants = family(net, operators=("nai",), rate=0.1)
    assert {"2.dense.weight"} & {name for i in range(30) for name in mutants.touched(i)}
    passes = Shortcuts(net, x, [mutants.touched(i) for i in range(len(mutants))], Chunks())
    assert 2 not in passes.inputs
    assert 2 in passes.first
    own, answers = one_by_one(net, mutants, x)
    found = scored(net, mutants, x, chunks=Chunks())
    assert torch.equal(found.changes, (answers.argmax(2) != own.argmax(1)).sum(0))


def test_what_is_kept_of_layers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = chain(), images()
    mutants = family(net)
    whole = scored(net, mutants, x, chunks=Chunks())
    monkeypatch.setattr(shortcuts, "KEPT", 40 * 16 * 8)  # what comes into the last layer, and no more
    touched = [mutants.touched(i) for i in range(len(mutants))]
    assert all(cut in (0, 8) for cut in Shortcuts(net, x, touched, Chunks()).inputs)
    assert same(scored(net, mutants, x, chunks=Chunks()), whole)


def test_a_hook_keeps_a_net_whole() -> None:
    net = chain()
    assert len(chain_of(net)) == 9
    net.register_forward_hook(lambda *_: None)
    assert chain_of(net) == [net]


def test_blocks_of_inputs_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, test = chain(), images(), Sprt.around(0.1, 0.5)
    mutants = family(net)
    whole = scored(net, mutants, x, sprt=test, chunks=Chunks())
    monkeypatch.setattr(mutant_scores, "BLOCK", 7 * 64 * 8)
    assert same(scored(net, mutants, x, sprt=test, chunks=Chunks()), whole)


def test_values_that_stray_by_more_than_the_tolerance() -> None:
    net, x, tolerance = chain(), images(), 0.05
    mutants = family(net)
    own, answers = one_by_one(net, mutants, x)
    away = (answers - own).abs().amax(2)
    found = scored(net, mutants, x, tolerance=tolerance, chunks=Chunks())
    assert 0 < int((away > tolerance).sum()) < away.numel()
    assert torch.equal(found.changes, (away > tolerance).sum(0))
    assert torch.allclose(found.distance, away.mean(0) / tolerance, atol=1e-9)


def test_one_output_without_classes() -> None:
    """A regression net with one output has no other class, but it has other values."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1)).double()
    x = torch.rand(9, 5, dtype=torch.float64)
    mutants = family(net)
    assert not scored(net, mutants, x, chunks=Chunks()).changes.any()
    assert scored(net, mutants, x, tolerance=1e-3, chunks=Chunks()).changes.any()


def test_answers_that_are_no_numbers_are_as_far_off_as_can_be() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 12), nn.Linear(12, 3))
    mutants = family(net, count=2, operators=("gf",))
    for _, values in mutants.difference(0).values():
        values.fill_(math.nan)
    found = scored(net, mutants, torch.rand(4, 5), chunks=Chunks())
    assert (found.distance >= 0.5).all()
    assert found.distance.isfinite().all()


def test_the_net_and_the_inputs_come_back_as_they_were() -> None:
    net, x = chain().train(), images()
    x.requires_grad_()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    mutants = family(net)
    found = scored(net, mutants, x, chunks=Chunks())
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not found.distance.is_inference()
    net.eval()
    assert same(found, scored(net, mutants, x, chunks=Chunks()))


def test_no_inputs() -> None:
    net = chain()
    found = scored(net, family(net), images(0), sprt=Sprt.around(0.1, 0.5), chunks=Chunks())
    assert [len(getattr(found, c)) for c in COLUMNS] == [0] * 6
    assert len(found.lcr) == 0


def test_nonsense_is_refused() -> None:
    net = chain()
    mutants = family(net, count=3)
    with pytest.raises(UsageError, match="another net"):
        scored(chain(), mutants, images(), chunks=Chunks())
    with pytest.raises(UsageError, match="tolerance"):
        scored(net, mutants, images(), tolerance=0.0, chunks=Chunks())


def test_a_trained_net_in_single_precision(digits_model: str) -> None:
    """As it is used: LeNet-5 on real images, whole batches of full copies."""
    net, x = module_of(load_target(digits_model)), load_data("digits/test").cases.x[:300]
    mutants = made(net, lambda _: True, count=30, rng=RNG)
    with torch.no_grad():
        own, changes = net(x).argmax(1), torch.zeros(len(x), dtype=torch.int64)
        for i in range(30):
            mutant = copy.deepcopy(net)
            for name, (index, values) in mutants.difference(i).items():
                mutant.get_parameter(name).data.view(-1)[index] = values
            changes += mutant(x).argmax(1) != own
    assert changes.any()
    assert torch.equal(scored(net, mutants, x, chunks=Chunks(64)).changes, changes)
