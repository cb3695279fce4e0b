"""When to stop: time is up, or the user pressed Ctrl-C."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any


class Stopper:
    """Says when work must end: the first Ctrl-C or SIGTERM asks to finish what is under way, the second interrupts."""

    def __init__(self, seconds: float | None) -> None:
        self.interrupted = False
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._before: dict[int, Any] = {}

    @property
    def now(self) -> bool:
        return self.interrupted or (self._deadline is not None and time.monotonic() >= self._deadline)

    def __enter__(self) -> "Stopper":
        # Only the main thread may catch signals; a background process ignores Ctrl-C and goes on doing so.
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = {number: signal.signal(number, self._press) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end(self) -> None:
        """Interrupt now, if asked to: for work that is stopped between two steps and has nothing to give back."""
        if self.interrupted:
            raise KeyboardInterrupt

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
