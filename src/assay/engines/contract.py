"""The JSON contract of ``http://`` targets, the side that answers; docs/black-box.md has the whole of it."""

import base64
import binascii
import json
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.cases import InputSpec

VERSION = 1
LISTS, BASE64 = "list", "base64"


class Refused(Exception):
    """A question that is not answered: the status and the sentence the client gets."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def description(spec: InputSpec, *, labels: bool, batch: int, fingerprint: str) -> dict[str, Any]:
    """What ``GET`` says of a model."""
    return {
        "assay": VERSION,
        "shape": list(spec.shape),
        "bounds": list(spec.bounds),
        "classes": list(spec.classes),
        "gives": "labels" if labels else "probabilities",
        "batch": batch,
        "fingerprint": fingerprint,
        "encodings": [LISTS, BASE64],
    }


def inputs_of(body: bytes, shape: tuple[int, ...], most: int) -> Tensor:
    """The inputs of a question, float32 (n, *shape); whatever else came is refused."""
    lists = 16 + most * sum(math.prod(shape[:depth]) for depth in range(len(shape)))
    if body.count(b"[") > lists or body.count(b"{") > 16:  # empty ones cost far more memory than bytes
        raise Refused(400, "the body holds more lists than the inputs it may bring")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is no JSON") from None
    if not isinstance(told, dict) or "inputs" not in told:
        raise Refused(400, 'the body must be a JSON object with "inputs"')
    given = told["inputs"]
    array = _from_base64(given) if isinstance(given, dict) else _from_lists(given)
    if not array.size and array.shape[:1] == (0,):
        return torch.zeros(0, *shape)
    if array.shape[1:] != shape:
        raise Refused(400, f"inputs must have the shape (n, {', '.join(map(str, shape))}), these have {array.shape}")
    if len(array) > most:
        raise Refused(413, f"{len(array)} inputs in one request, at most {most} are answered")
    if not np.isfinite(array).all():
        raise Refused(400, "inputs must be finite float32 numbers")
    return torch.from_numpy(array)


def answer_of(shares: Tensor, *, labels: bool) -> bytes:
    """The body that answers with these probabilities (n, K), or with their likeliest classes alone."""
    told: dict[str, Any] = {"labels": shares.argmax(1).tolist()} if labels else {"probabilities": shares.tolist()}
    return json.dumps(told, allow_nan=False).encode()


def _from_lists(given: object) -> NDArray[np.float32]:
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise Refused(400, "inputs must be nested lists of one shape") from None
    if array.dtype.kind not in "iuf" and array.size:
        raise Refused(400, "inputs must be nested lists of numbers")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return array.astype(np.float32)


def _from_base64(given: dict[str, Any]) -> NDArray[np.float32]:
    shape = given.get("shape")
    if given.get("dtype") != "float32" or not isinstance(shape, list) or not all(_is_size(side) for side in shape):
        raise Refused(400, 'encoded inputs say "dtype": "float32" and "shape": [n, …]')
    try:
        raw = base64.b64decode(str(given.get("base64", "")), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, "the base64 of the inputs cannot be decoded") from None
    if len(raw) != 4 * math.prod(shape):
        raise Refused(400, f"the shape {shape} asks for {4 * math.prod(shape)} bytes of float32, {len(raw)} came")
    return np.frombuffer(raw, "<f4").reshape(shape).astype(np.float32)


def _is_size(side: object) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and 0 <= side < 1 << 32
