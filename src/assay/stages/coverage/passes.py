"""A batch through the nets and into several coverages; on a GPU as one graph, which is launched at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.core.chunks import Chunks
from assay.stages.coverage import Coverage
from assay.stages.coverage.bitmap import Bitmap
from assay.stages.coverage.tknp import Patterns
from assay.stages.trainers.graphed import possible
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.load import module_of

_WARM = 2  # batches taken as usual first: libraries choose their kernels then


class Pass:
    """Looks at batches and adds them to all coverages, without gradients.

    Batches of the size of ``chunks`` are replayed as a CUDA graph where all is ours; what it gave is overwritten by the
    next batch.
    """

    def __init__(self, observer: Observer, coverages: Sequence[Coverage], chunks: Chunks) -> None:
        self.observer, self.chunks, self.size = observer, chunks, chunks.fits
        self.device = observer.targets[0].device
        ours = all(possible(module_of(target), self.device) for target in observer.targets)
        self.warm = _WARM if ours else -1  # batches until it is captured; below 0 where it is never to be
        self.inside = [c for c in coverages if ours and _static(c)]
        self.outside = [c for c in coverages if not (ours and _static(c))]
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, x: Tensor) -> Seen:
        """What the nets make of a batch, added."""
        with torch.no_grad():
            seen = self._inside(x.to(self.device))
            for coverage in self.outside:
                coverage.add(seen)
        return seen

    def _inside(self, x: Tensor) -> Seen:
        if len(x) != self.size or self.warm:
            self.warm -= self.warm > 0 and len(x) == self.size
            return self._work(x)
        if self.graph is None and not self._capture(x):
            self.warm = -1
            return self._work(x)
        assert self.graph is not None
        self.x.copy_(x)
        self.graph.replay()
        return self.seen

    def _work(self, x: Tensor) -> Seen:
        seen = self.observer.all(x, self.chunks)  # added once all is seen: what does not fit is looked at again
        for coverage in self.inside:
            coverage.add(seen)
        return seen

    def _side_by_side(self, x: Tensor) -> Seen:
        """The same with every coverage on a stream of its own: each is a row of kernels too short to fill a GPU."""
        seen = self.observer(x)
        own, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in self.inside]
        for coverage, stream in zip(self.inside, streams, strict=True):
            stream.wait_stream(own)
            with torch.cuda.stream(stream):
                coverage.add(seen)
        for stream in streams:
            own.wait_stream(stream)
        return seen

    def _capture(self, x: Tensor) -> bool:
        """Record the work on a batch like this; recording changes nothing."""
        self.x = x.clone()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                self.seen = self._side_by_side(self.x)
        except RuntimeError:  # something asks the host
            torch.cuda.set_stream(stream)  # a broken capture leaves its own
            return False
        self.graph = graph
        return True


def _static(coverage: Coverage) -> bool:
    """Whether it changes its tensors in place, by the same steps every time."""
    return isinstance(coverage, Patterns) or (isinstance(coverage, Bitmap) and coverage.static)
