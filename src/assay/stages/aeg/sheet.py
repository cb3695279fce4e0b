"""A sheet of samples: images, what they become on the way, and what comes back."""

import torch
from torch import Tensor

from assay.core.cases import UNLABELLED
from assay.core.images import png, unit_range
from assay.stages.aeg.generator import Aeg
from assay.subjects.bench import Data

SHEET = "aeg.png"
ROWS, TIMES, GAP = 10, 2, 2  # images on a sheet, how much differences are enlarged, pixels between images
CAPTION = (
    "a row an image; columns: the image, then for the oldest and for the newest snapshot: halfway, the test case, "
    f"its difference from the image times {TIMES} (grey is none)"
)
WIDE = 900  # pixels of a sheet across, at most as many as images have where they are larger


def sheet(aeg: Aeg, data: Data, rows: int = ROWS) -> bytes:
    """PNG: a row an image, one of each class where labels are known.

    Columns as ``CAPTION`` says. Differences keep their sign, because a stroke that grows thicker looks otherwise like
    one that fades.
    """
    x = data.cases.x[samples(data, rows)]
    unit = unit_range(x, aeg.bounds)
    across = [unit]
    for snapshot in (aeg.snapshots - 1, 0):
        halfway, whole = (unit_range(part.cpu(), aeg.bounds) for part in aeg.steps(x, snapshot))
        across += [halfway, whole, (0.5 + TIMES * (whole - unit)).clamp(0, 1)]
    framed = [torch.nn.functional.pad(column, (GAP,) * 4, value=0.5) for column in across]
    whole_sheet = torch.cat([torch.cat(list(column), 1) for column in framed], 2)
    return png(whole_sheet, max(1, WIDE // whole_sheet.shape[2]))


def samples(data: Data, count: int) -> Tensor:
    """The first row of each class, then others in order, ``count`` rows or what there are."""
    first: dict[int, int] = {}
    for row, label in enumerate(data.cases.y.tolist()):
        if label != UNLABELLED:
            first.setdefault(label, row)
        if len(first) == len(data.spec.classes):
            break
    rows = [first[label] for label in sorted(first)][:count]
    rows += [row for row in range(min(len(data), 2 * count)) if row not in rows][: count - len(rows)]
    return torch.tensor(rows)
