"""Fault 11 for real: a GPU on which little memory is left. Skipped where there is none (`make faults` on a CPU)."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.subjects.sources import checkpoint
from commands import Result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

LITTLE = 700 << 20  # bytes: what 512 images and their gradients need of a ResNet-20 is more
LIMITED = """
import sys, torch
little = {little}
if little:
    torch.cuda.set_per_process_memory_fraction(little / torch.cuda.get_device_properties(0).total_memory)
from assay.cli import run
sys.exit(run(sys.argv[1:]))
"""


def assay(*arguments: str, little: int = 0) -> Result:
    """The command in an interpreter of its own, with so little memory on the GPU."""
    code = LIMITED.format(little=little)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, timeout=300, env=os.environ)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def shrank(told: Result) -> list[tuple[int, int]]:
    """How many rows did not fit, and with how many it went on, each time."""
    found = re.findall(r"out of memory with (\d+) \w+, going on with (\d+)", told.err)
    assert found, f"memory never ran out: the test tests nothing\n{told.err}"
    sizes = [(int(before), int(after)) for before, after in found]
    assert all(after <= before // 2 for before, after in sizes), sizes
    return sizes


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A ResNet-20 on two colours with some noise, which it learns at once, and 1024 of them."""
    folder = tmp_path_factory.mktemp("gpu")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1024)
    x = np.clip(rng.normal(0.5, 0.1, (1024, 3, 32, 32)) + 0.05 * (2 * y - 1)[:, None, None, None], 0, 1)
    np.savez(folder / "two.npz", x=x.astype(np.float32), y=y)
    weights = folder / "net.safetensors"
    data = str(folder / "two.npz")
    assay("train", "resnet20", "--data", data, "--epochs", "1", "--out", str(weights), "--device", "cuda").ended(0)
    return {"model": f"resnet20@{weights}", "data": data}


def test_attacks(net: dict[str, Any]) -> None:
    arguments = ["eval", net["model"], "--data", net["data"], "--suite", "pgd(steps=5)", "--eps", "0.1", "--each"]
    arguments += ["--device", "cuda", "--batch", "1024", "--json"]
    full, little = assay(*arguments).ended(0), assay(*arguments, little=LITTLE).ended(0)
    shrank(little)
    assert little.json["clean"]["accuracy"] == full.json["clean"]["accuracy"]
    one, other = (told.json["attacks"]["pgd"]["accuracy"] for told in (little, full))
    assert abs(one - other) < 0.01


@pytest.mark.parametrize(("recipe", "bytes_left"), [("noise", 180 << 20), ("robot", LITTLE)])
def test_fuzzing(net: dict[str, Any], recipe: str, bytes_left: int) -> None:
    arguments = ["fuzz", net["model"], "--data", net["data"], "--recipe", recipe, "--eps", "0.3", "--cases", "4000"]
    arguments += ["--device", "cuda", "--lanes", "1024", "--json", "--set", "schedule.steps=4"]
    full = assay(*arguments, "--run", "full").ended(0)
    little = assay(*arguments, "--run", "little", little=bytes_left).ended(0)
    shrank(little)
    assert little.json["cases"] == full.json["cases"]
    assert abs(little.json["failures"] - full.json["failures"]) <= 0.02 * full.json["failures"] + 2


def test_training_in_parts(net: dict[str, Any], tmp_path: Path) -> None:
    arguments = ["train", "resnet20", "--data", net["data"], "--epochs", "2", "--batch", "900", "--device", "cuda"]
    told = assay(*arguments, "--out", str(tmp_path / "w.safetensors"), little=LITTLE).ended(0)
    shrank(told)
    weights, _ = checkpoint.read(tmp_path / "w.safetensors")
    assert all(bool(column.isfinite().all()) for column in weights.values() if column.is_floating_point())


def test_where_not_even_one_fits(net: dict[str, Any]) -> None:
    arguments = ["eval", net["model"], "--data", net["data"], "--suite", "fgsm", "--eps", "0.1", "--device", "cuda"]
    assay(*arguments, little=3 << 20).ended(3, "memory")
