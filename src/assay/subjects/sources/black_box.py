"""Targets that only answer, by text: which source is meant, what it says of itself, and the one question that tells."""

import importlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.files import make_folder
from assay.core.lock import folder_lock, holds
from assay.subjects.answer_book import told_before
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.maite import is_model
from assay.subjects.sources.answering import Answering
from assay.subjects.sources.asking import Asking

log = logging.getLogger("assay")

_SOURCES = {
    "http:": ("http", "http_target"),
    "https:": ("http", "http_target"),
    "cmd:": ("command", "command_target"),
    "call:": ("call", "call_target"),
}


def is_onnx(model: Any) -> bool:
    """Whether the text names an ONNX file."""
    return isinstance(model, str) and model.lower().endswith(".onnx") and not _source(model)


def is_black_box(model: Any) -> bool:
    """Whether it is a target that only answers: by its text, or a function that is neither module nor target."""
    if isinstance(model, str):
        return is_onnx(model) or bool(_source(model))
    return not isinstance(model, nn.Module) and not hasattr(model, "fingerprint") and callable(model)


def black_box(model: Any, data: Data | None, queries: int | None, how: Asking, answers: Path | None) -> Asked:
    """The target, counted and with its answers kept.

    Where neither it nor an earlier command's ``answers`` tell what it answers with and how many classes it has, it is
    asked one input to see. That question counts like any other: in the file, if there is to be one, before it is sent.
    """
    if data is not None and how.classes is not None:
        data = replace(data, spec=_with_classes(data.spec, how.classes))
    source = _made(model)
    found: Answering = source(model, data, how)
    if how.classes is not None and len(found.spec.classes) != how.classes:
        raise UsageError(f"--ask classes={how.classes}, but {found.name} has {len(found.spec.classes)}")
    told = {} if answers is None or found.settled else told_before(answers)
    if told:
        found.kind, found.spec = told["kind"], replace(found.spec, classes=tuple(told["classes"]))
        found.settled = True
    if data is not None and data.spec.bounds != found.spec.bounds:
        log.warning(
            "%s takes inputs in %s, %s has them in %s", found.name, found.spec.bounds, data.name, data.spec.bounds
        )
    asked = Asked(found, queries=queries, repeats=how.repeats, labels=how.labels)
    if not found.settled and not (how.labels and len(found.spec.classes) > 1):
        x = data.cases.x[:1] if data is not None and len(data) else torch.full((1, *found.spec.shape), _middle(found))
        _see(asked, x, answers)
    found.settled = True
    log.info("target: %s, %s, gives %s", found.name, found.spec, ", ".join(sorted(asked.gives)))
    return asked


def _see(asked: Asked, x: Tensor, answers: Path | None) -> None:
    """Ask one input. The folder of a run is made for it, since a run whose target does not answer never comes to be."""
    if answers is None:
        asked.see(x)
        return
    folder = answers.parent
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is no folder of its own; use another name for the run")
    make_folder(folder)
    with _alone(folder):
        asked.see(x, answers)


def _alone(folder: Path) -> AbstractContextManager[object]:
    """The lock of a run's folder, unless this process has it already, as those have that add to a run."""
    return nullcontext() if holds(folder) else folder_lock(folder)


def _source(text: str) -> tuple[str, str] | None:
    return next((source for prefix, source in _SOURCES.items() if text.lower().startswith(prefix)), None)


def _made(model: Any) -> Callable[..., Answering]:
    """The maker of that kind of target, imported when it is wanted."""
    file, name = ("onnx", "onnx_target") if is_onnx(model) else ("call", "call_target")
    if is_model(model):
        file, name = "maite", "maite_target"
    if isinstance(model, str):
        file, name = _source(model) or (file, name)
    found: Callable[..., Answering] = getattr(importlib.import_module(f"assay.subjects.sources.{file}"), name)
    return found


def _middle(target: Answering) -> float:
    return sum(target.spec.bounds) / 2


def _with_classes(spec: InputSpec, count: int) -> InputSpec:
    """The spec with that many classes, those without a name called by their number."""
    if len(spec.classes) > count:
        raise UsageError(f"--ask classes={count}, but the data have {len(spec.classes)} classes")
    return replace(spec, classes=(*spec.classes, *(str(i) for i in range(len(spec.classes), count))))
