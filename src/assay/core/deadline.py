"""A limit on how long one call of the model may take.

An alarm interrupts a net that runs Python code, sleeps or waits, and the call fails as if the net had raised. A net
that sits in compiled code and never comes back cannot be interrupted: a second watch, a thread, then ends the process,
which loses nothing that was committed.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

from assay.core.errors import INTERNAL, ModelFailed, UsageError
from assay.core.units import seconds

Answer = TypeVar("Answer")
P = ParamSpec("P")

MOST = 1e6  # seconds, eleven days: what is longer is no limit, and clocks of the system know an end
LEAST_GRACE = 1.0  # seconds that a call has to come back after its alarm, and at least as many as it was given


class _Expired(BaseException):
    """Raised by the alarm; no Exception, which a net may catch."""


class _State:
    """The limit of this process, and the call under way."""

    limit: float | None = None
    armed = False
    watch: "_Watch | None" = None


_state = _State()


@contextmanager
def call_limit(asked: str | float | None) -> Iterator[None]:
    """Every call of a net inside the block may take so long; None leaves the limit as it is."""
    if asked is None:
        yield
        return
    try:
        limit = seconds(asked)
    except UsageError as error:
        raise UsageError(f"--call-timeout {asked!r}: {error}") from None
    if limit > MOST:
        raise UsageError(f"--call-timeout {asked!r}: at most {MOST:.0f} seconds; leave it out for no limit")
    before, _state.limit = _state.limit, limit
    try:
        yield
    finally:
        _state.limit = before


def limited(work: Callable[P, Answer]) -> Callable[P, Answer]:
    """Work whose keyword ``call_timeout`` is the limit while it lasts."""

    @wraps(work)
    def inside(*given: P.args, **named: P.kwargs) -> Answer:
        asked = named.get("call_timeout")
        with call_limit(asked if isinstance(asked, (str, int, float)) else None):
            return work(*given, **named)

    return inside


def limit() -> float | None:
    """Seconds that a call may take, None where nobody has said."""
    return _state.limit


def in_time(work: Callable[[], Answer]) -> Answer:
    """What ``work`` gives, if it does in time. A call inside another one counts with it."""
    if _state.limit is None or _state.armed:
        return work()
    if _state.watch is None or not _state.watch.is_alive():  # a forked child has none of its parent's threads
        _state.watch = _Watch()
        _state.watch.start()
    allowed, watch = _state.limit, _state.watch
    watch.expect(allowed)
    if threading.current_thread() is not threading.main_thread():  # where no alarm can be caught
        try:
            return work()
        finally:
            watch.done()
    before = signal.signal(signal.SIGALRM, _ring)
    try:
        _state.armed = True
        signal.setitimer(signal.ITIMER_REAL, allowed)
        return work()
    except _Expired:
        raise ModelFailed(f"the model did not answer within {allowed:g} s (--call-timeout)") from None
    finally:
        _state.armed = False  # before anything that may be interrupted: an alarm from here on is too late to count
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        watch.done()


def _ring(number: int, frame: FrameType | None) -> None:
    if _state.armed:
        raise _Expired


class _Watch(threading.Thread):
    """Ends the process where a call has not come back long after its alarm."""

    def __init__(self) -> None:
        super().__init__(name="assay call watch", daemon=True)
        self._changed = threading.Condition()
        self._until: float | None = None
        self._allowed = 0.0

    def expect(self, allowed: float) -> None:
        with self._changed:
            self._until, self._allowed = time.monotonic() + allowed + max(allowed, LEAST_GRACE), allowed
            self._changed.notify()

    def done(self) -> None:
        with self._changed:
            self._until = None

    def run(self) -> None:
        with self._changed:
            while True:
                left = None if self._until is None else self._until - time.monotonic()
                if left is not None and left <= 0:
                    self._end()
                self._changed.wait(left)

    def _end(self) -> None:
        told = (
            f"error: the model did not answer within {self._allowed:g} s (--call-timeout) and cannot be interrupted; "
            "the process is ended. What was committed is kept, the same command goes on from there\n"
        )
        os.write(2, told.encode())
        os._exit(INTERNAL)
