"""Fault 5: a net comes back exactly as it was given, whatever was done with it and however that ended."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
import borrowed
from commands import SECONDS

Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What every work left behind, by its name and how it was disturbed; one process of a user's own for all."""
    place = tmp_path_factory.mktemp("borrowed")
    env = os.environ | {"ASSAY_RUNS": str(place / "runs"), "ASSAY_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    script = str(Path(borrowed.__file__))
    done = subprocess.run([sys.executable, script], cwd=place, env=env, capture_output=True, timeout=3 * SECONDS)
    assert not done.returncode, done.stderr.decode()[-2000:]
    found: dict[str, Told] = json.loads((place / "told.json").read_text())
    return found


@pytest.mark.slow
def test_nothing_is_left_behind(told: dict[str, Told]) -> None:
    left = {f"{name}, {how}": one["left"] for name, ways in told.items() for how, one in ways.items() if one["left"]}
    assert not left


@pytest.mark.slow
def test_every_work_was_tried_in_every_way(told: dict[str, Told]) -> None:
    assert {name: ways["well"]["ended"] for name, ways in told.items()} == dict.fromkeys(told, "well")
    for name, ways in told.items():
        assert ways["interrupted at 1"]["ended"].startswith(("KeyboardInterrupt", "Interrupted")), (name, ways)
        assert ways["raises at 1"]["ended"] != "well", name
        assert ways["well"]["calls"] > 0, f"{name} never asked the net: nothing was tested"
    kinds = ("attack ", "fuzz ")
    assert all(sum(name.startswith(kind) for name in told) >= 8 for kind in kinds)


@pytest.mark.slow
def test_training_mode_is_told_once_a_command(told: dict[str, Told]) -> None:
    assert {name: ways["well"]["told"] for name, ways in told.items()} == dict.fromkeys(told, 1)


def test_numbers_are_those_of_evaluation_mode() -> None:
    net = borrowed.prepared()
    still = copy.deepcopy(net).eval()
    data = borrowed.data_of(still, 12, 1)
    numbers = [assay.evaluate(one, data, suite="fgsm, pgd(steps=2)", eps=0.1, seed=1).to_json() for one in (net, still)]
    for told in numbers:
        told["protocol"].pop("model_fingerprint")  # its text tells dropout in training mode apart
        for outcome in told["attacks"].values():
            outcome.pop("seconds")
    assert numbers[0] == numbers[1]
    assert numbers[0]["clean"]["accuracy"] == 1.0
    made = [assay.attack("pgd(steps=3)", one, data.cases.x, data.cases.y, eps=0.1) for one in (net, still)]
    assert torch.equal(made[0].x, made[1].x)
