"""One forward pass that gives both the answer of nets and the values of their neurons."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.subjects.layers import LOGITS, SOFTMAX, Layer, Layers, body_of, layers_of, means, tensor_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target


@dataclass(frozen=True, slots=True)
class Seen:
    """What nets made of inputs: ``logits`` (N, K) of the first net, ``others`` (N, nets - 1, K) of the rest, and
    ``neurons`` (N, W) of all, net after net and layer after layer.

    ``low`` and ``high`` (N, L) are the smallest and largest number of each layer's whole output, over space as well as
    channels; without columns where nobody asked for them.
    """

    logits: Tensor
    others: Tensor
    neurons: Tensor
    low: Tensor
    high: Tensor

    def __len__(self) -> int:
        return len(self.neurons)

    def __getitem__(self, rows: slice | Tensor) -> "Seen":
        return Seen(*(getattr(self, name)[rows] for name in COLUMNS))

    def detach(self) -> "Seen":
        return Seen(*(getattr(self, name).detach() for name in COLUMNS))


COLUMNS = ("logits", "others", "neurons", "low", "high")


@dataclass(frozen=True, slots=True)
class Observer:
    """Nets of one task and the layers that are looked at in each; ``ends`` asks for ``low`` and ``high``."""

    targets: tuple[Target, ...]
    layers: tuple[Layers, ...]
    ends: bool = False
    _places: tuple[tuple[tuple[nn.Module, tuple[tuple[int, Layer], ...]], ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        places = tuple(_hooked(*pair) for pair in zip(self.targets, self.layers, strict=True))
        object.__setattr__(self, "_places", places)

    @staticmethod
    def of(targets: Sequence[Target], asked: str, *, ends: bool = False) -> "Observer":
        """Over the same layers, by their names, of each net."""
        return Observer(tuple(targets), tuple(layers_of(t, asked) for t in targets), ends)

    @property
    def each(self) -> tuple[Layer, ...]:
        """The layers of all nets."""
        return tuple(layer for layers in self.layers for layer in layers.each)

    @property
    def neurons(self) -> int:
        return sum(layers.neurons for layers in self.layers)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each layer of ``each`` lies among the neurons."""
        starts = torch.tensor([0, *(layers.neurons for layers in self.layers)]).cumsum(0).tolist()
        return tuple(
            slice(start + s.start, start + s.stop)
            for start, layers in zip(starts, self.layers, strict=False)
            for s in layers.slices
        )

    def text(self) -> str:
        """What belongs beside every number that stands on these neurons; like nets are told together."""
        alike: dict[str, list[Layers]] = {}
        for layers in self.layers:
            alike.setdefault(layers.text(), []).append(layers)
        return "; ".join(text if len(nets) == 1 else _together(nets) for text, nets in alike.items())

    def __call__(self, x: Tensor) -> Seen:
        """What the nets make of a batch that fits; with gradients where they are enabled."""
        parts = [self._one(target, i, x) for i, target in enumerate(self.targets)]
        logits = [part[0] for part in parts]
        n, k = logits[0].shape
        others = torch.stack(logits[1:], 1) if len(logits) > 1 else logits[0].new_zeros(n, 0, k)
        values, lows, highs = ([value for part in parts for value in part[i]] for i in (1, 2, 3))
        bare = logits[0].new_zeros(n, 0)
        ends = (torch.stack(lows, 1), torch.stack(highs, 1)) if self.ends and lows else (bare, bare)
        return Seen(logits[0], others, torch.cat(values, 1) if values else bare, *ends)

    def all(self, x: Tensor, chunks: Chunks) -> Seen:
        """The same without gradients for any number of inputs, in chunks that fit."""
        device = self.targets[0].device

        def ask(block: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                seen = self(block.to(device))
            return tuple(getattr(seen, name) for name in COLUMNS)

        return Seen(*chunks.map_all(ask, x))

    def _one(self, target: Target, place: int, x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        width = len(self.layers[place].each)
        values: list[Tensor | None] = [None] * width
        ends: list[tuple[Tensor, Tensor] | None] = [None] * width

        def keep(index: int, layer: Layer, taken: Tensor) -> None:
            values[index] = _neurons(layer, taken, len(x))
            if self.ends:
                flat = taken.detach().float().flatten(1)
                ends[index] = (flat.amin(1), flat.amax(1))  # on a CPU ten times as fast as aminmax of rows

        with ExitStack() as hooks:
            for module, wanted in self._places[place]:
                hooks.callback(module.register_forward_hook(_hook(wanted, keep)).remove)
            logits = target(x)
        for index, layer in enumerate(self.layers[place].each):
            if layer.name in (LOGITS, SOFTMAX):
                keep(index, layer, logits if layer.name == LOGITS else logits.softmax(1))
        lost = [layer.label for layer, value in zip(self.layers[place].each, values, strict=True) if value is None]
        if lost:
            raise UsageError(f"the net did not run its layer {lost[0]} this time; name layers that it always runs")
        lows, highs = ([pair[i] for pair in ends if pair is not None] for i in (0, 1))
        return logits, [v for v in values if v is not None], lows, highs


def _together(nets: list[Layers]) -> str:
    whole = Layers(nets[0].asked, tuple(layer for layers in nets for layer in layers.each))
    return f"{whole.text()} of {len(nets)} nets"


def _hooked(target: Target, layers: Layers) -> tuple[tuple[nn.Module, tuple[tuple[int, Layer], ...]], ...]:
    """The modules to listen to, each with the layers taken from its calls."""
    if not layers.each:
        return ()
    assert isinstance(target, ModuleTarget)  # layers_of has seen to it
    modules = {name or "net": module for name, module in body_of(target).named_modules()}
    wanted: dict[str, list[tuple[int, Layer]]] = {}
    for index, layer in enumerate(layers.each):
        if layer.name not in (LOGITS, SOFTMAX):
            wanted.setdefault(layer.name, []).append((index, layer))
    return tuple((modules[name], tuple(found)) for name, found in wanted.items())


def _hook(wanted: tuple[tuple[int, Layer], ...], keep: Callable[[int, Layer, Tensor], None]) -> Callable[..., None]:
    calls = 0

    def seen(_module: nn.Module, _given: object, taken: Tensor) -> None:
        nonlocal calls
        for index, layer in wanted:
            if layer.call == calls:
                keep(index, layer, tensor_of(taken))
        calls += 1

    return seen


def _neurons(layer: Layer, taken: Tensor, n: int) -> Tensor:
    """One number a neuron: the mean over all but rows and channels."""
    if len(taken) != n:
        raise UsageError(f"layer {layer.label} answered {len(taken)} rows for {n} inputs; leave it out")
    if taken.dtype in (torch.bfloat16, torch.float16):
        taken = taken.float()
    elif taken.dim() == 2:
        taken = taken.clone()  # as it is now: what comes next may change it in place
    return means(taken, layer.channels_last)
