"""Single inputs that a gate shows: those that fool the model, and those that an older one got right."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from assay.core.cases import Cases
from assay.core.errors import NothingToTest
from assay.core.ids import case_ids
from assay.engines.blocks import load_examples
from assay.engines.gate_result import GateFailure
from assay.engines.gate_sides import Side

MOST = 1000  # failures that a gate names; it counts all
ROOM = 64 << 20  # bytes of inputs held in memory to name them


def most_examples(shape: Sequence[int]) -> int:
    """How many failing inputs are held in memory where nothing is saved."""
    return max(1, min(MOST, ROOM // (4 * int(torch.Size(shape).numel()))))


def fooling(cases: Cases | None, attacks: Sequence[str], classes: tuple[str, ...], place: str) -> list[GateFailure]:
    """Examples that fool the model, made on itself; ``attacks`` are the names by their place in the suite."""
    if cases is None:
        return []
    rows = (cases.info["success"].bool() & (cases.info["static"] == 0)).nonzero().flatten()[:MOST]
    cases = cases[rows]
    info = {name: cases.info[name].tolist() for name in ("attack", "pred", "size")}
    lines = zip(case_ids(cases), cases.y.tolist(), cases.origin.tolist(), *info.values(), strict=True)
    return [
        GateFailure(
            name, "robust", _class(classes, y), _class(classes, pred), attacks[attack], place, row, round(size, 6)
        )
        for name, y, row, attack, pred, size in lines
    ]


def examples_of(run: str) -> Cases | None:
    """The examples that a saved evaluation holds."""
    try:
        return load_examples(run)
    except NothingToTest:
        return None


def newly_wrong(side: Side, other: Side, cases: Cases, place: str) -> list[GateFailure]:
    """Clean inputs that the baseline gets right and the model does not; ``cases`` are the inputs of both."""
    rows = (other.right["clean"] & ~side.right["clean"]).nonzero().flatten()[:MOST]
    some = cases[: len(side.right["clean"])][rows]
    preds = [""] * len(rows) if side.pred is None else [_class(side.classes, p) for p in side.pred[rows].tolist()]
    assert side.y is not None  # whoever knows its inputs knows their labels
    trues = [_class(side.classes, y) for y in side.y[rows].tolist()]
    lines = zip(case_ids(some), trues, preds, some.origin.tolist(), strict=True)
    return [
        GateFailure(name, "regression", true, pred, place=place, row=row, size=0.0) for name, true, pred, row in lines
    ]


def found_by_fuzzing(cases: Cases, classes: tuple[str, ...], place: str) -> list[GateFailure]:
    """Inputs that fuzzing made: right for the baseline, wrong for the model."""
    some = cases[:MOST]
    lines = zip(case_ids(some), some.y.tolist(), some.info["pred"].tolist(), some.origin.tolist(), strict=True)
    return [
        GateFailure(name, "regression", _class(classes, y), _class(classes, pred), "fuzzing", place, row)
        for name, y, pred, row in lines
    ]


def place_of(*specs: object) -> str:
    """The first file or folder that one of the texts names, relative to the working folder where it lies inside.

    >>> place_of("digits/test[:5]")
    ''
    """
    for spec in specs:
        if not isinstance(spec, str):
            continue
        text = re.sub(r"\[[^\]]*\]$", "", spec.removeprefix("dir:"))
        for part in (text, text.partition("@")[2], re.sub(r"(\.py):.*", r"\1", text)):
            if part and _there(part):
                return _relative(Path(part))
    return ""


def _there(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or none at all
        return False


def _relative(path: Path) -> str:
    here, full = Path.cwd().resolve(), path.resolve()
    return full.relative_to(here).as_posix() if full.is_relative_to(here) else path.as_posix()


def _class(classes: tuple[str, ...], label: int) -> str:
    return classes[label] if 0 <= label < len(classes) else str(label)
