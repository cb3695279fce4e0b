"""A reader's folder: weights and data that the pages take for granted, made once. Fixtures for tests of pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import doc_readers
from assay.engines.train import train

# Name, net, data and epochs of the weights that pages speak of; the sets in $ASSAY_DATA are small.
NETS = (
    *(("lenet5", "m", "mnist", 2), ("lenet4", "m4", "mnist", 1), ("lenet1", "m1", "mnist", 1)),
    *(("lenet5", "r", "mnist", 1), ("lenet5", "hard", "mnist", 1), ("lenet5", "old", "digits", 4)),
    ("lenet5", "fine", "digits", 6),
)


@pytest.fixture(scope="session")
def furnished(digits_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that every reader starts with."""
    folder = tmp_path_factory.mktemp("reader")
    data = folder / "data"
    data.mkdir()
    doc_readers.furnish(folder, digits_weights, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_DATA", str(data))
        for net, name, data_set, epochs in NETS:
            train(net, data_set, folder / f"{name}.safetensors", params={"epochs": epochs}, seed=len(name))
    return folder


@pytest.fixture
def reader(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[doc_readers.Reader]:
    """Somebody in a folder of their own with those files in it."""
    for path in furnished.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("ASSAY_DATA", str(furnished / "data"))
    person = doc_readers.Reader(tmp_path)
    yield person
    person.close()
