"""A terminal for tests: a command runs in it, and what a person would see there can be read.

It knows what our screens send: lines, carriage returns, cursor up and down, erasing, colours, and that a line that is
too long goes on in the next row. Anything else is an error, so that no test passes because an escape was ignored.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_ESCAPE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Glass:
    """The rows a person sees, those that scrolled away, and whether the cursor shows."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[str]] = [[]]
        self.x = self.y = 0
        self.cursor, self.colours, self.hidden = True, 0, 0
        self.whole: list[tuple[str, str]] = []  # visible and text of each frame when the next one begins over it
        self._returned = False
        self._half = ""

    @property
    def text(self) -> str:
        """Everything from the first row on, as far as there is any."""
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")

    @property
    def visible(self) -> str:
        """What is on the screen now, without the rows that scrolled away."""
        return "\n".join("".join(line).rstrip() for line in self.lines[-self.rows :]).rstrip("\n")

    def resize(self, columns: int, rows: int) -> None:
        """As terminals do: lines that are too long now go on in the next row."""
        self.columns, self.rows = columns, rows
        lines: list[list[str]] = []
        for number, line in enumerate(self.lines):
            parts = [line[i : i + columns] for i in range(0, max(1, len(line)), columns)]
            if number == self.y:
                down, self.x = min(len(parts) - 1, self.x // columns), self.x % columns
                at = len(lines) + down
            lines += parts
        self.lines, self.y = lines, at

    def feed(self, text: str) -> None:
        text, self._half = self._half + text, ""
        place = 0
        while place < len(text):
            if text[place] == "\x1b":
                found = _ESCAPE.match(text, place)
                if found is None:
                    assert len(text) - place < 16, f"unknown escape {text[place : place + 16]!r}"
                    self._half = text[place:]
                    return
                if self._returned and found.group() == "\x1b[2K":  # how a frame goes back over the one before
                    self.whole.append((self.visible, self.text))
                self._returned = False
                self._escape(*found.groups())
                place = found.end()
            else:
                self._returned = text[place] == "\r"
                self._put(text[place])
                place += 1

    def _put(self, c: str) -> None:
        if c == "\n":
            self._down(1)
        elif c == "\r":
            self.x = 0
        elif c == "\x07":
            return
        else:
            assert c.isprintable(), f"control character {c!r}"
            if self.x >= self.columns:
                self.x = 0
                self._down(1)
            line = self.lines[self.y]
            line.extend(" " * (self.x + 1 - len(line)))
            line[self.x] = c
            self.x += 1

    def _down(self, count: int) -> None:
        self.y += count
        while len(self.lines) <= self.y:
            self.lines.append([])

    def _escape(self, private: str, numbers: str, letter: str) -> None:
        first = int(numbers.split(";")[0] or 0) if not private else 0
        top = max(0, len(self.lines) - self.rows)  # nobody gets above what has scrolled away
        if private:
            assert (numbers, letter) in (("25", "h"), ("25", "l")), f"private mode {numbers}{letter}"
            self.cursor = letter == "h"
            self.hidden += letter == "l"
        elif letter == "m":
            self.colours += bool(re.search(r"(^|;)(3[0-7]|38|9[0-7])(;|$)", numbers))
        elif letter == "A":
            self.y = max(top, self.y - max(1, first))
        elif letter == "B":
            self._down(max(1, first))
        elif letter == "K":
            del self.lines[self.y][0 if first == 2 else self.x :]
        elif letter == "J":
            if first == 2:
                self.lines = [*self.lines[:top], []]
                self.y = top
            del self.lines[self.y][self.x :]
            del self.lines[self.y + 1 :]
        elif letter == "H":
            self.x, self.y = 0, top
        else:
            raise AssertionError(f"unknown escape {letter} {numbers}")


class Terminal:
    """A command in a terminal of its own."""

    def __init__(
        self, *arguments: str, columns: int = 100, rows: int = 30, env: Mapping[str, str] | None = None, cwd: Path
    ) -> None:
        self.glass, self.raw, self.frames = Glass(columns, rows), "", list[str]()
        mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        given = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        given |= {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **(env or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=given,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self._mine = mine

    def until(self, seen: Callable[[Glass], bool], seconds: float = 120.0) -> Glass:
        """Read until the screen is as wanted; it is an error if the command ends before."""
        end = time.monotonic() + seconds
        while not seen(self.glass):
            assert time.monotonic() < end, f"not seen:\n{self.glass.text}"
            assert self._read(1.0) is not False, f"ended with:\n{self.glass.text}"
        return self.glass

    def type(self, text: str) -> None:
        while self._read(0.05):  # Ctrl-C throws away what the terminal has not shown yet
            pass
        os.write(self._mine, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Just after a frame, when the next is not begun: one that is made at that moment is of neither size."""
        while not self._read(1.0):
            assert self._process.poll() is None, f"ended with:\n{self.glass.text}"
        while self._read(0.05):  # the rest of it
            pass
        self.glass.resize(columns, rows)
        fcntl.ioctl(self._mine, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def kill(self, number: int = signal.SIGKILL) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Read to the end; its exit code."""
        while self._read(60.0) is not False:
            pass
        os.close(self._mine)
        return self._process.wait(60)

    def _read(self, seconds: float) -> bool | None:
        """False at the end, None where nothing came."""
        if not select.select([self._mine], [], [], seconds)[0]:
            return None
        try:
            data = os.read(self._mine, 65536)
        except OSError:  # Linux says so where the other side is closed
            return False
        text = data.decode(errors="replace")
        self.raw += text
        self.glass.feed(text)
        self.frames.append(self.glass.text)
        return bool(data)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
