"""The witness of a run: whose classes its answers mean, and what it refuses before the work."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.cli import run as typed
from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.engines.quality import medians_of, quality_of, witness_of
from assay.outputs.tables import quality_facts
from assay.subjects.bench import Data
from assay.subjects.sources.module import ModuleTarget


class Threshold(nn.Module):
    """The second class above ``level``, or the first one where ``reverse`` is set."""

    def __init__(self, level: float = 0.5, *, reverse: bool = False) -> None:
        super().__init__()
        self.level, self.sign = nn.Parameter(torch.tensor(level)), -1.0 if reverse else 1.0

    def forward(self, x: Tensor) -> Tensor:
        above = self.sign * (x.mean(1, keepdim=True) - self.level)
        return torch.cat([-above, above], 1)


def spec(*classes: str) -> InputSpec:
    return InputSpec((2,), (0.0, 1.0), classes)


def line(*classes: str) -> Data:
    x = torch.linspace(0.4, 0.6, 40)[:, None].repeat(1, 2)
    return Data("line", Cases.of(x, (x.mean(1) > 0.5).long()), spec(*classes))


@pytest.mark.parametrize(
    ("attacked", "named"),
    [
        (("low", "high"), ("low", "high")),
        (("high", "low"), ("low", "high")),  # the attacked target has the other order than data and witness
        (("0", "1"), ("low", "high")),  # nobody named the target's classes: labels are in the order of the data
        (("low", "high"), ("0", "1")),
    ],
)
def test_the_order_of_the_witness_does_not_matter(attacked: tuple[str, str], named: tuple[str, str]) -> None:
    """The attacked net itself never says the label; a net that says the other class always does."""
    data = line(*named)
    target = ModuleTarget(Threshold(reverse=attacked[0] == "high"), spec(*attacked))
    found = assay.fuzz("noise", target, data, run="a", eps=0.2)
    run = store.read(found.run)
    assert found.failures > 10
    for classes in (("low", "high"), ("high", "low")):
        for lies in (False, True):
            other = ModuleTarget(Threshold(reverse=lies != (classes == ("high", "low"))), spec(*classes))
            share = quality_of(run, witness_of(other, data), data.spec.classes).witness
            assert share is not None
            assert (share.right, share.n) == (found.failures if lies else 0, found.failures)


def test_without_a_witness_there_are_distances_only() -> None:
    found = assay.fuzz("noise", Threshold(), line("low", "high"), run="a", eps=0.2)
    quality = quality_of(store.read(found.run))
    assert (quality.witness, quality.ssim) == (None, None)
    assert quality.linf == float(found.load().info["linf"].median())


def test_the_scores_are_told_apart_in_the_order_of_the_recipe() -> None:
    """Medians over the failures of what the recipe stores, under the names of its columns; a sum would hide them."""
    changes = {"score": "max-p, lib(beta=3), entropy"}
    found = assay.fuzz("noise", Threshold(), line("low", "high"), run="a", eps=0.2, changes=changes)
    scores = quality_of(store.read(found.run)).scores
    failures = found.load()
    assert list(scores) == ["max-p", "lib", "entropy"]
    for name, score in scores.items():
        assert score == float(failures.info[name].double().median()), name
    assert scores["lib"] != scores["entropy"]
    plain = assay.fuzz("noise", Threshold(), line("low", "high"), run="b", eps=0.2)
    assert quality_of(store.read(plain.run)).scores == {}


def test_scores_that_are_not_finite_are_left_out_and_never_nan(tmp_path: Path) -> None:
    changes = {"score": "entropy, zol"}
    found = assay.fuzz("noise", Threshold(), line("low", "high"), run="a", eps=0.2, changes=changes)
    failures = found.load()
    zol = failures.info["zol"].clone()
    zol[1:] = torch.nan
    broken = failures.note(zol=zol, entropy=torch.full_like(zol, torch.inf))
    quality = medians_of(store.read(found.run), broken)
    assert quality.scores == {"entropy": None, "zol": float(zol[0])}
    json.dumps(quality.to_json(), allow_nan=False)
    assert quality_facts(quality)["scores (median)"] == f"entropy –, zol {float(zol[0]):.3g}"


def test_a_witness_of_other_classes_or_inputs_is_refused() -> None:
    data = line("low", "high")
    with pytest.raises(UsageError, match=r"witness cannot judge what grows from line.*does not know 'low', 'high'"):
        witness_of(ModuleTarget(Threshold(), spec("cat", "dog")), data)
    with pytest.raises(UsageError, match=r"witness takes inputs of shape \(3,\), line has \(2,\)"):
        witness_of(ModuleTarget(Threshold(), InputSpec((3,), (0.0, 1.0), ("low", "high"))), data)
    with pytest.raises(UsageError, match="no such checkpoint"):
        witness_of("mlp@none.safetensors", data)


def test_a_wrong_witness_costs_no_fuzzing(digits_model: str, tmp_path: Path) -> None:
    words = ["fuzz", digits_model, "--data", "digits/train[:50]", "--recipe", "noise", "--run", "a", "--quiet"]
    assert typed([*words, "--witness", "mlp@none.safetensors"]) == 4
    assert not (tmp_path / "runs" / "a").exists()
