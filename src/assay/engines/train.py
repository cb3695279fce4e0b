"""Training a net of the zoo or a user's own: one command, resumable, its facts kept with its weights."""

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core.errors import UsageError
from assay.core.files import storage_error
from assay.core.places import known_as
from assay.core.precision import half_precision
from assay.core.randomness import Stream
from assay.core.registry import bind, lookup
from assay.core.remote_files import into_stores
from assay.core.specs import Params, python_file, step
from assay.core.units import budget
from assay.engines.cluster import Cluster, cluster_of
from assay.engines.group import Gauged, trained
from assay.engines.held_out import MINES, for_mining, history_facts, history_of, learned_facts, share_held_out, to_mine
from assay.engines.session import session
from assay.engines.training_files import History, TrainingWatch, already_there
from assay.stages.trainers.loop import rank
from assay.subjects.bench import Data, Splits, held_out, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.facts import check as check_facts
from assay.subjects.sources.load import new_net, pick_device, seen_after, user_net
from assay.subjects.sources.module import normalised, probed

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training gave."""

    out: Path
    epochs: int
    best_epoch: int
    val_accuracy: float
    score: float
    seconds: float
    log: list[dict[str, float]]
    notes: dict[str, Any] = field(default_factory=dict)  # what the trainer says of its work

    @property
    def rate(self) -> float:
        """The learning rate of the best epoch, where several were tried; 0 where not."""
        return self.log[self.best_epoch - 1].get("lr", 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "out": known_as(self.out),
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "val_accuracy": self.val_accuracy,
            "score": self.score,
            "seconds": round(self.seconds, 2),
            "log": self.log,
            **({"notes": self.notes} if self.notes else {}),
        }


@into_stores
def train(
    model: str,
    data: str | Splits,
    out: str | Path,
    *,
    trainer: str = "plain",
    params: Params | None = None,
    eps: str | float | None = None,
    norm: str | None = None,
    seed: int = 0,
    hold_out: float = 0.0,
    history: str = "",
    keep: str = "all",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    device: str = "auto",
    overwrite: bool = False,
    deterministic: bool = False,
    amp: bool = False,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train ``model`` on ``data`` and save the weights of the best validation epoch to ``out``.

    A training that was stopped goes on with the same call. ``hold_out`` keeps that share of the training part away
    from training (drawn with a fixed seed). ``history`` keeps the weights of every epoch: in a folder of that name, or
    ``all`` or ``last:N`` of them beside ``out``. For a trainer that mines it is the folder to mine, where that is not
    found beside the weights it starts from; such a trainer takes the part that was held out from them.

    With ``amp`` passes are made in bfloat16, forward and back; epochs are judged in float32.

    With ``ray`` (local, auto or an address) ``workers`` of a Ray cluster share every batch, each with a ``gpu_share``
    of a GPU where the device is one. How many they are is no part of what makes a training this training.
    """
    cluster = cluster_of(ray, workers, gpu_share)
    out = Path(out)
    if out.suffix != ".safetensors":
        raise UsageError(f"--out must end in .safetensors, got {out}")
    splits = with_validation(load_splits(data) if isinstance(data, str) else data)
    name, given = step(trainer)
    needs = lookup("trainer", name)[0].needs
    if MINES in needs:
        given, history = given | to_mine(model, history, keep), ""
        splits, hold_out = for_mining(model, splits, needs, hold_out), share_held_out(model, hold_out)
    elif hold_out:
        splits = held_out(splits, hold_out)[0]
    where = pick_device(device)
    start = _start(model, splits.part("train"), seed, mean, std)
    ball = {"eps": None if eps is None else budget(eps), "norm": norm}
    fit = bind("trainer", name, given | (params or {}), ball | {"history": history_of(model) or None})
    training = {
        "start": model,
        "trainer": fit.text,
        "data": splits.name,
        "train_fingerprint": splits.part("train").fingerprint(),
        "seed": seed,
        **({"amp": True} if amp else {}),
        "hold_out": hold_out,
        "mean": start.facts["mean"],
        "std": start.facts["std"],
        **({"seen": seen_after(model, fit.params)} if "@" in model else {}),
        **history_facts(model, fit),
        **learned_facts(model, needs, hold_out, splits),
    }
    kept = History.parse(history, keep, out)
    facts = start.facts | {"training": training} | ({"history": str(kept.folder)} if kept.folder else {})
    done = None if overwrite else already_there(out, training, kept)
    if done is not None:
        return _trained(out, done)
    writable(out.parent)
    tell = Gauged(progress or (lambda _: None))
    watch = TrainingWatch(out, facts, kept, tell, overwrite)
    with session(deterministic=deterministic):
        module = start.module.eval().to(where)
        probed(module, splits.part("train").spec, where, splits.part("train").cases.x[:64])
        with half_precision(where, asked=amp):
            made = trained(
                fit,
                module,
                splits,
                None,
                rng=Stream(seed, ("train",)),
                watch=watch,
                cluster=cluster,
                deterministic=deterministic,
                gauges=tell.gauges,
            )
        return _trained(out, watch.finish(made, splits.part("val").cases))


@dataclass(frozen=True, slots=True)
class _Start:
    module: nn.Module
    facts: dict[str, Any]


def _start(model: str, data: Data, seed: int, mean: tuple[float, ...], std: tuple[float, ...]) -> _Start:
    """The net before training, and what its checkpoint will say of it."""
    name, at, weights = model.partition("@")
    meta: dict[str, Any] = {}
    content = None
    if at:
        content, meta = checkpoint.read(Path(weights))
        check_facts(meta, Path(weights))
    place = python_file(name)
    with torch.random.fork_rng([]):
        torch.manual_seed(Stream(seed, ("weights",)).generator().initial_seed())
        net = user_net(*place) if place else new_net(name, data.spec, meta.get("params", {}), meta.get("model"))
    net = copy.deepcopy(net)  # a user's function may hand out the same module twice
    if content is not None:
        checkpoint.load_into(net, content, Path(weights))
    if not (mean or std):
        known = "mean" in meta and "std" in meta
        mean, std = (tuple(meta["mean"]), tuple(meta["std"])) if known else _moments(data)
    facts: dict[str, Any] = {
        "shape": list(data.spec.shape),
        "bounds": list(data.spec.bounds),
        "classes": list(data.spec.classes),
        "mean": list(mean),
        "std": list(std),
    }
    if place is None:
        plain, given = step(name)
        bound = bind("model", plain, meta.get("params", {}) | given, {"shape": data.spec.shape, "classes": 2})
        facts["model"] = bound.entry.name
        facts["params"] = {k: v for k, v in bound.params.items() if k not in ("shape", "classes")}
    return _Start(normalised(net, data.spec, mean, std), facts)


def writable(folder: Path) -> None:
    """Refuse a place where nothing can be written before hours are spent, not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder, 0) from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} is not writable; choose another --out")


def _moments(data: Data) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; of the whole input for vectors, whose entries may be constant."""
    x = data.cases.x
    flat = x.transpose(0, 1).flatten(1) if x.dim() == 4 else x.reshape(1, -1)
    mean, std = flat.mean(1), flat.std(1).clamp_min(1e-3)
    return tuple(round(float(v), 6) for v in mean), tuple(round(float(v), 6) for v in std)


def _trained(out: Path, facts: Mapping[str, Any]) -> Trained:
    told = facts["training"]["log"]
    best = max(told, key=rank)
    seconds = sum(row["seconds"] for row in told)
    place, notes = 1 + told.index(best), facts["training"].get("notes", {})
    return Trained(out, len(told), place, best["val_accuracy"], best["score"], seconds, told, notes)
