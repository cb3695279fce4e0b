"""A slice: which weights of a net may move, as masks made of the links between units that may."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.stages.joints import Joint, Joints


@dataclass(frozen=True, slots=True)
class Slice:
    """``moves`` says, by the name of each weight before the cut, which of its numbers may move: a bool mask of its
    shape; a weight without one does not move at all. ``units`` (units,) says which units of the cut layer count.
    """

    moves: Mapping[str, Tensor]
    units: Tensor

    def counts(self) -> dict[str, int]:
        """How many weights may move, of how many before the cut, and the same of the units of the cut layer."""
        return {
            "weights": int(sum(mask.sum() for mask in self.moves.values())),
            "of": sum(mask.numel() for mask in self.moves.values()),
            "units": int(self.units.sum()),
            "of_units": self.units.numel(),
        }

    @torch.no_grad()
    def put_back(self, net: nn.Module, start: Mapping[str, Tensor]) -> None:
        """Give every weight outside the slice its value in ``start`` again, bit for bit, in place."""
        for name, weight in net.named_parameters():
            old = start[name].to(weight.device)
            weight.copy_(torch.where(self.moves[name], weight, old) if name in self.moves else old)


def of_joints(module: nn.Module, joints: Joints, joined: Callable[[Joint], Tensor], units: Tensor) -> Slice:
    """The slice of links: ``joined`` gives for a convolution or dense layer (out, in) which links may move, for a norm
    (units,) which units; biases of the former always move.
    """
    weights = dict(module.named_parameters())
    moves = {name: torch.zeros_like(weights[name], dtype=torch.bool) for name in joints.cut.prefix}
    for joint in joints.each:
        links = joined(joint)
        for name, full in joint.own.items():
            if joint.kind == "norm":
                moves[full] |= _of_norm(moves[full], links)
            elif name == "bias":
                moves[full] |= True
            elif name == "weight":
                moves[full] |= of_weight(joint.module, links)
    return Slice(moves, units)


def _of_norm(mask: Tensor, units: Tensor) -> Tensor:
    """The mask of a norm's weight or bias: the units' axis is its first, or its last where that does not fit."""
    if mask.shape[:1] == units.shape:
        return units.view(-1, *([1] * (mask.dim() - 1))).expand_as(mask)
    return units.expand_as(mask) if mask.shape[-1:] == units.shape else mask


def of_weight(module: nn.Module, links: Tensor) -> Tensor:
    """The mask of a convolution's or dense layer's weight from links (out, in) between units.

    In a grouped convolution units are joined with those of their own group alone.
    """
    weight = module.weight
    assert isinstance(weight, Tensor)
    groups = int(getattr(module, "groups", 1))
    if getattr(module, "transposed", False):
        links = links.T  # the weight is (in, out / groups, ...)
    rows, columns = links.shape
    own = links.view(groups, rows // groups, groups, columns // groups)
    near = torch.arange(groups, device=links.device)
    inside = own[near, :, near].reshape(rows, columns // groups)
    return inside.view(*inside.shape, *([1] * (weight.dim() - 2))).expand_as(weight)
