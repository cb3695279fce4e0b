"""Model files made to hurt whoever loads them. Each maker writes one small file, or one that only looks large."""

import gzip
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

GIGA = 1 << 30


class Call:
    """A pickle of it calls a function with these arguments when it is loaded."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


def touch(canary: Path) -> Call:
    return Call(os.system, f"touch {canary}")


def header(told: dict[str, Any] | bytes, body: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with that header, whatever it says."""
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def zipped(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def pickled(path: Path, canary: Path) -> None:
    path.write_bytes(pickle.dumps({"weight": touch(canary)}, protocol=2))


def pickled_by_torch(path: Path, canary: Path) -> None:
    torch.save({"weight": torch.zeros(1), "extra": touch(canary)}, path)


def pickled_as_torch_once_did(path: Path, canary: Path) -> None:
    torch.save({"extra": touch(canary)}, path, _use_new_zipfile_serialization=False)


def zip_in_zip(path: Path, canary: Path) -> None:
    inner = io.BytesIO()
    torch.save({"extra": touch(canary)}, inner)
    zipped(path, {"archive/data.pkl": inner.getvalue(), "archive/inner.pt": inner.getvalue(), "archive/version": b"3"})


def no_pickle_in_zip(path: Path, canary: Path) -> None:
    zipped(path, {"constants.pkl": pickle.dumps(touch(canary)), "code/__torch__.py": b"import os"})


def script_module(path: Path, canary: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(path))  # a program, not weights


def cut_off(path: Path, canary: Path) -> None:
    whole = io.BytesIO()
    torch.save({"weight": torch.zeros(1000)}, whole)
    path.write_bytes(whole.getvalue()[:2000])


def web_page(path: Path, canary: Path) -> None:
    path.write_bytes(b"<!DOCTYPE html><html><body>Sign in to go on</body></html>")


def empty(path: Path, canary: Path) -> None:
    path.write_bytes(b"")


def zip_bomb(path: Path, canary: Path) -> None:
    """Three gigabytes of zeros where torch keeps the structure, in three megabytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("archive/data.pkl", "w", force_zip64=True) as member:
            for _ in range(3 * 64):
                member.write(bytes(16 << 20))
        archive.writestr("archive/version", b"3")


def gzip_bomb(path: Path, canary: Path) -> None:
    path.write_bytes(gzip.compress(bytes(64 << 20), 1))


def many_pages(path: Path, canary: Path) -> None:
    """A hundred gigabytes that take no place on the disk, beginning as a pickle does."""
    with path.open("wb") as out:
        out.write(b"\x80\x02")
        out.truncate(100 * GIGA)


def wide_from_one(path: Path, canary: Path) -> None:
    torch.save({"weight": torch.zeros(1).expand(10**6, 10**6)}, path)


def declared_header(path: Path, canary: Path) -> None:
    path.write_bytes(header({}, length=10 * GIGA))


def long_header(path: Path, canary: Path) -> None:
    """Forty megabytes of names for tensors without a number in them."""
    told = {f"layer{i}": tensor([0], 0, 0) for i in range(600_000)}
    path.write_bytes(header(told))


def deep_header(path: Path, canary: Path) -> None:
    path.write_bytes(header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


def overlapping(path: Path, canary: Path) -> None:
    path.write_bytes(header({"a": tensor([4], 0, 16), "b": tensor([4], 8, 24)}, bytes(24)))


def out_of_range(path: Path, canary: Path) -> None:
    path.write_bytes(header({"a": tensor([1 << 40], 0, 4 << 40)}, bytes(16)))


def twice(path: Path, canary: Path) -> None:
    one = json.dumps(tensor([1], 0, 4)).encode()
    path.write_bytes(header(b'{"a":' + one + b',"a":' + one + b"}", bytes(4)))


def backwards(path: Path, canary: Path) -> None:
    path.write_bytes(header({"a": tensor([4], 16, 0)}, bytes(16)))


def no_such_kind(path: Path, canary: Path) -> None:
    path.write_bytes(header({"a": tensor([4], 0, 16, "EVIL")}, bytes(16)))


def overflowing(path: Path, canary: Path) -> None:
    path.write_bytes(header({"a": tensor([1 << 62, 1 << 62], 0, 16)}, bytes(16)))


def wild_facts(path: Path, canary: Path) -> None:
    """Facts of our own kind that ask for a net of any size."""
    facts = {"model": "mlp", "params": {"hidden": [10**9, 10**9]}, "shape": [1, 8, 8], "bounds": [0, 1]}
    meta = {"assay": json.dumps({**facts, "classes": [str(i) for i in range(10)], "mean": [], "std": []})}
    path.write_bytes(header({"__metadata__": meta, "a": tensor([1], 0, 4)}, bytes(4)))


def trained_with_code(path: Path, weights: Path, evil: Path) -> None:
    """Sound weights that say they were trained with an attack in a file of the author's."""
    from assay.subjects.sources import checkpoint

    tensors, told = checkpoint.read(weights)
    told["training"] = {"trainer": f'adversarial(attack="{evil}:make")'}
    path.write_bytes(checkpoint.encode(tensors, told))


def link(path: Path, canary: Path) -> None:
    path.symlink_to("/etc/passwd")


def endless(path: Path, canary: Path) -> None:
    path.symlink_to("/dev/zero")


def fifo(path: Path, canary: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, canary: Path) -> None:
    path.mkdir()


PICKLES = (
    pickled,
    pickled_by_torch,
    pickled_as_torch_once_did,
    zip_in_zip,
    no_pickle_in_zip,
    script_module,
    cut_off,
    zip_bomb,
    gzip_bomb,
    many_pages,
    wide_from_one,
)
TENSORS = (
    declared_header,
    long_header,
    deep_header,
    overlapping,
    out_of_range,
    twice,
    backwards,
    no_such_kind,
    overflowing,
    wild_facts,
)
ANY = (web_page, empty, link, endless, fifo, folder, pickled)
ATTACKS = [
    *((make, ".pt") for make in PICKLES),
    *((make, ".safetensors") for make in TENSORS),
    *((make, suffix) for make in ANY for suffix in (".pt", ".safetensors")),
]
