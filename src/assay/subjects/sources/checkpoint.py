"""Weights on disk. Loading never runs code: safetensors, or ``.pt`` through torch's weights-only reader."""

import json
import logging
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.core.files import make_folder, write_atomic, zip_members
from assay.core.remote_files import at_hand

log = logging.getLogger("assay")

_LONGEST_HEADER = 4 << 20  # bytes; that of a net with 10,000 tensors takes 1 MB. Each entry costs ten times its text
_META = "assay"  # the one metadata key: several would be written in an order that changes from run to run
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")  # where training scripts keep the weights
_PREFIXES = (
    "module.",
    "_orig_mod.",
    "model.",
)  # what DataParallel, torch.compile and trainers put before every name


def encode(weights: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """Weights and facts as one safetensors file: the same input gives the same bytes."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    content: bytes = save(tensors, {_META: json.dumps(meta, sort_keys=True, allow_nan=False)})
    return content


def write(path: Path, weights: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Save weights and facts, atomically."""
    make_folder(path.parent)
    write_atomic(path, encode(weights, meta))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a checkpoint and what it says of itself (nothing, for files that are not ours)."""
    path = at_hand(path)
    head = _head(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pt", ".pth"):
        return _read_pickle(path, head), {}
    raise UsageError(f"{path} is not a checkpoint Assay reads; save it as .safetensors (or .pt with plain weights)")


def read_meta(path: Path) -> dict[str, Any]:
    """What a checkpoint of ours says of itself, without loading its weights."""
    if path.suffix != ".safetensors":
        return {}
    path = at_hand(path)
    _head(path)
    try:
        with safe_open(path, "pt") as file:
            return _meta(file)
    except SafetensorError as error:
        raise _broken(path, error) from error


def load_into(module: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Put weights into a module whose names and shapes must fit exactly."""
    module.load_state_dict(fitted(module, weights, source))


def fitted(module: nn.Module, weights: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """The weights under the module's own names, after every check; the module may lie on the meta device."""
    own = module.state_dict()
    for prefix in _PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights) and not any(n.startswith(prefix) for n in own):
            log.warning("%s: dropped the prefix %r of every weight name", source, prefix)
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [
        f"{name} is {tuple(weights[name].shape)}, the net has {tuple(own[name].shape)}"
        for name in sorted(own.keys() & weights.keys())
        if own[name].shape != weights[name].shape
    ]
    kinds = [
        f"{name} is {weights[name].dtype}, the net has {own[name].dtype}"
        for name in sorted(own.keys() & weights.keys())
        if own[name].is_floating_point() != weights[name].is_floating_point()
    ]
    problems = [
        *([f"missing {_some(missing)}"] if missing else []),
        *([f"unknown {_some(extra)}"] if extra else []),
        *([_some(shapes)] if shapes else []),
        *([_some(kinds)] if kinds else []),
    ]
    if problems:
        raise UsageError(f"the weights in {source} do not fit the net: {'; '.join(problems)}")
    broken = [name for name, tensor in weights.items() if tensor.is_floating_point() and not _finite(tensor)]
    if broken:
        raise UsageError(f"the weights in {source} hold NaN or infinity: {_some(broken)}")
    return dict(weights)


def _finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite; 8-bit floats cannot be asked themselves."""
    return bool((tensor if tensor.dtype.itemsize > 1 else tensor.float()).isfinite().all())


def _head(path: Path) -> bytes:
    """The first bytes of the file, after the checks that need no format."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no regular file; a checkpoint is one, as assay train makes it")
    if not path.is_file():
        raise UsageError(f"no such checkpoint: {path}; assay train makes one")
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; save or fetch it again") from error
    if not head:
        raise UsageError(f"{path} is empty; the download or the save did not finish")
    if head.lstrip()[:1] == b"<" and b"html" in head.lower():
        raise UsageError(f"{path} is an HTML page, not a checkpoint; the download link led to a web page")
    if path.suffix == ".safetensors" and int.from_bytes(head[:8], "little") > _LONGEST_HEADER:
        raise UsageError(
            f"{path} is not a valid safetensors file: its header says it is longer than {_LONGEST_HEADER >> 20} MB, "
            "which no net's names and shapes take; fetch or save it again"
        )
    return head


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    _refuse_doubles(path)
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, _meta(file)  # noqa: SIM118  not a mapping
    except SafetensorError as error:
        raise _broken(path, error) from error


def _refuse_doubles(path: Path) -> None:
    """Refuse a header that gives two tensors one name: readers differ in which of them they take."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) < len(pairs):
            raise _broken(path, ValueError("a name stands twice in its header"))
        return names

    with path.open("rb") as file:
        text = file.read(int.from_bytes(file.read(8), "little"))  # of a length that _head has looked at
    with suppress(ValueError, RecursionError):  # what is no header safetensors itself will say
        json.loads(text, object_pairs_hook=unique)


def _meta(file: Any) -> dict[str, Any]:
    try:
        told = json.loads((file.metadata() or {}).get(_META, "{}"))
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _broken(path: Path, error: Exception) -> UsageError:
    return UsageError(f"{path} is not a valid safetensors file ({error}); it may be truncated, fetch or save it again")


def _read_pickle(path: Path, head: bytes) -> dict[str, Tensor]:
    if head[:2] != b"PK" and head[:1] != b"\x80":
        raise UsageError(
            f"{path} is not a .pt file: it starts neither as a zip archive nor as a pickle; "
            "save the weights as .safetensors"
        )
    _refuse_packed(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of what it then refuses; once is enough
            with path.open("rb") as file:  # read as far as it is wanted: a file may say of itself that it is endless
                told = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).split("\n")[0].split("Please file")[0]
        raise UsageError(
            f"{path} holds more than plain weights and was not loaded, for loading it could run code "
            f"({_cause(error, reason)}). Save the weights alone: "
            "safetensors.torch.save_file(model.state_dict(), 'w.safetensors')"
        ) from error
    except Exception as error:  # a damaged file raises anything from IndexError to struct.error
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(f"{path} is not a readable .pt file ({reason}); it may be truncated") from error
    for key in _WRAPPERS:
        if isinstance(told, dict) and isinstance(told.get(key), dict):
            told = told[key]
            break
    if not isinstance(told, dict) or not told or not all(_is_weight(k, v) for k, v in told.items()):
        found = f"; found: {_some([str(k) for k in told])}" if isinstance(told, dict) else ""
        raise UsageError(f"{path} holds no state dict (names to plain tensors){found}; save model.state_dict()")
    return told


def _refuse_packed(path: Path) -> None:
    """Refuse an archive that is larger inside than outside; torch writes its members as they are, one after another."""
    members = zip_members(path)
    inside, outside = sum(member.file_size for member in members), path.stat().st_size
    if inside > outside or any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise UsageError(
            f"{path} was not loaded: it holds {inside} bytes packed into {outside}, and torch packs nothing. "
            "Save the weights again: safetensors.torch.save_file(model.state_dict(), 'w.safetensors')"
        )


def _is_weight(name: object, tensor: object) -> bool:
    """Whether this is a named, plain, dense tensor."""
    if not isinstance(name, str) or not isinstance(tensor, Tensor):
        return False
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return dense and not tensor.is_quantized and not tensor.is_complex()


def _cause(error: Exception, fallback: str) -> str:
    """The line of torch's long message that names what was refused."""
    return next(
        (line.strip() for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line),
        fallback,
    )


def _some(items: list[str], most: int = 4) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")
