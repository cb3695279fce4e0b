"""Names of inputs and of cases: digests of their content, the same in every report, export and command."""

import hashlib

import numpy as np
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError

SHORTEST = 4  # the fewest digits that name a case
_DIGITS = 16


def input_ids(x: Tensor) -> list[str]:
    """16 hexadecimal digits for each input of a batch; equal inputs have equal ids."""
    return [hashlib.sha256(row.tobytes()).hexdigest()[:_DIGITS] for row in _rows(x)]


def case_ids(cases: Cases) -> list[str]:
    """16 hexadecimal digits for each case: of the SHA-256 of its shape, its float32 input and its label.

    An input found twice with the same label is one failure, and so has one id, in whichever run it was found.

    >>> import torch
    >>> case_ids(Cases.of(torch.zeros(2, 1, 8, 8), torch.tensor([3, 3])))
    ['1fbde79ce09815f8', '1fbde79ce09815f8']
    """
    start = repr(tuple(cases.x.shape[1:])).encode()
    labels = cases.y.detach().cpu().numpy().astype("<i8")
    rows = zip(_rows(cases.x), labels, strict=True)
    return [hashlib.sha256(start + row.tobytes() + label.tobytes()).hexdigest()[:_DIGITS] for row, label in rows]


def rows_named(wanted: list[str], ids: list[str], where: str) -> list[int]:
    """The first row of each id asked for, each once, in the order asked; a beginning that no other shares is enough."""
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        first.setdefault(name, row)
    return list(dict.fromkeys(first[_named(text, first, where)] for text in wanted))


def _named(text: str, ids: dict[str, int], where: str) -> str:
    """The one id that begins with the text, in capitals or not."""
    text = text.lower()
    if len(text) < SHORTEST or set(text) - set("0123456789abcdef"):
        raise UsageError(f"the id of a failure is {SHORTEST} to {_DIGITS} of the digits 0-9a-f, got {text!r}")
    found = [text] if text in ids else [name for name in ids if name.startswith(text)]
    if len(found) == 1:
        return found[0]
    some = found or list(ids)
    shown = ", ".join(some[:5]) + (", …" if len(some) > 5 else "")
    if found:
        raise UsageError(f"{text} begins {len(found)} ids of {where}: {shown}; give more of its digits")
    raise UsageError(f"{where} has no failure {text}; it has {shown}")


def _rows(x: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.ascontiguousarray(x.detach().cpu().float().numpy().astype("<f4"))
