"""The failures of units, asked again before they are stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.engines.failures import checked
from assay.engines.stability import Confirm
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.twins import VULNERABLE
from assay.subjects.bench import Bench

Judged = tuple[Cases | None, Cases | None]  # those that are confirmed, and those that are not

ANEW = ("failed", "asked", "confidence")  # the columns that asking again has added


@dataclass(frozen=True, slots=True)
class Judge:
    """Who asks again, and how often a failure must fail."""

    bench: Bench
    stages: Stages
    confirm: Confirm
    hurried: bool = False  # whether the search answers with shorter numbers than the model
    still: bool = True  # whether no net changes when it is asked, so that it may be asked beside the search

    def __call__(self, units: Sequence[tuple[Unit, Tensor]]) -> list[Judged]:
        """The failures of those slots of each unit, asked again, all of them together: a slow model is asked once."""
        found = [unit.failures(slots) for unit, slots in units]
        some = [(i, cases) for i, cases in enumerate(found) if cases is not None and len(cases)]
        if not some:
            return [(None, None)] * len(units)
        every = Cases.cat([cases.note(of=torch.full_like(cases.origin, i)) for i, cases in some])
        failing, flaky = checked(self.bench, self.stages, every, self.confirm, still=self.still)
        if self.hurried:  # a failure of the search's shorter numbers is none of the model, and no change of its mind
            flaky = flaky[flaky.info["failed"] > 0] if "failed" in flaky.info else flaky[:0]
        if VULNERABLE in self.bench.roles:
            failing = failing.note(others_pred=self.bench.others(failing).argmax(2).cpu())
        mine = dict(some)
        return [
            tuple(part[part.info["of"] == i].drop("of") for part in (failing, flaky)) if i in mine else (None, None)  # type: ignore[misc]  # two parts
            for i in range(len(units))
        ]
