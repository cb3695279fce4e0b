"""Work in chunks that halves only the chunk that did not fit in memory."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError, is_out_of_memory

log = logging.getLogger("assay")

DEFAULT = 512


@dataclass(slots=True)
class Chunks:
    """How many rows fit at once. It shrinks when memory runs out and stays there: the size found is remembered."""

    size: int = DEFAULT

    def map(self, work: Callable[..., Tensor], *columns: Tensor) -> Tensor:
        """``work`` over row blocks of the columns, joined. An empty batch is one empty block."""
        (joined,) = self.map_all(lambda *block: (work(*block),), *columns)
        return joined

    def map_all(self, work: Callable[..., tuple[Tensor, ...]], *columns: Tensor) -> tuple[Tensor, ...]:
        """The same for work that gives several columns."""
        parts: list[tuple[Tensor, ...]] = []
        start, n = 0, len(columns[0])
        while start < n or not parts:
            stop = min(start + self.size, n)
            try:
                parts.append(work(*(column[start:stop] for column in columns)))
                start = stop
                continue
            except (RuntimeError, MemoryError) as error:
                self._halve(error, stop - start)
            # Outside the handler: the error held the frames, and with them the memory, of what failed.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return parts[0] if len(parts) == 1 else tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def _halve(self, error: BaseException, tried: int) -> None:
        if not is_out_of_memory(error):
            raise error
        if tried <= 1:
            raise AssayError(f"one case alone does not fit in memory: {error}") from error
        self.size = max(1, tried // 2)
        log.warning("out of memory with %d rows, going on with %d", tried, self.size)
