"""A saved evaluation as its run holds it: the numbers, and of every input whether it was right and what broke it.

The file ``state/evaluation.json`` has all that ``assay eval --json`` tells but clocks and counts of questions, so that
the same evaluation is committed as the same bytes. Runs of older versions do not have it: of them the blocks, which are
committed too, and ``stats.json``, which is a convenience, tell what they can.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.shards import decode
from assay.core.store import Store
from assay.engines.cascade import Block
from assay.engines.evaluation import Evaluation, Share

KIND = "evaluation"
FILE = "state/evaluation.json"
APART = ("run", "queries", "regress", "seconds")  # clocks, places, and what has commits of its own


def keep_evaluation(run: Store, result: Evaluation) -> None:
    """Commit the numbers of a whole evaluation, once."""
    if next(run.commits(KIND), None) is None:
        run.commit({FILE: json.dumps(timeless(result.to_json()), allow_nan=False).encode()}, kind=KIND)


def timeless(told: Any) -> Any:
    """The same numbers without what differs from one machine, or one attempt, to another."""
    if isinstance(told, Mapping):
        return {name: timeless(value) for name, value in told.items() if name not in APART}
    return told


@dataclass(frozen=True)
class Saved:
    """What a run of ``assay eval --save`` holds.

    ``told`` is the evaluation as JSON, {} where it has not ended (or an old run lost it); ``blocks`` are the inputs
    that are done.
    """

    run: Store
    told: Mapping[str, Any]
    blocks: tuple[Block, ...]
    cascade: bool
    order: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return bool(self.told)

    @property
    def protocol(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.told.get("protocol", {})
        return found

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; numbers where the run does not tell."""
        return classes_in(self.run) or tuple(map(str, range(int(self.y.max()) + 1 if len(self.y) else 2)))

    @cached_property
    def y(self) -> Tensor:
        return self._rows("y")

    @cached_property
    def right(self) -> Tensor:
        """Which clean inputs are right, (N,)."""
        return self._rows("right").bool()

    @cached_property
    def pred(self) -> Tensor | None:
        """The class that each clean input was given, (N,); None in runs of older versions."""
        return None if any(block.pred is None for block in self.blocks) else self._rows("pred")

    def _rows(self, name: str) -> Tensor:
        parts: list[Tensor] = [getattr(block, name) for block in self.blocks]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    def attacks(self, *, static: bool = False) -> list[str]:
        """The attacks as blocks name them, ``column/attack``, in the order they ran."""
        made = self.blocks[0].effort if self.blocks else {}
        # The journal spells its tables in the order of their keys; the identity tells that of the work.
        order = [*(key for key in self.order if key in made), *(key for key in made if key not in self.order)]
        return [key for key in order if key.startswith("static/") == static]

    def labels(self) -> list[str]:
        """The attacks on the model itself by their own names, in the order they ran."""
        return [key.partition("/")[2] for key in self.attacks()]

    def broken(self, key: str) -> Tensor:
        """Which inputs that attack broke, (N,)."""
        return torch.cat([block.broken[key] for block in self.blocks])

    def size(self, key: str) -> Tensor:
        """How large the perturbations are that broke an input, (N,), infinite elsewhere."""
        return torch.cat([block.size[key] for block in self.blocks])

    def standing(self, *, static: bool = False) -> Tensor:
        """Which inputs no attack of the column broke, (N,): the pointwise worst case."""
        now = self.right.clone()
        for key in self.attacks(static=static):
            now &= ~self.broken(key)
        return now

    def shares(self, *, static: bool = False) -> dict[str, Share]:
        """The accuracy after each attack, from the blocks: what is left where it is a cascade, else of each alone."""
        found, now = {}, self.right.clone()
        for key in self.attacks(static=static):
            broken = self.broken(key)
            now &= ~broken
            left = now if self.cascade else self.right & ~broken
            found[key.partition("/")[2]] = Share(int(left.sum()), len(left))
        return found

    def effort(self, key: str) -> dict[str, float | None]:
        """What an attack took in all blocks: seconds, answers, gradients, and the inputs it was tried on and broke."""
        spent = [block.effort[key] for block in self.blocks]
        told: dict[str, float | None] = {"seconds": sum(e.seconds for e in spent)}
        for name in ("forward", "gradient"):
            counts = [getattr(e, name) for e in spent]
            told[name] = None if None in counts else sum(counts)
        tried = sum(int(block.tried[key].sum()) for block in self.blocks)
        return {**told, "tried": tried, "broken": int(self.broken(key).sum())}


def saved_evaluation(run: Store) -> Saved | None:
    """The evaluation in a run; None where it is of another kind."""
    told = run.lines[0].meta.get("identity", {}) if run.lines else {}
    if told.get("run", {}).get("kind") != "eval":
        return None
    how = told.get("run", {})
    order = tuple(map(str, how.get("order", ())))
    return Saved(run, _numbers(run), tuple(_blocks(run)), bool(how.get("cascade", True)), order)


def _numbers(run: Store) -> dict[str, Any]:
    line = next(run.commits(KIND), None)
    if line is not None:
        found: dict[str, Any] = json.loads(run.file(FILE))
        return found
    stats = run.stats()
    # What an older version left beside the journal, if it is of the whole evaluation.
    whole = any(run.commits("numbers")) and {"clean", "worst", "attacks", "protocol"} <= set(stats)
    return timeless(stats) if whole and stats.get("complete", True) else {}


def _blocks(run: Store) -> list[Block]:
    found = []
    for line in run.commits("eval"):
        name = next((file for file in line.files if file.startswith("state/")), None)
        try:
            columns = {} if name is None else decode(run.file(name))
            found.append(Block.of(columns, dict(line.meta["effort"])))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{run.path / (name or '')} is no block of an evaluation: {error!r:.60}") from error
    return found


def worst_pairs(saved: Saved) -> Tensor:
    """The true class of each input and the one it is given in the worst case, (M, 2).

    Of an input that an attack broke, the class is that of the first example that did; of one that was wrong before any
    attack, its own, where the run tells (older ones do not, and leave such inputs out).
    """
    standing = saved.y[saved.standing()]
    parts = [torch.stack([standing, standing], 1)]
    if saved.pred is not None:
        parts.append(torch.stack([saved.y, saved.pred], 1)[~saved.right])
    for line in saved.run.commits("eval"):
        for name in line.files:
            if name.startswith("cases/"):
                parts.append(_first_breaks(decode(saved.run.file(name))))
    return torch.cat(parts).long()


def _first_breaks(columns: Mapping[str, Tensor]) -> Tensor:
    """Of the examples of a block, the classes (true, given) of the first that fooled the target, for each input."""
    fooled = columns["success"].bool() & ~columns["static"].bool()
    origin, attack = columns["origin"][fooled], columns["attack"][fooled]
    pairs = torch.stack([columns["y"][fooled], columns["pred"][fooled]], 1)
    order = attack.argsort(stable=True)
    order = order[origin[order].argsort(stable=True)]
    _, counts = origin[order].unique_consecutive(return_counts=True)
    return pairs[order[counts.cumsum(0) - counts]]


def classes_in(run: Store) -> tuple[str, ...]:
    """The names of the classes that a saved evaluation tells with its first block, () where it tells none."""
    line = next(run.commits("eval"), None)
    told = None if line is None else line.meta.get("classes")
    return tuple(map(str, told)) if isinstance(told, list) else ()
