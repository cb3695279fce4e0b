"""Kill the process at random moments, run the same command again: the result is as if nothing had happened."""

import os
import random
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import small
from assay.core import store
from assay.subjects.data.load import load_data
from commands import Child, Nursery
from injected import KILLED, breaking
from locks import at_work

KILLS = 30

CAMPAIGN = """
[run]
seed = 3
unit = 16
[recipe]
name = "noise"
mutate = "noise(eps=0.4)"
schedule = "per_seed(steps=60, failures=6)"
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
schedule = "pool(mutants=10)"
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
schedule = "pool(pick=time, mutants=10, depth=3)"
coverage = "nc(threshold=0.1)"
score = ["active"]
keep = ["outdoes(score=active)"]
"""


def command(model: str, name: str) -> list[str]:
    base = ["fuzz", model, "--data", "seeds.npz", "--config", "campaign.toml"]
    return [*base, "--run", name, "--lanes", "48", "--json", "--quiet"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("campaign", "kills"), [(CAMPAIGN, KILLS), (POOLED, 6), (TIMED, 4)], ids=["seeds", "pool", "timed"]
)
def test_kills_change_nothing(campaign: str, kills: int, digits_model: str, tmp_path: Path, home: Nursery) -> None:
    (tmp_path / "campaign.toml").write_text(campaign)
    train = load_data("digits/train").cases
    np.savez(tmp_path / "seeds.npz", x=train.x.numpy(), y=train.y.numpy())  # read without importing scikit-learn
    runs = Path(os.environ["ASSAY_RUNS"])
    alone = home.run(*command(digits_model, "alone")).ended(0)
    dice, killed, log = random.Random(0), 0, runs / "killed" / "journal.jsonl"
    aside = [0]  # files set aside after each kill
    while killed < kills:
        child = home.start(*command(digits_model, "killed"))
        if not at_work(child, runs / "killed"):
            break  # it finished before we could strike again
        _wait(child, log, dice.choice((0, 1, 1, 2)))
        time.sleep(dice.uniform(0, 0.02))
        child.kill()
        if child.wait().code != -9:
            break
        killed += 1
        aside.append(_aside(runs / "killed"))
        before = log.read_bytes() if log.exists() else b""
        told = home.run("status", "killed", "--json")
        if before:
            assert told.ended(0).json["alive"] is False
            assert told.json["commits"] == before.count(b"\n"), "no line is lost"
        else:
            told.ended(4, "run 'killed'")
    done = home.run(*command(digits_model, "killed")).ended(0)
    assert killed >= kills, f"the run ended after {killed} kills; make it longer"
    assert small.committed(runs / "killed") == small.committed(runs / "alone")
    first, last = alone.json, done.json
    for key in ("seeds", "cases", "failures", "distinct", "flaky", "complete"):
        assert first[key] == last[key]
    assert not list((runs / "killed").rglob("*.tmp"))
    lines = list(store.read(runs / "killed").commits("fuzz"))
    assert len({line.meta["unit"] for line in lines}) == len(lines), "each unit is committed once"
    most = max(len(line.files) for line in lines) + 3  # of the open unit: its shards, a torn line, temporary files
    aside.append(_aside(runs / "killed"))
    # What a kill leaves is set aside by the next command that gets so far.
    assert max(after - before for before, after in pairwise(aside)) <= most, f"more than a step was done again: {aside}"


def _aside(run: Path) -> int:
    return len(list((run / "quarantine").glob("*")))


def _wait(child: Child, log: Path, more: int) -> None:
    """Until there are so many lines more, or it ended."""
    had = _lines(log)
    while child.poll() is None and _lines(log) < had + more:
        time.sleep(0.002)


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


SELECT = ["select", "run", "--by", "random", "-k", "5", "--json"]
PRIORITISE = ["prioritise", small.MODEL, "--pool", "seeds.npz", "--by", "gini", "--run", "run", "--json", "--quiet"]
SHRINK = ["shrink", "run", "-k", "5", "--json", "--quiet"]
TRAIN = ["train", "tiny.py:net", "--data", "digits", "--epochs", "2", "--deterministic", "--quiet"]
TRAIN += ["--out", "runs/run/w.safetensors"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "first"),
    [(SELECT, True), (SHRINK, True), (PRIORITISE, False), (TRAIN, False)],
    ids=["select", "shrink", "prioritise", "train"],
)
def test_other_commands_die_and_go_on(arguments: list[str], first: bool, home: Nursery, tmp_path: Path) -> None:
    """At every third call to the disk: in the end there is what there is without a kill, and never half of a file."""
    small.prepare(tmp_path)
    runs = Path(os.environ["ASSAY_RUNS"])
    log, ended = tmp_path / "calls", []
    for kind in ("alone", "killed"):
        (runs / "run").mkdir(parents=True)
        if first:
            home.run(*small.fuzz("run")).ended(0)
        number = 1
        while kind == "killed":
            done = home.run(*arguments, before=breaking(runs, log, number, KILLED))
            if done.code != -9:
                break  # it came through: fewer calls than that
            weights = runs / "run" / "w.safetensors"
            assert not weights.exists() or _whole(weights)
            number += 3
        ended.append(home.run(*arguments).ended(0))
        if kind == "alone":
            (runs / "run").rename(runs / "alone")
    found = {name: small.committed(runs / name) for name in ("run", "alone")}
    assert {k for k in found["run"] if "orders-" not in k} == {k for k in found["alone"] if "orders-" not in k}
    assert not list((runs / "run").rglob("*.tmp"))
    clocked = ("journal.jsonl", "w.safetensors")  # weights tell seconds; an order may have been asked for again
    for name, content in found["alone"].items():
        if not any(part in name for part in clocked):
            assert found["run"][name] == content, name
    if (runs / "run" / "w.safetensors").exists():
        assert _weights(runs / "run" / "w.safetensors") == _weights(runs / "alone" / "w.safetensors")


def _weights(path: Path) -> dict[str, list[float]]:
    from safetensors.numpy import load_file

    return {name: array.tolist() for name, array in load_file(path).items()}


def _whole(path: Path) -> bool:
    return bool(_weights(path))
