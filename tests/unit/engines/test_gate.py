"""The gate on nets known in closed form: what is met, not met, undecided, and refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.core.errors import UsageError
from assay.core.requirement import Clause
from assay.core.stats import tango, wilson
from assay.engines import gate_measure
from assay.engines.evaluation import Share
from assay.engines.gate_decide import Rules, count_row, share_row, unreliable
from assay.engines.gate_regressions import old_row, still_failing
from assay.engines.gate_result import Gate, GateRow
from assay.engines.regress import Regressed
from assay.engines.replay import FLAKY, Failure, Replayed
from assay.outputs.gate.table import gate_lines
from gates import BAD, DATA, NEW, OLD, inputs, live, prepare, right


@pytest.fixture(autouse=True)
def _files(_own_folder: None, tmp_path: Path) -> None:
    prepare(tmp_path)


def rows(gate: Gate) -> dict[str, GateRow]:
    return {row.name: row for row in gate.rows}


def test_a_gate_that_is_not_met_says_how_to_see_why() -> None:
    hint = "what fails is not kept: with --save NAME it is, and assay report NAME shows it"
    assert hint in gate_lines(assay.check(NEW, DATA, require="robust>=0.99", eps=0.05))
    assert hint not in gate_lines(assay.check(NEW, DATA, require="clean>=0.5, robust>=0.5", eps=0.05))
    assert hint not in gate_lines(assay.check(NEW, DATA, require="robust>=0.99", eps=0.05, save="kept"))


def test_numbers_of_a_model_are_those_it_has() -> None:
    gate = assay.check(NEW, DATA, require="clean>=0.8, robust>=0.5, fgsm>=0.2", eps=0.05)
    told = rows(gate)
    assert gate.met
    assert told["clean"].value == right("new").float().mean() == 0.895
    assert told["robust"].value == pytest.approx(float(right("new", 0.05).float().mean()))
    assert told["robust"].ci95 == wilson(148, 200)
    assert told["robust"].n == 200
    assert gate.failed == int((right("new") & ~right("new", 0.05)).sum())
    assert {failure.row for failure in gate.failures} == set(
        (right("new") & ~right("new", 0.05)).nonzero().flatten().tolist()
    )
    assert {failure.place for failure in gate.failures} == {DATA}
    assert gate.protocol["confidence"] == 0.95
    assert repr(gate) == "<gate met: clean>=0.8 met, robust>=0.5 met, fgsm>=0.2 met>"


@pytest.mark.parametrize(
    ("bound", "status"), [(0.6, "met"), (0.67, "met"), (0.7, "undecided"), (0.79, "undecided"), (0.81, "not met")]
)
def test_the_interval_decides(bound: float, status: str) -> None:
    """148 of 200 is 74 %, the interval 67.5 to 79.6 %."""
    gate = assay.check(NEW, DATA, require=f"robust>={bound}", eps=0.05)
    assert gate.rows[0].status == status
    assert gate.met == (status == "met")
    assert (gate.rows[0].needed is not None) == (status == "undecided")


def test_the_level_and_the_bare_number_are_for_who_wants_them() -> None:
    asked: Any = {"require": "robust>=0.71", "eps": 0.05}
    assert assay.check(NEW, DATA, **asked).rows[0].status == "undecided"
    assert assay.check(NEW, DATA, **asked, confidence=0.5).rows[0].status == "met"
    assert assay.check(NEW, DATA, **asked, decide="point").rows[0].status == "met"
    assert assay.check(NEW, DATA, require="robust>=0.75", eps=0.05, decide="point").rows[0].status == "not met"


def test_floors_of_classes() -> None:
    _, y = inputs()
    told = rows(assay.check(NEW, DATA, require="robust[*]>=0.5, clean[light]>=0.99", eps=0.05))
    assert list(told) == ["robust[dark]", "robust[light]", "clean[light]"]
    for name, label in (("dark", 0), ("light", 1)):
        assert told[f"robust[{name}]"].value == pytest.approx(float(right("new", 0.05)[y == label].float().mean()))
        assert told[f"robust[{name}]"].n == 100
        assert told[f"robust[{name}]"].status == "met"
    assert told["clean[light]"].status == "not met"


def test_many_floors_raise_no_alarm_by_chance_and_one_that_passes_needs_no_correction() -> None:
    clause, share = Clause("robust", ">=", 0.5, "*"), Share(40, 100)
    assert share_row(clause, share, Rules(), of="a").status == "not met", "the interval ends at 49.8 %"
    many = share_row(clause, share, Rules(), of="a", among=10)
    assert many.status == "undecided"
    assert "(99.5 % interval 27.5 to 54.0 %)" in many.message, "the interval that decides is the one that is told"
    assert share_row(clause, Share(60, 100), Rules(), of="a", among=1000).status == "met", "it begins at 50.2 %"


def test_drops_are_paired() -> None:
    gate = assay.check(NEW, DATA, require="clean_drop<=0.02, robust_drop<=0.3", baseline=OLD, eps=0.05)
    drop, robust = gate.rows
    assert (drop.value, drop.ci95, drop.status) == (0.105, tango(21, 0, 200), "not met")
    assert robust.value == 0.26
    assert robust.status == "undecided"
    assert robust.needed is not None
    assert "21 now wrong, 0 now right" in drop.message
    assert gate.compared["clean"]["p"] == pytest.approx(2 / 2**21, rel=1e-5)
    lost = [failure for failure in gate.failures if failure.kind == "regression"]
    assert {failure.row for failure in lost} == set((~right("new")).nonzero().flatten().tolist())
    assert {(failure.true, failure.predicted) for failure in lost} == {("dark", "light"), ("light", "dark")}


def test_a_better_model_has_a_drop_below_nothing() -> None:
    gate = assay.check(OLD, DATA, require="clean_drop<=0, robust_drop<=0", baseline=NEW, eps=0.05)
    assert gate.met
    assert [row.value for row in gate.rows] == [-0.105, -0.26]


def test_clean_numbers_need_no_attack() -> None:
    gate = assay.check(NEW, DATA, require="clean>=0.8, clean_drop<=0.2", baseline=OLD)
    assert gate.met
    assert gate.attacks == {}
    assert [row.value for row in gate.rows] == [0.895, 0.105]


def test_live_modules_and_tensors() -> None:
    gate = assay.check(live("new"), inputs(), require="robust>=0.5, clean_drop<=0.2", baseline=live("old"), eps=0.05)
    assert gate.met
    assert gate.rows[0].value == 0.74
    assert gate.subject == "module"


def test_a_time_budget_decides_with_the_inputs_done() -> None:
    asked: Any = {"require": "robust>=0.2, clean_drop<=0.5", "baseline": OLD, "eps": 0.05}
    first = assay.check(NEW, DATA, **asked, time=1e-9)
    again = assay.check(NEW, DATA, **asked, time=1e-9)
    assert not first.complete
    assert [row.n for row in first.rows] == [64, 64]
    assert [row.value for row in first.rows] == [row.value for row in again.rows]
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:64]
    assert first.rows[0].value == pytest.approx(float(right("new", 0.05)[order].float().mean()))
    other = assay.check(NEW, DATA, **asked, time=1e-9, seed=3)
    assert {f.row for f in other.failures} != {f.row for f in first.failures}


def test_where_the_baseline_gets_less_far_the_gate_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = gate_measure.Measuring.side

    def slow(self: Any, model: Any, *given: Any, **named: Any) -> Any:
        named["time"] = 1e-9 if model == OLD else 3600
        return measured(self, model, *given, **named)

    monkeypatch.setattr(gate_measure.Measuring, "side", slow)
    gate = assay.check(NEW, DATA, require="robust>=0.2, clean_drop<=0.5", baseline=OLD, eps=0.05, time="1h")
    assert {row.n for row in gate.rows} == {64}
    assert gate.protocol["n"] == 64
    assert not gate.complete, "the numbers are of 64 of 200 inputs"
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:64]
    assert {failure.row for failure in gate.failures} <= set(order.tolist())
    assert gate.failed == len(gate.failures)


def test_with_time_enough_the_numbers_are_those_without_a_budget() -> None:
    asked: Any = {"require": "robust>=0.2, pgd>=0.1", "eps": 0.05}
    whole, timed = assay.check(NEW, DATA, **asked), assay.check(NEW, DATA, **asked, time="1h")
    assert timed.complete
    assert [(row.value, row.n) for row in timed.rows] == [(row.value, row.n) for row in whole.rows]


def test_a_trust_check_makes_a_number_unreliable_and_never_met() -> None:
    class Saturated(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = torch.tanh(400 * (x.flatten(1)[:, 0] - 0.5))
            return torch.stack([-score, score], 1)

    gate = assay.check(Saturated(), inputs(), require="robust>=0.5, clean>=0.5, robust[*]>=1", eps=0.05)
    assert not gate.met
    assert gate.warnings
    assert [row.status for row in gate.rows[:2]] == ["unreliable", "met"], "masked gradients spoil no clean accuracy"
    ignore = [str(warning["name"]) for warning in gate.warnings]
    quiet = assay.check(Saturated(), inputs(), require="robust>=0.5", eps=0.05, ignore=ignore)
    assert quiet.protocol["checks_ignored"] == sorted(ignore)
    assert any(line.startswith("trust checks ignored, as was asked: ") for line in gate_lines(quiet))
    lost = GateRow("robust", "robust>=0.5", "not met", "")
    assert unreliable(lost, ({"name": "x"},)) is lost, "a model that is broken is, whatever the checks say"


def test_what_is_measured_the_same_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return assay.evaluate(*given, **named)

    monkeypatch.setattr(gate_measure, "evaluate", counted)
    memory: dict[Any, Any] = {}
    net = live("new")
    for require in ("robust>=0.5", "robust>=0.9, clean>=0.1"):
        assay.check(net, inputs(), require=require, eps=0.05, memory=memory)
    assert len(calls) == 1
    assay.check(net, inputs(), require="robust>=0.5", eps=0.1, memory=memory)
    assert len(calls) == 2
    with torch.no_grad():
        net.get_parameter("w").mul_(-1)
    gate = assay.check(net, inputs(), require="clean>=0.5", suite="fgsm", eps=0.05, memory=memory)
    assert gate.rows[0].value == 0.1, "weights that changed are another model"


def test_two_models_of_one_class_with_the_same_weights_are_two() -> None:
    """What tells them apart is an attribute, of which neither weights nor repr know."""

    class Turned(torch.nn.Module):
        def __init__(self, sign: int) -> None:
            super().__init__()
            self.net, self.sign = live("old"), sign

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned: torch.Tensor = self.sign * self.net(x)
            return turned

    memory: dict[Any, Any] = {}
    told = [assay.check(Turned(sign), inputs(), require="clean>=0.5", memory=memory).rows[0].value for sign in (1, -1)]
    assert told == [1.0, 0.0]


def test_the_same_model_has_lost_nothing_however_few_inputs_there_are() -> None:
    few = f"{DATA}[:10]"
    gate = assay.check(NEW, few, require="clean_drop<=0, robust_drop<=0.01", baseline=NEW, eps=0.05)
    assert [(row.status, row.value, row.ci95, row.n) for row in gate.rows] == [("met", 0.0, (0.0, 0.0), 10)] * 2
    assert "the same net with the same weights" in gate.rows[0].message
    assert assay.check(NEW, few, require="clean_drop<=-0.1", baseline=NEW).rows[0].status == "not met"
    other = assay.check(OLD, few, require="clean_drop<=0.01", baseline=live("old")).rows[0]
    assert other.status == "undecided", "of a live module nobody knows what it computes"


def test_where_questions_run_out_the_inputs_done_are_a_sample_of_all() -> None:
    """Data of a folder lie class by class: the first inputs are all of one, and say nothing of the others."""
    x, y = inputs()
    order = y.argsort(stable=True)

    def dark(batch: Any) -> Any:
        return torch.tensor([[0.9, 0.1]]).repeat(len(batch), 1).numpy()

    gate = assay.check(
        dark, (x[order], y[order]), require="robust>=0.7", suite="square(queries=2)", eps=0.01, queries=300
    )
    assert not gate.complete
    assert gate.rows[0].n in range(64, 200)
    assert gate.protocol["checks_not_made"]["bad_clean_accuracy"] == "the budget of queries is spent"
    assert any("could not be made" in line and "bad_clean_accuracy" in line for line in gate_lines(gate))
    assert gate.rows[0].value == pytest.approx(0.5, abs=0.2), "it is 1 on the first hundred"
    assert not gate.met


def test_a_model_comes_back_as_it_was() -> None:
    net = live("new").train()
    before = net.get_parameter("w").clone()
    assay.check(net, inputs(), require="robust>=0.5, clean_drop<=1", baseline=live("old"), eps=0.05)
    assert net.training
    assert torch.equal(before, net.get_parameter("w"))
    assert net.get_parameter("w").grad is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "nothing is required"),
        ({"require": "clean_drop<=0.1"}, "--baseline OLD_MODEL"),
        ({"require": "robust>=0.1"}, "needs eps"),
        ({"require": "robust>=0.1", "eps": "0.1,0.2"}, "one eps"),
        ({"require": "robust[cat]>=0.1", "eps": 0.1}, "no class 'cat'"),
        ({"require": "pdg>=0.1", "eps": 0.1}, "did you mean 'pgd'"),
        ({"require": "clean>=0.1", "confidence": 1.5}, "confidence"),
        ({"require": "clean>=0.1", "decide": "pont"}, "did you mean 'point'"),
        ({"fuzz_regressions": "1s"}, "--baseline OLD_MODEL"),
    ],
)
def test_what_cannot_be_answered_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        assay.check(NEW, DATA, **given)


@pytest.mark.parametrize("data", [(torch.zeros(3, 4), torch.zeros(2)), (torch.zeros(3, 4) + 2, torch.zeros(3).long())])
def test_tensors_that_are_no_data_are_refused(data: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(UsageError, match="inputs"):
        assay.check(live("new"), data, require="clean>=0.1")


def test_counts_allow_so_many() -> None:
    assert count_row("regressions", 2, 2, 10, "").status == "met"
    assert count_row("regressions", 3, 2, 10, "").status == "not met"


def test_old_failures_must_not_fail_any_more() -> None:
    assay.evaluate(BAD, DATA, suite="fgsm", eps=0.05, save="old-failures")
    broken = right("bad") & ~right("bad", 0.05)
    still = assay.check(BAD, DATA, regressions=["old-failures"])
    fixed = assay.check(OLD, DATA, regressions=["old-failures"])
    assert (still.rows[0].name, still.rows[0].value, still.met) == ("old_failures", float(broken.sum()), False)
    assert {failure.kind for failure in still.failures} == {"old failure"}
    assert still.failed == len(still.failures) == int(broken.sum())
    unsteady = Replayed("run", "m", "label", 3, 1, (Failure("ab", FLAKY, "dark", "light", None, 1, 3, None),))
    assert old_row(Regressed((unsteady,)), 0).status == "not met"
    assert [failure.id for failure in still_failing(Regressed((unsteady,)))] == ["ab"], "what counts is named"
    assert (fixed.rows[0].value, fixed.met) == (0.0, True)
    assert assay.check(BAD, DATA, regressions=["old-failures"], allow_regressions=int(broken.sum())).met


def test_inputs_that_are_lost_as_they_are_are_regressions_too() -> None:
    """Fuzzing begins where both are right, so it cannot meet them."""
    lost = set((right("old") & ~right("new")).nonzero().flatten().tolist())
    gate = assay.check(NEW, DATA, baseline=OLD, fuzz_regressions=0.2, eps=1e-6)
    assert (gate.rows[0].value, gate.met) == (float(len(lost)), False)
    assert f"{len(lost)} of 200 inputs as they are and 0 of" in gate.rows[0].message
    assert {failure.row for failure in gate.failures} == lost
    both = assay.check(NEW, DATA, require="clean_drop<=1", baseline=OLD, fuzz_regressions=0.2, eps=1e-6)
    assert (both.rows[1].value, both.failed) == (float(len(lost)), len(lost)), "none is named twice"
    assert assay.check(NEW, DATA, baseline=OLD, fuzz_regressions=0.2, eps=1e-6, allow_regressions=len(lost)).met


def test_a_model_has_no_regressions_against_itself() -> None:
    gate = assay.check(NEW, DATA, baseline=live("new"), fuzz_regressions="1h", eps=0.05)
    assert (gate.rows[0].value, gate.met, gate.fuzzed) == (0.0, True, None)


def test_where_no_input_is_right_for_both_the_lost_ones_count() -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = 8 * (x.flatten(1)[:, 0] - 0.5)
            return torch.stack([score, -score], 1)

    gate = assay.check(Wrong(), inputs(), baseline=live("old"), fuzz_regressions="1h")
    assert (gate.rows[0].value, gate.met) == (200.0, False)
