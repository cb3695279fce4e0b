"""plot.csv: appended, continued, and read by people who may have broken it."""

from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import StorageError
from assay.core.plot import COLUMNS, NAME, Plot, read_plot


def row(seconds: float, cases: int, **more: Any) -> dict[str, Any]:
    counts = {"seeds": 1, "failures": 2, "distinct": 2, "broken": 1, "kinds": None, "coverage": None}
    return {"seconds": seconds, "cases": cases} | counts | more


def test_lines_are_as_documented(tmp_path: Path) -> None:
    plot = Plot(tmp_path, 0.0, 0)
    plot.add(row(0.5, 10))
    plot.add(row(1.75, 30, kinds=4, coverage=0.25))
    assert (tmp_path / NAME).read_text() == (
        "seconds,seeds,cases,failures,distinct,broken,kinds,coverage\n0.500,1,10,2,2,1,,\n1.750,1,30,2,2,1,4,0.25\n"
    )
    assert read_plot(tmp_path) == [row(0.5, 10), row(1.75, 30, kinds=4, coverage=0.25)]


def test_a_second_of_nothing_new_is_no_line_and_what_changes_is_one(tmp_path: Path) -> None:
    plot = Plot(tmp_path, 0.0, 0)
    for seconds, cases in ((1.0, 5), (1.2, 5), (1.3, 6), (2.4, 6), (2.0, 9)):
        plot.add(row(seconds, cases))
    assert [(r["seconds"], r["cases"]) for r in read_plot(tmp_path)] == [(1.0, 5), (1.3, 6), (2.4, 6)]


def test_a_run_goes_on_with_the_same_file(tmp_path: Path) -> None:
    Plot(tmp_path, 0.0, 0).add(row(1.0, 5))
    again = Plot(tmp_path, 1.0, 5)
    again.add(row(1.5, 5))
    before = (tmp_path / NAME).read_bytes()
    again.add(row(3.0, 9))
    assert (tmp_path / NAME).read_bytes().startswith(before)
    assert [r["cases"] for r in read_plot(tmp_path)] == [5, 9]


@pytest.mark.parametrize(
    "torn",
    [
        b"2.0,1,",
        b"2.0,1,7,2,2,1,,0.5",
        b"\x00\xff\n",
        b"=cmd(),1,1,1,1,1,,\n",
        b"nan,1,9,1,1,1,,\n",
        b"x" * 200_000 + b"\n",
        b"2.0,1," + b"9" * 400 + b",2,2,1,,\n",
        b"2.0,1,7,2,2,1,-4,\n",
    ],
)
def test_what_is_torn_or_foreign_is_left_out_and_gone_with_the_next_line(tmp_path: Path, torn: bytes) -> None:
    Plot(tmp_path, 0.0, 0).add(row(1.0, 5))
    with (tmp_path / NAME).open("ab") as file:
        file.write(torn)
    assert [r["cases"] for r in read_plot(tmp_path)] == [5]
    Plot(tmp_path, 4.0, 8).add(row(5.0, 8))
    assert (tmp_path / NAME).read_text().splitlines()[1:] == ["1.000,1,5,2,2,1,,", "5.000,1,8,2,2,1,,"]


def test_lines_of_work_that_was_lost_are_cut(tmp_path: Path) -> None:
    plot = Plot(tmp_path, 0.0, 0)
    for second in range(1, 6):
        plot.add(row(float(second), 10 * second))
    Plot(tmp_path, 3.0, 20).add(row(3.5, 25))  # the journal knows of 20 cases only
    assert [r["cases"] for r in read_plot(tmp_path)] == [10, 20, 25]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(StorageError, match=r"cannot write plot\.csv .*bytes needed"):
        Plot(tmp_path, 0.0, 0).add(row(1.0, 1))


def test_no_link_is_followed(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("mine")
    (tmp_path / NAME).symlink_to(other)
    with pytest.raises(StorageError):
        Plot(tmp_path, 0.0, 0).add(row(1.0, 1))
    assert other.read_text() == "mine"


def test_nothing_there_is_no_lines(tmp_path: Path) -> None:
    assert read_plot(tmp_path) == []
    assert COLUMNS[0] == "seconds"


def test_a_kill_while_a_torn_file_is_mended_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Plot(tmp_path, 0.0, 0).add(row(1.0, 5))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"2.0,1,")

    def killed(_: int, __: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.core.files.write_all", killed)
    monkeypatch.setattr("assay.core.plot.write_all", killed)
    with pytest.raises(KeyboardInterrupt):
        Plot(tmp_path, 4.0, 8).add(row(5.0, 8))
    assert [r["cases"] for r in read_plot(tmp_path)] == [5]
