"""Which weights before a cut may move when the net is tuned: the kinds of slices."""

import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.core.specs import did_you_mean
from assay.stages.joints import Joint, Joints, joints_of
from assay.stages.links import links_of
from assay.stages.masks import Slice, of_joints
from assay.subjects.cut import Cut
from assay.subjects.layers import LOGITS, SOFTMAX

__all__ = ["KINDS", "Slice", "slice_of"]

KINDS = ("units", "all", "random", "links")
TOP = 0.2  # of the units of a layer: those that react most to an input's noise count
NOISE = 8 / 255  # of the range of inputs
GREY_NOISE = 0.1


def slice_of(
    kind: str,
    module: nn.Module,
    cut: Cut,
    cases: Cases,
    spec: InputSpec,
    *,
    share: float,
    rng: Stream,
    noise: float | None = None,
    per_class: int = 1000,
    chunks: Chunks,
) -> Slice:
    """The slice of a net before a cut.

    ``units``: the ``share`` of units of each layer that react most often to noise, and the weights that join two of
    them (FMT's slice, with noise in place of the protected attribute). Noise is uniform, up to ``noise`` of the range
    of inputs either way: 8/255, for grey images 0.1; up to ``per_class`` inputs of each class are drawn. A unit is
    counted for an input where its change is among the largest 20 % of its layer.
    ``random``: as many units of each layer, drawn. ``all``: every weight before the cut. ``links``: as NNSlicer does,
    see ``stages/links.py``.

    In ``units`` and ``random`` biases of convolutions and dense layers always move, norms for kept units; weights of
    any other module (embeddings, attention, recurrent ones) stay. The first layer is joined to all inputs. At the end
    of the net (``logits``, ``softmax``) a unit is a class, and of those none is left out.
    """
    check_kind(kind)
    if not 0 < share <= 1:
        raise UsageError(f"share of units must be above 0 and at most 1, got {share}")
    if noise is not None and not 0 < noise <= 1:
        raise UsageError(f"noise must be above 0 and at most 1, as a part of the range of inputs, got {noise}")
    if per_class < 1:
        raise UsageError(f"per_class must be at least 1, got {per_class}")
    if kind == "all":
        return _all(module, cut)
    if kind == "random":
        joints = joints_of(module, cut, spec)
        return _of_units(module, joints, _drawn_scores(joints, module, rng.at("units")), share)
    rows = drawn(cases.y, len(spec.classes), per_class, rng.at("rows"))
    if not len(rows):
        raise UsageError(f"slice={kind} needs inputs to look at, and there are none; slice=all does without")
    if kind == "links":
        return links_of(module, cut, cases[rows.to(cases.y.device)], spec, chunks)
    joints = joints_of(module, cut, spec)
    noise = noise or (GREY_NOISE if spec.kind == "image" and spec.shape[0] == 1 else NOISE)
    reactions = _reactions(module, joints, cases.x, rows, spec, noise, rng.at("noise"), chunks)
    return _of_units(module, joints, reactions, share)


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"unknown slice {kind!r}; {did_you_mean(kind, KINDS)}")


def drawn(y: Tensor, classes: int, per_class: int, rng: Stream) -> Tensor:
    """Rows with up to ``per_class`` of each class, in order, on the CPU; where no row is labelled, as many as of all
    classes together.
    """
    y = y.cpu()
    mixed = torch.randperm(len(y), generator=rng.generator())
    if bool((y == UNLABELLED).all()):
        return mixed[: per_class * classes].sort().values
    mixed = mixed[y[mixed] != UNLABELLED]
    mixed = mixed[y[mixed].argsort(stable=True)]
    sizes = y[mixed].bincount()
    place = torch.arange(len(mixed)) - (sizes.cumsum(0) - sizes)[y[mixed]]
    return mixed[place < per_class].sort().values


def _all(module: nn.Module, cut: Cut) -> Slice:
    weights = dict(module.named_parameters())
    device = weights[cut.prefix[0]].device
    moves = {name: torch.ones_like(weights[name], dtype=torch.bool) for name in cut.prefix}
    return Slice(moves, torch.ones(cut.units, dtype=torch.bool, device=device))


def _drawn_scores(joints: Joints, module: nn.Module, rng: Stream) -> list[Tensor]:
    device = next(module.parameters()).device
    return [torch.rand(s.width, generator=rng.at(i).generator()).to(device) for i, s in enumerate(joints.spots)]


def _reactions(
    module: nn.Module,
    joints: Joints,
    x: Tensor,
    rows: Tensor,
    spec: InputSpec,
    noise: float,
    rng: Stream,
    chunks: Chunks,
) -> list[Tensor]:
    """For how many inputs each unit of each spot is among those that noise changes most, (width,) each."""
    device = next(module.parameters()).device
    (low, high) = spec.bounds

    def work(chosen: Tensor) -> tuple[Tensor, ...]:
        clean = x[chosen.to(x.device)].to(device)
        away = rng.rows(chosen.to(device)).uniform(spec.shape, -noise * (high - low), noise * (high - low))
        noisy = (clean + away).clamp(low, high)
        pairs = zip(joints.values(module, clean), joints.values(module, noisy), strict=True)
        return tuple(_most(one - other)[None] for one, other in pairs)

    with eval_mode(module):
        return [counts.sum(0) for counts in chunks.map_all(work, rows)]


def _most(change: Tensor) -> Tensor:
    """How many rows have each unit among the 20 % that change most, (width,); of equals the first, and a unit that
    does not change at all never counts.
    """
    change = change.abs()
    first = change.sort(dim=1, descending=True, stable=True).indices[:, : _part(TOP, change.shape[1])]
    return (torch.zeros_like(change, dtype=torch.bool).scatter_(1, first, True) & (change > 0)).sum(0)


def _part(share: float, of: int) -> int:
    return max(1, round(share * of))


def best(scores: Tensor, share: float) -> Tensor:
    """Which units are the best by their scores, (width,): a share of them, at least one, of equals the first."""
    chosen = scores.sort(descending=True, stable=True).indices[: _part(share, len(scores))]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(0, chosen, True)


def _of_units(module: nn.Module, joints: Joints, scores: list[Tensor], share: float) -> Slice:
    """The slice of the best units; of a module that runs several times, by the sum of its runs' scores."""

    def kept(spots: tuple[int, ...]) -> Tensor:
        return best(torch.stack([scores[i] for i in spots]).sum(0), share)

    end = joints.cut.layer in (LOGITS, SOFTMAX)
    answering = [joint for joint in joints.each if joint.kind != "norm"][-1:] if end else []

    def joined(joint: Joint) -> Tensor:
        out = kept(joint.out) | any(joint is one for one in answering)
        return out if joint.kind == "norm" else out[:, None] & (kept(joint.into) | joint.first)

    return of_joints(module, joints, joined, best(scores[joints.end], share) | end)
