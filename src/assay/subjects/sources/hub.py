"""Models of hubs as white-box targets: the net, with its own normalisation inside, so that eps means pixels."""

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core import trust
from assay.core.cases import InputSpec
from assay.core.errors import UsageError, is_out_of_memory
from assay.subjects.bench import Data
from assay.subjects.data.view import View
from assay.subjects.sources import checkpoint, facts
from assay.subjects.sources.hub_specs import HubSpec, is_hub, parse
from assay.subjects.sources.module import Normalised, normalised

log = logging.getLogger("assay")

_FILES = {"timm": "hub_timm", "torchvision": "hub_torchvision", "hf": "hub_transformers"}
USUAL = 1000  # outputs of a net that nobody has told otherwise, in timm and torchvision
BOUNDS = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class HubNet:
    """A net of a hub: the input it was made for, the normalisation it expects, and the names of its classes.

    ``namings`` are those names, then others that mean the same classes in the same order; none where nobody named them.
    """

    net: nn.Module
    shape: tuple[int, int, int] | None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    namings: tuple[tuple[str, ...], ...] = ()


def pinned(model: Any) -> Any:
    """The same model, by a name that means one thing only: a branch or tag of a hub becomes the commit it is at."""
    if not is_hub(model):
        return model
    spec = parse(model)
    if spec.folder is None:
        trust.check(model)
    found: HubSpec = _source(spec).pinned(spec)
    return str(found)


def view_of(model: Any) -> View | None:
    """How the model's own pipeline brings images to its size, or None for one that does not say."""
    if not is_hub(model):
        return None
    spec = parse(model)
    if spec.folder is None:
        trust.check(model)
    shape = _told(spec.weights).get("shape")
    found: View | None = _source(spec).view(spec)
    if isinstance(shape, list) and len(shape) == 3 and (found is None or (*(found.size or ()),) != tuple(shape[1:])):
        return View((shape[1], shape[2]), shape[0])  # weights of ours say what they were trained for
    return found


def build(text: str, data: Data | None, mean: Sequence[float], std: Sequence[float]) -> tuple[nn.Module, InputSpec]:
    """The net behind its normalisation, and what it takes."""
    spec = parse(text)
    if spec.folder is None:
        trust.check(text)
    naming = spec.params.get("classes", "own")
    if naming not in ("own", "data"):
        raise UsageError(f"classes={naming!r} of {text!r}: own are the names of the model, data those of the data")
    told = _told(spec.weights)
    found = _made(spec, text)
    shape = _shape(told, found, data, text, warn=spec.weights is None)
    namings = (tuple(told["classes"]),) if "classes" in told else found.namings
    own = () if naming == "data" or not namings else _named_like(namings, data)
    unnamed = ("0", "1") if data is None else data.spec.classes
    if mean or std:
        log.warning("%s has a normalisation of its own, which --mean and --std replace", text)
    else:
        mean, std = (told["mean"], told["std"]) if told.get("mean") else (found.mean, found.std)
        log.info("%s: normalised inside, mean %s, std %s", text, _short(mean), _short(std))
    inputs = InputSpec(shape, BOUNDS, own or unnamed)
    net = normalised(found.net, inputs, mean, std)
    # Also where nothing is normalised: what is in front of the net takes the scores out of an object that holds them.
    return (net if isinstance(net, Normalised) else Normalised(found.net, (0.0,), (1.0,))), inputs


def outputs_in(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> int | None:
    """How many classes weights are for, seen at the tensors of a net with the usual number that differ in it only."""
    found = {
        weights[name].shape[0]
        for name, tensor in own.items()
        if name in weights
        and tensor.dim()
        and tensor.shape[0] == USUAL
        and weights[name].dim()
        and weights[name].shape[1:] == tensor.shape[1:]
        and weights[name].shape[0] != USUAL
    }
    return found.pop() if len(found) == 1 else None


def _source(spec: HubSpec) -> Any:
    """The file that knows that kind, imported when it is wanted."""
    return importlib.import_module(f"assay.subjects.sources.{_FILES[spec.scheme]}")


def _made(spec: HubSpec, text: str) -> HubNet:
    try:
        found: HubNet = _source(spec).made(spec)
    except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, AssertionError, ImportError) as error:
        if is_out_of_memory(error):
            raise
        said = "".join(str(error).splitlines()[:1])
        named = f"{type(error).__name__}: " if isinstance(error, KeyError | AttributeError) or not said else ""
        raise UsageError(f"{text} cannot be built: {named}{said}") from error
    for module in found.net.modules():
        if isinstance(getattr(module, "fused_attn", None), bool):
            setattr(module, "fused_attn", False)  # noqa: B010  the fused kernel has no second derivatives, which some recipes take
    return found


def _told(weights: Path | None) -> dict[str, Any]:
    """What a file of weights says of itself, if it is ours."""
    if weights is None:
        return {}
    told = checkpoint.read_meta(weights)
    facts.check(told, weights)
    if "shape" in told:
        facts.input_spec(told, weights)
    return told


def _shape(told: Mapping[str, Any], found: HubNet, data: Data | None, text: str, *, warn: bool) -> tuple[int, ...]:
    """The shape of inputs: as weights of ours say, else as the data are where the net takes those, else its own."""
    if "shape" in told:
        return tuple(told["shape"])
    given = None if data is None else data.spec.shape
    if found.shape is None:
        if given is None:
            raise UsageError(f"{text} does not say what inputs it takes; give the data too (data=… or --data)")
        return given
    if given is None or given == found.shape or len(given) != 3 or given[0] != found.shape[0]:
        return found.shape
    (log.warning if warn else log.info)(
        "%s was made for images of %s, the data have %s", text, _by(found.shape), _by(given)
    )
    return given


def _named_like(namings: tuple[tuple[str, ...], ...], data: Data | None) -> tuple[str, ...]:
    """The way of naming the classes in which the data name theirs, else the model's own."""
    have = set() if data is None else set(data.spec.classes)
    for names in namings if have else ():
        if have <= set(names) and len(set(names)) == len(names):
            return names
    return namings[0]


def first_words(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Names, and the first of several words that each stands for: ``tench, Tinca tinca`` is a ``tench``."""
    short = tuple(name.split(",")[0].strip() for name in names)
    return (names,) if short == names or "" in short else (names, short)


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape[1:]))


def _short(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:g}" for value in values) + ")" if values else "none"


def loaded(net: nn.Module, weights: Path) -> nn.Module:
    """The net with the weights of a file of one's own."""
    checkpoint.load_into(net, checkpoint.read(weights)[0], weights)
    return net


def sized(make: Any, weights: Path, params: Mapping[str, Any]) -> nn.Module:
    """The net that ``make`` builds with as many outputs as the file has, unless ``params`` say how many."""
    tensors, told = checkpoint.read(weights)
    count = params.get("num_classes") or (len(told["classes"]) if told.get("classes") else None)
    if count is None:
        with torch.device("meta"):
            count = outputs_in(make(USUAL).state_dict(), tensors) or USUAL
    net: nn.Module = make(count)
    checkpoint.load_into(net, tensors, weights)
    return net
