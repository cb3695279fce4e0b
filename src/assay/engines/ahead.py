"""Cases on their way to a device while the ones before them are worked on."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from assay.core.cases import Cases


def ahead(parts: Iterable[Cases], device: torch.device) -> Iterator[Cases]:
    """The parts on the device, in order. To a GPU each travels, on a stream of its own, while its neighbour is worked:
    out of pinned memory, from which a GPU fetches by itself. Elsewhere nothing is done ahead.
    """
    if device.type != "cuda":
        for part in parts:
            yield part.to(device)
        return
    stream = torch.cuda.Stream(device)
    coming: _Coming | None = None
    for part in parts:
        sent = _sent(part, device, stream)
        if coming is not None:
            yield _arrived(coming, device)
        coming = sent
    if coming is not None:
        yield _arrived(coming, device)


class _Coming(NamedTuple):
    """Cases that are being copied, and what tells when they are there; waiting for the stream, one would wait for the
    next ones, too.
    """

    cases: Cases
    there: torch.cuda.Event


def _sent(cases: Cases, device: torch.device, stream: torch.cuda.Stream) -> _Coming:
    with torch.cuda.stream(stream):
        moved = _each(cases, device)
        there = torch.cuda.Event()
        there.record(stream)
    return _Coming(moved, there)


def _each(cases: Cases, device: torch.device) -> Cases:
    def move(tensor: Tensor) -> Tensor:
        return tensor if tensor.is_cuda else tensor.pin_memory().to(device, non_blocking=True)

    info = {name: move(column) for name, column in cases.info.items()}
    return replace(cases, x=move(cases.x), y=move(cases.y), origin=move(cases.origin), info=info)


def _arrived(coming: _Coming, device: torch.device) -> Cases:
    """The cases, for the stream at work; their memory is not given away while that one still reads it."""
    current = torch.cuda.current_stream(device)
    current.wait_event(coming.there)
    cases = coming.cases
    for tensor in (cases.x, cases.y, cases.origin, *cases.info.values()):
        tensor.record_stream(current)
    return cases
