"""Requirements of a gate: floors of classes, drops of any accuracy."""

import pytest

from assay.core.errors import UsageError
from assay.core.requirement import Clause, Requirement


def test_floors_and_drops_are_read() -> None:
    told = Requirement.parse('robust[*]>=20%, clean[cat]>=0.5, robust["a, b]"]>=.3, robust_drop<=0.1', gate=True)
    assert told.clauses == (
        Clause("robust", ">=", 0.2, "*"),
        Clause("clean", ">=", 0.5, "cat"),
        Clause("robust", ">=", 0.3, "a, b]"),
        Clause("robust_drop", "<=", 0.1),
    )
    assert [clause.label for clause in told.clauses] == ["robust[*]", "clean[cat]", 'robust["a, b]"]', "robust_drop"]
    assert Requirement.parse(str(told), gate=True) == told


def test_attacks_are_those_that_floors_and_drops_name_too() -> None:
    told = Requirement.parse("pgd[*]>=0.1, pgd_drop<=0.1, fgsm_drop<=0, robust_drop<=0, fol<=1, clean>=0", gate=True)
    assert told.attacks == ("pgd", "fgsm")
    assert [clause.stem for clause in told.clauses if clause.drop] == ["pgd", "fgsm", "robust"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("robust[]>=0.2", "no class"),
        ("robust[ ]>=0.2", "no class"),
        ("clean_drop[cat]<=0.2", "floors are of accuracies"),
        ("fol[cat]<=0.2", "floors are of accuracies"),
        ("robust[cat]<=0.2", "wrong way"),
        ("robust[cat]>=20", "can never hold"),
        ("robust_drop>=0.1", "wrong way: lower is better"),
        ("pgd_drop<=-2", "can never hold"),
        ("robust[cat]>=0.2, robust[cat]>=0.3", r"robust\[cat\] twice"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Requirement.parse(text, gate=True)


@pytest.mark.parametrize("text", ["robust[cat]>=0.3", "robust[*]>=0.3", "robust_drop<=0.1", "pgd_drop<=0.1"])
def test_hardening_has_no_floors_of_classes_and_says_who_has(text: str) -> None:
    with pytest.raises(UsageError, match="assay check"):
        Requirement.parse(text)
    assert Requirement.parse("clean_drop<=0.1").clauses[0].stem == "clean"
