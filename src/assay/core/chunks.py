"""Work in chunks that halves only the chunk that did not fit in memory."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import OutOfMemory, is_out_of_memory, memory_wanted
from assay.core.room import Room, room

log = logging.getLogger("assay")

DEFAULT = 512


@dataclass(slots=True)
class Chunks:
    """How many rows fit at once. It shrinks when memory runs out and stays there: the size found is remembered.

    What is found is found for all chunks of the command, unless they are ``alone``: work of another weight.
    """

    size: int = DEFAULT
    alone: bool = False

    @property
    def fits(self) -> int:
        """How many rows to take at once, from now on."""
        known = self._room
        return self.size if known is None else int(min(self.size, known.rows))

    @property
    def _room(self) -> Room | None:
        return None if self.alone else room()

    def map(self, work: Callable[..., Tensor], *columns: Tensor) -> Tensor:
        """``work`` over row blocks of the columns, joined. An empty batch is one empty block."""
        (joined,) = self.map_all(lambda *block: (work(*block),), *columns)
        return joined

    def map_all(self, work: Callable[..., tuple[Tensor, ...]], *columns: Tensor) -> tuple[Tensor, ...]:
        """The same for work that gives several columns."""
        parts: list[tuple[Tensor, ...]] = []
        start, n = 0, len(columns[0])
        while start < n or not parts:
            stop = min(start + self.fits, n)
            try:
                parts.append(work(*(column[start:stop] for column in columns)))
                start = stop
                continue
            except (RuntimeError, MemoryError, OutOfMemory) as error:
                shape = next((tuple(column.shape[1:]) for column in columns if column.dim() > 1), ())
                self.halve(error, stop - start, shape)
            # Outside the handler: the error held the frames, and with them the memory, of what failed.
            give_back()
        return parts[0] if len(parts) == 1 else tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def halve(self, error: BaseException, tried: int, shape: tuple[int, ...] = ()) -> None:
        """Take half of what was ``tried`` from now on; every error but running out of memory goes on its way.

        ``shape`` is that of one row, to tell where not even one fits.
        """
        if not is_out_of_memory(error):
            raise error
        if isinstance(error, OutOfMemory) and tried <= 1:  # told already, by chunks inside this one
            raise error
        if tried <= 1:
            one = f"one input of shape {shape}" if shape else "one case"
            raise OutOfMemory(
                f"{one} alone does not fit in memory: {memory_wanted(error)}; free memory, or take another --device "
                "or a smaller model"
            ) from error
        self.size = max(1, tried // 2)
        known = self._room
        if known is not None and not isinstance(error, OutOfMemory):  # else the rows around one that did not fit
            known.rows = min(known.rows, self.size)
        log.warning("out of memory with %d rows, going on with %d", tried, self.size)


def give_back() -> None:
    """Let the GPU have the blocks back that what failed had taken; never inside the handler, which holds them."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
