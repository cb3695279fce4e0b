"""What a run fitted before it could work: its generator, the net whose features it compares by."""

from collections.abc import Mapping
from typing import Any

from assay.core.store import Store
from assay.engines.preparing import FITTED
from assay.engines.workshop import MADE

WORDS = {"generator": "generator", "features": "deep features"}


def fitted_facts(run: Store) -> dict[str, str]:
    """Their names; {} where the recipe fits nothing."""
    line = next(run.commits(FITTED), None)
    told: Mapping[str, Any] = {} if line is None else line.meta.get("facts", {})
    return {word: str(told[name]) for name, word in WORDS.items() if name in told}


def sheets_of(run: Store) -> dict[str, tuple[bytes, str]]:
    """Pictures of what was made for the run and what they show, by the name of their file."""
    told = [(name, str(line.meta["facts"].get("sheet", ""))) for line in run.commits(MADE) for name in line.files]
    return {name.rpartition("/")[2]: (run.file(name), text) for name, text in told if name.endswith(".png")}
