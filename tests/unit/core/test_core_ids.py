"""Ids of inputs and cases: what they are made of, and how a beginning of one names it."""

import hashlib

import pytest
import torch

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.ids import case_ids, input_ids, rows_named

X = torch.linspace(0, 1, 12).view(3, 1, 2, 2)


def test_input_ids_are_digests_of_the_inputs() -> None:
    assert input_ids(torch.zeros(2, 1, 2, 2)) == ["374708fff7719dd5"] * 2
    assert input_ids(torch.zeros(0, 1, 2, 2)) == []


def test_a_case_is_its_shape_its_input_and_its_label() -> None:
    cases = Cases.of(X, torch.tensor([4, 5, 4]))
    raw = b"(1, 2, 2)" + X[1].numpy().tobytes() + (5).to_bytes(8, "little")
    assert case_ids(cases)[1] == hashlib.sha256(raw).hexdigest()[:16]
    assert len(set(case_ids(cases))) == 3
    assert case_ids(Cases.of(X, torch.tensor([4, 5, 3])))[:2] == case_ids(cases)[:2]
    assert case_ids(Cases.of(X, torch.tensor([4, 5, 3])))[2] != case_ids(cases)[2]
    assert set(case_ids(Cases.of(X.flatten(1), cases.y))).isdisjoint(case_ids(cases))
    assert case_ids(Cases.of(X.double(), cases.y)) == case_ids(cases), "as float32, whatever holds it"
    assert case_ids(cases.note(pred=cases.y)) == case_ids(cases), "columns do not count"


def test_a_beginning_names_a_case_and_each_is_taken_once() -> None:
    ids = ["abcd000000000000", "abce000000000000", "ffff000000000000", "abcd000000000000"]
    assert rows_named(["ffff", "abcd0"], ids, "run r") == [2, 0]
    assert rows_named(["abcd", "abcd0000"], ids, "run r") == [0]
    assert rows_named(ids, ids, "run r") == [0, 1, 2]
    assert rows_named(["FFFF", "Abcd0"], ids, "run r") == [2, 0], "in capitals too"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("abc", "4 to 16 of the digits"),
        ("xyz01", "4 to 16 of the digits"),
        ("0123", "no failure 0123; it has abcd000000000000, abcd100000000000, ffff000000000000"),
        ("abcd", "begins 2 ids of run r: abcd000000000000, abcd100000000000"),
    ],
)
def test_what_names_none_or_several_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        rows_named([text], ["abcd000000000000", "abcd100000000000", "ffff000000000000"], "run r")
