"""What a trainer that mines needs besides the model: the history of its training, and inputs it was not trained on."""

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from torch import nn

from assay.core.errors import UsageError
from assay.subjects.bench import Splits, held_out
from assay.subjects.history import EPOCHS, beside
from assay.subjects.sources import checkpoint
from assay.subjects.target import Target

log = logging.getLogger("assay")

MINES = "history"  # what the entry of a trainer that mines says it needs


def share_held_out(model: str | nn.Module | Target, asked: float = 0.0) -> float:
    """The share of the training part that the model's training held out, 0 where none was.

    ``asked`` is for a model that does not say how it was trained; where it says another, that is refused.
    """
    told = _training(model)
    known = float(str(told.get("hold_out", 0.0)))
    if asked and told and known != asked:
        raise UsageError(f"{model} was trained with --hold-out {known:g}, not {asked:g}; leave it out")
    return asked or known


def for_mining(model: str | nn.Module | Target, splits: Splits, needs: Collection[str], asked: float = 0.0) -> Splits:
    """The data with the part apart that the model's training held out, for a trainer that mines; else as they are."""
    if MINES not in needs:
        return splits
    share = share_held_out(model, asked)
    if not share:
        log.warning("the model has no held-out part: inputs are mined that it was trained on (assay train --hold-out)")
        return splits
    kept, out = held_out(splits, share)
    was = _training(model).get("train_fingerprint")
    if was is not None and was != kept.part("train").fingerprint():
        raise UsageError(
            f"{model} held out a part of other data than {splits.name}: its training part is not the one here; give "
            "the data it was trained with"
        )
    return replace(kept, held_out=out)


def history_of(model: str | nn.Module | Target) -> str:
    """The folder beside the weights that holds their history, "" where there is none."""
    if not isinstance(model, str) or "@" not in model:
        return ""
    folder = beside(Path(model.partition("@")[2]))
    return str(folder) if next(folder.glob(EPOCHS), None) is not None else ""


def _training(model: str | nn.Module | Target) -> dict[str, object]:
    """What the model's checkpoint says of its training."""
    if not isinstance(model, str) or "@" not in model:
        return {}
    told = checkpoint.read_meta(Path(model.partition("@")[2])).get("training", {})
    return told if isinstance(told, dict) else {}
