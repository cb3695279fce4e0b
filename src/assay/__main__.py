"""``python -m assay`` is ``assay``. Here, before anything slow is imported, Ctrl-C already ends without a traceback."""

import os
import signal
import sys
from types import FrameType

_EARLY = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 2


def main() -> None:
    """Run the command of the command line and leave with the exit code of the contract."""
    usual = {number: signal.getsignal(number) for number in _EARLY}
    mine = [number for number, handler in usual.items() if handler not in (signal.SIG_IGN, None)]
    for number in mine:
        signal.signal(number, _leave)
    from assay.cli import run

    try:
        for number in mine:
            signal.signal(number, usual[number])
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # pressed once more, while the first one was being told
        code = _INTERRUPTED
    for number in mine:  # what there is to say was said: the interpreter closes down in peace
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: stopped before it began; nothing was written\n")
    os._exit(_INTERRUPTED)  # not by an exception: libraries that are being imported make something else of it


if __name__ == "__main__":
    main()
