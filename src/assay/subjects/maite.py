"""Objects that follow the MAITE protocols of image classification, known by their form: no import of it is needed.

A model answers a sequence of images (C, H, W) with a row of scores each; a data set gives (image, scores of the truth,
metadata) by number. Both have ``metadata`` with an ``id``, and may name their classes there.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from assay.core.cases import UNLABELLED
from assay.core.errors import NothingToTest, UsageError
from assay.core.files import whole_text
from assay.subjects.bench import Data
from assay.subjects.data.arrays import to_data
from assay.subjects.data.folder import stacked


def is_dataset(thing: object) -> bool:
    """Whether it has the form of a MAITE data set."""
    return _is_told(thing) and hasattr(thing, "__getitem__") and hasattr(thing, "__len__") and not callable(thing)


def is_model(thing: object) -> bool:
    """Whether it has the form of a MAITE model; a torch module is taken for what it is."""
    kinds = {c.__module__.partition(".")[0] for c in type(thing).__mro__}
    return _is_told(thing) and callable(thing) and "torch" not in kinds and not hasattr(thing, "fingerprint")


def _is_told(thing: object) -> bool:
    told = getattr(thing, "metadata", None)
    return not isinstance(thing, type) and isinstance(told, Mapping) and "id" in told


def class_names(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of classes that metadata tell, () where they tell none."""
    told = metadata.get("index2label")
    if not told:
        return ()
    if not isinstance(told, Mapping) or sorted(told) != list(range(len(told))):
        raise UsageError(f"index2label of {metadata['id']!r} must name the classes 0..{len(told) - 1}, each once")
    return tuple(whole_text(str(told[i])) for i in range(len(told)))


def data_of(dataset: Any) -> Data:
    """The cases of a MAITE data set: pixels as uint8 or in [0, 1], the class the one with the highest score."""
    name = whole_text(str(dataset.metadata["id"]))
    images, labels = [], []
    for number in range(len(dataset)):
        try:
            image, truth, _ = dataset[number]
        except (TypeError, ValueError) as error:
            raise UsageError(f"item {number} of {name} is not (image, target, metadata): {error}") from error
        images.append(_image(image, name, number))
        labels.append(_label(truth, name, number))
    if not images:
        raise NothingToTest(f"{name} holds no case")
    pixels = stacked(images, name)
    found = to_data(name, pixels, np.array(labels), class_names(dataset.metadata), known=True)
    return replace(found, given_as="uint8" if pixels.dtype == np.uint8 else "float32")


def _image(image: Any, name: str, number: int) -> np.ndarray[Any, Any]:
    told = np.asarray(image)
    if told.ndim != 3:
        raise UsageError(f"image {number} of {name} has shape {told.shape}; MAITE's are (C, H, W)")
    return told


def _label(truth: Any, name: str, number: int) -> int:
    told = np.asarray(truth)
    if told.ndim != 1:
        raise UsageError(f"target {number} of {name} has shape {told.shape}; MAITE's are (classes,), one-hot or scores")
    return int(told.argmax()) if told.size and told.max() > 0 else UNLABELLED
