"""Does recipe regression find what an older version could do? Planted, between two trainings, and where nothing is."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.engines.fuzz import fuzz
from assay.engines.replay import replay
from assay.engines.train import train
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target

# Other searches that are asked for the same: their own way to failures, regressions stored.
ASKED: dict[str, Any] = {"oracle": "regressed(lead=0.5)", "seeds": "agreed"}
STEPS = 60


class Version(nn.Module):
    """Two classes by the first number; the new version leans on the second one too, by ``lean``."""

    def __init__(self, lean: float) -> None:
        super().__init__()
        self.lean = nn.Parameter(torch.tensor(lean))

    def forward(self, x: Tensor) -> Tensor:
        sign = 40 * (x[:, 0] - 0.5)
        score = sign * (1 - self.lean * torch.sigmoid(20 * (x[:, 1] - 0.7)))
        return torch.stack([-score, score], 1) / 2


def seeds(n: int = 40) -> Data:
    y = torch.arange(n) % 2
    first = 0.5 + (2.0 * y - 1) * torch.linspace(0.1, 0.12, n)
    x = torch.stack([first, torch.linspace(0.55, 0.6, n)], 1)
    return Data("planted", Cases.of(x, y), InputSpec((2,), (0.0, 1.0), ("low", "high")))


def test_a_planted_regression_is_found_and_a_shared_weakness_is_none() -> None:
    """Both versions fall where the first number crosses the middle, which is nearest; the new one alone by the second.

    A search of the new one's failures goes the short way, and what it finds the old one gets wrong too.
    """
    new, old = Version(2.0), Version(0.0)
    given: dict[str, Any] = {"siblings": [old], "eps": 0.25, "unit": 40}
    given["changes"] = {"valid.within.relative": None}
    found = fuzz("regression", new, seeds(), run="guided", **given)
    assert found.broken == 40
    cases = found.load()
    assert (cases.x[:, 1] > 0.7).all()
    assert (old(cases.x).argmax(1) == cases.y).all()
    assert (new(cases.x).argmax(1) != cases.y).all()
    plain = {**ASKED, **given["changes"], "schedule.steps": STEPS, "schedule.apart": 0, "schedule.only_kept": False}
    robot = fuzz("robot", new, seeds(), run="robot", **{**given, "changes": plain})
    assert robot.broken <= 10
    near = fuzz("regression", new, seeds(), run="near", **{**given, "eps": 0.06})
    assert near.failures == 0, "out of reach"


@pytest.fixture(scope="module")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The next training of the net, from another start."""
    path = tmp_path_factory.mktemp("weights") / "new.safetensors"
    train("lenet5", "digits", path, seed=1, params={"epochs": 8, "batch": 32, "lr": 2e-3})
    return f"lenet5@{path}"


def test_between_two_trainings_it_finds_more_than_other_searches(digits_model: str, retrained: str) -> None:
    data = load_data("digits/test[:200]")
    given: dict[str, Any] = {"siblings": [digits_model], "eps": 0.1}
    found = fuzz("regression", retrained, data, run="guided", **given)
    noise = fuzz("noise", retrained, data, run="noise", changes={**ASKED, "schedule.steps": STEPS}, **given)
    plain = {**ASKED, "schedule.steps": STEPS, "schedule.apart": 0, "schedule.only_kept": False}
    robot = fuzz("robot", retrained, data, run="robot", changes=plain, **given)
    assert found.broken >= 20
    assert found.broken >= 4 * noise.broken
    assert found.broken >= 1.5 * robot.broken
    assert found.failures == found.broken, "one for each seed"
    cases = found.load()
    new, old = (load_target(model)(cases.x).softmax(1) for model in (retrained, digits_model))
    rows = torch.arange(len(cases))
    assert (old[rows, cases.y] >= 0.5).all()
    assert (new[rows, cases.y] <= 0.25).all()
    assert (cases.x - cases.info["seed_x"]).abs().max() <= 0.1 + 1e-6
    again = replay("guided", k=5)
    assert again.counts()["still_failing"] == 5
    assert again.oracle == "regressed(lead=0.5)"


def test_where_next_to_nothing_changed_nothing_is_found(digits_weights: Path, digits_model: str) -> None:
    """Weights a thousandth off: borders part by a hair, and what lies between them is no regression."""
    rng = torch.Generator().manual_seed(0)
    shaken = {
        name: w * (1 + 1e-3 * torch.randn(w.shape, generator=rng)) if w.is_floating_point() else w
        for name, w in load_file(digits_weights).items()
    }
    save_file(shaken, "near.safetensors")
    given: dict[str, Any] = {"siblings": [digits_model], "eps": 0.1}
    data = load_data("digits/test[:200]")
    assert fuzz("regression", "lenet5@near.safetensors", data, run="a", **given).failures == 0
    hairs = fuzz("regression", "lenet5@near.safetensors", data, run="b", changes={"oracle.lead": 0.0}, **given)
    assert hairs.failures > 20, "which is what the lead is for"


def test_models_that_only_answer_are_compared_too(digits_model: str, retrained: str) -> None:
    def ask(model: str) -> Any:
        net = load_target(model)
        return lambda x: net(torch.from_numpy(x)).argmax(1).numpy()

    data = load_data("digits/test[:100]")
    found = fuzz("regression-blind", ask(retrained), data, run="blind", siblings=[digits_model])
    cases = found.load()
    assert found.broken >= 3
    assert (load_target(digits_model)(cases.x).argmax(1) == cases.y).all()
    assert (load_target(retrained)(cases.x).argmax(1) != cases.y).all()


def test_without_an_older_version_it_says_what_to_name(digits_model: str) -> None:
    with pytest.raises(UsageError, match=r"recipe 'regression' compares models; name another .*--with MODEL"):
        fuzz("regression", digits_model, "digits/test[:10]", run="a", eps=0.1)
