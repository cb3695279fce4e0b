"""Steps of an optimiser on batches, in parts where a batch does not fit in memory."""

import logging
import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay.core.chunks import Chunks, give_back
from assay.core.errors import OutOfMemory, is_out_of_memory, memory_wanted
from assay.core.losses import smoothed
from assay.stages.trainers import graphed
from assay.stages.trainers.ranks import Ranks

log = logging.getLogger("assay")

Loss = Callable[..., Tensor]  # of columns with a row for each case: the mean over them


class Descent:
    """An optimiser at work on a net.

    A batch that does not fit in memory is learned from in parts, each half as large as what did not fit: their
    gradients, weighted by their share of the batch, add up to its own. The size found is kept for the batches to come.

    Where several ranks learn together, each has a ``share`` of a batch, and all make the step of the whole one.
    """

    def __init__(
        self,
        net: nn.Module,
        optimiser: torch.optim.Optimizer,
        smoothing: float,
        graph: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        """With ``graph``, batches of that size are learned from by a CUDA graph, where their loss is that of labels."""
        self.net, self.optimiser, self.smoothing = net, optimiser, smoothing
        self.ranks = ranks or Ranks()
        self.weights: list[nn.Parameter] = [w for group in optimiser.param_groups for w in group["params"]]
        self.parts = Chunks(sys.maxsize, alone=True)  # a step takes far more memory than an answer
        self.graphed = graphed.Graphed(lambda x, y: self._whole(self._labels, x, y), graph) if graph else None
        self._moving = self._told = False

    def learn(self, x: Tensor, y: Tensor, share: float = 1.0) -> Tensor:
        """One step by the labels of a batch; the loss before it."""
        if self.graphed is not None and self.graphed.replays(x):
            return self.graphed(x, y)
        return self.step(self._labels, x, y, share=share)

    def step(self, loss: Loss, *columns: Tensor, share: float = 1.0) -> Tensor:
        """One step on a batch by any loss; its value before the step."""
        n = len(columns[0])
        if not n:  # a batch too small for all ranks
            self.optimiser.zero_grad(set_to_none=True)
            return self._move(torch.zeros((), device=columns[0].device), 0.0)
        while True:
            before = _Before(self.net, columns[0].device)
            size = min(self.parts.fits, n)
            try:
                if size < n:
                    return self._in_parts(loss, math.ceil(n / size), columns, share)
                whole = self.graphed if loss == self._labels else None
                return self._whole(loss, *columns, share=share) if whole is None else whole(*columns)
            except (RuntimeError, MemoryError) as error:
                self._halve(error, size, columns[0])
            before.restore()
            give_back()

    def _labels(self, x: Tensor, y: Tensor) -> Tensor:
        return smoothed(self.net(x), y, self.smoothing).mean()

    def _whole(self, loss_of: Loss, *columns: Tensor, share: float = 1.0) -> Tensor:
        self._moving = False
        self.optimiser.zero_grad(set_to_none=True)
        loss = loss_of(*columns)
        loss.backward()
        return self._move(loss.detach(), share)

    def _in_parts(self, loss_of: Loss, count: int, columns: tuple[Tensor, ...], share: float) -> Tensor:
        self._moving = False
        self.optimiser.zero_grad(set_to_none=True)
        parts = list(zip(*(column.tensor_split(count) for column in columns), strict=True))
        if _normalised(self.net):  # batch normalisation cannot learn from one case
            parts = [part for part in parts if len(part[0]) > 1]
        n, total = sum(len(part[0]) for part in parts), torch.zeros((), device=columns[0].device)
        for part in parts:
            loss = loss_of(*part) * (len(part[0]) / n)
            loss.backward()
            total += loss.detach()
        return self._move(total, share)

    def _move(self, loss: Tensor, share: float) -> Tensor:
        """The step that the gradients of all ranks say; the loss of the whole batch."""
        self._moving = True
        loss = self.ranks.average(self.weights, loss, share)
        self.optimiser.step()
        self._moving = False
        return loss

    def _halve(self, error: BaseException, tried: int, x: Tensor) -> None:
        """Parts of half the size from now on; refused where that does not help."""
        if is_out_of_memory(error) and self._moving:  # its weights are half moved, and parts make it no smaller
            raise OutOfMemory(
                f"a step of the optimiser does not fit in memory, whatever the batch: {memory_wanted(error)}; free "
                "memory, or take optimiser=sgd, which keeps less, another --device or a smaller model"
            ) from error
        normalised = _normalised(self.net)
        if is_out_of_memory(error) and normalised and 1 < tried < 4:
            raise OutOfMemory(
                f"two inputs of shape {tuple(x.shape[1:])} do not fit in memory together, and batch normalisation "
                f"cannot learn from one: {memory_wanted(error)}; free memory, or take another --device or a smaller "
                "model"
            ) from error
        self.parts.halve(error, tried, tuple(x.shape[1:]))
        if normalised and not self._told:
            self._told = True
            log.warning(
                "batch normalisation now takes its statistics from parts of a batch, so the net is not quite the one "
                "that whole batches give; a smaller --set batch says what is meant"
            )


class _Before:
    """What a step that fails may have changed besides weights: statistics of the net, and torch's random numbers."""

    def __init__(self, net: nn.Module, device: torch.device) -> None:
        self.buffers, self.device = list(net.buffers()), device
        self.contents = [buffer.detach().clone() for buffer in self.buffers]
        self.random = torch.get_rng_state()
        self.random_there = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        for buffer, content in zip(self.buffers, self.contents, strict=True):
            buffer.data.copy_(content)
        torch.set_rng_state(self.random)
        if self.random_there is not None:
            torch.cuda.set_rng_state(self.random_there, self.device)


def _normalised(net: nn.Module) -> bool:
    """Whether batch normalisation is learning in the net."""
    return any(m.training and isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
