"""Work that asks the model, done again once where it fails: a fault that passes costs nothing but time."""

import logging
from collections.abc import Callable
from typing import TypeVar

from assay.core.errors import ModelFailed

log = logging.getLogger("assay")

Done = TypeVar("Done")


def once_more(work: Callable[[], Done], what: str, undo: Callable[[], None] = lambda: None, hint: str = "") -> Done:
    """What ``work`` gives; where the model fails in it a second time, the command ends and says ``what`` it did."""
    try:
        return work()
    except ModelFailed as error:
        log.warning("%s, %s; that is done once more", error, what)
        undo()
    try:
        return work()
    except ModelFailed as error:
        more = f"; {hint}" if hint else ""
        raise ModelFailed(
            f"{error}, twice, {what}{more}; what was committed is kept, the same command goes on from there"
        ) from error
