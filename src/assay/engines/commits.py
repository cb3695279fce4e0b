"""What a campaign commits of a unit: its failures, its counts, what joins the pool and what is covered."""

from typing import Any

from torch import Tensor

from assay.core.cases import Cases
from assay.core.shards import encode
from assay.core.store import Store
from assay.engines.failures import as_shard
from assay.engines.found import pairs
from assay.engines.guidance import Guidance
from assay.engines.judged import Judge, Judged
from assay.engines.kinds import KindsSoFar
from assay.engines.lanes import NONFINITE, WRONG
from assay.engines.operators import operators_of, told
from assay.engines.parents import Parents
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.subjects.bench import Bench


class Commits:
    """Writes the units of one campaign."""

    def __init__(
        self,
        folder: Store,
        bench: Bench,
        stages: Stages,
        guidance: Guidance,
        seeds: Cases,
        parents: Parents | None,
        judge: Judge,
    ) -> None:
        self.folder, self.bench, self.stages, self.guidance = folder, bench, stages, guidance
        self.seeds, self.parents, self.judged = seeds, parents, judge
        self.pairs = pairs(folder)
        self.broken = {seed for seed, _ in self.pairs}
        self.kinds = KindsSoFar(folder)

    def unit(self, unit: Unit, slots: Tensor, judged: Judged) -> None:
        """Commit those slots of a unit."""
        failing, flaky = judged
        number = len(self.folder.lines)
        files = {
            f"{place}/step-{number:06d}.safetensors": encode(
                as_shard(some, self.seeds, self.stages.score, self.bench.target)
            )
            for place, some in (("cases", failing), ("flaky", flaky))
            if some is not None and len(some)
        }
        files |= self._joined(unit, slots, number)
        tried, fired = int(unit.tries[slots].sum()), unit.fired[slots].sum(0).tolist()
        self.folder.commit(
            files,
            kind="fuzz",
            unit=unit.number,
            rows=unit.rows[slots].tolist(),
            counts={
                "seeds": len(slots),
                "cases": tried,
                "valid": fired[-1],
                **_kinds(failing),
                **self._new(failing),
                "flaky": 0 if flaky is None else len(flaky),
                "gradient_steps": tried * self.stages.mutate.entry.gradients,
            },
            **self._fired(fired[:-1]),
            **self._guided(),
        )
        if failing is not None and len(failing):
            self.kinds.add(failing, self.seeds.parent[failing.info["row"]])

    def _fired(self, counts: list[int]) -> dict[str, dict[str, Any]]:
        """How often each rule of keeping and each opinion fired, and what each operator of the mutator brought."""
        rules, names = len(self.stages.keep), operators_of(self.stages.mutate)
        rest = rules + len(self.stages.opinions)
        kept = dict(zip(self.stages.keep, counts[:rules], strict=True))
        opinions = dict(zip(self.stages.opinions, counts[rules:rest], strict=True))
        brought = {"operators": told(names, counts[rest:])} if names else {}
        return {"kept": kept, **({"opinions": opinions} if opinions else {}), **brought}

    def _joined(self, unit: Unit, slots: Tensor, number: int) -> dict[str, bytes]:
        """Let what was kept join the pool; the file that says so."""
        if self.parents is None:
            return {}
        self.parents.take(unit.rows[slots])
        members = unit.members(slots)
        if members is None or not len(members):
            return {}
        members = members.note(parent=unit.rows[members.info["slot"]]).drop("slot")
        self.parents.join(members)
        columns = {"x": members.x, "y": members.y, "origin": members.origin, **members.info}
        return {f"state/pool-{number:06d}.safetensors": encode(columns)}

    def _guided(self) -> dict[str, Any]:
        """What a commit says of the coverage."""
        if self.guidance.coverage is None:
            return {}
        return {"guidance": self.guidance.save(self.folder), "covered": self.guidance.coverage.covered()}

    def _new(self, failing: Cases | None) -> dict[str, int]:
        """How many of these failures differ in seed or wrong class from all before, and in seed."""
        new = (
            set() if failing is None else set(zip(failing.origin.tolist(), failing.info["pred"].tolist(), strict=True))
        )
        new -= self.pairs
        broken = {seed for seed, _ in new} - self.broken
        self.pairs |= new
        self.broken |= broken
        return {"distinct": len(new), "broken": len(broken)}


def _kinds(failing: Cases | None) -> dict[str, int]:
    """How many failures there are; of how many the class is wrong, and of how many the answer has none."""
    if failing is None:
        return {"failures": 0, "wrong": 0, "nonfinite": 0}
    kind, wrong = failing.info["kind"], failing.info["pred"] != failing.y
    return {
        "failures": len(failing),
        "wrong": int((wrong & (kind == WRONG)).sum()),
        "nonfinite": int((kind == NONFINITE).sum()),
    }
