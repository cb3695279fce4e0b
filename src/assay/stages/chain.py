"""Whether a net is a chain of convolutions and dense layers, each given what the one before it gives and no more."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.stages.joints import Joint, Joints, Spot
from assay.subjects.layers import trial_of
from assay.subjects.sources.module import behind


def folded(taken: Tensor, before: Spot) -> Tensor:
    """What a layer is given (N, in) by the units of the layer before it, (N, units, places of each)."""
    n, width = len(taken), before.width
    return taken.reshape(n, -1, width).transpose(1, 2) if before.last else taken.reshape(n, width, -1)


def refuse_no_chain(module: nn.Module, before: Joints, whole: Joints, spec: InputSpec) -> None:
    """Say so where the net is no chain: ``whole`` are the joints up to its answer, ``before`` those up to a cut."""
    steps = [joint for joint in whole.each if joint.kind != "norm"]
    known = {name for joint in whole.each for name in joint.own.values()}
    if any(len(step.into) > 1 for step in steps):
        _refuse("a layer of it runs several times")
    other = next((name for name in (*whole.cut.prefix, *before.cut.prefix) if name not in known), None)
    if other is not None:
        _refuse(f"weight {other} is of another kind or apart from them")
    if not steps:
        _refuse("it has none of them")
    given, leaves = _trial(module, whole, steps, spec)
    for index, (step, tensor) in enumerate(zip([*steps, None], given, strict=True)):
        what = f"layer {next(iter(step.own.values())).rpartition('.')[0]}" if step else "the answer"
        if len(tensor) != len(leaves[0]):
            _refuse(f"{what} is not given one row for each input")
        if _touched(tensor, leaves) != [index]:
            _refuse(f"{what} is not made of what the layer before it gives alone")
        if step and index and not _keeps_units(tensor, _last(step), leaves[index], _out(whole, steps[index - 1])):
            _refuse(f"what {what} is given mixes the units of the layer before it")


def _last(step: Joint) -> bool:
    return isinstance(step.module, nn.Linear)


def _out(whole: Joints, step: Joint) -> Spot:
    return whole.spots[step.out[0]]


def _refuse(why: str) -> None:
    raise UsageError(
        f"slice=links needs a chain of convolutions and dense layers, and this net is none: {why}; slice=units works"
    )


def _trial(module: nn.Module, whole: Joints, steps: list[Joint], spec: InputSpec) -> tuple[list[Tensor], list[Tensor]]:
    """What each step is given, then the answer; and leaves of the graph of gradients to tell what these depend on: the
    inputs, then what each step gives.
    """
    given: list[Tensor] = []
    like = next(p for p in module.parameters() if p.is_floating_point())
    leaves: list[Tensor] = [trial_of(spec, like.device).to(like.dtype).requires_grad_()]
    parts = {name or "net": part for name, part in behind(module).named_modules()}

    def leave(wanted: int) -> Any:
        run = -1

        def hook(_module: nn.Module, _given: Any, out: Any) -> Any:
            nonlocal run
            run += 1
            if run != wanted or not isinstance(out, Tensor):
                return None
            leaves.append(out.detach().requires_grad_())
            return leaves[-1].clone()  # a leaf itself must not be changed in place

        return hook

    with torch.inference_mode(False), torch.enable_grad(), eval_mode(module), ExitStack() as hooks:
        for step in steps:
            spot = _out(whole, step)
            end, call = (parts[spot.name], spot.call) if spot.name else (step.module, 0)
            hooks.callback(step.module.register_forward_pre_hook(lambda _m, args: given.append(args[0])).remove)
            hooks.callback(end.register_forward_hook(leave(call)).remove)
        given.append(module(leaves[0]))
    return given, leaves


def _touched(tensor: Tensor, leaves: list[Tensor]) -> list[int]:
    """Which of the leaves a tensor depends on."""
    if not tensor.requires_grad:
        return []
    grads = torch.autograd.grad(tensor.sum(), leaves, retain_graph=True, allow_unused=True)
    return [index for index, grad in enumerate(grads) if grad is not None]


def _keeps_units(tensor: Tensor, last: bool, leaf: Tensor, before: Spot) -> bool:
    """Whether the units of what a layer is given are those of the layer before it, as ``folded`` has them.

    Then a factor on each unit here is the same factor on the gradients of that unit there.
    """
    width = tensor.shape[-1 if last else 1]
    if width % before.width:
        return False
    factors = torch.arange(1.0, before.width + 1, device=leaf.device, dtype=leaf.dtype)
    places = width // before.width
    here = factors.repeat(places) if before.last else factors.repeat_interleave(places)
    there = factors if before.last else factors.view(-1, *([1] * (leaf.dim() - 2)))
    here = here if last else here.view(-1, *([1] * (tensor.dim() - 2)))
    (plain,) = torch.autograd.grad(tensor.sum(), leaf, retain_graph=True)
    (scaled,) = torch.autograd.grad((tensor * here).sum(), leaf, retain_graph=True)
    return torch.allclose(plain * there, scaled, rtol=64 * torch.finfo(leaf.dtype).eps)
