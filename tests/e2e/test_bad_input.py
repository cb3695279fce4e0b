"""Bad input gets one clear message and the exit code of the contract; no traceback, nothing written."""

import json
import logging
import os
import pickle
import socket
import struct
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from PIL import Image

from assay.cli import run
from assay.core.errors import INTERNAL, NOTHING_TO_TEST, PASSED, USAGE
from assay.core.lock import folder_lock

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """A command takes the library's log for itself; the next test finds it as it was."""
    log = logging.getLogger("assay")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers, log.propagate = before[0], before[2]
    log.setLevel(before[1])


def content(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


class Refused(Protocol):
    def __call__(self, *arguments: str, code: int = USAGE) -> str: ...


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refused:
    """Runs a command that must be refused, and returns its message."""

    def ask(*arguments: str, code: int = USAGE) -> str:
        before = content(tmp_path)
        left = run(list(arguments))
        out, err = capsys.readouterr()
        assert left == code, err
        assert "Traceback" not in err
        assert out == ""
        assert content(tmp_path) == before
        assert [line for line in err.splitlines() if line.startswith("error:")] != []
        assert err.count("error:") == 1
        return err[err.index("error:") :].strip()

    return ask


DIGITS = "digits/test[:40]"


# Names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evla"], ["'evla'", "'eval'"]),
        (["frobnicate"], ["No such command 'frobnicate'", "--help"]),
        (["eval", "m", "--data", "d", "--epss", "0.1"], ["--epss", "--eps", "--help"]),
        (["fuzz", "m", "--recipy", "noise"], ["--recipy", "--recipe"]),
        (["train", "lenet5", "--data", "digits"], ["Missing option '--out'", "--help"]),
        (["eval", "m"], ["Missing option '--data'"]),
        (["eval"], ["Missing argument 'model'", "--help"]),
        (["list", "atack"], ["unknown kind 'atack'", "did you mean 'attack'?"]),
        (["status", "nosuch"], ["no run 'nosuch'", "runs"]),
        (["report", "nosuch"], ["no run 'nosuch'", "runs"]),
        (["fuzz"], ["Missing argument 'model'", "assay fuzz --help"]),
        (["fuzz", "lenet5@w.safetensors"], ["Missing option '--data'"]),
    ],
)
def test_wrong_words_on_the_command_line(arguments: list[str], words: list[str], refused: Refused) -> None:
    told = refused(*arguments)
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("lenet6@{weights}", ["unknown model 'lenet6'", "did you mean 'lenet5'?"]),
        ("lenet4@{weights}", ["the weights are those of a lenet5, not of a lenet4", "write lenet5@"]),
        ("lenet5", ["'lenet5' names no weights", "write lenet5@weights.safetensors"]),
        ("lenet5@none.safetensors", ["no such checkpoint: none.safetensors"]),
        ("lenet5(pading=same)@{weights}", ["model 'lenet5' has no parameter 'pading'", "did you mean 'padding'?"]),
        ("lenet5(padding=sme)@{weights}", ["padding must be 'same' or 'valid'", "'sme'"]),
        ("lenet5(padding)@{weights}", ["'padding'", "is not key=value"]),
        ("none.py:make@{weights}", ["no such file: none.py"]),
    ],
)
@pytest.mark.parametrize("verb", ["eval", "fuzz"])
def test_wrong_models(verb: str, model: str, words: list[str], digits_weights: Path, refused: Refused) -> None:
    told = refused(verb, model.format(weights=digits_weights), "--data", DIGITS, "--eps", "0.1")
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("digitz/test", ["unknown data 'digitz'", "did you mean 'digits'?"]),
        ("digits/tset", ["unknown part 'tset' of digits", "did you mean 'test'?"]),
        ("digits[5]", ["a slice is written as [:500]", "[5]"]),
        ("digits[::-1]", ["a slice steps forward", "[::-1]"]),
        ("none.npz", ["no such file: none.npz"]),
        ("dir:none", ["no such folder: none"]),
    ],
)
@pytest.mark.parametrize("verb", ["eval", "fuzz"])
def test_wrong_data_names(verb: str, data: str, words: list[str], digits_model: str, refused: Refused) -> None:
    told = refused(verb, digits_model, "--data", data, "--eps", "0.1")
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--suite", "pdg", "--eps", "0.1"], ["unknown attack or suite 'pdg'", "did you mean 'pgd'?"]),
        (["--suite", "fgsm,fsat", "--eps", "0.1"], ["unknown attack or suite 'fsat'", "did you mean 'fast'?"]),
        (["--suite", "pgd(restart=3)", "--eps", "0.1"], ["has no parameter 'restart'", "did you mean 'restarts'?"]),
        (["--suite", "pgd(steps=two)", "--eps", "0.1"], ["attack 'pgd': steps must be int, got 'two'"]),
        (["--suite", "pgd(steps=3", "--eps", "0.1"], ["brackets do not match in 'pgd(steps=3'"]),
        (["--suite", "", "--eps", "0.1"], ["the suite is empty", "--suite fgsm,pgd"]),
        (["--suite", "fgsm,fgsm", "--eps", "0.1"], ["the suite names fgsm twice"]),
        (["--suite", "pgd"], ["attack 'pgd' needs eps", "--eps"]),
        ([], ["attack 'fgsm' needs eps", "--eps"]),
        (["--eps", "0,1"], ["decimals are written with a point", "'0,1'"]),
        (["--eps", "0.1", "--ignore", "softmax"], ["unknown check 'softmax'", "softmax_output"]),
        (["--eps", "0.1", "--suite", "unseen,cw"], ["cw knows l2, not linf"]),
        (["--suite", "seen", "--eps", "0.1"], ["trained without attacks"]),
        (["--eps", "8/0"], ["eps must be a number such as 0.1 or 8/255", "'8/0'"]),
        (["--eps", "nan"], ["eps must be finite", "'nan'"]),
        (["--eps", "-0.1"], ["eps must not be negative", "'-0.1'"]),
        (["--eps", "0.1", "--norm", "l7"], ["norm must be one of linf, l2, l1, l0", "'l7'"]),
        (["--eps", "0.1", "--mean", "0.5,x", "--std", "1"], ["mean and std must be a number", "'x'"]),
        (
            ["--eps", "0.1", "--mean", "0.5", "--std", "0"],
            ["mean and std need one value each, or one a channel (1)", "[0.0]"],
        ),
        (
            ["--eps", "0.1", "--mean", "0.5,0.5", "--std", "1"],
            ["mean and std need one value each, or one a channel (1)", "[0.5, 0.5]"],
        ),
        (["--eps", "0.1", "--device", "tpu"], ["unknown device 'tpu'", "use auto, cpu, cuda or cuda:1"]),
        (["--eps", "0.1", "--size", "8"], ["--size is for image folders", "'digits/test[:40]'"]),
        (["--eps", "0.1", "--save", "../up"], ["run name '../up' is not a plain name", "use letters, digits"]),
        (["--eps", "0.1", "--static-from", "lenet6@x"], ["no such checkpoint: x"]),
        (["--eps", "0.1", "--batch", "0"], ["--batch"]),
    ],
)
def test_wrong_settings_of_an_evaluation(
    arguments: list[str], words: list[str], digits_model: str, refused: Refused
) -> None:
    told = refused("eval", digits_model, "--data", DIGITS, *arguments)
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipe", "noize"], ["unknown recipe 'noize'", "did you mean 'noise'?"]),
        (["--time", "soon"], ["a time is written as 30s, 10m or 1h30m", "'soon'"]),
        (["--time", "0"], ["a time must be positive", "'0'"]),
        (["--time", "-5s"], ["a time is written as", "'-5s'"]),
        (["--eps", "a lot"], ["eps must be a number such as 0.1 or 8/255", "'a lot'"]),
        (["--set", "steps"], ["--set takes key=value, such as schedule.steps=100", "'steps'"]),
        (["--set", "schedul.steps=3"], ["a recipe has no stage 'schedul'", "did you mean 'schedule'?"]),
        (["--set", "schedule.stesp=3"], ["has no parameter 'stesp'", "did you mean 'steps'?"]),
        (["--set", "schedule=per_sed"], ["unknown schedule 'per_sed'", "did you mean 'per_seed'?"]),
        (["--set", "mutate.eps=big"], ["eps must be a number", "'big'"]),
        (["--run", "../../x"], ["run name '../../x' is not a plain name"]),
        (["--run", "CON"], ["run name 'CON' is not a plain name"]),
        (["--run", "x" * 400], ["is not a plain name", "at most 100 characters"]),
        (["--run", "\x1b[31m"], ["is not a plain name"]),
        (["--config", "none.toml"], ["no such file: none.toml"]),
        (["--cases", "0"], ["--cases"]),
    ],
)
def test_wrong_settings_of_a_fuzzing(
    arguments: list[str], words: list[str], digits_model: str, refused: Refused
) -> None:
    told = refused("fuzz", digits_model, "--data", DIGITS, *arguments)
    assert [word for word in words if word not in told] == []
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[rnu]\nseed = 1\n", ["unknown table [rnu]", "did you mean 'run'?"]),
        ("[run]\nsede = 1\n", ["unknown key 'sede' in [run]", "did you mean 'seed'?"]),
        ("run = 3\n", ["run must stand in a table"]),
        ("not toml at all", ["is not valid TOML", "line 1"]),
        ("[recipe]\nname = 'noize'\n", ["unknown recipe 'noize'", "did you mean 'noise'?"]),
        ("[budget]\ntime = 'soon'\n", ["a time is written as", "'soon'"]),
        ("[recipe]\nmutate = 'noyse'\n", ["unknown mutator 'noyse'", "did you mean 'noise'?"]),
    ],
)
def test_wrong_campaign_files(text: str, words: list[str], digits_model: str, refused: Refused) -> None:
    Path("c.toml").write_text(text)
    told = refused("fuzz", digits_model, "--data", DIGITS, "--config", "c.toml")
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lenet6", "--data", "digits"], ["unknown model 'lenet6'", "did you mean 'lenet5'?"]),
        (["lenet5(paddng=same)", "--data", "digits"], ["no parameter 'paddng'", "did you mean 'padding'?"]),
        (["lenet5", "--data", "digitz"], ["unknown data 'digitz'", "did you mean 'digits'?"]),
        (["lenet5", "--data", "digits", "--trainer", "plian"], ["unknown trainer 'plian'", "did you mean 'plain'?"]),
        (["lenet5", "--data", "digits", "--trainer", "plain(epoch=3)"], ["no parameter 'epoch'", "'epochs'"]),
        (["lenet5", "--data", "digits", "--trainer", "adversarial"], ["trainer 'adversarial' needs eps", "--eps"]),
        (["lenet5", "--data", "digits", "--optimiser", "adm"], ["optimiser must be adam or sgd", "'adm'"]),
        (["lenet5", "--data", "digits", "--schedule", "cosin"], ["schedule must be cosine, step or", "'cosin'"]),
        (["lenet5", "--data", "digits", "--augment", "flp"], ["unknown augmentation 'flp'", "did you mean 'flip'?"]),
        (["lenet5", "--data", "digits", "--hold-out", "2"], ["the share to hold out must be between 0 and 1", "2.0"]),
        (["lenet5", "--data", "digits", "--epochs", "0"], ["epochs must be at least 1, got 0"]),
        (["lenet5", "--data", "digits", "--lr", "-1"], ["lr must be in (0, 1e30]", "-1.0"]),
        (["lenet5", "--data", "digits", "--history", "h", "--keep", "some"], ["--keep is 'all' or 'last:N'", "'some'"]),
    ],
)
def test_wrong_settings_of_a_training(arguments: list[str], words: list[str], refused: Refused) -> None:
    told = refused("train", *arguments, "--out", "out.safetensors")
    assert [word for word in words if word not in told] == []


def test_weights_are_written_as_safetensors_only(refused: Refused) -> None:
    told = refused("train", "lenet5", "--data", "digits", "--out", "w.pt")
    assert "--out must end in .safetensors, got w.pt" in told


def test_no_gpu_is_said(digits_model: str, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    told = refused("eval", digits_model, "--data", DIGITS, "--eps", "0.1", "--device", "cuda")
    assert "no GPU" in told
    assert "--device cpu" in told


# Data


def grey(n: int = 6) -> Array:
    return np.random.default_rng(0).random((n, 8, 8)).astype(np.float32)


def with_nan() -> Array:
    x = grey()
    x[4, 3, 3] = np.nan
    return x


BAD_DATA: dict[str, tuple[Callable[[], dict[str, Array]], list[str]]] = {
    "label K": (lambda: {"x": grey(), "y": np.array([0, 1, 2, 10, 4, 5])}, ["must be in 0..9", "10", "rows 3"]),
    "label -2": (
        lambda: {"x": grey(), "y": np.array([0, 1, -2, 3, 4, 5])},
        ["from 0 up, or -1 for unlabelled", "got -2 (rows 2)"],
    ),
    "label text": (lambda: {"x": grey(), "y": np.array(list("abcdef"))}, ["labels", "<U1", "class numbers from 0"]),
    "label fraction": (lambda: {"x": grey(), "y": np.arange(6) + 0.5}, ["labels", "float64", "class numbers from 0"]),
    "not one-hot": (lambda: {"x": grey(), "y": np.ones((6, 10))}, ["(6, 10)", "not one-hot", "give class numbers"]),
    "label count": (lambda: {"x": grey(), "y": np.arange(5)}, ["6 inputs but 5 labels"]),
    "nan": (lambda: {"x": with_nan(), "y": np.arange(6)}, ["NaN or infinity in 1 cases", "first rows: 4"]),
    "range -1..1": (lambda: {"x": grey() * 2 - 1, "y": np.arange(6)}, ["expected [0, 1]", "nothing is rescaled"]),
    "range 0..255": (lambda: {"x": grey() * 255, "y": np.arange(6)}, ["expected [0, 1]", "give uint8 pixels"]),
    "int64": (lambda: {"x": (grey() * 255).astype(np.int64), "y": np.arange(6)}, ["type int64", "give uint8"]),
    "complex": (lambda: {"x": grey() + 1j, "y": np.arange(6)}, ["type complex64", "give uint8"]),
    "size": (lambda: {"x": np.zeros((6, 28, 28), np.float32), "y": np.arange(6)}, ["(1, 8, 8)", "(1, 28, 28)", "use"]),
    "channels": (lambda: {"x": np.zeros((6, 3, 8, 8), np.uint8), "y": np.arange(6)}, ["(1, 8, 8)", "(3, 8, 8)"]),
    "two channels": (lambda: {"x": np.zeros((6, 2, 8, 8), np.uint8), "y": np.arange(6)}, ["(6, 2, 8, 8)", "1, 3 or 4"]),
    "ambiguous": (lambda: {"x": np.zeros((6, 3, 8, 3), np.uint8), "y": np.arange(6)}, ["(6, 3, 8, 3)", "transpose to"]),
    "five axes": (lambda: {"x": np.zeros((6, 1, 8, 8, 1), np.uint8), "y": np.arange(6)}, ["5 axes", "expected"]),
    "no arrays": (lambda: {"images": grey()}, ["images", "expected x and y"]),
}


@pytest.mark.parametrize("what", BAD_DATA)
@pytest.mark.parametrize("verb", ["eval", "fuzz"])
def test_wrong_arrays(verb: str, what: str, digits_model: str, refused: Refused) -> None:
    make, words = BAD_DATA[what]
    np.savez("d.npz", **make())  # type: ignore[arg-type]  # its stub reads ** as its one flag
    told = refused(verb, digits_model, "--data", "d.npz", "--eps", "0.1")
    assert "d.npz" in told
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize("what", ["label -2", "label text", "nan", "range -1..1", "int64", "ambiguous", "no arrays"])
def test_wrong_arrays_to_train_on(what: str, refused: Refused) -> None:
    make, words = BAD_DATA[what]
    np.savez("d.npz", **make())  # type: ignore[arg-type]  # its stub reads ** as its one flag
    told = refused("train", "lenet5", "--data", "d.npz", "--out", "out.safetensors", "--epochs", "1")
    assert "d.npz" in told
    assert [word for word in words if word not in told] == []


class Canary:
    """Makes a folder when it is unpickled."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (self.name,)


def pickled(name: str) -> bytes:
    return pickle.dumps({"x": Canary(name)})


@pytest.mark.parametrize("broken", [b"", b"<!DOCTYPE html><html></html>", b"PK\x03\x04 cut off", pickled("canary")])
def test_files_that_are_no_arrays(broken: bytes, digits_model: str, refused: Refused, tmp_path: Path) -> None:
    Path("d.npz").write_bytes(broken)
    assert "d.npz is not an .npz file; save arrays" in refused("eval", digits_model, "--data", "d.npz", "--eps", "0.1")
    assert not (tmp_path / "canary").exists()


def test_pickled_arrays(digits_model: str, refused: Refused, tmp_path: Path) -> None:
    bad = np.empty(6, object)
    bad[:] = [Canary("canary")] * 6
    np.savez("d.npz", x=grey(), y=bad)
    told = refused("eval", digits_model, "--data", "d.npz", "--eps", "0.1")
    assert "d.npz is not a readable .npz file: Object arrays cannot be loaded" in told
    assert not (tmp_path / "canary").exists()


def no_rows() -> str:
    np.savez("d.npz", x=grey(0), y=np.arange(0))
    return "d.npz"


def no_labels() -> str:
    np.savez("d.npz", x=grey())
    return "d.npz"


def no_images() -> str:
    Path("images/a").mkdir(parents=True)
    return "dir:images"


def no_classes() -> str:
    Path("images").mkdir()
    return "dir:images"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_rows, ["d.npz holds no case"]),
        (lambda: "digits/test[360:]", ["digits/test[360:] holds no case"]),
        (no_labels, ["d.npz has no labels", "no accuracy to measure"]),
        (no_images, ["images: no images"]),
        (no_classes, ["images has no sub-folders", "one folder of images per class"]),
    ],
)
def test_empty_data_is_exit_five(
    make: Callable[[], str], words: list[str], digits_model: str, refused: Refused
) -> None:
    told = refused("eval", digits_model, "--data", make(), "--eps", "0.1", code=NOTHING_TO_TEST)
    assert [word for word in words if word not in told] == []


def test_too_few_to_train_is_exit_five(refused: Refused) -> None:
    np.savez("d.npz", x=grey(3), y=np.arange(3))
    told = refused("train", "lenet5", "--data", "d.npz", "--out", "w.safetensors", code=NOTHING_TO_TEST)
    assert "d.npz has 3 cases, too few to keep some for validation" in told


def test_images_that_cannot_be_read(digits_model: str, refused: Refused) -> None:
    Path("images/a").mkdir(parents=True)
    Path("images/a/1.png").write_bytes(b"<svg/>")
    Image.new("L", (8, 8)).save("images/a/2.gif")
    told = refused("eval", digits_model, "--data", "dir:images", "--eps", "0.1")
    assert "images: all 2 files are unreadable" in told


def test_images_of_differing_size(digits_model: str, refused: Refused) -> None:
    Path("images/a").mkdir(parents=True)
    Image.new("L", (8, 8)).save("images/a/1.png")
    Image.new("L", (9, 8)).save("images/a/2.png")
    told = refused("eval", digits_model, "--data", "dir:images", "--eps", "0.1")
    assert "images differ in size (8x8, 8x9); give --size HxW" in told
    told = refused("eval", digits_model, "--data", "dir:images", "--eps", "0.1", "--size", "big")
    assert "a size is written as 32 or 32x48, got 'big'" in told


@pytest.mark.parametrize(
    ("arrays", "notice"),
    [
        ({"x": (grey() * 255).astype(np.uint8), "y": np.arange(6)}, "d.npz: uint8 pixels divided by 255"),
        ({"x": grey(), "y": np.eye(10)[:6]}, "d.npz: one-hot labels read as class numbers"),
        ({"x": grey().astype(np.float64), "y": np.arange(6)}, "d.npz: float64 inputs converted to float32"),
        (
            {"x": grey()[..., None], "y": np.arange(6)},
            "d.npz: channels-last images (6, 8, 8, 1) read as channels-first",
        ),
    ],
)
def test_what_has_one_reading_is_converted_with_a_notice(
    arrays: dict[str, Array], notice: str, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("d.npz", **arrays)  # type: ignore[arg-type]  # its stub reads ** as its one flag
    assert run(["eval", digits_model, "--data", "d.npz", "--suite", "fgsm", "--eps", "0.1"]) == PASSED
    out, err = capsys.readouterr()
    assert notice in err
    assert "error" not in err
    assert "clean" in out


# Checkpoints


def plain_pt(weights: Path) -> bytes:
    from safetensors.torch import load_file

    torch.save(load_file(weights), "plain.pt")
    told = Path("plain.pt").read_bytes()
    Path("plain.pt").unlink()
    return told


def evil_pt(weights: Path) -> bytes:
    torch.save({"state_dict": {}, "extra": Canary("canary")}, "evil.pt")
    told = Path("evil.pt").read_bytes()
    Path("evil.pt").unlink()
    return told


def nan_weights(weights: Path) -> bytes:
    from safetensors.torch import load_file, save

    held = load_file(weights)
    held["out.bias"][0] = float("nan")
    told: bytes = save(held)
    return told


def overlapping(weights: Path) -> bytes:
    told = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
    }
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text + bytes(12)


BAD_WEIGHTS: dict[str, tuple[str, Callable[[Path], bytes], list[str]]] = {
    "code": ("w.pt", evil_pt, ["holds more than plain weights and was not loaded", "safetensors.torch.save_file"]),
    "bare pickle": ("w.pth", lambda w: pickle.dumps(Canary("canary"), 2), ["was not loaded", "save_file"]),
    "pickle as safetensors": ("w.safetensors", evil_pt, ["is not a valid safetensors file", "fetch or save it again"]),
    "html": ("w.safetensors", lambda w: b"<!doctype html><html>", ["is an HTML page", "download link"]),
    "html pt": ("w.pt", lambda w: b"<html>", ["is an HTML page", "download link"]),
    "empty": ("w.safetensors", lambda w: b"", ["is empty", "did not finish"]),
    "empty pt": ("w.pt", lambda w: b"", ["is empty", "did not finish"]),
    "cut": ("w.safetensors", lambda w: w.read_bytes()[:9000], ["may be truncated", "fetch or save it again"]),
    "cut pt": ("w.pt", lambda w: plain_pt(w)[:9000], ["is not a readable .pt file", "truncated"]),
    "10 GB header": (
        "w.safetensors",
        lambda w: struct.pack("<Q", 10 * 2**30) + b"{}",
        ["its header says it is longer than 4 MB"],
    ),
    "overlap": ("w.safetensors", overlapping, ["is not a valid safetensors file"]),
    "suffix": ("w.ckpt", lambda w: w.read_bytes(), ["is not a checkpoint Assay reads", "save it as .safetensors"]),
    "nan": ("w.safetensors", nan_weights, ["hold NaN or infinity", "out.bias"]),
}


@pytest.mark.parametrize("what", BAD_WEIGHTS)
@pytest.mark.parametrize("verb", ["eval", "fuzz", "train"])
def test_wrong_checkpoints(verb: str, what: str, digits_weights: Path, refused: Refused, tmp_path: Path) -> None:
    name, make, words = BAD_WEIGHTS[what]
    Path(name).write_bytes(make(digits_weights))
    if verb == "train":
        told = refused("train", f"lenet5@{name}", "--data", "digits", "--out", "new.safetensors", "--epochs", "1")
    else:
        told = refused(verb, f"lenet5@{name}", "--data", DIGITS, "--eps", "0.1")
    assert name in told
    assert [word for word in words if word not in told] == []
    assert not (tmp_path / "canary").exists()


def test_weights_of_another_net(digits_weights: Path, refused: Refused) -> None:
    Path("w.pt").write_bytes(plain_pt(digits_weights))
    told = refused("eval", "lenet4@w.pt", "--data", DIGITS, "--eps", "0.1")
    assert "the weights in w.pt do not fit the net: unknown dense2.bias, dense2.weight; dense1.bias is (120,)" in told


NETS = """
import torch
from torch import nn

class Bare(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.answer = answer
    def forward(self, x):
        return self.answer(x)

def one(): return Bare(lambda x: torch.zeros(len(x), 1))
def flat(): return Bare(lambda x: torch.zeros(len(x)))
def few(): return Bare(lambda x: torch.zeros(len(x), 4))
def whole(): return Bare(lambda x: torch.zeros(len(x), 10, dtype=torch.int64))
def nan(): return Bare(lambda x: torch.full((len(x), 10), float("nan")))
def picky(): return Bare(lambda x: x @ torch.zeros(3, 10))
def number(): return 3
"""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("one", ["the net has one output", "two or more classes"]),
        ("flat", ["(40, classes)", "it gave (40,)"]),
        ("few", ["the net has 4 outputs, the data have 10 classes"]),
        ("whole", ["torch.int64", "must be floating-point"]),
        ("nan", ["NaN or infinity on 40 of 40 inputs"]),
        ("picky", ["does not take inputs of shape (1, 8, 8)", "RuntimeError"]),
        ("number", ["net.py:number gave int", "expected a torch.nn.Module"]),
        ("nann", ["has no 'nann'", "did you mean 'nan'?"]),
    ],
)
@pytest.mark.parametrize("verb", ["eval", "fuzz"])
def test_nets_that_are_no_classifiers(verb: str, function: str, words: list[str], refused: Refused) -> None:
    Path("net.py").write_text(NETS)
    torch.save({"weight": torch.zeros(1)}, "w.pt")
    told = refused(verb, f"net.py:{function}@w.pt", "--data", DIGITS, "--eps", "0.1")
    assert [word for word in words if word not in told] == []


def test_a_net_file_that_does_not_load(refused: Refused) -> None:
    Path("net.py").write_text("raise OSError('no licence')\n")
    torch.save({"weight": torch.zeros(1)}, "w.pt")
    told = refused("eval", "net.py:make@w.pt", "--data", DIGITS, "--eps", "0.1")
    assert "net.py does not load: OSError: no licence" in told


# Run folders


def fuzz(model: str, *more: str) -> list[str]:
    return ["fuzz", model, "--data", DIGITS, "--eps", "0.1", "--cases", "50", "--run", "mine", *more]


def test_a_run_folder_in_use_names_its_holder(
    digits_model: str, refused: Refused, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fuzz(digits_model)) == PASSED
    capsys.readouterr()
    with folder_lock(tmp_path / "runs" / "mine"):
        told = refused(*fuzz(digits_model))
    assert f"in use by process {os.getpid()} on {socket.gethostname()}" in told
    assert str(tmp_path / "runs" / "mine") in told
    assert "--fresh" in told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--seed", "1"], ["run.seed: 0 in the run, 1 asked"]),
        (["--eps", "0.2"], ["recipe.mutate: noise(eps=0.1", "noise(eps=0.2"]),
        (["--data", "digits/test[:39]"], ["data.spec: digits/test[:40] in the run, digits/test[:39] asked"]),
    ],
)
def test_a_run_of_another_configuration_shows_the_difference(
    change: list[str],
    words: list[str],
    digits_model: str,
    refused: Refused,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(fuzz(digits_model)) == PASSED
    capsys.readouterr()
    told = refused(*fuzz(digits_model, *change))
    assert "run mine was made with another configuration" in told
    assert "--fresh" in told
    assert [word for word in words if word not in told] == []
    assert "run.unit" not in told  # only what differs is shown


def test_a_saved_evaluation_of_another_configuration_shows_the_difference(
    digits_model: str, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["eval", digits_model, "--data", DIGITS, "--suite", "fgsm", "--save", "kept", "--eps"]
    assert run([*ask, "0.1"]) == PASSED
    capsys.readouterr()
    told = refused(*ask, "0.2")
    assert "run kept was made with another configuration" in told
    assert "suite.fgsm" in told
    assert "eps=0.1" in told
    assert "eps=0.2" in told


def test_a_run_of_another_kind_is_not_continued(
    digits_model: str, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fuzz(digits_model)) == PASSED
    capsys.readouterr()
    told = refused("eval", digits_model, "--data", DIGITS, "--suite", "fgsm", "--eps", "0.1", "--save", "mine")
    assert "run.kind: fuzz in the run, eval asked" in told


def test_a_linked_run_folder_is_refused(digits_model: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link; run folders are real folders" in refused(*fuzz(digits_model))


def test_finished_weights_of_another_training_are_not_replaced(digits_weights: Path, refused: Refused) -> None:
    Path("w.safetensors").write_bytes(digits_weights.read_bytes())
    told = refused("train", "lenet5", "--data", "digits", "--out", "w.safetensors", "--seed", "5")
    assert "w.safetensors holds another training" in told
    assert "--overwrite" in told
    assert "seed: 0 there, 5 asked" in told


# The command itself


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == PASSED
    out, err = capsys.readouterr()
    assert "Usage: assay" in out
    assert "fuzz" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "error: No such command 'frobnicate'; see: assay --help"),
        (["train", "lenet5", "--data", "digits"], "error: Missing option '--out'; see: assay train --help"),
        (["eval", "m"], "error: Missing option '--data'; see: assay eval --help"),
    ],
)
def test_the_hint_names_the_command(arguments: list[str], message: str, refused: Refused) -> None:
    assert refused(*arguments) == message


# Settings that cannot work are refused before a run folder is made


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--suite", "fgsm", "--eps", "0.1", "--norm", "l7"], "norm must be one of linf, l2, l1, l0, got 'l7'"),
        (["--suite", "fgsm(loss=foo)", "--eps", "0.1"], "'foo'"),
        (["--suite", "pgd(steps=0)", "--eps", "0.1"], "steps 0, restarts 1"),
        (["--suite", "pgd(restarts=0)", "--eps", "0.1"], "restarts 0"),
        (["--suite", "pgd(step=0)", "--eps", "0.1"], "step 0.0"),
        (["--suite", "fgsm(eps=-1)"], "eps must not be negative, got -1.0"),
        (["--suite", "fgsm", "--eps", "0.1", "--norm", "l0"], "eps of l0 counts changed entries"),
        (["--suite", "fgsm(eps=NaN)"], "eps must be finite, got 'NaN'"),
        (["--suite", "pgd(steps=1, steps=2)", "--eps", "0.1"], "'steps' is set twice"),
    ],
)
def test_an_evaluation_that_cannot_work_makes_no_run(
    arguments: list[str], words: str, digits_model: str, refused: Refused
) -> None:
    assert words in refused("eval", digits_model, "--data", DIGITS, "--save", "kept", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--eps", "0.1", "--norm", "l7"], "norm must be one of linf, l2, l1, l0, got 'l7'"),
        (["--eps", "0.1", "--norm", "l0"], "eps of l0 counts changed entries and must be at least 1, got 0.1"),
        (["--set", "schedule.steps=0"], "at least one step and one failure to end at, got 0 and 1"),
        (["--set", "schedule.failures=0"], "at least one step and one failure to end at, got 64 and 0"),
        (["--set", "mutate=noise(eps=-1)"], "eps must not be negative, got -1.0"),
        (["--set", "mutate.eps=-1"], "eps must not be negative, got -1.0"),
        (["--set", "mutate=3"], "expected a name or name(key=value, ...), got 3"),
        (["--set", "mutate= "], "cannot read ''"),
        (["--set", "mutate=[1]"], "expected a name or name(key=value, ...), got [1]"),
    ],
)
def test_a_fuzzing_that_cannot_work_makes_no_run(
    arguments: list[str], words: str, digits_model: str, refused: Refused
) -> None:
    assert words in refused("fuzz", digits_model, "--data", DIGITS, "--cases", "50", "--run", "mine", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[run]\nseed = "abc"\n', "c.toml: got 'abc': Invalid value for '--seed'"),
        ("[run]\nseed = 1.5\n", "c.toml: got '1.5': Invalid value for '--seed'"),
        ("[run]\nseed = true\n", "c.toml: seed cannot be True"),
        ("[run]\nunit = 0\n", "unit is auto or a number from 1 up, got '0'"),
        ('[run]\ndeterministic = "maybe"\n', "c.toml: deterministic is true or false, got 'maybe'"),
        ('[run]\nkind = "eval"\n', "c.toml is of a run of kind 'eval' that no command line made"),
        ('[budget]\ncases = "many"\n', "c.toml: got 'many': Invalid value for '--cases'"),
        ("[budget]\ncases = -3\n", "c.toml: got '-3': Invalid value for '--cases'"),
        ("[budget]\ncases = 0\n", "c.toml: got '0': Invalid value for '--cases'"),
        ("[budget]\ntime = true\n", "c.toml: time cannot be True"),
        ("[target]\nmodel = {a = 3}\n", "c.toml: model cannot be {'a': 3}"),
        ("[recipe]\nmutate = 3\n", "c.toml: mutate in [recipe] cannot be 3"),
    ],
)
def test_campaign_files_with_wrong_values(text: str, words: str, digits_model: str, refused: Refused) -> None:
    Path("c.toml").write_text(text)
    assert words in refused("fuzz", digits_model, "--data", DIGITS, "--config", "c.toml", "--run", "mine")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lenet5", "--data", "digits", "--lr", "nan"], "lr must be finite"),
        (["lenet5", "--data", "digits", "--lr", "inf"], "lr must be finite"),
        (["lenet5", "--data", "digits", "--weight-decay", "-1"], "weight_decay must be at least 0, got -1.0"),
        (["lenet5", "--data", "digits", "--batch", "0"], "batch must be at least 1, got 0"),
        (["lenet5", "--data", "digits/train"], "write digits, not digits/train"),
        (["lenet5", "--data", "digits[:9]"], "write digits, not digits[:9]"),
        (["mlp(hidden=5)", "--data", "digits"], "hidden must be tuple"),
        (["alexnet(dropout=2)", "--data", "digits"], "cannot be built: dropout probability"),
        (["resnet20(width=-1)", "--data", "digits"], "cannot be built"),
        (["lenet5(shape=3)", "--data", "digits"], "model 'lenet5': shape must be tuple"),
        (["lenet5(classes=4)", "--data", "digits"], "shape and classes of lenet5 come from the data"),
        (["lenet5", "--data", "digits", "--std", "0.5"], "mean and std need one value each"),
    ],
)
def test_a_training_that_cannot_work(arguments: list[str], words: str, refused: Refused) -> None:
    assert words in refused("train", *arguments, "--out", "out.safetensors")


def test_weights_cannot_go_below_a_file(refused: Refused) -> None:
    Path("file").write_text("mine")
    told = refused("train", "lenet5", "--data", "digits", "--out", "file/w.safetensors", code=INTERNAL)
    assert "cannot write file in" in told


def test_a_folder_that_cannot_be_written_is_refused_first(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed")
    told = refused("train", "lenet5", "--data", "digits", "--out", "closed/w.safetensors")
    assert "closed is not writable; choose another --out" in told


def test_validation_without_labels_is_exit_five(refused: Refused) -> None:
    np.savez("d.npz", x_train=grey(6), y_train=np.arange(6), x_val=grey(2), y_val=np.array([-1, -1]))
    told = refused("train", "mlp", "--data", "d.npz", "--out", "w.safetensors", code=NOTHING_TO_TEST)
    assert "there are 6 to train on, 0 to validate" in told


def test_validation_leaves_unlabelled_rows_out(capsys: pytest.CaptureFixture[str]) -> None:
    train: dict[str, Any] = {"x_train": grey(6), "y_train": np.arange(6)}
    np.savez("all.npz", **train, x_val=grey(4)[:3], y_val=np.array([0, 1, 2]))
    np.savez("some.npz", **train, x_val=grey(4), y_val=np.array([0, 1, 2, -1]))
    told = []
    for name in ("all", "some"):
        assert (
            run(["train", "mlp", "--data", f"{name}.npz", "--out", f"{name}.safetensors", "--epochs", "1", "--json"])
            == PASSED
        )
        told.append(json.loads(capsys.readouterr().out)["log"][0])
    assert [told[0][key] for key in ("val_accuracy", "val_loss")] == [
        told[1][key] for key in ("val_accuracy", "val_loss")
    ]


def test_a_folder_whose_name_is_no_unicode(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = os.fsdecode(b"images\xff")
    (tmp_path / folder / "a").mkdir(parents=True)
    (tmp_path / folder / "b").mkdir()
    for name in ("a/1.png", "b/1.png"):
        Image.new("L", (8, 8)).save(tmp_path / folder / name)
    ask = ["eval", digits_model, "--data", f"dir:{folder}", "--suite", "fgsm", "--eps", "0.1", "--save", "kept"]
    assert run(ask) == PASSED
    assert "Traceback" not in capsys.readouterr().err
    told = tomllib.loads((tmp_path / "runs" / "kept" / "campaign.toml").read_text(encoding="utf-8"))
    assert told["data"]["spec"] == "images\\udcff"
    assert run(ask) == PASSED  # the same run goes on
