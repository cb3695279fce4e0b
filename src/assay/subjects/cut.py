"""A net cut after a layer: what the layer gives, the weights it depends on, and the net before it as a model to tune.

The cut is made by hooks, so it works on any module that runs as Python; nothing is traced and nothing copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.core.specs import did_you_mean
from assay.subjects.layers import LOGITS, SOFTMAX, Layer, body_of, layers_of, tensor_of, trial_of
from assay.subjects.sources.module import ModuleTarget, behind

FEW = 3  # dense layers that may follow the last convolution of a convolutional net; transformers have more


class _Reached(BaseException):
    """The layer has run. No ``Exception``: a net that guards its own steps must not catch it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a net is cut. ``layer`` is named as a person does: ``act5_3``, ``block#2`` (its second run), ``logits``,
    ``softmax``; ``units`` are the channels of what it gives, its last axis where ``channels_last``, else that after
    the rows; ``prefix`` are the names, in ``module.named_parameters()``, of the weights that it depends on.
    """

    layer: str
    units: int
    channels_last: bool
    prefix: tuple[str, ...]

    def output(self, module: nn.Module, x: Tensor) -> Tensor:
        """What the layer gives for inputs, (N, ...), with gradients where they are enabled; no later layer is run.

        ``module`` is the whole net, normalisation included, in whatever mode it is. A net in half precision is given
        inputs in its own, and the answer is single.
        """
        dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), x.dtype)
        return _single(_taken(module, self.layer, x.to(dtype)))


def _single(out: Tensor) -> Tensor:
    return out.float() if out.dtype in (torch.bfloat16, torch.float16) else out


def _taken(module: nn.Module, layer: str, x: Tensor) -> Tensor:
    if layer in (LOGITS, SOFTMAX):
        logits: Tensor = module(x)
        return logits if layer == LOGITS else _single(logits).softmax(1)
    name, call = placed(layer)
    taken: list[Any] = []
    runs = 0
    token = object()  # of this very run: one cut may be asked inside of another

    def stop(_module: nn.Module, _given: object, out: Any) -> None:
        nonlocal runs
        runs += 1
        if runs == call + 1:
            taken.append(tensor_of(out))
            raise _Reached(token)

    hook = _named(module, name).register_forward_hook(stop)
    try:
        module(x)
    except _Reached as reached:
        if reached.args != (token,):
            raise
    finally:
        hook.remove()
    if not taken:
        raise UsageError(f"the net did not run its layer {layer} this time; name a layer that it always runs")
    out: Tensor = taken[0]
    return out


def placed(layer: str) -> tuple[str, int]:
    """The module that a layer is taken from, and which of its runs, counted from 0.

    >>> placed("block#2"), placed("act5_3")
    (('block', 1), ('act5_3', 0))
    """
    name, mark, run = layer.rpartition("#")
    return (name, int(run) - 1) if mark and run.isdigit() else (layer, 0)


def _named(module: nn.Module, name: str) -> nn.Module:
    found: dict[str, nn.Module] = {own or "net": m for own, m in behind(module).named_modules()}
    if name not in found:
        raise UsageError(f"no layer is called {name!r}; {did_you_mean(name, found)}")
    return found[name]


def cut_of(target: ModuleTarget, layer: str = "auto") -> Cut:
    """The net cut after a layer.

    ``last`` is the layer before the logits. ``auto`` is the last convolution with the norm and activation behind it, or
    the sum of branches that comes right after those. Without convolutions, or with more than three dense layers after
    the last one, as in a transformer, it is the last but two of the dense layers, the answer counted; of fewer the
    first.
    """
    _refuse_closed(target.module, layer)
    found = _auto(target) if layer == "auto" else _asked(target, layer)
    runs = len(_runs(target, found.name))
    label = f"{found.name}#{found.call + 1}" if runs > 1 else found.name
    return Cut(label, found.width, found.channels_last, _prefix(target, label))


def _refuse_closed(module: nn.Module, layer: str) -> None:
    """Scripted and compiled nets run without asking their modules, so nobody sees what a layer gives."""
    parts = list(module.modules())
    if any(isinstance(part, torch.jit.ScriptModule) for part in parts):
        raise UsageError("a net from torch.jit cannot be cut, its layers do not show what they give; give a plain one")
    compiled = any(hasattr(part, "_orig_mod") or part._compiled_call_impl is not None for part in parts)
    if compiled and layer not in (LOGITS, SOFTMAX):
        raise UsageError(
            "a net from torch.compile cannot be cut, its layers do not show what they give; give the net as it was "
            "before (its attribute _orig_mod), or cut at logits"
        )


def _auto(target: ModuleTarget) -> Layer:
    *hidden, logits, _ = layers_of(target, "auto").each
    convs = [i for i, layer in enumerate(hidden) if layer.kind == "conv"]
    last = convs[-1] if convs else -1
    dense = [layer for layer in (*hidden[last + 1 :], logits) if layer.kind == "dense"]
    if convs and len(dense) <= FEW:
        after = hidden[last + 1 : last + 2]
        return after[0] if after and after[0].kind == "merge" else hidden[last]
    dense = [layer for layer in (*hidden, logits) if layer.kind == "dense"]
    if len(dense) > 1:
        return dense[max(0, len(dense) - 3)]
    others = [layer for layer in hidden if layer.kind == "other"]  # recurrent ones, say
    if not others:
        raise UsageError("this net has no hidden layer to cut after; layer=logits works")
    return others[-1]


def _asked(target: ModuleTarget, layer: str) -> Layer:
    """The layer of that name, refused where it does not say which or gives nothing to learn from."""
    if layer in (LOGITS, SOFTMAX):
        return next(one for one in layers_of(target, "auto").each if one.name == layer)
    if layer == "last":
        return layers_of(target, layer).each[0]
    names = {name or "net": module for name, module in body_of(target).named_modules()}
    name, call = (layer, 0) if layer in names else placed(layer)
    if name not in names:
        raise UsageError(f"no layer is called {name!r}; {did_you_mean(name, [*names, LOGITS, SOFTMAX])}")
    runs = _runs(target, name)
    if not runs:
        raise UsageError(f"layer {name} never ran when the net did; name a layer that it runs")
    if len(runs) > 1 and "#" not in layer:
        raise UsageError(f"layer {name} runs {len(runs)} times; say which: {name}#1 to {name}#{len(runs)}")
    if not 0 <= call < len(runs):
        raise UsageError(f"layer {name} runs {len(runs)} times, there is no {layer}")
    out = runs[call]
    if not isinstance(out, Tensor) or out.dim() < 2 or len(out) != 2 or not out.is_floating_point():
        what = f"{out.dtype} {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise UsageError(f"layer {layer} gives {what} for 2 inputs; a cut needs a row of floating-point numbers each")
    return next(one for one in layers_of(target, name).each if (one.name, one.call) == (name, call))


def _runs(target: ModuleTarget, name: str) -> list[Any]:
    """What a module gave each time that it ran."""
    if name in (LOGITS, SOFTMAX):
        return [None]
    taken: list[Any] = []
    hook = _named(target.module, name).register_forward_hook(lambda _m, _given, out: taken.append(tensor_of(out)))
    try:
        with torch.no_grad():
            target(trial_of(target.spec, target.device))
    finally:
        hook.remove()
    return taken


def _prefix(target: ModuleTarget, layer: str) -> tuple[str, ...]:
    """The names of the weights that the layer's output depends on, as gradients show; frozen ones count too."""
    module = target.module
    weights = {name: w for name, w in module.named_parameters() if w.is_floating_point()}
    with torch.inference_mode(False), torch.enable_grad(), eval_mode(module):
        for weight in weights.values():
            weight.requires_grad_(True)
        x = trial_of(target.spec, target.device)
        dtype = next((w.dtype for w in weights.values()), x.dtype)
        out = _taken(module, layer, x.to(dtype))
        if not out.requires_grad:
            raise UsageError(
                f"no weight leads to layer {layer}: nothing before it has any, or its output carries no gradients "
                "(is it under torch.no_grad, or detached?); name a layer that weights lead to"
            )
        grads = torch.autograd.grad(out.float().sum(), tuple(weights.values()), allow_unused=True)
    return tuple(name for name, grad in zip(weights, grads, strict=True) if grad is not None)


class Regression(nn.Module):
    """The net up to a cut, whose answer is the layer's output. Its weights are the net's own: what is tuned here is
    tuned in the net.

    Its ``parameters()`` are those of the prefix alone. In training mode modules that hold buffers stay as in
    evaluation: statistics of norms neither change nor come from the batch. What comes after the cut is never run.
    """

    def __init__(self, net: nn.Module, cut: Cut) -> None:
        super().__init__()
        self.net, self.cut = net, cut

    def forward(self, x: Tensor) -> Tensor:
        return self.cut.output(self.net, x)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """The weights that the layer depends on; none of them is this module's own, which no ``recurse`` asks for."""
        known = set(self.cut.prefix)
        for name, weight in self.net.named_parameters("", recurse, remove_duplicate) if recurse else ():
            if name in known:
                yield f"{prefix}.net.{name}" if prefix else f"net.{name}", weight

    def train(self, mode: bool = True) -> "Regression":
        super().train(mode)
        for module in self.net.modules():
            if any(True for _ in module.buffers(recurse=False)):
                module.training = False
        return self
