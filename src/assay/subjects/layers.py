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

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, split
from assay.subjects.kinds import channels_last, kind_of, mean_incoming, norms_last_axis
from assay.subjects.sources.module import ModuleTarget, behind
from assay.subjects.target import Target, require

LOGITS, SOFTMAX = "logits", "softmax"  # taken from the answer, whatever module gives it
WORDS = ("auto", "last", "none")  # all of the above, the last layer before the logits, nothing but the answer


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: ``name`` and ``call`` say which output of which module; ``kind`` is conv, dense, pool, norm, activation,
    merge, softmax or other; ``weight`` the mean incoming weight of each neuron, where it has weights.

    ``parts`` are the labels of the modules that it is made of, from the one that gives it its weights to the last.
    """

    name: str
    kind: str
    width: int
    call: int = 0
    channels_last: bool = False
    weight: Tensor | None = None
    parts: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return labelled(self.name, self.call)


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


def labelled(name: str, call: int) -> str:
    """How a person writes which run of a module is meant: ``act``, ``act#2``."""
    return f"{name}#{call + 1}" if call else name


def layers_of(target: Target, asked: str) -> Layers:
    """The layers asked for: ``auto``, ``last``, or patterns of module names such as ``act*, block2_?, logits``."""
    if asked == "none":
        return Layers(asked, ())
    require(target, ("activation",), "looking at neurons")
    assert isinstance(target, ModuleTarget)  # nothing else gives activations
    # Outside of inference mode, in which nobody knows what was changed in place.
    with torch.inference_mode(False), torch.no_grad(), target.ready():
        x = trial_of(target.spec, target.device)
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


def trial_of(spec: InputSpec, device: torch.device) -> Tensor:
    """Two inputs to run a net with; none is flat or like the other: its answer is told from layers by the values."""
    return torch.linspace(*spec.bounds, 2 * math.prod(spec.shape), device=device).view(2, *spec.shape)


def body_of(target: ModuleTarget) -> nn.Module:
    """The target's net behind its normalisation."""
    return behind(target.module)


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
            layer = _layer(call, was.kind, was.weight, was.parts)
        else:
            layer = _layer(call, "merge" if kind == "activation" else kind, mean_incoming(call.module))
        found.append((layer, call))
    head = _head([call for _, call in found], out)
    hidden = [layer for i, (layer, _) in enumerate(found) if i not in head]
    weight = next((found[i][0].weight for i in reversed(head) if found[i][0].weight is not None), None)
    parts = tuple(part for i in head for part in found[i][0].parts)
    width = out.shape[1]
    return [*hidden, Layer(LOGITS, "dense", width, weight=weight, parts=parts), Layer(SOFTMAX, "softmax", width)]


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
            layer = _layer(call, kind_of(call.module) or "other", mean_incoming(call.module))
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
        last = channels_last(call.module)
        if last is None:
            last = known.get(id(call.taken))
        if last is None and kind_of(call.module) and call.given.dim() == axes:
            last = known.get(id(call.given))
        if last is None and norms_last_axis(call.module):
            last = True
        if last is None:
            last = shapes.get(call.taken.shape, axes == 3)
        else:
            known[id(call.taken)] = shapes[call.taken.shape] = last
        call.last = last and axes > 2


def means(taken: Tensor, channels_last: bool) -> Tensor:
    """The mean over all axes but rows and channels, (N, C)."""
    over = range(1, taken.dim() - 1) if channels_last else range(2, taken.dim())
    return taken.mean(tuple(over)) if over else taken  # of no axis torch takes the mean of all


def _layer(call: _Call, kind: str, weight: Tensor | None, parts: tuple[str, ...] = ()) -> Layer:
    width = call.taken.shape[-1 if call.last else 1]
    if weight is not None and len(weight) != width:
        weight = None
    parts = (*parts, labelled(call.name, call.call))
    return Layer(call.name, kind, width, call.call, call.last, weight, parts)
