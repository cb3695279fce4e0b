"""Training by a group of workers, as far as that goes without Ray."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core.errors import UsageError
from assay.engines.group import Gauged
from assay.engines.rank import on_cpu
from assay.engines.train import train
from assay.outputs.screen import train_line
from assay.stages.trainers.watch import State
from assay.subjects.sources import checkpoint


def test_without_ray_the_work_is_done_here_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"params": {"epochs": 1}, "deterministic": True}
    train("lenet5", "digits", "here.safetensors", **how)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    with caplog.at_level("WARNING", "assay"):
        train("lenet5", "digits", "there.safetensors", ray="local", workers=2, **how)
    assert [record.getMessage() for record in caplog.records if "assay[ray]" in record.getMessage()] != []
    assert len(caplog.records) == 1
    here, there = (checkpoint.read(Path(f"{name}.safetensors"))[0] for name in ("here", "there"))
    assert all(torch.equal(here[name], there[name]) for name in here)


def test_workers_are_of_ray() -> None:
    with pytest.raises(UsageError, match="--workers and --gpu-share are of --ray"):
        train("lenet5", "digits", "out.safetensors", workers=2)


def test_progress_tells_of_workers_beside_the_epochs() -> None:
    told: list[Any] = []
    tell = Gauged(told.append)
    tell({"epoch": 0.5})
    tell.gauges({"workers": {"workers": 1, "wanted": 2, "lost": 1}, "images": None})
    tell({"epoch": 1.5})
    assert told == [{"epoch": 0.5}, {"epoch": 1.5, "workers": {"workers": 1, "wanted": 2, "lost": 1}}]
    line = train_line(3)
    assert line(told[0])[0] == "epoch 0.5 of 3"
    assert line(told[1] | {"images": 99.6})[0] == "epoch 1.5 of 3, 100 images/s, 1 of 2 workers, 1 lost"


def test_a_state_travels_whole_also_with_an_optimiser_that_remembers_nothing() -> None:
    weight = {"w": torch.ones(2)}
    groups = [{"lr": 0.1, "params": [0]}]
    memory = {"then": torch.zeros(2)}
    state = State(1, weight, {"state": {}, "param_groups": groups}, {}, weight, [{"epoch": 1}], memory)
    assert on_cpu(state) == state
    assert on_cpu(State(0, weight, {}, {}, weight)).optimiser == {}
