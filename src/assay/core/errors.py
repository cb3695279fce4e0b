"""Errors that end a command: each carries the exit code of the contract, which is pytest's."""

import re

PASSED, NOT_MET, INTERRUPTED, INTERNAL, USAGE, NOTHING_TO_TEST = range(6)


class AssayError(Exception):
    """Something the user is told in one message, without a traceback."""

    exit_code = INTERNAL


class UsageError(AssayError):
    """A name, value, file or run folder that cannot be used as given."""

    exit_code = USAGE


class NothingToTest(AssayError):
    """The request is well formed but leaves no case to work on."""

    exit_code = NOTHING_TO_TEST


class OutOfMemory(AssayError):
    """Not even the smallest piece of the work fits in memory; what was committed before is intact."""

    exit_code = INTERNAL


# What allocators say that have no type of their own: the CPU's, and those that libraries on a GPU go round torch with.
_NO_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "MPS backend out of memory",
)
_AMOUNT = re.compile(
    r"(?:tried to allocate|unable to allocate|allocate) (\d[\d.]* ?(?:bytes|[KMGT]i?B))", re.IGNORECASE
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    # torch's own is named, not imported
    if isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def memory_wanted(error: BaseException) -> str:
    """How much was wanted when memory ran out, as far as the error tells.

    >>> memory_wanted(RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of"))
    'another 2.50 GiB was wanted'
    """
    amount = _AMOUNT.search(str(error))
    if amount is not None:
        return f"another {amount[1]} was wanted"
    first = str(error).split("\n")[0]
    return first or "how much was wanted is not known"


class StorageError(AssayError):
    """The disk refused a write; what was committed before is intact."""

    exit_code = INTERNAL


class Interrupted(AssayError):
    """The user stopped the work; what was committed is kept."""

    exit_code = INTERRUPTED


class NoAnswer(AssayError):
    """A target that only answers did not, however often it was asked; what it answered before is kept."""

    exit_code = INTERNAL


class BudgetSpent(AssayError):
    """More questions were wanted than the budget allows; none of them was sent, and what was answered is kept.

    Runs end on it as on a spent time budget. Where nothing does, the command is told to have been stopped.
    """

    exit_code = INTERRUPTED

    def __init__(self, limit: int, asked: int, wanted: int) -> None:
        super().__init__(
            f"the budget of {limit} queries is spent: {asked} were asked, {wanted} more are wanted; "
            "give more --queries to go on"
        )
        self.limit, self.asked, self.wanted = limit, asked, wanted


class ModelFailed(NoAnswer, RuntimeError):
    """The model under test raised an error, or did not answer in the time that a call may take.

    A RuntimeError too: what tries whether a net can be recorded or differentiated expects those.
    """

    exit_code = INTERNAL
