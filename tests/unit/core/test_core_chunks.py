"""Chunks: only what did not fit is done again, in halves."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.core.chunks import DEFAULT, Chunks
from assay.core.errors import AssayError, UsageError, is_out_of_memory

CPU_MESSAGE = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried ..."


def limited(fits: int, calls: list[list[int]]) -> Callable[[Tensor], Tensor]:
    """Doubles its rows; more than ``fits`` of them are out of memory. Writes down every try."""

    def work(x: Tensor) -> Tensor:
        calls.append(x.tolist())
        if len(x) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return x * 2

    return work


def test_all_at_once_where_it_fits() -> None:
    calls: list[list[int]] = []
    assert Chunks().size == DEFAULT == 512
    assert Chunks(5).map(limited(9, calls), torch.arange(5)).tolist() == [0, 2, 4, 6, 8]
    assert calls == [[0, 1, 2, 3, 4]]


def test_columns_are_cut_together_and_the_last_block_is_short() -> None:
    seen: list[tuple[int, int]] = []

    def work(x: Tensor, y: Tensor) -> Tensor:
        seen.append((len(x), len(y)))
        return x + y[:, 0]

    out = Chunks(2).map(work, torch.arange(5), torch.full((5, 1), 10))
    assert out.tolist() == [10, 11, 12, 13, 14]
    assert seen == [(2, 2), (2, 2), (1, 1)]


def test_the_failing_chunk_is_halved_until_it_fits() -> None:
    calls: list[list[int]] = []
    chunks = Chunks(8)
    assert chunks.map(limited(3, calls), torch.arange(10)).tolist() == [2 * i for i in range(10)]
    assert [len(call) for call in calls] == [8, 4, 2, 2, 2, 2, 2]
    assert chunks.size == 2


def test_only_the_failing_chunk_is_done_again() -> None:
    done: list[int] = []
    failures = iter([False, True, False, False, False])

    def work(x: Tensor) -> Tensor:
        if next(failures):
            raise torch.OutOfMemoryError("CUDA out of memory")
        done.extend(x.tolist())
        return x

    chunks = Chunks(4)
    assert chunks.map(work, torch.arange(10)).tolist() == list(range(10))
    assert done == list(range(10))
    assert chunks.size == 2


def test_the_size_found_is_remembered_for_the_next_call() -> None:
    chunks = Chunks(8)
    chunks.map(limited(2, []), torch.arange(8))
    calls: list[list[int]] = []
    chunks.map(limited(2, calls), torch.arange(4))
    assert calls == [[0, 1], [2, 3]]


def test_a_short_chunk_that_fails_halves_what_was_tried() -> None:
    calls: list[list[int]] = []
    chunks = Chunks(512)
    chunks.map(limited(3, calls), torch.arange(6))
    assert [len(call) for call in calls] == [6, 3, 3]
    assert chunks.size == 3


def test_shrinking_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "assay"):
        Chunks(4).map(limited(2, []), torch.arange(4))
    assert caplog.messages == ["out of memory with 4 rows, going on with 2"]


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("shape mismatch"), KeyError("k"), UsageError("bad")])
def test_other_errors_are_passed_on_at_once(error: Exception) -> None:
    calls: list[int] = []

    def work(x: Tensor) -> Tensor:
        calls.append(len(x))
        raise error

    chunks = Chunks(4)
    with pytest.raises(type(error)) as raised:
        chunks.map(work, torch.arange(8))
    assert raised.value is error
    assert calls == [4]
    assert chunks.size == 4


def test_one_row_that_does_not_fit_ends_the_work() -> None:
    calls: list[list[int]] = []
    with pytest.raises(AssayError, match="one case alone does not fit in memory: CUDA out of memory") as raised:
        Chunks(4).map(limited(0, calls), torch.arange(4))
    assert [len(call) for call in calls] == [4, 2, 1]
    assert raised.value.exit_code == 3
    assert isinstance(raised.value.__cause__, torch.OutOfMemoryError)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(CPU_MESSAGE)])
def test_the_cpu_runs_out_of_memory_too(error: Exception) -> None:
    def work(x: Tensor) -> Tensor:
        if len(x) > 1:
            raise error
        return x

    assert Chunks(4).map(work, torch.arange(4)).tolist() == [0, 1, 2, 3]


def test_an_empty_batch_is_one_empty_block() -> None:
    seen: list[int] = []

    def work(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x.new_zeros(len(x), 7)

    assert Chunks(4).map(work, torch.zeros(0, 3)).shape == (0, 7)
    assert seen == [0]


def test_what_counts_as_out_of_memory() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("x"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError(CPU_MESSAGE))
    assert not is_out_of_memory(RuntimeError("other"))
    assert not is_out_of_memory(ValueError(CPU_MESSAGE))
