"""Which units the weights before a cut join, and how strongly these react: found by running the net with hooks.

A unit is a channel, its value the mean over space (of a dense layer, a unit). What comes into a module is looked at on
the tensor that it is given, and what goes out where the module's block ends, after its norm and activation. So residual
sums, concatenations and flattening need no graph of the net.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.modes import eval_mode
from assay.subjects.cut import Cut, placed
from assay.subjects.kinds import kind_of
from assay.subjects.layers import LOGITS, SOFTMAX, Layer, labelled, layers_of, means, tensor_of, trial_of
from assay.subjects.sources.module import ModuleTarget, behind

ANSWER = ""  # the name of the spot that is the cut's own output


@dataclass(frozen=True, slots=True)
class Spot:
    """A tensor whose channels are units: what module ``name`` is given, or gives, in its run number ``call``."""

    name: str
    call: int
    given: bool
    last: bool
    width: int


@dataclass(frozen=True, slots=True)
class Joint:
    """A convolution, dense layer or norm before the cut. ``own`` are its weights, by their names in it, with their
    names in the whole module; ``into`` and ``out`` the spots of its runs, ``into`` empty for a norm. A ``first`` one is
    given what no convolution or dense layer has touched.
    """

    module: nn.Module
    kind: str
    own: Mapping[str, str]
    into: tuple[int, ...]
    out: tuple[int, ...]
    first: bool


@dataclass(frozen=True, slots=True)
class Joints:
    """All joints of a net before a cut, in the order they are run; ``end`` is the spot of the cut."""

    cut: Cut
    end: int
    spots: tuple[Spot, ...]
    each: tuple[Joint, ...]

    def values(self, module: nn.Module, x: Tensor) -> list[Tensor]:
        """The values of the units of every spot, (rows, width) each, without gradients; rows are the inputs but in a
        module that is given something else, such as windows of images.
        """
        taken: dict[int, Tensor] = {}

        def keep(index: int, tensor: Tensor) -> None:
            taken[index] = _units(tensor, self.spots[index].last)

        with torch.no_grad(), ExitStack() as hooks:
            modules = {name or "net": m for name, m in behind(module).named_modules()}
            for name in {spot.name for spot in self.spots} - {ANSWER}:
                mine = [(i, spot) for i, spot in enumerate(self.spots) if spot.name == name]
                for side, hook in _hooks(modules[name], mine, keep):
                    hooks.callback(side(hook).remove)
            out = self.cut.output(module, x)
        for index, spot in enumerate(self.spots):
            if spot.name == ANSWER:
                keep(index, out)
        return [taken[index] for index in range(len(self.spots))]


def _units(tensor: Tensor, last: bool) -> Tensor:
    tensor = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
    # Of two axes the mean is the tensor itself, which a later module may write over.
    return means(tensor, last) if tensor.dim() > 2 else tensor.clone()


Hook = Callable[..., None]


def _hooks(
    module: nn.Module, mine: list[tuple[int, Spot]], keep: Callable[[int, Tensor], None]
) -> list[tuple[Callable[[Hook], Any], Hook]]:
    """How to hook on to a module, and with what, to keep its spots."""
    begun = ended = 0

    def begins(_module: nn.Module, given: Any) -> None:
        nonlocal begun
        for index, spot in mine:
            if spot.given and spot.call == begun:
                keep(index, given[0])
        begun += 1

    def ends(_module: nn.Module, _given: Any, out: Any) -> None:
        nonlocal ended
        for index, spot in mine:
            if not spot.given and spot.call == ended:
                keep(index, tensor_of(out))
        ended += 1

    return [(module.register_forward_pre_hook, begins), (module.register_forward_hook, ends)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A tensor in a trial run: ``version`` says how often it had been changed in place by then, and ``met`` whether a
    weight of a convolution or dense layer had had a part in it.
    """

    tensor: Tensor
    version: int
    met: bool

    @staticmethod
    def of(tensor: Tensor) -> "_Seen":
        return _Seen(tensor, tensor._version, tensor.requires_grad)

    def width(self, last: bool) -> int:
        return int(self.tensor.shape[-1 if last else 1]) if self.tensor.dim() > 1 else 0


def joints_of(module: nn.Module, cut: Cut, spec: InputSpec) -> Joints:
    """The joints of a net before a cut, found by one run."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    blocks = layers_of(ModuleTarget(module, spec, device), "auto").each
    given, taken = _trial(module, cut, trial_of(spec, device))
    known = _Spots(cut, blocks, given, taken)
    parts = {name or "net": part for name, part in behind(module).named_modules()}
    each: list[Joint] = []
    for name in dict.fromkeys(placed(label)[0] for label in taken):
        part = parts[name]
        kind, own = _joins(part), _own(module, part, cut)
        if not kind or not own:
            continue
        runs = [label for label in taken if placed(label)[0] == name]
        last = _last_axis(part)
        into = tuple(known.at(given, label, last) for label in runs if kind != "norm")
        out = tuple(known.out_of(label, last) for label in runs)
        each.append(Joint(part, kind, own, into, out, not any(given[label].met for label in runs)))
    return Joints(cut, known.end(), tuple(known.spots), tuple(each))


class _Spots:
    """The spots of a net, each tensor once: ``given`` and ``taken`` hold those of a trial run by label."""

    def __init__(
        self, cut: Cut, blocks: tuple[Layer, ...], given: Mapping[str, _Seen], taken: Mapping[str, _Seen]
    ) -> None:
        self.cut, self.given, self.taken = cut, given, taken
        self.blocks = {part: layer for layer in blocks for part in layer.parts}
        self.spots: list[Spot] = []
        self._known: dict[object, int] = {}

    def at(self, side: Mapping[str, _Seen], label: str, last: bool) -> int:
        seen = side[label]
        last = last and seen.tensor.dim() > 2
        key = (id(seen.tensor), seen.version, last)  # the tensors are held, so their ids tell them apart
        return self._one(key, Spot(*placed(label), side is self.given, last, seen.width(last)))

    def out_of(self, label: str, last: bool) -> int:
        """Where the block of a module ends, or the run does: at the cut."""
        layer = self.blocks.get(label)
        if layer and layer.name == LOGITS and self._whole:
            return self.end()
        width = self.taken[label].width(last)
        for part in reversed(layer.parts[layer.parts.index(label) :]) if layer else ():
            if layer and part in self.taken and self.taken[part].width(layer.channels_last) == width:
                return self.at(self.taken, part, layer.channels_last)
        return self.at(self.taken, label, last)

    def end(self) -> int:
        if self._whole:
            return self._one(ANSWER, Spot(ANSWER, 0, False, self.cut.channels_last, self.cut.units))
        return self.at(self.taken, labelled(*placed(self.cut.layer)), self.cut.channels_last)

    @property
    def _whole(self) -> bool:
        return self.cut.layer in (LOGITS, SOFTMAX)

    def _one(self, key: object, spot: Spot) -> int:
        if key not in self._known:
            self._known[key] = len(self.spots)
            self.spots.append(spot)
        return self._known[key]


def _joins(module: nn.Module) -> str:
    """conv, dense or norm; '' for modules whose weights join no units, or in a way of their own."""
    if isinstance(module, nn.Bilinear):
        return ""
    kind = kind_of(module)
    return kind if kind in ("conv", "dense", "norm") else ""


def _last_axis(module: nn.Module) -> bool:
    """Whether the channels are the last axis of what a module is given and gives."""
    return isinstance(module, nn.Linear | nn.LayerNorm | nn.RMSNorm)


def _own(module: nn.Module, part: nn.Module, cut: Cut) -> dict[str, str]:
    """The weights of a module that lie before the cut, by their names in it, with their names in the whole."""
    names = {id(weight): name for name, weight in module.named_parameters()}
    prefix = set(cut.prefix)
    own = {name: names[id(weight)] for name, weight in part.named_parameters(recurse=False)}
    return {name: full for name, full in own.items() if full in prefix}


def _trial(module: nn.Module, cut: Cut, x: Tensor) -> tuple[dict[str, _Seen], dict[str, _Seen]]:
    """What each run of a module was given and gave, up to the cut.

    Weights of convolutions and dense layers ask for gradients meanwhile: what needs none has not met any of them.
    """
    given: dict[str, _Seen] = {}
    taken: dict[str, _Seen] = {}
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}

    def begins(name: str, args: Any) -> None:
        if args and isinstance(args[0], Tensor):
            given[labelled(name, begun.get(name, 0))] = _Seen.of(args[0])
        begun[name] = begun.get(name, 0) + 1

    def ends(name: str, out: Any) -> None:
        label, out = labelled(name, ended.get(name, 0)), tensor_of(out)
        if label in given and isinstance(out, Tensor):
            taken[label] = _Seen.of(out)
        ended[name] = ended.get(name, 0) + 1

    with torch.inference_mode(False), torch.enable_grad(), eval_mode(module), ExitStack() as hooks:
        for name, part in behind(module).named_modules():
            if kind_of(part) in ("conv", "dense"):
                for weight in part.parameters(recurse=False):
                    weight.requires_grad_(weight.is_floating_point())
            own = name or "net"
            hooks.callback(part.register_forward_pre_hook(lambda _m, a, own=own: begins(own, a)).remove)
            hooks.callback(part.register_forward_hook(lambda _m, _a, out, own=own: ends(own, out)).remove)
        cut.output(module, x)
    return given, taken
