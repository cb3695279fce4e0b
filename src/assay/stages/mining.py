"""Mining a training's history: for each input the epoch that was surest of its true class (DARE, stage 2).

Two versions of one program differ, the net and another epoch of its training; where that does better on an input, its
inner output is what the net should have given.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.modes import eval_mode
from assay.subjects.cut import Cut
from assay.subjects.history import Snapshots

NONE = -1  # no epoch
MOST_BYTES = 8 * 2**30  # of targets held in memory


@dataclass(frozen=True, slots=True)
class Mined:
    """The inputs that some other epoch does better on: their ``rows`` among the cases, and of each the ``epoch``, its
    ``confidence`` in the true class, that of the net now (``before``), and whether the net is ``right``.
    """

    rows: Tensor
    epoch: Tensor
    confidence: Tensor
    before: Tensor
    right: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: Tensor) -> "Mined":
        columns = (self.rows, self.epoch, self.confidence, self.before, self.right)
        return Mined(*(column[some] for column in columns))


def mined(
    module: nn.Module, snapshots: Snapshots, cases: Cases, *, since: float = 0.5, chunks: Chunks | None = None
) -> Mined:
    """One pass of every epoch mined over the cases; only who was surest is remembered.

    An input that the net gets right takes any epoch that is surer of its class, one that it gets wrong only such that
    get it right. Of equally sure epochs the first counts.
    """
    chunks = chunks or Chunks()
    net = copy.deepcopy(module)
    with eval_mode(net):
        before, pred = _sure(net, cases, chunks)
        right = pred == cases.y
        best, epoch = before.clone(), torch.full_like(cases.y, NONE)
        for number in snapshots.since(since):
            net.load_state_dict(snapshots.read(number))
            sure, pred = _sure(net, cases, chunks)
            better = (sure > best) & (right | (pred == cases.y))
            best, epoch = torch.where(better, sure, best), epoch.masked_fill(better, number)
    rows = (epoch != NONE).nonzero().flatten()
    return Mined(rows, epoch[rows], best[rows], before[rows], right[rows])


def targets(
    module: nn.Module, snapshots: Snapshots, cases: Cases, found: Mined, cut: Cut, *, chunks: Chunks | None = None
) -> Tensor:
    """What the chosen epoch of each mined input gives at the cut, (N, ...); each epoch is loaded once."""
    if not len(found):
        raise NothingToTest("no input was mined, so there is nothing to aim at")
    chunks = chunks or Chunks()
    net, x = copy.deepcopy(module), cases.x[found.rows]
    wanted: Tensor | None = None
    with eval_mode(net), torch.no_grad():
        for number in found.epoch.unique().tolist():
            net.load_state_dict(snapshots.read(number))
            some = (found.epoch == number).nonzero().flatten()
            made = chunks.map(lambda block: cut.output(net, block).float(), x[some])
            if wanted is None:
                _check_size(made, len(found), cut)
                wanted = made.new_empty(len(found), *made.shape[1:])
            wanted[some] = made
    assert wanted is not None  # there is one epoch at least
    return wanted


def _sure(net: nn.Module, cases: Cases, chunks: Chunks) -> tuple[Tensor, Tensor]:
    """How sure the net is of the true class of each case, and which class it gives."""

    def ask(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            out = net(x)
        return out.float().softmax(1).gather(1, y[:, None])[:, 0], out.argmax(1)

    sure, pred = chunks.map_all(ask, cases.x, cases.y)
    return sure, pred


def _check_size(made: Tensor, count: int, cut: Cut) -> None:
    size = math.prod(made.shape[1:]) * made.element_size() * count
    if size > MOST_BYTES:
        raise UsageError(
            f"the outputs of {cut.layer} on {count} inputs take {size / 2**30:.0f} GB; cut later (layer=last), "
            f"or learn from fewer: count={MOST_BYTES * count // size}"
        )
