"""Mining a history: who was surest, by which rule, and what is aimed at."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.stages import mining
from assay.stages.mining import Mined, mined, targets
from assay.subjects.cut import cut_of
from assay.subjects.history import Snapshots, beside
from assay.subjects.sources import checkpoint
from assay.subjects.sources.module import ModuleTarget, Normalised


def net(weight: list[list[float]]) -> nn.Sequential:
    """Scores are a matrix times two inputs; between them lies a layer that changes nothing."""
    made = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    made.load_state_dict({"0.weight": torch.tensor(weight), "2.weight": torch.eye(2)})
    return made


def weights(weight: list[list[float]]) -> dict[str, Tensor]:
    return dict(net(weight).state_dict())


# The net is right on class 0 (scores 1, 0), wrong on class 1 (scores 1, 0.5).
NOW = [[1.0, 1.0], [0.0, 0.5]]
CASES = Cases.of(torch.eye(2), torch.tensor([0, 1]))


def test_a_right_input_takes_the_surest_epoch_and_the_first_of_equals() -> None:
    past = {2: [[2.0, 1.0], [0.0, 0.5]], 3: [[3.0, 1.0], [0.0, 0.5]], 4: [[3.0, 1.0], [0.0, 0.5]]}
    found = mined(net(NOW), Snapshots.of_weights({e: weights(w) for e, w in past.items()}), CASES, since=0.0)
    assert found.rows.tolist() == [0]  # class 1 has not changed
    assert found.epoch.tolist() == [3]
    assert found.before.tolist() == pytest.approx([torch.sigmoid(torch.tensor(1.0)).item()])
    assert found.confidence.tolist() == pytest.approx([torch.sigmoid(torch.tensor(3.0)).item()])
    assert found.right.tolist() == [True]


def test_a_wrong_input_takes_only_epochs_that_are_right() -> None:
    surer = {1: weights([[1.0, 1.0], [0.0, 0.9]])}  # surer of class 1, and still wrong
    right = surer | {2: weights([[1.0, 1.0], [0.0, 1.5]])}
    assert len(mined(net(NOW), Snapshots.of_weights(surer), CASES, since=0.0)) == 0
    found = mined(net(NOW), Snapshots.of_weights(right), CASES, since=0.0)
    assert (found.rows.tolist(), found.epoch.tolist(), found.right.tolist()) == ([1], [2], [False])


def test_only_the_later_part_of_the_history_is_mined() -> None:
    past = {e: weights([[4.0 - e, 1.0], [0.0, 0.5]]) for e in range(1, 5)}  # 3, 2, 1, 0: the first was surest
    snapshots = Snapshots.of_weights(past)
    assert snapshots.since(0.5) == (2, 3, 4)
    assert mined(net(NOW), snapshots, CASES, since=0.5).epoch.tolist() == [2]
    assert mined(net(NOW), snapshots, CASES, since=0.0).epoch.tolist() == [1]
    with pytest.raises(UsageError, match="since"):
        mined(net(NOW), snapshots, CASES, since=1.0)


def test_targets_are_what_the_chosen_epoch_gives_at_the_cut() -> None:
    past = {1: weights([[3.0, 1.0], [0.0, 0.5]]), 2: weights([[1.0, 1.0], [0.0, 1.5]])}
    module, snapshots = net(NOW), Snapshots.of_weights(past)
    cut = cut_of(ModuleTarget(module, InputSpec((2,), (0.0, 1.0), ("0", "1"))), "1")
    found = mined(module, snapshots, CASES, since=0.0, chunks=Chunks(1))
    wanted = targets(module, snapshots, CASES, found, cut, chunks=Chunks(1))
    assert found.epoch.tolist() == [1, 2]
    assert wanted.tolist() == [[3.0, 0.0], [1.0, 1.5]]  # x times the epoch's matrix, in the order of the inputs
    assert torch.equal(module.state_dict()["0.weight"], torch.tensor(NOW))  # the net itself is left alone


def test_nothing_mined_and_too_much_to_hold_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module = net(NOW)
    cut = cut_of(ModuleTarget(module, InputSpec((2,), (0.0, 1.0), ("0", "1"))), "1")
    past = Snapshots.of_weights({1: weights([[3.0, 1.0], [0.0, 0.5]])})
    found = mined(module, past, CASES, since=0.0)
    nothing = Mined(*(column[:0] for column in (found.rows, found.epoch, found.confidence, found.before, found.right)))
    with pytest.raises(NothingToTest, match="nothing to aim at"):
        targets(module, past, CASES, nothing, cut)
    monkeypatch.setattr(mining, "MOST_BYTES", 4)
    with pytest.raises(UsageError, match="count="):
        targets(module, past, CASES, found, cut)


def test_a_folder_is_read_by_epoch_and_must_fit(tmp_path: Path) -> None:
    facts = {"mean": [0.5], "std": [0.25]}
    for epoch, value in ((9, 1.0), (10, 2.0)):
        checkpoint.write(tmp_path / f"epoch-{epoch:04d}.safetensors", weights([[value, 0.0], [0.0, 1.0]]), facts)
    module = Normalised(net(NOW), [0.5], [0.25])
    snapshots = Snapshots.of_folder(tmp_path, module)
    assert snapshots.epochs == (9, 10)
    assert snapshots.read(10)["net.0.weight"].tolist() == [[2.0, 0.0], [0.0, 1.0]]
    module.load_state_dict(dict(snapshots.read(9)))
    assert snapshots.fingerprint == Snapshots.of_folder(tmp_path, module).fingerprint
    with pytest.raises(UsageError, match="another training: its net has mean"):
        Snapshots.of_folder(tmp_path, Normalised(net(NOW), [0.5], [0.3]))
    with pytest.raises(UsageError, match="do not fit"):
        Snapshots.of_folder(tmp_path, Normalised(nn.Sequential(nn.Linear(2, 3)), [0.5], [0.25])).read(9)
    with pytest.raises(UsageError, match="holds no history"):
        Snapshots.of_folder(tmp_path / "none", module)
    checkpoint.write(tmp_path / "epoch-last.safetensors", weights(NOW), facts)
    with pytest.raises(UsageError, match="no epoch of a history"):
        Snapshots.of_folder(tmp_path, module)


def test_a_history_lies_beside_its_weights() -> None:
    assert beside(Path("a/v.safetensors")) == Path("a/v.history")
    assert beside(Path("a/v.1.safetensors")) == Path("a/v.1.history")
