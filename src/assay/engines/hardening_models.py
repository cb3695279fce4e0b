"""The nets of a hardening run: the original, copies of it with other weights, and trainings that resume."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.files import make_folder
from assay.core.precision import half_precision
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind
from assay.core.specs import python_file, step
from assay.core.store import Store
from assay.engines.cluster import Cluster
from assay.engines.group import Gauged, trained
from assay.engines.training_files import History, TrainingWatch
from assay.stages.trainers.loop import rank
from assay.stages.trainers.watch import State
from assay.subjects.bench import Splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.hub_specs import is_hub, split_weights
from assay.subjects.sources.module import ModuleTarget, behind, moments_of

Progress = Callable[[Mapping[str, Any]], None]


def facts_of(model: object, target: ModuleTarget) -> dict[str, Any]:
    """What a checkpoint of this net says of itself, so that it loads as the net itself does."""
    spec, (mean, std) = target.spec, moments_of(target.module)
    facts: dict[str, Any] = {
        "shape": list(spec.shape),
        "bounds": list(spec.bounds),
        "classes": list(spec.classes),
        "mean": mean,
        "std": std,
    }
    if not isinstance(model, str):
        return facts
    name, weights = split_weights(model)
    told = checkpoint.read_meta(Path(weights))
    if python_file(name) is None and not is_hub(name):
        plain, given = step(name)
        known = bind("model", plain, told.get("params", {}) | given, {"shape": spec.shape, "classes": 2})
        facts["model"] = known.entry.name
        facts["params"] = {k: v for k, v in known.params.items() if k not in ("shape", "classes")}
    return facts | ({"training": told["training"]} if "training" in told else {})


@dataclass(frozen=True, slots=True)
class Made:
    """What a training gave: the net, the log of its epochs, and what the trainer says of its work."""

    module: nn.Module
    log: list[dict[str, float]]
    notes: dict[str, Any]
    seconds: float  # of its epochs

    def facts(self) -> dict[str, Any]:
        """What its checkpoint says of it besides how it was trained."""
        return {"log": self.log, **({"notes": self.notes} if self.notes else {})}


class Models:
    """Weights in and out of a run folder."""

    def __init__(
        self,
        folder: Store,
        original: ModuleTarget,
        facts: Mapping[str, Any],
        mark: Mapping[str, Any],
        *,
        cluster: Cluster | None = None,
        deterministic: bool = False,
        amp: bool = False,
    ) -> None:
        """Trainings are done on a ``cluster``, where there is one, and ``deterministic`` there as they are here; with
        ``amp`` in bfloat16.
        """
        self.folder, self.original, self.facts, self.mark = folder, original, facts, mark
        self.cluster, self.deterministic, self.amp = cluster, deterministic, amp

    def target(self, name: str) -> ModuleTarget:
        """The committed model of that name, as a target of its own."""
        file = f"models/{name}.safetensors"
        self.folder.file(file)  # checks it against the journal
        weights, _ = checkpoint.read(self.folder.path / file)
        module = copy.deepcopy(self.original.module)
        checkpoint.load_into(behind(module), weights, self.folder.path / file)
        return ModuleTarget(module, self.original.spec, self.original.device)

    def encoded(self, module: nn.Module, **facts: Any) -> bytes:
        """The module as a checkpoint that says where it comes from."""
        told = {**self.facts, **facts, "hardening": {**self.mark, **facts.get("hardening", {})}}
        return checkpoint.encode(behind(module).state_dict(), told)

    def trained(
        self,
        name: str,
        start: ModuleTarget,
        fit: Bound,
        data: Splits,
        extra: Cases | None,
        rng: Stream,
        training: dict[str, Any],
        progress: Progress,
    ) -> Made:
        """A trained copy; a training of the same kind that was stopped goes on."""
        folder = self.folder.path / "training"
        make_folder(folder)
        tell = Gauged(progress)
        keeper = Keeper(folder / f"{name}.safetensors", {"training": training}, tell)
        with half_precision(start.device, asked=self.amp):
            made = trained(
                fit,
                start.module,
                data,
                extra,
                rng=rng,
                watch=keeper,
                cluster=self.cluster,
                deterministic=self.deterministic,
                gauges=tell.gauges,
            )
        # Without its clock, so that the same training gives the same bytes.
        log = [{k: v for k, v in row.items() if k != "seconds"} for row in keeper.log]
        chosen = {"lr": max(log, key=rank)["lr"]} if any("lr" in row for row in log) else {}  # of several tried
        return Made(made, log, keeper.notes | chosen, sum(row.get("seconds", 0.0) for row in keeper.log))

    def forget(self, name: str) -> None:
        """Remove the state of a training whose weights are committed."""
        state_file(self.folder.path / "training" / f"{name}.safetensors").unlink(missing_ok=True)


class Keeper:
    """Keeps the state of a training after every epoch, its log, and what the trainer says of its work."""

    def __init__(self, out: Path, facts: dict[str, Any], progress: Progress) -> None:
        _drop_other(state_file(out), facts["training"])
        self.files = TrainingWatch(out, facts, History(None, None), progress, overwrite=False)
        self.log: list[dict[str, float]] = []
        self.notes: dict[str, Any] = {}

    def resume(self) -> State | None:
        state = self.files.resume()
        if state is not None:
            self.log = state.log
        return state

    def batch(self, epoch: int, done: float) -> None:
        self.files.batch(epoch, done)

    def epoch(self, state: State, net: nn.Module) -> None:
        self.log = state.log
        self.files.epoch(state, net)

    def note(self, facts: Mapping[str, Any]) -> None:
        """Keep the facts; a trainer that goes on says them again."""
        try:
            self.notes |= json.loads(json.dumps(facts, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise UsageError(f"a trainer's notes are JSON values, got {facts!r}: {error}") from error


def state_file(out: Path) -> Path:
    """Where the state of a training lies that will give ``out``."""
    return out.with_name(f"{out.stem}.state.safetensors")


def _drop_other(file: Path, training: Mapping[str, Any]) -> None:
    """Remove a state that cannot be gone on from: of other cases (the round before was done again), or damaged."""
    if not file.is_file():
        return
    try:
        told = checkpoint.read_meta(file).get("facts", {}).get("training")
    except UsageError:
        told = None
    if told != training:
        file.unlink()
