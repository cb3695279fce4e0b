"""Which of an image's candidates becomes its test, and how far tests lie from their images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.chunks import Chunks
from assay.core.images import ssim, unit_range
from assay.stages.coverage.nc import scaled_values
from assay.subjects.observer import Observer
from assay.subjects.target import Target

LEAST = 0.9  # cosine that a candidate must exceed
ACTIVE = 0.1  # scaled value above which a neuron is active
NONE = -1


def chosen(cosine: Tensor, active: Tensor, base: Tensor, changed: Tensor, *, must: bool) -> Tensor:
    """The place of each image's test among its candidates, (n,); -1 where there is none.

    Of the candidates whose ``cosine`` (n, k) exceeds 0.9 and that are ``changed`` at all, the most similar one with
    more ``active`` neurons (n, k) than the image has (``base``, (n,)); else, unless one with more is a ``must``, the
    most similar one.
    """
    near = (cosine > LEAST) & changed
    more = near & (active > base[:, None])
    best, place = cosine.masked_fill(~more, -torch.inf).max(1)
    rest, other = cosine.masked_fill(~near, -torch.inf).max(1)
    if must:
        return torch.where(best > -torch.inf, place, NONE)
    place = torch.where(best > -torch.inf, place, other)
    return torch.where(rest > -torch.inf, place, NONE)


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts the active neurons of a target: those whose value, scaled within the layer's output, exceeds 0.1."""

    observer: Observer
    owner: Tensor

    @staticmethod
    def of(target: Target) -> "Counter":
        observer = Observer.of([target], "auto", ends=True)
        widths = torch.tensor([layer.width for layer in observer.each])
        return Counter(observer, torch.arange(len(widths)).repeat_interleave(widths).to(target.device))

    def scaled(self, x: Tensor) -> Tensor:
        """Scaled values of all neurons, (n, W)."""
        return scaled_values(self.observer(x), self.owner)

    def __call__(self, x: Tensor, chunks: Chunks) -> Tensor:
        """How many are active for each input, (n,)."""
        with torch.no_grad(), self.observer.targets[0].ready():
            return chunks.map(lambda block: (self.scaled(block) > ACTIVE).sum(1), x)


def distances(x: Tensor, clean: Tensor, bounds: tuple[float, float], chunks: Chunks) -> dict[str, float | None]:
    """Mean L2, Linf and SSIM of tests and their images, in the range 0 to 1."""
    if not len(x):
        return {"l2": None, "linf": None, "ssim": None}
    a, b = unit_range(x, bounds), unit_range(clean, bounds)
    delta = (a - b).flatten(1)
    like = chunks.map(ssim, a, b)
    told = {"l2": delta.norm(dim=1), "linf": delta.abs().amax(1), "ssim": like}
    return {name: round(float(values.double().mean()), 5) for name, values in told.items()}
