"""``torchvision:`` models with the real torchvision; weights are made here and put where it keeps them."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import assay
from assay.cli import run
from assay.subjects.sources.hub import pinned
from assay.subjects.sources.load import load_target
from hub_models import lively, picture

NAME, TAG = "shufflenet_v2_x0_5", "IMAGENET1K_V1"


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A net whose weights lie in torch's cache under the name of the real ones."""
    import torchvision

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    torch.manual_seed(0)
    made = lively(torchvision.models.get_model(NAME, weights=None))
    url = torchvision.models.get_model_weights(NAME)[TAG].url
    place = tmp_path / "torch" / "hub" / "checkpoints" / url.rpartition("/")[2]
    place.parent.mkdir(parents=True)
    torch.save(made.state_dict(), place)
    return made


def test_it_answers_as_torchvision_itself(net: Any, tmp_path: Path) -> None:
    import torchvision

    for i, name in enumerate(("tench", "goldfish")):
        (tmp_path / "images" / name).mkdir(parents=True)
        picture(i, 250, 300).save(tmp_path / "images" / name / "one.png")
    text = f"torchvision:{NAME}:{TAG}"
    data = assay.load_data(f"dir:{tmp_path / 'images'}", like=text)
    target = load_target(text, data=data, device="cpu")
    theirs = torchvision.models.get_model_weights(NAME)[TAG].transforms()
    with torch.no_grad():
        want = net(torch.stack([theirs(picture(i, 250, 300)) for i in (1, 0)]))  # goldfish comes first in a folder
    torch.testing.assert_close(target(data.cases.x), want, atol=1e-3, rtol=1e-3)
    assert (want[0] - want[1]).abs().max() > 0.02
    assert target.spec.classes[:2] == ("tench", "goldfish")
    assert pinned(f"torchvision:{NAME}") == text


def test_a_file_of_ones_own_tells_how_many_classes_there_are(tmp_path: Path) -> None:
    import torchvision

    small = torchvision.models.get_model(NAME, weights=None, num_classes=7)
    save_file(small.state_dict(), tmp_path / "w.safetensors")
    target = load_target(f"torchvision:{NAME}@{tmp_path / 'w.safetensors'}", device="cpu")
    assert len(target.spec.classes) == 7
    assert (
        pinned(f"torchvision:{NAME}@{tmp_path / 'w.safetensors'}") == f"torchvision:{NAME}@{tmp_path / 'w.safetensors'}"
    )


def test_weights_that_could_run_code_are_refused(net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place,) = (tmp_path / "torch" / "hub" / "checkpoints").iterdir()
    torch.save({"weights": Bomb(str(tmp_path / "ran"))}, place)
    assert run(["eval", f"torchvision:{NAME}:{TAG}", "--data", "digits/test[:4]", "--eps", "0.1"]) == 4
    assert "could run code" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torchvision:resnt18", "did you mean 'resnet18'?"),
        ("torchvision:fasterrcnn_resnet50_fpn", "torchvision has no classifier"),
        ("torchvision:resnet18:IMAGENET1K_V9", "did you mean 'IMAGENET1K_V1'?"),
        ("torchvision:resnet18@main", "has no revisions"),
    ],
)
def test_what_is_not_there_is_told(text: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", text, "--data", "digits/test[:4]", "--eps", "0.1", "--device", "cpu"]) == 4
    assert words in capsys.readouterr().err


@pytest.mark.tries_network
def test_without_a_network_the_place_of_the_weights_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    assert run(["eval", f"torchvision:{NAME}", "--data", "digits/test[:4]", "--eps", "0.1", "--device", "cpu"]) == 4
    said = capsys.readouterr().err
    assert "cannot be fetched" in said
    assert str(tmp_path / "torch") in said
    assert not any((tmp_path / "torch").rglob("*.pth"))


class Bomb:
    """A pickle that makes a folder where it is loaded."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.place,)
