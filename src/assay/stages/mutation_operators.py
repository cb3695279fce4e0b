"""What makes a mutant of a net: small random changes of its weights, as DeepMutation and Wang et al. 2019 make them.

An operator draws a difference: for some weights, named as parameters of the net, which of their numbers (flat) become
what. All is drawn on the CPU, so that every device gives the same mutant.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

Difference = Mapping[str, tuple[Tensor, Tensor]]  # flat indices (m,) int64 and their new values (m,)
SWITCHED = 10  # a layer with fewer neurons is left out of the neuron switch


@dataclass(frozen=True, slots=True)
class Weighted:
    """A convolution or dense layer: its weight and bias on the CPU, flat, and where each neuron has its weights.

    Those that come into neuron i lie at ``starts[i] + offsets``.
    """

    name: str  # of the weight, as a parameter of the net
    weight: Tensor
    bias_name: str
    bias: Tensor | None
    starts: Tensor
    offsets: Tensor

    @property
    def neurons(self) -> int:
        return len(self.starts)

    def incoming(self, neurons: Tensor) -> Tensor:
        """The flat indices of the weights that come into the neurons, (n, fan in)."""
        return self.starts[neurons, None] + self.offsets


def weighted(net: nn.Module) -> tuple[Weighted, ...]:
    """The convolutions and dense layers of a net in the order in which it defines them; shared weights come once.

    Normalisations are left alone, and so is a weight that is computed from others (``torch.nn.utils.parametrize``).
    """
    found: list[Weighted] = []
    seen: set[int] = set()
    for name, module in net.named_modules():
        weight = module._parameters.get("weight")
        if not isinstance(module, nn.Linear | _ConvNd) or weight is None or id(weight) in seen:
            continue
        seen.add(id(weight))
        bias, before = module._parameters.get("bias"), f"{name}." if name else ""
        flat = None if bias is None else bias.detach().cpu()
        found.append(
            Weighted(
                f"{before}weight", weight.detach().cpu().flatten(), f"{before}bias", flat, *_places(module, weight)
            )
        )
    return tuple(found)


def _places(module: nn.Module, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Where the weights of each neuron start, and where they lie from there on."""
    if not getattr(module, "transposed", False):
        fan = math.prod(weight.shape[1:])
        return torch.arange(len(weight)) * fan, torch.arange(fan)
    # A transposed convolution is (in, out / groups, ...), the inputs of each group one after the other.
    groups = int(module.groups)  # type: ignore[arg-type]
    inputs, out, area = len(weight) // groups, weight.shape[1], math.prod(weight.shape[2:])
    group, own = torch.arange(groups)[:, None], torch.arange(out)
    starts = (group * inputs * out + own) * area
    return starts.flatten(), (torch.arange(inputs)[:, None] * out * area + torch.arange(area)).flatten()


def _share(rate: float, total: int) -> int:
    """How many of ``total`` things the rate draws: one at least."""
    return min(total, max(1, round(rate * total)))


def gf_size(layers: Sequence[Weighted], rate: float) -> int:
    return _share(rate, sum(layer.weight.numel() for layer in layers))


def gf(layers: Sequence[Weighted], rate: float, rng: torch.Generator) -> Difference:
    """Gaussian fuzzing: a share of all weights, each drawn anew around itself, as spread as the weights of its layer.

    Paper (the code of Wang et al. 2019): around the mean of the layer. Here: around the weight, as in DeepMutation,
    because a layer's mean says nothing about the weight that it would replace.
    """
    ends = torch.tensor([0, *(layer.weight.numel() for layer in layers)]).cumsum(0)
    chosen = torch.randperm(int(ends[-1]), generator=rng)[: gf_size(layers, rate)].sort().values
    noise = torch.randn(len(chosen), generator=rng, dtype=torch.float64)
    cuts = torch.searchsorted(chosen, ends).tolist()
    made: dict[str, tuple[Tensor, Tensor]] = {}
    for layer, begin, start, stop in zip(layers, ends.tolist(), cuts, cuts[1:], strict=False):
        index = chosen[start:stop] - begin
        if len(index):
            spread = layer.weight.double().std(correction=0)
            moved = layer.weight[index].double() + spread * noise[start:stop]
            made[layer.name] = (index, moved.to(layer.weight.dtype))
    return made


def neurons_size(layers: Sequence[Weighted], rate: float) -> int:
    total = sum(layer.neurons for layer in layers[:-1])
    return _share(rate, total) if total else 0


def _drawn_neurons(layers: Sequence[Weighted], rate: float, rng: torch.Generator) -> list[tuple[Weighted, Tensor]]:
    """A share of all neurons but those of the last layer: changing these would swap classes outright."""
    ends = torch.tensor([0, *(layer.neurons for layer in layers[:-1])]).cumsum(0)
    chosen = torch.randperm(int(ends[-1]), generator=rng)[: neurons_size(layers, rate)].sort().values
    cuts = torch.searchsorted(chosen, ends).tolist()
    parts = zip(layers, ends.tolist(), cuts, cuts[1:], strict=False)
    return [(layer, chosen[start:stop] - begin) for layer, begin, start, stop in parts if stop > start]


def nai(layers: Sequence[Weighted], rate: float, rng: torch.Generator) -> Difference:
    """Neuron activation inverse: a share of all neurons with their incoming weights and bias negated."""
    made: dict[str, tuple[Tensor, Tensor]] = {}
    for layer, neurons in _drawn_neurons(layers, rate, rng):
        index = layer.incoming(neurons).flatten()
        made[layer.name] = (index, -layer.weight[index])
        if layer.bias is not None:
            made[layer.bias_name] = (neurons, -layer.bias[neurons])
    return made


def ws(layers: Sequence[Weighted], rate: float, rng: torch.Generator) -> Difference:
    """Weight shuffling: a share of all neurons, the incoming weights of each shuffled among themselves."""
    made: dict[str, tuple[Tensor, Tensor]] = {}
    for layer, neurons in _drawn_neurons(layers, rate, rng):
        index = layer.incoming(neurons)
        order = torch.rand(index.shape, generator=rng).argsort(1)
        made[layer.name] = (index.flatten(), layer.weight[index.gather(1, order)].flatten())
    return made


def _switched(layer: Weighted, rate: float) -> int:
    """How many neurons of a layer are switched: the share rounded down if above 2, else up, and 2 at least."""
    if layer.neurons < SWITCHED:
        return 0
    part = rate * layer.neurons
    return min(layer.neurons, max(2, math.floor(part) if part > 2 else math.ceil(part)))


def _odds(layer: Weighted, rate: float) -> float:
    """How likely a layer takes part: always, unless the rate asks for less than half a neuron of it."""
    return min(1.0, 2 * rate * layer.neurons) if layer.neurons >= SWITCHED else 0.0


def ns_size(layers: Sequence[Weighted], rate: float) -> float:
    expected = sum(_odds(layer, rate) * _switched(layer, rate) for layer in layers[:-1])
    return max(2.0, expected) if expected else 0.0


def ns(layers: Sequence[Weighted], rate: float, rng: torch.Generator) -> Difference:
    """Neuron switch: in each layer but the last a share of the neurons, each with the weights and bias of another.

    Paper (the code of Wang et al. 2019): weights are permuted at random and biases stay. Here: they go round in a
    random circle, so that none stays where it was, and the bias goes along, because it belongs to the neuron. A layer
    of which the rate asks for less than half a neuron takes part by lot, and one does at least: two neurons of each of
    twenty layers are too much for any rate.
    """
    made: dict[str, tuple[Tensor, Tensor]] = {}
    wide = [layer for layer in layers[:-1] if layer.neurons >= SWITCHED]
    lots = torch.rand(len(wide), generator=rng)
    odds = torch.tensor([_odds(layer, rate) for layer in wide])
    chosen = (lots < odds) | (torch.arange(len(wide)) == (lots / odds).argmin()) if wide else lots.bool()
    for layer, takes_part in zip(wide, chosen.tolist(), strict=True):
        if not takes_part:
            continue
        neurons = torch.randperm(layer.neurons, generator=rng)[: _switched(layer, rate)]
        others = neurons.roll(1)
        made[layer.name] = (layer.incoming(neurons).flatten(), layer.weight[layer.incoming(others)].flatten())
        if layer.bias is not None:
            made[layer.bias_name] = (neurons, layer.bias[others])
    return made


@dataclass(frozen=True, slots=True)
class Operator:
    """How a difference is drawn, and how many weights or neurons it changes at a rate; 0 where it cannot be used."""

    draw: Callable[[Sequence[Weighted], float, torch.Generator], Difference]
    size: Callable[[Sequence[Weighted], float], float]
    wants: str  # what a net must have


OPERATORS: dict[str, Operator] = {
    "gf": Operator(gf, gf_size, "a convolution or dense layer"),
    "nai": Operator(nai, neurons_size, "two convolution or dense layers: the last is left alone"),
    "ns": Operator(ns, ns_size, f"a layer with {SWITCHED} or more neurons before the last one"),
    "ws": Operator(ws, neurons_size, "two convolution or dense layers: the last is left alone"),
}
