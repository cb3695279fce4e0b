"""Two models: does TwinFuzz find the hole that both share, and is what it says without labels true?"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.shards import decode
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.engines.train import train
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target

SPEC = InputSpec((1, 6, 6), (0.0, 1.0), ("dark", "light", "odd", "strange"))
DARK, LIGHT, ODD, STRANGE = range(4)


def along(x: Tensor, first: int) -> Tensor:
    """How far a patch of eight pixels, from ``first`` on, goes along its pattern: ±1 by turns, so none is brighter."""
    signs = torch.tensor([1.0, -1.0] * 4)
    return ((x.flatten(1)[:, first : first + 8] - 0.5) * signs).mean(1)


class Planted(nn.Module):
    """Tells dark from light by four pixels. Light inputs are odd where the first patch follows its pattern.

    That hole both models have. In the resistant one it has a far end: what goes along the second patch too is strange.
    The vulnerable one has another hole besides: dark inputs are strange where the third patch follows its pattern.
    """

    resistant: Tensor

    def __init__(self, resistant: bool) -> None:
        super().__init__()
        self.register_buffer("resistant", torch.tensor(float(resistant)))

    def forward(self, x: Tensor) -> Tensor:
        level = 12 * (x.flatten(1)[:, 24:28].mean(1) - 0.5)
        light = torch.sigmoid(4 * level)
        hole = light * torch.sigmoid(30 * (along(x, 0) - 0.17))
        far = torch.sigmoid(30 * (along(x, 8) - 0.1))
        own = (1 - self.resistant) * (1 - light) * torch.sigmoid(30 * (along(x, 16) - 0.1))
        strange = 24 * own + self.resistant * hole * (14 + 10 * far)  # above odd where far is above 0.2
        return torch.stack([-level, level * (1 - hole), 16 * hole - 6, strange - 6], 1)


def seeds(n: int = 120) -> Data:
    """Dark and light images by turns, all patches near grey."""
    rng = torch.Generator().manual_seed(0)
    x = 0.5 + 0.03 * torch.randn(n, 1, 6, 6, generator=rng)
    y = torch.arange(n) % 2
    x.flatten(1)[:, 24:28] += 0.4 * (2 * y[:, None] - 1)
    return Data("planted", Cases.of(x.clamp(0, 1), y), SPEC)


def planted(**changes: Any) -> Found:
    """With the paper's seeds: what fools the vulnerable one, and whether it carries over is for mining to say."""
    changes = {"seeds.attacked.model": "vulnerable", **changes}
    return fuzz("twinfuzz", Planted(False), seeds(), resistant=Planted(True), run="twins", eps=0.25, changes=changes)


def test_it_finds_the_far_end_of_a_hole_that_both_models_have() -> None:
    found = planted()
    cases = found.load()
    mined = decode(store.read(found.run).file("state/seeds.safetensors"))
    assert (mined["y"] == LIGHT).all(), "what fools the vulnerable one alone is dropped"
    assert (mined["mined"] == ODD).all()
    assert found.seeding["steps"]["quality"] > 1.5 * found.seeding["steps"]["agreed"]
    assert (cases.info["pred"] == STRANGE).all()
    assert (along(cases.x, 0) > 0.1).all()
    assert (along(cases.x, 8) > 0.05).all()
    assert found.broken >= len(mined["y"]) / 3
    control = fuzz("noise", Planted(True), seeds(), run="noise", eps=0.25, cases=10 * found.cases)
    assert control.cases >= 10 * found.cases
    assert control.broken < found.broken / 3, "noise of the same reach hardly meets the hole at all"


def test_leaving_the_hole_is_no_failure() -> None:
    """Most of what leaves the mined class without a push along the second patch has become right."""
    found = planted(oracle="leaves", opinions="leaves_wrong")
    right = found.load().info["pred"] == LIGHT
    assert right.any()
    assert found.wrong == int((~right).sum())


@pytest.fixture(scope="module")
def resistant(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("resistant") / "r.safetensors"
    train(digits_model, "digits", out, trainer="resistant", eps=0.2, params={"epochs": 2})
    return f"lenet5@{out}"


@pytest.fixture(scope="module")
def labels() -> Tensor:
    return load_data("digits/test").cases.y


def unlabelled(model: str, resistant: str, oracle: str) -> Found:
    told = load_data("digits/test")
    bare = Data("bare", Cases.of(told.cases.x), told.spec)
    return fuzz(
        "twinfuzz", model, bare, resistant=resistant, run=oracle, eps=0.2, cases=3000, changes={"oracle": oracle}
    )


def test_what_agreement_mines_without_labels_is_wrong_indeed(digits_model: str, resistant: str, labels: Tensor) -> None:
    found = unlabelled(digits_model, resistant, "leaves_wrong")
    kept = decode(store.read(found.run).file("state/seeds.safetensors"))
    assert len(kept["place"]) > 100
    wrong = (kept["mined"] != labels[kept["place"]]).float().mean()
    clean = load_target(digits_model)(load_data("digits/test").cases.x).argmax(1)
    assert (clean != labels).float().mean() > 0.02, "some labels that it makes up are wrong"
    assert wrong > 0.92
    cases = found.load()
    assert (cases.info["pred"] != labels[cases.origin]).float().mean() > 0.92


def test_the_oracle_without_labels_is_mostly_right(digits_model: str, resistant: str, labels: Tensor) -> None:
    """Of what both models call another class than the clean parent, how much is wrong by the label that was hidden."""
    found = unlabelled(digits_model, resistant, "agreed")
    cases = found.load()
    assert len(cases) > 200
    assert (cases.info["others_pred"][:, 0] == cases.info["pred"]).all()
    assert (cases.info["pred"] != labels[cases.origin]).float().mean() > 0.87
