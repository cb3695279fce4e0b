"""Shared by all tests: small models with known answers, and a net trained once."""

import os
import runpy
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.subjects.sources.module import ModuleTarget
from commands import Nursery, nursery

torch.set_num_threads(1)  # the nets are tiny: more threads only wait for each other
# What a shell starts in the background ignores Ctrl-C, and so do its children: tests of Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

_OFFLINE = Path(__file__).parent / "helpers" / "offline"
runpy.run_path(str(_OFFLINE / "sitecustomize.py"))  # here, and by its name in every process that a test starts
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_OFFLINE), os.environ.get("PYTHONPATH"))))


@pytest.fixture(autouse=True)
def _offline(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """No test, and no process a test starts, asks for another machine, unless it is marked to try."""
    log = tmp_path_factory.mktemp("network") / "asked"
    monkeypatch.setenv("ASSAY_TEST_NETWORK", str(log))
    yield
    asked = log.read_text() if log.exists() else ""
    tries = request.node.get_closest_marker("tries_network") is not None
    assert bool(asked) == tries, f"asked for other machines:\n{asked}" if asked else "marked, but asked for none"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a folder of its own and leaves nothing elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def home() -> Iterator[Nursery]:
    """Where commands are forked off; one for all tests, as it takes seconds to import everything."""
    with nursery() as found:
        yield found


@pytest.fixture(scope="session")
def other_home() -> Iterator[Nursery]:
    """Another one, for a command beside one that is at work."""
    with nursery() as found:
        yield found


@pytest.fixture(scope="session")
def digits_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LeNet-5 trained on digits for a few epochs."""
    from assay.engines.train import train

    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    train("lenet5", "digits", path, params={"epochs": 8, "batch": 32, "lr": 2e-3})
    return path


@pytest.fixture(scope="session")
def digits_model(digits_weights: Path) -> str:
    """The same as a model spec."""
    return f"lenet5@{digits_weights}"


class Linear(nn.Module):
    """Scores W x + b of the flattened input: everything about it is known in closed form."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T + self.bias


@pytest.fixture
def linear_target() -> Callable[..., ModuleTarget]:
    """Makes a linear target of ``classes`` classes over inputs of ``shape``."""

    def make(shape: tuple[int, ...] = (1, 4, 4), classes: int = 3, seed: int = 0) -> ModuleTarget:
        rng = torch.Generator().manual_seed(seed)
        width = int(torch.Size(shape).numel())
        weight = torch.randn(classes, width, generator=rng)
        net = Linear(weight, -weight.sum(1) / 2)  # the grey image scores 0 for every class
        return ModuleTarget(net, InputSpec(shape, (0.0, 1.0), tuple(map(str, range(classes)))))

    return make
