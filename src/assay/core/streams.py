"""Work on a GPU beside what it does already: in a stream of its own, so that waiting for one does not wait for both."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")


def beside(work: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same work in a second stream of the present GPU: of inputs that lie on the CPU, with results that do."""

    @wraps(work)
    def done(*given: Given.args, **named: Given.kwargs) -> Made:
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return work(*given, **named)
        with torch.cuda.stream(_second(torch.cuda.current_device())):
            return work(*given, **named)

    return done


@cache
def _second(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
