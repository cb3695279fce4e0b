"""How sure a model is of its class: a probability, whatever form its answers have."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import assay
from assay.core.cases import Cases
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import confidence


@dataclass
class Gives:
    """A target of which only what it gives is asked."""

    gives: frozenset[str] = field(default_factory=lambda: frozenset({"logit"}))


def told(scores: list[list[float]], *gives: str) -> list[float]:
    target: Any = Gives(frozenset(gives or ("logit",)))
    return [float(value) for value in confidence(target, torch.tensor(scores))]


def test_logits_and_their_logarithms_give_the_softmax() -> None:
    assert told([[0.0, 0.0], [1.0986123, 0.0]]) == pytest.approx([0.5, 0.75])
    assert told([[-0.2876821, -1.3862944]], "prob") == pytest.approx([0.75])


def test_what_are_probabilities_already_is_taken_as_such_row_by_row() -> None:
    assert told([[0.9, 0.1], [2.0, 0.0]]) == pytest.approx([0.9, 0.881])


def test_labels_alone_and_answers_that_are_none_tell_nothing() -> None:
    assert all(value != value for value in told([[1.0, 0.0]], "label"))
    unsure = told([[float("nan"), 0.0], [float("inf"), 0.0], [3.0, 0.0]])
    assert [value == value for value in unsure] == [False, False, True]


def test_a_stored_failure_says_how_sure_the_model_was(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target()
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(40, 1, 4, 4, generator=rng)
    data = assay.Data("made", Cases.of(x, target(x).argmax(1)), target.spec)
    found = assay.fuzz("noise", target, data, run="sure", eps=0.5)
    cases = found.load()
    assert len(cases) > 5
    wanted = target(cases.x).softmax(1).amax(1)
    torch.testing.assert_close(cases.info["confidence"], wanted, atol=6e-4, rtol=0)
