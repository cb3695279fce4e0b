"""Steps of an optimiser on batches, in parts where a batch does not fit in memory."""

import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from assay.core.chunks import Chunks, give_back
from assay.core.errors import OutOfMemory, is_out_of_memory, memory_wanted
from assay.stages.trainers import graphed
from assay.stages.trainers.ranks import Ranks

log = logging.getLogger("assay")

Loss = Callable[..., Tensor]  # of columns with a row for each case: the mean over them


class Descent:
    """An optimiser at work on a net.

    A batch that does not fit in memory is learned from in parts, each half as large as what did not fit: their
    gradients, weighted by their share of the batch, add up to its own. The size found is kept for the batches to come.

    Where several ranks learn together, each has a ``share`` of a batch, and all make the step of the whole one.

    With ``awp`` (adversarial weight perturbation, Wu et al. 2020) gradients are those where the weights have gone a
    step up the loss of the batch, each matrix by that share of its length; the step is made from where they were.
    """

    def __init__(
        self,
        net: nn.Module,
        optimiser: torch.optim.Optimizer,
        loss: Loss,
        *,
        awp: float = 0.0,
        graph: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        """With ``graph``, batches of that size are learned from by a CUDA graph."""
        self.net, self.optimiser, self.loss, self.awp = net, optimiser, loss, awp
        self.ranks = ranks or Ranks()
        self.weights: list[nn.Parameter] = [w for group in optimiser.param_groups for w in group["params"]]
        self.parts = Chunks(sys.maxsize, alone=True)  # a step takes far more memory than an answer
        self.graphed = graphed.Graphed(lambda *columns: self._learn([columns], 1.0), graph) if graph else None
        self._moving = self._told = False

    def step(self, *columns: Tensor, share: float = 1.0) -> Tensor:
        """One step on a batch; the loss before it."""
        n = len(columns[0])
        if not n:  # a batch too small for all ranks
            self.optimiser.zero_grad(set_to_none=True)
            zero = torch.zeros((), device=columns[0].device)
            if self.awp:  # what the others add up to find their way
                self.ranks.average(self.weights, zero, 0.0)
                self.optimiser.zero_grad(set_to_none=True)
            return self._move(zero, 0.0)
        if self.graphed is not None and self.graphed.replays(columns[0]):
            return self.graphed(*columns)
        while True:
            before = _Before(self.net, columns[0].device)
            size = min(self.parts.fits, n)
            try:
                if self.graphed is not None and size == n:
                    return self.graphed(*columns)
                return self._learn(self._parts(math.ceil(n / size), columns), share)
            except (RuntimeError, MemoryError) as error:
                self._halve(error, size, columns[0])
            before.restore()
            give_back()

    def _parts(self, count: int, columns: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        if count == 1:
            return [columns]
        parts = list(zip(*(column.tensor_split(count) for column in columns), strict=True))
        # Batch normalisation cannot learn from one case.
        return [part for part in parts if len(part[0]) > 1] if _normalised(self.net) else parts

    def _learn(self, parts: list[tuple[Tensor, ...]], share: float) -> Tensor:
        self._moving = False
        if not self.awp:
            return self._move(self._gradients(parts), share)
        with self._astray(parts, share):
            loss = self._gradients(parts)
        return self._move(loss, share)

    def _gradients(self, parts: list[tuple[Tensor, ...]]) -> Tensor:
        """The gradients of the whole batch, each part weighted by its rows; its loss."""
        self.optimiser.zero_grad(set_to_none=True)
        n, total = sum(len(part[0]) for part in parts), torch.zeros((), device=parts[0][0].device)
        for part in parts:
            loss = self.loss(*part) * (len(part[0]) / n)
            loss.backward()
            total = total + loss.detach()
        return total

    @contextmanager
    def _astray(self, parts: list[tuple[Tensor, ...]], share: float) -> Iterator[None]:
        """Weights a step up the loss of the batch for as long as the block lasts; statistics do not see it."""
        buffers = list(self.net.buffers())
        contents = [buffer.detach().clone() for buffer in buffers]
        loss = self._gradients(parts)
        self.ranks.average(self.weights, loss, share)
        for buffer, content in zip(buffers, contents, strict=True):
            buffer.data.copy_(content)
        moved = [w for w in self.weights if w.grad is not None and w.dim() > 1]
        kept = [w.detach().clone() for w in moved]
        with torch.no_grad():
            for w in moved:
                assert w.grad is not None
                w.add_(w.grad * (self.awp * w.norm() / w.grad.norm().clamp_min(torch.finfo(w.dtype).tiny)))
        try:
            yield
        finally:
            with torch.no_grad():
                for w, was in zip(moved, kept, strict=True):
                    w.copy_(was)

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
