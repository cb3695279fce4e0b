"""CTM and CAM against greedy choice written out, on cells made by hand and on a net."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import names
from assay.stages.coverage.bitmap import Bitmap
from assay.stages.selectors.cam import cam
from assay.stages.selectors.covering import begun, seen_by
from assay.stages.selectors.ctm import ctm
from assay.subjects.bench import Bench, Data
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.module import ModuleTarget

RNG = Stream(0)
CELLS = "nc(threshold=0, scaled=false)"


def cells_bench(width: int) -> Bench:
    """A net whose logits are its input: with CELLS over logits a case covers where it is above 0."""
    net = nn.Linear(width, width, bias=False)
    net.weight = nn.Parameter(torch.eye(width))
    target = ModuleTarget(net, InputSpec((width,), (0.0, 1.0), tuple(map(str, range(width)))))
    return Bench(target, chunks=Chunks(3))


def naive(cells: np.ndarray) -> list[int]:
    """Greedy choice as it is told: a dense look at all that are left for each."""
    left, waiting, order = np.ones(cells.shape[1], bool), list(range(len(cells))), []
    while waiting:
        gains = [int((cells[row] & left).sum()) for row in waiting]
        if max(gains) == 0:
            break
        row = waiting.pop(gains.index(max(gains)))
        left &= ~cells[row]
        order.append(row)
    return [*order, *sorted(waiting, key=lambda row: (-int(cells[row].sum()), row))]


def chosen(cells: np.ndarray, k: int, how: str) -> list[int]:
    select = {"cam": cam, "ctm": ctm}[how]
    cases = Cases.of(torch.from_numpy(cells.astype(np.float32)))
    rows = select(cells_bench(cells.shape[1]), cases, k, rng=RNG, criterion=CELLS, layers="logits")
    assert rows.dtype == torch.int64
    return [int(row) for row in rows]


def table(*rows: str) -> np.ndarray:
    return np.array([[c == "x" for c in row] for row in rows])


def test_by_hand() -> None:
    cells = table("..x..", "xx...", "xxx..", "...xx", ".....", "...xx")
    assert chosen(cells, 6, "ctm") == [2, 1, 3, 5, 0, 4], "equal ones in the order of rows"
    assert chosen(cells, 6, "cam") == [2, 3, 1, 5, 0, 4], "what adds nothing more comes by what it covers alone"
    assert chosen(cells, 3, "cam") == [2, 3, 1]
    assert chosen(cells, 1, "ctm") == [2]


def test_nothing_covered_keeps_the_rows() -> None:
    for how in ("ctm", "cam"):
        assert chosen(np.zeros((4, 3), bool), 4, how) == [0, 1, 2, 3]
        assert chosen(np.ones((4, 3), bool), 9, how) == [0, 1, 2, 3]
        assert chosen(np.zeros((0, 3), bool), 4, how) == []


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_cam_is_naive_greedy_choice(data: st.DataObject) -> None:
    n, width = data.draw(st.integers(1, 25)), data.draw(st.integers(2, 12))
    bits = data.draw(st.lists(st.booleans(), min_size=n * width, max_size=n * width))
    cells = np.array(bits).reshape(n, width)
    expected = naive(cells)
    assert chosen(cells, n, "cam") == expected
    k = data.draw(st.integers(0, n))
    assert chosen(cells, k, "cam") == expected[:k]


def test_cam_looks_at_few_cases_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 cases of random cells; a dense pass for each would be 45 000 looks."""
    looked, gain = 0, Bitmap.gain

    def counted(self: Bitmap, seen: Seen) -> Tensor:
        nonlocal looked
        looked += len(seen)
        return gain(self, seen)

    monkeypatch.setattr(Bitmap, "gain", counted)
    rng = np.random.default_rng(0)
    cells = rng.random((300, 400)) < rng.random((300, 1)) * 0.2
    assert chosen(cells, 300, "cam") == naive(cells)
    assert 300 <= looked < 6000


def small_net() -> tuple[Bench, Cases]:
    """A net over six numbers with a training set, and cases that go past it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3))
    spec, rng = InputSpec((6,), (0.0, 1.0), ("a", "b", "c")), torch.Generator().manual_seed(1)
    known = Data("made/train", Cases.of(torch.rand(60, 6, generator=rng) * 0.8), spec)
    return Bench(ModuleTarget(net, spec), chunks=Chunks(8), training=known), Cases.of(torch.rand(40, 6, generator=rng))


ORDERING = sorted({*names("criterion")} - {"nlc", "sc"})  # sc needs a score that this net has


@pytest.mark.parametrize(
    "criterion", [*ORDERING, "kmnc(k=3)", "nbc(std=0.2)", "tknc(k=1)", "cc(distance=0.3)", "sc(score=mdsa)"]
)
def test_on_a_net_cam_takes_the_largest_gain_each_time(criterion: str) -> None:
    bench, cases = small_net()
    order = cam(bench, cases, 40, rng=RNG, criterion=criterion)
    assert sorted(order.tolist()) == list(range(40))
    coverage, observer = begun(bench, criterion, "auto")
    seen = observer.all(cases.x, bench.chunks)
    alone = coverage.active(seen).double()
    assert torch.equal(ctm(bench, cases, 40, rng=RNG, criterion=criterion), (-alone).argsort(stable=True))
    left, steps = torch.ones(40, dtype=torch.bool), 0
    for row in order.tolist():
        gains = torch.where(left, coverage.gain(seen).double(), -1.0)
        if gains.max() <= 0:
            break
        assert row == int(gains.argmax()), "the first of the largest"
        coverage.add(seen[row : row + 1])
        left[row] = False
        steps += 1
    assert steps > 0
    rest = order[steps:]
    assert torch.equal(rest, rest.sort().values[(-alone[rest.sort().values]).argsort(stable=True)])


def test_what_the_bench_has_seen_is_not_asked_again_and_nothing_is_written() -> None:
    bench, cases = small_net()
    plain = {how: how(bench, cases, 40, rng=RNG, criterion="nc", layers="1") for how in (cam, ctm)}
    both = Bench(bench.target, observer=Observer.of([bench.target], "auto", ends=True), training=bench.training)
    looked = both.observed(cases)
    before = {name: column.clone() for name, column in looked.info.items()}
    for criterion in ("kmnc", "nc"):  # what is fitted to the training data is fitted here
        cam(both, looked, 40, rng=RNG, criterion=criterion, layers="1")
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    assert isinstance(bench.target, ModuleTarget)
    hook = bench.target.module.register_forward_hook(count)
    for how, rows in plain.items():
        assert torch.equal(how(both, looked, 40, rng=RNG, criterion="nc", layers="1"), rows)
        how(both, looked, 40, rng=RNG, criterion="kmnc", layers="1")
    hook.remove()
    assert calls == 0
    assert all(torch.equal(column, before[name]) for name, column in looked.info.items())


def test_layers_are_cut_out_of_what_was_seen() -> None:
    bench, cases = small_net()
    own = Observer.of([bench.target], "auto", ends=True)
    wide = Bench(bench.target, observer=own)
    for layers, ends in (("3, logits", True), ("3", False), ("softmax", True)):
        asked = Observer.of([bench.target], layers, ends=ends)
        cut, whole = seen_by(wide, asked, wide.observed(cases)), asked.all(cases.x, bench.chunks)
        for name in ("logits", "others", "neurons", "low", "high"):
            assert torch.allclose(getattr(cut, name), getattr(whole, name), atol=1e-6), name
    lacking = Bench(bench.target, observer=Observer.of([bench.target], "3"))
    asked = Observer.of([bench.target], "1, 3", ends=True)
    assert seen_by(lacking, asked, lacking.observed(cases)).neurons.shape == (40, 16), "asked for where it was not seen"


def test_mistakes_are_told() -> None:
    bench, cases = small_net()
    with pytest.raises(UsageError, match="vary together"):
        cam(bench, cases, 3, rng=RNG, criterion="nlc")
    with pytest.raises(UsageError, match="training data"):
        ctm(Bench(bench.target), cases, 3, rng=RNG)
    with pytest.raises(UsageError, match="did you mean 'kmnc'"):
        ctm(bench, cases, 3, rng=RNG, criterion="kmcn")
    with pytest.raises(UsageError, match="no layer is called"):
        ctm(bench, cases, 3, rng=RNG, layers="conv9")
