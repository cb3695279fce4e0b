"""One attack on a batch of tensors: what a notebook needs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.aims import aim
from assay.core.cases import Cases, InputSpec, check_made, inside
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.room import one_room
from assay.core.shapes import column
from assay.core.specs import steps
from assay.core.units import budget
from assay.engines.blocks import BLOCK
from assay.engines.cascade import within_rules
from assay.subjects.bench import Data
from assay.subjects.sources.black_box import is_black_box
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget, tell_of_training
from assay.subjects.target import Target, answer, require


def attack(
    name: Any,
    model: str | nn.Module | Target | Callable[..., Any],
    x: Tensor,
    y: Tensor,
    *,
    eps: str | float | None = None,
    norm: str | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
    batch: int = BLOCK,
    device: str = "auto",
    queries: int | None = None,
    ask: str = "",
) -> Cases:
    """Attack inputs ``x`` with labels ``y``: ``attack("pgd(steps=40)", net, x, y, eps=0.1)``.

    Row i of the result is the example made of ``x[i]``, with columns ``success``, ``pred`` (the answer's highest score)
    and ``size``. A row whose attack failed is its clean input, and its ``success`` is false; one that needed no attack
    is its clean input too, and ``success`` is true. It follows the attack's own criterion, so several labels
    (``criterion=every_label``) and regressions (``within``) are attacked too; targeted attacks succeed where ``y`` is
    reached. A model that only answers is sent at most ``queries`` inputs, asked as ``ask`` says.
    """
    chosen = steps(name)
    if len(chosen) != 1:
        raise UsageError(f"attack takes one attack, got {len(chosen)}; assay.evaluate takes suites")
    offered = {"eps": None if eps is None else budget(eps), "norm": norm}
    bound = bind("attack", *chosen[0], offered)
    target = _target(model, x, y, bounds, device, {"queries": queries, "ask": ask})
    low, high = target.spec.bounds
    if not x.is_floating_point() or (len(x) and not bool(inside(x, (low, high)).all())):
        raise UsageError(
            f"inputs must be floating-point numbers in [{low:g}, {high:g}]; give bounds= where they are not"
        )
    if "loss" not in bound.params and (y.dim() != 1 or y.is_floating_point()):
        raise UsageError(
            f"attack {bound.entry.name!r} takes one label a row; pgd takes several, or numbers, with loss="
        )
    require(target, bound.entry.needs, f"attack {bound.entry.name!r}")
    params = bound.params
    goal = aim("ce", params.get("criterion", "top"), bool(params.get("targeted", False)))
    chunks, keys = Chunks(batch), Stream(seed, ("attack",)).rows(torch.arange(len(x), device=target.device))
    x, y = x.to(target.device), y.to(target.device)

    def work(clean: Tensor, label: Tensor, rows: Tensor) -> Tensor:
        return check_made(bound(target, clean, label, rng=keys[rows]), clean, f"attack {bound.entry.name!r}")

    with one_room(), target.ready():
        made = chunks.map(work, x, y, torch.arange(len(x), device=target.device)) if len(x) else x
        allowed, size = within_rules(bound, made, x, target.spec.bounds)
        hit = goal.hit(answer(target, made, chunks), y) & allowed
        before = goal.hit(answer(target, x, chunks), y)
        changed = hit & ~before
        made = torch.where(column(changed, x), made, x)
        pred = answer(target, made, chunks).argmax(1)
    return Cases(made, y, torch.arange(len(x), device=x.device)).note(
        success=hit | before, pred=pred, size=torch.where(changed, size, 0.0)
    )


def _target(
    model: str | nn.Module | Target | Callable[..., Any],
    x: Tensor,
    y: Tensor,
    bounds: tuple[float, float],
    device: str,
    asking: Mapping[str, Any],
) -> Target:
    """The target; a live module needs no names for its classes here, and may be no classifier."""
    spec = InputSpec(tuple(x.shape[1:]), bounds, ())
    if isinstance(model, nn.Module) and not any(asking.values()):
        tell_of_training(model)
        return ModuleTarget(model, spec)
    # Inputs tell the shape, labels how many classes there are at least.
    if not isinstance(model, str) or is_black_box(model):
        count = int(y.max()) + 1 if y.dim() == 1 and len(y) and not y.is_floating_point() else 0
        known = replace(spec, classes=tuple(map(str, range(count))))
        return load_target(model, data=Data("the given inputs", Cases.of(x.cpu()), known), device=device, **asking)
    return load_target(model, device=device, **asking)
