"""Hardening: what spoils, bounds or dates its numbers is told everywhere they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.requirement import Requirement
from assay.engines import yardstick
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation, Share
from assay.engines.harden import harden
from assay.engines.hardened import Hardened, Measured, Round
from assay.outputs.harden_tables import test_tables as tables_of_test
from assay.outputs.harden_tables import verdict_table, warning_lines
from assay.outputs.report.build import report
from assay.outputs.status import readable, run_status
from assay.subjects.bench import Data, Splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import trained_with

CHANGES = {"train.epochs": 12, "train.lr": 0.3, "train.batch": 32, "train.schedule": "constant"}


def planted() -> Splits:
    """Two classes told apart by much in the first number and by a hair in the second."""

    def part(name: str, n: int) -> Data:
        y = torch.arange(n) % 2
        sign = 2.0 * y - 1
        x = torch.stack([0.5 + 0.3 * sign + torch.linspace(-0.02, 0.02, n), 0.5 + 0.03 * sign], 1)
        return Data(f"planted/{name}", Cases.of(x, y), InputSpec((2,), (0.0, 1.0), ("a", "b")))

    return Splits("planted", part("train", 120), part("val", 64), part("test", 72))


def hairsplitter() -> nn.Module:
    """Looks at the second number alone: right on every clean input, wrong after the smallest push."""
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, -10.0], [0.0, 10.0]]))
        net.bias.copy_(torch.tensor([5.0, -5.0]))
    return net


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
    return harden("noise", hairsplitter(), planted(), **(given | changed))


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
    page = report(told.run).read_text()
    assert "<td>0</td>" in page
    assert "<td>1*</td>" in page
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
        page = report(store.runs_root() / "h").read_text()
        row = page.partition('<th scope="row">worst case</th>')[2].partition("</tr>")[0]
        return row.rpartition('<span class="value">')[2].partition("&")[0]

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
