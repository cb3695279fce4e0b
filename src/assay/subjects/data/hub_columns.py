"""Which columns of a data set of the hub are the image and its class, and what stands in them."""

import io
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.cases import UNLABELLED
from assay.core.errors import UsageError
from assay.core.extras import needed
from assay.core.files import whole_text
from assay.core.specs import did_you_mean
from assay.subjects.data.folder import decoded
from assay.subjects.data.hub_specs import HubData
from assay.subjects.data.view import Pixels, View

log = logging.getLogger("assay")

_USUAL = ("label", "labels", "class", "target", "y")  # of several columns of classes, the one that is meant
_CLASSES, _NUMBERS, _TEXTS = "ClassLabel", ("int", "uint"), ("string", "large_string")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of image and class; ``label`` is "" where there is none. ``names`` are the classes, where told."""

    spec: HubData
    picture: str
    label: str
    names: tuple[str, ...]

    def bare(self, table: Any, library: Any) -> Any:
        """The two columns only, images as the bytes they are: decoding them is done under our own limits."""
        table = table.select_columns([self.picture, *([self.label] if self.label else [])])
        return table.cast_column(self.picture, library.Image(decode=False))

    def image(self, row: Mapping[str, Any], view: View) -> tuple[Pixels | None, str]:
        """The pixels (C, H, W) of a row, or the reason why not."""
        told = row[self.picture] or {}
        content, path = told.get("bytes"), told.get("path")
        if content:
            return decoded(io.BytesIO(content), view)
        if not path:
            return None, "no image"
        if str(path).startswith(f"hf://datasets/{self.spec.name}@"):
            with needed("huggingface_hub", "hub", str(self.spec)).HfFileSystem().open(path, "rb") as file:
                return decoded(io.BytesIO(file.read()), view)
        from assay.subjects.data.hub import is_local

        if "://" in str(path) or not is_local(str(path), self.spec):
            return None, "it names a file that is not of the set"
        return decoded(Path(path), view)

    def label_in(self, row: Mapping[str, Any]) -> Any:
        """The class of a row as it stands there."""
        found = row[self.label] if self.label else None
        return UNLABELLED if found is None else found

    def classes(self, labels: list[Any]) -> tuple[tuple[str, ...], np.ndarray[Any, Any]]:
        """The names of the classes, () where they are numbers, and the class of each row as a number."""
        if labels and isinstance(labels[0], str):
            names = sorted(set(map(str, labels)))
            place = {name: i for i, name in enumerate(names)}
            return tuple(map(whole_text, names)), np.array([place[str(label)] for label in labels])
        return self.names, np.array(labels, dtype=np.int64)


def columns_of(table: Any, spec: HubData) -> Columns:
    """The columns of a set: those that were named, else the ones that can only be meant."""
    features = table.features if table.features is not None else table._resolve_features().features
    kinds = {str(name): type(kind).__name__ for name, kind in features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    picture = _chosen("image", spec, images, "image", kinds)
    if not picture:
        raise UsageError(f"{spec.title} has no column of images; it has {_listed(kinds)}")
    of_classes = [name for name, kind in kinds.items() if kind == _CLASSES]
    plain = [name for name in _USUAL if name in kinds and _is_class(features[name])]
    label = _chosen("label", spec, of_classes or plain[:1], "class", kinds)
    if not label:
        log.warning("%s has no column of classes (it has %s): its cases have no labels", spec.title, _listed(kinds))
        return Columns(spec, picture, "", ())
    if kinds[label] != _CLASSES and not _is_class(features[label]):
        raise UsageError(f"column {label!r} of {spec.title} holds no classes: it is {features[label]}")
    names = tuple(whole_text(str(n)) for n in features[label].names) if kinds[label] == _CLASSES else ()
    return Columns(spec, picture, label, names)


def _chosen(key: str, spec: HubData, found: list[str], what: str, kinds: Mapping[str, str]) -> str:
    """The column that was named in brackets, else the one there is; "" where there is none."""
    named = spec.params.get(key)
    if named is not None:
        if named not in kinds:
            raise UsageError(f"{spec.title} has no column {named!r}; {did_you_mean(str(named), kinds)}")
        return str(named)
    if len(found) > 1:
        usual = [name for name in (what, *_USUAL) if name in found]
        if usual:
            return usual[0]
        raise UsageError(
            f"{spec.title} has several columns of {what} ({', '.join(found)}); "
            f"name one: {HubData(spec.name, params={key: found[0]})}/{spec.split}"
        )
    return found[0] if found else ""


def _is_class(feature: Any) -> bool:
    kind = str(getattr(feature, "dtype", ""))
    return kind.startswith(_NUMBERS) or kind in _TEXTS


def _listed(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items()) or "none"
