"""Passes of a net that a GPU replays: recorded once for each size of batch, as CUDA graphs.

A pass of a small batch takes the host longer to launch, kernel by kernel, than the GPU to run.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from assay.core import deadline
from assay.core.precision import half_precision, halved

STEP = 32  # batches are filled up to a multiple of so many rows
MOST = 2**22  # numbers in a batch: with more, the GPU is the slower one
MOSTLY = 0.9  # of the rows of a batch
SEEN = 8  # passes of one kind before it is recorded, which costs about as many


def replayable(net: nn.Module) -> bool:
    """Whether a pass of this net is the same kernels each time, whatever the inputs.

    What a forward pass of the user's own decides on the host, with Python's random numbers say, would be frozen without
    a word, so the net is one that was traced, which has nothing left to decide, or made of torch's and our own modules.
    """
    known = all(type(m).__module__.startswith(("torch.nn.", "torch.fx.", "assay.")) for m in net.modules())
    return known and not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in net.modules())


def after_broken_capture() -> Callable[[], None]:
    """What to call when a capture that begins now has failed: it leaves its own stream, and no random numbers."""
    stream, numbers = torch.cuda.current_stream(), torch.cuda.default_generators[torch.cuda.current_device()]
    state = numbers.clone_state()

    def mend() -> None:
        torch.cuda.set_stream(stream)
        numbers.graphsafe_set_state(state)  # the state it has waits for the end of the capture for ever

    return mend


class _Kind(NamedTuple):
    """What one record is good for."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    sloped: bool
    halved: bool
    tf32: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class _Record:
    """One kind of pass. Everything lies where it lay when it was recorded."""

    kind: _Kind
    x: Tensor
    out: Tensor
    ahead: torch.cuda.CUDAGraph
    back: torch.cuda.CUDAGraph | None
    slope_out: Tensor
    slope_x: Tensor


class Replayed(nn.Module):
    """Another net, its passes replayed where that is faster. It has no state of its own that counts.

    Weights may be written while it lives, never replaced.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.turn = 0  # of replays; a second one overwrites what the way back of the first one needs
        self.records: dict[_Kind, _Record | None] = {}
        self._seen: Counter[_Kind] = Counter()
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not _worth(x):
            return self._plain(x)
        kind = _kind(x)
        if kind not in self.records:
            self._seen[kind] += 1
            if self._seen[kind] <= SEEN:
                return self._plain(x)
            self.records[kind] = self._record(kind, x)
        record = self.records[kind]
        if record is None:
            return self._plain(x)
        if not kind.sloped:
            return self.ahead(record, x)
        out: Tensor = _Pass.apply(x, self, record)  # type: ignore[no-untyped-call]  # torch's stubs
        return out

    def _plain(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out

    def ahead(self, record: _Record, x: Tensor) -> Tensor:
        """The answers to a batch; rows that fill it up are of batches before."""
        self.turn += 1
        with torch.cuda.device(x.device):
            record.x.detach()[: len(x)].copy_(x.detach())
            record.ahead.replay()
            return record.out.detach()[: len(x)].clone()

    def back(self, record: _Record, x: Tensor, slope: Tensor, turn: int) -> Tensor:
        """The gradient at ``x`` of what was answered in that turn, for a slope of the answers."""
        again = torch.is_grad_enabled()  # a gradient of this gradient is wanted too
        if again or turn != self.turn or record.back is None:
            with torch.enable_grad(), half_precision(x.device, asked=record.kind.halved):
                at = x if again else x.detach().requires_grad_()
                (grad,) = torch.autograd.grad(self._plain(at), at, slope, create_graph=again)
            return grad
        with torch.cuda.device(x.device):
            record.slope_out[: len(x)].copy_(slope)
            record.slope_out[len(x) :].zero_()
            record.back.replay()
            return record.slope_x[: len(x)].clone()

    def _record(self, kind: _Kind, x: Tensor) -> _Record | None:
        """A record of passes of this kind, None where the net cannot be recorded or answers otherwise when replayed."""
        with torch.cuda.device(x.device):  # whose streams are taken
            mended = after_broken_capture()
            try:
                record = self._recorded(kind, x)
                return record if self._alike(record, x) else None
            except RuntimeError:  # a net that asks the host something, or too little memory
                mended()
                return None

    def _recorded(self, kind: _Kind, x: Tensor) -> _Record:
        at = torch.zeros(kind.shape, dtype=kind.dtype, device=x.device).requires_grad_(kind.sloped)
        with torch.set_grad_enabled(kind.sloped):
            ahead, out = self._captured(lambda: self._plain(at))
        if not kind.sloped:
            return _Record(kind, at, out, ahead, None, out, at)
        slope = torch.zeros_like(out)
        # Keeping what the way back needs: it may be gone more than once.
        back, (grad,) = self._captured(lambda: torch.autograd.grad(out, at, slope, retain_graph=True))
        return _Record(kind, at, out.detach(), ahead, back, slope, grad)

    def _alike(self, record: _Record, x: Tensor) -> bool:
        """Whether a replay is the pass: not so where rows of a batch are not answered each for itself."""
        x = x.detach()
        at, slopes = x.clone().requires_grad_(record.kind.sloped), None
        right = self._plain(at)
        if record.kind.sloped:
            ones = torch.ones_like(right)
            (slopes,) = torch.autograd.grad(right, at, ones)
        same = _close(self.ahead(record, x), right.detach(), record.kind)
        if slopes is None:
            return same
        with torch.no_grad():  # else a gradient of the gradient were wanted, which is not replayed
            again = self.back(record, x, torch.ones_like(right), self.turn)
        return same and _close(again, slopes, record.kind)

    def _captured(self, work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Recording computes nothing; other threads may use the GPU meanwhile."""
        graph = torch.cuda.CUDAGraph()
        self._stream = self._stream or torch.cuda.Stream()  # one for all: memory is shared within a stream
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            made = work()
        self._pool = self._pool or graph.pool()
        return graph, made


class _Pass(torch.autograd.Function):
    """A replayed pass as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, net: Replayed, record: _Record) -> Tensor:
        ctx.save_for_backward(x)
        out = net.ahead(record, x)
        ctx.net, ctx.record, ctx.turn = net, record, net.turn
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return ctx.net.back(ctx.record, x, slopes[0], ctx.turn), None, None


def _close(now: Tensor, was: Tensor, kind: _Kind) -> bool:
    """Whether two results differ by rounding alone; a slope may jump where a unit sits at its kink."""
    apart = (now - was).float().flatten(1).norm(dim=1)
    rough = 0.1 if kind.halved else 0.01
    return bool((apart <= rough * was.float().flatten(1).norm(dim=1) + 1e-6).float().mean() >= MOSTLY)


def _worth(x: Tensor) -> bool:
    """Whether a pass of this batch may be replayed, and gains by it."""
    if not x.is_cuda or not 0 < x.numel() <= MOST or type(x) is not Tensor:
        return False
    if torch.are_deterministic_algorithms_enabled() or deadline.limit() is not None:
        return False
    return forward_ad.unpack_dual(x).tangent is None and not torch.cuda.is_current_stream_capturing()


def _kind(x: Tensor) -> _Kind:
    size = -(-len(x) // STEP) * STEP
    sloped = torch.is_grad_enabled() and x.requires_grad
    tf32 = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    return _Kind((size, *x.shape[1:]), x.dtype, sloped, halved(x.device), tf32)
