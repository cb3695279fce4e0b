"""The resistant one of two models: how it is built from the other, or given, and the heap of attacks it learns from."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.shards import decode, encode
from assay.core.specs import Step
from assay.core.store import Store
from assay.engines.hardening_models import Models, Progress
from assay.engines.siblings import other_model
from assay.stages.trainers.kept_back import Parted
from assay.stages.trainers.resistant import heap_for, with_heap
from assay.subjects.bench import Data, Splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.hub_specs import split_weights
from assay.subjects.sources.load import module_of, seen_after, trained_with
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, answer

RESISTANT = "resistant"  # its name in a run folder
BESIDE = "the vulnerable model"  # the other one, in messages
HEAP = "state/heap.safetensors"
SAMPLE = 64  # validation inputs on which a given net is held against its copy


@dataclass(frozen=True, slots=True)
class Given:
    """A resistant model that is not built."""

    name: str
    target: ModuleTarget
    training: dict[str, Any]  # what its checkpoint says of it
    seen: tuple[Step, ...] | None  # the attacks it was trained with, None where nobody knows

    @staticmethod
    def of(model: str | nn.Module | Target, original: ModuleTarget, data: Data, **loading: Any) -> "Given":
        """The model of ``--resistant``; refused where the run could not go on from it."""
        name, known = (model, trained_with(model)) if isinstance(model, str) else ("module", None)
        target = like(original, other_model("--resistant", model, original, data, beside=BESIDE, **loading), name, data)
        return Given(name, target, _training(model), known)


def like(original: ModuleTarget, given: Target, named: str, data: Data) -> ModuleTarget:
    """The given model as the original's net with other weights, which all later models of the run are."""
    module = copy.deepcopy(original.module)
    told = f"--resistant {named} must be a net of the same kind as the model that is hardened, with the same --mean "
    try:
        module.load_state_dict(module_of(given).state_dict())
    except RuntimeError as error:
        raise UsageError(f"{told}and --std: its weights do not fit ({str(error).splitlines()[0]})") from error
    target = ModuleTarget(module.eval(), original.spec, original.device)
    some = data.cases.x[:SAMPLE]
    if not torch.allclose(answer(target, some, Chunks()), answer(given, some, Chunks()), atol=1e-4, rtol=1e-3):
        raise UsageError(f"{told}and --std: with its weights the net answers otherwise than it does")
    return target


@dataclass(frozen=True, slots=True)
class Building:
    """How the resistant model comes about: attacks on the original, and a training that learns from them."""

    models: Models
    start: str  # the original as it was named
    fit: Bound
    data: Splits
    seed: int

    @property
    def rng(self) -> Stream:
        return Stream(self.seed, (RESISTANT,))

    def heap(self) -> Parted:
        """The successes of the trainer's attacks on the original; none where it has no such attacks."""
        return heap_for(self.fit, self.models.original, self.data.part("train").cases, self.rng)

    def kept_heap(self, folder: Store) -> Parted:
        """The same, committed: no session makes them twice."""
        if next(folder.commits("heap"), None) is None:
            made = self.heap()
            counts = {"learn": len(made.learn), "check": len(made.check)}
            folder.commit({HEAP: _encoded(made)}, kind="heap", counts=counts)
        return heap_in(folder)

    def built(
        self, name: str, progress: Progress, heap: Parted | None = None, **told: Any
    ) -> tuple[ModuleTarget, dict[str, Any]]:
        """The model that the trainer makes of the original, and what its checkpoint says of how it was trained."""
        heap = heap or self.heap()
        training: dict[str, Any] = {
            "start": self.start,
            "trainer": self.fit.text,
            "data": self.data.name,
            "train_fingerprint": self.data.part("train").fingerprint(),
            "seed": self.seed,
            "seen": seen_after(self.start, self.fit.params),
            "cases": len(heap.learn),
            **told,
        }
        start, fit = self.models.original, with_heap(self.fit, heap)
        made = self.models.trained(name, start, fit, self.data, None, self.rng, training, progress)
        return ModuleTarget(made.module, start.spec, start.device), training | made.facts()


def heap_in(folder: Store) -> Parted:
    """The heap of a run."""
    columns = decode(folder.file(HEAP))
    parts = ([columns[f"{part}_{c}"] for c in ("x", "y", "origin")] for part in ("learn", "check"))
    return Parted(*(Cases(x, y, origin) for x, y, origin in parts))


def _training(model: str | nn.Module | Target) -> dict[str, Any]:
    """What the checkpoint of a given model says of its training."""
    if not isinstance(model, str):
        return {"start": "module"}
    told = checkpoint.read_meta(Path(split_weights(model)[1])).get("training")
    return told if isinstance(told, dict) else {"start": model}


def _encoded(heap: Parted) -> bytes:
    parts = {"learn": heap.learn, "check": heap.check}
    return encode({f"{part}_{c}": getattr(cases, c) for part, cases in parts.items() for c in ("x", "y", "origin")})
