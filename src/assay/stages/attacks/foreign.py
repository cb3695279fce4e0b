"""Attacks of other libraries as ours: an object of torchattacks, foolbox, ART or (py)autoattack is an attack.

No library is imported here; an object brings its own along. torchattacks, ART and autoattack attack the model they were
made with, foolbox the target. Whatever they do to the model, to torch's and numpy's random state or to the screen is
undone, and all randomness comes from the rows' own.
"""

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.cases import check_made
from assay.core.entries import Entry, Parameter
from assay.core.errors import AssayError, UsageError, is_out_of_memory
from assay.core.modes import eval_mode
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.shapes import column
from assay.stages.attacks.guests import LIBRARIES, library_of, quiet, seeded, untouched
from assay.subjects.counted import Counted
from assay.subjects.target import Target

log = logging.getLogger("assay")

Attack = Callable[..., Tensor]
SAME = 1e-3  # outputs of the object's own model and of the target may differ by this share of their size
NO_BALL = ("SpatialAttack", "SpatialTransformation")  # turn and shift images: no norm measures that
# Attributes that change no number.
DULL = ("attack", "attack_mode", "batch_size", "device", "model_name", "supported_mode", "verbose")
_NORMS: dict[object, Norm] = {"linf": "linf", "inf": "linf", "l2": "l2", "2": "l2", "l1": "l1", "1": "l1"}
_NORMS |= {"l0": "l0", "0": "l0", math.inf: "linf", 2: "l2", 1: "l1", 0: "l0"}


@dataclass(frozen=True, slots=True)
class Guest:
    """An object of another library and what it says of itself; ``eps`` and ``norm`` are None where it says nothing."""

    thing: Any
    library: str
    name: str
    eps: float | None
    norm: Norm | None

    @property
    def module(self) -> nn.Module | None:
        """The torch module it was made with."""
        found = LIBRARIES[self.library].model(self.thing)
        return found if isinstance(found, nn.Module) else None


def adapted(thing: Any) -> tuple[Entry, Attack] | None:
    """The object as an attack of ours; None where it is of no library that is known here."""
    library = library_of(thing)
    if library is None:
        return None
    guest = Guest(thing, library, f"{library}.{type(thing).__name__}", _eps(thing, library), _norm(thing, library))
    if not LIBRARIES[library].is_attack(thing):
        raise UsageError(f"{guest.name} is not an attack on inputs")
    ball = type(thing).__name__ not in NO_BALL
    function = _in_ball(guest) if ball else _anywhere(guest)
    parameters = [Parameter("rng", "Rows", None)]
    if ball:
        parameters += [
            Parameter("eps", "float | None", repr(guest.eps)),
            Parameter("norm", "str", repr(guest.norm or "linf")),
        ]
    summary = f"{type(thing).__name__} of {library}."
    facts = _facts(thing, library)
    entry = Entry("attack", guest.name, summary, library, type(thing).__name__, tuple(parameters))
    return replace(entry, facts=facts, own_model=LIBRARIES[library].model(thing) is not None), function


def _in_ball(guest: Guest) -> Attack:
    compared: set[int] = set()

    def attack(
        target: Target,
        x: Tensor,
        y: Tensor,
        *,
        rng: Rows,
        eps: float | None = guest.eps,
        norm: str = guest.norm or "linf",
    ) -> Tensor:
        wanted = norms.check(norm, eps)
        _agree(guest, target, eps, wanted)
        made = _run(guest, target, x, y, rng, eps, compared)
        if eps is None or guest.eps is not None or not len(x):
            return made
        # It looked for the nearest example, not for one in this ball: a row that needs more has failed.
        near = norms.size(made - x, wanted) <= eps * (1 + 1e-4) + 1e-6
        return torch.where(column(near, x), made, x)

    return attack


def _anywhere(guest: Guest) -> Attack:
    compared: set[int] = set()

    def attack(target: Target, x: Tensor, y: Tensor, *, rng: Rows) -> Tensor:
        _agree(guest, target, None, None)
        return _run(guest, target, x, y, rng, None, compared)

    return attack


def _run(
    guest: Guest, target: Target, x: Tensor, y: Tensor, rng: Rows, eps: float | None, compared: set[int]
) -> Tensor:
    """What the object makes of the rows, in the bounds; a row it made NaN of is as it was."""
    if not len(x):
        return x.clone()
    with ExitStack() as stack:
        thing = guest.thing
        for context in (target.ready(), untouched(thing), seeded(thing, rng), quiet(thing), torch.enable_grad()):
            stack.enter_context(context)
        module = guest.module
        if module is not None:
            stack.enter_context(eval_mode(module))
        try:
            tested = target.target if isinstance(target, Counted) else target
            if id(tested) not in compared:
                compared.add(id(tested))
                _compare(guest, target, x[:4])
            made = LIBRARIES[guest.library].run(thing, target, _cast(x, module), y, eps)
        except (AssayError, MemoryError):
            raise
        except Exception as error:  # their code; running out of memory is still ours to handle
            if is_out_of_memory(error):
                raise
            raise UsageError(f"{guest.name} failed: {type(error).__name__}: {error}") from error
    if isinstance(made, Tensor):
        made = made.to(x)
    made = check_made(made, x, guest.name).clamp(*target.spec.bounds)
    return torch.where(column(made.flatten(1).isfinite().all(1), x), made, x)


def _agree(guest: Guest, target: Target, eps: float | None, norm: Norm | None) -> None:
    """Refuse an object that was made for another ball, other bounds or a class to aim at."""
    if norm is not None and guest.norm is not None and norm != guest.norm:
        raise UsageError(f"{guest.name} works in {guest.norm}, asked for is {norm}; give norm {guest.norm}")
    if eps is not None and guest.eps is not None and not math.isclose(eps, guest.eps, rel_tol=1e-6):
        raise UsageError(f"{guest.name} was made with eps {guest.eps:g}, asked for is {eps:g}; make them the same")
    library, low_high = LIBRARIES[guest.library], target.spec.bounds
    if eps is None and library.needs_eps(guest.thing):
        raise UsageError(f"{guest.name} needs eps")
    if library.targeted(guest.thing):
        raise UsageError(f"{guest.name} is targeted, and there are no classes to aim at; make it untargeted")
    bounds = library.bounds(guest.thing)
    if bounds is not None and bounds != low_high:
        shown = [f"[{low:g}, {high:g}]" for low, high in (bounds, low_high)]
        raise UsageError(f"{guest.name} takes inputs in {shown[0]}, this target takes {shown[1]}")


def _compare(guest: Guest, target: Target, x: Tensor) -> None:
    """Refuse an object that attacks another model than the one under test: its number would not be white-box."""
    with torch.no_grad():
        own = LIBRARIES[guest.library].answer(guest.thing, _cast(x, guest.module))
        answers = target(x)
    if own is None:
        return
    own = own.to(answers)
    if own.shape != answers.shape or not torch.allclose(own, answers, SAME, SAME * float(answers.abs().max())):
        raise UsageError(
            f"{guest.name} attacks the model it was made with, which answers otherwise than the one under test; make "
            "it with the same net (and the same normalisation in it)"
        )


def _eps(thing: Any, library: str) -> float | None:
    """The radius it was made with. Elsewhere than in autoattack, ``epsilon`` is a step or an overshoot."""
    value = getattr(thing, "eps", None)
    if value is None and library in ("autoattack", "pyautoattack"):
        value = getattr(thing, "epsilon", None)
    return float(value) if isinstance(value, Real) and library != "foolbox" else None


def _norm(thing: Any, library: str) -> Norm | None:
    if library == "foolbox":
        try:
            value = thing.distance.p
        except (AttributeError, ValueError):  # no distance, or one that is told later
            return None
    else:
        value = getattr(thing, "norm", None)
    if value is None and library == "torchattacks" and hasattr(thing, "eps"):
        return "l2" if "L2" in type(thing).__name__ else "linf"
    return _NORMS.get(value.lower() if isinstance(value, str) else value) if value is not None else None


def _facts(thing: Any, library: str) -> Mapping[str, Any]:
    """Its simple public attributes, and those of the attacks it is made of."""
    facts: dict[str, Any] = {}
    for name, value in vars(thing).items():
        inner = value if isinstance(value, (list, tuple)) else [value]
        if name in ("attack", "attacks") and all(library_of(part) == library for part in inner):
            facts[name] = "; ".join(_text(part, library) for part in inner)
        elif not name.startswith("_") and name not in DULL and (told := _simple(value)) is not None:
            facts[name] = told
    if library in ("autoattack", "pyautoattack"):
        facts.pop("epsilon", None)  # it is our eps
    if facts.get("targeted") is False:
        del facts["targeted"]
    return facts


def _text(thing: Any, library: str) -> str:
    inside = ", ".join(f"{key}={value}" for key, value in sorted(_facts(thing, library).items()))
    return f"{type(thing).__name__}({inside})"


def _simple(value: Any) -> Any:
    """The value where it is a number, text, a truth value or a list of such, as JSON has them; else None."""
    if isinstance(value, (list, tuple)):
        parts = [_simple(part) for part in value]
        return parts if parts and None not in parts else None
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, Real):
        number = value if isinstance(value, (int, float)) else cast(Any, value).item()  # numpy has its own
        return number if math.isfinite(number) else str(number)
    return None


def _cast(x: Tensor, module: nn.Module | None) -> Tensor:
    """The inputs in the precision of the object's own model."""
    kinds = (p.dtype for p in module.parameters() if p.is_floating_point()) if module is not None else iter(())
    return x.detach().clone().to(next(kinds, x.dtype))
