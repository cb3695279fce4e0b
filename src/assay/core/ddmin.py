"""Delta debugging: a smallest part of each case's change that still makes it fail, all cases worked at once.

A case's change is a set of atoms. Zeller and Hildebrandt (2002) take chunks of it back, first halves, then smaller and
smaller ones, for as long as the case fails. They ask about one chunk at a time. Here all cases ask at once, each with
chunks of its own size, about every chunk of theirs; of the chunks that can go alone, those that matter least first,
bisection finds how many can go together.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from assay.core.errors import UsageError

Fails = Callable[[Tensor, Tensor], Tensor]

LIMIT = 4096  # questions asked together
ENDLESS = torch.iinfo(torch.int64).max


class Reduced(NamedTuple):
    """What is left of the atoms of each case, (N, A), and how that came about, (N,) each.

    ``failing`` says which cases failed with all their atoms: the others are untouched. ``minimal`` says which fail no
    longer when any one atom more is taken back: not those that fail no more, nor those whose budget ended before it
    was shown. ``asked`` counts questions.
    """

    kept: Tensor
    failing: Tensor
    minimal: Tensor
    asked: Tensor


def ddmin(
    kept: Tensor,
    fails: Fails,
    *,
    budget: int | Tensor | None = None,
    limit: int = LIMIT,
    singly: bool = False,
) -> Reduced:
    """For each case a part of its atoms ``kept`` (N, A) with which it still fails, none of which can be spared.

    ``fails(rows, masks)`` answers M questions at once: does case ``rows[i]`` fail with the atoms ``masks[i]`` (M, A)
    alone? It is given at most ``limit`` of them, and must answer equal questions alike. It need not be monotone:
    whatever it is, what comes back fails. It answers with bools, or with numbers that are above 0 for a failure and
    larger for a surer one: then the chunks without which a case fails most surely go first, which leaves fewer atoms
    and takes fewer questions. ``budget`` is the most questions of a case, one number or one for each. ``singly`` begins
    with single atoms, which is faster where hardly any can go.

    >>> needs = torch.tensor([False, True, False, False, True, False])
    >>> found = ddmin(torch.ones(1, 6, dtype=torch.bool), lambda rows, masks: (masks | ~needs).all(1))
    >>> found.kept.int().tolist(), found.minimal.tolist(), found.asked.tolist()
    ([[0, 1, 0, 0, 1, 0]], [True], [14])
    """
    if kept.dim() != 2 or kept.dtype != torch.bool:
        raise UsageError(f"atoms are bools of shape (cases, atoms), got {tuple(kept.shape)} {kept.dtype}")
    if limit < 1:
        raise UsageError(f"the limit of questions asked together must be at least 1, got {limit}")
    search = _Search(kept, fails, _budget(budget, kept), limit)
    if singly:
        search.size.clamp_max_(2)  # of which a half is 1
    return search.all()


def _budget(given: int | Tensor | None, kept: Tensor) -> Tensor:
    least = 0 if isinstance(given, Tensor) else 1  # what earlier work has left of a budget may be nothing
    most = torch.as_tensor(ENDLESS if given is None else given, dtype=torch.int64, device=kept.device)
    if most.dim() > 1 or (most.dim() == 1 and len(most) != len(kept)) or bool((most < least).any()):
        raise UsageError(f"a budget is a number of questions from 1 up, or one for each case; got {given}")
    return most.expand(len(kept))


class _Search:
    """Where every case stands: the atoms it still has, the chunks they are in, and the chunks to be asked about."""

    def __init__(self, kept: Tensor, fails: Fails, budget: Tensor, limit: int) -> None:
        self.kept, self.fails, self.budget, self.limit = kept.clone(), fails, budget, limit
        self.asked = torch.zeros(len(kept), dtype=torch.int64, device=kept.device)
        self.size = kept.sum(1)  # atoms in a chunk
        self.chunk = torch.zeros(kept.shape, dtype=torch.int64, device=kept.device)  # of each atom
        self.open = torch.zeros_like(kept)  # by number of the chunk: may it go?
        self.went = torch.zeros_like(self.asked, dtype=torch.bool)  # something, since chunks got their size

    def all(self) -> Reduced:
        every = torch.arange(len(self.kept), device=self.kept.device)
        failing = self._one(every, self.kept)
        nothing = self._one(failing.nonzero().squeeze(1), torch.zeros_like(self.kept))
        self.kept &= ~nothing[:, None]
        minimal, over = nothing, nothing | ~failing
        paid = self.asked > 1  # for the question about nothing at all
        while True:
            fresh = ~over & ~self.open.any(1)
            # Every single atom was asked about, none could go: where there is but one, by asking about nothing at all.
            ended = fresh & (self.size == 1) & ~self.went & paid
            minimal, over = minimal | ended, over | ended
            over = over | (self.asked >= self.budget)
            if bool(over.all()):
                return Reduced(self.kept, failing, minimal, self.asked)
            self._split((fresh & ~over).nonzero().squeeze(1))
            self.open &= ~over[:, None]
            self._step()

    def _one(self, rows: Tensor, masks: Tensor) -> Tensor:
        """Which cases fail with these atoms, one question each, (N,); those that have no question left do not."""
        rows = rows[self.asked[rows] < self.budget[rows]]
        fails = torch.zeros_like(self.went)
        fails[rows] = self._ask(rows, lambda part: masks[rows[part]]) > 0
        return fails

    def _ask(self, rows: Tensor, masks: Callable[[slice], Tensor]) -> Tensor:
        """How surely each of ``rows`` fails, 0 where it does not, (M,); asked in parts that fit."""
        sure = torch.zeros(len(rows), device=rows.device)
        for start in range(0, len(rows), self.limit):
            part = slice(start, start + self.limit)
            told = self.fails(rows[part], masks(part))
            if told.shape != rows[part].shape:
                raise UsageError(f"{len(rows[part])} questions are answered one by one, got {tuple(told.shape)}")
            sure[part] = told.to(sure)
        self.asked.index_add_(0, rows, torch.ones_like(rows))
        return torch.where(sure > 0, sure, 0.0)  # NaN is no failure

    def _split(self, rows: Tensor) -> None:
        """Chunks of half the size for these cases, at least two of them, all to be asked about."""
        kept = self.kept[rows]
        left = kept.sum(1)
        size = ((torch.minimum(self.size[rows], left) + 1) // 2).clamp_min(1)
        self.size[rows] = size
        self.chunk[rows] = (kept.cumsum(1) - 1).clamp_min(0) // size[:, None]
        count = (left + size - 1) // size
        self.open[rows] = torch.arange(kept.shape[1], device=kept.device) < count[:, None]
        self.went[rows] = False

    def _step(self) -> None:
        """Ask about each open chunk; take back as many of those that can go as can go together."""
        here = self.open[:, : int(self.chunk.max()) + 1]
        left = (self.budget - self.asked)[:, None]
        paid = here & (here.cumsum(1) <= left)
        rows, chunks = paid.nonzero(as_tuple=True)
        sure = torch.zeros(here.shape, device=here.device)
        sure[rows, chunks] = self._ask(
            rows, lambda part: self.kept[rows[part]] & (self.chunk[rows[part]] != chunks[part, None])
        )
        can = sure > 0
        place = sure.argsort(dim=1, descending=True, stable=True).argsort(1) + 1  # from 1, those that can go first
        number, blocked = self._together(can, place)
        going = can & (place <= number[:, None])
        touched = going.any(1).nonzero().squeeze(1)
        self.kept[touched] &= ~going[touched].gather(1, self.chunk[touched])
        self.went[touched] = True
        # A chunk that could not go stays closed at this size; at the end all single atoms are asked about once more.
        here &= ~paid | (can & (place > number[:, None]) & (place != blocked[:, None]))

    def _together(self, can: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the chunks that can go, in order, can go together, and the place of the first that then cannot.

        Bisection between a number known to do and one known not to; those behind are asked about in the next step.
        """
        count = can.sum(1)
        low, high, middle = count.clamp_max(1), count + 1, count
        while True:
            rows = ((high - low > 1) & (self.asked < self.budget)).nonzero().squeeze(1)
            if not len(rows):
                return low, high

            def without(part: slice, rows: Tensor = rows, middle: Tensor = middle) -> Tensor:
                some = rows[part]
                drop = can[some] & (place[some] <= middle[some, None])
                return self.kept[some] & ~drop.gather(1, self.chunk[some])

            fails = self._ask(rows, without) > 0
            low[rows] = torch.where(fails, middle[rows], low[rows])
            high[rows] = torch.where(fails, high[rows], middle[rows])
            middle = (low + high) // 2
