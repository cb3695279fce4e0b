"""Evaluating and fuzzing what only answers: refused before the run or working, counted, and resumed without asking."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.cases import Cases, InputSpec
from assay.core.errors import BudgetSpent, NoAnswer, UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind, entries, names
from assay.engines.attack import attack
from assay.engines.checks import not_made
from assay.engines.coverage import coverage
from assay.engines.evaluate import evaluate
from assay.engines.fuzz import fuzz
from assay.engines.health import check_trust
from assay.engines.prioritise import prioritise
from assay.engines.select import select
from assay.engines.shrink import shrink
from assay.engines.transfer import transfer
from assay.recipes.fitting import recipes_for, suites_for
from assay.subjects.bench import Bench, Data
from assay.subjects.counted import Counted
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Need, require

Make = Callable[..., ModuleTarget]
Inputs = NDArray[np.float32]


class Box:
    """A model of which nothing is known but what it answers; it remembers what it was asked."""

    def __init__(self, target: ModuleTarget, *, labels: bool = False, flaky: float = 0.0) -> None:
        self.target, self.labels, self.flaky = target, labels, flaky
        self.dice = np.random.default_rng(0)
        self.asked: Counter[bytes] = Counter()

    def __call__(self, x: Inputs) -> NDArray[Any]:
        self.asked.update(row.tobytes() for row in x)
        with torch.no_grad():
            told: NDArray[Any] = self.target(torch.from_numpy(x)).softmax(1).numpy()
        labels: NDArray[Any] = told.argmax(1)
        noise = self.dice.random(len(labels)) < self.flaky
        return np.where(noise, (labels + 1) % told.shape[1], labels) if self.labels or self.flaky else told


@pytest.fixture
def digits(digits_model: str) -> ModuleTarget:
    target = load_target(digits_model, device="cpu")
    assert isinstance(target, ModuleTarget)
    return target


DATA = "digits/test[:24]"
SOME = "square(queries=30)"


# What would work ----------------------------------------------------------------------------------------------------


def giving(target: ModuleTarget, *gives: Need) -> ModuleTarget:
    target.gives = frozenset(gives)
    return target


def test_a_refusal_names_what_would_work(linear_target: Make) -> None:
    by_label = giving(linear_target(), "label")
    with pytest.raises(UsageError) as told:
        require(by_label, ("grad",), "attack 'pgd'")
    assert str(told.value) == (
        "attack 'pgd' needs grad, this target gives label only; would work: boundary, corrupt, hop_skip_jump"
    )
    with pytest.raises(UsageError, match=r"would work: .*\blbt\b.*\brandom\b") as told:
        require(by_label, ("prob",), "score 'gini'")
    assert "top" not in str(told.value), "its usual score is gini"
    by_share = giving(linear_target(), "label", "prob")
    with pytest.raises(UsageError, match=r"would work: .*entropy, gini, .*max_p"):
        require(by_share, ("activation",), "score 'dsa'")
    with pytest.raises(UsageError, match=r"only; would work: a, b$"):
        require(by_share, ("grad",), "recipe 'robot'", lambda _: "would work: a, b")
    with pytest.raises(UsageError, match=r"label, prob only$"):
        require(by_share, ("activation",), "looking at neurons")
    by_share.name = "model.onnx"  # type: ignore[attr-defined]  # as targets of files have
    with pytest.raises(UsageError, match="; --white-box turns"):
        require(Counted(by_share), ("activation",), "looking at neurons")


def test_what_is_named_does_work(linear_target: Make) -> None:
    """Everything that a label-only and a probability-only target are told to use instead."""
    x, y = torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    for gives in (("label",), ("label", "prob")):
        for entry in entries("attack"):
            if not set(entry.needs) <= set(gives):
                continue
            box = Box(linear_target(), labels=gives == ("label",))
            made = attack(entry.name, box, x, y, eps=0.3, norm="l2" if entry.name == "boundary" else None)
            assert made.x.shape == x.shape
            assert sum(box.asked.values()) > 0


def test_suites_and_recipes_by_what_they_need() -> None:
    assert suites_for(("label",)) == ["corruptions", "label-only"]
    assert suites_for(("label", "prob")) == ["black-box", "corruptions", "label-only"]
    assert "noise" in recipes_for(("label",))
    assert not {"robot", "lbt", "dare", "twinfuzz", "tensorfuzz"} & set(recipes_for(("label", "prob")))


# Needs --------------------------------------------------------------------------------------------------------------


class Shifted:
    """The same answers, another number added to the scores of each row: a target that gives log p is one of these."""

    def __init__(self, target: ModuleTarget) -> None:
        self.target, self.spec, self.gives, self.device = target, target.spec, target.gives, target.device
        self.ready, self.fingerprint = target.ready, target.fingerprint

    def __call__(self, x: Tensor) -> Tensor:
        return self.target(x) - 3 * x.flatten(1).sum(1, keepdim=True)


def scored(name: str, target: Any) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    cases = Cases.of(torch.rand(20, 1, 4, 4, generator=rng), torch.randint(3, (20,), generator=rng))
    roles = {"sibling1": target}
    made: Tensor = bind("score", name, {})(Bench(target, roles), cases)
    return made


@pytest.mark.parametrize("name", [e.name for e in entries("score") if set(e.needs) <= {"label", "prob", "siblings"}])
def test_scores_that_need_probabilities_look_at_nothing_else(name: str, linear_target: Make) -> None:
    target = linear_target()
    assert torch.allclose(scored(name, Shifted(target)), scored(name, target), atol=1e-4)


def test_those_that_need_logits_look_at_more(linear_target: Make) -> None:
    target = linear_target()
    for entry in (e for e in entries("score") if "logit" in e.needs):
        weight = scored(entry.name, Shifted(target)) - scored(entry.name, target)
        assert weight.abs().max() > 0.1 or entry.name == "disagreement"  # whose two models shift alike
    by_share = Bench(giving(target, "label", "prob"))
    with pytest.raises(UsageError, match="needs logit"):
        bind("score", "rivals", {"logits": True})(by_share, Cases.of(torch.rand(2, 1, 4, 4), torch.zeros(2).long()))


@pytest.mark.parametrize("name", ["square", "spatial"])
def test_attacks_by_probabilities_look_at_nothing_else(name: str, linear_target: Make) -> None:
    target, rng = linear_target((1, 6, 6)), torch.Generator().manual_seed(0)
    x = torch.rand(6, 1, 6, 6, generator=rng)
    y = target(x).argmax(1)
    made = [
        bind("attack", name, {}, {"eps": 0.1, "queries": 50})(model, x, y, rng=Stream(0).rows(torch.arange(6)))
        for model in (target, Shifted(target))
    ]
    assert torch.allclose(made[0], made[1], atol=1e-5)


# Evaluating ---------------------------------------------------------------------------------------------------------


def test_an_evaluation_by_answers_is_that_of_the_net(digits: ModuleTarget) -> None:
    box = Box(digits)
    black = evaluate(box, DATA, suite=f"{SOME}, hop_skip_jump(queries=60)", eps=0.2, batch=8)
    white = evaluate(digits, DATA, suite=f"{SOME}, hop_skip_jump(queries=60)", eps=0.2, batch=8)
    assert (black.access, white.access) == ("black box", "white box")
    assert black.clean == white.clean
    assert black.attacks["square"].broken == white.attacks["square"].broken > 0
    assert set(box.asked.values()) == {1}
    assert black.queries is not None
    assert black.queries["asked"] == len(box.asked)
    assert white.queries is None
    assert black.not_made["zero_gradient"] == "needs grad"
    assert white.not_made == {}
    told = black.to_json()
    assert (told["complete"], told["access"]) == (True, "black box")
    assert told["checks_not_made"] == black.not_made


def test_attacks_that_climb_are_refused_before_anything_is_asked(digits: ModuleTarget) -> None:
    box = Box(digits, labels=True)
    with pytest.raises(UsageError, match=r"attack 'fgsm' needs grad.*hop_skip_jump.*suites: .*label-only"):
        evaluate(box, DATA, suite="fast", eps=0.1, save="none")
    with pytest.raises(UsageError, match="needs grad"):
        evaluate(box, DATA, suite="fast", eps=0.1, save="none")
    assert sum(box.asked.values()) == 1, "what it answers with had to be seen, and was kept"
    assert not Path("runs/none/journal.jsonl").exists()
    with pytest.raises(UsageError, match="looking at neurons needs activation"):
        coverage(box, DATA)
    with pytest.raises(UsageError, match="attack 'pgd' needs grad"):
        transfer([digits, box], DATA, eps=0.1)


def test_a_budget_ends_an_evaluation_and_a_larger_one_goes_on(digits: ModuleTarget) -> None:
    how: dict[str, Any] = {"suite": SOME, "eps": 0.2, "batch": 8}
    alone = evaluate(Box(digits), DATA, **how)
    assert alone.queries is not None
    box, whole = Box(digits), alone.queries["asked"]
    with pytest.raises(BudgetSpent):
        evaluate(box, DATA, **how, save="run", queries=40)
    assert 0 < sum(box.asked.values()) <= 40
    part = evaluate(box, DATA, **how, save="run", queries=whole * 2 // 3)
    assert not part.complete
    assert part.clean.n == part.protocol["n"] in (8, 16)
    assert sum(box.asked.values()) <= whole * 2 // 3
    assert part.warnings == []
    assert "the budget of queries is spent" in part.not_made.values()
    last = evaluate(box, DATA, **how, save="run", queries=whole)
    assert last.complete
    assert (last.clean, last.worst, last.not_made) == (alone.clean, alone.worst, alone.not_made)
    assert set(box.asked.values()) == {1}, "over all three"
    assert last.queries is not None
    assert last.queries["asked"] == sum(box.asked.values()) == whole
    with pytest.raises(UsageError, match="cannot be compared"):
        part.compared(last)


def test_a_budget_that_ends_in_the_checks_keeps_the_numbers(digits: ModuleTarget) -> None:
    how: dict[str, Any] = {"suite": SOME, "eps": 0.2}
    whole = evaluate(Box(digits), DATA, **how)
    assert whole.queries is not None
    result = evaluate(Box(digits), DATA, **how, queries=whole.queries["asked"] - 1)
    assert result.complete
    assert result.worst == whole.worst
    assert result.not_made["nonfinite"] == "the budget of queries is spent"


def test_another_rate_is_the_same_run_but_repeats_are_another(digits: ModuleTarget) -> None:
    box = Box(digits)
    how: dict[str, Any] = {"suite": SOME, "eps": 0.2, "save": "run"}
    first = evaluate(box, DATA, **how, ask="batch=8")
    again = evaluate(box, DATA, **how, ask="batch=16, rate=100000")
    assert again.worst == first.worst
    assert set(box.asked.values()) == {1}
    with pytest.raises(UsageError, match="another configuration"):
        evaluate(box, DATA, **how, ask="repeats=2")


def test_what_repeats_show_is_a_warning(digits: ModuleTarget) -> None:
    shaky, firm = Box(digits, labels=True, flaky=0.3), Box(digits, labels=True)
    told = check_trust(shaky, DATA, eps=0.1, ask="repeats=3")
    assert "randomised" in told["checks"]
    assert [w["name"] for w in told["warnings"]][-1] == "randomised"
    assert told["queries"]["unsteady"] > 0
    told = check_trust(firm, DATA, eps=0.1, ask="repeats=3")
    assert "randomised" in told["checks"]
    assert not told["unreliable"]
    told = check_trust(firm, DATA, eps=0.1)
    assert "repeats=3" in told["not_applicable"]["randomised"]
    assert told["not_applicable"]["zero_gradient"] == "needs grad"
    assert {*told["checks"], *told["not_applicable"]} == set(names("check"))


def test_examples_carry_over_to_what_only_answers(digits: ModuleTarget) -> None:
    told = transfer([digits, Box(digits)], DATA, suite="corrupt(kind=gaussian_noise, severity=5)")
    assert told.fooled["model 1"]["model 2"] == told.white_box["model 1"], "it is the same net behind its answers"
    assert told.white_box["model 1"].right > 0


# Attacking and fuzzing ----------------------------------------------------------------------------------------------


def test_one_attack_on_a_function(digits: ModuleTarget) -> None:
    cases = load_data(DATA).cases
    made = attack("square(queries=60)", Box(digits), cases.x, cases.y, eps=0.3)
    assert 0 < int(made.info["success"].sum()) <= 24
    assert torch.equal(digits(made.x).argmax(1), made.info["pred"])
    with pytest.raises(BudgetSpent):
        attack("square(queries=60)", Box(digits), cases.x, cases.y, eps=0.3, queries=100)
    few = cases[cases.y < 2]
    made = attack("boundary(queries=60)", Box(digits, labels=True), few.x, few.y, norm="l2", ask="classes=10")
    assert bool(made.info["success"].any())


@pytest.mark.parametrize("labels", [False, True], ids=["shares", "labels"])
def test_a_budget_ends_a_fuzzing_run_and_a_larger_one_goes_on(labels: bool, digits: ModuleTarget) -> None:
    how: dict[str, Any] = {"eps": 0.25, "unit": 8, "lanes": 24, "changes": {"schedule.steps": 20}}
    data = load_data("digits/train[:60]")
    alone = fuzz("noise", Box(digits, labels=labels), data, run="alone", **how)
    assert alone.complete
    assert alone.queries is not None
    box, whole = Box(digits, labels=labels), alone.queries["asked"]
    none = fuzz("noise", box, data, run="run", **how, queries=20, ask="batch=20")
    assert (none.complete, none.cases, none.failures) == (False, 0, 0)
    assert sum(box.asked.values()) <= 20
    part = fuzz("noise", box, data, run="run", **how, queries=whole // 2)
    assert not part.complete
    assert 0 < part.cases < alone.cases
    assert sum(box.asked.values()) <= whole // 2
    last = fuzz("noise", box, data, run="run", **how, queries=whole)
    assert last.complete
    assert (last.cases, last.failures, last.seeds) == (alone.cases, alone.failures, alone.seeds)
    assert set(box.asked.values()) == {1}
    assert last.queries is not None
    assert last.queries["asked"] == sum(box.asked.values()) == whole
    assert (digits(last.load().x).argmax(1) != last.load().y).all()
    mine, theirs = ({row.numpy().tobytes() for row in found.load().x} for found in (last, alone))
    assert mine == theirs


def test_a_recipe_that_climbs_is_refused_naming_those_that_do_not(digits: ModuleTarget) -> None:
    with pytest.raises(UsageError, match=r"recipe 'robot' needs grad, this target .* would work: .*\bnoise\b"):
        fuzz("robot", Box(digits), DATA, eps=0.1, run="none")
    assert not Path("runs/none/journal.jsonl").exists()


def test_queries_make_a_black_box_of_any_model(digits_model: str) -> None:
    found = fuzz("noise", digits_model, "digits/train[:40]", eps=0.25, run="counted", queries=10_000)
    assert found.queries is not None
    assert found.queries["asked"] <= 10_000
    with pytest.raises(UsageError, match="needs grad"):
        evaluate(digits_model, DATA, suite="fast", eps=0.1, queries=10_000)


def test_an_empty_data_set_names_no_classes(linear_target: Make) -> None:
    box, x = Box(linear_target()), torch.rand(0, 1, 4, 4)
    spec = InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b", "c"))
    target = load_target(box, data=Data("none", Cases.of(x), spec))
    assert target.spec == spec
    assert target(x).shape == (0, 3)


# What a budget holds for --------------------------------------------------------------------------------------------


def test_a_question_to_see_counts_over_commands_that_come_to_nothing(digits: ModuleTarget) -> None:
    sent = 0

    def broken(x: Inputs) -> Any:
        nonlocal sent
        sent += len(x)
        raise OSError("out of order")

    how: dict[str, Any] = {"suite": SOME, "eps": 0.2, "save": "run", "queries": 3, "ask": "retries=1"}
    with pytest.raises(NoAnswer):
        evaluate(broken, DATA, **how)
    assert sent == 2
    for _ in range(2):
        with pytest.raises(BudgetSpent):
            evaluate(broken, DATA, **how)
    assert sent == 3
    assert not Path("runs/run/journal.jsonl").exists()


def test_a_run_whose_target_did_not_answer_at_first_goes_on(digits: ModuleTarget) -> None:
    """With more classes than the data name: what it is known by changes with its first answer."""
    data = load_data(DATA)
    data = replace(data, spec=replace(data.spec, classes=()), cases=Cases.of(data.cases.x, data.cases.y))
    box, well = Box(digits), False

    def shy(x: Inputs) -> Any:
        if not well:
            raise OSError("not yet")
        return box(x)

    target: Any = shy  # any function will do
    how: dict[str, Any] = {"by": "gini", "run": "run", "queries": 100}
    with pytest.raises(NoAnswer):
        prioritise(target, data, **how)
    well = True
    first = prioritise(target, data, **how)
    assert first.queries is not None
    assert (first.queries["asked"], first.queries["retries"]) == (sum(box.asked.values()) + 1, 1)
    assert prioritise(target, data, **how).queries == {**first.queries, "known": 24}
    assert set(box.asked.values()) == {1}


PREDICT = """
import numpy as np
from assay.subjects.sources.load import load_target
import torch
net = load_target({model!r}, device="cpu")
def predict(x):
    with open("sent", "a") as out:
        out.write("x" * len(x))
    with torch.no_grad():
        return net(torch.from_numpy(x)).softmax(1).numpy()
"""


def sent() -> int:
    return len(Path("sent").read_text())


@pytest.fixture
def fuzzed(digits_model: str) -> int:
    """A run on a function of a file, and what it was asked by it."""
    Path("my.py").write_text(PREDICT.format(model=digits_model))
    found = fuzz("noise", "call:my.py:predict", "digits/train[:40]", run="fuzzed", eps=0.3, queries=400)
    assert found.failures > 0
    assert found.queries is not None
    assert found.queries["asked"] == sent() <= 400
    return sent()


def test_a_selection_asks_within_the_budget_of_its_run_and_keeps_answers(fuzzed: int) -> None:
    picked = select("fuzzed", by="top(score=gini)", k=2)
    assert len(picked) == 2
    assert sent() == fuzzed, "every case was answered when it was found, and what it answers with is known"
    Path("runs/fuzzed/answers.jsonl").unlink()
    with pytest.raises(BudgetSpent):
        select("fuzzed", by="top(score=gini)", k=3, queries=2)
    assert sent() <= fuzzed + 2
    select("fuzzed", by="top(score=gini)", k=3, model="call:my.py:predict", ask="repeats=2")
    assert sent() > fuzzed + 2, "asked in another way it is not the run's own"


def test_shrinking_holds_to_the_budget_of_its_run(fuzzed: int) -> None:
    with pytest.raises(BudgetSpent):
        shrink("fuzzed")
    assert sent() <= 400
    with pytest.raises(BudgetSpent):
        shrink("fuzzed", queries=fuzzed + 5)
    assert sent() <= fuzzed + 5
    whole = shrink("fuzzed", queries=1_000_000)
    assert whole.complete
    assert whole.queries is not None
    assert whole.queries["asked"] == sent()
    assert whole.queries["limit"] == 1_000_000


def test_a_shrinking_whose_budget_ends_keeps_its_blocks(fuzzed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.engines.shrink.BLOCK", {"cpu": 2})
    part = None
    for limit in range(fuzzed + 200, fuzzed + 100_000, 200):
        with suppress(BudgetSpent):
            part = shrink("fuzzed", queries=limit)
            break
    assert part is not None
    assert (part.complete, part.of % 2) == (False, 0)
    assert part.of > 0
    last = shrink("fuzzed", queries=1_000_000)
    assert last.complete
    assert last.number == part.number
    assert last.of > part.of


def test_checks_that_would_leave_the_range_are_not_made(digits: ModuleTarget) -> None:
    assert not_made(load_target(Box(digits), data=load_data(DATA)))["wrong_range"] == (
        "would send inputs outside their range"
    )
    assert "wrong_range" not in not_made(digits)
