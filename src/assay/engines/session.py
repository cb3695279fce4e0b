"""Settings of the process for one piece of work, given back afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from assay.core.allocator import keep_blocks
from assay.core.room import one_room


@contextmanager
def session(*, deterministic: bool = False) -> Iterator[None]:
    """Keep memory blocks, and what did not fit in them; with ``deterministic``, one thread and torch's strict
    algorithms, so that bytes repeat.
    """
    keep_blocks()
    with one_room():
        if not deterministic:
            yield
            return
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA refuses strict matrix products
        threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        try:
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True)
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict)
