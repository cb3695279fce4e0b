"""Checks of whether net and data fit each other."""

import torch
from torch import Tensor

from assay.core.registry import register
from assay.core.stats import wilson
from assay.engines.checks.look import Look

GAIN = 0.2  # accuracy that another reading of the inputs must gain at least


@register("check")
def bad_clean_accuracy(look: Look) -> str | None:
    """Clean accuracy is near chance, or below what another reading of the labels would give."""
    clean, classes = look.facts.clean, len(look.target.spec.classes)
    better = _off_by(look) or _renamed(look) or _always_one(look)
    if better is not None:
        return f"clean accuracy is {clean.accuracy:.3f}, and {better}"
    if clean.accuracy < (0.6 if classes == 2 else min(0.5, 3 / classes)):
        return (
            f"clean accuracy is {clean.accuracy:.3f}, near chance: the labels, the class order or the "
            "normalisation may not fit this net, so its robustness says little"
        )
    return None


@register("check")
def wrong_range(look: Look) -> str | None:
    """The net answers much better when the inputs are scaled or shifted."""
    n = len(look.sample)
    if not look.white_box or len(look.right) > (1 - GAIN) * n or _off_by(look) or _renamed(look):
        return None
    for words, x in _readings(look.sample.x, look.target.spec.bounds):
        right = int((look.ask(x).argmax(1) == look.sample.y).sum())
        if wilson(right, n)[0] > wilson(len(look.right), n)[1] and right >= len(look.right) + GAIN * n:
            return (
                f"accuracy on {n} inputs is {len(look.right) / n:.2f} as they are and {right / n:.2f} {words}: the net "
                "expects another range; put the scaling into the net, or give --mean and --std"
            )
    return None


def _readings(x: Tensor, bounds: tuple[float, float]) -> list[tuple[str, Tensor]]:
    """The inputs as other programs would give them to a net."""
    low, high = bounds
    unit = (x - low) / (high - low)
    axes = [0, *range(2, x.dim())]  # all but the channels
    std, mean = torch.std_mean(unit, axes, keepdim=True, correction=0)
    return [
        ("in [0, 255]", unit * 255),
        ("in [0, 1]", unit),
        ("in [-1, 1]", unit * 2 - 1),
        ("standardised to mean 0 and deviation 1", (unit - mean) / std.clamp_min(1e-6)),
        ("inverted", low + high - x),
    ]


def _off_by(look: Look) -> str | None:
    """Whether all labels are shifted by the same number."""
    classes, n, y = look.scores.shape[1], len(look.sample), look.sample.y
    shift = (look.scores.argmax(1) - y) % classes
    counts = torch.bincount(shift, minlength=classes)
    best = int(counts.argmax())
    if best == 0 or wilson(int(counts[best]), n)[0] <= wilson(int(counts[0]), n)[1]:
        return None
    by = best if best <= classes // 2 else best - classes
    return f"with every label moved by {by:+d} it would be {int(counts[best]) / n:.3f} on the sample: they are off"


def _renamed(look: Look) -> str | None:
    """Whether classes go by other numbers: learnt on one half of the sample, tried on the other."""
    given, y = look.scores.argmax(1), look.sample.y
    classes = max(look.scores.shape[1], int(y.max()) + 1)
    votes = torch.zeros(classes, classes, device=y.device)
    votes.index_put_((given[::2], y[::2]), torch.ones(1, device=y.device), accumulate=True)
    meant = torch.where(votes.sum(1) > 0, votes.argmax(1), -1)
    n = len(y[1::2])
    now, then = int((given[1::2] == y[1::2]).sum()), int((meant[given[1::2]] == y[1::2]).sum())
    one = int(torch.bincount(y[1::2], minlength=1).amax())  # what the same answer to everything would reach
    if wilson(then, n)[0] <= wilson(max(now, one), n)[1]:
        return None
    return f"with its classes in another order it would be {then / n:.3f} on the sample: labels and net differ in order"


def _always_one(look: Look) -> str | None:
    """Whether one and the same answer would be right more often."""
    y, clean = look.cases.y, look.facts.clean
    label, often = max(enumerate(torch.bincount(y).tolist()), key=lambda pair: pair[1])
    if wilson(often, len(y))[0] <= wilson(clean.right, clean.n)[1]:
        return None
    return f"always answering {look.target.spec.classes[label]!r} would be right on {often / len(y):.3f}"
