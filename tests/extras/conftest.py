"""For tests of the extras: operators that torchvision misses here, and a hub on this machine instead of the real one.

The libraries of the hub read where it is when they are imported, so it runs from here on, for all tests of this folder.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import placeholder_operators  # noqa: F401  before anything imports torchvision
from fake_hub import FakeHub, running

_OPEN = ExitStack()
_HUB = _OPEN.enter_context(running(FakeHub()))
_HOME = Path(tempfile.mkdtemp(prefix="assay-hf-"))
_EARLY = "huggingface_hub" in sys.modules

os.environ.update(
    HF_ENDPOINT=_HUB.url,
    ASSAY_RAY_WAIT="600",  # workers of several tests start at once, each reading torch
    HF_HOME=str(_HOME),
    TORCH_HOME=str(_HOME / "torch"),
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_XET="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_ETAG_TIMEOUT="2",
)
for _name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
    os.environ.pop(_name, None)


def pytest_unconfigure() -> None:
    """Not a fixture: the process that hands tests to others runs none, and would wait for the hub at its end."""
    _OPEN.close()
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """The hub, empty and answering; what the libraries kept of it is forgotten."""
    assert not _EARLY, "huggingface_hub was imported before it was told of the hub here; run tests/extras by itself"
    _HUB.repos.clear()
    _HUB.asked.clear()
    _HUB.down = False
    shutil.rmtree(_HOME, ignore_errors=True)
    yield _HUB
    _HUB.down = False
