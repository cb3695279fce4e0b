"""What a training leaves on disk: the state to resume from, the history of epochs, the finished weights."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.stages.trainers.loop import accuracy
from assay.stages.trainers.watch import State
from assay.subjects.history import beside, epochs_in
from assay.subjects.sources import checkpoint
from assay.subjects.sources.facts import check as check_facts


@dataclass(frozen=True, slots=True)
class History:
    """Which epochs' weights are kept, and where."""

    folder: Path | None
    last: int | None

    @staticmethod
    def parse(history: str, keep: str, out: Path) -> "History":
        """``history`` is a folder, or ``all`` or ``last:N`` epochs in one beside ``out``; ``keep`` is all or last:N."""
        if re.fullmatch(r"all|last:\d+", history):
            history, keep = str(beside(out)), keep if history == "all" else history
        match = re.fullmatch(r"all|last:(\d+)", keep)
        if match is None or match[1] == "0":
            raise UsageError(f"--keep is 'all' or 'last:N', got {keep!r}")
        if match[1] and not history:
            raise UsageError("--keep says how much of a history is kept, and there is none; give --history all too")
        return History(Path(history) if history else None, int(match[1]) if match[1] else None)

    def file(self, epoch: int) -> Path:
        assert self.folder is not None  # callers ask only where there is a history
        return self.folder / f"epoch-{epoch:04d}.safetensors"


class TrainingWatch:
    """Keeps a training safe after every epoch."""

    def __init__(
        self,
        out: Path,
        facts: dict[str, Any],
        history: History,
        progress: Callable[[Mapping[str, Any]], None],
        overwrite: bool,
    ) -> None:
        self.out, self.facts, self.history, self.progress = out, facts, history, progress
        self.state_file = out.with_name(out.name.removesuffix(".safetensors") + ".state.safetensors")
        if overwrite:
            self.state_file.unlink(missing_ok=True)
        for old in epochs_in(history.folder).values() if history.folder else ():
            if overwrite:
                old.unlink()  # of another training, whose later epochs nothing would replace
            else:
                check_same(old, checkpoint.read_meta(old).get("training", {}), facts["training"])
        self.log: list[dict[str, float]] = []
        self._notes: dict[str, Any] = {}

    def resume(self) -> State | None:
        """The state of a stopped training of the same kind."""
        if not self.state_file.is_file():
            return None
        tensors, meta = checkpoint.read(self.state_file)
        try:
            state = self._state(tensors, meta)
            self.log = state.log
            return state
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{self.state_file} is damaged; start the training again with --overwrite") from error

    def _state(self, tensors: dict[str, Tensor], meta: Mapping[str, Any]) -> State:
        check_same(self.state_file, meta["facts"]["training"], self.facts["training"])
        parts: dict[str, dict[str, Tensor]] = {"weights": {}, "average": {}, "best": {}, "opt": {}, "memory": {}}
        for name, tensor in tensors.items():
            part, _, key = name.partition("/")
            parts[part][key] = tensor
        optimiser = json.loads(meta["optimiser"])
        state: dict[int, dict[str, Any]] = {int(k): v for k, v in optimiser["state"].items()}
        for key, tensor in parts["opt"].items():
            index, _, name = key.partition("/")
            state[int(index)][name] = tensor
        return State(
            int(meta["epoch"]),
            parts["weights"],
            {"state": state, "param_groups": optimiser["param_groups"]},
            parts["average"],
            parts["best"],
            meta["log"],
            parts["memory"],
        )

    def batch(self, epoch: int, done: float) -> None:
        self.progress({"epoch": epoch + done})

    def epoch(self, state: State, net: nn.Module) -> None:
        self.log = state.log
        if self.history.folder is not None:
            self._keep_epoch(state)
        tensors, optimiser = _flat(state)
        meta = {
            "facts": self.facts,
            "epoch": state.epoch,
            "log": state.log,
            "optimiser": json.dumps(optimiser),
        }
        checkpoint.write(self.state_file, tensors, meta)
        self.progress({"epoch": state.epoch, **state.log[-1]})

    def note(self, facts: Mapping[str, Any]) -> None:
        self._notes |= facts

    def _keep_epoch(self, state: State) -> None:
        weights = state.average or state.weights
        facts = self.facts | {"epoch": state.epoch, "training": self.facts["training"] | {"log": state.log}}
        checkpoint.write(self.history.file(state.epoch), _inner(weights), facts)
        if self.history.last is not None:
            old = self.history.file(state.epoch - self.history.last)
            old.unlink(missing_ok=True)

    def finish(self, made: nn.Module, val: Cases) -> dict[str, Any]:
        """Write the weights of the module that came out, and clear the state."""
        if not self.log:  # a trainer that has no epochs to speak of
            device = next((p.device for p in made.parameters()), torch.device("cpu"))
            with eval_mode(made):
                self.log = [{"epoch": 1, "loss": 0.0, "seconds": 0.0, **accuracy(made, val.to(device))}]
        notes = {"notes": self._notes} if self._notes else {}
        facts = self.facts | {"training": self.facts["training"] | {"log": self.log} | notes}
        checkpoint.write(self.out, _inner(made.state_dict()), facts)
        self.state_file.unlink(missing_ok=True)
        return facts


def already_there(out: Path, training: Mapping[str, Any], history: History) -> dict[str, Any] | None:
    """The facts of finished weights of the same training; weights of another one are not overwritten."""
    if not out.exists():
        return None
    facts = checkpoint.read_meta(out)
    check_facts(facts, out)
    check_same(out, facts.get("training", {}), training)
    last = len(facts["training"].get("log", []))
    if history.folder is not None and not history.file(last).exists():
        raise UsageError(f"{out} is trained already, without the history asked for; train again with --overwrite")
    return facts


def check_same(path: Path, was: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse a file of another training than the one asked for, and say in what it differs."""
    compared = [key for key in asked if key != "seen" or key in was]  # old files do not tell what their start had seen
    compared += [key for key in ("amp",) if key in was and key not in asked]  # told only where it is so
    rows = [
        f"  {key}: {was.get(key, '(unset)')} there, {asked.get(key, '(unset)')} asked"
        for key in compared
        if was.get(key) != asked.get(key)
    ]
    if rows:
        raise UsageError(
            f"{path} holds another training; choose another --out, or replace it with --overwrite\n" + "\n".join(rows)
        )


def _inner(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The net's own weights: those of the normalisation around it are facts, not weights."""
    return {name.removeprefix("net."): tensor for name, tensor in weights.items()}


def _flat(state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by path, and what of the optimiser is not a tensor."""
    tensors = {f"weights/{k}": v for k, v in state.weights.items()}
    tensors |= {f"average/{k}": v for k, v in state.average.items()} | {f"best/{k}": v for k, v in state.best.items()}
    tensors |= {f"memory/{k}": v for k, v in state.memory.items()}
    plain: dict[str, Any] = {"param_groups": state.optimiser["param_groups"], "state": {}}
    for index, slot in state.optimiser["state"].items():
        tensors |= {f"opt/{index}/{k}": v for k, v in slot.items() if isinstance(v, Tensor)}
        plain["state"][str(index)] = {k: v for k, v in slot.items() if not isinstance(v, Tensor)}
    return tensors, plain
