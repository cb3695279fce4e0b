"""TensorBoard: event files read back by its own reader, and a real server that shows them."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import small
from assay.cli import run as command
from assay.outputs.track.stream import tracked
from bad_strings import NAMES as BAD

pytest.importorskip("tensorboard", reason="pip install 'assay[track]'")
SECONDS = 240  # to start, however busy the machine


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0})
    found.Reload()
    return found


def test_a_run_read_back(tmp_path: Path) -> None:
    small.prepare(tmp_path)
    assert command(small.fuzz("a", "--cases", "60", "--log", "tensorboard")) == 0
    events, stats = read(tmp_path / "runs/a/tensorboard"), json.loads((tmp_path / "runs/a/stats.json").read_text())
    assert events.Scalars("result/failures")[0].value == stats["failures"] > 0
    tags = events.Tags()
    assert "fuzz/cases" in tags["scalars"]
    images = [image for tag in tags["images"] for image in events.Images(tag)]
    assert 0 < len(images) <= 64
    assert all(image.encoded_image_string.startswith(b"\x89PNG") for image in images)
    assert (images[0].width, images[0].height) == (3 * 96 + 4, 96)
    assert command(small.fuzz("a", "--cases", "200", "--log", "tensorboard")) == 0
    assert [event.value for event in read(tmp_path / "runs/a/tensorboard").Scalars("result/cases")][1] >= 200


def test_epochs_are_steps(tmp_path: Path) -> None:
    words = ["train", "mlp", "--data", "digits", "--epochs", "3", "--out", "m.safetensors", "--log", "tensorboard:tb"]
    assert command(words) == 0
    told = read(tmp_path / "tb/m").Scalars("train/val_accuracy")
    assert [event.step for event in told] == [1, 2, 3]


def test_names_of_any_kind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tracked("tensorboard:tb", "fuzz", facts={"model": "".join(BAD)}, run=False) as tell:
        tell(dict.fromkeys(BAD, 1.0) | {"phase": BAD[0]})
        tell.result({"failures": 3} | dict.fromkeys(BAD, 2.0))
    assert "left out" not in caplog.text
    assert read(tmp_path / "tb/assay").Scalars("result/failures")[0].value == 3
    assert [path.name for path in tmp_path.rglob("tb/**/*") if path.is_dir()] == ["assay"]


def test_a_real_server_shows_it(tmp_path: Path) -> None:
    small.prepare(tmp_path)
    assert command(small.fuzz("a", "--cases", "60", "--log", "tensorboard:tb")) == 0
    words = ["--logdir", "tb", "--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", *words], stdout=log, stderr=log, env=os.environ
        )
    try:
        scalars = answered(tmp_path / "log", server, "data/plugin/scalars/tags", "result/failures")
        images = answered(tmp_path / "log", server, "data/plugin/images/tags", "failures/")
    finally:
        server.terminate()
        server.wait(60)
    assert list(scalars) == ["a"]
    assert any(tag.startswith("failures/") for tag in images["a"])


def answered(log: Path, server: "subprocess.Popen[bytes]", what: str, wanted: str) -> Any:
    """What the server says once it has read the files."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text()
        place = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        if place is not None:
            try:
                with urllib.request.urlopen(place[0] + what, timeout=30) as answer:
                    text = answer.read().decode()
            except urllib.error.URLError:  # not up yet
                text = ""
            if wanted in text:
                return json.loads(text)
        time.sleep(0.2)
    raise AssertionError(f"{wanted} never came: {log.read_text()}")
