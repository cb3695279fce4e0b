"""What a gate knows of a model: its accuracies, and of which inputs each of them is, where somebody kept that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import entries
from assay.core.requirement import DROP, EVERY, Clause, Requirement
from assay.core.specs import did_you_mean
from assay.engines.cascade import Block
from assay.engines.evaluation import Share
from assay.engines.gate_decide import Rules, apart_row, bare_row, paired_row, same_row, share_row, unreliable
from assay.engines.gate_result import GateRow
from assay.engines.paired import paired


@dataclass(frozen=True, slots=True)
class Side:
    """One model on one set of inputs.

    ``right`` says of each input whether it is right, by the name of the number: ``clean``, ``robust`` (the pointwise
    worst case), every attack. Where only counts were kept, as of a hardening, it is empty. ``hint`` is what to do where
    a number is missing.
    """

    name: str
    shares: Mapping[str, Share]
    right: Mapping[str, Tensor] = field(default_factory=dict)
    y: Tensor | None = None
    pred: Tensor | None = None
    classes: tuple[str, ...] = ()
    fol: float | None = None
    warnings: tuple[Mapping[str, str], ...] = ()
    protocol: Mapping[str, Any] = field(default_factory=dict)
    attacks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    complete: bool = True
    hint: str = ""
    unchecked: Mapping[str, Any] = field(default_factory=dict)  # trust checks that were ignored, or could not be made

    def share(self, clause: Clause) -> Share:
        """The accuracy a clause speaks of."""
        if clause.stem not in self.shares:
            raise UsageError(
                f"{clause} cannot be answered from {self.name}: no number {clause.stem!r} was measured; "
                f"{self.hint or did_you_mean(clause.stem, self.shares)}"
            )
        return self.shares[clause.stem]

    def of_classes(self, clause: Clause) -> dict[str, Share]:
        """The accuracy of each class that the clause speaks of."""
        self.share(clause)
        if self.y is None:
            raise UsageError(f"{clause} cannot be answered from {self.name}, which keeps no classes apart; {self.hint}")
        there = self.y.unique().tolist()
        if clause.of != EVERY:
            if clause.of not in self.classes:
                raise UsageError(f"{clause}: there is no class {clause.of!r}; {did_you_mean(clause.of, self.classes)}")
            there = [self.classes.index(clause.of)]
        rows = self.right[clause.stem]
        return {self.classes[label]: _share(rows[self.y == label]) for label in there}

    def first(self, n: int) -> "Side":
        """The same of the first ``n`` inputs, which every number is of then: not of all."""
        if self.y is None or n >= len(self.y):
            return self
        right = {name: rows[:n] for name, rows in self.right.items()}
        pred = None if self.pred is None else self.pred[:n]
        shares = {name: _share(rows) for name, rows in right.items()}
        told = {**self.protocol, "n": n}
        return replace(
            self, right=right, y=self.y[:n], pred=pred, shares=shares, attacks={}, protocol=told, complete=False
        )

    def as_baseline(self) -> "Side":
        """The same, its warnings told as those of the baseline."""
        told = ({**warning, "message": f"of the baseline: {warning['message']}"} for warning in self.warnings)
        return replace(self, warnings=tuple(told))

    def called(self, labels: Mapping[str, str]) -> "Side":
        """The same, with attacks also under the names that a requirement has for them."""
        extra = {name: label for name, label in labels.items() if label in self.shares}
        right = {name: self.right[label] for name, label in extra.items() if label in self.right}
        shares = {name: self.shares[label] for name, label in extra.items()}
        return replace(self, shares={**self.shares, **shares}, right={**self.right, **right})


def unchecked(ignored: Sequence[str], not_made: Mapping[str, str]) -> dict[str, Any]:
    """The trust checks that nobody made, for the protocol: a number without them is worth less."""
    told: dict[str, Any] = {"checks_ignored": list(ignored)} if ignored else {}
    return told | ({"checks_not_made": dict(not_made)} if not_made else {})


def rows_of_blocks(blocks: Sequence[Block], order: Sequence[str], *, cascade: bool) -> dict[str, Tensor]:
    """Which inputs are right: clean, in the worst case, and under each attack; ``order`` is that in which they ran.

    In a cascade an attack saw only what was left by those before it: its number is of all of them together, except of
    the first, and no requirement may take it for that attack's. Blocks that were read back name their attacks in the
    order of the alphabet, so they cannot tell which was the first.
    """
    right = torch.cat([block.right for block in blocks]).bool()
    standing, found = right.clone(), dict[str, Tensor]()
    made = {key.partition("/")[2]: key for key in blocks[0].effort if not key.startswith("static/")}
    for place, key in enumerate(made[label] for label in order):
        broken = torch.cat([block.broken[key] for block in blocks])
        standing &= ~broken
        if not cascade or not place:
            found[key.partition("/")[2]] = right & ~broken
    return {"clean": right, "robust": standing, **found}


def side_of_blocks(
    name: str, blocks: Sequence[Block], classes: tuple[str, ...], order: Sequence[str] = (), *, cascade: bool
) -> Side:
    """A model by the blocks of its evaluation; ``order`` names its attacks as they ran."""
    right = rows_of_blocks(blocks, order, cascade=cascade)
    preds = [block.pred for block in blocks if block.pred is not None]
    pred = torch.cat(preds) if len(preds) == len(blocks) else None
    y = torch.cat([block.y for block in blocks])
    return Side(name, {key: _share(rows) for key, rows in right.items()}, right, y, pred, classes)


def held_against(
    requirement: Requirement, side: Side, other: Side | None, rules: Rules, *, missing: str
) -> list[GateRow]:
    """A row a clause, and one a class for floors. ``other`` is the baseline; ``missing`` says how to give one."""
    rows: list[GateRow] = []
    for clause in requirement.clauses:
        if clause.name == "fol":
            rows.append(bare_row(clause, side.fol, None if side.y is None else len(side.y)))
        elif clause.of:
            floors = side.of_classes(clause)
            rows += [share_row(clause, share, rules, of=of, among=len(floors)) for of, share in floors.items()]
        elif not clause.drop:
            rows.append(share_row(clause, side.share(clause), rules))
        elif other is None:
            raise UsageError(f"{clause} is a difference to an older model: {missing}")
        else:
            rows.append(_drop(clause, side, other, rules))
    return rows


def trusted(rows: Sequence[GateRow], side: Side, other: Side | None) -> list[GateRow]:
    """The rows, unreliable where a trust check fired: of a drop, on either model.

    Checks that need gradients ask whether attacks are strong enough; what is right without one is no concern of theirs.
    """
    both = (*side.warnings, *(() if other is None else other.warnings))
    of_attacks = {check.name for check in entries("check") if "grad" in check.needs}
    made = []
    for row in rows:
        fired = both if row.name.endswith(DROP) else side.warnings
        if row.name.partition("[")[0].removesuffix(DROP) == "clean":
            fired = tuple(warning for warning in fired if warning["name"] not in of_attacks)
        made.append(unreliable(row, fired))
    return made


def _drop(clause: Clause, side: Side, other: Side, rules: Rules) -> GateRow:
    before, after = other.share(clause), side.share(clause)
    if not side.right or not other.right:
        return apart_row(clause, before, after, rules)
    pair = paired(other.right[clause.stem], side.right[clause.stem], bound=clause.bound, level=rules.level)
    if not pair.b and not pair.c and _same(side.protocol, other.protocol):
        return same_row(clause, pair.n, other.name)
    return paired_row(clause, pair, rules, other.name)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two models are one: the same source, named by the same text, with the same weights."""
    sources = {str(told.get("model", "module")).partition("@")[0] for told in (one, other)}
    prints = {told.get("model_fingerprint") for told in (one, other)}
    return len(sources) == len(prints) == 1 and "module" not in sources and None not in prints


def compared_to(side: Side, other: Side | None) -> dict[str, dict[str, Any]]:
    """Both models side by side for every number that both have, whatever was required."""
    if other is None or not side.right or not other.right:
        return {}
    both = [name for name in side.right if name in other.right]
    return {name: paired(other.right[name], side.right[name]).to_json() for name in both}


def _share(rows: Tensor) -> Share:
    return Share(int(rows.sum()), len(rows))
