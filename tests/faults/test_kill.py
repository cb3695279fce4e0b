"""Kill the process at random moments, run the same command again: the result is as if nothing had happened."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from assay.core import store
from assay.outputs.status import run_status
from assay.subjects.data.load import load_data
from locks import at_work

KILLS = 20

CAMPAIGN = """
[run]
seed = 3
unit = 16
[recipe]
name = "noise"
mutate = "noise(eps=0.4)"
schedule = "per_seed(steps=400, failures=40)"
"""

# What is covered and who is in the pool must come back as well.
POOLED = """
[run]
seed = 3
unit = 48
[data]
training = "seeds.npz"
[recipe]
name = "noise"
mutate = "noise(eps=0.3)"
schedule = "pool(mutants=40)"
coverage = "kmnc(k=1000)"
keep = ["gains"]
"""

# The pool goes by the time of entry, members have scores and depths, and a case is compared with its parent.
TIMED = """
[run]
seed = 3
unit = 48
[data]
training = "seeds.npz"
[recipe]
name = "noise"
mutate = "noise(eps=0.3)"
schedule = "pool(pick=time, mutants=40, depth=3)"
coverage = "nc(threshold=0.1)"
score = ["active"]
keep = ["outdoes(score=active)"]
"""


def command(model: str, name: str) -> list[str]:
    base = [sys.executable, "-m", "assay", "fuzz", model, "--data", "seeds.npz", "--config", "campaign.toml"]
    return [*base, "--run", name, "--lanes", "48", "--json", "--quiet"]


def start(model: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(model, name), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def content(folder: Path) -> dict[str, bytes]:
    parts = [folder / name for name in ("cases", "state", "guidance")]
    kept = [*(path for part in parts if part.is_dir() for path in sorted(part.iterdir())), folder / "journal.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.mark.parametrize(
    ("campaign", "kills"), [(CAMPAIGN, KILLS), (POOLED, 6), (TIMED, 4)], ids=["seeds", "pool", "timed"]
)
def test_kills_change_nothing(campaign: str, kills: int, digits_model: str, tmp_path: Path) -> None:
    (tmp_path / "campaign.toml").write_text(campaign)
    train = load_data("digits/train").cases
    np.savez(tmp_path / "seeds.npz", x=train.x.numpy(), y=train.y.numpy())  # read without importing scikit-learn
    runs = Path(os.environ["ASSAY_RUNS"])
    alone = subprocess.run(command(digits_model, "alone"), capture_output=True, check=True)
    dice = random.Random(0)
    killed = 0
    while killed < kills:
        child = start(digits_model, "killed")
        if not at_work(child, runs / "killed"):
            break  # it finished before we could strike again
        time.sleep(dice.uniform(0, 0.25))
        child.kill()
        child.communicate()
        killed += 1
        told = run_status(store.read(runs / "killed")) if (runs / "killed" / "journal.jsonl").exists() else {}
        assert not told.get("alive")
    done = subprocess.run(command(digits_model, "killed"), capture_output=True, check=True)
    assert killed >= kills, f"the run ended after {killed} kills; make it longer"
    assert content(runs / "killed") == content(runs / "alone")
    first, last = json.loads(alone.stdout), json.loads(done.stdout)
    for key in ("seeds", "cases", "failures", "distinct", "flaky", "complete"):
        assert first[key] == last[key]
    assert not list((runs / "killed").rglob("*.tmp"))
    ids = [line.meta["unit"] for line in store.read(runs / "killed").commits("fuzz")]
    assert len(ids) == len(set(ids)), "each unit is committed once"
