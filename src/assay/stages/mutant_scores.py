"""How much the answers of mutants differ from those of their net: change rates, distances and the sequential test."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.core.sprt import UNDECIDED, Sprt
from assay.stages.mutants import Mutants
from assay.stages.shortcuts import Shortcuts

BLOCK = 256 << 20  # bytes of inputs that are asked together: a device holds them until all mutants are through
WORTH = 0.95  # when no more than this share of the inputs is open, the others are left out of the batches
LOOK = 8  # mutants between two looks at how many inputs are open on a device, each of which has to wait for it

Columns = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class MutantScores:
    """What the mutants say of each input (N,), on the CPU.

    Of ``asked`` mutants ``changes`` gave another answer than the net, and their answers were ``distance`` away on
    average. The test came to its ``decision`` after ``at`` mutants (all of them where it is undecided), with the log
    likelihood ratio ``llr``.
    """

    changes: Tensor
    asked: Tensor
    distance: Tensor
    decision: Tensor
    at: Tensor
    llr: Tensor

    @property
    def lcr(self) -> Tensor:
        """The label change rate: the share of the asked mutants with another answer, float64."""
        return self.changes.double() / self.asked.clamp_min(1)


def scored(
    net: nn.Module,
    mutants: Mutants,
    x: Tensor,
    *,
    sprt: Sprt | None = None,
    early: bool = True,
    tolerance: float | None = None,
    chunks: Chunks,
) -> MutantScores:
    """The mutants' answers to ``x`` beside the net's own, one mutant after the other over all inputs.

    A change is another class, and the distance the total variation of the two softmaxes. With ``tolerance`` answers
    are values: a change is one that is further off than that, and the distance the largest difference in units of it.
    With ``early`` an input that ``sprt`` has decided is not asked again; the decisions are the same without.
    """
    if mutants.net is not net:
        raise UsageError("these are mutants of another net")
    if tolerance is not None and not tolerance > 0:
        raise UsageError(f"the tolerance must be above 0, got {tolerance}")
    weight = next(net.parameters())
    rows = max(1, BLOCK // max(1, x[:1].nbytes))
    parts = []
    with eval_mode(net), torch.inference_mode():
        for block in x.split(rows) if len(x) else (x,):
            here = block.detach().to(weight.device, weight.dtype)
            parts.append(_block(net, mutants, here, sprt, early, _values(tolerance) if tolerance else _CLASSES, chunks))
    return MutantScores(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(MutantScores)))


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is taken of the net's own answers, and how those of a mutant differ: which changed, and how far (N,)."""

    own: Callable[[Tensor], Columns]
    moved: Callable[[Columns, Tensor], tuple[Tensor, Tensor]]


def _other_class(own: Columns, answers: Tensor) -> tuple[Tensor, Tensor]:
    label, p = own
    away = (answers.softmax(1) - p).abs_().sum(1).mul_(0.5)
    return answers.argmax(1) != label, away.nan_to_num_(nan=1.0)  # what is no number is as far off as can be


_CLASSES = _Reading(lambda answers: (answers.argmax(1), answers.softmax(1)), _other_class)


def _values(tolerance: float) -> _Reading:
    """Answers that are values. The paper has no such variant; this is ours."""

    def strayed(own: Columns, answers: Tensor) -> tuple[Tensor, Tensor]:
        away = (answers - own[0]).abs_().flatten(1).amax(1).div_(tolerance).nan_to_num_(nan=torch.inf)
        return away > 1, away

    return _Reading(lambda answers: (answers,), strayed)


def _block(
    net: nn.Module, mutants: Mutants, x: Tensor, sprt: Sprt | None, early: bool, reading: _Reading, chunks: Chunks
) -> MutantScores:
    """The scores of inputs that are all on the net's device."""
    passes = Shortcuts(net, x, [mutants.touched(i) for i in range(len(mutants))], chunks)
    own = reading.own(_full(passes.own))
    tally = _Tally(len(x), len(mutants), sprt, early, x.device)
    for i in range(len(mutants)):
        with mutants.applied(i):
            given = passes.answers(i)
        tally.add(*reading.moved(own, _full(given)))
        if early and (x.device.type == "cpu" or i % LOOK == LOOK - 1):
            kept = tally.compacted()
            if kept is not None:
                passes.keep(kept)
                own = tuple(column[kept] for column in own)
            if not len(tally.rows):
                break
    return tally.scores()


def _full(answers: Tensor) -> Tensor:
    """Answers in single precision at least."""
    return answers.float() if answers.dtype in (torch.bfloat16, torch.float16) else answers


class _Tally:
    """The counts of the inputs that are still asked, ``rows`` of all, and the book of all that they go into.

    All open inputs were asked by the same mutants, so what the test says is one look into a table by their changes.
    """

    def __init__(self, n: int, mutants: int, sprt: Sprt | None, early: bool, device: torch.device) -> None:
        self.sprt, self.early, self.asked, self.mutants = sprt, early and sprt is not None, 0, mutants
        whole = torch.zeros(n, dtype=torch.int64, device=device)
        self.rows, self.open = torch.arange(n, device=device), torch.ones(n, dtype=torch.bool, device=device)
        self.changes, self.total = whole.clone(), whole.double()
        # The verdict, after how many mutants it came, and how many changes there were.
        self.decision, self.at, self.then = whole.to(torch.int8), whole.clone(), whole.clone()
        self.book = tuple(column.clone() for column in self._columns())
        if sprt is not None:
            count = torch.arange(mutants + 1, device=device)
            self.verdicts = sprt.decided(count[None, :], count[:, None])

    def _columns(self) -> Columns:
        return self.changes, self.total, self.decision, self.at, self.then

    def add(self, changed: Tensor, distance: Tensor) -> None:
        """Counts the answers of one more mutant."""
        self.asked += 1
        if self.early:
            changed, distance = changed & self.open, torch.where(self.open, distance, 0.0)
        self.changes += changed
        self.total += distance
        if self.sprt is None:
            return
        verdict = torch.where(self.open, self.verdicts[self.asked][self.changes], UNDECIDED)
        now = verdict != UNDECIDED
        self.decision += verdict
        self.at.masked_fill_(now, self.asked)
        self.then = torch.where(now, self.changes, self.then)
        self.open &= ~now

    def compacted(self) -> Tensor | None:
        """Leaves out the inputs that are decided, if they are worth it, and says which of the present ones stay."""
        if not self.early or int(self.open.sum()) > WORTH * len(self.open):
            return None
        self._write()
        kept = self.open.nonzero().squeeze(1)
        self.rows, self.open = self.rows[kept], self.open[kept]
        self.changes, self.total, self.decision, self.at, self.then = (column[kept] for column in self._columns())
        return kept

    def _write(self) -> None:
        for whole, column in zip(self.book, self._columns(), strict=True):
            whole[self.rows] = column

    def scores(self) -> MutantScores:
        self._write()
        changes, total, decision, at, then = (column.cpu() for column in self.book)
        decided = decision != UNDECIDED
        at, then = torch.where(decided, at, self.asked), torch.where(decided, then, changes)
        asked = at if self.early else torch.full_like(at, self.asked)
        llr = torch.zeros_like(total) if self.sprt is None else self.sprt.llr(then, at)
        return MutantScores(changes, asked, total / asked.clamp_min(1), decision, at, llr)
