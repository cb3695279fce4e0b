"""Whole searches that a GPU replays: the start, every step and every pass of a search as one CUDA graph.

Of a small net each pass is short, and what a search does between two of them takes the host longer than the passes do.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core import deadline, passes
from assay.core.passes import Passes
from assay.core.precision import halved
from assay.core.randomness import Rows
from assay.core.registry import Bound
from assay.subjects.replayed import after_broken_capture, replayable
from assay.subjects.sources.module import ModuleTarget

FIXED = ("fgsm", "bim", "mim", "pgd")  # which do the same work for every batch, where no row stops before others
MOST = 2**20  # numbers in a batch: with more, the GPU is the slower one
SEEN = 4  # searches of one kind before it is recorded, which is over when a training times its first steps
KINDS = 256  # that are counted
KEPT = 8  # records at a time, each with memory of its own; a ball that has grown does not come back
MOSTLY = 0.9  # of what a replay makes is what the search makes; a slope near 0 may have either sign


@dataclass(frozen=True, slots=True)
class _Record:
    """One kind of search. Everything lies where it lay when it was recorded."""

    x: Tensor
    aims: Tensor
    key: Tensor
    made: Tensor
    graph: torch.cuda.CUDAGraph
    asked: Passes


class Recorded:
    """The searches of one training against one net, whose weights may be written but never replaced."""

    def __init__(self) -> None:
        self.records: dict[Hashable, _Record | None] = {}
        self._seen: Counter[Hashable] = Counter()

    def __call__(self, search: Bound, target: ModuleTarget, x: Tensor, aims: Tensor, key: Tensor) -> Tensor:
        """What the search makes of a batch; ``key`` are its random numbers, a row each."""
        if not x.is_cuda or not _worth(search, target, x):
            return _plain(search, target, x, aims, key)
        kind = _kind(search, target, x, aims)
        if kind not in self.records:
            if len(self._seen) > KINDS:
                self._seen.clear()
            self._seen[kind] += 1
            if self._seen[kind] > SEEN:
                self._make_room()
                self.records[kind], made = _recorded(search, target, x, aims, key)
                return made
            return _plain(search, target, x, aims, key)
        record = self.records[kind] = self.records.pop(kind)  # the last one used stands last
        if record is None:
            return _plain(search, target, x, aims, key)
        passes.note(record.asked.forward, record.asked.gradient)
        return _replayed(record, x, aims, key)

    def _make_room(self) -> None:
        """For another record, where there are enough: the one that was not used for longest goes."""
        held = [kind for kind, record in self.records.items() if record is not None]
        for kind in held[: max(0, len(held) + 1 - KEPT)]:
            del self.records[kind]


def fixed(search: Bound) -> bool:
    """Whether a search is the same work for every batch: all rows take all steps, once."""
    told = search.params
    once = told.get("restarts", 1) == 1 and not told.get("converged", 0.0)
    return search.entry.name in FIXED and once and told.get("early_stop") is False


def _worth(search: Bound, target: ModuleTarget, x: Tensor) -> bool:
    if torch.are_deterministic_algorithms_enabled() or deadline.limit() is not None:
        return False
    return 0 < x.numel() <= MOST and fixed(search) and replayable(target.module)


def _kind(search: Bound, target: ModuleTarget, x: Tensor, aims: Tensor) -> Hashable:
    """What one record is good for."""
    tf32 = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    how = (search.entry.name, tuple(sorted(search.params.items())), halved(x.device), tf32)
    return (id(target), *how, x.shape, x.dtype, aims.shape, aims.dtype)


def _plain(search: Bound, target: ModuleTarget, x: Tensor, aims: Tensor, key: Tensor) -> Tensor:
    made: Tensor = search(target, x, aims, rng=Rows(key))
    return made


def _recorded(
    search: Bound, target: ModuleTarget, x: Tensor, aims: Tensor, key: Tensor
) -> tuple[_Record | None, Tensor]:
    """A record of searches of this kind, None where there can be none; and what this one makes."""
    with passes.counted() as asked:
        made = _plain(search, target, x, aims, key)
    record = None
    with torch.cuda.device(x.device), passes.uncounted():  # whose streams are taken
        mended, graph = after_broken_capture(), torch.cuda.CUDAGraph()
        columns = x.detach().clone(), aims.detach().clone(), key.clone()
        try:
            # A stream of its own: matrix products keep their workspace by stream, which no two graphs may share.
            with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
                out = _plain(search, target, *columns)
            record = _Record(*columns, out, graph, asked)
            if (_replayed(record, x, aims, key) - made).abs().le(1e-6).float().mean() < MOSTLY:
                record = None
        except RuntimeError:  # what asks the host something, or too little memory
            mended()
    return record, made


def _replayed(record: _Record, x: Tensor, aims: Tensor, key: Tensor) -> Tensor:
    with torch.cuda.device(x.device):
        record.x.copy_(x)
        record.aims.copy_(aims)
        record.key.copy_(key)
        record.graph.replay()
        return record.made.clone()
