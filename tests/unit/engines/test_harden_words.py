"""Hardening: which round is the result where the requirement ties, and what the screen says of the rounds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay.cli.harden import _show
from assay.core.requirement import Requirement
from assay.engines import hardened
from assay.engines.evaluation import Share
from assay.engines.hardened import Hardened, Round
from assay.engines.hardening_teller import Teller
from assay.engines.judge import Judge
from assay.engines.measured import Measured
from assay.engines.stop import Stopper
from assay.outputs import harden_tables

SPOILED = [{"name": "planted", "message": "too good to be true", "see": ""}]


def measured(fgsm: int, pgd: int, clean: int = 100, worst: int | None = None, *, spoiled: bool = False) -> Measured:
    """So many of 100 right."""
    attacks = {"fgsm": Share(fgsm, 100), "pgd": Share(pgd, 100)}
    least = Share(min(fgsm, pgd) if worst is None else worst, 100)
    return Measured(Share(clean, 100), attacks, least, attacks, least, SPOILED if spoiled else [])


def judge(until: str, *each: Measured) -> Judge:
    asked = Requirement.parse(until) if until else Requirement(())
    return Judge(asked, {}, [Round(number, m) for number, m in enumerate(each)])


@pytest.mark.parametrize(
    ("until", "each", "best"),
    [
        # worst case 0 % everywhere: the mean over the attacks decides, and the clean accuracy to spare does not
        ("robust>=0.5", [(10, 0), (30, 0), (20, 0)], 1),
        ("robust>=0.5, clean_drop<=0.05", [(10, 0), (30, 0, 98), (20, 0)], 1),
        ("robust>=0.5", [(10, 0), (30, 0), (0, 30, 100, 0)], 1),  # alike: the earlier one
        ("robust>=0.5", [(10, 0), (10, 0)], 0),
        # a clause that is missed by more comes before the mean
        ("robust>=0.5, clean_drop<=0.05", [(10, 0), (30, 0, 80)], 0),
        ("robust>=0.5", [(90, 1), (30, 2)], 1),
        # alike in what is missed and in the mean: what is to spare
        ("robust>=0.5, clean_drop<=0.05", [(10, 0, 98), (10, 0, 99)], 1),
        # of several that meet it the one with most to spare, as ever
        ("pgd>=0.2, clean_drop<=0.05", [(10, 30), (90, 30, 96)], 0),
        ("clean>=0.9", [(10, 0), (90, 90)], 0),  # alike: where a new run would have ended
    ],
)
def test_ties_go_by_the_mean_over_the_attacks(until: str, each: Sequence[tuple[int, ...]], best: int) -> None:
    assert judge(until, *(measured(*numbers) for numbers in each)).best() == best


def test_no_mean_makes_up_for_numbers_that_cannot_be_trusted() -> None:
    assert judge("robust>=0.5", measured(10, 0), measured(90, 0, spoiled=True)).best() == 0


def test_where_nothing_is_asked_an_original_that_is_broken_is_not_the_result() -> None:
    """A number that a check spoils may be too high, but hardly by twice."""
    assert judge("", measured(10, 0), measured(90, 80, spoiled=True)).best() == 1
    assert judge("", measured(10, 0), measured(60, 60), measured(90, 80, spoiled=True)).best() == 1
    assert judge("", measured(50, 40), measured(90, 80, spoiled=True)).best() == 0
    assert judge("", measured(50, 40), measured(45, 40)).best() == 0
    lost = replace(measured(9, 9, 9), warnings=[{"name": "zero_gradient", "message": "", "see": ""}])
    assert judge("", measured(0, 0), lost).best() == 0, "a net that answers the same to everything is no model"


MADE = ("original", "resistant", "cases", "cases")


def told(made: Sequence[str], each: Sequence[Measured], best: int, test: hardened.Tested | None = None) -> Hardened:
    rounds = tuple(
        Round(number, m, name, found=7, selected=5) for number, (name, m) in enumerate(zip(made, each, strict=True))
    )
    holder = Judge(Requirement.parse("robust>=0.5"), {}, list(rounds))
    return Hardened(
        run=Path("h"),
        model=Path(f"h/models/round-{best:03d}.safetensors"),
        requirement=holder.requirement,
        verdicts=holder.verdicts(best),
        shares=holder.shares(best),
        met=False,
        best=best,
        rounds=rounds,
        stopped="all rounds done",
        test=test,
        protocol={"data": "planted", "n": 100, "norm": "linf", "eps": 0.1, "eps_text": "0.1", "seed": 0},
        check="",
        seconds=0.0,
    )


def text_of(shown: Any) -> str:
    console = Console(width=250)
    with console.capture() as caught:
        console.print(shown)
    return " ".join(caught.get().split())


def test_rounds_are_counted_as_people_count_them() -> None:
    each = [measured(10, 0), measured(20, 0), measured(30, 1), measured(30, 2, spoiled=True)]
    result = told(MADE, each, best=3)
    table = harden_tables.rounds_table(result)
    assert list(table.columns[0].cells) == ["original", "resistant", "1", "2*"]
    said = text_of(table)
    assert "resistant: found and selected are its heap of attack examples on the original" in said
    assert "models/round-00N are numbered from the original = 0" in said
    assert str(harden_tables.verdict_table(result).title).endswith("validation part, round 2*")
    assert harden_tables.warning_lines(result)[0].startswith("UNRELIABLE (planted; round 2, validation)")
    assert str(harden_tables.verdict_table(replace(result, best=1)).title).endswith("validation part, resistant")
    one = harden_tables.rounds_table(told(("original", "cases"), each[:2], best=1))
    assert list(one.columns[0].cells) == ["original", "1"]
    assert "round-00N" not in text_of(one), "round 1 is round-001 where there is one model"


@pytest.mark.parametrize(
    ("first", "places"),
    [
        (1, ["original", "round 1 of 2", "round 2 of 2"]),
        (2, ["original", "resistant", "round 1 of 2", "round 2 of 2"]),
    ],
)
def test_progress_counts_the_rounds_that_fuzz(first: int, places: list[str]) -> None:
    seen: list[str] = []
    with Stopper(None) as stop:
        tell = Teller(lambda numbers: seen.append(harden_tables.harden_line(numbers)[0]), stop, 2, first)
        for number in range(len(places)):
            tell(phase="train", round=number)({"epoch": 1.0})
    assert seen == [f"{place}, train: epoch 1.0" for place in places]


def test_what_the_cases_are_worth_on_the_test_part_is_said() -> None:
    each = [measured(10, 10)] * 4
    test = hardened.Tested(measured(5, 5), measured(40, 40), measured(45, 45), 1, measured(10, 10))
    line = harden_tables.comparison_line(told(MADE, each, 2, test))
    assert line == (
        "worst case on the test part, white box: after − control -5.0 points (within the intervals), "
        "after − resistant +30.0 points"
    )
    alone = harden_tables.comparison_line(told(MADE, each, 2, replace(test, resistant=None)))
    assert alone.endswith("white box: after − control -5.0 points (within the intervals)")
    same = harden_tables.comparison_line(told(MADE, each, 2, replace(test, control=test.after, resistant=None)))
    assert same.endswith("after − control +0.0 points (within the intervals)")
    spoiled = replace(test, control=None, resistant=measured(10, 10, spoiled=True))
    assert "after − resistant* +30.0 points" in harden_tables.comparison_line(told(MADE, each, 2, spoiled))
    assert harden_tables.comparison_line(told(MADE, each, 2, replace(test, control=None, resistant=None))) == ""
    assert harden_tables.comparison_line(told(MADE, each, 1, test)) == "", "no case was learned from"
    assert harden_tables.comparison_line(told(MADE, each, 2)) == "", "the test part was not looked at"


def test_an_eps_that_breaks_everything_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = "every model has worst-case accuracy 0.0 % at this eps; a smaller --eps tells them apart"
    test = hardened.Tested(measured(5, 0), measured(40, 0), measured(45, 0), 1)
    _show(told(("original", "cases"), [measured(10, 0), measured(20, 0)], 1, test), None)
    shown = capsys.readouterr().out
    assert said in shown.splitlines()
    assert "worst case on the test part, white box: after − control +0.0 points" in shown
    assert harden_tables.eps_line(told(("original", "cases"), [measured(10, 0), measured(20, 1)], 1)) == ""
    assert harden_tables.eps_line(told(("original",), [measured(10, 0)], 0)) == "", "one model: none to tell apart"
