"""Units that learn nothing any more: a rectifier whose input is negative for every case has no slope, and stays so."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.core import passes
from assay.core.losses import smoothed
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.stages.trainers.ranks import Ranks

SAME = 1e-4  # of the spread of the answers, by which they may differ where a unit was dead indeed
Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
Part = tuple[Tensor, Tensor]  # some cases and their classes


@dataclass(frozen=True, slots=True)
class Dead:
    """Units of a layer, the layer that they feed, and how many of its inputs each does."""

    layer: str
    after: str
    rows: list[int]
    each: int

    @property
    def columns(self) -> list[int]:
        """The inputs of the layer after it that they are."""
        return [row * self.each + i for row in self.rows for i in range(self.each)]

    def places(self, net: nn.Module) -> list[tuple[str, Any]]:
        """The weights that belong to them: names, and where in each."""
        own = [f"{self.layer}.{name}" for name, _ in net.get_submodule(self.layer).named_parameters(recurse=False)]
        return [*((name, self.rows) for name in own), (f"{self.after}.weight", (slice(None), self.columns))]


def revived(
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: dict[str, Tensor],
    ranks: Ranks,
    rng: Stream,
    some: Callable[[], Sequence[Part]],
) -> None:
    """Begin dead units of a net in training anew; the running average of its weights goes along where they are dead
    there, too: one that died lately still works in it, and leaves it as averages are left.

    ``some`` gives cases to go by and their classes; where several ranks train together, rank 0 goes by its own for all.
    """

    def work() -> list[tuple[str, Any, Tensor, bool]]:
        parts, weights, found = some(), dict(average), []
        for dead in reversed(revive(net, parts, rng)):  # what units feed comes before them: it may be fresh, too
            fresh = [(name, at, net.get_parameter(name).detach()[at].cpu()) for name, at in dead.places(net)]
            changed = _changed(weights, fresh)
            along = bool(average) and _would_stay(net, weights, changed, parts)
            weights = changed if along else weights
            found += [(*one, along) for one in fresh]
        return found

    for name, at, values, along in ranks.told(work):
        weight = net.get_parameter(name)
        weight.detach()[at] = values.to(weight)
        for kept in optimiser.state.get(weight, {}).values():
            if isinstance(kept, Tensor) and kept.shape == weight.shape:
                kept[at] = 0  # what the optimiser knows is of other weights
        if along:
            average[name][at] = values.to(weight)


def revive(net: nn.Module, parts: Sequence[Part], rng: Stream) -> list[Dead]:
    """Begin the units of a net anew that learn from none of these cases, and tell which they are.

    What comes in has fresh weights, what goes out is nought: so the net answers as before, and they learn again (Sokar
    et al. 2023). A layer is left as it is where that does not hold, as the one after it is not the one that it feeds,
    and one without a bias: what normalises behind it would keep it dead.
    """
    layers = [(name, layer) for name, layer in net.named_modules() if _whole(layer)]
    begun = []
    with eval_mode(net):
        dead = _unmoved(net, [layer for _, layer in layers], parts) if len(layers) > 1 else []
        for (name, layer), (after, fed), rows in zip(layers, layers[1:], dead, strict=False):
            each, rest = divmod(fed.weight.shape[1], len(layer.weight))  # a map feeds so many inputs of a dense layer
            if not rows or layer.bias is None or rest or (each > 1 and not isinstance(fed, nn.Linear)):
                continue
            one = Dead(name, after, rows, each)
            if _could_begin(net, one, parts, rng):
                begun.append(one)
    return begun


def _whole(layer: nn.Module) -> TypeGuard[Layer]:
    """A layer whose weights are its own to learn: not made of others, as where they are normalised, and not kept."""
    own = layer._parameters.get("weight")
    return isinstance(layer, Layer) and getattr(layer, "groups", 1) == 1 and own is not None and own.requires_grad


def _unmoved(net: nn.Module, layers: Sequence[Layer], parts: Sequence[Part]) -> list[list[int]]:
    """Of each layer the rows whose weights no case pulls at; none of one that is not asked at all."""
    weights = [layer.weight.requires_grad_() for layer in layers]
    pulled = [torch.zeros(len(weight), dtype=torch.bool, device=weight.device) for weight in weights]
    asked = [False] * len(weights)
    for x, y in parts:
        with torch.enable_grad():
            loss = smoothed(net(x), y, 0.1).sum()  # soft labels: what is answered with all certainty pulls, too
            slopes = (
                torch.autograd.grad(loss, weights, allow_unused=True) if loss.requires_grad else [None] * len(asked)
            )
        passes.note(forward=len(x), gradient=len(x))
        for i, slope in enumerate(slopes):
            if slope is not None:
                asked[i] = True
                pulled[i] |= slope.flatten(1).abs().amax(1) > 0
    return [_still(rows) if known else [] for rows, known in zip(pulled, asked, strict=True)]


def _still(pulled: Tensor) -> list[int]:
    """The rows that are not; none where all are not, which says something of the net and not of its units."""
    rows: list[int] = (~pulled).nonzero()[:, 0].tolist()
    return rows if len(rows) < len(pulled) else []


@torch.no_grad()
def _could_begin(net: nn.Module, dead: Dead, parts: Sequence[Part], rng: Stream) -> bool:
    """Whether these units began anew without a change of what the net answers; if not, they are as before."""
    layers = [net.get_submodule(name) for name in (dead.layer, dead.after)]
    before, kept = _answers(net, parts), [copy.deepcopy(layer.state_dict()) for layer in layers]
    stays = False
    try:
        stays = _begin(net, dead, parts, rng) and _alike(before, _answers(net, parts))
    finally:
        for layer, was in zip(layers, kept, strict=True) if not stays else ():
            layer.load_state_dict(was)
    return stays


def _begin(net: nn.Module, dead: Dead, parts: Sequence[Part], rng: Stream) -> bool:
    """Give these units fresh weights, and no weight to what they answer. A bias is such that about half of what comes
    is above nought: behind rectifiers nothing is negative, and a third of units that begin as usual are dead at once.

    Not done where the layer is not asked as a layer.
    """
    layer, fresh = net.get_submodule(dead.layer), copy.deepcopy(net.get_submodule(dead.layer)).cpu()
    assert isinstance(layer, Layer)
    assert isinstance(fresh, Layer)
    assert layer.bias is not None
    with torch.random.fork_rng([layer.weight.device] if layer.weight.is_cuda else []):
        torch.manual_seed(rng.at(dead.layer).generator().initial_seed())
        fresh.reset_parameters()
    layer.weight[dead.rows] = fresh.weight[dead.rows].to(layer.weight)
    layer.bias[dead.rows] = 0
    net.get_parameter(f"{dead.after}.weight")[:, dead.columns] = 0
    means: list[Tensor] = []
    last = isinstance(layer, nn.Linear)  # the axis of the units; of a convolution it is the second

    def note(_layer: nn.Module, _x: object, out: Tensor) -> None:
        means.append((out if last else out.movedim(1, -1)).flatten(0, -2).mean(0))

    hook = layer.register_forward_hook(note)
    try:
        _answers(net, parts)
    finally:
        hook.remove()
    if means:
        layer.bias[dead.rows] = -torch.stack(means).mean(0)[dead.rows].to(layer.bias)
    return bool(means)


def _changed(weights: Mapping[str, Tensor], fresh: Sequence[tuple[str, Any, Tensor]]) -> dict[str, Tensor]:
    """These weights with fresh ones in their places; none where there are none."""
    changed = dict(weights)
    for name, at, values in fresh if weights else ():
        changed[name] = changed[name].clone()
        changed[name][at] = values.to(changed[name])
    return changed


@torch.no_grad()
def _would_stay(
    net: nn.Module, weights: Mapping[str, Tensor], changed: Mapping[str, Tensor], parts: Sequence[Part]
) -> bool:
    """Whether the net answers the same with these weights and with those."""
    with eval_mode(net):
        return _alike(_answers(net, parts, weights), _answers(net, parts, changed))


def _answers(net: nn.Module, parts: Sequence[Part], weights: Mapping[str, Tensor] | None = None) -> Tensor:
    asked = [
        net(x) if weights is None else functional_call(net, dict(weights), (x,), tie_weights=False) for x, _ in parts
    ]
    passes.note(forward=sum(map(len, asked)))
    return torch.cat(asked)


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().amax() <= SAME * one.std())
