"""DARE: the classifier cut to a regression model and tuned towards what other epochs did better (Zhang et al. 2022).

No adversarial example is used. Three stages: cut, and choose the weights that may move; mine the history of training
for inputs on which another epoch was surer of the true class, whose inner output becomes the target; tune by squared
error, and the classifier has the new weights.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.core.registry import Bound, register
from assay.stages.links import chain_of
from assay.stages.mining import Mined, mined, targets
from assay.stages.slicing import Slice, check_kind, slice_of
from assay.stages.trainers.loop import Task, accuracy
from assay.stages.trainers.made_history import made_history
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.trials import best_rate
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Data, Splits
from assay.subjects.cut import Cut, cut_of, placed
from assay.subjects.history import Snapshots, check_since
from assay.subjects.layers import layers_of
from assay.subjects.sources.module import ModuleTarget, before

RATES = (1e-6, 1e-5, 1e-4)  # of which one is chosen
CHECKED = 0.1  # of the held-out inputs choose the learning rate and the epoch, and are never learned from
FROZEN = 1 / 3  # of the weighted layers, the first ones, where the whole classifier is tuned


@dataclass(frozen=True, slots=True)
class Dare:
    """How DARE tunes; see ``dare`` for what the words mean. ``transform=False`` tunes the classifier itself."""

    layer: str = "auto"
    slice: str = "units"
    share: float = 0.1
    since: float = 0.5
    count: int = 0
    epochs: int = 10
    batch: int = 128
    lr: float | None = None
    patience: int = 3
    transform: bool = True

    def check(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share must be in (0, 1], got {self.share}")
        check_kind(self.slice)
        check_since(self.since)
        if self.count < 0 or self.patience < 0:
            raise UsageError(f"count {self.count} and patience {self.patience} must not be negative")
        Plan(self.epochs, self.batch, 1e-3 if self.lr is None else self.lr).check()


@register("trainer", paper="Zhang et al. 2022 (DARE)", needs=("train", "history"))
def dare(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    history: str = "",
    layer: str = "auto",
    slice: str = "units",
    share: float = 0.1,
    since: float = 0.5,
    count: int = 0,
    epochs: int = 10,
    batch: int = 128,
    lr: float | None = None,
    patience: int = 3,
) -> nn.Module:
    """Squared error towards the inner outputs of surer epochs; moves a slice of the weights before the cut.

    ``history`` is the folder that ``assay train --history`` wrote; without one, snapshots of a short training stand in.
    The net is cut after ``layer``; weights of the ``slice`` (units, all, random or links) before it move. Epochs from
    the share ``since`` of the training on are mined; with ``count``, at most so many of the inputs found are used. No
    ``lr`` means that it is chosen by clean accuracy on a tenth of the held-out inputs.
    """
    how = Dare(layer, slice, share, since, count, epochs, batch, lr, patience)
    return _with_history(module, data, extra, history, how, rng, watch)


@register("trainer", paper="Jiang et al. 2024 (dare-last)", needs=("train", "history"))
def dare_last(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    history: str = "",
    slice: str = "units",
    since: float = 0.5,
    count: int = 0,
    epochs: int = 10,
    batch: int = 128,
    lr: float | None = None,
    patience: int = 3,
) -> nn.Module:
    """DARE with the cut at the end of the net: probabilities of other epochs as targets."""
    how = Dare("softmax", slice, since=since, count=count, epochs=epochs, batch=batch, lr=lr, patience=patience)
    return _with_history(module, data, extra, history, how, rng, watch)


@register("trainer", paper="Jiang et al. 2024 (dare-s)", needs=("train", "history"))
def dare_noslice(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    history: str = "",
    layer: str = "auto",
    since: float = 0.5,
    count: int = 0,
    epochs: int = 10,
    batch: int = 128,
    lr: float | None = None,
    patience: int = 3,
) -> nn.Module:
    """DARE without slicing: every weight before the cut moves."""
    how = Dare(layer, "all", since=since, count=count, epochs=epochs, batch=batch, lr=lr, patience=patience)
    return _with_history(module, data, extra, history, how, rng, watch)


@register("trainer", paper="Jiang et al. 2024 (dare-sl)", needs=("train", "history"))
def dare_notransform(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    history: str = "",
    since: float = 0.5,
    count: int = 0,
    epochs: int = 10,
    batch: int = 128,
    lr: float = 1e-4,
    patience: int = 3,
) -> nn.Module:
    """The mined inputs without the transformation: the classifier itself, squared error to one-hot labels."""
    how = Dare(since=since, count=count, epochs=epochs, batch=batch, lr=lr, patience=patience, transform=False)
    return _with_history(module, data, extra, history, how, rng, watch)


def refuse(trainer: Bound, target: ModuleTarget) -> None:
    """Refuse parameters, a history or a layer that cannot be this model's, before hours are spent on other things."""
    told = trainer.params
    how = Dare(**{field.name: told[field.name] for field in fields(Dare) if field.name in told})
    how.check()
    if told.get("history"):
        snapshots = Snapshots.of_folder(told["history"], target.module)
        snapshots.read(snapshots.epochs[-1])
    if "layer" in told:
        cut = cut_of(target, how.layer)
        if how.slice == "links":
            chain_of(target.module, cut, target.spec)


def _with_history(
    module: nn.Module, data: Splits, extra: Cases | None, history: str, how: Dare, rng: Stream, watch: Watch
) -> nn.Module:
    if extra is not None and len(extra):
        raise UsageError("dare learns from the model's history, not from cases; take another trainer for them")
    how.check()
    snapshots = Snapshots.of_folder(history, module) if history else made_history(module, data, rng)
    return tuned(module, data, snapshots, how, rng=rng, watch=watch)


def tuned(module: nn.Module, data: Splits, snapshots: Snapshots, how: Dare, *, rng: Stream, watch: Watch) -> nn.Module:
    """A copy of the module, tuned; weights outside of the slice and statistics are those of the module, bit by bit."""
    how.check()
    target = ModuleTarget(module, data.part("train").spec)
    chunks = Chunks(2048 if target.device.type == "cuda" else 512)  # answers only, no gradients
    pool = _pool(data)
    cases = pool.cases[pool.cases.y != UNLABELLED].to(target.device)
    back = rng.at("check").rows(cases.origin).uniform(()) < CHECKED
    learn, check = cases[~back], cases[back]
    found = mined(module, snapshots, learn, since=0.0 if snapshots.made else how.since, chunks=chunks)
    if not len(check):
        raise NothingToTest(f"{len(cases)} labelled inputs are too few to keep some of them back; give more")
    if not len(found):
        raise NothingToTest(
            f"no other epoch of {snapshots.source} was surer of the true class of any of {len(learn)} inputs; "
            "mine earlier epochs too (since=0), or keep the history of a longer training"
        )
    found = _drawn(found, how.count, rng)
    notes = _notes(module, data, snapshots, found, learn, check)
    if how.transform:
        cut = cut_of(target, how.layer)
        profiled = data.part("train").cases.to(target.device)
        chosen = slice_of(how.slice, module, cut, profiled, target.spec, share=how.share, rng=rng, chunks=chunks)
        wanted = targets(module, snapshots, learn, found, cut, chunks=chunks)
        task = regression(module, cut, chosen, wanted)
        watch.note(notes | {"layer": cut.layer, "slice": how.slice, "sliced": chosen.counts()})
    else:
        task = _classification(target)
        watch.note(notes | {"layer": "none: the classifier itself", "slice": "none"})
    plan = Plan(how.epochs, how.batch, schedule="constant")
    rates = RATES if how.lr is None else (how.lr,)
    return best_rate(
        module, learn[found.rows], check, plan, rates, rng=rng, watch=watch, task=task, patience=how.patience
    )


def _pool(data: Splits) -> Data:
    """The inputs that are mined: those the net was not trained on, where they are known."""
    return data.part("train") if data.held_out is None else data.held_out


def _drawn(found: Mined, count: int, rng: Stream) -> Mined:
    if not 0 < count < len(found):
        return found
    order = torch.randperm(len(found), generator=rng.at("count").generator())[:count]
    return found[order.sort().values.to(found.rows.device)]


def regression(module: nn.Module, cut: Cut, chosen: Slice, wanted: Tensor) -> Task:
    """Squared error to the targets at the cut, in the units of the slice; what is outside of it is put back."""
    start = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    units = chosen.units.nonzero().flatten().to(wanted.device)
    axis = -1 if cut.channels_last else 1

    def loss(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        delta: Tensor = cut.output(net, x).float() - wanted[rows]
        return delta.index_select(axis, units).square().mean()

    return Task(loss, lambda net: chosen.put_back(net, start), tuple(chosen.moves), still=True)


def _classification(target: ModuleTarget) -> Task:
    """Squared error of the probabilities to one-hot labels; the first layers, as they are run, do not move."""
    weighted = [layer for layer in layers_of(target, "auto").each if layer.kind in ("conv", "dense")]
    parts = [placed(part)[0] for layer in weighted[: int(len(weighted) * FROZEN)] for part in layer.parts]
    frozen = tuple(f"{before(target.module)}{part}." for part in parts)
    moving = tuple(name for name, _ in target.module.named_parameters() if not name.startswith(frozen))

    def loss(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        out: Tensor = net(x).float().softmax(1)
        return (out - nn.functional.one_hot(y, out.shape[1])).square().mean()

    return Task(loss, None, moving, still=True)


def _notes(
    module: nn.Module, data: Splits, snapshots: Snapshots, found: Mined, learn: Cases, check: Cases
) -> dict[str, Any]:
    """What was mined, from what."""
    with eval_mode(module):
        start = accuracy(module, check)["val_accuracy"]
    held = data.held_out is not None
    told: dict[str, Any] = {
        "history": f"made by us, {snapshots.source}" if snapshots.made else snapshots.source,
        "history_made": snapshots.made,
        "epochs_mined": [int(found.epoch.min()), int(found.epoch.max())],
        "inputs": len(learn),
        "inputs_from": "held-out part" if held else "training part: none of it is known to be held out",
        "used": len(found),
        "used_wrong": int((~found.right).sum()),
        "confidence": [round(float(found.before.mean()), 5), round(float(found.confidence.mean()), 5)],
        "checked": len(check),
        "checked_accuracy_before": round(start, 5),
    }
    return told | ({"history_fingerprint": snapshots.fingerprint} if snapshots.fingerprint else {})
