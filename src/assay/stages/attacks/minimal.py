"""What the attacks share that look for the smallest change: checks, the last stretch, and what comes back."""

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import Aim
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.shapes import column
from assay.subjects.target import Target


def check_norm(attack: str, norm: str, eps: float | None, known: tuple[Norm, ...]) -> Norm:
    """``norm`` if this attack has it; ``eps``, where given, must be a size."""
    chosen = norms.check(norm, eps)
    if chosen not in known:
        raise UsageError(
            f"{attack} knows {' and '.join(known)}, not {chosen}; give norm={known[0]} (--norm {known[0]})"
        )
    return chosen


def check_positive(attack: str, **values: float) -> None:
    """Every one of these parameters must be above 0."""
    wrong = [f"{name} {value}" for name, value in values.items() if not value > 0]
    if wrong:
        raise UsageError(f"{attack} needs {' and '.join(values)} above 0; got {', '.join(wrong)}")


def kept(x: Tensor, made: Tensor, won: Tensor, eps: float | None, norm: Norm) -> Tensor:
    """What was made where it won and is no larger than ``eps``; everywhere else the clean input itself."""
    if eps is not None:
        won = won & (norms.size(made - x, norm) <= eps)
    return torch.where(column(won, x), made, x)


def closer(target: Target, x: Tensor, y: Tensor, made: Tensor, aim: Aim, tries: int, confidence: float = 0.0) -> Tensor:
    """For rows adversarial at ``made`` but not at ``x``: the nearest adversarial point seen on the line between.

    ``tries`` forward passes, and two for the ends. Each try goes where a straight line through the gains at both ends
    of the bracket meets ``confidence``, and a little on towards the adversarial end, so that most tries are adversarial
    too; a loss that is not below it at ``x`` is no guide, and the bracket is halved.
    """
    if tries < 1 or not len(x):
        return made
    best, low, high = made, made.new_zeros(len(x)), made.new_ones(len(x))
    with torch.no_grad():
        below, above = (aim.gain(target(end), y).to(x.dtype) - confidence for end in (x, made))
        for _ in range(tries):
            share = torch.where(below < 0, -below / (above - below), 0.5).nan_to_num_(0.5).clamp_(0.05, 0.95)
            at = low + (high - low) * (share + 0.02 * (1 - share))
            point = torch.lerp(x, made, column(at, x))
            outputs = target(point)
            gain = aim.gain(outputs, y).to(x.dtype) - confidence
            hit = aim.hit(outputs, y) & (gain >= 0)
            best = torch.where(column(hit, x), point, best)
            low, below = torch.where(hit, low, at), torch.where(hit, below, gain)
            high, above = torch.where(hit, at, high), torch.where(hit, gain, above)
    return best
