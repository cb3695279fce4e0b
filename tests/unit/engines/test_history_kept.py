"""The history that a training keeps, and how one that mines finds it again."""

from pathlib import Path

import pytest
import torch

from assay.core.errors import UsageError
from assay.engines.held_out import history_of
from assay.engines.train import train
from assay.subjects.history import Snapshots, epochs_in
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target, module_of

QUICK = {"batch": 100, "epochs": 3}


def trained(out: Path, **options: object) -> Path:
    train("lenet1", "digits", out, **({"params": QUICK, "history": "all"} | options))  # type: ignore[arg-type]
    return out


def test_all_epochs_lie_beside_the_weights_or_the_last_of_them(tmp_path: Path) -> None:
    trained(tmp_path / "a.safetensors")
    trained(tmp_path / "b.safetensors", keep="last:2")
    trained(tmp_path / "c.safetensors", history="last:1")
    kept = [list(epochs_in(tmp_path / f"{name}.history")) for name in "abc"]
    assert kept == [[1, 2, 3], [2, 3], [3]]
    with pytest.raises(UsageError, match="there is none"):
        trained(tmp_path / "d.safetensors", history="", keep="last:2")


def test_epochs_of_a_training_that_was_replaced_are_gone(tmp_path: Path) -> None:
    out = trained(tmp_path / "a.safetensors")
    trained(out, params=QUICK | {"epochs": 2}, seed=3, overwrite=True)
    files = epochs_in(tmp_path / "a.history")
    assert list(files) == [1, 2]
    assert {checkpoint.read_meta(path)["training"]["seed"] for path in files.values()} == {3}


def test_a_history_elsewhere_is_found_by_what_the_weights_say(tmp_path: Path) -> None:
    out = trained(tmp_path / "a.safetensors", history=str(tmp_path / "other"))
    assert history_of(f"lenet1@{out}") == str(tmp_path / "other")
    beside = trained(tmp_path / "b.safetensors")
    assert history_of(f"lenet1@{beside}") == str(tmp_path / "b.history")
    assert history_of("lenet1") == ""


def test_for_a_trainer_that_mines_history_is_what_it_mines(tmp_path: Path) -> None:
    start = trained(tmp_path / "a.safetensors", history=str(tmp_path / "other"), hold_out=0.5)
    model, before = f"lenet1@{start}", [path.read_bytes() for path in epochs_in(tmp_path / "other").values()]
    told = train(model, "digits", tmp_path / "d.safetensors", trainer="dare", history=str(tmp_path / "other"))
    assert told.notes["history"] == str(tmp_path / "other")
    assert [path.read_bytes() for path in epochs_in(tmp_path / "other").values()] == before  # read, never written
    with pytest.raises(UsageError, match="keeps no history"):
        train(model, "digits", tmp_path / "e.safetensors", trainer="dare", history="all")
    with pytest.raises(UsageError, match="tunes a trained model"):
        train("lenet1", "digits", tmp_path / "e.safetensors", trainer="dare")


def test_histories_that_are_not_the_models_are_refused(tmp_path: Path) -> None:
    own = trained(tmp_path / "own.safetensors", hold_out=0.5)
    trained(tmp_path / "all.safetensors")
    other = f"dare(history={tmp_path / 'all.history'})"
    with pytest.raises(UsageError, match="on other data"):
        train(f"lenet1@{own}", "digits", tmp_path / "d.safetensors", trainer=other)
    stray = tmp_path / "own.history" / "epoch-0009.safetensors"
    stray.write_bytes((tmp_path / "all.history" / "epoch-0001.safetensors").read_bytes())
    with pytest.raises(UsageError, match="several trainings"):
        train(f"lenet1@{own}", "digits", tmp_path / "d.safetensors", trainer="dare")


def test_what_is_mined_is_part_of_what_the_training_is(tmp_path: Path) -> None:
    """The same command with another history in that folder is another training."""
    own = trained(tmp_path / "own.safetensors", hold_out=0.5)
    train(f"lenet1@{own}", "digits", tmp_path / "d.safetensors", trainer="dare")
    (tmp_path / "own.history" / "epoch-0002.safetensors").unlink()
    with pytest.raises(UsageError, match="history_fingerprint"):
        train(f"lenet1@{own}", "digits", tmp_path / "d.safetensors", trainer="dare")


def test_epochs_of_another_loop_may_be_plain_weights(tmp_path: Path) -> None:
    own = trained(tmp_path / "own.safetensors")
    module = module_of(load_target(f"lenet1@{own}"))
    weights, _ = checkpoint.read(own)
    folder = tmp_path / "mine"
    folder.mkdir()
    torch.save(weights, folder / "epoch-0001.pt")
    snapshots = Snapshots.of_folder(folder, module)
    assert snapshots.epochs == (1,)
    assert all(torch.equal(tensor, snapshots.read(1)[name]) for name, tensor in module.state_dict().items())
    torch.save({name: tensor + 1 for name, tensor in weights.items()}, folder / "epoch-0001.pt")
    assert Snapshots.of_folder(folder, module).fingerprint != snapshots.fingerprint  # same names and sizes
