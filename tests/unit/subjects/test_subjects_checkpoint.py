"""Weights on disk: round trips, and files that are not what they should be."""

import json
import os
import pickle
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.subjects.sources import checkpoint


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


META = {"model": "made", "classes": ["a", "b <script>", "ß"], "shape": [1, 4, 4], "mean": [0.1]}


def test_round_trip(tmp_path: Path) -> None:
    weights = net().state_dict()
    checkpoint.write(tmp_path / "new" / "w.safetensors", weights, META)
    found, told = checkpoint.read(tmp_path / "new" / "w.safetensors")
    assert same(found, weights)
    assert told == META
    assert checkpoint.read_meta(tmp_path / "new" / "w.safetensors") == META
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["w.safetensors"]


def test_the_same_weights_give_the_same_bytes() -> None:
    weights = net().state_dict()
    turned = dict(reversed(weights.items()))
    shuffled = dict(reversed(META.items()))
    told = {checkpoint.encode(some, meta) for some in (weights, turned) for meta in (META, shuffled) for _ in range(4)}
    assert len(told) == 1


def test_shared_and_strided_weights_are_written() -> None:
    base = torch.arange(6.0).reshape(2, 3)
    content = checkpoint.encode({"a": base, "b": base, "c": base.T}, {})
    assert len(content) > 3 * 24


def test_nan_in_the_facts_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.encode({}, {"score": float("nan")})


def test_facts_of_others_are_not_ours(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "w.safetensors", {"format": "pt"})
    assert checkpoint.read(tmp_path / "w.safetensors")[1] == {}
    for text in ("not json", "[1, 2]", "3"):
        save_file({"w": torch.ones(2)}, tmp_path / "w.safetensors", {"assay": text})
        assert checkpoint.read_meta(tmp_path / "w.safetensors") == {}


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrap", [False, True])
def test_plain_pickled_weights_are_read(suffix: str, zipped: bool, wrap: bool, tmp_path: Path) -> None:
    weights = dict(net().state_dict())
    path = tmp_path / f"w{suffix}"
    content: dict[str, Any] = {"state_dict": weights, "epoch": 3, "loss": 0.5} if wrap else weights
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    found, told = checkpoint.read(path)
    assert same(found, weights)
    assert told == {}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model."])
def test_a_prefix_before_every_name_is_dropped(prefix: str, tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    source, target = net(1), net(2)
    weights = {prefix + name: tensor for name, tensor in source.state_dict().items()}
    checkpoint.load_into(target, weights, tmp_path / "w.pt")
    assert same(dict(target.state_dict()), dict(source.state_dict()))
    assert f"dropped the prefix '{prefix}' of every weight name" in notices.text


def test_a_prefix_that_is_the_net_s_own_stays(tmp_path: Path) -> None:
    source, target = nn.ModuleDict({"model": net(1)}), nn.ModuleDict({"model": net(2)})
    checkpoint.load_into(target, source.state_dict(), tmp_path / "w.pt")
    assert same(dict(target.state_dict()), dict(source.state_dict()))


def change(weights: dict[str, Tensor], **changes: Tensor | None) -> dict[str, Tensor]:
    merged: dict[str, Tensor | None] = {**weights, **{name.replace("__", "."): t for name, t in changes.items()}}
    return {name: tensor for name, tensor in merged.items() if tensor is not None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"3__bias": None}, "missing 3.bias"),
        ({"head__weight": torch.ones(1)}, "unknown head.weight"),
        ({"3__bias": torch.ones(4)}, "3.bias is (4,), the net has (3,)"),
        ({"3__bias": None, "head": torch.ones(1)}, "missing 3.bias; unknown head"),
    ],
)
def test_weights_that_do_not_fit_are_refused(changes: dict[str, Tensor | None], words: str) -> None:
    target = net()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(UsageError) as told:
        checkpoint.load_into(target, change(dict(net(1).state_dict()), **changes), Path("some.pt"))
    assert str(told.value) == f"the weights in some.pt do not fit the net: {words}"
    assert same(dict(target.state_dict()), before)


def test_a_long_list_of_misfits_is_cut() -> None:
    with pytest.raises(UsageError, match=r"missing 0\.bias, 0\.weight, 1\.bias, 1\.num_batches_tracked and 5 more"):
        checkpoint.load_into(net(), {}, Path("some.pt"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights_are_refused_and_not_loaded(value: float) -> None:
    weights, target = net(1).state_dict(), net(0)
    weights["3.weight"][1, 2] = value
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(UsageError, match=r"the weights in some\.pt hold NaN or infinity: 3\.weight"):
        checkpoint.load_into(target, weights, Path("some.pt"))
    assert same(dict(target.state_dict()), before)


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, run: Callable[..., object], *arguments: Any) -> None:
        self.told = (run, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return self.told


def evil(canary: Path, how: str) -> Evil:
    return {
        "os.system": Evil(os.system, f"touch {canary}"),
        "eval": Evil(eval, f"open({str(canary)!r}, 'w')"),
        "subprocess": Evil(subprocess.check_call, ["touch", str(canary)]),
        "os.mkdir": Evil(os.mkdir, str(canary)),
    }[how]


@pytest.mark.parametrize("how", ["os.system", "eval", "subprocess", "os.mkdir"])
@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_a_checkpoint_with_code_never_runs_it(how: str, form: str, suffix: str, tmp_path: Path) -> None:
    path, canary = tmp_path / f"w{suffix}", tmp_path / "canary"
    content = {"state_dict": dict(net().state_dict()), "extra": evil(canary, how)}
    if form == "pickle":
        path.write_bytes(pickle.dumps(content["extra"], protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(UsageError, match="holds more than plain weights and was not loaded") as told:
        checkpoint.read(path)
    assert str(path) in str(told.value)
    assert "safetensors.torch.save_file" in str(told.value)
    assert not canary.exists()


def test_the_canary_would_have_sung(tmp_path: Path) -> None:
    """The attack above is a real one: an unsafe reader runs it."""
    pickle.loads(pickle.dumps(evil(tmp_path / "canary", "os.system")))
    assert (tmp_path / "canary").exists()


def test_a_pickle_by_the_name_of_safetensors_is_refused(tmp_path: Path) -> None:
    path, canary = tmp_path / "w.safetensors", tmp_path / "canary"
    torch.save({"w": evil(canary, "os.system")}, path)
    for read in (checkpoint.read, checkpoint.read_meta):
        with pytest.raises(UsageError, match=r"w\.safetensors is not a valid safetensors file"):
            read(path)
    assert not canary.exists()


def test_a_whole_module_is_refused(tmp_path: Path) -> None:
    torch.save(net(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"holds more than plain weights.*GLOBAL torch\.nn\.modules\.container"):
        checkpoint.read(tmp_path / "w.pt")


@pytest.mark.parametrize("content", [{}, {"a": 1}, [1, 2], 3, {"state_dict": {"a": 1}}, {"state_dict": 3}])
def test_plain_data_that_are_no_weights_are_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"w\.pt holds no state dict .*; save model\.state_dict\(\)"):
        checkpoint.read(tmp_path / "w.pt")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; the download or the save did not finish"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "is an HTML page, not a checkpoint"),
        (b"\n  <HTML lang='en'>", "is an HTML page, not a checkpoint"),
    ],
)
def test_empty_files_and_web_pages_are_told_apart(suffix: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / f"w{suffix}").write_bytes(content)
    with pytest.raises(UsageError) as told:
        checkpoint.read(tmp_path / f"w{suffix}")
    assert words in str(told.value)
    assert f"w{suffix}" in str(told.value)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.99])
def test_truncated_safetensors_are_refused(share: float, tmp_path: Path) -> None:
    content = checkpoint.encode(net().state_dict(), META)
    (tmp_path / "w.safetensors").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UsageError, match=r"not a valid safetensors file .*it may be truncated, fetch or save it again"):
        checkpoint.read(tmp_path / "w.safetensors")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_truncated_pt_files_are_refused(share: float, tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "w.pt")
    content = (tmp_path / "w.pt").read_bytes()
    (tmp_path / "w.pt").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UsageError, match=r"w\.pt is not a readable \.pt file .*it may be truncated"):
        checkpoint.read(tmp_path / "w.pt")


def raw_safetensors(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 10 * 2**30) + b"{}",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 50 * 2**20) + b"{}",
        b"abc",
        struct.pack("<Q", 2) + b"[]",
        raw_safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]}}, bytes(8)),
        raw_safetensors({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)),
        raw_safetensors({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}, bytes(8)),
        raw_safetensors(
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            bytes(12),
        ),
        raw_safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, bytes(16)),
    ],
    ids=["10GB", "2^63", "50MB", "short", "list", "beyond", "size", "overflow", "overlap", "hole"],
)
def test_safetensors_that_lie_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    for read in (checkpoint.read, checkpoint.read_meta):
        with pytest.raises(UsageError, match=r"w\.safetensors is not a valid safetensors file"):
            read(tmp_path / "w.safetensors")


@pytest.mark.parametrize("name", ["w.bin", "w.pkl", "w.ckpt", "w", "w.npz"])
def test_other_suffixes_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"content")
    with pytest.raises(UsageError, match=r"is not a checkpoint Assay reads; save it as \.safetensors") as told:
        checkpoint.read(tmp_path / name)
    assert name in str(told.value)
    assert checkpoint.read_meta(tmp_path / name) == {}


@pytest.mark.parametrize("name", ["none.safetensors", "none.pt", "."])
def test_missing_files_and_folders_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such checkpoint|no regular file") as told:
        checkpoint.read(tmp_path / name)
    assert str(tmp_path / name) in str(told.value)


@pytest.mark.parametrize(
    "content",
    [
        {1: torch.ones(2)},
        {None: torch.ones(2), "a": torch.ones(2)},
        {"a": torch.ones(2, 2).to_sparse()},
        {"a": torch.ones(2, dtype=torch.complex64)},
        {"a": torch.ones(2), "b": torch.ones(2, device="meta")},
        {"state_dict": {("a", 1): torch.ones(2)}},
    ],
    ids=["number", "none", "sparse", "complex", "meta", "tuple"],
)
def test_tensors_that_are_no_named_plain_weights_are_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"w\.pt holds no state dict \(names to plain tensors\)"):
        checkpoint.read(tmp_path / "w.pt")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    target = net()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    weights = dict(target.state_dict()) | {"3.bias": torch.ones(3).to(dtype)}
    with pytest.raises(UsageError, match=rf"do not fit the net: 3\.bias is {dtype}, the net has torch\.float32"):
        checkpoint.load_into(target, weights, tmp_path / "w.pt")
    assert same(dict(target.state_dict()), before)


def test_another_precision_is_read(tmp_path: Path) -> None:
    source, target = net(1), net(2)
    checkpoint.load_into(
        target,
        {k: v.double() if v.is_floating_point() else v for k, v in source.state_dict().items()},
        tmp_path / "w.pt",
    )
    assert same(dict(target.state_dict()), dict(source.state_dict()))


@pytest.mark.parametrize("content", [b"garbage", b"\0" * 100, b"{}", b"x,y\n1,2\n", b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_garbage_is_said_to_be_no_pt_file(content: bytes, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"w{suffix}").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not a \.pt file: it starts neither as a zip archive nor as a pickle"):
        checkpoint.read(tmp_path / f"w{suffix}")


@pytest.mark.parametrize("content", [b"PK\x03\x04" + b"\0" * 60, b"PK", b"\x80", b"\x80\x02.", b"\x80\x04\x95garbage"])
def test_damaged_pt_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(UsageError, match=r"w\.pt (is not a readable \.pt file|holds more than plain weights)"):
        checkpoint.read(tmp_path / "w.pt")
