"""A MAITE model of image classification as a target that only answers: the protocol knows no gradients."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from assay.core.deadline import in_time
from assay.core.errors import AssayError, UsageError
from assay.core.files import sha256, whole_text
from assay.subjects.bench import Data
from assay.subjects.maite import class_names
from assay.subjects.sources.answering import Answering, Inputs
from assay.subjects.sources.asking import Asking
from assay.subjects.sources.call import Raised
from assay.subjects.sources.patience import printable

_BATCH = 64


def maite_target(model: Any, data: Data | None, how: Asking) -> Answering:
    """The target. Inputs are sent as the data had them: a model that was given uint8 pixels is given uint8 pixels."""
    how.refuse("a MAITE model", "timeout")
    name = f"the MAITE model {printable(whole_text(str(model.metadata['id'])), 80)}"
    if data is None:
        raise UsageError(f"{name} does not say what inputs it takes; give the data too (data=…)")
    own = class_names(model.metadata)
    spec = type(data.spec)(data.spec.shape, data.spec.bounds, own or data.spec.classes)
    sent = sender(data.given_as)

    def ask(rows: Inputs) -> Any:
        try:
            told = in_time(lambda: model([sent(row) for row in rows]))
            return np.stack([np.asarray(each) for each in told]) if len(told) else np.zeros((0, len(spec.classes)))
        except AssayError:
            raise
        except Exception as error:  # a user's model may raise anything
            raise Raised(f"failed: {type(error).__name__}: {printable(str(error))}") from error

    identity = f"maite {name} {sha256(_text(type(model)).encode())} {data.given_as}"
    batch = how.batch or _BATCH
    return Answering(ask, spec, name=name, identity=identity, batch=batch, settled=False, patience=how.patience(0))


def sender(given_as: str) -> Callable[[Inputs], np.ndarray[Any, Any]]:
    """How one input in [0, 1] is sent: as it is, or as the whole number of a pixel."""
    if given_as == "uint8":
        return lambda row: np.rint(row * 255).astype(np.uint8)
    return lambda row: row.copy()


def _text(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return kind.__qualname__
