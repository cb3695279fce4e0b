"""The slice of links: which links between units carry the classes, after NNSlicer (Zhang et al. 2020).

How far units are from their means over all inputs is followed backward from the unit of a class. The value of a link
from unit j to unit i is contribution(i) · away(i) · weight(i, j) · away(j). Of the links into a unit the 5 % with the
lowest value are cut. The contribution of j is the value of its link in the last layer, and below it the sum of the
signs of its links' values. Units are channels, and the weight between two of them is the sum over the kernel.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.stages.chain import folded, refuse_no_chain
from assay.stages.joints import Joint, Joints, joints_of
from assay.stages.masks import Slice, of_joints
from assay.subjects.cut import Cut, cut_of
from assay.subjects.layers import LOGITS
from assay.subjects.sources.module import ModuleTarget

CUT = 0.05  # of the links into a unit


@dataclass(frozen=True, slots=True)
class Step:
    """A layer of a chain: ``weight`` (out, in) between its units, ``real`` which of these links there are."""

    joint: Joint
    weight: Tensor
    real: Tensor


def links_of(module: nn.Module, cut: Cut, cases: Cases, spec: InputSpec, chunks: Chunks) -> Slice:
    """The slice of links of a chain of convolutions and dense layers, refused for any other net.

    Paper: a slice for each class; how they are joined is not found. Here: a link is cut where every class cuts it,
    because one tuning serves all classes. The public code looks at one input of a class; here it is the mean over all
    that are given. Biases always move, norms for units that a kept link leads to; such units of the cut layer count.
    """
    cases = cases[cases.y != UNLABELLED]
    if not len(cases):
        raise UsageError("slice=links goes from class to class, and no input has a label; slice=units needs none")
    device = next(module.parameters()).device
    before, whole = chain_of(module, cut, spec)
    steps = [_step(joint) for joint in whole.each if joint.kind != "norm"]
    with eval_mode(module):
        kept = _kept(module, whole, steps, cases, chunks)
    links = {id(step.joint.module): own for step, own in zip(steps, kept, strict=True)}
    reached = links | _of_norms(whole, links)
    last = [joint for joint in before.each if joint.kind != "norm"][-1:]
    units = links[id(last[0].module)].any(1) if last else torch.ones(cut.units, dtype=torch.bool, device=device)
    return of_joints(module, before, lambda joint: reached[id(joint.module)], _wide(units, cut.units))


def chain_of(module: nn.Module, cut: Cut, spec: InputSpec) -> tuple[Joints, Joints]:
    """The joints before the cut and those of the whole net, refused where it is no chain."""
    device = next(module.parameters()).device
    before = joints_of(module, cut, spec)
    whole = joints_of(module, cut_of(ModuleTarget(module, spec, device), LOGITS), spec)  # links lead back from classes
    refuse_no_chain(module, before, whole, spec)
    return before, whole


def _step(joint: Joint) -> Step:
    weight, groups = joint.module.weight, int(getattr(joint.module, "groups", 1))
    assert isinstance(weight, Tensor)
    own = weight.detach().double().flatten(2).sum(2) if weight.dim() > 2 else weight.detach().double()
    rows, columns = own.shape
    near = torch.arange(groups, device=own.device)
    full = own.new_zeros(groups, rows // groups, groups, columns)
    real = torch.zeros_like(full, dtype=torch.bool)
    full[near, :, near] = own.view(groups, rows // groups, columns)
    real[near, :, near] = True
    full, real = full.view(rows, -1), real.view(rows, -1)
    return Step(joint, full.T, real.T) if getattr(joint.module, "transposed", False) else Step(joint, full, real)


def _kept(module: nn.Module, whole: Joints, steps: list[Step], cases: Cases, chunks: Chunks) -> list[Tensor]:
    """Which links of each step some class keeps, (out, in) each."""
    device = next(module.parameters()).device

    def values(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(value.double() for value in whole.values(module, x.to(device)))

    def totals(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(value.sum(0, keepdim=True) for value in values(x))

    means = [part.sum(0) / len(cases) for part in chunks.map_all(totals, cases.x)]
    kept = [torch.zeros_like(step.real) for step in steps]
    for group in cases.y.unique().tolist():
        own = chunks.map_all(values, cases.x[cases.y == group])
        away = [value - mean for value, mean in zip(own, means, strict=True)]
        for mine, found in zip(kept, _of_class(whole, steps, away, group), strict=True):
            mine |= found
    return kept


def _of_class(whole: Joints, steps: list[Step], away: list[Tensor], group: int) -> list[Tensor]:
    """The links that one class keeps: those that lead to its unit and are not cut, (out, in) each."""
    contribution = torch.zeros_like(away[whole.end])
    contribution[:, group] = 1
    led = contribution[:1].bool().squeeze(0)  # units from which a kept link leads on
    kept: list[Tensor] = []
    for index in reversed(range(len(steps))):
        step = steps[index]
        (into,), (out,) = step.joint.into, step.joint.out
        drive, given = contribution * away[out], away[into]
        value = step.weight * (drive.T @ given) / len(given)
        own = step.real & ~_lowest(value, step.real) & led[:, None]
        if index == len(steps) - 1:
            contribution = (drive @ (step.weight * own)) * given
        else:
            contribution = given.sign() * (drive.sign() @ (step.weight.sign() * own))
        led = own.any(0)
        if index:
            before = whole.spots[steps[index - 1].joint.out[0]]
            contribution, led = folded(contribution, before).sum(2), folded(led[None], before).any(2).squeeze(0)
        kept.insert(0, own)
    return kept


def _lowest(value: Tensor, real: Tensor) -> Tensor:
    """Which links are the 5 % of the lowest value into their unit, rounded down; of equals the first."""
    count = int(CUT * int(real[0].sum()) + 1e-9)  # as many lead into every unit
    chosen = value.masked_fill(~real, torch.inf).sort(dim=1, stable=True).indices[:, :count]
    return torch.zeros_like(real).scatter_(1, chosen, True)


def _of_norms(whole: Joints, links: dict[int, Tensor]) -> dict[int, Tensor]:
    """Which units of each norm a kept link leads to: those of the layer before it; all where that is of other units."""
    found: dict[int, Tensor] = {}
    units: Tensor | None = None
    for joint in whole.each:
        if joint.kind != "norm":
            units = links[id(joint.module)].any(1)
            continue
        width = whole.spots[joint.out[0]].width
        device = next(joint.module.parameters()).device
        everything = torch.ones(width, dtype=torch.bool, device=device)
        found[id(joint.module)] = units if units is not None and len(units) == width else everything
    return found


def _wide(units: Tensor, width: int) -> Tensor:
    """The units of a layer as those of the cut behind it: the same, or each of them several times where it is flat."""
    if len(units) == width:
        return units
    return units.repeat_interleave(width // len(units)) if width % len(units) == 0 else units.new_ones(width)
