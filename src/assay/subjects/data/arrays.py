"""Arrays to cases: what can only mean one thing is converted with a notice, all else is refused."""

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.subjects.bench import Data

log = logging.getLogger("assay")

_CHANNELS = (1, 3, 4)
_TOLERANCE = 1e-5
MAX_CLASSES = 1_000_000  # a label beyond is a mistake, not a class


def to_data(name: str, x: Any, y: Any = None, classes: tuple[str, ...] = (), *, known: bool = False) -> Data:
    """Checked cases from inputs and labels as they come.

    Inputs: uint8, or floating-point in [0, 1]; (N, H, W), NCHW or NHWC images, or (N, D) vectors. Labels: integers
    from 0, -1 for unlabelled, or one-hot rows. ``known`` images are (N, C, H, W) for sure and need no notice.
    """
    inputs = _inputs(np.asarray(x), name, known)
    labels, width = (torch.full((len(inputs),), UNLABELLED), 2) if y is None else _labels(np.asarray(y), name)
    if len(labels) != len(inputs):
        raise UsageError(f"{name} has {len(inputs)} inputs but {len(labels)} labels")
    if len(inputs) == 0:
        raise NothingToTest(f"{name} holds no case")
    most = int(labels.max())
    if classes and most >= len(classes):
        rows = (labels >= len(classes)).nonzero().flatten().tolist()
        raise UsageError(f"labels of {name} must be in 0..{len(classes) - 1}, got {most} (first rows: {_rows(rows)})")
    names = classes or tuple(str(i) for i in range(max(most + 1, width)))
    return Data(name, Cases.of(inputs, labels), InputSpec(tuple(inputs.shape[1:]), (0.0, 1.0), names))


def _inputs(x: np.ndarray[Any, Any], name: str, known: bool) -> Tensor:
    if x.size == 0:
        raise NothingToTest(f"{name} holds no case")
    if x.dtype.kind not in "uif" or (x.dtype.kind in "ui" and x.dtype != np.uint8):
        raise UsageError(f"inputs of {name} have type {x.dtype}; give uint8 (0..255) or floating-point in [0, 1]")
    if x.ndim < 2:
        raise UsageError(f"inputs of {name} have shape {x.shape}; expected a batch of images or vectors")
    x = x if known else _channels_first(x, name)
    if x.dtype == np.uint8:
        if not known:
            log.info("%s: uint8 pixels divided by 255", name)
        return torch.from_numpy(np.ascontiguousarray(x)).to(torch.float32).div_(255.0)
    if x.dtype != np.float32:
        log.warning("%s: %s inputs converted to float32", name, x.dtype)
    values = torch.from_numpy(np.array(x, dtype=np.float32, order="C"))  # a copy: the caller's array is the caller's
    flat = values.flatten(1)
    bad = (~flat.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise UsageError(
            f"inputs of {name} hold NaN or infinity in {len(bad)} cases (first rows: {_rows(bad)}); mend or drop them"
        )
    wide = ((flat < -_TOLERANCE) | (flat > 1 + _TOLERANCE)).any(1).nonzero().flatten().tolist()
    if wide:
        low, high = float(values.min()), float(values.max())
        raise UsageError(
            f"inputs of {name} lie in [{low:g}, {high:g}], expected [0, 1] (first rows: {_rows(wide)}); "
            "nothing is rescaled silently: undo the normalisation (--mean and --std put it into the target), "
            "or give uint8 pixels"
        )
    return values.clamp_(0, 1)


def _channels_first(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """(N, C, H, W) or (N, D), from the one reading that fits."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim != 4:
        if x.ndim == 2:
            return x
        raise UsageError(f"inputs of {name} have {x.ndim} axes; expected (N, D), (N, H, W) or images with channels")
    first, last = x.shape[1] in _CHANNELS, x.shape[3] in _CHANNELS
    if first and last:
        raise UsageError(f"inputs of {name} have shape {x.shape}: channels first or last? transpose to (N, C, H, W)")
    if last:
        log.warning("%s: channels-last images %s read as channels-first", name, x.shape)
        return x.transpose(0, 3, 1, 2)
    if not first:
        raise UsageError(f"inputs of {name} have shape {x.shape}; images have 1, 3 or 4 channels")
    return x


def _labels(y: np.ndarray[Any, Any], name: str) -> tuple[Tensor, int]:
    """Class numbers, and how many classes they speak of at least."""
    width = 2
    if y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "uifb":
        hot = y.astype(np.float64)
        if not (np.isin(hot, (0, 1)).all() and (hot.sum(1) == 1).all()):
            raise UsageError(f"labels of {name} have shape {y.shape} and are not one-hot; give class numbers")
        log.warning("%s: one-hot labels read as class numbers", name)
        y, width = hot.argmax(1), y.shape[1]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise UsageError(f"labels of {name} have shape {y.shape}; expected one number per case")
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.round(y)).all():
        log.warning("%s: floating-point labels read as class numbers", name)
        y = y.astype(np.int64)
    if y.dtype.kind not in "ui":
        raise UsageError(f"labels of {name} have type {y.dtype}; expected class numbers from 0 (-1 for unlabelled)")
    if len(y) and int(y.max()) > MAX_CLASSES:
        raise UsageError(f"labels of {name} go up to {int(y.max())}; class numbers start at 0 and have no gaps")
    labels = torch.from_numpy(y.astype(np.int64))
    low = (labels < UNLABELLED).nonzero().flatten().tolist()
    if low:
        value = int(labels[low[0]])
        raise UsageError(f"labels of {name} must be from 0 up, or -1 for unlabelled; got {value} (rows {_rows(low)})")
    return labels, width


def _rows(rows: list[int]) -> str:
    return ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
