"""What is hardened: a copy of the model, the data in three parts, and the texts that name both on a command line."""

import copy
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from assay.core.cases import UNLABELLED
from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.engines.held_out import for_mining, history_facts
from assay.engines.resistant_model import RESISTANT, Given
from assay.engines.yardstick import Yardstick
from assay.subjects.bench import Data, Splits, fitted, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources.hub import pinned
from assay.subjects.sources.hub_specs import split_weights
from assay.subjects.sources.load import attacks_in, load_target, module_of, told_seen, trained_with
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, require, require_gradients

Model = str | nn.Module | Target


@dataclass(frozen=True, slots=True)
class Subject:
    """The model and its data; ``val`` and ``test`` are the cases that are measured."""

    model: Model
    target: ModuleTarget
    splits: Splits
    val: Data
    test: Data
    where: str  # the data as a command line names them, "" where they have no name
    size: str
    given: Given | None = None  # the resistant model of two, where it is not built

    def config(self) -> dict[str, dict[str, Any]]:
        """What makes it this subject."""
        return {
            "target": {
                "model": self.name,
                "fingerprint": self.target.fingerprint(),
                "classes": list(self.target.spec.classes),
                **self.pair(),
            },
            "data": {
                "spec": self.splits.name,
                "train": self.splits.part("train").fingerprint(),
                "val": self.val.fingerprint(),
                "test": self.test.fingerprint(),
                **({} if self.splits.held_out is None else {"held_out": self.splits.held_out.fingerprint()}),
                **({"size": self.size} if self.size else {}),
            },
        }

    @property
    def name(self) -> str:
        return self.model if isinstance(self.model, str) else "module"

    def pair(self) -> dict[str, str]:
        """The resistant model that was given."""
        if self.given is None:
            return {}
        return {RESISTANT: self.given.name, f"{RESISTANT}_fingerprint": self.given.target.fingerprint()}

    def training(self, train: Bound, data: Splits, seed: int, resistant: Bound | None) -> dict[str, Any]:
        """What every checkpoint says of its training, whatever the round; ``seen`` is None where that is unknown."""
        known = trained_with(self.model) if isinstance(self.model, str) else None
        start = known if self.given is None else self.given.seen
        told = {"start": self.name, "trainer": train.text, "data": data.name, "seed": seed}
        told["train_fingerprint"] = data.part("train").fingerprint()
        told |= history_facts(self.model, train)
        if known is None or start is None:
            return told | {"seen": None}
        heap = {} if resistant is None else resistant.params
        return told | {"seen": told_seen(known, start, attacks_in(heap), attacks_in(train.params))}

    def command(self, run: Path, number: int, yardstick: Yardstick) -> str:
        """The line that measures the test numbers of that round's model again; "" where no line can name them."""
        if not isinstance(self.model, str) or not self.where:
            return ""
        net, _ = split_weights(self.model)
        words = ["assay", "eval", f"{net}@{run}/models/round-{number:03d}.safetensors", "--data", self.where]
        words += ["--suite", yardstick.suite, "--eps", str(yardstick.eps), "--norm", yardstick.norm, "--each"]
        words += ["--static-from", f"{net}@{run}/models/round-000.safetensors", "--seed", str(yardstick.seed)]
        words += ["--size", self.size] if self.size else []
        words += [word for name in yardstick.ignore for word in ("--ignore", name)]
        words += ["--deterministic"] if yardstick.deterministic else []
        return shlex.join(words)


def subject_of(
    model: Model,
    data: str | Splits,
    *,
    val_cases: int,
    test_cases: int | None,
    size: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    device: str,
    resistant: Model | None = None,
    needs: Collection[str] = (),
) -> Subject:
    """Model and data, loaded and fitted to each other; the model that was given is copied, never touched.

    ``needs`` are those of the trainer: for one that mines a history, the part that the model held out stands apart.
    """
    if val_cases < 1 or (test_cases is not None and test_cases < 1):
        raise UsageError(f"val_cases {val_cases} and test_cases {test_cases} must be at least 1")
    if not isinstance(data, (str, Splits)):
        raise UsageError(f"hardening takes a whole data set, by name or as Splits, got {type(data).__name__}")
    model = pinned(model)
    splits = with_validation(load_splits(data, size=size, like=model) if isinstance(data, str) else data)
    splits = for_mining(model, splits, needs)
    if splits.test is None:
        raise UsageError(
            f"{splits.name} has no test part, and hardening looks at one in the end: give a folder with train/ and "
            "test/ in it (a folder a class in each), or an npz with x_train, y_train, x_test, y_test"
        )
    train, val, test = (splits.part(part) for part in ("train", "val", "test"))
    for part in (train, val, test):
        if len(part) and not bool((part.cases.y != UNLABELLED).any()):
            raise UsageError(f"{part.name} has no labels; hardening learns from labels, and measures by them")
    given = load_target(model, data=train, device=device, mean=mean, std=std)
    require(given, ("train", "grad"), "hardening")
    require_gradients(given, train.cases.x, "hardening")
    target = ModuleTarget(copy.deepcopy(module_of(given)).eval(), given.spec, given.device)
    train, val, test = (fitted(target, part) for part in (train, val, test))
    found = None if resistant is None else Given.of(resistant, target, val, device=device, mean=mean, std=std)
    held = None if splits.held_out is None else fitted(target, splits.held_out)
    splits = replace(splits, train=train, val=val, test=test, held_out=held)
    where = ""
    if isinstance(data, str):
        where = data if data.startswith("dir:") else test.source if data.startswith("hf:") else f"{data}/test"
    if test_cases is not None and test_cases < len(test):
        test, where = test[:test_cases], where and f"{where}[:{test_cases}]"
    val = val[:val_cases] if val_cases < len(val) else val
    return Subject(model, target, splits, val, test, where, size, found)
