"""Fault 11, where nothing helps: one input that does not fit, another error, memory that runs out in mid-run."""

from pathlib import Path

import pytest

from commands import Nursery
from full import BROKEN, UNCHECKED, Full, evaluation

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (
            evaluation("MODEL", "--save", "none", *UNCHECKED, n=8),
            "forward",
        ),
        (
            evaluation("MODEL", "--save", "none", *UNCHECKED, n=8),
            "backward",
        ),
        (("fuzz", "MODEL", "--data", "digits/train[:8]", "--recipe", "robot", "--run", "none"), "backward"),
        (("train", "lenet5", "--data", "digits", "--epochs", "1", "--out", "none.safetensors"), "training"),
    ],
    ids=lambda part: part if isinstance(part, str) else part[0],
)
def test_where_not_even_one_fits(
    home: Nursery, digits_model: str, tmp_path: Path, command: tuple[str, ...], where: str
) -> None:
    full = Full(tmp_path / "log", 0, where, after=4)  # the net is built: its convolutions are tried then
    arguments = [digits_model if word == "MODEL" else word for word in command]
    told = home.run(*arguments, before=full.trap).ended(3, "1.00 MiB was wanted", "(1, 8, 8)", "--device").said
    assert "one input" in told, told
    assert len(told.splitlines()) == 1
    run = tmp_path / "runs" / "none"
    if run.exists():
        home.run("status", "none").ended(0)
        home.run(*arguments).ended(0)  # memory is free again: the same command goes on


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_no_other_error_is_tried_again(home: Nursery, digits_model: str, tmp_path: Path, where: str) -> None:
    full = Full(tmp_path / "log", 4, where, BROKEN)
    arguments = evaluation(digits_model, *UNCHECKED)
    told = home.run(*arguments, before=full.trap)
    assert told.code in (3, 4), told.err
    assert "a fault of another kind" in told.err
    assert "out of memory" not in told.err
    assert full.failed() == [16]


def test_what_was_committed_before_stays(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    """Memory that runs out in the middle of a run, for good: what was committed stays, and the run goes on later."""
    arguments = evaluation(digits_model, "--batch", "4")
    arguments += UNCHECKED
    full = Full(tmp_path / "log", 0, after=40)
    home.run(*arguments, "--save", "late", before=full.trap).ended(3, "was wanted")
    lines = (tmp_path / "runs" / "late" / "journal.jsonl").read_text().splitlines()
    assert len(lines) > 1, "it ran out before anything was committed: the test tests nothing"
    home.run("status", "late").ended(0)
    undisturbed = home.run(*arguments, "--save", "other", "--json").ended(0).json
    again = home.run(*arguments, "--save", "late", "--json").ended(0).json
    assert again["worst"] == undisturbed["worst"]
