"""Units that learn nothing any more: a rectifier whose input is negative for every case has no slope, and stays so."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.losses import smoothed
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.stages.trainers.ranks import Ranks

SAME = 1e-4  # of the spread of the answers, by which they may differ where a unit was dead indeed
Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


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
    average: Mapping[str, Tensor],
    ranks: Ranks,
    rng: Stream,
    some: Callable[[], tuple[Tensor, Tensor]],
) -> None:
    """Begin dead units of a net in training anew; the running average of its weights, where there is one, goes along.

    ``some`` gives cases to go by and their classes; where several ranks train together, rank 0 goes by its own for all.
    """

    def work() -> list[tuple[str, Any, Tensor]]:
        begun = [place for dead in revive(net, *some(), rng) for place in dead.places(net)]
        return [(name, rows, net.get_parameter(name).detach()[rows].cpu()) for name, rows in begun]

    for name, rows, values in ranks.told(work):
        weight = net.get_parameter(name)
        weight.detach()[rows] = values.to(weight)
        for kept in optimiser.state.get(weight, {}).values():
            if isinstance(kept, Tensor) and kept.shape == weight.shape:
                kept[rows] = 0  # what the optimiser knows is of other weights
        if average:
            average[name][rows] = values.to(weight)


def revive(net: nn.Module, x: Tensor, y: Tensor, rng: Stream) -> list[Dead]:
    """Begin the units of a net anew that learn from none of these cases, and tell which they are.

    What comes in has fresh weights, what goes out is nought: so the net answers as before, and they learn again (Sokar
    et al. 2023). A layer is left as it is where that does not hold, as the one after it is not the one that it feeds.
    """
    layers = {name: part for name, part in net.named_modules() if isinstance(part, Layer) and _whole(part)}
    begun = []
    with eval_mode(net):
        dead = _unmoved(net, list(layers.values()), x, y)
        for (name, layer), (after, fed), rows in zip(layers.items(), list(layers.items())[1:], dead, strict=False):
            each, rest = divmod(fed.weight.shape[1], len(layer.weight))  # a map feeds so many inputs of a dense layer
            if not rows or rest or (each > 1 and not isinstance(fed, nn.Linear)):
                continue
            one = Dead(name, after, rows, each)
            if _answers_stay(net, one, x, rng):
                begun.append(one)
    return begun


@torch.no_grad()
def _begin(net: nn.Module, dead: Dead, x: Tensor, rng: Stream) -> None:
    """Give these units fresh weights, and none to who asks them. A bias is such that half of what comes is above it:
    behind rectifiers nothing is negative, and a third of all units that begin as usual would be dead at once.
    """
    layer, fresh = net.get_submodule(dead.layer), copy.deepcopy(net.get_submodule(dead.layer)).cpu()
    assert isinstance(layer, Layer)
    assert isinstance(fresh, Layer)
    with torch.random.fork_rng([]):
        torch.manual_seed(rng.at(dead.layer).generator().initial_seed())
        fresh.reset_parameters()
    layer.weight[dead.rows] = fresh.weight[dead.rows].to(layer.weight)
    net.get_parameter(f"{dead.after}.weight")[:, dead.columns] = 0
    if layer.bias is not None:
        out: list[Tensor] = []
        last = isinstance(layer, nn.Linear)  # the axis of the units; of a convolution it is the second
        hook = layer.register_forward_hook(lambda _layer, _x, y: out.append(y if last else y.movedim(1, -1)))
        layer.bias[dead.rows] = 0
        net(x)
        hook.remove()
        layer.bias[dead.rows] = -out[-1].flatten(0, -2).mean(0)[dead.rows].to(layer.bias)


def _whole(layer: Layer) -> bool:
    return getattr(layer, "groups", 1) == 1 and layer.weight.requires_grad


def _unmoved(net: nn.Module, layers: Sequence[Layer], x: Tensor, y: Tensor) -> list[list[int]]:
    """Of each layer the rows whose weights no case pulls at; none of one that is not asked at all."""
    weights = [layer.weight.requires_grad_() for layer in layers]
    with torch.enable_grad():
        loss = smoothed(net(x), y, 0.1).sum()  # soft labels: what is answered with all certainty pulls, too
        slopes = torch.autograd.grad(loss, weights, allow_unused=True)
    still = [
        [] if slope is None else (slope.flatten(1).abs().amax(1) == 0).nonzero()[:, 0].tolist() for slope in slopes
    ]
    return [rows if len(rows) < len(weight) else [] for rows, weight in zip(still, weights, strict=True)]


@torch.no_grad()
def _answers_stay(net: nn.Module, dead: Dead, x: Tensor, rng: Stream) -> bool:
    """Whether these units could begin anew without a change of what the net answers; if not, they are as before."""
    parts = [net.get_submodule(name) for name in (dead.layer, dead.after)]
    before, kept = net(x), [copy.deepcopy(part.state_dict()) for part in parts]
    _begin(net, dead, x, rng)
    if bool((net(x) - before).abs().amax() <= SAME * before.std()):
        return True
    for part, was in zip(parts, kept, strict=True):
        part.load_state_dict(was)
    return False
