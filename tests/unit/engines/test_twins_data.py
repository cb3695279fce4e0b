"""Two models: what the resistant one is built with, inputs of another range, and labels that nobody gave."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.engines.fuzz import fuzz
from assay.outputs.export import export
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data, load_splits, splits_to_train
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.sources.module import ModuleTarget

FEW = {"resistant.epochs": 1, "seeds.attacked.count": 200}


def test_the_sets_own_validation_part_chooses_the_epoch() -> None:
    own = load_splits("digits")
    found = splits_to_train(load_data("digits/test[:5]"))
    assert found is not None
    assert found.part("val").fingerprint() == own.part("val").fingerprint()
    assert found.part("train").fingerprint() == own.part("train").fingerprint()
    cut = splits_to_train(load_data("digits/test"), "digits/train[:400]")
    assert cut is not None
    assert (len(cut.part("train")), len(cut.part("val"))) == (360, 40)
    assert splits_to_train(Data("bare", own.part("test").cases, own.part("test").spec)) is None


class Wide(nn.Module):
    """The net for inputs that were 0 to 1 and are ``low`` to ``high``."""

    def __init__(self, net: nn.Module, low: float, high: float) -> None:
        super().__init__()
        self.net, self.low, self.span = net, low, high - low

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net((x - self.low) / self.span)
        return out


@pytest.mark.parametrize("bounds", [(0.0, 4.0), (-1.0, 1.0)])
def test_the_range_of_inputs_changes_nothing(digits_model: str, bounds: tuple[float, float]) -> None:
    data = load_data("digits/train[:300]")
    low, span = bounds[0], bounds[1] - bounds[0]
    weaker = module_of(load_target(digits_model))
    last = nn.Linear(10, 10, bias=False)
    with torch.no_grad():
        last.weight.copy_(torch.eye(10) + 0.2 * torch.randn(10, 10, generator=torch.Generator().manual_seed(0)))
    harder = nn.Sequential(module_of(load_target(digits_model)), last)
    wide = replace(
        data,
        cases=data.cases.with_x(data.cases.x * span + low),
        spec=InputSpec(data.spec.shape, bounds, data.spec.classes),
        source="",
    )
    changes = {"seeds.attacked.count": 200, "valid": "quality"}  # within is of the length, which a shift changes
    told = []
    for name, some, nets, eps in (
        ("plain", replace(data, source=""), (weaker, harder), 0.1),
        ("wide", wide, (Wide(weaker, *bounds), Wide(harder, *bounds)), 0.1 * span),
    ):
        v, r = (ModuleTarget(net.eval(), some.spec) for net in nets)
        told.append(fuzz("twinfuzz", v, some, resistant=r, run=name, eps=eps, cases=400, changes=changes))
    assert told[0].failures > 5
    assert told[0].seeding["steps"] == told[1].seeding["steps"]
    assert told[0].seeding["levels"]["ssim"] == pytest.approx(told[1].seeding["levels"]["ssim"], abs=1e-4)
    first, second = (float(found.load().info["fol"].median()) for found in told)
    assert first == pytest.approx(second, rel=0.1), "FOL is in units of the range"
    broken = [found.load().origin.unique().tolist() for found in told]
    assert broken[0] == broken[1], "the same seeds"
    if low == 0:  # else inputs are rounded anew, and of a broken seed more or fewer cases are kept
        assert told[0].failures == told[1].failures


def test_labels_that_a_model_gave_are_marked(digits_model: str, tmp_path: object) -> None:
    told = load_data("digits/train[:300]")
    y = told.cases.y.clone()
    y[::2] = -1
    half = Data("half", Cases.of(told.cases.x, y), told.spec)
    found = fuzz("twinfuzz", digits_model, half, training="digits/train", run="half", eps=0.2, cases=400, changes=FEW)
    cases = found.load()
    assert torch.equal(cases.info["labelled"], y[cases.origin] != -1)
    assert found.seeding["unlabelled"] > 0
    out = export(found.run, to="npz", out=f"{tmp_path}/half.npz")
    with np.load(out.path) as arrays:
        assert arrays["labelled"].tolist() == cases.info["labelled"].tolist()
        assert arrays["others_pred"].tolist() == cases.info["others_pred"][:, 0].tolist()


def test_what_the_building_reached_is_told(digits_model: str) -> None:
    data = load_data("digits/train[:200]")
    found = fuzz("twinfuzz", digits_model, data, run="told", eps=0.2, cases=50, changes=FEW)
    line = next(store.read(found.run).commits("resistant"))
    assert set(line.meta["numbers"]) == {"val_accuracy", "failures_accuracy"}
    assert all(0 <= number <= 1 for number in line.meta["numbers"].values()), json.dumps(line.meta["numbers"])
