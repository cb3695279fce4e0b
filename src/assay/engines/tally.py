"""From the blocks of an evaluation to its numbers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.core.registry import Bound
from assay.engines.cascade import Block, Column, Effort
from assay.engines.evaluation import Evaluation, Outcome, Share, Sizes


class _Standing:
    """Which rows of a column are still right, after each attack."""

    def __init__(self, blocks: list[Block], column: str, attacks: Mapping[str, Bound], *, cascade: bool) -> None:
        self.blocks, self.column, self.cascade = blocks, column, cascade
        self.right = torch.cat([block.right for block in blocks])
        self.now = self.right.clone()
        self.outcomes: dict[str, Outcome] = {}
        self.at_eps: dict[float, Tensor] = {}
        self.smallest = torch.full((len(self.right),), torch.inf)
        for name, attack in attacks.items():
            self._take(name, attack)

    def _take(self, name: str, attack: Bound) -> None:
        key = f"{self.column}/{name}"
        tried, broken, size = (
            torch.cat([getattr(b, k)[key] for b in self.blocks]) for k in ("tried", "broken", "size")
        )
        self.now &= ~broken
        left = self.now if self.cascade else self.right & ~broken
        effort = [block.effort[key] for block in self.blocks]
        unbounded = "eps" in attack.params and attack.params["eps"] is None
        self.outcomes[name] = Outcome(
            Share(int(left.sum()), len(left)),
            int(tried.sum()),
            int(broken.sum()),
            Effort(sum(e.seconds for e in effort), *(_total(effort, k) for k in ("forward", "gradient"))),
            Sizes.of(size) if unbounded else None,
        )
        if unbounded:
            self.smallest = torch.minimum(self.smallest, size)
        elif "eps" in attack.params:
            self.at_eps[attack.params["eps"]] = self.now.clone()


def tally(
    blocks: list[Block],
    columns: Mapping[str, Column],
    classes: tuple[str, ...],
    protocol: dict[str, Any],
    static: str | None,
) -> Evaluation:
    """The numbers of all blocks together."""
    y = torch.cat([block.y for block in blocks])
    found = {
        name: _Standing(blocks, name, column.attacks, cascade=protocol["cascade"]) for name, column in columns.items()
    }
    white = {name: part for name, part in found.items() if name != "static"}
    right = next(iter(white.values())).right
    standing = torch.stack([part.now for part in white.values()]).all(0)
    smallest = torch.stack([part.smallest for part in white.values()]).amin(0)
    outcomes = {label: outcome for part in white.values() for label, outcome in part.outcomes.items()}
    curve = {
        eps: torch.stack([part.at_eps[eps] for part in white.values()]).all(0)
        for eps in next(iter(white.values())).at_eps
    }
    return Evaluation(
        clean=_share(right),
        attacks=outcomes,
        worst=_share(standing),
        per_class=_per_class(y, right, standing, classes),
        protocol=protocol,
        parts={name: _share(part.now) for name, part in white.items()} if set(white) != {"attacks"} else {},
        curve={eps: _share(rows) for eps, rows in curve.items()} if len(curve) > 1 else {},
        mean=None if protocol["cascade"] or len(curve) > 1 else _mean(outcomes),
        minimal=Sizes.of(smallest),
        static=found["static"].outcomes if static is not None else {},
        static_worst=_share(found["static"].now) if static is not None else None,
        static_from=static,
    )


def _total(effort: list[Effort], kind: str) -> int | None:
    """The sum of a count over all blocks, None where it was not counted."""
    counts = [getattr(e, kind) for e in effort]
    return None if None in counts else sum(counts)


def _mean(outcomes: Mapping[str, Outcome]) -> float:
    """The mean accuracy over attacks that each saw every input."""
    return sum(outcome.left.accuracy for outcome in outcomes.values()) / len(outcomes)


def _share(rows: Tensor) -> Share:
    return Share(int(rows.sum()), len(rows))


def _per_class(y: Tensor, right: Tensor, standing: Tensor, classes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Clean and worst-case accuracy of each class that occurs."""
    table = {}
    for label in y.unique().tolist():
        mine = y == label
        table[classes[label]] = {
            "n": int(mine.sum()),
            "clean": _share(right[mine]).to_json(),
            "worst": _share(standing[mine]).to_json(),
        }
    return table
