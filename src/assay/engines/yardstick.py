"""The yardstick of hardening: one suite, one ball, one seed for every model that is compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import UsageError
from assay.core.passes import uncounted
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound, bind, names
from assay.core.requirement import WORDS, Requirement
from assay.core.specs import Params, canonical, did_you_mean, python_file, step
from assay.core.units import budget
from assay.engines.blocks import Progress
from assay.engines.cluster import Cluster
from assay.engines.columns import adaptive, columns_of
from assay.engines.evaluate import evaluate
from assay.engines.measured import Measured
from assay.engines.protocol import protocol_of
from assay.recipes.suite import attacks_of
from assay.subjects.bench import Bench, Data
from assay.subjects.target import Target

FOL_CASES = 512
FOL_NORMS = ("linf", "l2")


@dataclass(frozen=True, slots=True)
class Yardstick:
    """How every model is measured: white box, and static with examples made on the original."""

    original: Target
    suite: str
    eps: str | float
    norm: str
    seed: int
    ignore: tuple[str, ...] = ()
    deterministic: bool = False
    cluster: Cluster | None = None

    def protocol(self, model: str, data: Data, requirement: Requirement) -> dict[str, Any]:
        """What the numbers are measured with; what cannot be measured is refused here, before a run folder is made."""
        if self.norm not in FOL_NORMS and any(clause.name == "fol" for clause in requirement.clauses):
            raise UsageError(f"fol is defined for the norms {' and '.join(FOL_NORMS)}, not for {self.norm}")
        columns = columns_of(self.original, self.original, self.suite, [budget(self.eps)], self.norm, None)
        attacks = adaptive(columns)
        told = protocol_of(model, self.original, data, attacks, str(self.eps), seed=self.seed, each=True, curve=False)
        limited = next(iter(columns.values())).limited
        gone = [label for label in limited if label not in attacks]
        for clause in requirement.clauses:
            if clause.name in gone:
                raise UsageError(f"the requirement names {clause.name!r}, which is {limited[clause.name]}")
        return told | {"suite": self.suite} | ({"limited": dict(limited)} if limited else {})

    def measure(self, target: Target, data: Data, progress: Progress, *, fol: bool = False) -> Measured:
        """The numbers of a model on these data; with ``fol``, also how well attacks on it converge."""
        with uncounted():
            return self._measured(target, data, progress, fol=fol)

    def _measured(self, target: Target, data: Data, progress: Progress, *, fol: bool) -> Measured:
        result = evaluate(
            target,
            data,
            suite=self.suite,
            eps=self.eps,
            norm=self.norm,
            static_from=self.original,
            each=True,  # a requirement on an attack must not depend on those named before it
            ignore=self.ignore,
            seed=self.seed,
            deterministic=self.deterministic,
            ray=self.cluster,
            progress=progress,
        )
        return Measured.of(result, self.fol(target, data.cases) if fol and self.norm in FOL_NORMS else None)

    def fol(self, target: Target, cases: Cases) -> float:
        """The median FOL of fresh PGD examples: near 0 where attacks converge on this model."""
        ball = {"eps": budget(self.eps), "norm": self.norm}
        attack = bind("attack", "pgd", {"early_stop": False}, ball)
        # Paper: the closed forms. Here: exact in l2, within the bounds in linf, because the printed ones do not vanish
        # where an attack has converged (l2: a scaled gradient norm; linf: entries at the edge of the bounds count).
        score = bind("score", "fol", {"exact": True, "box": self.norm == "linf"}, ball)
        bench = Bench(target)
        some = cases[cases.y != UNLABELLED][:FOL_CASES].to(target.device)

        def attacked(x: Tensor, y: Tensor, key: Tensor) -> Tensor:
            made: Tensor = attack(target, x, y, rng=Rows(key))
            return made

        with target.ready():
            key = Stream(self.seed, ("harden", "fol")).rows(some.origin).key
            made = bench.chunks.map(attacked, some.x, some.y, key)
            values: Tensor = score(bench, some.with_x(made).note(seed_x=some.x))
        return float(values.detach().double().quantile(0.5))


def suite_for(suite: str, required: Sequence[str], offered: Params) -> tuple[str, dict[str, str]]:
    """The suite with the attacks that a requirement names and it lacks, and the label of each such name in it."""
    for name in required:
        if _label(name, attacks_of(suite, offered), offered) is None:
            suite = f"{suite}, {name}"
    attacks = attacks_of(suite, offered)
    return suite, {name: label for name in required if (label := _label(name, attacks, offered)) is not None}


def _label(name: str, attacks: dict[str, Bound], offered: Params) -> str | None:
    """What the attack of that name is called in the suite; with brackets, the one with the same parameters."""
    same = [label for label in attacks if canonical(label) == canonical(name)]
    if same:
        return same[0]
    plain, params = step(name)
    if python_file(plain) is None and canonical(plain) not in map(canonical, names("attack")):
        known = [*WORDS, *attacks, *names("attack")]
        raise UsageError(
            f"the requirement names {name!r}, which is no number and no attack; {did_you_mean(name, known)}"
        )
    text = bind("attack", plain, params, offered).text
    return next((label for label, attack in attacks.items() if attack.text == text), None)
