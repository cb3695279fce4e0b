"""Assay and MAITE, both ways: MAITE models and data sets are tested here, and what is here is used in MAITE's tasks.

``assay.evaluate(model, dataset, …)`` takes MAITE objects as they are. The other way, an attack is a MAITE augmentation
(``Attacked``), a model of ours a MAITE model (``Model``), data a MAITE data set (``Dataset``), ``Accuracy`` a metric
with its interval, so that ``maite.tasks.evaluate(model=…, dataset=…, augmentation=Attacked(…), metric=Accuracy())``
measures accuracy under attack.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.stats import wilson
from assay.engines.attack import attack as attack_inputs
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.maite import data_of, is_dataset, is_model
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, answer

__all__ = ["Accuracy", "Attacked", "Dataset", "Model", "as_target", "data_of", "is_dataset", "is_model"]

Array = NDArray[Any]
Metadata = Mapping[str, Any]


def as_target(model: Any, data: Any, *, queries: int | None = None, ask: str = "") -> Target:
    """A MAITE model as a target for every verb of Assay; ``data`` tell the shape and how inputs are sent."""
    return load_target(model, data=load_data(data), queries=queries, ask=ask)


class Model:
    """A target of Assay as a MAITE model: images (C, H, W), uint8 or in [0, 1], to probabilities."""

    def __init__(
        self, model: str | nn.Module | Target, *, data: Any = None, device: str = "auto", id: str = ""
    ) -> None:
        known = None if data is None else load_data(data)
        self.target = load_target(model, data=known, device=device)
        names = dict(enumerate(self.target.spec.classes))
        told = id or (model if isinstance(model, str) else type(model).__name__)
        self.metadata: dict[str, Any] = {"id": told, "index2label": names}

    def __call__(self, input_batch: Sequence[Any]) -> list[Array]:
        if not len(input_batch):
            return []
        scores = answer(self.target, pixels(input_batch), Chunks())
        return list(scores.softmax(1).cpu().numpy())


class Dataset:
    """Data of Assay as a MAITE data set: images in [0, 1], or uint8 where the data were given so.

    Unlabelled cases have a target of zeros.
    """

    def __init__(self, data: str | Data | Any, *, size: str = "", like: object = None) -> None:
        self.data = load_data(data, size=size, like=like)
        names = dict(enumerate(self.data.spec.classes))
        self.metadata: dict[str, Any] = {"id": self.data.name, "index2label": names}

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, ind: int) -> tuple[Array, Array, dict[str, Any]]:
        if not -len(self) <= ind < len(self):
            raise IndexError(ind)  # which ends a loop over it
        cases, truth = self.data.cases, np.zeros(len(self.data.spec.classes), np.float32)
        label = int(cases.y[ind])
        if label >= 0:
            truth[label] = 1
        image = _like(cases.x[ind].numpy().copy(), np.dtype(self.data.given_as))
        return image, truth, {"id": int(cases.origin[ind])}


class Attacked:
    """An attack of Assay as a MAITE augmentation: every batch comes back as the worst that it makes of it."""

    def __init__(
        self,
        model: Any,
        attack: str = "pgd",
        *,
        eps: str | float | None = None,
        norm: str | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model.target if isinstance(model, Model) else model
        self.attack, self.eps, self.norm, self.seed, self.device = attack, eps, norm, seed, device
        ball = ", ".join(f"{name}={value}" for name, value in (("eps", eps), ("norm", norm)) if value is not None)
        self.metadata: dict[str, Any] = {"id": f"assay {attack}{f' with {ball}' * bool(ball)}, seed {seed}"}

    def __call__(
        self, datum_batch: tuple[Sequence[Any], Sequence[Any], Sequence[Metadata]]
    ) -> tuple[list[Array], Sequence[Any], list[dict[str, Any]]]:
        images, truths, metadata = datum_batch
        if not len(images):
            return [], truths, []
        y = torch.tensor([int(np.asarray(truth).argmax()) for truth in truths])
        as_given = np.asarray(images[0]).dtype
        model = self._target(images, y)
        found = attack_inputs(
            self.attack, model, pixels(images), y, eps=self.eps, norm=self.norm, seed=self.seed, device=self.device
        )
        made = [_like(row, as_given) for row in found.x.cpu().numpy()]
        success = found.info["success"].tolist()
        sizes = found.info["size"].tolist()
        told = [
            {**each, "assay_success": hit, "assay_size": size}
            for each, hit, size in zip(metadata, success, sizes, strict=True)
        ]
        return made, truths, told

    def _target(self, images: Sequence[Any], y: Tensor) -> Any:
        """The model; one of MAITE's is sent pixels as this batch has them."""
        if not is_model(self.model):
            return self.model
        from assay.core.cases import Cases, InputSpec

        x = pixels(images)
        names = tuple(map(str, range(max(int(y.max()) + 1, 2))))
        as_given = "uint8" if np.asarray(images[0]).dtype == np.uint8 else "float32"
        known = Data("a batch", Cases.of(x), InputSpec(tuple(x.shape[1:]), (0.0, 1.0), names), given_as=as_given)
        return load_target(self.model, data=known)


class Accuracy:
    """The share of rightly classified inputs with its 95 % interval (Wilson), as a MAITE metric."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {"id": "assay accuracy with 95 % interval"}
        self.reset()

    def reset(self) -> None:
        self.right, self.n = 0, 0

    def update(
        self, pred_batch: Sequence[Any], target_batch: Sequence[Any], metadata_batch: Sequence[Metadata] = ()
    ) -> None:
        for pred, truth in zip(pred_batch, target_batch, strict=True):
            scores, wanted = np.asarray(pred), np.asarray(truth)
            if not wanted.size or wanted.max() <= 0:
                continue  # unlabelled
            self.n += 1
            # Scores that are no numbers are no right answer.
            self.right += bool(np.isfinite(scores).all()) and int(scores.argmax()) == int(wanted.argmax())

    def compute(self) -> dict[str, Any]:
        if not self.n:
            raise UsageError("no labelled input was counted, so there is no accuracy")
        low, high = wilson(self.right, self.n)
        return {"accuracy": self.right / self.n, "low": low, "high": high, "right": self.right, "n": self.n}


def pixels(images: Sequence[Any]) -> Tensor:
    """A batch of images (C, H, W) as inputs in [0, 1]."""
    given = np.stack([np.asarray(image) for image in images])
    if given.ndim != 4:
        raise UsageError(f"images of MAITE are (C, H, W), got {given.shape[1:]}")
    if given.dtype == np.uint8:
        return torch.from_numpy(given.astype(np.float32) / 255)
    found = torch.from_numpy(given.astype(np.float32))
    if not bool(((found >= 0) & (found <= 1)).all()):
        raise UsageError(
            f"images are uint8 or in [0, 1], got values in [{float(found.min()):g}, {float(found.max()):g}]"
        )
    return found


def _like(row: Array, dtype: Any) -> Array:
    """A made input in the type that the batch had: whole numbers for pixels that were whole."""
    return np.rint(row * 255).astype(np.uint8) if dtype == np.uint8 else row.astype(dtype)
