"""Wald's sequential probability ratio test of a share of changes, for many inputs at once, and the order it gives."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError

SENSITIVE, UNDECIDED, STABLE = 1, 0, -1
LEAST = 1e-6  # the smallest kappa tested for: of none at all there is no test
_TIE = 1e-9  # a ratio that is on the bound but for rounding is on it
_Z99 = 2.576  # two-sided 99 % of a normal, as Wang et al. 2019 round it


@dataclass(frozen=True, slots=True)
class Sprt:
    """Whether changes come with probability ``p1`` or more (sensitive), or ``p0`` or less (stable).

    ``alpha`` is the risk of calling an input sensitive that is not, ``beta`` of calling one stable that is not.

    >>> test = Sprt(p0=0.015, p1=0.045)
    >>> test.decided(torch.tensor([0, 3, 0]), torch.tensor([96, 4, 95])).tolist()
    [-1, 1, 0]
    """

    p0: float
    p1: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.p0 < self.p1 < 1:
            raise UsageError(f"a sequential test needs 0 < p0 < p1 < 1, got p0 = {self.p0}, p1 = {self.p1}")
        if not (self.alpha > 0 and self.beta > 0 and self.alpha + self.beta < 1):
            raise UsageError(
                f"alpha and beta are risks above 0 that sum to less than 1, got {self.alpha} and {self.beta}"
            )

    @classmethod
    def around(cls, kappa: float, delta: float, alpha: float = 0.05, beta: float = 0.05) -> "Sprt":
        """The test whether changes are more or less often than ``kappa``, give or take the share ``delta`` of it.

        p1 goes at most half of the way from kappa to 1, and kappa counts as one in a million where it is less.
        """
        if not 0 <= kappa < 1:
            raise UsageError(f"kappa is a share of changes from 0 to less than 1, got {kappa}")
        if not 0 < delta < 1:
            raise UsageError(f"delta is a share of kappa between 0 and 1, got {delta}")
        kappa = max(kappa, LEAST)
        return cls(kappa * (1 - delta), min(kappa * (1 + delta), (1 + kappa) / 2), alpha, beta)

    @property
    def upper(self) -> float:
        """From this log likelihood ratio on an input is sensitive."""
        return math.log((1 - self.beta) / self.alpha)

    @property
    def lower(self) -> float:
        """From this one down it is stable."""
        return math.log(self.beta / (1 - self.alpha))

    @property
    def steps(self) -> tuple[float, float]:
        """What a change adds to the log likelihood ratio, and what (below 0) a mutant without one does."""
        return math.log(self.p1 / self.p0), math.log((1 - self.p1) / (1 - self.p0))

    def llr(self, changes: Tensor, asked: Tensor) -> Tensor:
        """The log likelihood ratio of ``changes`` among ``asked`` mutants, float64."""
        change, none = self.steps
        return changes.double() * change + (asked - changes).double() * none

    def decided(self, changes: Tensor, asked: Tensor) -> Tensor:
        """What the counts say by themselves, int8: SENSITIVE, STABLE or UNDECIDED.

        The test decides once, at the first mutant after which this is not UNDECIDED.
        """
        llr = self.llr(changes, asked)
        return (llr >= self.upper - _TIE).to(torch.int8) - (llr <= self.lower + _TIE).to(torch.int8)


def upper_mean(rates: Tensor) -> float:
    """The upper 99 % confidence limit of the mean of ``rates`` (N,): kappa, of the change rates of clean inputs.

    >>> round(upper_mean(torch.tensor([0.0, 0.1, 0.2, 0.1])), 4)
    0.2052
    """
    if not len(rates):
        raise UsageError("kappa is measured on clean inputs, and there are none")
    rates = rates.double()
    spread = float(rates.std()) if len(rates) > 1 else 0.0
    return float(rates.mean()) + _Z99 * spread / math.sqrt(len(rates))


def three_tiers(decision: Tensor, at: Tensor, llr_per_mutant: Tensor, score: Tensor) -> Tensor:
    """The inputs (N,) in order: sensitive ones, undecided ones, stable ones; a permutation, rows that tie as they come.

    Sensitive ones by the number of mutants at decision (``at``), fewest first; undecided ones by ``llr_per_mutant``,
    largest first; stable ones by ``at``, most first, for a late decision is close to the line. Then by ``score``,
    largest first.
    """
    early = torch.where(decision == STABLE, -at, at).double()
    within = torch.where(decision == UNDECIDED, -llr_per_mutant.double(), early)
    order = torch.sort(score.double(), descending=True, stable=True).indices
    for key in (within, -decision.to(torch.int64)):
        order = order[torch.sort(key[order], stable=True).indices]
    return order
