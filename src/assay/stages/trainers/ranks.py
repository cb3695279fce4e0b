"""Ranks: processes that train one net together, each on its own rows of every batch.

Every rank holds the whole net and all cases, goes through the same batches in the same order, and makes the same step:
before the optimiser moves, gradients are averaged over the ranks, each weighted by its rows. So the step is that of the
whole batch, up to the order in which numbers are added. One rank alone does nothing of this.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

from assay.core.errors import UsageError

Answer = TypeVar("Answer")


# What gloo's connections and NCCL say where the other end is gone; they have no type for it. What gloo finds wrong with
# the work itself begins with "enforce fail", and is told from the same file.
_GONE = ("gloo/transport", "ncclRemoteError", "ncclSystemError", "remote process exited", "communicator was aborted")
_WRONG = "enforce fail"


class PeerLost(BaseException):
    """Another rank is gone, so what all of them do together cannot be done; no Exception, which a trainer may catch."""


@dataclass(slots=True)
class Ranks:
    """One of ``count`` processes that train together; all of them call the same methods in the same order.

    ``seen`` counts the cases that all of them have learned from; ``alike`` is set once they were seen to hold the same.
    """

    rank: int = 0
    count: int = 1
    seen: int = 0
    alike: bool = False

    def part(self, n: int) -> slice:
        """The rows of a batch of ``n`` that are this rank's; none where a part would have a single row.

        Batch normalisation cannot learn from one case, so a small batch is dealt to fewer ranks.

        >>> [Ranks(rank, 4).part(5) for rank in range(4)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 5, None), slice(5, 5, None)]
        """
        parts = min(self.count, max(1, n // 2))
        size, more = divmod(n, parts)
        first = min(n, self.rank * size + min(self.rank, more))
        return slice(first, min(n, first + size + (self.rank < more)))

    def average(self, weights: Sequence[nn.Parameter], loss: Tensor, share: float) -> Tensor:
        """Put the gradients of the whole batch in place of this rank's own; the loss of the whole batch.

        ``share`` is the part of the batch that is this rank's. A weight that no rank has a gradient for has none, and
        is not moved, as if one process had done it all.
        """
        if self.count == 1:
            return loss
        if not self.alike:  # once an epoch: every step would wait for it
            self._compare(weights, loss.device)
        grads = [weight.grad for weight in weights]
        there = torch.tensor([float(grad is not None) for grad in grads], device=loss.device)
        own = [torch.zeros_like(w).flatten() if g is None else g.flatten() for w, g in zip(weights, grads, strict=True)]
        flat = torch.cat([loss.reshape(1), *own]) * share
        together = torch.cat([flat, there.to(flat.dtype)])
        self._sum(together)
        flat, there = together[: len(flat)], together[len(flat) :]
        # Only who lacks a gradient has to ask whether others have one: asking waits for the device.
        found = [True] * len(grads) if all(g is not None for g in grads) else (there > 0).tolist()
        pieces = flat[1:].split([weight.numel() for weight in weights])
        for weight, piece, some in zip(weights, pieces, found, strict=True):
            whole = piece.view(weight.shape).to(weight.dtype)
            if weight.grad is not None:
                weight.grad.copy_(whole)
            elif some:
                weight.grad = whole
        return flat[0]

    def level(self, net: nn.Module) -> None:
        """The same statistics on all ranks: the mean of theirs, which saw different rows; counts are those of rank 0.

        What is the same on all of them already stays bit by bit.
        """
        if self.count == 1:
            return
        buffers = list(net.buffers())
        self._compare(buffers, next((part.device for part in (*net.parameters(), *buffers)), torch.device("cpu")))
        self.alike = False
        for buffer in buffers:
            first = buffer.detach().clone(memory_format=torch.contiguous_format)
            self._broadcast(first)
            if buffer.is_floating_point():
                away = torch.where(buffer == first, torch.zeros_like(first), buffer - first)
                self._sum(away)
                first += away / self.count
            buffer.data.copy_(first)

    def told(self, work: Callable[[], Answer]) -> Answer:
        """What ``work`` gives on rank 0, on all ranks; the others wait for it."""
        if self.count == 1:
            return work()
        box = [work() if self.rank == 0 else None]
        with _peers():
            distributed.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]  # rank 0 has filled it

    def total(self, count: int, device: torch.device) -> int:
        """The sum of what every rank counts."""
        if self.count == 1:
            return count
        box = torch.tensor([count], device=device)
        self._sum(box)
        return int(box)

    def _compare(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        """Refuse what differs from rank to rank in number, shape or kind: gloo ends the process that is sent too much,
        without a word, and that would look like a worker that died.
        """
        own = zlib.crc32(repr([(tuple(tensor.shape), tensor.dtype) for tensor in tensors]).encode())
        ends = torch.tensor([own, -own], device=device)
        with _peers():
            distributed.all_reduce(ends, distributed.ReduceOp.MAX)
        largest, smallest = ends.tolist()
        if largest != -smallest:
            raise UsageError(
                "the net has other weights or buffers on one worker than on another: one that makes them as it goes "
                "cannot be trained by several; leave --ray out, or take --workers 1"
            )
        self.alike = True

    def _sum(self, tensor: Tensor) -> None:
        with _peers():
            distributed.all_reduce(tensor)

    def _broadcast(self, tensor: Tensor) -> None:
        with _peers():
            distributed.broadcast(tensor, src=0)


@contextmanager
def _peers() -> Iterator[None]:
    """What ranks do together fails where one of them is gone: an error of its own, because the work can be repeated.

    All others (no memory, a fault of the device, a bug) would come again, and stay what they are.
    """
    try:
        yield
    except RuntimeError as error:
        if _is_gone(error):
            raise PeerLost(str(error)) from error
        raise


def _is_gone(error: RuntimeError) -> bool:
    if isinstance(error, (distributed.DistNetworkError, distributed.DistStoreError)):
        return True
    return any(words in str(error) for words in _GONE) and _WRONG not in str(error)


_here: ContextVar[Ranks | None] = ContextVar("ranks", default=None)


@contextmanager
def together(ranks: Ranks) -> Iterator[Ranks]:
    """Every training in this block is that of all ranks, whichever trainer calls for it."""
    before = _here.set(ranks)
    try:
        yield ranks
    finally:
        _here.reset(before)


def here() -> Ranks:
    """The ranks that this process trains with; itself alone where nobody has said."""
    return _here.get() or Ranks()
