"""How models and data of hubs are written, and what is refused before any library of a hub is imported."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from assay.cli import run
from assay.core import trust
from assay.core.errors import UsageError
from assay.subjects.data.hub_specs import parse as parse_data
from assay.subjects.data.load import load_data
from assay.subjects.data.view import View
from assay.subjects.sources.hub import _named_like, first_words, outputs_in
from assay.subjects.sources.hub_specs import is_hub, parse, split_weights
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "text",
    [
        "timm:resnet18.a1_in1k",
        "timm:resnet18(num_classes=10)@w.safetensors",
        "timm:owner/name@v1",
        "torchvision:resnet18:IMAGENET1K_V1",
        "torchvision:resnet18@some/w.pt",
        "hf:owner/name",
        f"hf:owner/name@{SHA}",
        "hf:owner/name@refs/pr/1",
        f"hf:owner/name(classes=data)@{SHA}@runs/h/models/round-001.safetensors",
        "hf:./folder@w.safetensors",
    ],
)
def test_a_model_reads_back_as_it_is_written(text: str) -> None:
    assert is_hub(text)
    assert str(parse(text)) == text


def test_the_net_and_the_file_of_any_model() -> None:
    assert split_weights("hf:a/b@main@x/w.safetensors") == ("hf:a/b@main", "x/w.safetensors")
    assert split_weights("timm:resnet18.a1_in1k") == ("timm:resnet18.a1_in1k", "")
    assert split_weights("file.py:f@w.pt") == ("file.py:f", "w.pt")
    assert not is_hub("lenet5@w.safetensors")
    assert not is_hub("http://host/hf:x")


def test_a_commit_is_a_pin_and_a_branch_is_none() -> None:
    assert parse(f"hf:a/b@{SHA}").is_pinned
    assert not parse("hf:a/b@main").is_pinned
    assert not parse("hf:a/b").is_pinned


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:", "names no model"),
        ("hf:name", "is no repository"),
        ("hf:a/b/c", "is no repository"),
        ("hf:a/b@", "nothing stands behind the @"),
        ("hf:a/b@ma in", "is no revision"),
        ("hf:./folder@main", "has no revisions"),
        ("torchvision:resnet18@main", "has no revisions"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf:owner/name/test", ("owner/name", "", "", "test")),
        ("hf:owner/name", ("owner/name", "", "", "")),
        ("hf:owner/name@v1/test", ("owner/name", "v1", "", "test")),
        ("hf:owner/name@v1/small/test", ("owner/name", "v1", "small", "test")),
        ("hf:owner/name@v1(label=fine)/test", ("owner/name", "v1", "", "test")),
    ],
)
def test_data_read_back_as_they_are_written(text: str, parts: tuple[str, ...]) -> None:
    spec = parse_data(text)
    assert (spec.name, spec.revision, spec.config, spec.split) == parts
    assert str(spec) == text


@pytest.mark.parametrize("text", ["hf:name", "hf:a/b@/test", "hf:a/b/c/d/e", "hf:a/b(x=1)/test", "hf:a/b(label=x"])
def test_data_that_cannot_be_read_are_told(text: str) -> None:
    with pytest.raises(UsageError):
        parse_data(text)


@pytest.mark.parametrize(
    ("model", "module"),
    [("timm:resnet18", "timm"), ("torchvision:resnet18", "torchvision"), ("hf:a/b", "huggingface_hub")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    model: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert run(["eval", model, "--data", "digits/test[:4]", "--eps", "0.1"]) == 4
    assert f"needs {module}: pip install 'assay[hub]'" in capsys.readouterr().err


def test_a_library_that_is_there_and_broken_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(UsageError, match=r"installed and does not import: operator .*must be of one build"):
        load_target("timm:resnet18")


def test_data_of_the_hub_name_their_extra_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("huggingface_hub", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"pip install 'assay\[hub\]'"):
        load_data("hf:a/b/test")


def test_a_name_that_only_a_run_of_somebody_else_tells_is_not_asked_for() -> None:
    with trust.named_by("r", []), pytest.raises(UsageError, match="--trust-run"):
        load_target("hf:a/b")
    with trust.named_by("r", []), pytest.raises(UsageError, match="--trust-run"):
        load_data("hf:a/b/test")


def test_remote_code_is_trusted_for_the_block_only() -> None:
    assert not trust.runs_remote_code()
    with trust.trusting_code():
        assert trust.runs_remote_code()
    assert not trust.runs_remote_code()


def test_size_is_for_images_only() -> None:
    with pytest.raises(UsageError, match="image folders and hf: data"):
        load_data("digits/test", size="8")


def test_a_view_leaves_an_image_of_its_size_alone() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    image = Image.fromarray(pixels)

    def never(_: object) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        raise AssertionError("asked")

    assert np.array_equal(View((4, 4), 3, never)(image), pixels.transpose(2, 0, 1))
    assert View((2, 2), 1)(image).shape == (1, 2, 2)
    assert View()(image.convert("L")).shape == (1, 4, 4)
    assert View(channels=3)(image.convert("L")).shape == (3, 4, 4)


def test_how_many_classes_weights_are_for() -> None:
    own = {"fc.weight": torch.zeros(1000, 8), "fc.bias": torch.zeros(1000), "conv": torch.zeros(1000, 3)}
    assert outputs_in(own, {"fc.weight": torch.zeros(7, 8), "fc.bias": torch.zeros(7)}) == 7
    assert outputs_in(own, own) is None


def test_classes_are_called_as_the_data_call_them() -> None:
    names = first_words(("tench, Tinca tinca", "goldfish"))
    assert names == (("tench, Tinca tinca", "goldfish"), ("tench", "goldfish"))
    known = load_data("digits/test[:1]")
    assert _named_like(names, None) == names[0]
    assert _named_like(names, known) == names[0]  # digits are neither


def test_a_net_that_answers_with_an_object_is_taken_at_its_logits() -> None:
    class Answer:
        def __init__(self, logits: torch.Tensor) -> None:
            self.logits = logits

    class Wrapped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Answer:
            if not len(x):
                raise RuntimeError("cannot reshape nothing")
            return Answer(x.flatten(1)[:, :10])

    data = load_data("digits/test[:5]")
    target = load_target(Wrapped(), data=data, device="cpu")
    assert torch.equal(target(data.cases.x), data.cases.x.flatten(1)[:, :10])
    assert target(data.cases.x[:0]).shape == (0, 10)
    assert ModuleTarget(Wrapped(), data.spec)(data.cases.x[:0]).shape == (0, 10)


def test_objects_of_the_form_of_maite_are_taken_without_it(tmp_path: Path) -> None:
    from assay.subjects.maite import is_dataset, is_model

    class Set:
        metadata = {"id": "theirs", "index2label": {0: "a", 1: "b"}}  # noqa: RUF012

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> tuple[object, object, object]:
            return np.full((1, 2, 2), 255 * i, np.uint8), np.eye(2)[i], {"id": i}

    class Net:
        metadata = {"id": "net"}  # noqa: RUF012

        def __call__(self, batch: list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]) -> list[object]:
            return [np.eye(2)[int(image.max() > 127)] * 0.8 + 0.1 for image in batch]

    data = load_data(Set())
    assert (data.spec.classes, data.cases.x.max().item(), data.given_as) == (("a", "b"), 1.0, "uint8")
    assert load_target(Net(), data=data)(data.cases.x).argmax(1).tolist() == [0, 1]
    assert not is_dataset([1, 2])
    assert not is_model(torch.nn.Linear(1, 1))
    assert not is_model(Set)


def test_the_options_are_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a narrow table cuts long names
    for verb in ("eval", "fuzz", "harden", "coverage", "prioritise", "replay", "shrink", "serve", "transfer", "select"):
        assert run([verb, "--help"]) == 0
        assert "--trust-remote-code" in capsys.readouterr().out, verb


def test_a_checkpoint_of_ours_tells_shape_and_classes_of_a_net_of_a_hub(tmp_path: Path) -> None:
    from assay.subjects.sources import checkpoint
    from assay.subjects.sources.hub import _told

    facts = {"shape": [3, 8, 8], "bounds": [0, 1], "classes": ["a", "b"], "mean": [], "std": []}
    checkpoint.write(tmp_path / "w.safetensors", {"w": torch.zeros(1)}, facts)
    assert json.loads(json.dumps(_told(tmp_path / "w.safetensors"))) == facts
