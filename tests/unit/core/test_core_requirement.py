"""Requirements: read, refused, held against numbers."""

import math

import pytest

from assay.core.errors import UsageError
from assay.core.requirement import Clause, Requirement


def test_clauses_are_read_as_people_write_them() -> None:
    told = Requirement.parse("pgd >= 80%, clean_drop<=0.01,fol ≤ 8/255, pgd(steps=40, step=0.1)>=0.5, robust≥.25")
    assert told.clauses == (
        Clause("pgd", ">=", 0.8),
        Clause("clean_drop", "<=", 0.01),
        Clause("fol", "<=", 8 / 255),
        Clause("pgd(steps=40, step=0.1)", ">=", 0.5),
        Clause("robust", ">=", 0.25),
    )
    assert told.attacks == ("pgd", "pgd(steps=40, step=0.1)")
    assert Requirement.parse(str(told)).clauses[:2] == told.clauses[:2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("pgd", "write NAME>=NUMBER"),
        ("pgd>0.5", "write NAME>=NUMBER"),
        ("pgd=0.5", "write NAME>=NUMBER"),
        ("pgd==0.5", "write NAME>=NUMBER"),
        (">=0.5", "write NAME>=NUMBER"),
        ("pgd>=", "write NAME>=NUMBER"),
        ("pgd>=high", "must be a number"),
        ("pgd>=nan", "must be finite"),
        ("pgd<=0.5", "wrong way: higher is better for pgd; write pgd>=0.5"),
        ("clean<=0.9", "wrong way"),
        ("clean_drop>=0", "wrong way: lower is better for clean_drop; write clean_drop<=0"),
        ("fol>=0.1", "wrong way"),
        ("pgd>=80", "can never hold: pgd lies between 0 and 1; did you mean pgd>=80%"),
        ("robust>=1.01", "can never hold"),
        ("fol<=-0.1", "can never hold: fol lies from 0 up"),
        ("clean_drop<=-1.5", "can never hold"),
        ("pgd>=0.5, pgd>=0.6", "names pgd twice"),
        ("pgd(steps=4>=0.5", "brackets do not match"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("(", r"\(")):
        Requirement.parse(text)


def test_a_verdict_for_each_clause() -> None:
    told = Requirement.parse("pgd>=0.6, clean_drop<=0.01")
    numbers = {"pgd": 0.6, "clean_drop": 0.02, "fgsm": 0.9}
    assert [(str(v.clause), v.value, v.met) for v in told.check(numbers)] == [
        ("pgd>=0.6", 0.6, True),
        ("clean_drop<=0.01", 0.02, False),
    ]
    assert not told.met(numbers)
    assert told.met(numbers | {"clean_drop": 0.01}), "the bound itself is enough"
    assert told.check(numbers)[1].to_json() == {"clause": "clean_drop<=0.01", "value": 0.02, "met": False}


def test_slack_is_that_of_the_clause_furthest_from_holding() -> None:
    told = Requirement.parse("pgd>=0.5, clean_drop<=0.25")
    assert told.slack({"pgd": 0.75, "clean_drop": 0.125}) == 0.125
    assert told.slack({"pgd": 0.25, "clean_drop": 0.0}) == -0.25
    assert told.slacks({"pgd": 0.25, "clean_drop": 0.0}) == (-0.25, 0.25)
    assert told.slack({"pgd": math.nan, "clean_drop": 0.0}) == -math.inf
    assert not told.met({"pgd": math.nan, "clean_drop": 0.0})


def test_a_number_that_was_not_measured_is_named() -> None:
    with pytest.raises(UsageError, match="no number 'pdg' was measured; did you mean 'pgd'"):
        Requirement.parse("pdg>=0.5").check({"pgd": 0.5})
