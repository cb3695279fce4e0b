"""Targets that are functions: ``call:file.py:function``, or any Python callable that is no module."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.core.deadline import in_time
from assay.core.errors import AssayError, ModelFailed, UsageError
from assay.core.files import sha256
from assay.core.specs import python_file
from assay.core.userfile import load_object
from assay.subjects.bench import Data
from assay.subjects.sources.answering import Answering, Inputs
from assay.subjects.sources.asking import Asking
from assay.subjects.sources.patience import TryAgain, printable

_BATCH = 256


class Raised(TryAgain):
    """The function raised: that is the model's own failure, as an error of a net is."""

    ends_as = ModelFailed


def call_target(model: str | Callable[..., Any], data: Data | None, how: Asking) -> Answering:
    """A function that is given a float32 array (n, *shape) and returns probabilities, scores or labels."""
    how.refuse("a function", "timeout")
    function, name, identity = _named(model) if isinstance(model, str) else _live(model)
    if data is None:
        raise UsageError(f"{name} does not say what inputs it takes; give the data too (data=… or --data)")

    def ask(rows: Inputs) -> Any:
        try:
            return in_time(lambda: function(rows.copy()))  # what was sent stays as it was, whatever the function does
        except AssayError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise Raised(f"failed: {type(error).__name__}: {printable(str(error))}") from error

    return Answering(
        ask,
        data.spec,
        name=name,
        identity=identity,
        batch=how.batch or _BATCH,
        settled=False,
        patience=how.patience(0),
    )


def _named(text: str) -> tuple[Callable[..., Any], str, str]:
    place = python_file(text[len("call:") :])
    if place is None:
        raise UsageError(f"{text!r} names no function; write call:file.py:function")
    function = load_object(*place)
    if not callable(function):
        raise UsageError(f"{text} is {type(function).__name__}, expected a function of a batch of inputs")
    return function, text, f"call {place[1]} {sha256(Path(place[0]).read_bytes())}"


def _live(function: Callable[..., Any]) -> tuple[Callable[..., Any], str, str]:
    """A function of this process, known by its name and its text, as far as it has one."""
    own = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        text = ""
    return function, f"the function {own}", f"callable {own} {sha256(text.encode())}"
