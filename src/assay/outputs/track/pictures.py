"""Pictures of failures as they are committed: the first few of each pair of classes, and not many in all."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.ids import case_ids
from assay.core.images import grey, to_bytes
from assay.core.journal import Line
from assay.core.shards import decode

MOST = 64  # of a run
OF_A_PAIR = 4
OF_A_COMMIT = 8
SMALLEST, LARGEST = 96, 512  # pixels along a side: small ones are drawn larger, large ones smaller
GAP = 2


class Pictures:
    """Chooses and draws them; what it chose before it does not choose again."""

    def __init__(self) -> None:
        self.made = 0
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._seen: set[str] = set()

    def of(self, run: Path, line: Line) -> Iterator[dict[str, Any]]:
        """Pictures of failures that a commit made durable."""
        left = OF_A_COMMIT
        for name in line.files if line.meta.get("kind") in ("fuzz", "eval") else ():
            if name.startswith("cases/") and left and self.made < MOST:
                for told in self._shard(run, decode((run / name).read_bytes()), min(left, MOST - self.made)):
                    left -= 1
                    yield told

    def _shard(self, run: Path, columns: Mapping[str, Tensor], most: int) -> Iterator[dict[str, Any]]:
        x, y = columns["x"], columns["y"]
        if x.dim() != 4:  # vectors have no picture
            return
        pred = columns.get("pred", torch.full_like(y, -1))
        rows = self._chosen(y.tolist(), pred.tolist(), columns.get("success"), most)
        ids = case_ids(Cases(x[rows], y[rows], columns["origin"][rows]))
        names = store.begun_with(run).get("target", {}).get("classes", [])
        for row, name in zip(rows, ids, strict=True):
            if name in self._seen:
                continue
            self._seen.add(name)
            self.made += 1
            seed = columns["seeds"][columns["seed"][row]] if "seeds" in columns and "seed" in columns else None
            yield {
                "run": str(run),
                "id": name,
                "number": self.made,
                "true": _named(int(y[row]), names),
                "predicted": _named(int(pred[row]), names),
                "shows": "case" if seed is None else "seed, case, difference",
                "picture": drawn(x[row], seed),
            }

    def _chosen(self, y: list[int], pred: list[int], fools: Tensor | None, most: int) -> list[int]:
        """The first rows whose pair of classes has not had its pictures yet."""
        rows: list[int] = []
        fooling = [True] * len(y) if fools is None else fools.bool().tolist()
        for row, pair in enumerate(zip(y, pred, strict=True)):
            if len(rows) == most:
                break
            if fooling[row] and self._pairs[pair] < OF_A_PAIR:
                self._pairs[pair] += 1
                rows.append(row)
        return rows


def drawn(x: Tensor, seed: Tensor | None) -> Any:
    """An image (C, H, W) beside its seed and their difference, grey being none, as an array (height, width, 3)."""
    parts = [x] if seed is None else [seed, x]
    low, high = min(0.0, *(float(p.min()) for p in parts)), max(1.0, *(float(p.max()) for p in parts))
    shown = [(part - low) / (high - low) for part in parts]
    if seed is not None:
        change = x - seed
        shown.append(0.5 + change / (2 * change.abs().max().clamp_min(1e-12)))
    large = [_sized(_coloured(part.nan_to_num(0.5))) for part in shown]
    gap = torch.ones(3, large[0].shape[1], GAP)
    whole = torch.cat([piece for part in large for piece in (gap, part)][1:], 2)
    return to_bytes(whole).permute(1, 2, 0).contiguous().numpy()


def _coloured(x: Tensor) -> Tensor:
    """Three channels."""
    return x if len(x) == 3 else grey(x[None])[0].expand(3, -1, -1)


def _sized(x: Tensor) -> Tensor:
    side = max(x.shape[1:])
    if side > LARGEST:
        step = -(-side // LARGEST)
        return x[:, ::step, ::step]
    times = -(-SMALLEST // side)
    return x.repeat_interleave(times, 1).repeat_interleave(times, 2)


def _named(place: int, names: list[str]) -> str:
    """The class as people call it; the answer may have been none."""
    if place < 0:
        return "unknown"
    return str(names[place]) if place < len(names) else str(place)
