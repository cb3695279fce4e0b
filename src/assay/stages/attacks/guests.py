"""How each other library is spoken to, and how it is kept from leaving traces."""

import hashlib
import importlib
import inspect
import io
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.randomness import Rows
from assay.core.shapes import column
from assay.subjects.target import Target

Bounds = tuple[float, float]
UNIT: Bounds = (0.0, 1.0)


def _nothing(_: Any) -> None:
    return None


def _no(_: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Library:
    """What differs between libraries, as functions of an object of theirs.

    ``run`` takes (thing, target, x, y, eps); ``answer`` (thing, x) is what the object's own model says, None where it
    has none; ``bounds`` are those it insists on.
    """

    is_attack: Callable[[Any], bool]
    run: Callable[[Any, Target, Tensor, Tensor, float | None], Any]
    model: Callable[[Any], Any] = _nothing
    answer: Callable[[Any, Tensor], Tensor | None] = lambda thing, x: None
    bounds: Callable[[Any], Bounds | None] = _nothing
    targeted: Callable[[Any], bool] = _no
    needs_eps: Callable[[Any], bool] = _no


def library_of(thing: Any) -> str | None:
    """The library whose class the object is of, or grew from."""
    roots = (kind.__module__.partition(".")[0] for kind in type(thing).__mro__)
    return next((root for root in roots if root in LIBRARIES), None)


def _is_a(thing: Any, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(thing).__mro__)


# torchattacks


def _normalises(thing: Any) -> bool:
    """Whether it was told a normalisation: then it takes and gives normalised inputs."""
    return getattr(thing, "normalization_used", None) is not None and bool(thing._normalization_applied)


def _torchattacks(thing: Any, target: Target, x: Tensor, y: Tensor, eps: float | None) -> Any:
    if _normalises(thing):
        return thing.inverse_normalize(thing(thing.normalize(x), y))
    return thing(x, y)


def _torchattacks_answer(thing: Any, x: Tensor) -> Tensor | None:
    answers: Tensor = thing.model(thing.normalize(x) if _normalises(thing) else x)
    return answers


# foolbox


class _Asked(nn.Module):
    """The target as a module; not its own, so that precision and borrowing stay the target's business."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.ask = target

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x)


def _minimises(thing: Any) -> bool:
    inner = thing.attack if _is_a(thing, "Repeated") else thing
    return _is_a(inner, "MinimizationAttack")


def _foolbox(thing: Any, target: Target, x: Tensor, y: Tensor, eps: float | None) -> Any:
    foolbox = importlib.import_module("foolbox")
    model = foolbox.PyTorchModel(_Asked(target).eval(), bounds=target.spec.bounds, device=x.device)
    if not hasattr(type(thing), "distance"):  # turns and shifts: no ball at all
        return thing(model, x, y)[1]
    small = _minimises(thing)
    if small and thing.distance.p == 0:
        eps = None  # it cannot cut a count of pixels down
    _, made, success = thing(model, x, y, epsilons=eps)
    return torch.where(column(success, x), made, x) if small else made


# adversarial-robustness-toolbox


def _art(thing: Any, target: Target, x: Tensor, y: Tensor, eps: float | None) -> Any:
    made = thing.generate(x.cpu().numpy().astype(np.float32), y.cpu().numpy())
    return torch.from_numpy(np.asarray(made))


def _art_answer(thing: Any, x: Tensor) -> Tensor | None:
    return torch.from_numpy(np.asarray(thing.estimator.predict(x.cpu().numpy().astype(np.float32))))


def _art_bounds(thing: Any) -> Bounds | None:
    clip = getattr(thing.estimator, "clip_values", None)
    if clip is None or np.size(clip) != 2:
        return None
    low, high = (float(np.float32(edge)) for edge in np.ravel(clip))
    return low, high


# autoattack and pyautoattack


def _autoattack(thing: Any, target: Target, x: Tensor, y: Tensor, eps: float | None) -> Any:
    if not hasattr(thing, "run_standard_evaluation"):
        return thing.perturb(x, y)
    takes = inspect.signature(thing.run_standard_evaluation).parameters
    made = thing.run_standard_evaluation(x, y, **{"batch_size" if "batch_size" in takes else "bs": len(x)})
    return made[0] if isinstance(made, tuple) else made


def _autoattack_model(thing: Any) -> Any:
    return getattr(thing, "model", getattr(thing, "predict", None))


def _autoattack_answer(thing: Any, x: Tensor) -> Tensor | None:
    answers: Tensor | None = _autoattack_model(thing)(x)
    return answers


_AUTO = Library(
    is_attack=lambda thing: hasattr(thing, "run_standard_evaluation") or hasattr(thing, "perturb"),
    run=_autoattack,
    model=_autoattack_model,
    answer=_autoattack_answer,
    bounds=lambda thing: UNIT,
)

LIBRARIES: dict[str, Library] = {
    "torchattacks": Library(
        is_attack=lambda thing: _is_a(thing, "Attack"),
        run=_torchattacks,
        model=lambda thing: thing.model,
        answer=_torchattacks_answer,
        bounds=lambda thing: UNIT,
        # Its other targeted modes choose their classes themselves.
        targeted=lambda thing: getattr(thing, "attack_mode", "") == "targeted(label)",
    ),
    "foolbox": Library(
        is_attack=lambda thing: _is_a(thing, "Attack"),
        run=_foolbox,
        needs_eps=lambda thing: hasattr(type(thing), "distance") and not _minimises(thing),
    ),
    "art": Library(
        is_attack=lambda thing: hasattr(thing, "generate") and hasattr(thing, "estimator"),
        run=_art,
        model=lambda thing: getattr(thing.estimator, "model", None),
        answer=_art_answer,
        bounds=_art_bounds,
        targeted=lambda thing: bool(getattr(thing, "targeted", False)),
    ),
    "autoattack": _AUTO,
    "pyautoattack": _AUTO,
}


@contextmanager
def _for_now(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes set to other values, and back."""
    before = [(thing, name, getattr(thing, name)) for thing, name, _ in changes]
    try:
        for thing, name, value in changes:
            setattr(thing, name, value)
        yield
    finally:
        for thing, name, value in before:
            setattr(thing, name, value)


def _parts(thing: Any) -> list[Any]:
    """The object and the attacks it is made of."""
    inner = vars(thing).get("_attacks")
    inside = list(inner.values()) if isinstance(inner, dict) else []
    more = vars(thing).get("attacks")
    inside += more if isinstance(more, (list, tuple)) else []
    return [thing, *inside, *([thing._attack] if hasattr(thing, "_attack") else [])]


@contextmanager
def untouched(thing: Any) -> Iterator[None]:
    """Attributes that it sets while it works (sizes, best values so far) are gone afterwards: calls are independent."""
    before = [(part, dict(vars(part))) for part in _parts(thing)]
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)


@contextmanager
def quiet(thing: Any) -> Iterator[None]:
    """Nothing on stdout, no progress bars, no notes of theirs."""
    loud = [(part, "verbose", False) for part in _parts(thing) if getattr(part, "verbose", False)]
    logger = getattr(thing, "logger", None)
    if hasattr(logger, "disabled"):
        loud.append((logger, "disabled", True))
    with redirect_stdout(io.StringIO()), _for_now(loud):
        yield


@contextmanager
def seeded(thing: Any, rng: Rows) -> Iterator[None]:
    """All global randomness started from the rows' keys, and back where it was; also what else is global."""
    digest = hashlib.sha256(rng.key.cpu().numpy().tobytes()).digest()
    seed = int.from_bytes(digest[:4], "little")  # numpy takes 32 bits
    timed = [p for p in _parts(thing) if hasattr(p, "seed")] if getattr(thing, "seed", 0) is None else []
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    python, numbers, trace = random.getstate(), np.random.get_state(), sys.gettrace()
    try:
        with torch.random.fork_rng(gpus), _for_now([(part, "seed", seed) for part in timed]):
            torch.default_generator.manual_seed(seed)
            if gpus:
                torch.cuda.manual_seed_all(seed)
            random.seed(seed)
            np.random.seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        sys.settrace(trace)  # autoattack looks for gradients inside the model by tracing it
