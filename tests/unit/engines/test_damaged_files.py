"""Files that come from anywhere: damaged facts and states end in one clear message."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core import store
from assay.core.errors import AssayError, UsageError
from assay.core.specs import step, written
from assay.engines.train import train
from assay.subjects.data.load import load_data
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target

PARAMS = {"epochs": 1}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "w.safetensors"
    train("mlp(hidden=[4])", "digits", path, params=PARAMS)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": None},
        {"mean": [10**400]},
        {"mean": "x"},
        {"params": [1]},
        {"bounds": [0, 10**400]},
        {"model": 3},
        {"training": [1]},
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_damaged_facts(weights: Path, changes: dict[str, Any], whole: bool, tmp_path: Path) -> None:
    tensors, facts = checkpoint.read(weights)
    kept = facts if whole else {}
    if not whole and "bounds" in changes:
        kept = {"shape": [1, 8, 8]}
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(checkpoint.encode(tensors, kept | changes))
    with pytest.raises(UsageError, match="damaged"):
        load_target(f"mlp@{bad}", data=load_data("digits/test"))
    with pytest.raises(UsageError, match="damaged"):
        train(f"mlp@{bad}", "digits", tmp_path / "new.safetensors", params=PARAMS)


def test_a_claimed_size_is_looked_at_before_memory_is_taken(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, facts = checkpoint.read(weights)
    weights.write_bytes(checkpoint.encode(tensors, facts | {"shape": [1, 5000, 5000]}))
    taken = []
    plain = torch.nn.Linear.__init__

    def watched(self: torch.nn.Linear, wide: int, *rest: Any, **named: Any) -> None:
        plain(self, wide, *rest, **named)
        taken.append(self.weight.device.type == "cpu" and wide)

    monkeypatch.setattr(torch.nn.Linear, "__init__", watched)
    with pytest.raises(UsageError, match="do not fit"):
        load_target(f"mlp@{weights}")
    assert not any(taken), "the net was built for real"


def test_eight_bit_floats_do_not_crash(weights: Path) -> None:
    tensors, facts = checkpoint.read(weights)
    small = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items()}
    weights.write_bytes(checkpoint.encode(small, facts))
    assert load_target(f"mlp@{weights}").spec.shape == (1, 8, 8)


@pytest.mark.parametrize("meta", [{"facts": 3}, {"facts": {"training": 3}}, {}])
def test_a_damaged_state_is_named(meta: dict[str, Any], tmp_path: Path) -> None:
    state = tmp_path / "w.state.safetensors"
    state.write_bytes(checkpoint.encode({"weights/x": torch.zeros(1)}, meta))
    with pytest.raises(UsageError, match=r"w\.state\.safetensors is damaged.*--overwrite"):
        train("mlp", "digits", tmp_path / "w.safetensors", params=PARAMS)
    train("mlp", "digits", tmp_path / "w.safetensors", params=PARAMS, overwrite=True)


def test_a_refused_training_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown model"):
        train("lenet6", "digits", tmp_path / "new" / "w.safetensors")
    assert not (tmp_path / "new").exists()


def opened() -> Any:
    return store.opened("r", {"run": {"kind": "fuzz"}}, {})


def test_names_of_temporary_files_are_not_for_commits() -> None:
    with opened() as run, pytest.raises(UsageError, match="no new file"):
        run.commit({"cases/y.tmp": b"1"}, kind="k")


def test_files_where_folders_should_be() -> None:
    with opened() as run:
        (run.path / "cases").write_text("in the way")
        with pytest.raises(AssayError, match="cases"):
            run.commit({"cases/y": b"1"}, kind="k")
    (run.path / "journal.jsonl").unlink()
    (run.path / "journal.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"journal\.jsonl cannot be read"):
        store.read(run.path)


def test_backslashes_read_back() -> None:
    for text in ("a\\", 'a"b\\', "a\\\\,b", json.dumps("x,y")):
        assert step(f"n(k={written(text)}, z=1)") == ("n", {"k": text, "z": 1})
