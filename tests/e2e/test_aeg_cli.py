"""``assay aeg`` as a user types it."""

import json
from pathlib import Path

import pytest
from torch import nn

from assay.cli import run
from assay.core.errors import INTERRUPTED, USAGE
from assay.engines.training_files import TrainingWatch
from assay.stages.aeg import Aeg
from assay.stages.trainers.watch import State

WORDS = ["aeg", "digits", "--out", "g.safetensors", "--set", "images=64", "--set", "epochs=3", "--set", "width=4"]


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert run([*words, "--json"]) == 0
    out: dict[str, object] = json.loads(capsys.readouterr().out)
    return out


def test_a_generator_and_its_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(WORDS) == 0
    shown = capsys.readouterr().out
    for text in ("g.safetensors", "g.png", "18 of 3 snapshots", "120 images kept back", "cycle error", "SSIM"):
        assert text in shown
    assert "--set mutate.of.aeg=g.safetensors" in shown
    assert Path("g.png").read_bytes().startswith(b"\x89PNG")
    assert not Path("g.state.safetensors").exists()
    made = Aeg.load(Path("g.safetensors"))
    assert made.facts["data"] == "digits/train"
    assert len(made.facts["log"]) == 3

    again = told(WORDS, capsys)
    assert again["found"] == "file"
    assert again["fingerprint"] == made.fingerprint()
    elsewhere = told([*WORDS[:3], "other.safetensors", *WORDS[4:]], capsys)
    assert elsewhere["found"] == "cache", "one generator serves many"
    assert Path("other.safetensors").read_bytes() == Path("g.safetensors").read_bytes()


def test_a_file_of_another_making_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, "--quiet"]) == 0
    before = Path("g.safetensors").read_bytes()
    capsys.readouterr()
    assert run([*WORDS, "--seed", "1", "--quiet"]) == USAGE
    said = capsys.readouterr().err
    assert "holds another training" in said
    assert "seed: 0 there, 1 asked" in said
    assert Path("g.safetensors").read_bytes() == before
    replaced = told([*WORDS, "--seed", "1", "--overwrite"], capsys)
    assert replaced["making"]["seed"] == 1  # type: ignore[index]  # a table
    assert Path("g.safetensors").read_bytes() != before


def test_a_stopped_training_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole = told(WORDS, capsys)
    epoch, seen = TrainingWatch.epoch, list[int]()

    def stops(self: TrainingWatch, state: State, net: nn.Module) -> None:
        epoch(self, state, net)
        seen.append(state.epoch)
        if seen == [1, 2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingWatch, "epoch", stops)
    monkeypatch.setenv("ASSAY_CACHE", "another")
    elsewhere = [*WORDS[:3], "h.safetensors", *WORDS[4:]]
    assert run(elsewhere) == INTERRUPTED
    assert not Path("h.safetensors").exists()
    capsys.readouterr()
    later = told(elsewhere, capsys)
    assert seen == [1, 2, 3], "the third epoch alone was left to do"
    assert later["fingerprint"] == whole["fingerprint"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aeg", "digits", "--out", "g.pt"], "--out must end in .safetensors"),
        (["aeg", "digits", "--out", "g.safetensors", "--set", "epoch=3"], "did you mean 'epochs'?"),
        (["aeg", "digits", "--out", "g.safetensors", "--set", "epochs"], "--set takes key=value"),
        (["aeg", "digits", "--out", "g.safetensors", "--set", "epochs=0"], "epochs must be at least 1"),
        (["aeg", "digits", "--out", "g.safetensors", "--set", "split=class_pair(1,x)"], "has no class 'x'"),
        (["aeg", "digits", "--out", "g.safetensors", "--set", "aeg=f.safetensors"], "leave it out to make one"),
        (["aeg", "digitz", "--out", "g.safetensors"], "did you mean 'digits'?"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--quiet"]) == USAGE
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert not Path("g.safetensors").exists()


def test_pairs_of_classes(capsys: pytest.CaptureFixture[str]) -> None:
    made = told([*WORDS, "--set", "split=class_pair(3,8)"], capsys)
    assert made["making"]["split"] == "class_pair(3,8)"  # type: ignore[index]  # a table
    assert all(90 < count < 120 for count in made["domains"])  # type: ignore[attr-defined]  # a list
