"""The nearest of many points, exactly, by matrix products in tables of bounded size."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.stages.surprise.groups import BLOCK, blocks

COLUMNS = 8192  # points in one table; more gains nothing, and few rows make slow products


@dataclass(frozen=True, slots=True)
class Points:
    """Points (M, W) to be near to, with what every table needs of them."""

    points: Tensor
    centre: Tensor
    centred: Tensor
    halves: Tensor  # half the square of each length, (M,)

    @staticmethod
    def of(points: Tensor) -> "Points":
        centre = points.mean(0, dtype=torch.float64).to(points.dtype)
        centred = points - centre
        return Points(points, centre, centred, centred.square().sum(1) / 2)

    def nearest(self, x: Tensor, among: slice, block: int = BLOCK) -> tuple[Tensor, Tensor]:
        """The row of the point nearest to each x (N, W) among a run of points, and the distance, float64, (N,) each.

        Of several at the same distance it is the first; where there is no point, or x is not finite, the distance is
        infinite.
        """
        finite = x.isfinite().all(1)
        x = torch.where(finite[:, None], x, self.centre)
        rows, away = among.start + torch.zeros(len(x), dtype=torch.int64, device=x.device), _endless(x)
        width = max(1, min(COLUMNS, among.stop - among.start))
        for some in blocks(len(x), max(width, x.shape[1]), block):
            best = torch.full_like(away[some], torch.inf, dtype=x.dtype)
            for start in range(among.start, among.stop, width):
                run = slice(start, min(start + width, among.stop))
                best = self._one(x[some], run, best, rows[some], away[some], block)
        return rows, torch.where(finite, away, torch.inf)

    def _one(self, x: Tensor, run: slice, best: Tensor, rows: Tensor, away: Tensor, block: int) -> Tensor:
        """Brings ``rows`` and ``away`` up to date with one run of points; the smallest entry of the tables so far."""
        # ½‖p‖² - x·p differs from half the squared distance by a constant of the row: the same order, in one product.
        moved = x - self.centre
        table = torch.addmm(self.halves[run], moved, self.centred[run].T, alpha=-1)
        best = torch.minimum(best, table.amin(1))
        # The product cancels where points are near: whatever rounding may have put behind the best is measured again.
        longest = self.halves[run].amax().mul(2).sqrt()
        slack = (x.shape[1] + 8) * _unit(x) * (moved.square().sum(1).sqrt() + longest).square()
        bound = (best + slack).nan_to_num(torch.inf, torch.inf, torch.inf)[:, None]
        close = (table > bound).logical_not_()  # this way round what overflowed counts as close
        row, column = close.nonzero(as_tuple=True)
        for pairs in blocks(len(row), 8 * x.shape[1], block):  # float64, and three of them at a time
            self._measure(x, row[pairs], column[pairs] + run.start, rows, away)
        return best

    def _measure(self, x: Tensor, row: Tensor, point: Tensor, rows: Tensor, away: Tensor) -> None:
        """Takes over those of the pairs that are nearer than what was found before them."""
        length = torch.linalg.vector_norm(x[row].double() - self.points[point].double(), dim=1)
        least = _endless(x).scatter_reduce_(0, row, length, "amin")
        first = torch.full_like(rows, len(self.points))
        ties = length == least[row]
        first.scatter_reduce_(0, row[ties], point[ties], "amin")
        nearer = least < away
        rows.copy_(torch.where(nearer, first, rows))
        away.copy_(torch.where(nearer, least, away))


def _endless(x: Tensor) -> Tensor:
    return x.new_full((len(x),), torch.inf, dtype=torch.float64)


def _unit(x: Tensor) -> float:
    """The relative error of one multiplication in a matrix product."""
    if x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return 2.0**-7  # a caller has allowed products of fewer digits; right all the same, but slower
    return torch.finfo(x.dtype).eps
