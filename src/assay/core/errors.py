"""Errors that end a command: each carries the exit code of the contract, which is pytest's."""

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


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out. The CPU allocator has no type of its own, only its message."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's; named, not imported
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)


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
