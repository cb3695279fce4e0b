"""What a run holds: its cases, whatever kind of run it is, and the names of its classes."""

from typing import Any

import torch

from assay.core.cases import Cases
from assay.core.store import Store
from assay.engines.blocks import load_examples
from assay.engines.found import load_failures


def stored_cases(run: Store) -> Cases:
    """The failures of a fuzzing run, or every example a saved evaluation kept, those that did not fool it too."""
    return load_examples(run.path) if any(run.commits("eval")) else load_failures(run)


def identity_of(run: Store) -> dict[str, Any]:
    """The configuration a run began with, from its journal, which is checked; ``campaign.toml`` may be lost."""
    return dict(run.lines[0].meta.get("identity", {})) if run.lines else {}


def class_names(run: Store, cases: Cases) -> tuple[str, ...]:
    """The classes of the run's target; numbers where it does not name them."""
    named = identity_of(run).get("target", {}).get("classes")
    if named:
        return tuple(named)
    most = max(int(column.max()) for column in (cases.y, cases.info.get("pred", cases.y)) if len(column))
    return tuple(str(i) for i in range(max(most + 1, 2)))


def per_class(cases: Cases, classes: tuple[str, ...]) -> dict[str, int]:
    """How many cases have each true class, of the classes that occur."""
    labels, counts = cases.y.unique(return_counts=True)
    names = (classes[y] if y >= 0 else "unlabelled" for y in labels.tolist())
    return dict(zip(names, counts.tolist(), strict=True))


def failing(cases: Cases) -> Cases:
    """Those that fail: all of a fuzzing run, of an evaluation those that fooled its target."""
    return cases[cases.info["success"].to(torch.bool)] if "success" in cases.info else cases
