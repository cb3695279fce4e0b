"""What a trainer that mines needs besides the model: the history of its training, and inputs it was not trained on."""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.core.specs import python_file
from assay.subjects.bench import Splits, held_out
from assay.subjects.history import beside, epochs_in, fingerprint
from assay.subjects.sources import checkpoint
from assay.subjects.sources.hub_specs import split_weights
from assay.subjects.target import Target

log = logging.getLogger("assay")

Model = str | nn.Module | Target

MINES = "history"  # what the entry of a trainer that mines says it needs
LEARNED = "held_out_learned"  # what a checkpoint says that has learned from the part its training holds out
SAME = ("start", "trainer", "seed")  # facts of a training; where another's data are others, its history is refused


def share_held_out(model: Model, asked: float = 0.0) -> float:
    """The share of the training part that the model has not learned from, 0 where there is none.

    ``asked`` is for a model that does not say how it was trained; where it says another, that is refused.
    """
    told = _training(model)
    known = 0.0 if told.get(LEARNED) else float(told.get("hold_out", 0.0))
    if asked and told and known != asked:
        why = "has learned from what was held out" if told.get(LEARNED) else f"was trained with --hold-out {known:g}"
        raise UsageError(f"{model} {why}: --hold-out {asked:g} is not what it has not seen; leave it out")
    return asked or known


def for_mining(model: Model, splits: Splits, needs: Collection[str], asked: float = 0.0) -> Splits:
    """The data with the part apart that the model has not learned from, for a trainer that mines; else as they are."""
    if MINES not in needs or splits.held_out is not None:
        return splits
    share = share_held_out(model, asked)
    if not share:
        log.warning(
            "no part of the data is known to be held out from the model's training: what is mined it may have learned "
            "from (assay train --hold-out)"
        )
        return splits
    kept, out = held_out(splits, share)
    was = _training(model).get("train_fingerprint")
    if was is not None and was != kept.part("train").fingerprint():
        raise UsageError(
            f"{model} held out a part of other data than {splits.name}: its training part is not the one here; give "
            "the data it was trained with"
        )
    return replace(kept, held_out=out)


def learned_facts(model: str, needs: Collection[str], share: float, splits: Splits) -> dict[str, bool]:
    """Whether what comes of a training has learned from the part held out: by mining it, or where it starts from a
    model that has, or of which nobody knows.
    """
    if not share:
        return {}
    told = _training(model)
    same = told.get("hold_out") == share and told.get("train_fingerprint") == splits.part("train").fingerprint()
    untouched = "@" not in model or (same and not told.get(LEARNED))
    return {} if untouched and MINES not in needs else {LEARNED: True}


def history_of(model: Model) -> str:
    """The folder that holds the history of these weights, beside them or where they say; "" where there is none."""
    if not isinstance(model, str) or not split_weights(model)[1]:
        return ""
    weights = Path(split_weights(model)[1])
    places = (beside(weights), Path(str(checkpoint.read_meta(weights).get("history") or beside(weights))))
    return next((str(folder) for folder in places if epochs_in(folder)), "")


def to_mine(model: str, history: str, keep: str) -> dict[str, str]:
    """What ``--history`` says to a trainer that mines: the folder to mine. It keeps none of its own."""
    if "@" not in model and python_file(model) is None:
        raise UsageError(f"a trainer that mines tunes a trained model; give its weights: {model}@WEIGHTS")
    if re.fullmatch(r"all|last:\d+", history) or keep != "all":
        raise UsageError("a trainer that mines keeps no history; --history names the folder to mine")
    return {"history": history} if history else {}


def history_facts(model: Model, trainer: Bound) -> dict[str, str]:
    """Which history a trainer mines, so that a training does not go on with another; refused where it has learned from
    other data than the model, or is several histories.
    """
    folder = trainer.params.get("history") if MINES in trainer.entry.needs else None
    files = epochs_in(folder) if folder else {}
    if not files:
        return {}
    told = [checkpoint.read_meta(path).get("training", {}) for path in files.values()]
    own, there = _training(model), told[0]
    if any(_less_log(each) != _less_log(there) for each in told):
        raise UsageError(f"{folder} holds epochs of several trainings; keep those of one")
    if own and there.get("train_fingerprint", own.get("train_fingerprint")) != own.get("train_fingerprint"):
        raise UsageError(f"{folder} is the history of a training on other data than those {model} was trained on")
    if own and any(there.get(name) != own.get(name) for name in SAME):
        log.warning("%s is the history of another training than that of %s", folder, model)
    return {"history_fingerprint": fingerprint(str(folder))}


def _less_log(training: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in training.items() if name != "log"}


def _training(model: Model) -> dict[str, Any]:
    """What the model's checkpoint says of its training."""
    if not isinstance(model, str) or "@" not in model:
        return {}
    told = checkpoint.read_meta(Path(split_weights(model)[1])).get("training", {})
    return told if isinstance(told, dict) else {}
