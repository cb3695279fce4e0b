"""``torchvision:name:WEIGHTS``: the weights by torchvision's own name, checked against the digest in their address."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core.errors import UsageError
from assay.core.extras import needed
from assay.core.specs import did_you_mean
from assay.subjects.data.view import Pixels, View, whole
from assay.subjects.sources.hub import USUAL, HubNet, loaded, sized
from assay.subjects.sources.hub_specs import HubSpec
from assay.subjects.sources.patience import printable

log = logging.getLogger("assay")

# What torchvision's own builders set where weights are asked for.
_AS_TRAINED: Mapping[str, Mapping[str, Any]] = {
    "googlenet": {"transform_input": True, "aux_logits": True, "init_weights": False},
    "inception_v3": {"transform_input": True, "aux_logits": True, "init_weights": False},
}


def pinned(spec: HubSpec) -> HubSpec:
    """The same with the name of its weights: what DEFAULT means changes with the version of torchvision."""
    if spec.weights is not None:
        return spec
    return HubSpec(spec.scheme, spec.name, _weights(spec).name, "", None, spec.params)


def view(spec: HubSpec) -> View | None:
    """Resize and centre crop as the weights' own transform does them."""
    transform = _weights(spec).transforms()
    functional = needed("torchvision.transforms.functional", "hub", str(spec))
    (side,) = set(transform.crop_size)

    def take(image: Any) -> Pixels:
        image = functional.resize(
            image, transform.resize_size, interpolation=transform.interpolation, antialias=transform.antialias
        )
        return whole(functional.pil_to_tensor(functional.center_crop(image, transform.crop_size)))

    return View((side, side), 3, take)


def made(spec: HubSpec) -> HubNet:
    """The net with its weights."""
    models, entry = _models(spec), _weights(spec)
    transform = entry.transforms()
    (side,) = set(transform.crop_size)
    params = {key: value for key, value in spec.params.items() if key != "classes"}
    names = tuple(map(str, entry.meta.get("categories", ())))
    if spec.weights is not None:

        def make(count: int) -> nn.Module:
            net: nn.Module = models.get_model(spec.name, weights=None, **{**params, "num_classes": count})
            return net

        net = sized(make, spec.weights, params)
        return HubNet(net, (3, side, side), tuple(transform.mean), tuple(transform.std))
    if "num_classes" in params:
        raise UsageError(
            f"num_classes of {spec} is that of its weights; it is for weights of your own: …@w.safetensors"
        )
    trained = dict(_AS_TRAINED.get(spec.name, {}))
    if spec.name.startswith("vit_"):
        trained["image_size"] = entry.meta["min_size"][0]
    bare = models.get_model(spec.name, weights=None, **{"num_classes": len(names) or USUAL, **trained, **params})
    net = loaded(bare, _file(spec, entry))
    return HubNet(net, (3, side, side), tuple(transform.mean), tuple(transform.std), (names,) if names else ())


def _models(spec: HubSpec) -> Any:
    models = needed("torchvision", "hub", str(spec)).models
    known = models.list_models(module=models)
    if spec.name not in known:
        raise UsageError(f"torchvision has no classifier {spec.name!r}; {did_you_mean(spec.name, known)}")
    return models


def _weights(spec: HubSpec) -> Any:
    """The entry of the weights that were named, else of torchvision's default."""
    known = _models(spec).get_model_weights(spec.name)
    if not spec.tag or spec.tag == "DEFAULT":
        return known.DEFAULT
    if spec.tag not in known.__members__:
        raise UsageError(
            f"torchvision:{spec.name} has no weights {spec.tag!r}; {did_you_mean(spec.tag, known.__members__)}"
        )
    return known[spec.tag]


def _file(spec: HubSpec, entry: Any) -> Path:
    """The file of the weights in torch's own cache, fetched where it is not there; read as plain weights only."""
    name = entry.url.rpartition("/")[2]
    path: Path = Path(torch.hub.get_dir()) / "checkpoints" / name
    if path.is_file():
        return path
    digest = name.removesuffix(".pth").rpartition("-")[2]
    log.info("%s: fetching %s", spec, entry.url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(entry.url, str(path), hash_prefix=digest, progress=False)
    except (OSError, RuntimeError) as error:  # nobody answered, or with another file than was promised
        raise UsageError(
            f"the weights {entry.name} of torchvision:{spec.name} are not in {path.parent} and cannot be fetched "
            f"({printable(str(error))}); look at the network, or name a file: torchvision:{spec.name}@w.safetensors"
        ) from error
    return path
