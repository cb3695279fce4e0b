"""The resistant model of a hardening with two models: built from the original or given, and the heap of its attacks."""

import copy
from collections.abc import Callable, Mapping
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
from assay.engines.hardening_models import Models
from assay.engines.siblings import other_model
from assay.engines.twins import RESISTANT
from assay.stages.trainers.resistant import Heap, heap_for
from assay.subjects.bench import Data, Splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import module_of, trained_with
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, answer

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
        target = like(original, other_model("--resistant", model, original, data, **loading), name, data)
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


class Resistance:
    """Stage A of a run: attacks on the original, and the model that learned from them."""

    def __init__(self, folder: Store, models: Models, fit: Bound, data: Splits, seed: int) -> None:
        self.folder, self.models, self.fit, self.data = folder, models, fit, data
        self.rng = Stream(seed, (RESISTANT,))

    def heap(self) -> Heap:
        """The successes of the trainer's attacks on the original, committed: no session makes them twice."""
        if next(self.folder.commits("heap"), None) is None:
            # Where the model is built, the trainer makes the same heap for itself, which costs about an epoch.
            made = heap_for(self.fit, self.models.original, self.data.part("train").cases, self.rng)
            counts = {"learn": len(made.learn), "check": len(made.check)}
            self.folder.commit({HEAP: _encoded(made)}, kind="heap", counts=counts)
        return heap_in(self.folder)

    def built(
        self, name: str, training: dict[str, Any], progress: Callable[[Mapping[str, Any]], None]
    ) -> tuple[ModuleTarget, list[dict[str, float]]]:
        """The model that the trainer makes of the original, and the log of its epochs."""
        start = self.models.original
        made, log = self.models.trained(name, start, self.fit, self.data, None, self.rng, training, progress)
        return ModuleTarget(made, start.spec, start.device), log


def heap_in(folder: Store) -> Heap:
    """The heap of a run."""
    columns = decode(folder.file(HEAP))
    parts = ([columns[f"{part}_{c}"] for c in ("x", "y", "origin")] for part in ("learn", "check"))
    return Heap(*(Cases(x, y, origin) for x, y, origin in parts))


def _training(model: str | nn.Module | Target) -> dict[str, Any]:
    """What the checkpoint of a given model says of its training."""
    if not isinstance(model, str):
        return {"start": "module"}
    told = checkpoint.read_meta(Path(model.partition("@")[2])).get("training")
    return told if isinstance(told, dict) else {"start": model}


def _encoded(heap: Heap) -> bytes:
    parts = {"learn": heap.learn, "check": heap.check}
    return encode({f"{part}_{c}": getattr(cases, c) for part, cases in parts.items() for c in ("x", "y", "origin")})
