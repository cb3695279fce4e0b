"""Shrinking that is killed, stopped and started again ends as if nothing had happened."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from assay.core import store
from assay.engines.shrinkings import shrinkings
from commands import Child, Nursery, work_of

# Many small blocks, and time between a question and its answer in which to strike.
BLOCK = 2
SMALL = f"from assay.engines import shrink; shrink.BLOCK = {{'cpu': {BLOCK}}}"
SLOW = (
    SMALL
    + """
import time
from assay.engines import shrunk
asked = shrunk._surely
def slowly(*given):
    time.sleep(0.0005)
    return asked(*given)
shrunk._surely = slowly
"""
)
STRIKES = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)


def blocks(run: Path) -> int:
    return len(list((run / "state").glob("shrunk-*.safetensors")))


def reached(child: Child, run: Path, count: int) -> bool:
    """Wait until so many more blocks lie there; False where the command ended first.

    More than before, since a command that is struck softly ends its block: to count from nothing would strike the next
    one before it has begun.
    """
    before = blocks(run)
    while child.poll() is None:
        if blocks(run) >= before + count:
            return True
        time.sleep(0.001)
    return False


@pytest.mark.slow
def test_kills_and_stops_change_nothing(home: Nursery, digits_model: str) -> None:
    folder = Path(os.environ["ASSAY_RUNS"])
    given = ["--data", "digits/train[:60]", "--recipe", "noise", "--eps", "0.4", "--run", "alone", "--quiet"]
    home.run("fuzz", digits_model, *given).ended(0)
    struck = Path(shutil.copytree(folder / "alone", folder / "struck"))
    home.run("shrink", "alone", "-k", "28", "--quiet", before=SMALL).ended(0)
    assert blocks(folder / "alone") > 2 * len(STRIKES) + 2, "make it longer"
    for count, number in enumerate(STRIKES):
        child = home.start("shrink", "struck", "-k", "28", "--quiet", before=SLOW)
        assert reached(child, struck, 1)
        child.kill(number)
        done = child.wait()
        if number == signal.SIGKILL:
            assert done.code == -number
        else:
            done.ended(2, "the same command goes on")
        # A file may lie there whose line was not written: it did not happen.
        assert sum(one["cases"] for one in shrinkings(store.read(struck))) >= BLOCK * count
    told = home.run("status", "struck", "--json").ended(0).json
    assert (told["alive"], told["damage"], told["shrunk"][0]["complete"]) == (False, [], False)
    home.run("report", "struck").ended(0)
    assert home.run("shrink", "struck", "-k", "28", "--json", before=SMALL).ended(0).json["complete"]
    assert work_of(struck) == work_of(folder / "alone")
    assert home.run("shrink", "struck", "-k", "28", "--json").ended(0).json["new"] is False


@pytest.mark.slow
def test_fuzz_that_shrinks_is_killed_while_it_shrinks(home: Nursery, digits_model: str) -> None:
    runs = Path(os.environ["ASSAY_RUNS"])
    base = ["fuzz", digits_model, "--data", "digits/train[:60]", "--recipe", "noise", "--eps", "0.4", "--shrink"]
    alone = home.run(*base, "--run", "alone", "--json", "--quiet", before=SMALL).ended(0).json
    child = home.start(*base, "--run", "struck", "--quiet", before=SLOW)
    assert reached(child, runs / "struck", 2)
    child.kill()
    assert child.wait().code == -signal.SIGKILL
    told = home.run(*base, "--run", "struck", "--json", "--quiet", before=SMALL).ended(0).json
    assert work_of(runs / "struck") == work_of(runs / "alone")
    assert told["kinds"] == alone["kinds"]
    untimed = {"run": None, "seconds": None}
    assert told["shrunk"] | untimed == alone["shrunk"] | untimed
    assert told["shrunk"]["cases"] == told["kinds"]["count"]
