"""``make protections``: take every protection out, one at a time, and see a test fail.

A fault test that passes without what it tests is worth nothing. Each row takes one protection out of a copy of the
source and runs the tests that are to notice. It takes about an hour on two cores; name numbers of rows, or a word of
a file, to run some: ``python tools/protections.py 3 4 serve``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 600  # after which there is no verdict


class Row(NamedTuple):
    """What is taken out: ``old`` becomes ``new`` in a file of the package; ``test -k which`` is to fail.

    ``about`` is the number of the fault in our specification, or what it is about.
    """

    about: str
    file: str
    old: str
    new: str
    test: str
    which: str


ROWS = [Row(**row) for row in tomllib.loads((ROOT / "tools" / "protections.toml").read_text(encoding="utf-8"))["row"]]


def main(wanted: list[str]) -> int:
    """One line a row, and the number of protections that nobody missed."""
    missed = 0
    for number, row in enumerate(ROWS):
        if wanted and not any(word == str(number) or word in row.file or word in row.test for word in wanted):
            continue
        said = tried(row)
        missed += not said.startswith("noticed")
        taken = row.old.strip().splitlines()[0]
        print(f"{number} ({row.about}) {row.file}: {taken!r} taken out: {said}", flush=True)
    print(f"{missed} not noticed")
    return 1 if missed else 0


def tried(row: Row) -> str:
    """What came of taking it out."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        place = source / "assay" / row.file
        text = place.read_text(encoding="utf-8")
        if row.old not in text:
            return "NOT THERE any more: mend the row"
        place.write_text(text.replace(row.old, row.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", row.test]
        env = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        if row.which:
            command += ["-k", row.which]
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"NO VERDICT: {row.test} did not end within {SECONDS} s"
    if done.returncode == 1:
        first = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        return f"noticed by {first.split(' ')[1] if first else row.test}"
    return "NOT NOTICED" if done.returncode == 0 else f"NOT TRIED: pytest ends with {done.returncode}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
