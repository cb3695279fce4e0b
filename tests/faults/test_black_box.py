"""A black box that fails: no answer is lost, none is asked for twice, and no budget is exceeded.

What counts is what the server received, not what the client says.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from assay.core.errors import BudgetSpent
from assay.engines.asking import ANSWERS
from assay.subjects.asked import Asked, log_probabilities
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from faulty_server import FAULTS, FINE, FaultyServer, faulty
from locks import at_work
from served import served

Shares = Callable[[NDArray[np.float32]], NDArray[np.float32]]

TROUBLE = {"error": 0.1, "busy": 0.03, "late": 0.02, "broken": 0.05, "short": 0.03, "cut": 0.05}
PATIENT = "timeout=1.5, retries=12"
KILLS = 3
# Small, but with all that asks: start set, check set, rounds of questions along the Jacobian, and the pool at last.
LBT = "lbt(start=20, check=60, rounds=3, epochs=6, mutants=6, tau=0.99, rate=0.01)"


@pytest.fixture
def net(digits_model: str) -> Shares:
    target = load_target(digits_model, device="cpu")

    def shares(x: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            told: NDArray[np.float32] = target(torch.from_numpy(np.array(x))).softmax(1).numpy()
            return told

    return shares


def about(**more: Any) -> dict[str, Any]:
    return {
        "shape": [1, 8, 8],
        "bounds": [0, 1],
        "classes": [str(i) for i in range(10)],
        "gives": "probabilities",
        "batch": 32,
        "fingerprint": "the same net, whatever its address",
        "encodings": ["list", "base64"],
        **more,
    }


def asked_at(server: FaultyServer, queries: int | None = None, ask: str = PATIENT) -> Asked:
    target = load_target(server.url, queries=queries, ask=ask)
    assert isinstance(target, Asked)
    return target


@pytest.mark.parametrize("described", [True, False], ids=["described", "undescribed"])
def test_every_answer_comes_through_and_every_attempt_is_counted(described: bool, net: Shares) -> None:
    data = load_data("digits/test[:150]")
    x = torch.cat([data.cases.x, data.cases.x[:40]])  # some of them twice in one question
    expected = log_probabilities(torch.from_numpy(net(x.numpy())).log())
    with faulty(net, about() if described else None, faults=TROUBLE, delay=2.0) as server:
        target = load_target(server.url, data=data, ask=f"{PATIENT}, batch=8")
        assert isinstance(target, Asked)
        got = target(x)
        assert torch.allclose(got, expected, atol=1e-5)
        assert torch.equal(target(x.flip(0)), got.flip(0)), "from the book"
        assert set(server.answered().values()) == {1}
        assert len(server.answered()) == 150
        assert sum(server.count(fault) for fault in FAULTS) >= 3, "there were faults to live through"
        told = target.queries
        assert (told.asked, told.first, told.repeats) == (server.inputs, 150, 0)
        assert told.retries == server.inputs - 150 > 0


def test_no_budget_is_ever_exceeded_and_no_answer_lost(net: Shares, tmp_path: Path) -> None:
    """The same questions with one budget after the other, each in a process of its own as far as the target knows."""
    x = load_data("digits/test[:90]").cases.x
    with faulty(net, about(batch=7), faults={"error": 0.2, "broken": 0.1, "cut": 0.1}) as server:
        for limit in (1, 7, 10, 30, 31, 60, 89):
            target = asked_at(server, limit, "retries=30")
            target.keep(tmp_path / ANSWERS)
            with pytest.raises(BudgetSpent) as spent:
                target(x)
            assert (spent.value.limit, spent.value.asked) == (limit, server.inputs)
            assert server.inputs == target.queries.asked <= limit
        target = asked_at(server, 1000, "retries=30")
        target.keep(tmp_path / ANSWERS)
        got = target(x)
        assert server.inputs == target.queries.asked > 90
        assert set(server.answered().values()) == {1}
        assert len(server.answered()) == 90
    assert torch.allclose(got, log_probabilities(torch.from_numpy(net(x.numpy())).log()), atol=1e-5)


def test_declared_repeats_outvote_a_flaky_server(net: Shares) -> None:
    x = load_data("digits/test[:200]").cases.x
    right = torch.from_numpy(net(x.numpy())).argmax(1)
    with faulty(net, about(), flaky=0.1, faults={"error": 0.1}) as server:
        wrong = {}
        for repeats in (1, 5):
            server.log.clear()
            target = asked_at(server, None, f"{PATIENT}, labels=true, repeats={repeats}")
            wrong[repeats] = int((target(x).argmax(1) != right).sum())
            assert set(server.answered().values()) == {repeats}
            told = target.queries
            assert (told.first, told.repeats) == (200, 200 * (repeats - 1))
            assert told.asked == server.inputs
            assert (target.unsteady > 0) == (repeats > 1)
    assert 8 <= wrong[1] <= 40
    assert wrong[5] <= 6, "three of five answers to one input are wrong once in a hundred"


# Whole runs ---------------------------------------------------------------------------------------------------------


def pool_and_training(folder: Path) -> None:
    train, test = load_data("digits/train").cases, load_data("digits/test[:60]").cases
    np.savez(folder / "train.npz", x=train.x.numpy(), y=train.y.numpy())
    np.savez(folder / "pool.npz", x=test.x.numpy(), y=test.y.numpy())


def command(url: str, run: str, queries: int, ask: str = PATIENT) -> list[str]:
    base = [sys.executable, "-m", "assay", "prioritise", url, "--pool", "pool.npz", "--training", "train.npz"]
    asking = ["--by", LBT, "--queries", str(queries), "--ask", ask, "--run", run]
    return [*base, *asking, "-k", "60", "--json", "--quiet"]


def done(url: str, run: str, queries: int, ask: str = PATIENT) -> dict[str, Any]:
    ended = subprocess.run(command(url, run, queries, ask), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def rows_of(told: dict[str, Any]) -> list[int]:
    rows: list[int] = told["methods"][0]["rows"]
    assert sorted(rows) == list(range(60))
    return rows


@pytest.mark.slow
def test_a_run_stops_at_its_budget_and_goes_on_to_the_same_order(digits_model: str, tmp_path: Path) -> None:
    """Against ``assay serve``: first by itself, then through one that spoils what it says."""
    pool_and_training(tmp_path)
    with served(digits_model, "--batch", "32", "--quiet", ends_by=signal.SIGTERM) as url:
        alone = done(url, "alone", 20_000)
        assert alone["complete"]
        bare = alone["queries"]["asked"]
        _through_faults(url, alone, bare, tmp_path)


def _through_faults(url: str, alone: dict[str, Any], bare: int, tmp_path: Path) -> None:
    with urllib.request.urlopen(url) as reply:
        described = json.load(reply)

    def forwarded(x: NDArray[np.float32]) -> NDArray[np.float32]:
        body = json.dumps({"inputs": x.tolist()}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as reply:
            return np.array(json.load(reply)["probabilities"], np.float32)

    with faulty(forwarded, described, faults=TROUBLE, delay=2.0) as server:
        first = done(server.url, "run", bare // 2)
        assert not first["complete"]
        assert server.inputs == first["queries"]["asked"] <= bare // 2
        answers = (tmp_path / "runs" / "run" / ANSWERS).read_bytes()
        last = done(server.url, "run", 20_000)
        assert last["complete"]
        assert server.inputs == last["queries"]["asked"]
        assert set(server.answered().values()) == {1}, "no question is asked twice"
        assert any(server.count(fault) for fault in FAULTS)
        assert (tmp_path / "runs" / "run" / ANSWERS).read_bytes().startswith(answers), "no answer is lost"
        assert rows_of(last) == rows_of(alone)
        before = server.inputs
        again = done(server.url, "run", 20_000)
        assert server.inputs == before, "the same command asks nothing more"
        assert rows_of(again) == rows_of(alone)


@pytest.mark.slow
def test_a_flaky_run_counts_its_repeats(net: Shares, tmp_path: Path) -> None:
    pool_and_training(tmp_path)
    with faulty(net, about(), faults=TROUBLE, delay=2.0, flaky=0.1) as server:
        told = done(server.url, "flaky", 20_000, f"{PATIENT}, repeats=3")
        assert told["complete"]
        assert set(server.answered().values()) == {3}
        counts = told["queries"]
        assert counts["asked"] == server.inputs <= 20_000
        assert counts["repeats"] == 2 * counts["first"] == 2 * len(server.answered())
        assert counts["retries"] == server.inputs - 3 * counts["first"]


@pytest.mark.slow
def test_kills_lose_no_answer_and_no_count(net: Shares, tmp_path: Path) -> None:
    pool_and_training(tmp_path)
    runs, dice, budget = Path(os.environ["ASSAY_RUNS"]), random.Random(1), 20_000
    with faulty(net, about()) as server:
        alone = done(server.url, "alone", budget)
    with faulty(net, about(), faults={"error": 0.1, "broken": 0.05}, pause=0.05) as server:
        kept = b""
        for _ in range(KILLS):
            run = command(server.url, "killed", budget)
            child = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert at_work(child, runs / "killed"), "the run ended before we could strike; make it longer"
            heard = len(server.log)
            while len(server.log) < heard + 4 and child.poll() is None:
                time.sleep(0.005)
            time.sleep(dice.uniform(0, 0.1))
            child.kill()
            child.communicate()
            now = (runs / "killed" / ANSWERS).read_bytes()
            assert now.startswith(kept[: kept.rfind(b"\n") + 1])
            kept = now
        assert server.count(FINE) >= KILLS
        last = done(server.url, "killed", budget)
    assert last["complete"]
    asked, received, batch = last["queries"]["asked"], server.inputs, 32
    # A question under way when the process dies was counted before it was sent; its answer comes to nobody.
    assert received <= asked <= received + KILLS * batch
    twice = sum(count - 1 for count in server.answered().values())
    assert twice <= KILLS * batch
    assert max(server.answered().values()) <= 1 + KILLS
    assert rows_of(last) == rows_of(alone)
