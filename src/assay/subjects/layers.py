"""Which outputs of a net are its neurons: layers found by running it once, named by the module they are taken from.

A layer is a weighted module with the normalisation and activation that follow it directly, a pool, or what joins two
branches; the last two are ``logits`` and their ``softmax``. A neuron is a channel and its value the mean over space (of
a dense layer, a unit). This is how DeepXplore and its successors count: 52, 148 and 268 in LeNet-1, -4 and -5.
"""

import fnmatch
import hashlib
import itertools
import math
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
_FIRST = (*_CONV, *_POOL, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LocalResponseNorm)  # (N, C, ...) by contract
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
        return f"{self.asked}: {self.neurons} neurons in {len(self.each)} layer{'s' * (len(self.each) != 1)}"

    def fingerprint(self) -> str:
        told = [(x.label, x.kind, x.width, x.channels_last) for x in self.each]
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Call:
    """One run of a module, as the search for layers saw it.

    ``before`` and ``after`` are the versions of what was given when it began and of what was taken when it ended: sums
    in place (``out += identity``) leave the tensor the same and its version another.
    """

    name: str
    module: nn.Module
    taken: Tensor
    given: Tensor
    call: int
    before: int
    after: int
    last: bool = False  # whether channels are the last axis of what was taken


def layers_of(target: Target, asked: str) -> Layers:
    """The layers asked for: ``auto``, ``last``, or patterns of module names such as ``act*, block2_?, logits``."""
    if asked == "none":
        return Layers(asked, ())
    require(target, ("activation",), "looking at neurons")
    assert isinstance(target, ModuleTarget)  # nothing else gives activations
    # Outside of inference mode, in which nobody knows what was changed in place.
    with torch.inference_mode(False), torch.no_grad(), target.ready():
        # No input is like another, and none is flat: the answer is told from other layers by its values.
        x = torch.linspace(*target.spec.bounds, 2 * math.prod(target.spec.shape), device=target.device)
        x = x.view(2, *target.spec.shape)
        with _calls(body_of(target)) as calls:
            out = target(x)
    _lay_out(calls)
    usual = _usual(calls, out, len(x))
    if asked in WORDS:
        found = usual if asked == "auto" else usual[-3:-2]
        if not found:
            raise UsageError(f"this net has no layer before its logits; name layers of {_names(calls, len(x))}")
        return Layers(asked, tuple(found))
    return Layers(asked, _named(asked, calls, usual, len(x)))


def body_of(target: ModuleTarget) -> nn.Module:
    """The net behind its normalisation: names of modules are those its author gave."""
    return target.module.net if isinstance(target.module, Normalised) else target.module


@contextmanager
def _calls(net: nn.Module) -> Iterator[list[_Call]]:
    """Every run of every module, in the order in which they end; what they give is held, to be told apart."""
    calls: list[_Call] = []
    times: dict[str, int] = {}
    versions: list[int] = []  # of what the modules now running were given

    def begins(_module: nn.Module, given: Any) -> None:
        versions.append(_version(given[0]) if given else 0)

    def seen(name: str, module: nn.Module, given: Any, taken: Any) -> None:
        before, taken = versions.pop(), tensor_of(taken)
        if isinstance(taken, Tensor) and given and isinstance(given[0], Tensor):
            count = times.get(name, 0)
            calls.append(_Call(name or "net", module, taken, given[0], count, before, _version(taken)))
        times[name] = times.get(name, 0) + 1

    with ExitStack() as hooks:
        for name, module in net.named_modules():
            hooks.callback(module.register_forward_pre_hook(begins).remove)
            hook = module.register_forward_hook(lambda m, given, taken, name=name: seen(name, m, given, taken))
            hooks.callback(hook.remove)
        yield calls


def tensor_of(taken: Any) -> Any:
    """What a module gives; of several things, as a recurrent one gives, the first."""
    return taken[0] if isinstance(taken, tuple) and taken else taken


def _version(given: object) -> int:
    """How often it was changed in place; those of inference mode do not know."""
    return given._version if isinstance(given, Tensor) and not given.is_inference() else 0


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
    found: list[tuple[Layer, _Call]] = []
    for call in calls:
        kind = kind_of(call.module)
        leaf = next(call.module.children(), None) is None
        if not kind or not leaf or not _fits(call.taken, n):
            continue
        same = ((i, x) for i, (_, x) in enumerate(found) if x.taken is call.given)
        before = next((i for i, x in same if x.after == call.before), None)  # given just that, unchanged since
        if kind in ("norm", "activation") and before is not None and found[before][0].kind != "pool":
            was = found.pop(before)[0]  # the same neurons, further on
            layer = _layer(call, was.kind, weight=was.weight)
        else:
            layer = _layer(call, "merge" if kind == "activation" else kind, weight=_incoming(call.module))
        found.append((layer, call))
    head = _head([call for _, call in found], out)
    hidden = [layer for i, (layer, _) in enumerate(found) if i not in head]
    weight = next((found[i][0].weight for i in reversed(head) if found[i][0].weight is not None), None)
    width = out.shape[1]
    return [*hidden, Layer(LOGITS, "dense", width, weight=weight), Layer(SOFTMAX, "softmax", width)]


def _head(calls: list[_Call], out: Tensor) -> range:
    """Which of the calls give the answer, as neurons that would count again as logits; none where no call does.

    The last is that of the answer itself, cast or flattened, before or after a softmax that is no module; those right
    before it have the same values as well where class maps are averaged.
    """
    last = next((i for i in reversed(range(len(calls))) if _answers(calls[i], out)), None)
    if last is None:
        return range(0)
    first, values = last, [means(call.taken.float(), call.last) for call in calls[: last + 1]]
    while first and _near(values[first - 1], values[last], calls[first - 1]):
        first -= 1
    return range(first, last + 1)


def _answers(call: _Call, out: Tensor) -> bool:
    if call.taken is out:
        return True
    flat = call.taken.to(out.dtype).flatten(1)
    if flat.shape != out.shape:
        return False
    pairs = ((flat, out), (flat.log_softmax(1), out.log_softmax(1)), (flat.softmax(1), out))
    return any(_near(one, other, call) for one, other in pairs)


def _near(one: Tensor, other: Tensor, call: _Call) -> bool:
    """Whether they are the same but for rounding in the precision of the call."""
    if one.shape != other.shape:
        return False
    part = max(4 * torch.finfo(call.taken.dtype).eps, 1e-5)
    return bool((one - other).abs().amax() <= part * torch.maximum(one.abs().amax(), other.abs().amax()))


def _named(asked: str, calls: list[_Call], usual: list[Layer], n: int) -> tuple[Layer, ...]:
    """The layers whose names match the patterns, in the order in which they are run."""
    patterns = [str(part).strip() for part in split(asked)]
    known = {layer.label: layer for layer in usual}
    found: dict[str, Layer] = {}
    for call in calls:
        if _fits(call.taken, n) and any(fnmatch.fnmatchcase(call.name, p) for p in patterns):
            layer = _layer(call, kind_of(call.module) or "other", _incoming(call.module))
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


def _lay_out(calls: list[_Call]) -> None:
    """Note of each call whether channels are the last axis of what it gives, by what made it.

    What hands on, normalises or activates keeps the axes of what it is given. Where nobody knows who made that (a sum
    of branches), it is as the latest of that shape, else images are (N, C, H, W) and tokens (N, T, C).
    """
    known: dict[int, bool] = {}  # by tensor, all of which the calls hold
    shapes: dict[torch.Size, bool] = {}
    for call in calls:
        axes = call.taken.dim()
        last = _contract(call.module)
        if last is None:
            last = known.get(id(call.taken))
        if last is None and kind_of(call.module) and call.given.dim() == axes:
            last = known.get(id(call.given))
        if last is None and _of_last_axis(call.module):
            last = True
        if last is None:
            last = shapes.get(call.taken.shape, axes == 3)
        else:
            known[id(call.taken)] = shapes[call.taken.shape] = last
        call.last = last and axes > 2


def _contract(module: nn.Module) -> bool | None:
    """Whether a module puts channels last, where it always or never does."""
    if isinstance(module, nn.Linear | nn.Bilinear):
        return True
    return False if isinstance(module, _FIRST) else None


def _of_last_axis(module: nn.Module) -> bool:
    """A norm over the last axis alone; one with a forward of its own may move axes, as LayerNorm2d does."""
    plain = type(module).forward in (nn.LayerNorm.forward, nn.RMSNorm.forward)
    return plain and isinstance(module, nn.LayerNorm | nn.RMSNorm) and len(module.normalized_shape) == 1


def means(taken: Tensor, channels_last: bool) -> Tensor:
    """The mean over all axes but rows and channels, (N, C)."""
    over = range(1, taken.dim() - 1) if channels_last else range(2, taken.dim())
    return taken.mean(tuple(over)) if over else taken  # of no axis torch takes the mean of all


def _layer(call: _Call, kind: str, weight: Tensor | None) -> Layer:
    width = call.taken.shape[-1 if call.last else 1]
    if weight is not None and len(weight) != width:
        weight = None
    return Layer(call.name, kind, width, call.call, call.last, weight)


def _incoming(module: nn.Module) -> Tensor | None:
    """The mean weight that comes into each neuron of a convolution or dense layer."""
    weight = getattr(module, "weight", None)
    if kind_of(module) not in ("conv", "dense") or not isinstance(weight, Tensor) or weight.dim() < 2:
        return None
    if getattr(module, "transposed", False):
        weight = weight.transpose(0, 1)
    return weight.detach().flatten(1).mean(1).float().cpu()
