"""The status screen in a real terminal: what a person sees, and what is left of it when the command has ended."""

import json
import re
import signal
from pathlib import Path

import pytest

import small
from assay.engines.signs import PLACES
from terminal import Glass, Terminal

LEFT = re.compile(r"run time|━|Ctrl-C finishes")


def painted(glass: Glass) -> bool:
    return "run time" in glass.text and re.search(r"cases +[1-9]", glass.text) is not None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.prepare(tmp_path)
    return tmp_path


def fuzz(*more: str) -> list[str]:
    return ["fuzz", small.MODEL, "--data", "seeds.npz", "--recipe", "noise", "--eps", "0.3", "--run", "r", *more]


def test_a_frame_while_it_runs_and_nothing_of_it_afterwards(folder: Path) -> None:
    terminal = Terminal(*fuzz("--time", "2s"), cwd=folder)
    glass = terminal.until(painted)
    frame = glass.text
    assert "assay fuzz" in frame
    assert "of 2.0s" in frame
    assert glass.cursor
    assert terminal.wait() == 0
    assert glass.cursor
    assert not LEFT.search(glass.text), glass.text
    assert "next: assay report r" in glass.text
    assert max(shown.count("run time") for shown in terminal.frames) == 1, "painted over itself"
    assert "\x1b[?1049h" not in terminal.raw, "what was said before stays on the screen"


def test_ctrl_c_leaves_a_clean_terminal_and_a_run_to_go_on_with(folder: Path) -> None:
    terminal = Terminal(*fuzz("--time", "60s"), env={"NO_COLOR": "1"}, cwd=folder)
    terminal.until(painted)
    terminal.type("\x03")
    assert terminal.wait() == 2
    assert terminal.glass.cursor
    assert terminal.glass.colours == 0, "NO_COLOR"
    assert not LEFT.search(terminal.glass.text), terminal.glass.text
    assert "interrupted; what is done is kept" in terminal.glass.text
    told = json.loads((folder / "runs" / "r" / "stats.json").read_text())
    assert told["interrupted"]


@pytest.mark.slow
def test_resizing_breaks_nothing(folder: Path) -> None:
    # A sign of trouble is told above the frame, where it stays: not in this test, which counts rows.
    quiet = [part for name in PLACES for part in ("--ignore", name)]
    terminal = Terminal(*fuzz("--time", "60s", *quiet), columns=120, rows=30, cwd=folder)
    terminal.until(painted)
    for columns, rows in ((50, 12), (30, 6)):
        terminal.resize(columns, rows)
        start = len(terminal.glass.whole)
        terminal.until(lambda glass, start=start: len(glass.whole) > start + 3)  # type: ignore[misc]  # a default
        # What a person sees: one frame from the first row of the screen on, nothing of the one before above it.
        seen, text = terminal.glass.whole[-1]
        assert seen.startswith("assay fuzz"), seen
        assert seen.count("run time") == 1, seen
    gone = text.count("run time") - 1  # with the rows that scrolled away, which nobody takes back
    assert gone <= 2
    terminal.resize(110, 40)
    start = len(terminal.glass.whole)
    terminal.until(lambda glass: len(glass.whole) > start + 3)
    words = ("cases", "seeds done", "stability", "memory")
    last = terminal.until(lambda glass: all(word in glass.text.rpartition("run time")[2] for word in words)).text
    assert last.count("run time") == 1 + gone
    terminal.type("\x03")
    assert terminal.wait() == 2
    assert "run time" not in terminal.glass.text.splitlines()[-1]


@pytest.mark.slow
def test_watching_from_another_terminal_and_a_kill_that_leaves_the_cursor(folder: Path) -> None:
    worker = Terminal(*fuzz("--time", "60s"), cwd=folder)
    worker.until(painted)
    watcher = Terminal("status", "r", "--watch", cwd=folder)
    watcher.until(painted)
    watcher.type("\x03")
    assert watcher.wait() == 0
    assert not LEFT.search(watcher.glass.text), watcher.glass.text
    assert "│ alive" in watcher.glass.text
    worker.kill(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert worker.glass.cursor
