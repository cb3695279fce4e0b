"""The same net in low precision: a copy of its own, whose numbers are rounded as that precision would."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.core.randomness import Rows
from assay.core.specs import did_you_mean
from assay.subjects.sources.folded import folded
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
PRECISIONS = (*HALVES, "int8")


def rounded(target: Target, precision: str) -> Callable[[Tensor], Tensor]:
    """What the net would answer in ``precision``, without gradients; the target is left alone.

    ``float16``, ``bfloat16``: weights, inputs and the result of every operation are rounded, sums are taken in the
    net's own precision, as GPUs take them. Kernels in half precision would do on a GPU; on a CPU those of float16 are
    slow and depend on the machine. What one operation of
    torch does inside (attention, a scripted module) is rounded once, at its end.
    ``int8``: weights are rounded to 255 steps, symmetric for each output channel; the rest is as it was.

    Batch normalisations are folded first, as for deployment, so that a net and its folded twin get the same copy.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}; {did_you_mean(precision, PRECISIONS)}")
    if not isinstance(target, ModuleTarget):
        raise UsageError("a copy in low precision needs the net itself, and this target only answers")
    net = _copied(target)
    dtype = next((p.dtype for p in net.parameters() if p.is_floating_point()), torch.float32)
    if precision == "int8":
        _quantise(net)
        return _Answers(net, dtype, None)
    half = HALVES[precision]
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(tensor.to(half))
    return _Answers(net, dtype, half)


def _copied(target: ModuleTarget) -> nn.Module:
    low, high = target.spec.bounds
    sample = Rows(torch.arange(64)).uniform(target.spec.shape, low, high)
    net = folded(target, sample)
    with eval_mode(net.module):
        try:
            return copy.deepcopy(net.module)
        except Exception as error:
            first = str(error).split("\n")[0]
            raise UsageError(f"this net cannot be copied, and low precision needs a copy of it: {first}") from error


class _Answers:
    """The copy, asked in chunks of the caller's choice."""

    def __init__(self, net: nn.Module, dtype: torch.dtype, half: torch.dtype | None) -> None:
        self.net, self.dtype, self.half = net, dtype, half

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        with torch.no_grad():
            if self.half is None:
                out: Tensor = self.net(x)
            else:
                with _Rounding(self.half):
                    out = self.net(x.to(self.half).to(self.dtype))
        return out.float() if out.dtype in HALVES.values() else out


class _Rounding(TorchFunctionMode):
    """Rounds what every function of torch returns, in place: what was made of rounded numbers by a view is rounded."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self.half = half

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self._round(out)
        return out

    def _round(self, out: Any) -> None:
        if isinstance(out, (tuple, list)):
            for part in out:
                self._round(part)
        elif isinstance(out, Mapping):
            self._round(list(out.values()))
        elif isinstance(out, Tensor) and out.is_floating_point() and not out._is_view() and 0 not in out.stride():
            out.copy_(out.to(self.half))


def _quantise(net: nn.Module) -> None:
    """Weights in 255 steps, in place; biases and whatever else has one axis stay."""
    with torch.no_grad():
        for module in net.modules():
            axis = 1 if isinstance(module, nn.modules.conv._ConvTransposeNd) else 0
            for weight in module.parameters(recurse=False):
                if weight.dim() < 2 or not weight.is_floating_point():
                    continue
                rest = [d for d in range(weight.dim()) if d != axis]
                step = weight.abs().amax(rest, keepdim=True) / 127
                weight.copy_(torch.where(step > 0, (weight / step).round() * step, weight))
