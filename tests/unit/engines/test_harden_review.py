"""Hardening: what spoils, bounds or dates its numbers is told everywhere they are."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from torch import Tensor

from assay.core import store
from assay.core.errors import UsageError
from assay.core.requirement import Requirement
from assay.engines import yardstick
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation, Share
from assay.engines.harden import harden
from assay.engines.hardened import Hardened, Round
from assay.engines.measured import Measured
from assay.outputs.harden_tables import test_tables as tables_of_test
from assay.outputs.harden_tables import verdict_table, warning_lines
from assay.outputs.report.build import report
from assay.outputs.status import readable, run_status
from assay.outputs.verdicts import outcome
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import trained_with
from planted import hairsplitter, planted
from report_pages import page_text

CHANGES = {"train.epochs": 12, "train.lr": 0.3, "train.batch": 32, "train.schedule": "constant"}


def hardened(**changed: Any) -> Hardened:
    given: dict[str, Any] = {
        "until": "pgd>=0.95",
        "eps": 0.15,
        "run": "h",
        "rounds": 1,
        "fuzz_cases": 1500,
        "per_round": 40,
        "changes": CHANGES,
        "ignore": ("vanishing_gradient",),  # the first number has none, by design
        "control": False,
        "device": "cpu",
        "deterministic": True,
    }
    return harden("noise", hairsplitter().eval(), planted(), **(given | changed))


def text_of(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as caught:
        console.print(table)
    return caught.get()


@pytest.fixture
def _too_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check fires where a model withstands PGD."""

    def spoiled(*given: Any, **named: Any) -> Evaluation:
        result = evaluate(*given, **named)
        if result.attacks["pgd"].left.accuracy > 0.5:
            result.warnings = [{"name": "planted", "message": "too good to be true", "see": ""}]
        return result

    monkeypatch.setattr(yardstick, "evaluate", spoiled)


@pytest.mark.usefixtures("_too_good")
def test_unreliable_numbers_are_marked_in_json_status_and_report() -> None:
    told = hardened()
    assert [done["validation"]["unreliable"] for done in told.to_json()["rounds"]] == [False, True]
    assert told.to_json()["unreliable"] is False, "the original is the result, and its numbers are sound"
    status = run_status(store.read(told.run))
    assert [done["unreliable"] for done in status["rounds"]] == [False, True]
    assert [done["warnings"] for done in status["rounds"]] == [[], ["planted"]]
    lines = readable(status)["rounds"].splitlines()
    assert ["UNRELIABLE (planted)" in line for line in lines] == [False, True]
    page = page_text(report(told.run))
    assert "| 0 | " in page
    assert "| 1* | " in page
    assert "*UNRELIABLE, round 1 (planted): too good to be true" in page
    assert warning_lines(told) == ["UNRELIABLE (planted; round 1, validation): too good to be true"]


def test_models_with_unreliable_numbers_have_a_star_on_the_test_part() -> None:
    told = hardened(rounds=0)
    assert told.test is not None
    assert "before*" not in text_of(tables_of_test(told, told.test)[0])
    told.test.before.warnings.append({"name": "planted", "message": "too good to be true", "see": ""})
    for table in tables_of_test(told, told.test):
        assert "before*" in text_of(table)


def test_the_report_shows_the_look_at_the_model_that_is_best_now() -> None:
    def after() -> str:
        row = page_text(report(store.runs_root() / "h")).partition("worst case | ")[2]
        return row.split(" | ")[1].partition(" ")[0]

    assert hardened().best == 1
    assert after() == "100.0"
    assert hardened(until="clean>=1").best == 0
    assert after() == "0.0"
    told = hardened()
    assert (told.best, told.after is not None and told.after.worst.accuracy) == (1, 1.0)
    assert after() == "100.0"
    assert "Test part looked at 2 times." in report(told.run).read_text()
    assert run_status(store.read(told.run))["best"] == 1
    lines = len(store.read(told.run).lines)
    hardened()
    assert len(store.read(told.run).lines) == lines, "the same result is not told twice"


def asked(run: Path) -> list[tuple[str, int, int, bool]]:
    """Every requirement the journal tells of, with the result, the look at the test part and whether it was met."""
    lines = store.read(run).commits("best")
    return [(m["until"], m["best"], m["look"], m["met"]) for m in (line.meta for line in lines)]


def test_every_requirement_asked_is_committed_and_another_one_is_said(caplog: pytest.LogCaptureFixture) -> None:
    told = hardened(until="pgd>=0.95", rounds=0)
    hardened(until="pgd>=95%", rounds=0)
    assert asked(told.run) == [("pgd>=0.95", 0, 1, False)]
    (line,) = store.read(told.run).commits("best")
    low, high = Share(0, 64).ci95
    spread = {"n": 64, "ci95": [round(low, 6), round(high, 6)]}
    verdict = {"clause": "pgd>=0.95", "value": 0.0, "met": False, "undecided": False, "unreliable": False}
    assert line.meta["verdicts"] == [verdict | spread]
    assert caplog.record_tuples == []
    hardened(until="clean>=0.9", rounds=0)
    said = "run h was hardened until 'pgd>=0.95'; this asks 'clean>=0.9'; its test part was looked at once"
    assert caplog.record_tuples == [("assay", logging.WARNING, said)]
    assert asked(told.run) == [("pgd>=0.95", 0, 1, False), ("clean>=0.9", 0, 1, True)]


def test_another_requirement_is_committed_before_its_first_round() -> None:
    run = hardened(rounds=0).run

    def broken_off(_: Mapping[str, Any]) -> None:
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        hardened(until="pgd>=0.5", progress=broken_off)
    assert asked(run) == [("pgd>=0.95", 0, 1, False), ("pgd>=0.5", 0, 1, False)]


def test_another_requirement_before_the_test_part_was_looked_at_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    def at_the_test(numbers: Mapping[str, Any]) -> None:
        if numbers["phase"] == "test":
            raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        hardened(rounds=0, progress=at_the_test)
    told = hardened(rounds=0, until="pgd>=0.5")
    assert asked(told.run) == [("pgd>=0.95", 0, 1, False), ("pgd>=0.5", 0, 1, False)]
    assert caplog.record_tuples == []


def test_status_and_report_say_whether_the_requirement_was_met() -> None:
    told = hardened(until="pgd>=0.95, clean_drop<=0.01, clean>=0.99", rounds=0)
    status = run_status(store.read(told.run))
    assert (status["until"], status["met"]) == ("pgd>=0.95, clean_drop<=0.01, clean>=0.99", False)
    assert status["verdicts"] == told.to_json()["verdicts"]
    shown = readable(status)
    assert (shown["until"], shown["met"]) == ("pgd>=0.95, clean_drop<=0.01, clean>=0.99", "NOT met")
    assert shown["verdicts"].splitlines() == [
        "pgd>=0.95: 0 (95 % interval 0–0.05662, n=64), NOT met",
        "clean_drop<=0.01: 0, met",
        "clean>=0.99: 1 (95 % interval 0.9434–1, n=64), met, undecided",
    ]
    page = page_text(report(told.run))
    assert "pgd>=0.95, clean_drop<=0.01, clean>=0.99: NOT met" in page
    assert "clean>=0.99 | 1 | 0.9434–1 | 64 | met, undecided |" in page
    hardened(until="clean>=0.99", rounds=0)
    assert readable(run_status(store.read(told.run)))["met"] == "met, undecided"
    assert "clean>=0.99: met, undecided" in page_text(report(told.run))


@pytest.mark.parametrize(
    ("right", "said"), [(95, "met"), (82, "met, undecided"), (78, "NOT met, undecided"), (60, "NOT met")]
)
def test_the_outcome_is_undecided_only_where_the_intervals_leave_it_open(right: int, said: str) -> None:
    told = judged(right)
    assert outcome(told.verdict_rows(), met=told.met) == said
    lost = {"clause": "fol<=0.1", "value": 1.0, "met": False, "undecided": False, "unreliable": False}
    assert outcome([*told.verdict_rows(), lost], met=False) == "NOT met"
    spoiled = judged(right, [{"name": "planted", "message": "too good to be true", "see": ""}])
    assert outcome(spoiled.verdict_rows(), met=False) == "NOT met, unreliable"


def test_runs_that_did_not_commit_their_requirement_are_shown_and_continued_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = hardened(rounds=0).run
    lines = store.read(run).lines
    kept = [replace(n, meta={k: v for k, v in n.meta.items() if k not in ("until", "met", "verdicts")}) for n in lines]
    (run / "journal.jsonl").write_bytes(b"".join(line.encode() for line in kept))
    shown = readable(run_status(store.read(run)))
    assert shown["best"] == "0"
    assert not {"until", "met", "verdicts"} & shown.keys()
    assert 'id="requirement"' not in report(run).read_text()
    hardened(until="pgd>=0.5", rounds=0)
    assert caplog.record_tuples == []
    assert readable(run_status(store.read(run)))["until"] == "pgd>=0.5"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"until": "clean>=1"}, "the original met the requirement before any fuzzing; no case was looked for"),
        ({"rounds": 0}, "no round came after the original; no control was trained"),
        ({"changes": CHANGES | {"train.lr": 1e-9}}, "no round was better than the original; no control was trained"),
    ],
)
def test_screen_and_report_say_why_there_is_no_control(changed: dict[str, Any], said: str) -> None:
    told = hardened(**{"control": True} | changed)
    assert told.test is not None
    assert (told.best, told.control) == (0, None)
    assert said in " ".join(text_of(tables_of_test(told, told.test)[0]).split())
    assert f"Test part looked at once. {said[0].upper()}{said[1:]}.</p>" in report(told.run).read_text()


def test_nothing_is_said_of_a_missing_control_where_there_is_one() -> None:
    said = "no control was trained"
    better = hardened(run="better", control=True)
    assert better.test is not None
    assert better.control is not None
    assert said not in " ".join(text_of(tables_of_test(better, better.test)[0]).split())
    assert said not in report(better.run).read_text()


def test_out_of_another_hardening_is_not_overwritten() -> None:
    hardened(rounds=0, out="best.safetensors")
    before = Path("best.safetensors").read_bytes()
    with pytest.raises(UsageError, match="exists and is no model of this hardening"):
        hardened(run="other", per_round=41, out="best.safetensors")
    assert Path("best.safetensors").read_bytes() == before
    told = hardened(out="best.safetensors")
    assert Path("best.safetensors").read_bytes() == told.model.read_bytes() != before, "more rounds may replace it"


def test_two_runs_alike_have_the_same_journal_and_times_stay_in_stats() -> None:
    one, other = hardened(), hardened(run="again")
    assert (one.run / "journal.jsonl").read_bytes() == (other.run / "journal.jsonl").read_bytes()
    times = json.loads((one.run / "stats.json").read_text())["round_seconds"]
    assert len(times) == 2
    again = hardened()
    assert [done.seconds for done in again.rounds] == times, "the times of rounds done before are still known"
    assert [done["seconds"] for done in again.to_json()["rounds"]] == times


SELECTORS = """
import torch

def below(bench, cases, k, *, rng):
    return -torch.arange(1, k + 1)

def beyond(bench, cases, k, *, rng):
    return torch.arange(k) + 10**6

def floats(bench, cases, k, *, rng):
    return torch.arange(k).double()
"""


@pytest.mark.parametrize("name", ["below", "beyond", "floats"])
def test_what_a_selector_returns_is_checked(name: str) -> None:
    Path("mine.py").write_text(SELECTORS)
    with pytest.raises(UsageError, match="must return 40 distinct rows of"):
        hardened(changes=CHANGES | {"select": f"mine.py:{name}"})


def judged(right: int, warnings: list[dict[str, str]] | None = None) -> Hardened:
    """A result of round 0 with so many of 100 right under PGD, and all of them clean."""
    share, every = Share(right, 100), Share(100, 100)
    measured = Measured(every, {"pgd(steps=20)": share}, share, {}, every, warnings or [])
    numbers = measured.numbers(measured) | {"pgd": share.accuracy}
    requirement = Requirement.parse("pgd>=0.8, clean>=0.9, clean_drop<=0.01")
    return Hardened(
        run=Path("h"),
        model=Path("m"),
        requirement=requirement,
        verdicts=requirement.check(numbers),
        shares=measured.shares() | {"pgd": share},
        met=requirement.met(numbers),
        best=0,
        rounds=(Round(0, measured),),
        stopped="",
        test=None,
        protocol={},
        check="",
        seconds=0.0,
    )


@pytest.mark.parametrize(
    ("right", "said"), [(95, "met"), (82, "met, undecided"), (78, "NOT met, undecided"), (60, "NOT met")]
)
def test_the_verdict_says_where_the_interval_leaves_it_open(right: int, said: str) -> None:
    told = judged(right)
    cells = [list(column.cells) for column in verdict_table(told).columns]
    assert cells[-1] == [said, "met", "met"]
    low, high = Share(right, 100).ci95
    assert cells[2] == [f"{low:.4g}–{high:.4g}", "0.963–1", "–"]
    assert cells[3] == ["100", "100", "–"]
    rows = told.to_json()["verdicts"]
    assert [row["undecided"] for row in rows] == ["undecided" in said, False, False]
    assert (rows[0]["n"], rows[0]["ci95"]) == (100, [round(low, 6), round(high, 6)])
    assert "ci95" not in rows[2]


def test_the_verdict_has_a_star_where_its_number_is_unreliable() -> None:
    told = judged(95, [{"name": "planted", "message": "too good to be true", "see": ""}])
    assert list(verdict_table(told).columns[-1].cells) == ["met*", "met*", "met*"]
    assert "unreliable, see below: meets nothing" in text_of(verdict_table(told))
    assert all(row["unreliable"] for row in told.to_json()["verdicts"])


def test_the_shares_of_a_result_go_by_the_names_of_the_requirement() -> None:
    told = hardened(until="pgd>=0.95, robust>=0.5", rounds=0)
    assert told.shares["pgd"] == told.rounds[0].measured.worst == Share(0, 64)
    assert [row["ci95"][0] for row in told.to_json()["verdicts"]] == [0.0, 0.0]


def seen_by(start: str) -> tuple[Any, Any]:
    """What the model of one round of ``renew``, whose mutator is an attack, has seen: in its file, and to who asks."""
    told = harden(
        "renew",
        start,
        "digits",
        until="clean_drop<=-1",
        eps=0.1,
        rounds=1,
        fuzz_cases=200,
        per_round=20,
        suite="fgsm",
        changes={"train.epochs": 1},
        val_cases=20,
        test_cases=20,
        control=False,
    )
    path = told.run / "models/round-001.safetensors"
    return checkpoint.read_meta(path)["training"]["seen"], trained_with(f"lenet5@{path}")


def test_a_model_hardened_with_an_attack_has_seen_it(digits_model: str) -> None:
    written, known = seen_by(digits_model)
    assert [name for name, _ in written] == ["pgd"]
    assert [name for name, _ in known] == ["pgd"]


def test_what_bare_weights_have_seen_stays_unknown_after_hardening(digits_weights: Path) -> None:
    weights: dict[str, Tensor] = checkpoint.read(digits_weights)[0]
    checkpoint.write(Path("bare.safetensors"), weights, {})
    assert seen_by("lenet5@bare.safetensors") == (None, None)
