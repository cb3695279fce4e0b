"""Targets by text (``lenet5@w.safetensors``, ``file.py:function@w``, ``timm:name``, ``http://…``), or live ones."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core import trust
from assay.core.cases import InputSpec
from assay.core.errors import UsageError, is_out_of_memory
from assay.core.registry import bind
from assay.core.specs import Params, Step, python_file, split, step
from assay.core.userfile import load_object
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.counted import Counted
from assay.subjects.queries import Queries
from assay.subjects.sources import checkpoint, facts
from assay.subjects.sources.asking import asking
from assay.subjects.sources.black_box import black_box, is_black_box, is_onnx
from assay.subjects.sources.hub_specs import is_hub, split_weights
from assay.subjects.sources.module import ModuleTarget, normalised, probed
from assay.subjects.sources.onnx import opened
from assay.subjects.target import Target

log = logging.getLogger("assay")


def pick_device(name: str = "auto") -> torch.device:
    """``auto`` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:1") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("this machine has no GPU that torch can use; use --device cpu")
    return device


def load_target(
    model: str | nn.Module | Target | Callable[..., Any],
    *,
    data: Data | None = None,
    device: str = "auto",
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    answers: Path | None = None,
    trust_remote_code: bool = False,
) -> Target:
    """The target behind a spec, a module or a function.

    Shape and classes come from the checkpoint if it is one of ours, else from ``data``. ``mean`` and ``std`` put a
    normalisation before a bare net. ``queries`` is a budget of inputs that may be sent and ``ask`` says how they are:
    either makes a black box of any model. ``answers`` is the file that an earlier command kept them in, which saves
    the question what such a target answers with. ``white_box`` opens an ONNX file by onnx2torch. Models of hubs that
    need code of their repository run it with ``trust_remote_code`` only.
    """
    if trust_remote_code:
        with trust.trusting_code():
            return load_target(
                model,
                data=data,
                device=device,
                mean=mean,
                std=std,
                queries=queries,
                ask=ask,
                white_box=white_box,
                answers=answers,
            )
    how = asking(ask)
    if white_box and (queries is not None or ask.strip()):
        raise UsageError("--white-box opens the model, --queries and --ask make a black box of it; leave one out")
    if isinstance(model, Asked):
        if ask.strip():
            raise UsageError("this target is asked in a way of its own already; leave ask out")
        if queries is not None:
            model.queries.limit = Queries(queries).limit
        return model
    if is_black_box(model) and not white_box:
        if mean or std:
            raise UsageError("--mean and --std are for a bare net; a target that only answers takes inputs as they are")
        return black_box(model, data, queries, how, answers)
    target = _white_box(model, data, device, mean, std, white_box)
    if queries is None and not ask.strip():
        return target
    how.refuse("a model in this process", "rate", "timeout", "retries", "classes")
    asked = Asked(target, queries=queries, repeats=how.repeats, labels=how.labels, batch=how.batch)
    log.info("target: asked as a black box, gives %s", ", ".join(sorted(asked.gives)))
    return asked


def _white_box(
    model: Any, data: Data | None, device: str, mean: Sequence[float], std: Sequence[float], white_box: bool
) -> Target:
    """A target that can be looked into: a module, one of ours by text, or an ONNX file that was asked to be opened."""
    if white_box and not is_onnx(model):
        raise UsageError("--white-box opens ONNX files; other models are white boxes already, or cannot be")
    if not isinstance(model, (str, nn.Module)):
        known: Target = model
        return known
    where = pick_device(device)
    if isinstance(model, nn.Module):
        if data is None:
            raise UsageError("a live module needs data=, which tells the shape of its inputs and its classes")
        own = next((p.device for p in model.parameters()), where)
        model = normalised(model, data.spec, mean, std).to(own)
        found = probed(model, data.spec, own, data.cases.x[:64])
        log.info("target: %s, %s, on %s", type(model).__name__, found.spec, own)
        return found
    module, spec = opened(model, data, mean, std) if white_box else _build(model, data, mean, std)
    module.eval()  # it is ours: a mode to give back is a live module's only
    target = probed(
        module.to(where), spec, where, data.cases.x[:64] if data and data.spec.shape == spec.shape else None
    )
    log.info("target: %s, %s, on %s", model, target.spec, where)
    return target


def _build(text: str, data: Data | None, mean: Sequence[float], std: Sequence[float]) -> tuple[nn.Module, InputSpec]:
    if is_hub(text):
        from assay.subjects.sources.hub import build

        return build(text, data, mean, std)
    name, at, file = text.partition("@")
    if not at and (own := python_file(name)) is not None:
        return _with_own_weights(text, own, data, mean, std)
    if name.endswith(".py"):
        weights_too = f"@{file}" if file else ""
        raise UsageError(f"{name} is a file: write {name}:FUNCTION{weights_too}, where the function returns the net")
    if not at or not file:
        raise UsageError(f"{text!r} names no weights; write {name}@weights.safetensors (assay train makes them)")
    path = Path(file)
    place = python_file(name)
    meta: Mapping[str, Any]
    weights, meta = checkpoint.read(path)
    facts.check(meta, path)
    spec = spec_of(meta, data, path)
    if place is not None:
        net = user_net(*place)
    else:
        told = (meta.get("params", {}), meta.get("model"))
        with torch.device("meta"):  # a damaged file may ask for a net of any size: look before memory is taken
            checkpoint.fitted(new_net(name, spec, *told), weights, path)
        net = new_net(name, spec, *told)
    checkpoint.load_into(net, weights, path)
    if not (mean or std):
        mean, std = meta.get("mean", ()), meta.get("std", ())
    elif meta.get("mean"):
        log.warning("%s has a normalisation of its own, which --mean and --std replace", path)
    return normalised(net, spec, mean, std), spec


def _with_own_weights(
    text: str, place: tuple[Path, str], data: Data | None, mean: Sequence[float], std: Sequence[float]
) -> tuple[nn.Module, InputSpec]:
    """A net that the user's function gives with its weights in it."""
    net = user_net(*place)
    if data is None:
        raise UsageError(f"{text} does not say what inputs it takes; give the data too (data=… or --data)")
    log.info("%s names no weights: those that the function gives the net are tested", text)
    return normalised(net, data.spec, mean, std), data.spec


def user_net(path: Path, function: str) -> nn.Module:
    """The module that a function of the user's file makes."""
    net = load_object(path, function)
    if callable(net) and not isinstance(net, nn.Module):
        try:
            net = net()
        except Exception as error:  # a user's function may raise anything
            raise UsageError(f"{path}:{function}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(net, nn.Module):
        raise UsageError(f"{path}:{function} gave {type(net).__name__}, expected a torch.nn.Module")
    return net


def new_net(text: str, spec: InputSpec, params: Mapping[str, Any], trained: str | None = None) -> nn.Module:
    """A net of the zoo for that input; ``params`` are a checkpoint's, brackets in the text come over them."""
    name, given = step(text)
    bound = bind("model", name, dict(params) | given, {"shape": spec.shape, "classes": len(spec.classes)})
    if trained is not None and trained != bound.entry.name:
        raise UsageError(f"the weights are those of a {trained}, not of a {bound.entry.name}; write {trained}@…")
    if {"shape", "classes"} & given.keys():
        raise UsageError(f"shape and classes of {name} come from the data; leave them out of {text!r}")
    try:
        net: nn.Module = bound()
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        if is_out_of_memory(error):
            raise
        reason = str(error).split("\n")[0]
        raise UsageError(f"{bound.text} cannot be built: {reason}") from error
    return net


def spec_of(meta: Mapping[str, Any], data: Data | None, path: Path) -> InputSpec:
    """The input of a net: as its checkpoint says, else as the data are."""
    if "shape" in meta:
        return facts.input_spec(meta, path)
    if data is None:
        raise UsageError(f"{path} does not say what inputs it takes; give the data too (data=… or --data)")
    return data.spec


def module_of(target: Target) -> nn.Module:
    """The module inside a target that has one."""
    if isinstance(target, Counted):
        return module_of(target.target)
    if not isinstance(target, ModuleTarget):
        raise UsageError("this needs a torch module; the target only answers")
    return target.module


def trained_with(model: str) -> tuple[Step, ...] | None:
    """The attacks a checkpoint of ours was trained with, () for none, and None where nothing is known.

    Code that only the file names is not for anybody to run: then, too, nothing is known.
    """
    told = _told_attacks(model)
    code = next((name for name, _ in map(step, told or ()) if python_file(name) is not None), None)
    if code is None:
        return told
    log.info("%s says that it was trained with %s, which is code and not run; name it: --seen", model, code)
    return None


def _told_attacks(model: str) -> tuple[Step, ...] | None:
    """The attacks that a checkpoint says it was trained with."""
    _, file = split_weights(model)
    told = checkpoint.read_meta(Path(file)).get("training", {}) if file else {}
    if not isinstance(told, dict) or not isinstance(told.get("trainer"), str):
        return None
    if "seen" in told:  # trained from weights: what these had seen, None where nobody knows, and what came after
        seen = told["seen"]
        return tuple(_seen(step(attack)) for attack in seen) if isinstance(seen, list) else None
    return tuple(attacks_in(step(told["trainer"])[1]))


def attacks_in(params: Mapping[str, Any]) -> list[tuple[str, Params]]:
    """The attacks among a stage's parameters: comma lists ``attack`` and ``attacks``, and those of its ``mutate``."""
    lists = [text for text in (params.get("attack"), params.get("attacks")) if isinstance(text, str)]
    own = [_seen(step(text)) for texts in lists for text in split(texts)]
    mutate = params.get("mutate")
    return own + (attacks_in(step(mutate)[1]) if isinstance(mutate, str) else [])


def told_seen(*parts: Iterable[Any]) -> list[list[Any]]:
    """The attacks of all parts as a checkpoint tells them, none twice."""
    told: list[list[Any]] = []
    for attack in (list(step(attack)) for part in parts for attack in part):
        told += [] if attack in told else [attack]
    return told


def seen_after(start: str, params: Mapping[str, Any]) -> list[list[Any]] | None:
    """What a checkpoint tells of the attacks it has seen that was trained from ``start`` by a trainer with ``params``.

    None where nobody knows what the start has seen.
    """
    known = _told_attacks(start)
    return None if known is None else told_seen(known, attacks_in(params))


def _seen(attack: tuple[str, Params]) -> tuple[str, Params]:
    name, params = attack
    # How far training went on after a success is not part of the attack.
    return name, {key: value for key, value in params.items() if key != "early_stop"}
