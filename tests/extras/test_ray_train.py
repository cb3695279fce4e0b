"""Training on Ray: what one process gives, whoever dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.cli import run
from assay.core.errors import NOT_MET, AssayError, UsageError
from assay.engines.cluster import Cluster, connected
from assay.engines.train import Trained, train
from assay.subjects.sources import checkpoint
from small import HARDEN, committed, prepare

# A trainer of the user's own: as often as the file does not say so, a worker ends in the middle of an epoch.
DYING = """
import os
from pathlib import Path

from assay.stages.trainers.watch import Unwatched
from assay.stages.trainers.plain import plain
from assay.stages.trainers.ranks import here

def dying(module, data, extra, *, rng, watch, epochs: int = 4, batch: int = 64, deaths: int = 0, rank: int = 1):
    class Dying(Unwatched):
        resume, epoch, note = watch.resume, watch.epoch, watch.note

        def batch(self, number, done):
            marks = Path("deaths.txt")
            died = len(marks.read_text()) if marks.exists() else 0
            if here().rank == rank and number == 2 and done > 0.5 and died < deaths:
                marks.write_text("x" * (died + 1))
                os.kill(os.getpid(), 9)
            watch.batch(number, done)

    return plain(module, data, extra, rng=rng, watch=Dying(), epochs=epochs, batch=batch)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One for all tests: what ``--ray`` starts otherwise takes seconds each time."""
    with connected(Cluster("local", 2)):
        yield


def digits(out: str, **more: Any) -> Trained:
    how: dict[str, Any] = {"params": {"epochs": 4, "batch": 64}, "deterministic": True} | more
    return train("lenet5", "digits", out, **how)


def weights(path: str) -> dict[str, torch.Tensor]:
    return checkpoint.read(Path(path))[0]


def same(one: str, other: str) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.usefixtures("cluster")
def test_one_worker_gives_the_bytes_of_one_process_and_says_how_it_is_done() -> None:
    told: list[dict[str, Any]] = []
    here = digits("here.safetensors")
    there = digits("there.safetensors", ray="local", workers=1, progress=lambda numbers: told.append(dict(numbers)))
    assert same("here.safetensors", "there.safetensors")
    without = [[{k: v for k, v in row.items() if k != "seconds"} for row in done.log] for done in (here, there)]
    assert without[0] == without[1]
    assert not Path("there.state.safetensors").exists()
    assert [numbers["epoch"] for numbers in told if "val_loss" in numbers] == [1, 2, 3, 4]
    workers = [numbers["workers"] for numbers in told if "workers" in numbers]
    assert {"workers": 1, "wanted": 1, "lost": 0} in workers  # a busy machine may hear nothing of it for seconds
    assert all((state["wanted"], state["lost"]) == (1, 0) for state in workers)


@pytest.mark.usefixtures("cluster")
def test_a_worker_killed_within_an_epoch_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Path("own.py").write_text(DYING)
    how: dict[str, Any] = {"trainer": "own.py:dying", "params": {"epochs": 4}, "ray": "local", "workers": 2}
    digits("whole.safetensors", **how)
    with caplog.at_level("WARNING", "assay"):
        done = digits("cut.safetensors", **how | {"params": {"epochs": 4, "deaths": 1}})
    assert Path("deaths.txt").read_text() == "x"
    assert sum(record.getMessage().startswith("a worker is lost") for record in caplog.records) == 1
    assert done.epochs == 4
    assert same("whole.safetensors", "cut.safetensors")
    here = digits("here.safetensors")
    assert abs(here.log[0]["loss"] - done.log[0]["loss"]) < 1e-3  # the same steps, but for the order of sums


@pytest.mark.usefixtures("cluster")
def test_an_error_of_the_work_is_told_as_one_process_tells_it() -> None:
    how: dict[str, Any] = {"params": {"epochs": 2, "lr": 1e29}}
    with pytest.raises(UsageError) as here:
        digits("here.safetensors", **how)
    with pytest.raises(UsageError) as there:
        digits("there.safetensors", **how, ray="local", workers=2)
    assert str(here.value) == str(there.value)
    assert not Path("there.safetensors").exists()


# Trainers of the user's own that fail on one of two ranks: by a bug, and by a net that is not the others'.
FAULTY = """
from torch import nn

from assay.stages.trainers.plain import plain
from assay.stages.trainers.ranks import here

def bug(module, data, extra, *, rng, watch):
    if here().rank == 1:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    return plain(module, data, extra, rng=rng, watch=watch, epochs=1)

def odd(module, data, extra, *, rng, watch):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10 + here().rank))
    return plain(net, data, extra, rng=rng, watch=watch, epochs=1)
"""


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("trainer", "kind", "words"),
    [
        ("bug", AssayError, "own.py:bug failed: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("odd", UsageError, "the net has other weights or buffers on one worker than on another"),
    ],
)
def test_an_error_of_one_rank_is_no_worker_that_died(trainer: str, kind: type[AssayError], words: str) -> None:
    Path("own.py").write_text(FAULTY)
    told: list[dict[str, Any]] = []
    with pytest.raises(kind, match=words):
        digits("out.safetensors", trainer=f"own.py:{trainer}", params={}, ray="local", workers=2, progress=told.append)
    assert all(numbers["workers"]["lost"] == 0 for numbers in told if "workers" in numbers)


def command(out: str, *more: str) -> list[str]:
    base = ["train", "lenet5", "--data", "digits", "--epochs", "40", "--batch", "32", "--deterministic", "--json"]
    return [sys.executable, "-m", "assay", *base, "--out", out, *more]


def started(out: str) -> subprocess.Popen[str]:
    """A training on a cluster of its own, that has done an epoch."""
    process = subprocess.Popen(
        command(out, "--ray", "--workers", "2"), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    state = Path(out.replace(".safetensors", ".state.safetensors"))
    while not state.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    return process


def goes_on(out: str) -> None:
    """The same command, here in one process, ends the training from where it was."""
    kept = checkpoint.read_meta(Path(out.replace(".safetensors", ".state.safetensors")))["log"]
    done = subprocess.run(command(out), capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)["log"]
    assert 0 < len(kept) < len(told) == 40
    assert told[: len(kept)] == kept


# Ray's head asks clouds whether it runs there, also where its statistics are off, and has no switch for that.
@pytest.mark.tries_network
def test_ctrl_c_keeps_the_epochs_and_ends_with_2() -> None:
    process = started("cut.safetensors")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 2, said
    assert "Traceback" not in said
    goes_on("cut.safetensors")


@pytest.mark.slow
@pytest.mark.tries_network  # as above
def test_a_driver_that_is_killed_goes_on_with_the_same_command() -> None:
    process = started("cut.safetensors")
    process.kill()
    process.communicate()
    goes_on("cut.safetensors")


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_work_that_kills_its_worker_again_and_again_ends_with_what_was_done() -> None:
    Path("own.py").write_text(DYING)
    how: dict[str, Any] = {"trainer": "own.py:dying", "ray": "local", "workers": 2}
    with pytest.raises(AssayError, match="died 5 times in one epoch"):
        digits("out.safetensors", **how, params={"epochs": 4, "deaths": 99})
    assert checkpoint.read_meta(Path("out.state.safetensors"))["epoch"] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_where_no_worker_can_be_placed_the_command_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RAY_WAIT", "15")
    with pytest.raises(AssayError, match=r"no worker for 15 s, 64 were asked for.*ASSAY_RAY_WAIT=SECONDS") as ended:
        digits("out.safetensors", ray="local", workers=64)
    assert ended.value.exit_code == 3


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_hardening_on_one_worker_gives_the_bytes_of_one_process(tmp_path: Path) -> None:
    prepare(tmp_path)
    for name, more in (("here", []), ("there", ["--ray", "--workers", "1"])):
        assert run([word.format(name) for word in HARDEN] + more) == NOT_MET
    here, there = (committed(tmp_path / "runs" / name) for name in ("here", "there"))
    del here["campaign.toml"], there["campaign.toml"]  # the command as it was given
    assert "models/round-001.safetensors" in here
    assert sorted(there) == sorted(here)
    assert [name for name in here if there[name] != here[name]] == []
