"""Shrinking cases: what an atom is, and that a failure stays the same failure."""

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.shrink import blocks, changed, channels, entries, passes_of, pixels
from assay.engines.shrunk import shrunk
from assay.stages.oracles.nonfinite import nonfinite
from assay.stages.oracles.wrong_label import wrong_label
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

RANGE = (-1.0, 3.0)


class Watched(nn.Module):
    """Class 1 while the watched entries add up to more than ``bar``, else 0; class 2 where entry 0 is above 2."""

    def __init__(self, entries: list[int], bar: float) -> None:
        super().__init__()
        self.entries, self.bar = entries, bar

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        lead = flat[:, self.entries].sum(1) - self.bar
        third = torch.where(flat[:, 0] > 2.0, 99.0, -99.0).to(lead)
        return torch.stack([-lead, lead, third], 1)


def bench_of(net: nn.Module, shape: tuple[int, ...], classes: int = 3) -> Bench:
    return Bench(ModuleTarget(net, InputSpec(shape, RANGE, tuple(map(str, range(classes)))), torch.device("cpu")))


def failing(x: Tensor) -> Cases:
    """Cases of class 0 whose seeds are zero everywhere."""
    return Cases.of(x, torch.zeros(len(x), dtype=torch.int64)).note(seed_x=torch.zeros_like(x))


def test_atoms_of_a_small_colour_image() -> None:
    shape = (2, 3, 5)
    assert entries(shape).tolist() == list(range(30))
    assert pixels(shape).view(shape)[:, 1].tolist() == [[5, 6, 7, 8, 9]] * 2
    assert blocks(shape, side=2).view(shape).tolist() == [[[0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [3, 3, 4, 4, 5]]] * 2
    assert blocks(shape, side=9).unique().tolist() == [0]
    assert channels(shape).view(shape)[:, 0, 0].tolist() == [0, 1]
    x = torch.zeros(1, *shape)
    x[0, 1, 1, 2] = 1.0
    assert changed(x, torch.zeros_like(x), pixels(shape)).nonzero().tolist() == [[0, 7]]
    assert changed(x, torch.zeros_like(x), channels(shape)).tolist() == [[False, True]]


def test_passes_are_read_and_refused() -> None:
    assert [p.text for p in passes_of("channels, blocks(side=7),pixels", (3, 8, 8))] == [
        "channels",
        "blocks(side=7)",
        "pixels",
    ]
    for by, shape, message in (
        ("pixel", (1, 8, 8), "did you mean 'pixels'"),
        ("pixels", (8,), "take --by entries"),
        ("blocks(side=0)", (1, 8, 8), "from 1 up"),
        ("blocks(size=2)", (1, 8, 8), "did you mean 'side'"),
        ("pixels(side=2)", (1, 8, 8), "no parameter 'side'"),
        ("", (1, 8, 8), "at least one"),
        ("pixels,", (1, 8, 8), "missing beside a comma"),
        ("blocks,, pixels", (1, 8, 8), "missing beside a comma"),
        ("pixels,line(steps=0)", (1, 8, 8), "from 1 to 24"),
    ):
        with pytest.raises(UsageError, match=message):
            passes_of(by, shape)


@pytest.mark.parametrize("by", ["blocks,pixels", "pixels", "blocks(side=3),pixels", "channels,pixels"])
def test_a_colour_image_keeps_the_pixels_that_matter_with_all_their_channels(by: str) -> None:
    shape = (3, 6, 6)
    bench = bench_of(Watched([0 * 36 + 8, 2 * 36 + 20], 1.5), shape)
    x = torch.ones(4, *shape)
    x[:, :, 0] = 0.0  # never changed, and entry 0 is there
    made = shrunk(bench, failing(x), by=by)
    places = (made.x != 0).any(1).flatten(1)
    assert [row.nonzero().flatten().tolist() for row in places] == [[8, 20]] * 4
    depth = [0, 2] if by.startswith("channels") else [0, 1, 2]
    assert (made.x[:, :, 1, 2] != 0).tolist() == [[c in depth for c in range(3)]] * 4
    assert bool(made.info["minimal"].all())
    assert made.info["changed_before"].tolist() == [30] * 4
    assert made.info["changed"].tolist() == [2] * 4
    assert made.info["l0_before"].tolist() == [90] * 4
    assert made.info["l0"].tolist() == [2 * len(depth)] * 4
    assert made.info["l2"].allclose(torch.tensor(2.0 * len(depth)).sqrt())
    assert made.info["linf"].tolist() == [1.0] * 4
    assert made.info["pred"].tolist() == [1] * 4
    assert bool((made.info["ssim"] < 1).all())


def test_channels_go_as_a_whole() -> None:
    made = shrunk(bench_of(Watched([17], 0.5), (3, 4, 4)), failing(torch.ones(2, 3, 4, 4)), by="channels")
    assert made.x.amax((2, 3)).tolist() == made.x.amin((2, 3)).tolist() == [[0.0, 1.0, 0.0]] * 2


def test_the_class_stays_unless_any_failure_will_do() -> None:
    """Entry 0 alone makes it class 2, and the entries that are watched make it class 1 once entry 0 is gone."""
    bench = bench_of(Watched([3, 4, 5], 2.5), (6,))
    x = torch.ones(1, 6)
    x[0, 0] = 2.5
    assert shrunk(bench, failing(x)).x.nonzero()[:, 1].tolist() == [0]
    late = torch.tensor([[1.0, 1, 1, 1, 1, 1]])  # class 1; without the others it would be class 0
    assert shrunk(bench, failing(late)).x.nonzero()[:, 1].tolist() == [3, 4, 5]

    class Either(nn.Module):
        """Class 2 with entries 0 and 1, class 1 with entry 1 alone."""

        def forward(self, x: Tensor) -> Tensor:
            both = x[:, 1] * (1 + x[:, 0])
            return torch.stack([torch.full_like(both, 0.5), (both > 0.5).float(), (both > 1.5) * 2.0], 1)

    bench = bench_of(Either(), (4,))
    assert shrunk(bench, failing(torch.ones(1, 4)), by="entries").x.tolist() == [[1.0, 1.0, 0.0, 0.0]]
    made = shrunk(bench, failing(torch.ones(1, 4)), by="entries", any_failure=True)
    assert made.x.tolist() == [[0.0, 1.0, 0.0, 0.0]]
    assert made.info["pred"].tolist() == [1]


def test_an_answer_that_is_no_number_stays_none() -> None:
    class Divides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([1 / (1 - x[:, 2]), x[:, 1], x[:, 0]], 1)

    for oracle in (nonfinite, wrong_label):  # infinity is the highest score, that of the label
        made = shrunk(bench_of(Divides(), (5,)), failing(torch.ones(2, 5)), oracle)
        assert made.x.nonzero()[:, 1].tolist() == [2, 2]
        assert bool(made.info["failing"].all())


def test_what_fails_in_one_batch_only_is_left_as_it_was() -> None:
    """An oracle that looks at the size of the batch: asked about three cases at once, only the whole of them fails."""
    x = torch.ones(3, 6)

    def moody(bench: Bench, cases: Cases) -> Tensor:
        return (cases.x == 1).all(1) | torch.tensor(len(cases) != len(x))

    made = shrunk(bench_of(Watched([], -1.0), (6,)), failing(x), moody)
    assert torch.equal(made.x, x)
    assert bool(made.info["failing"].all())
    assert not bool(made.info["minimal"].any())
    assert int(made.info["questions"].min()) > 2, "something else was tried"


def test_cases_that_do_not_fail_or_whose_seed_does_are_told() -> None:
    bench = bench_of(Watched([1], 0.5), (3,))
    cases = failing(torch.tensor([[1.0, 1, 1], [1.0, 0, 1], [1.0, 1, 1]]))
    cases = cases.note(seed_x=torch.tensor([[0.0, 0, 0], [0.0, 0, 0], [0.0, 1, 0]]))
    made = shrunk(bench, cases, by="entries")
    assert made.info["failing"].tolist() == made.info["minimal"].tolist() == [True, False, True]
    assert made.x.tolist() == [[0.0, 1, 0], [1.0, 0, 1], [0.0, 1, 0]]
    assert made.info["changed"].tolist() == [1, 2, 0]
    assert len(shrunk(bench, cases[:0])) == 0


def test_a_budget_over_both_passes_leaves_a_failure() -> None:
    bench = bench_of(Watched([100, 300, 500], 2.5), (1, 28, 28))
    for budget in (1, 5, 25, 45):
        made = shrunk(bench, failing(torch.ones(3, 1, 28, 28)), budget=budget)
        assert int(made.info["questions"].max()) <= budget
        assert made.info["pred"].tolist() == [1] * 3
        assert not bool(made.info["minimal"].any())
        assert bool(made.info["failing"].all())


def test_a_later_pass_with_one_question_left_shows_nothing() -> None:
    """One pixel has changed and is needed: each pass asks about the case as it is and about its seed."""
    bench = bench_of(Watched([7], 0.5), (1, 4, 4))
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 3] = 1.0
    for budget, asked, minimal in ((1, 1, False), (2, 2, False), (3, 3, False), (4, 4, True), (9, 4, True)):
        made = shrunk(bench, failing(x), by="blocks(side=2),pixels", budget=budget)
        assert torch.equal(made.x, x)
        assert (made.info["questions"].tolist(), made.info["minimal"].tolist()) == ([asked], [minimal]), budget
        assert made.info["failing"].tolist() == [True]


def test_inputs_and_budgets_that_cannot_be() -> None:
    bench = bench_of(Watched([1], 0.5), (3,))
    with pytest.raises(UsageError, match=r"seeds lie within \[-1, 3\]; 1 do not, the first is 1"):
        shrunk(bench, failing(torch.ones(2, 3)).note(seed_x=torch.tensor([[0.0, 0, 0], [0.0, 4, 0]])))
    with pytest.raises(UsageError, match="cases lie within"):
        shrunk(bench, failing(torch.full((1, 3), torch.nan)))
    with pytest.raises(UsageError, match="at least 1"):
        shrunk(bench, failing(torch.ones(1, 3)), budget=0)
