"""The history of a training: the weights of its epochs, read one epoch at a time."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.core.files import sha256
from assay.subjects.sources import checkpoint
from assay.subjects.sources.module import before, behind, moments_of

ENDINGS = (".safetensors", ".pt", ".pth")

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Weights of epochs, under the names a module's state has for them.

    ``source`` says where they come from; ``made`` that they are no history of the model's own training but snapshots of
    a short one that went on from it.
    """

    epochs: tuple[int, ...]
    read: Callable[[int], Weights]
    source: str
    made: bool = False
    fingerprint: str = ""

    @staticmethod
    def of_folder(folder: str | Path, module: nn.Module) -> "Snapshots":
        """The epochs that ``assay train --history`` kept, or another loop by such names; they must fit the module."""
        folder, files = Path(folder), epochs_in(folder)
        if not files:
            raise UsageError(
                f"{folder} holds no history: a folder of epoch-0001.safetensors, epoch-0002.safetensors, … as "
                "assay train --history keeps them"
            )
        for path in files.values():
            _check_moments(checkpoint.read_meta(path), module, path)

        def read(epoch: int) -> Weights:
            weights, _ = checkpoint.read(files[epoch])
            own = checkpoint.fitted(behind(module), weights, files[epoch])
            return {before(module) + name: tensor for name, tensor in own.items()}

        return Snapshots(tuple(sorted(files)), read, str(folder), fingerprint=fingerprint(folder))

    @staticmethod
    def of_weights(weights: Mapping[int, Weights], source: str = "memory", *, made: bool = False) -> "Snapshots":
        """Epochs that lie in memory."""
        return Snapshots(tuple(sorted(weights)), weights.__getitem__, source, made)

    def since(self, share: float) -> tuple[int, ...]:
        """The epochs from that share of the training on: with one half, 100 to 200 of 200.

        A model that is no last epoch has epochs behind it too: they are other epochs of its training like those before.

        >>> Snapshots.of_weights({epoch: {} for epoch in range(1, 7)}).since(0.5)
        (3, 4, 5, 6)
        """
        check_since(share)
        return tuple(epoch for epoch in self.epochs if epoch >= share * self.epochs[-1])


def check_since(share: float) -> None:
    if not 0 <= share < 1:
        raise UsageError(f"since is a share of the training in [0, 1), got {share}")


def fingerprint(folder: str | Path) -> str:
    """A digest of which epochs there are and what they say of themselves; of their content where they say nothing."""
    digest = hashlib.sha256()
    for path in epochs_in(folder).values():
        meta = checkpoint.read_meta(path)
        told = [path.name, path.stat().st_size, meta or sha256(path.read_bytes())]
        digest.update(json.dumps(told, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def beside(weights: Path) -> Path:
    """Where the history of these weights lies if nobody said otherwise."""
    return weights.with_name(weights.name.removesuffix(".safetensors") + ".history")


def epochs_in(folder: str | Path) -> dict[int, Path]:
    """The files of a history, by epoch; none where there is no such folder."""
    files = sorted(path for path in Path(folder).glob("epoch-*") if path.suffix in ENDINGS)
    return dict(sorted((_epoch(path), path) for path in files))


def _epoch(path: Path) -> int:
    found = re.fullmatch(r"epoch-(\d+)", path.stem)
    if found is None:
        raise UsageError(f"{path} is no epoch of a history: epoch-0001.safetensors, epoch-0002.safetensors, …")
    return int(found[1])


def _check_moments(told: Mapping[str, object], module: nn.Module, path: Path) -> None:
    """Refuse a history of nets that normalise otherwise: its inner outputs would mean other inputs."""
    if "mean" not in told or "std" not in told:
        return
    own = moments_of(module)
    there = [told["mean"], told["std"]]
    if any(not _close(a, b) for a, b in zip(own, there, strict=True)):
        mean, std = ([round(v, 6) for v in values] for values in own)
        raise UsageError(
            f"{path} is of another training: its net has mean {there[0]} and std {there[1]}, this one {mean} and {std}"
        )


def _close(one: object, other: object) -> bool:
    if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
        return False
    return all(abs(a - b) < 1e-5 for a, b in zip(one, other, strict=True))
