"""Data and weights in an S3 store: fetched once, again when they change, and used as files are."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import assay
import small
from assay.core import trust
from assay.core.errors import UsageError
from assay.core.remote import Objects
from assay.engines.train import train
from assay.subjects.data.load import load_data, load_splits
from assay.subjects.sources import checkpoint
from commands import assay as command
from s3_server import BUCKET, Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, server: Server) -> str:
    """An address with the data and the weights of a small campaign."""
    small.prepare(tmp_path)
    url = f"{BUCKET}/{tmp_path.name}"
    for name in ("seeds.npz", "tiny.safetensors"):
        Objects(url).put(name, (tmp_path / name).read_bytes())
        (tmp_path / name).rename(tmp_path / f"own-{name}")
    return url


def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects that are fetched from now on."""
    seen: list[str] = []
    real = Objects.get

    def get(self: Objects, name: str, path: Path) -> bool:
        seen.append(f"{self.url}/{name}".rstrip("/"))
        return real(self, name, path)

    monkeypatch.setattr(Objects, "get", get)
    return seen


def test_a_file_is_the_data_that_it_is_on_a_disk(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fetched(monkeypatch)
    far, near = load_data(f"{place}/seeds.npz[:5]"), load_data("own-seeds.npz[:5]")
    assert far.fingerprint() == near.fingerprint()
    assert far.source == f"{place}/seeds.npz[:5]"
    load_data(f"{place}/seeds.npz[:3]")
    assert seen == [f"{place}/seeds.npz"], "once"
    np.savez("other.npz", x=np.zeros((4, 1, 8, 8), np.float32), y=np.zeros(4, np.int64))
    Objects(place).put("seeds.npz", Path("other.npz").read_bytes())
    assert len(load_data(f"{place}/seeds.npz")) == 4
    assert len(seen) == 2


def test_parts_of_a_file(place: str) -> None:
    x, y = np.zeros((6, 1, 8, 8), np.float32), np.arange(6)
    np.savez("parts.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    Objects(place).put("parts.npz", Path("parts.npz").read_bytes())
    assert len(load_data(f"{place}/parts.npz/train")) == 6
    assert load_splits(f"{place}/parts.npz").part("test").fingerprint() == load_data("parts.npz/test").fingerprint()


def test_a_folder_of_images(place: str, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for i in range(3):
            path = tmp_path / "images" / label / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), 40 * i, np.uint8)).save(path)
            Objects(place).put(f"images/{label}/{i}.png", path.read_bytes())
    far, near = load_data(f"dir:{place}/images"), load_data(f"dir:{tmp_path}/images")
    assert far.fingerprint() == near.fingerprint()
    assert far.spec.classes == ("cat", "dog")


def test_weights(place: str) -> None:
    model = f"tiny.py:net@{place}/tiny.safetensors"
    data = load_data("own-seeds.npz")
    near = assay.load_target("tiny.py:net@own-tiny.safetensors", data=data)
    assert assay.load_target(model, data=data).fingerprint() == near.fingerprint()


def test_a_training_goes_there_and_is_not_done_again(place: str) -> None:
    out = f"{place}/trained/w.safetensors"
    told = train("lenet5", "digits", out, params={"epochs": 1})
    assert told.to_json()["out"] == out
    near = train("lenet5", "digits", "near.safetensors", params={"epochs": 1})
    assert set(Objects(f"{place}/trained").all()) == {"w.safetensors"}
    far = checkpoint.read(Path(out))[0]
    assert all(bool((far[name] == tensor).all()) for name, tensor in checkpoint.read(near.out)[0].items())
    before = Objects(f"{place}/trained").all()
    train("lenet5", "digits", out, params={"epochs": 1})
    assert Objects(f"{place}/trained").all() == before
    with pytest.raises(UsageError, match="holds another training"):
        train("lenet5", "digits", out, params={"epochs": 2})
    train("lenet5", "digits", out, params={"epochs": 2}, overwrite=True)
    assert Objects(f"{place}/trained").all() != before


def test_by_the_command_line(place: str) -> None:
    fuzz = ["fuzz", f"tiny.py:net@{place}/tiny.safetensors", "--data", f"{place}/seeds.npz[:8]", "--recipe", "noise"]
    told = (
        command(*fuzz, "--set", "mutate.eps=0.9", "--cases", "40", "--run", "near", "--json", "--quiet").ended(0).json
    )
    assert told["protocol"]["data"]["spec"] == f"{place}/seeds.npz[:8]"
    command("replay", "near", "-k", "1", "--json").ended(0)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{}/none.npz", "no such file: s3://bucket"),
        ("dir:{}/none", "no such folder: s3://bucket"),
        ("{}/tiny.safetensors", r"is no \.npz file; images in folders by class are dir:"),
    ],
)
def test_what_is_not_there_is_said(spec: str, words: str, place: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_data(spec.format(place))


def test_what_only_a_foreign_run_names_is_not_asked_for(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Objects, "stamp", lambda self, *_: asked.append(self.url))
    with trust.named_by("foreign", []), pytest.raises(UsageError, match="neither run nor sent anything"):
        load_data(f"{place}/seeds.npz")
    assert asked == []
