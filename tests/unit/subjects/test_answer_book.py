"""The book of answers: exact, durable, and never short of a count."""

from pathlib import Path

import numpy as np
import pytest

from assay.core import journal
from assay.core.errors import BudgetSpent, UsageError
from assay.subjects.answer_book import AnswerBook, content_key, told_before
from assay.subjects.queries import Queries

FILE = Path("answers.jsonl")
ROWS = np.array([[0.1, 0.9], [-1e-30, 3.4e38], [1 / 3, 2 / 3]], np.float32)
KEYS = [content_key(np.full((1, 2), i, np.float32)) for i in range(3)]


def book(limit: int | None = None, *, path: Path | None = None) -> AnswerBook:
    made = AnswerBook(Queries(limit))
    if path is not None:
        made.keep(path, "me", {"kind": "probabilities"})
    return made


def filled(path: Path = FILE) -> AnswerBook:
    """A book with three answers in two commits, and five questions: two of them a retry."""
    made = book(path=path)
    made.take(2, "first")
    made.take(2, "retries")
    made.add(KEYS[:2], ROWS[:2], "first")
    made.take(1, "first")
    made.add(KEYS[2:], ROWS[2:], "first")
    return made


def test_a_key_is_of_the_shape_and_of_every_bit() -> None:
    x = np.arange(6, dtype=np.float32)
    assert content_key(x.reshape(2, 3)) != content_key(x.reshape(3, 2))
    assert content_key(x) == content_key(x.astype(np.float64).astype(np.float32))
    assert content_key(x) == content_key(np.stack([x, x], 1)[:, 0])  # however it lies in memory
    near = x.copy()
    near[3] = np.nextafter(near[3], np.float32(9))
    assert content_key(x) != content_key(near)


def test_answers_and_counts_come_back_bit_for_bit() -> None:
    filled()
    again = book(path=FILE)
    for key, row in zip(KEYS, ROWS, strict=True):
        (found,) = again.of(key)
        assert found.tobytes() == row.tobytes()
    assert again.queries.to_json() == {"limit": None, "asked": 5, "first": 3, "retries": 2, "repeats": 0, "known": 0}
    assert told_before(FILE) == {"kind": "probabilities"}


def test_a_question_counts_before_it_is_answered() -> None:
    made = book(path=FILE)
    made.take(2, "first")  # and now the process dies
    again = book(10, path=FILE)
    assert (again.queries.asked, again.queries.first, again.queries.retries) == (2, 0, 2)
    assert len(again) == 0


def test_the_budget_holds_over_two_lives() -> None:
    filled()
    again = book(7, path=FILE)
    with pytest.raises(BudgetSpent):
        again.take(3, "first")
    again.take(2, "first")
    assert book(path=FILE).queries.asked == 7
    assert journal.read(FILE)[0][-1].meta == {"take": 2, "why": "first", "asked": 7}  # the refused one left no line


def test_repeats_are_several_answers_in_their_order() -> None:
    made = book(path=FILE)
    for turn, why in enumerate(("first", "repeats", "repeats")):
        made.take(1, why)  # type: ignore[arg-type]  # mypy sees str
        made.add(KEYS[:1], ROWS[turn : turn + 1], why)  # type: ignore[arg-type]
    again = book(path=FILE)
    assert np.array_equal(np.stack(again.of(KEYS[0])), ROWS)
    assert (again.queries.first, again.queries.repeats) == (1, 2)


def test_a_torn_tail_is_cut_off_with_a_notice(notices: pytest.LogCaptureFixture) -> None:
    filled()
    whole = FILE.read_bytes()
    FILE.write_bytes(whole[:-7])  # the last line, three answers' third, is torn
    again = book(path=FILE)
    assert "ends in a torn line" in notices.text
    assert len(again) == 2
    assert again.queries.asked == 5  # the line before said that five would be asked
    assert Path("quarantine/answers.jsonl.1").read_bytes() == whole[:-7]
    again.take(1, "first")
    again.add(KEYS[2:], ROWS[2:], "first")
    assert len(book(path=FILE)) == 3


def test_a_flipped_byte_costs_its_line_and_no_count(notices: pytest.LogCaptureFixture) -> None:
    filled()
    lines = FILE.read_bytes().splitlines(keepends=True)
    assert b'"take":2' in lines[2]
    lines[2] = lines[2].replace(b'"take":2', b'"take":3')
    FILE.write_bytes(b"".join(lines))
    again = book(path=FILE)
    assert "is damaged after line 2" in notices.text
    assert len(again) == 3
    assert again.queries.asked == 5
    assert [line.step for line in journal.read(FILE)[0]] == [0, 1, 2, 3, 4]


def test_a_damaged_answer_is_asked_again() -> None:
    filled()
    lines = FILE.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"answers":"', b'"answers":"A', 1)
    FILE.write_bytes(b"".join(lines))
    again = book(path=FILE)
    assert [len(again.of(key)) for key in KEYS] == [0, 0, 1]
    assert again.queries.to_json()["asked"] == 5


def test_a_file_without_its_beginning_is_refused() -> None:
    filled()
    FILE.write_bytes(FILE.read_bytes()[1:])
    with pytest.raises(UsageError, match="damaged at its beginning; move it away"):
        book(path=FILE)


def test_answers_of_another_target_are_refused() -> None:
    filled()
    with pytest.raises(UsageError, match=r"answers of another target.*--fresh"):
        AnswerBook(Queries()).keep(FILE, "other", {})
    with pytest.raises(UsageError, match=r"kept in answers.jsonl already"):
        book(path=FILE).keep(Path("b.jsonl"), "me", {})


def test_what_was_asked_before_there_was_a_file_goes_into_it() -> None:
    made = book()
    made.take(1, "first")
    made.add(KEYS[:1], ROWS[:1], "first")
    made.keep(FILE, "me", {})
    again = book(path=FILE)
    assert (again.queries.asked, again.queries.first, len(again)) == (1, 1, 1)


def test_what_the_file_knew_already_was_asked_in_vain() -> None:
    filled()
    made = book()
    made.take(1, "first")
    made.add(KEYS[:1], ROWS[1:2], "first")  # another answer than the file has
    made.keep(FILE, "me", {})
    assert np.array_equal(made.of(KEYS[0])[0], ROWS[0])
    for each in (made, book(path=FILE)):
        assert len(each.of(KEYS[0])) == 1
        assert (each.queries.asked, each.queries.first, each.queries.retries) == (6, 3, 3)


def test_a_missing_file_tells_nothing() -> None:
    assert told_before(FILE) == {}
