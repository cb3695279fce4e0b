"""A target whose every question is counted and answered once."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.cases import InputSpec
from assay.core.errors import BudgetSpent, NoAnswer, UsageError
from assay.subjects.asked import Asked
from assay.subjects.sources.answering import Answering, Inputs
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.sources.patience import Patience, TryAgain

SPEC = InputSpec((2,), (0.0, 1.0), ("a", "b", "c"))
FILE = Path("answers.jsonl")


class Service:
    """Probabilities that depend on the input alone, a log of every input received, and troubles on demand."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.calls = 0
        self.trouble: Callable[[int], None] = lambda call: None

    def __call__(self, rows: Inputs) -> NDArray[np.float64]:
        self.calls += 1
        self.received += [row.tobytes() for row in rows]
        self.trouble(self.calls)
        first = 0.2 + 0.5 * rows[:, 0]
        return np.stack([first, 0.7 * (1 - first), 0.3 * (1 - first)], 1)


def target(service: Callable[[Inputs], object], *, batch: int = 4, retries: int = 0) -> Answering:
    patience = Patience(retries, sleep=lambda _: None)
    return Answering(service, SPEC, name="it", identity="service", batch=batch, patience=patience)


def inputs(n: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + n).float()[:, None].expand(n, 2) / 100


def expected(x: Tensor) -> Tensor:
    return torch.from_numpy(Service()(x.numpy()))


def test_each_input_is_sent_once_however_often_it_is_asked() -> None:
    service = Service()
    asked = Asked(target(service))
    x = inputs(6)
    twice = torch.cat([x, x.flip(0)])
    out = asked(twice)
    assert torch.allclose(out.softmax(1), expected(twice).float())
    assert torch.equal(asked(x[2:4]), out[2:4])
    assert len(service.received) == len(set(service.received)) == 6
    assert service.calls == 2  # four, and two
    assert asked.queries.to_json() == {"limit": None, "asked": 6, "first": 6, "retries": 0, "repeats": 0, "known": 8}


def test_the_budget_is_spent_to_the_last_and_never_exceeded() -> None:
    service = Service()
    asked = Asked(target(service), queries=10)
    with pytest.raises(BudgetSpent, match="10 were asked, 10 more are wanted") as spent:
        asked(inputs(20))
    assert (spent.value.asked, spent.value.wanted) == (10, 10)
    assert len(service.received) == 10
    assert asked.affordable() == 0
    asked(inputs(10))  # known
    assert len(service.received) == 10


def test_no_input_is_begun_whose_repeats_the_budget_does_not_hold() -> None:
    service = Service()
    asked = Asked(target(service), queries=11, repeats=3)
    with pytest.raises(BudgetSpent, match="9 were asked, 6 more are wanted"):
        asked(inputs(5))
    assert sorted(service.received.count(row) for row in set(service.received)) == [3, 3, 3]


def test_retries_count_before_they_are_made() -> None:
    service = Service()

    def trouble(call: int) -> None:
        if call in (1, 2):
            raise TryAgain("is ill")

    service.trouble = trouble
    asked = Asked(target(service, retries=5))
    asked(inputs(4))
    assert (asked.queries.first, asked.queries.retries) == (4, 8)
    assert len(service.received) == asked.queries.asked == 12
    service.calls, service.received = 0, []
    tight = Asked(target(service, retries=5), queries=10)
    with pytest.raises(BudgetSpent):
        tight(inputs(4, start=10))
    assert len(service.received) == tight.queries.asked == 8


def test_a_question_that_failed_for_good_remains_counted() -> None:
    service = Service()

    def trouble(call: int) -> None:
        raise TryAgain("is ill")

    service.trouble = trouble
    asked = Asked(target(service, retries=1))
    with pytest.raises(NoAnswer, match=r"it is ill \(2 attempts\); what it answered before is kept"):
        asked(inputs(3))
    assert asked.queries.to_json()["asked"] == asked.queries.retries == 6


def test_repeats_average_probabilities() -> None:
    answers = iter([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.3, 0.3, 0.4]])
    asked = Asked(target(lambda rows: np.array([next(answers)])), repeats=3, queries=5)
    assert asked.affordable() == 1
    out = asked(inputs(1)).softmax(1)
    assert torch.allclose(out, torch.tensor([[0.3, 0.3, 0.4]]))
    assert asked.unsteady == 1
    assert (asked.queries.first, asked.queries.repeats) == (1, 2)


def test_labels_go_by_majority_and_of_equals_the_lowest() -> None:
    turns = iter([[2, 1, 0], [2, 0, 0], [1, 2, 0], [0, 2, 0]])
    asked = Asked(target(lambda rows: np.array(next(turns))), repeats=4)
    out = asked(inputs(3))
    assert torch.equal(out, torch.eye(3)[[2, 2, 0]])
    tied = iter([[2], [1]])
    assert Asked(target(lambda rows: np.array(next(tied))), repeats=2)(inputs(1)).argmax(1).tolist() == [1]
    assert asked.unsteady == 2


def test_repeats_that_were_interrupted_are_made_up_for() -> None:
    service = Service()

    def trouble(call: int) -> None:
        if call == 3:
            raise TryAgain("fell over")

    service.trouble = trouble
    asked = Asked(target(service), repeats=2)
    asked.keep(FILE)
    with pytest.raises(NoAnswer):
        asked(inputs(8))  # four twice, then four that get no answer
    again = Asked(target(service), repeats=2)
    again.keep(FILE)
    again(inputs(8))
    assert len(service.received) == again.queries.asked == 20
    assert (again.queries.first, again.queries.repeats, again.queries.retries) == (8, 8, 4)


def test_a_second_life_asks_only_what_is_new() -> None:
    service = Service()
    asked = Asked(target(service), queries=8)
    asked.keep(FILE)
    with pytest.raises(BudgetSpent):
        asked(inputs(12))
    again = Asked(target(service), queries=100)
    again.keep(FILE)
    out = again(inputs(12))
    assert torch.allclose(out.softmax(1), expected(inputs(12)).float())
    assert len(service.received) == len(set(service.received)) == again.queries.asked == 12
    assert again.queries.known == 8


def test_labels_hide_probabilities() -> None:
    asked = Asked(target(Service()), labels=True)
    assert asked.gives == {"label"}
    x = inputs(3)
    assert torch.equal(asked(x), torch.eye(3)[expected(x).argmax(1)])
    assert all(set(row.tolist()) == {0.0, 1.0} for answers in asked.book.all() for row in answers)


def test_a_live_module_shows_no_more_than_a_black_box(linear_target: Callable[..., ModuleTarget]) -> None:
    module = linear_target()
    asked = Asked(module, queries=10)
    x = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert asked.gives == {"label", "prob"}
    assert torch.allclose(asked(x), module(x).log_softmax(1), atol=1e-5)
    assert not asked(x.requires_grad_()).requires_grad


def test_scores_are_finite_where_probabilities_vanish() -> None:
    asked = Asked(target(lambda rows: np.array([[1.0, 0.0, 0.0]] * len(rows))))
    out = asked(inputs(2))
    assert torch.allclose(out[0], torch.tensor([0.0, np.log(1e-12), np.log(1e-12)], dtype=torch.float32))


def test_a_book_belongs_to_a_target_and_to_the_way_it_is_asked() -> None:
    Asked(target(Service())).keep(FILE)
    Asked(target(Service()), queries=7).keep(FILE)  # a budget changes nothing
    for other in (Asked(target(Service()), repeats=2), Asked(target(Service()), labels=True)):
        with pytest.raises(UsageError, match="asked in another way"):
            other.keep(FILE)


def test_an_empty_batch_is_no_question() -> None:
    asked = Asked(target(Service()))
    assert asked(inputs(0)).shape == (0, 3)
    assert asked.queries.asked == 0


@pytest.mark.parametrize("repeats", [0, 1.5, True])
def test_repeats_are_a_number_from_one_up(repeats: object) -> None:
    with pytest.raises(UsageError, match="from 1 up"):
        Asked(target(Service()), repeats=repeats)  # type: ignore[arg-type]  # that is the point


def test_an_interrupted_question_remains_counted() -> None:
    def interrupted(rows: Inputs) -> object:
        raise KeyboardInterrupt

    asked = Asked(target(interrupted), queries=9)
    asked.keep(Path("answers.jsonl"))
    with pytest.raises(KeyboardInterrupt):
        asked(inputs(3))
    assert (asked.queries.first, asked.queries.retries, asked.queries.asked) == (0, 3, 3)
    again = Asked(target(interrupted), queries=9)
    again.keep(Path("answers.jsonl"))
    assert again.queries.to_json() == asked.queries.to_json()
