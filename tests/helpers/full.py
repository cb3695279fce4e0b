"""A machine whose memory is full beyond a number of inputs, for a command in a nursery."""

from dataclasses import dataclass
from pathlib import Path

from assay.core.registry import names

UNCHECKED = tuple(word for name in names("check") for word in ("--ignore", name))  # they ask far more than a suite
GPU = "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate %d.00 MiB. GPU 0 has 1.00 MiB free.' % rows)"
CPU = (
    "RuntimeError(\"[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    'tried to allocate %d bytes. Error code 12" % rows)'
)
BROKEN = "RuntimeError('a fault of another kind, rows %d' % rows)"

_TRAP = """
import torch
from torch import nn

plain = nn.Conv2d._conv_forward

log = open({log!r}, "a", buffering=1)
calls = 0

def full(place, rows):
    global calls
    calls += 1
    out = place == {where!r} and rows > {most} and calls > {after}
    print("out" if out else "in", place, rows, file=log)
    if out:
        raise {error}

class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad):
        return grad.clone()
    @staticmethod
    def backward(ctx, grad):
        full("double", len(grad))
        return grad

class Watched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        full("backward", len(grad))
        return Again.apply(grad)

def forward(self, x, weight, bias):
    full("training" if self.training else "forward", len(x))
    if {where!r} in ("backward", "double") and x.requires_grad:
        x = Watched.apply(x)
    return plain(self, x, weight, bias)

nn.Conv2d._conv_forward = forward
"""


def evaluation(model: str, *more: str, n: int = 16, suite: str = "fgsm", eps: str | None = "0.1") -> tuple[str, ...]:
    """The command that evaluates a model on the first digits."""
    ball = () if eps is None else ("--eps", eps)
    return ("eval", model, "--data", f"digits/test[:{n}]", "--suite", suite, *ball, *more)


def room_for(rows: int) -> str:
    """What makes a command know from the start that so many rows fit."""
    return f"from assay.core import room; known = room.Room; room.Room = lambda: known({rows})\n"


@dataclass(frozen=True, slots=True)
class Full:
    """Convolutions that run out of memory with more than ``most`` inputs, ``where``: in forward, backward (gradients
    of inputs), double (gradients of these) or training.
    """

    log: Path
    most: int
    where: str = "forward"
    error: str = GPU
    after: int = 0  # so many calls go well before

    @property
    def trap(self) -> str:
        return _TRAP.format(where=self.where, most=self.most, log=str(self.log), error=self.error, after=self.after)

    def calls(self) -> list[tuple[str, str, int]]:
        """What came of every call: in or out, where, with how many rows."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(word, place, int(rows)) for word, place, rows in (line.split() for line in lines)]

    def failed(self) -> list[int]:
        """The numbers of rows that did not fit, in order."""
        return [rows for word, _, rows in self.calls() if word == "out"]
