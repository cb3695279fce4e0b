"""The judge of hardening: which round is the result, and what the requirement says of it."""

from collections.abc import Mapping
from typing import Any

from assay.core.requirement import Requirement, Verdict
from assay.engines.evaluation import Share
from assay.engines.hardened import Round, verdict_row

DOUBT = 2.0  # by how many times a number that a check spoils may be too high
LOST = ("bad_clean_accuracy", "zero_gradient")  # checks that tell of a net that answers the same to everything


class Judge:
    """Holds the rounds of a run, which grow, against a requirement; ``labels`` are the attacks behind its names."""

    def __init__(self, requirement: Requirement, labels: Mapping[str, str], rounds: list[Round]) -> None:
        self.requirement, self.labels, self.rounds = requirement, labels, rounds

    def met(self, done: Round) -> bool:
        """Whether the requirement holds, by numbers that can be trusted."""
        return not done.measured.unreliable and self.requirement.met(self._numbers(done))

    def over(self) -> bool:
        """Whether a round meets the requirement; never so where nothing is asked."""
        return bool(self.requirement.clauses) and any(map(self.met, self.rounds))

    def best(self) -> int:
        """The first of the best rounds: one that meets the requirement, else trusted, else with the largest slack.

        Where none meets it, what the clauses that hold have to spare counts last: of models that miss it by as much
        the one with the better mean over the attacks is the result, and not the original because its clean accuracy
        did not drop. Of models that meet it the first of the best stays: a new run would have ended there.

        Numbers that a check spoils are too high, if anything; so what has them comes last. Where nothing is asked it
        does not come after an original that withstands less than half as much by its own.
        """

        def rank(done: Round) -> tuple[bool, bool, tuple[float, ...], float, tuple[float, ...]]:
            slacks, trusted = self.requirement.slacks(self._numbers(done)), not done.measured.unreliable
            if self.met(done) and self.requirement.clauses:
                return True, trusted, slacks, 0.0, ()
            return False, trusted, tuple(min(slack, 0.0) for slack in slacks), done.measured.mean, slacks

        first = max(self.rounds, key=rank)
        if first.number == 0 and not self.requirement.clauses:
            able = [done for done in self.rounds if _works(done) and done.measured.mean > DOUBT * first.measured.mean]
            first = max([first, *able], key=lambda done: rank(done)[2:])
        return first.number

    def verdicts(self, number: int) -> tuple[Verdict, ...]:
        return self.requirement.check(self._numbers(self.rounds[number]))

    def shares(self, number: int) -> dict[str, Share]:
        """The round's accuracies, also under the names the requirement has for them."""
        shares = self.rounds[number].measured.shares()
        return shares | {name: shares[label] for name, label in self.labels.items()}

    def told(self) -> dict[str, Any]:
        """The result and the verdict on it, as the journal keeps them."""
        best = self.best()
        shares, unreliable = self.shares(best), self.rounds[best].measured.unreliable
        rows = [verdict_row(verdict, shares, unreliable=unreliable) for verdict in self.verdicts(best)]
        return {"best": best, "until": str(self.requirement), "met": self.met(self.rounds[best]), "verdicts": rows}

    def _numbers(self, done: Round) -> dict[str, float]:
        numbers = done.measured.numbers(self.rounds[0].measured)
        return numbers | {name: numbers[label] for name, label in self.labels.items()}


def _works(done: Round) -> bool:
    """Whether a model is one still, whatever its numbers are worth."""
    return not any(warning["name"] in LOST for warning in done.measured.warnings)
