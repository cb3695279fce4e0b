"""Stand-ins: what they learn from, what they ask, when they stop."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import BudgetSpent, UsageError
from assay.core.ids import input_ids
from assay.core.randomness import Stream
from assay.stages import stand_in as module
from assay.stages.imitation import Answers, Extraction, _task, likeness, taught
from assay.stages.stand_in import _enough, _moved, begin, stand_in
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.module import ModuleTarget
from rule import SPEC, Rule, drawn

RNG = Stream(3, ("lbt",))
SMALL = Extraction("mlp", tau=0.99, rounds=4, start=60, checked_on=90, epochs=4, lr=1e-2)


def _data(n: int, seed: int = 0) -> Data:
    return Data("drawn", Cases.of(drawn(n, seed)), SPEC)


def _bench(target: object = None, n: int = 600) -> Bench:
    return Bench(target or Rule(), training=_data(n))  # type: ignore[arg-type]


def test_it_learns_what_the_target_answers() -> None:
    bench = _bench()
    made = stand_in(bench, SMALL, RNG)
    fresh = _data(500, seed=9).cases.x
    with torch.no_grad():
        same = made.target(fresh).argmax(1) == Rule()(fresh).argmax(1)
    assert same.double().mean() > 0.85  # a third by chance
    assert made.agreement == pytest.approx(
        float((made.target(made.val.x).argmax(1) == Rule()(made.val.x).argmax(1)).double().mean())
    )
    assert made.val.y.equal(Rule()(made.val.x).argmax(1))


def test_labels_are_enough_and_probabilities_are_not_looked_at() -> None:
    told = Asked(Rule(), labels=True)
    assert stand_in(_bench(told), SMALL, RNG).agreement > 0.8
    with pytest.raises(UsageError, match="prob"):
        stand_in(_bench(told), Extraction("mlp", soft=True), RNG)


def test_probabilities_and_values_are_learned_where_asked_for() -> None:
    soft = stand_in(_bench(), Extraction("mlp", tau=0.99, rounds=2, start=60, checked_on=90, soft=True), RNG)
    assert soft.agreement > 0.8
    assert soft.answers.numbers is not None
    assert soft.answers.numbers.sum(1).allclose(torch.ones(90))
    how = Extraction("mlp", tau=0.999, rounds=3, start=100, checked_on=90, epochs=20, lr=1e-2, values=True)
    values = stand_in(_bench(), how, RNG)
    assert values.agreement > 0.9  # R², 0 for who answers the mean
    assert values.answers.are_values


def test_a_seed_decides_everything_and_another_one_decides_otherwise() -> None:
    torch.manual_seed(1)  # torch's own state is none of its business
    one = stand_in(_bench(), SMALL, RNG)
    torch.manual_seed(2)
    again = stand_in(_bench(), SMALL, RNG)
    other = stand_in(_bench(), SMALL, Stream(4, ("lbt",)))
    weights = [torch.cat([p.flatten() for p in made.net.parameters()]) for made in (one, again, other)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])
    assert not one.val.x.equal(other.val.x)


def test_it_is_made_once_on_a_bench() -> None:
    bench = _bench()
    assert stand_in(bench, SMALL, RNG) is stand_in(bench, SMALL, RNG)
    assert stand_in(bench, Extraction("mlp", start=60, checked_on=90), RNG) is not stand_in(bench, SMALL, RNG)


def test_no_input_is_asked_twice_and_none_of_the_pool() -> None:
    target, data = Rule(), _data(600)
    pool = data.cases.x[:400]
    stand_in(Bench(target, training=data), SMALL, RNG, pool)
    assert len(target.asked) == len(set(target.asked)) > 110
    assert not set(target.asked) & set(input_ids(pool))


def test_start_and_check_share_no_input_even_where_the_data_repeat_them() -> None:
    x = _data(300).cases.x
    bench = Bench(Rule(), training=Data("twice", Cases.of(torch.cat([x, x])), SPEC))
    start, check = begin(bench, Extraction(start=60, checked_on=90), RNG, None)
    assert (len(start), len(check)) == (180, 90)
    assert len(set(input_ids(torch.cat([start, check])))) == 270


def test_few_data_are_shared_out_and_too_few_are_refused() -> None:
    start, check = begin(_bench(n=90), Extraction(start=60, checked_on=90), RNG, None)
    assert (len(start), len(check)) == (60, 30)
    with pytest.raises(UsageError, match="at least"):
        begin(_bench(n=12), Extraction(start=60, checked_on=90), RNG, None)
    with pytest.raises(UsageError, match="--training"):
        begin(Bench(Rule()), SMALL, RNG, None)


def test_disputed_rows_are_those_that_differ_then_the_closest() -> None:
    scores = torch.tensor([[3.0, 1.0], [1.0, 1.5], [0.0, 5.0], [2.0, 1.9]])
    told = Answers(torch.tensor([1, 1, 1, 0]))
    rows, output = told.disputed(scores, 0.25)
    assert (rows.tolist(), output.tolist()) == ([0], [1])
    rows, output = told.disputed(scores, 0.75)
    assert (rows.tolist(), output.tolist()) == ([0, 1, 3], [1, 1, 0])  # margins 0.5 and 0.1 before 5
    every = Answers(torch.tensor([1, 0, 0, 1])).disputed(scores, 0.25)[0]
    assert every.tolist() == [0, 1, 2, 3]  # all that differ, however many


def test_disputed_values_are_those_with_the_largest_error() -> None:
    told = Answers(torch.zeros(3, dtype=torch.int64), torch.zeros(3, 2), (torch.zeros(2), torch.ones(2)))
    rows, output = told.disputed(torch.tensor([[0.1, -0.2], [3.0, 0.0], [0.0, -2.0]]), 0.67)
    assert (rows.tolist(), output.tolist()) == ([1, 2], [0, 1])


def test_likeness_is_the_share_of_labels_or_r_squared() -> None:
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert likeness(scores, Answers(torch.tensor([0, 1, 1]))) == pytest.approx(2 / 3)
    want = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    told = Answers(want.argmax(1), want, (torch.zeros(2), torch.ones(2)))
    assert likeness(want, told) == 1.0
    assert likeness(want.mean(0).expand(2, 2), told) == pytest.approx(0.0)
    assert likeness(want + torch.tensor([[1.0, 0.0], [0.0, 0.0]]), told) == pytest.approx(1 - 1 / 4)


def test_values_are_scaled_as_the_first_ones() -> None:
    how = Extraction(values=True)
    first = Answers.of(torch.tensor([[0.0, 10.0], [2.0, 30.0]]), how)
    assert first.numbers is not None
    assert first.numbers.mean(0).abs().max() < 1e-6
    assert first.numbers.std(0).allclose(torch.ones(2))
    later = Answers.of(torch.tensor([[1.0, 20.0]]), how, first)
    assert later.numbers is not None
    assert later.numbers.abs().max() < 1e-6


class _Slope(nn.Module):
    """Scores with known slopes: class 0 rises with every input, class 1 falls."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.sum(1)
        return torch.stack([total, -total, 0 * total - 100], 1)


@pytest.mark.parametrize(("number", "sign"), [(1, 1), (3, 1), (4, -1), (6, -1), (7, 1)])
def test_the_step_follows_the_slope_of_the_target_s_class_and_turns_every_three_rounds(number: int, sign: int) -> None:
    made = ModuleTarget(_Slope(), SPEC)
    x = torch.full((2, 6), 0.5)
    told = Answers(torch.tensor([0, 1]))  # the stand-in says 0 for both: they differ on the second
    moved = _moved(made, x, told, Extraction(step=0.2), number, Chunks())
    assert moved.allclose(torch.full((1, 6), 0.5 - 0.2 * sign))


def test_a_step_stays_in_the_bounds_and_is_a_share_of_their_range() -> None:
    spec = InputSpec((6,), (-1.0, 3.0), ("a", "b", "c"))
    made = ModuleTarget(_Slope(), spec)
    told = Answers(torch.tensor([1]))
    moved = _moved(made, torch.full((1, 6), 1.0), told, Extraction(step=0.1), 1, Chunks())
    assert moved.allclose(torch.full((1, 6), 0.6))
    edge = _moved(made, torch.full((1, 6), -0.9), told, Extraction(step=0.1), 1, Chunks())
    assert edge.allclose(torch.full((1, 6), -1.0))


def test_rounds_end_at_tau_without_growth_or_when_they_are_used_up() -> None:
    how = Extraction(tau=0.9, rounds=5)
    assert _enough([0.9], how, 1) == "tau"
    assert _enough([0.5, 0.7], how, 2) == ""
    assert _enough([0.5, 0.7, 0.704], how, 3) == ""  # once may be chance
    assert _enough([0.5, 0.7, 0.704, 0.7], how, 4) == "growth"
    assert _enough([0.5, 0.6, 0.7, 0.8, 0.85], how, 5) == "rounds"


def test_what_is_learned_from_is_capped() -> None:
    made = stand_in(_bench(), Extraction("mlp", tau=1.0, rounds=3, start=60, checked_on=90, cap=185, epochs=1), RNG)
    assert [line["learned_from"] for line in made.log] == [180, 185, 185]
    few = stand_in(_bench(), Extraction("mlp", tau=1.0, rounds=2, start=60, checked_on=90, cap=50, epochs=1), RNG)
    assert [line["learned_from"] for line in few.log] == [50, 50]


def test_a_budget_that_ends_while_it_learns_ends_the_rounds() -> None:
    target = Rule()
    asked = Asked(target, queries=275)
    made = stand_in(_bench(asked), Extraction("mlp", tau=1.0, rounds=6, start=60, checked_on=40, epochs=1), RNG)
    assert made.stopped == "queries"
    assert 270 < len(target.asked) == asked.queries.asked <= 275
    assert made.log[-1]["learned_from"] == asked.queries.asked - 40


def test_a_small_budget_starts_small_and_a_larger_one_asks_the_same_again() -> None:
    target = Rule()
    small = Asked(target, queries=100)
    made = stand_in(_bench(small), Extraction("mlp", rounds=1, start=60, checked_on=60), RNG)
    assert (made.log[0]["learned_from"], len(made.val)) == (60, 20)
    assert made.cut
    assert len(target.asked) == 80  # the rest is for later rounds
    first = set(target.asked)
    stand_in(_bench(Asked(target, queries=1000)), Extraction("mlp", rounds=1, start=60, checked_on=60), RNG)
    assert first <= set(target.asked[80:])


def test_a_budget_spent_before_there_is_a_stand_in_is_told() -> None:
    asked = Asked(Rule(), queries=300)
    asked.queries.take(290)
    with pytest.raises(BudgetSpent):
        stand_in(_bench(asked), Extraction("mlp", start=60, checked_on=40), RNG)


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"tau": 0}, {"tau": 1.1}, {"step": 0}, {"soft": True, "values": True}]
)
def test_nonsense_is_refused_before_anything_is_asked(wrong: dict[str, float]) -> None:
    target = Rule()
    with pytest.raises(UsageError):
        stand_in(_bench(target), Extraction(**wrong), RNG)  # type: ignore[arg-type]
    assert not target.asked


@pytest.mark.parametrize(("net", "why"), [("lenet55", "lenet5"), ("lenet5", "LeNet")])
def test_a_net_that_cannot_be_built_is_refused_before_anything_is_asked(net: str, why: str) -> None:
    target = Rule()
    with pytest.raises(UsageError, match=why):
        stand_in(_bench(target), Extraction(net), RNG)
    assert not target.asked


def test_who_wants_the_net_may_refuse_it_before_anything_is_asked() -> None:
    target = Rule()

    def no(net: nn.Module) -> None:
        raise UsageError(f"not with {sum(1 for _ in net.parameters())} weights")

    with pytest.raises(UsageError, match=r"not with \d+ weights"):
        stand_in(_bench(target), Extraction("mlp"), RNG, fits=no)
    assert not target.asked


def test_a_round_goes_on_from_the_weights_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[Tensor] = []
    ended: list[Tensor] = []

    def watched(net: nn.Module, *args: object) -> nn.Module:
        began.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
        made = taught(net, *args)  # type: ignore[arg-type]
        ended.append(torch.cat([p.detach().flatten() for p in made.parameters()]))
        return made

    monkeypatch.setattr(module, "taught", watched)
    stand_in(_bench(), Extraction("mlp", tau=1.0, rounds=3, start=60, checked_on=90, epochs=1), RNG)
    assert len(began) == 3
    assert began[1].equal(ended[0])
    assert began[2].equal(ended[1])


def test_probabilities_are_learned_as_they_are() -> None:
    scores = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    task = _task(Answers.of(scores, Extraction(soft=True)))
    assert task is not None
    net = nn.Identity()
    x = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, 0.0]])
    loss = task.loss(net, x, scores.argmax(1), torch.tensor([0, 1]))
    assert float(loss) == pytest.approx(float(-(scores.softmax(1) * x.log_softmax(1)).sum(1).mean()))
    assert _task(Answers.of(scores, Extraction())) is None


def test_at_least_a_twentieth_is_moved_in_a_round() -> None:
    how = Extraction("mlp", tau=1.0, rounds=2, start=400, checked_on=90, epochs=30, lr=1e-2)
    made = stand_in(_bench(n=3000), how, RNG)
    assert made.log[0]["agreement"] > 0.97  # hardly any dispute
    assert 1200 + 50 <= made.log[1]["learned_from"] <= 1200 + 70


def test_the_same_budget_again_makes_the_same_stand_in(tmp_path: Path) -> None:
    """Whatever was asked since the first time: what it has learned from is known, and costs nothing."""
    how = Extraction("mlp", tau=1.0, rounds=6, start=60, checked_on=40, epochs=2)
    logs, weights = [], []
    for _ in range(2):
        target = Asked(Rule(), queries=260)
        target.keep(tmp_path / "answers.jsonl")
        made = stand_in(_bench(target), how, RNG)
        left = target.affordable()
        assert left is not None
        if left:
            target(_data(left, seed=77).cases.x)  # something else takes the rest
        logs.append(made.log)
        weights.append(torch.cat([p.flatten() for p in made.net.parameters()]))
        assert made.cut
        assert target.queries.asked == 260
    assert logs[0] == logs[1]
    assert weights[0].equal(weights[1])


def test_an_uncut_stand_in_says_so() -> None:
    assert not stand_in(_bench(), SMALL, RNG).cut
    assert not stand_in(_bench(Asked(Rule(), queries=5000)), SMALL, RNG).cut
