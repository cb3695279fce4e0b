"""One training step as a CUDA graph: a small net's step is a hundred short kernels, slower to launch than to run."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.subjects.replayed import after_broken_capture, replayable

Step = Callable[..., Tensor]  # learns from columns with a row for each case and returns the loss

WARM = 3  # steps taken as usual first: they make the optimiser's state and what libraries allocate once
_OWN = ("lr", "capturable", "fused", "foreach")  # how this machine runs the optimiser, not what it has learned


def possible(net: nn.Module, device: torch.device) -> bool:
    """Whether a step may be captured. A deterministic run keeps the one path that a resumed run takes too."""
    return device.type == "cuda" and not torch.are_deterministic_algorithms_enabled() and replayable(net)


class Graphed:
    """A step that is replayed for batches of one size and taken as usual for others, or where it cannot be captured."""

    def __init__(self, step: Step, size: int) -> None:
        self.step, self.size, self.warm = step, size, WARM
        self.graph: torch.cuda.CUDAGraph | None = None

    def replays(self, x: Tensor) -> bool:
        """Whether a batch like this is replayed: that allocates nothing."""
        return self.graph is not None and len(x) == self.size

    def __call__(self, *columns: Tensor) -> Tensor:
        if len(columns[0]) != self.size:
            return self.step(*columns)
        if self.warm:
            self.warm -= 1
            return self.step(*columns)
        if self.graph is None and not self._capture(columns):
            self.size = -1  # no batch has that size: never tried again
            return self.step(*columns)
        assert self.graph is not None
        for mine, column in zip(self.columns, columns, strict=True):
            mine.copy_(column)
        with torch.cuda.device(columns[0].device):
            self.graph.replay()
        return self.loss

    def _capture(self, columns: tuple[Tensor, ...]) -> bool:
        """Record the step on batches like these; recording computes nothing."""
        self.columns = [column.clone() for column in columns]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(columns[0].device):  # whose streams are taken
            mended = after_broken_capture()
            try:
                # A stream of its own: matrix products keep their workspace by stream, which no two graphs may share.
                with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                    self.loss = self.step(*self.columns)
            except RuntimeError:  # a net that asks the host something in its forward pass
                mended()
                return False
        self.graph = graph
        return True


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate, in place where a graph reads it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def state_of(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state with plain numbers in its groups, to be read on any machine."""
    told = optimiser.state_dict()
    return told | {"param_groups": [{**group, "lr": float(group["lr"])} for group in told["param_groups"]]}


def load_state(optimiser: torch.optim.Optimizer, told: dict[str, Any]) -> None:
    """Go on from a state that another machine may have written, running as this one does."""
    own = [{key: group[key] for key in _OWN if key in group} for group in optimiser.param_groups]
    groups = [{**group, **mine} for group, mine in zip(told["param_groups"], own, strict=True)]
    optimiser.load_state_dict({**told, "param_groups": groups})
    for weight, kept in optimiser.state.items():
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:  # fused steps want them to lie as weights do
                kept[name] = torch.empty_like(weight).copy_(value)
