"""A frame is painted over itself and over nothing else, whatever became of the terminal in between."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from assay.outputs.painting import Painting
from terminal import Glass

LINES = ["a" * 38, "b" * 15, "c" * 25]


class Screen:
    """A console whose writing is shown on a glass at once."""

    def __init__(self) -> None:
        self.out, self.glass = io.StringIO(), Glass(40, 10)
        self.console = Console(file=self.out, force_terminal=True, width=40, height=10, legacy_windows=False)
        self.console.print("before")

    def show(self) -> str:
        self.glass.feed(self.out.getvalue().replace("\n", "\r\n"))
        self.out.seek(0)
        self.out.truncate()
        return self.glass.text

    def resize(self, columns: int, rows: int) -> None:
        self.show()
        self.glass.resize(columns, rows)
        self.console.size = (columns, rows)


def cut(columns: int) -> str:
    return "\n".join(line[: columns - 1] for line in LINES)


@pytest.mark.parametrize("columns", [40, 60, 30, 20, 10])
def test_what_was_said_before_stays_and_no_old_row_does(columns: int) -> None:
    screen = Screen()

    def lines() -> list[Text]:
        return [Text(line) for line in cut(screen.console.width).split("\n")]

    painting = Painting(screen.console, lines, redirect_stdout=False)
    painting.start(refresh=True)
    assert screen.show() == f"before\n{cut(40)}"
    screen.resize(columns, 12)
    painting.refresh()
    assert screen.show() == f"before\n{cut(columns)}"
    screen.console.print("now")
    assert screen.show() == f"before\nnow\n{cut(columns)}"
    painting.stop()
    assert screen.show() == "before\nnow"
    assert screen.glass.cursor


def test_of_a_frame_that_no_longer_fits_only_what_scrolled_away_is_left() -> None:
    screen = Screen()
    painting = Painting(screen.console, lambda: [Text("xy" * 5)], redirect_stdout=False)
    painting.start(refresh=True)
    screen.resize(2, 3)  # five rows now
    painting.refresh()
    assert screen.show().split("\n") == ["be", "fo", "re", *2 * ["xy"], "xy"]
    assert screen.glass.visible == "xy"
    painting.stop()
