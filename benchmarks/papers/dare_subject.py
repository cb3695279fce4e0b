"""What DARE's experiments are made on: a net trained on half of the training part, its past epochs, the other half."""

import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.session import session
from assay.stages.trainers.loop import rank
from assay.stages.trainers.watch import State
from assay.subjects.bench import Data, Splits, held_out
from assay.subjects.data.load import load_splits
from assay.subjects.history import Snapshots
from assay.subjects.sources.load import load_target, new_net, pick_device
from assay.subjects.sources.module import normalised
from assay.subjects.target import Target, answer
from papers.subject import limited, moved_to
from papers.twinfuzz_subject import share

Params = dict[str, Any]

NETS = ("vgg16", "vgg19", "alexnet")
DATA = ("cifar10", "fashion-mnist", "svhn")
EPOCHS = 60
HELD_OUT = 0.5
HALVES: Params = {"held_out": HELD_OUT, "precision": "bfloat16 on a GPU"}  # that of trainings from scratch
TEMPERATURE = 10.0  # of distillation

# Paper's code: 200 epochs, VGG from 0.01 down by fives at 60, 120 and 160, AlexNet 0.01, 0.005 and 0.001. Here: fewer
# epochs, so the first rate is higher and falls by tens after a half and three quarters; what is mined lies behind the
# first fall, as in the paper's code.
_SGD: Params = {"batch": 128, "optimiser": "sgd", "momentum": 0.9, "schedule": "step"}
_VGG: Params = _SGD | {"lr": 0.05, "weight_decay": 5e-4}
_PLANS: dict[str, Params] = {
    "vgg16": _VGG,
    "vgg19": _VGG,
    "alexnet": _SGD | {"lr": 0.03, "weight_decay": 5e-4},
    "lenet5": {"batch": 32, "optimiser": "adam", "lr": 2e-3, "schedule": "step"},
}
# Paper's code: flips everywhere. Here: not of digits, which are no digits then.
_AUGMENT = {"cifar10": "flip,shift=0.125", "fashion-mnist": "flip,shift=0.1", "svhn": "shift=0.125", "digits": ""}
CHUNK = {"vgg16": 2500, "vgg19": 2500, "alexnet": 5000, "lenet5": 5000}  # rows at once on a GPU


def plan_of(data: str, net: str) -> Params:
    """How a net is trained; the number of epochs comes beside it."""
    return _PLANS[net] | {"augment": _AUGMENT[data]}


@dataclass(slots=True)
class Kept:
    """Who looks on at a training: keeps its log, its notes, and in memory the weights of the epochs after ``first``."""

    first: float = float("inf")
    log: list[dict[str, float]] = field(default_factory=list)
    notes: Params = field(default_factory=dict)
    weights: dict[int, Mapping[str, Tensor]] = field(default_factory=dict)

    def resume(self) -> State | None:
        return None

    def batch(self, epoch: int, done: float) -> None: ...

    def epoch(self, state: State, net: nn.Module) -> None:
        self.log = state.log
        if state.epoch >= self.first:
            self.weights[state.epoch] = state.weights

    def note(self, facts: Mapping[str, Any]) -> None:
        self.notes |= facts

    def told(self) -> Params:
        """The best epoch with its numbers, what there is to note, and the seconds of all."""
        best = max(self.log, key=rank)
        told: Params = {k: best[k] for k in ("epoch", "lr", "val_accuracy") if k in best}
        told |= {"epochs": len(self.log), "train_seconds": round(sum(row["seconds"] for row in self.log), 2)}
        return {k: round(v, 8) if isinstance(v, float) else v for k, v in told.items()} | self.notes


class Subject:
    """A net of one data set and seed, trained on the half T; the other half D, which it has not seen, is ``held``."""

    def __init__(self, data: str, net: str, seed: int, *, device: str, epochs: int, limit: int) -> None:
        self.data, self.net, self.seed, self.epochs = data, net, seed, epochs
        self.rng = Stream(seed, ("dare", data, net))
        self.plan, self.device = plan_of(data, net), pick_device(device)
        self.chunks = Chunks(CHUNK[net] if self.device.type == "cuda" else 256)
        half, held = held_out(limited(load_splits(data), limit), HELD_OUT)
        parts = {part: moved_to(half.part(part), self.device) for part in ("train", "val", "test")}
        self.splits = Splits(data, **parts, held_out=moved_to(held, self.device))
        self.held = moved_to(held, self.device)
        self.watch = Kept(first=epochs / 2)
        self.original = self.trained(self.splits, epochs, self.watch)
        self.target = self.target_of(self.original)
        self.fingerprint = self.target.fingerprint()

    @functools.cached_property
    def snapshots(self) -> Snapshots:
        """The second half of the training, epoch by epoch."""
        return Snapshots.of_weights(self.watch.weights, f"the {self.epochs} epochs of this training")

    def start(self) -> nn.Module:
        """The net before training, behind the normalisation of the half T."""
        own = self.splits.part("train")
        with torch.random.fork_rng([]):
            torch.manual_seed(self.rng.at("weights").generator().initial_seed())
            net = new_net(self.net, own.spec, {})
        channels = own.cases.x.transpose(0, 1).flatten(1)
        mean, std = (tuple(values.tolist()) for values in (channels.mean(1), channels.std(1).clamp_min(1e-3)))
        layout = torch.channels_last if self.device.type == "cuda" else torch.preserve_format
        behind = normalised(net, own.spec, mean, std)
        made: nn.Module = behind.to(self.device, memory_format=layout)  # type: ignore[call-overload]  # torch's stubs
        return made

    def trained(self, splits: Splits, epochs: int, watch: Kept) -> nn.Module:
        """A net trained from scratch, at its best validation epoch."""
        with self.quick():
            return self.fitted(self.start(), splits, self.plan | {"epochs": epochs}, watch)

    def quick(self) -> AbstractContextManager[object]:
        """Half precision on a GPU, for trainings from scratch: all that is done to a net afterwards is in single."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False)

    def fitted(self, net: nn.Module, splits: Splits, params: Params, watch: Kept) -> nn.Module:
        """The net after plain training on other data or with other settings."""
        fit = bind("trainer", "plain", params)
        with session():
            made: nn.Module = fit(net, splits, None, rng=self.rng.at("train"), watch=watch)
        return made.eval()

    @property
    def whole(self) -> Splits:
        """The data with both halves to train on."""
        own = self.splits.part("train")
        both = replace(own, cases=Cases.cat([own.cases, self.held.cases]))
        return replace(self.splits, train=both, held_out=None)

    def parted(self, cases: Cases, kept: float) -> Splits:
        """Cases to learn from and, of the same kind, a share kept back to choose the epoch."""
        back = self.rng.at("kept").rows(cases.origin).uniform(()) < kept
        parts = {"train": cases[~back], "val": cases[back]}
        spec = self.splits.part("train").spec
        return Splits(self.data, **{name: Data(f"{self.data}/{name}", some, spec) for name, some in parts.items()})

    @property
    def machine(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"

    def part(self, name: str) -> Cases:
        return self.splits.part(name).cases

    def target_of(self, net: nn.Module) -> Target:
        return load_target(net, data=self.splits.part("train")[:64])

    def right(self, target: Target, cases: Cases) -> Tensor:
        return answer(target, cases.x, self.chunks).argmax(1) == cases.y

    def clean(self, target: Target) -> float | None:
        return share(self.right(target, self.part("test")))
