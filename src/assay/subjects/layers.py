"""Which outputs of a net are its neurons: layers found by running it once, named by the module they are taken from.

A layer is a weighted module with the normalisation and activation that follow it directly, a pool, or what joins two
branches; the last two are ``logits`` and their ``softmax``. A neuron is a channel and its value the mean over space (of
a dense layer, a unit). This is how DeepXplore and its successors count: 52, 148 and 268 in LeNet-1, -4 and -5.
"""

import fnmatch
import hashlib
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, split
from assay.subjects.sources.module import ModuleTarget, Normalised
from assay.subjects.target import Target, require

LOGITS, SOFTMAX = "logits", "softmax"  # taken from the answer, whatever module gives it
WORDS = ("auto", "last", "none")  # all of the above, the last layer before the logits, nothing but the answer

_CONV = (nn.modules.conv._ConvNd,)
_NORM = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_POOL = tuple(getattr(nn, name) for name in dir(nn) if "Pool" in name and name[-2:] in ("1d", "2d", "3d"))
_ACTIVATION = tuple(getattr(nn, name) for name in nn.modules.activation.__all__ if name not in ("MultiheadAttention",))
_SILENT = (nn.Flatten, nn.Unflatten, nn.Identity, nn.modules.dropout._DropoutNd)  # they hand on what they get


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: ``name`` and ``call`` say which output of which module; ``kind`` is conv, dense, pool, norm, activation,
    merge, softmax or other; ``weight`` the mean incoming weight of each neuron, where it has weights.
    """

    name: str
    kind: str
    width: int
    call: int = 0
    channels_last: bool = False
    weight: Tensor | None = None

    @property
    def label(self) -> str:
        return f"{self.name}#{self.call + 1}" if self.call else self.name


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one net, in the order they are run."""

    asked: str
    each: tuple[Layer, ...]

    @property
    def neurons(self) -> int:
        return sum(layer.width for layer in self.each)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each layer lies among the neurons."""
        ends = torch.tensor([0, *(layer.width for layer in self.each)]).cumsum(0).tolist()
        return tuple(slice(*pair) for pair in itertools.pairwise(ends))

    def text(self) -> str:
        """What belongs beside every number that stands on these neurons."""
        return f"{self.asked}: {self.neurons} neurons in {len(self.each)} layers"

    def fingerprint(self) -> str:
        return hashlib.sha256(repr([(x.label, x.kind, x.width) for x in self.each]).encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Call:
    """One run of a module, as the search for layers saw it."""

    name: str
    module: nn.Module
    taken: Tensor
    given: Tensor
    call: int


def layers_of(target: Target, asked: str) -> Layers:
    """The layers asked for: ``auto``, ``last``, or patterns of module names such as ``act*, block2_?, logits``."""
    if asked == "none":
        return Layers(asked, ())
    require(target, ("activation",), "looking at neurons")
    assert isinstance(target, ModuleTarget)  # nothing else gives activations
    with torch.no_grad(), target.ready():
        x = torch.full((2, *target.spec.shape), sum(target.spec.bounds) / 2, device=target.device)
        with _calls(body_of(target)) as calls:
            out = target(x)
    usual = _usual(calls, out, len(x))
    if asked in WORDS:
        found = usual if asked == "auto" else usual[-3:-2]
        if not found:
            raise UsageError(f"this net has no layer before its logits; name layers of {_names(calls, len(x))}")
        return Layers(asked, tuple(found))
    return Layers(asked, _named(asked, calls, usual, out, len(x)))


def body_of(target: ModuleTarget) -> nn.Module:
    """The net behind its normalisation: names of modules are those its author gave."""
    return target.module.net if isinstance(target.module, Normalised) else target.module


@contextmanager
def _calls(net: nn.Module) -> Iterator[list[_Call]]:
    """Every run of every module, in the order in which they end; what they give is held, to be told apart."""
    calls: list[_Call] = []
    times: dict[str, int] = {}

    def seen(name: str, module: nn.Module, given: Any, taken: Any) -> None:
        if isinstance(taken, Tensor) and given and isinstance(given[0], Tensor):
            calls.append(_Call(name or "net", module, taken, given[0], times.get(name, 0)))
        times[name] = times.get(name, 0) + 1

    with ExitStack() as hooks:
        for name, module in net.named_modules():
            hook = module.register_forward_hook(lambda m, given, taken, name=name: seen(name, m, given, taken))
            hooks.callback(hook.remove)
        yield calls


def kind_of(module: nn.Module) -> str:
    """What sort of layer a module is; '' where it hands on what it gets."""
    for kind, types in (("conv", _CONV), ("dense", (nn.Linear, nn.Bilinear)), ("pool", _POOL), ("norm", _NORM)):
        if isinstance(module, types):
            return kind
    if isinstance(module, _ACTIVATION):
        return "activation"
    weighted = any(True for _ in module.parameters(recurse=False))
    return "" if isinstance(module, _SILENT) or not weighted else "other"


def _usual(calls: list[_Call], out: Tensor, n: int) -> list[Layer]:
    """The layers of ``auto`` with the logits before the softmax."""
    found: list[tuple[Layer, Tensor]] = []
    for call in calls:
        kind = kind_of(call.module)
        leaf = next(call.module.children(), None) is None
        if not kind or not leaf or not _fits(call.taken, n):
            continue
        before = next((i for i, (_, taken) in enumerate(found) if taken is call.given), None)
        if kind in ("norm", "activation") and before is not None and found[before][0].kind != "pool":
            was = found.pop(before)[0]  # the same neurons, further on
            layer = _layer(call, was.kind, weight=was.weight, last=was.channels_last)
        else:
            kind = "merge" if kind == "activation" else kind
            layer = _layer(call, kind, weight=_incoming(call.module), last=_channels_last(call))
        found.append((layer, call.taken))
    hidden = [layer for layer, taken in found if taken is not out]
    weight = next((layer.weight for layer, taken in found if taken is out), None)
    width = out.shape[1]
    return [*hidden, Layer(LOGITS, "dense", width, weight=weight), Layer(SOFTMAX, "softmax", width)]


def _named(asked: str, calls: list[_Call], usual: list[Layer], out: Tensor, n: int) -> tuple[Layer, ...]:
    """The layers whose names match the patterns, in the order in which they are run."""
    patterns = [str(part).strip() for part in split(asked)]
    known = {layer.label: layer for layer in usual}
    found: dict[str, Layer] = {}
    for call in calls:
        layer = _layer(call, kind_of(call.module) or "other", _incoming(call.module), _channels_last(call))
        if _fits(call.taken, n) and any(fnmatch.fnmatchcase(call.name, p) for p in patterns):
            found[layer.label] = known.get(layer.label, layer)
    found |= {name: known[name] for name in (LOGITS, SOFTMAX) if any(fnmatch.fnmatchcase(name, p) for p in patterns)}
    lost = [p for p in patterns if not any(fnmatch.fnmatchcase(layer.name, p) for layer in found.values())]
    if lost or not found:
        first = lost[0] if lost else asked
        names = [*_names(calls, n), LOGITS, SOFTMAX]
        raise UsageError(f"no layer is called {first!r}; {did_you_mean(first, names)}")
    return tuple(found.values())


def _names(calls: list[_Call], n: int) -> list[str]:
    return list(dict.fromkeys(call.name for call in calls if _fits(call.taken, n)))


def _fits(taken: Tensor, n: int) -> bool:
    """Whether it holds a row of numbers for each input."""
    return taken.dim() >= 2 and len(taken) == n and taken.is_floating_point()


def _channels_last(call: _Call) -> bool:
    """Whether the channels are the last axis, as in what is neither image nor signal: (rows, tokens, channels)."""
    signal = (*_CONV, *_POOL, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LocalResponseNorm)
    return call.taken.dim() == 3 and not isinstance(call.module, signal)


def _layer(call: _Call, kind: str, weight: Tensor | None, last: bool) -> Layer:
    width = call.taken.shape[-1 if last else 1]
    if weight is not None and len(weight) != width:
        weight = None
    return Layer(call.name, kind, width, call.call, last, weight)


def _incoming(module: nn.Module) -> Tensor | None:
    """The mean weight that comes into each neuron of a convolution or dense layer."""
    weight = getattr(module, "weight", None)
    if kind_of(module) not in ("conv", "dense") or not isinstance(weight, Tensor) or weight.dim() < 2:
        return None
    if getattr(module, "transposed", False):
        weight = weight.transpose(0, 1)
    return weight.detach().flatten(1).mean(1).float().cpu()
