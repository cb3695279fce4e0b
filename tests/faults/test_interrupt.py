"""Ctrl-C, once and twice, and a polite kill, wherever it strikes: exit 2, one message, and the same command finishes as
if nothing had happened.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import small
from commands import Nursery, assay
from injected import breaking, swept

ONCE, TWICE, POLITE, CLOSED = "SIGINT", "SIGINT+SIGINT", "SIGTERM", "SIGHUP"
PRIORITISE = ["prioritise", small.MODEL, "--pool", "seeds.npz", "--by", "gini", "--run", "{}", "--quiet"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "every"),
    [(small.fuzz("{}"), 0, 4), (small.EVAL, 0, 5), (small.HARDEN, 1, 40), (PRIORITISE, 0, 4)],
    ids=["fuzz", "eval", "harden", "prioritise"],
)
def test_wherever_it_strikes_the_same_command_goes_on(
    arguments: list[str], code: int, every: int, home: Nursery, root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    home.run(*(part.replace("{}", "alone") for part in arguments), before=breaking(root, log)).ended(code)
    count, alone = len(log.read_text().splitlines()), small.committed(root / "alone")
    points = [(i, (ONCE, TWICE, POLITE, CLOSED)[i // every % 4]) for i in range(2, count - 1, every)]
    told = swept(home, root, tmp_path / "sweep", arguments, points)
    assert {point["broken"]["code"] for point in told} == {2}, told
    for point in told:
        check(point, code, root)
        found = small.committed(root / point["name"])
        if "state/orders-002.json" in found:  # its order was committed, and then asked for once more
            assert found.pop("state/orders-002.json") == found["state/orders-001.json"]
            found["journal.jsonl"] = alone["journal.jsonl"]
        assert found == alone, f"{point['name']}: {sorted(k for k in alone if found.get(k) != alone[k])}"


def check(point: Any, code: int, root: Path) -> None:
    """What must hold after each interrupt."""
    name, said = point["name"], point["broken"]["err"]
    assert "Traceback" not in said, f"{name}: {said}"
    assert "the same command" in said, f"{name}: {said}"
    assert not point["left"], f"{name}: {point['left']}"
    assert point["status"]["code"] in (0, 4), point["status"]
    assert point["again"]["code"] == code, f"{name}: {point['again']['err']}"
    assert not list((root / name).rglob("*.tmp")), name


@pytest.mark.slow
@pytest.mark.parametrize("how", [ONCE, POLITE])
def test_a_training_goes_on_after_its_last_epoch(how: str, home: Nursery, tmp_path: Path) -> None:
    """No half-written weights ever lie at ``--out``, and what comes out in the end are the same weights."""
    small.prepare(tmp_path)
    (tmp_path / "out").mkdir()
    made = ["train", "tiny.py:net", "--data", "digits", "--epochs", "3", "--deterministic", "--quiet", "--out"]
    log = tmp_path / "calls"
    home.run(*made, "out/a.safetensors", before=breaking(tmp_path / "out", log)).ended(0)
    count = len(log.read_text().splitlines())
    for number in range(1, count, 7):
        out = f"out/{number}.safetensors"
        broken = home.run(*made, out, before=breaking(tmp_path / "out", log, number, how))
        broken.ended(2, "the same command goes on")
        assert not Path(out).exists() or number > count - 7, "whole weights, or none"
        assert not list((tmp_path / "out").glob("*.tmp"))
        home.run(*made, out).ended(0)
        assert _weights(out) == _weights("out/a.safetensors"), number


def _weights(path: str) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return {name: array.tolist() for name, array in load_file(path).items()}


@pytest.mark.slow
def test_shrinking_goes_on(home: Nursery, root: Path, tmp_path: Path) -> None:
    """Pressed twice: once lets it finish its block (tests/unit/engines/test_stop.py), and here there is one block."""
    for name in ("alone", "stopped"):
        home.run(*small.fuzz(name)).ended(0)
    home.run("shrink", "alone", "--quiet", "--json").ended(0)
    for number in (1, 4, 8, 12):
        home.run(
            "shrink", "stopped", "--quiet", "--json", before=breaking(root, tmp_path / "log", number, TWICE)
        ).ended(2, "the same command goes on")
    home.run("shrink", "stopped", "--quiet", "--json").ended(0)
    assert small.committed(root / "stopped") == small.committed(root / "alone")


def test_an_interrupt_while_it_is_still_being_imported_is_one_message() -> None:
    """At every moment from the start of the interpreter's own code on."""
    seen = set()
    for wait in (0.02, 0.05, 0.1, 0.2, 0.5):
        child = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "assay", "list"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert child.stderr is not None
        for line in child.stderr:
            if "assay" in line:  # our own code runs from here on
                break
        time.sleep(wait)  # any moment will do: none is waited for
        child.send_signal(signal.SIGINT)
        said = child.stderr.read()
        code = child.wait()
        assert "Traceback" not in said, said
        assert code in (0, 2), (code, said[-500:])
        assert code == 0 or "error: stopped" in said, said[-500:]
        seen.add(code)
    assert 2 in seen


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """Under nohup, and in the background of a script, a hang-up or Ctrl-C does not end the work."""
    ignoring = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    pressed = (
        "import os; os.kill(os.getpid(), signal.SIGINT); from assay.cli import run; sys.exit(run(['list', 'suite']))"
    )
    done = subprocess.run([sys.executable, "-c", ignoring + pressed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert assay("list", "suite").ended(0)
