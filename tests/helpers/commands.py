"""Commands in processes of their own, as a user starts them, and what must hold of every one that fails.

``assay`` starts a fresh interpreter. ``Nursery`` has one that has imported everything and forks: as real a process,
with a pid to kill, in a tenth of the time, for tests that need hundreds.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# For a nursery: the child tells the most memory it ever had, in bytes, in a file.
MEASURED = """
import __main__, resource
inner = __main__.run
def run(arguments):
    try:
        return inner(arguments)
    finally:
        with open({file!r}, "w") as out:
            out.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
__main__.run = run
"""
SECONDS = 120.0  # no command of these tests takes as long, however busy the machine


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended; ``code`` is negative where a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        """The one message of a command that refused or failed."""
        lines = [line for line in self.err.splitlines() if line.startswith("error:")]
        assert len(lines) == 1, self.err
        return self.err[self.err.index("error:") :].strip()

    def ended(self, code: int, *words: str) -> "Result":
        """Itself, if it ended with that code, without a traceback, and with these words in its message."""
        assert "Traceback" not in self.err, self.err
        assert self.code == code, f"exit {self.code}: {self.err or self.out}"
        missing = [word for word in words if word not in (self.err if code else self.out + self.err)]
        assert not missing, f"{missing} not in: {self.err or self.out}"
        return self


def assay(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, prefix: tuple[str, ...] = ()
) -> Result:
    """``assay ARGUMENTS`` in a new interpreter; ``prefix`` is what it is started by, such as ``unshare``."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "assay", *arguments],
        capture_output=True,
        env=os.environ | dict(env or {}),
        cwd=cwd,
        timeout=SECONDS,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode(errors="surrogateescape"))


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: files with their content, links with where they lead."""

    def content(path: Path) -> bytes | None:
        if path.is_symlink():
            return bytes(path.readlink())
        return path.read_bytes() if path.is_file() else None

    return {str(path.relative_to(folder)): content(path) for path in sorted(folder.rglob("*"))}


def work_of(run: Path) -> dict[str, bytes]:
    """What a run has committed, to compare with another: everything but clocks, locks and what was set aside."""
    skipped = ("quarantine/", "report/", "LOCK", "stats.json", "plot.csv", "environment.json")
    return {
        name: content for name, content in tree(run).items() if content is not None and not name.startswith(skipped)
    }


class Child:
    """A command under way in a nursery."""

    def __init__(self, nursery: "Nursery", pid: int, out: Path, err: Path) -> None:
        self.nursery, self.pid, self.out, self.err = nursery, pid, out, err
        self._code: int | None = None

    def poll(self) -> int | None:
        """None while it runs, else its code."""
        if self._code is None and self.nursery.told(wait=False):
            self._code = self.nursery.answer()["code"]
        return self._code

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self) -> Result:
        if self._code is None:
            self._code = self.nursery.answer()["code"]
        return Result(self._code, self.out.read_text(), self.err.read_text(errors="surrogateescape"))


class Nursery:
    """An interpreter that has everything imported and forks for every command, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self._last: Child | None = None
        self._home = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def start(self, *arguments: str, before: str = "", env: Mapping[str, str] | None = None) -> Child:
        """The command in a child of its own; ``before`` is Python that the child runs first, to break something."""
        if self._last is not None and self._last.poll() is None:  # of a test that failed before it had ended
            self._last.kill()
            self._last.wait()
        self.count += 1
        out, err = (self.folder / f"child-{self.count:04d}.{name}" for name in ("out", "err"))
        for file in (out, err):
            file.touch()  # a child may be killed before it has opened them
        asked = {
            "arguments": arguments,
            "before": before,
            "cwd": str(Path.cwd()),
            "env": {**os.environ, **(env or {})},
            "out": str(out),
            "err": str(err),
        }
        assert self._home.stdin is not None
        self._home.stdin.write(json.dumps(asked) + "\n")
        self._home.stdin.flush()
        self._last = Child(self, self.answer()["pid"], out, err)
        return self._last

    def run(self, *arguments: str, before: str = "", env: Mapping[str, str] | None = None) -> Result:
        return self.start(*arguments, before=before, env=env).wait()

    def told(self, *, wait: bool = True) -> bool:
        """Whether the home has something to tell."""
        import select

        assert self._home.stdout is not None
        return bool(select.select([self._home.stdout], [], [], SECONDS if wait else 0)[0])

    def answer(self) -> Any:
        assert self._home.stdout is not None
        assert self.told(), f"a command runs for more than {SECONDS} s"
        line = self._home.stdout.readline()
        assert line, "the nursery ended"
        return json.loads(line)

    def close(self) -> None:
        self._home.kill()
        self._home.communicate()


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery for the length of a test or of a session."""
    with tempfile.TemporaryDirectory() as folder:
        home = Nursery(Path(folder))
        try:
            yield home
        finally:
            home.close()
