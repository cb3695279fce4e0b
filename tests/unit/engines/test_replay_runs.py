"""Replaying runs: that they stay as they are, what is damaged or under way, and models that only answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import assay
from answers import planted_target
from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import BudgetSpent, Interrupted, ModelFailed, UsageError
from assay.core.ids import case_ids
from assay.engines.found import load_failures
from assay.engines.replay import replay
from assay.subjects.sources.load import load_target
from commands import tree

RUNS = Path("runs")


@pytest.fixture
def failures(digits_model: str) -> Cases:
    """Those of a run called first."""
    assay.fuzz("noise", digits_model, "digits/train[:60]", run="first", eps=0.4)
    return load_failures(store.read(RUNS / "first"))


def unlocked(run: Path) -> dict[str, bytes | None]:
    """What a run folder holds besides its lock."""
    return {name: part for name, part in tree(run).items() if name != "LOCK"}


# Runs ---------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_and_nobody_waits(failures: Cases) -> None:
    before = unlocked(RUNS / "first")
    with store.continued(RUNS / "first"):
        replay("first", k=2)
    assert unlocked(RUNS / "first") == before


def test_of_a_damaged_run_what_is_good(failures: Cases, caplog: pytest.LogCaptureFixture) -> None:
    with store.continued(RUNS / "first") as run:
        shard = next(run.file(n) for line in run.commits("fuzz") for n in line.files if "cases/" in n)
        run.commit({"flaky/step-900000.safetensors": shard}, kind="fuzz", unit=99, rows=[], counts={}, kept={})
    (RUNS / "first" / "flaky" / "step-900000.safetensors").write_bytes(shard[:-1])
    assert len(replay("first", flaky=True)) == len(failures)
    assert "flaky/step-900000.safetensors: missing or changed" in caplog.text
    (RUNS / "first" / "journal.jsonl").write_bytes(b"{}\n")
    with pytest.raises(UsageError, match="holds no run that can be read"):
        replay("first")


def test_runs_without_failures_of_their_own_are_refused(failures: Cases, digits_model: str) -> None:
    assay.prioritise(digits_model, "digits/test[:30]", by="gini", run="order")
    with pytest.raises(UsageError, match="of kind prioritise and keeps no failures"):
        replay("order")
    with pytest.raises(UsageError, match="no run 'nothing'"):
        replay("nothing")


def test_ctrl_c_says_that_nothing_is_kept(failures: Cases) -> None:
    heard: list[Mapping[str, Any]] = []

    def tell(numbers: Mapping[str, Any]) -> None:
        heard.append(numbers)
        if len(heard) == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=f"stopped after 3 of {len(failures)} failures"):
        replay("first", progress=tell)
    assert heard[-1] == {"done": 3, "of": len(failures), "still": 3}


# What only answers --------------------------------------------------------------------------------------------------


class Box:
    """A model that only answers, right every other time."""

    def __init__(self, model: str) -> None:
        self.target, self.asked = load_target(model, device="cpu"), 0

    def __call__(self, x: NDArray[np.float32]) -> NDArray[Any]:
        self.asked += len(x)
        with torch.no_grad():
            told: NDArray[Any] = self.target(torch.from_numpy(x)).softmax(1).numpy()
        return told


def test_a_black_box_is_really_asked_each_time(digits_model: str) -> None:
    box = Box(digits_model)
    assay.fuzz("noise", box, "digits/train[:20]", run="box", eps=0.4, queries=400)
    before, asked = unlocked(RUNS / "box"), box.asked
    told = replay("box", model=load_target(box, data=assay.load_data("digits/train[:20]")), repeats=4)
    assert told.counts()["still_failing"] == told.of > 0
    assert told.queries is not None
    assert box.asked - asked == told.queries["asked"]
    assert told.queries["asked"] - 4 * told.of in (0, 1), "and perhaps one to see what it answers with"
    assert unlocked(RUNS / "box") == before


def test_a_budget_ends_it_and_those_before_have_their_verdicts(digits_model: str) -> None:
    box = Box(digits_model)
    assay.fuzz("noise", box, "digits/train[:20]", run="box", eps=0.4, queries=400)
    target = load_target(digits_model, ask="labels=true", queries=8)
    told = replay("box", model=target)
    assert (len(told), told.complete) == (2, False)
    assert told.of > 2
    assert told.failures[0].confidence is None, "a label is no probability"
    assert told.queries is not None
    assert told.queries["asked"] == 8
    with pytest.raises(BudgetSpent):
        replay("box", model=load_target(digits_model, queries=2))


def test_a_text_that_names_a_black_box_is_asked_without_touching_its_book(digits_model: str) -> None:
    assay.fuzz("noise", digits_model, "digits/train[:20]", run="asked", eps=0.4, queries=400, ask="labels=true")
    book = (RUNS / "asked" / "answers.jsonl").read_bytes()
    told = replay("asked", k=3)
    assert told.queries is not None
    assert (told.queries["asked"], told.queries["limit"]) == (9, None), "its own count and no limit but --queries"
    assert (RUNS / "asked" / "answers.jsonl").read_bytes() == book


def test_a_model_that_raises_ends_it_and_the_failure_is_named(failures: Cases) -> None:
    target = planted_target(failures, [[0]])

    def broken(*_: object) -> None:
        raise ValueError("no such input")

    target.module.register_forward_pre_hook(broken)
    with pytest.raises(ModelFailed, match=f"no such input; it was asked failure {case_ids(failures)[0]}"):
        replay("first", model=target)
