"""LBT: the cases a black box is likely to fail on, found by mutants of a stand-in for it."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.core.specs import did_you_mean
from assay.core.sprt import SENSITIVE, STABLE, Sprt, three_tiers, upper_mean
from assay.stages.imitation import Answers, Extraction, likeness
from assay.stages.mutant_scores import MutantScores, scored
from assay.stages.mutants import Mutants, can_make, made
from assay.stages.mutants import check as check_family
from assay.stages.scores.gini import impurity
from assay.stages.selectors.ranking import ranked
from assay.stages.stand_in import StandIn, begin, fresh, stand_in
from assay.subjects.bench import Bench
from assay.subjects.sources.load import module_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import answer, require

ORDERS = ("sprt", "ms", "lcr", "gini")
ANSWERS = ("labels", "values")
WIDE = 8192  # inputs at once on a GPU
PART = 250  # inputs after which a mutant may be found not valid
VALID = 0.9  # of the likeness of the stand-in that a mutant must keep


@register("selector", paper="Rahman and Eisty 2025 (LBT)", needs=("label", "start"))
def lbt(
    bench: Bench,
    cases: Cases,
    k: int,
    *,
    rng: Stream,
    net: str = "lenet5",
    tau: float = 0.95,
    rounds: int = 6,
    start: int = 200,
    check: int = 1000,
    step: float = 0.1,
    epochs: int = 10,
    batch: int = 64,
    lr: float = 1e-3,
    cap: int = 20_000,
    soft: bool = False,
    mutants: int = 300,
    operators: str = "gf, nai, ns",
    rate: float = 0.05,
    delta: float = 0.1,
    alpha: float = 0.05,
    beta: float = 0.05,
    order: str = "sprt",
    answers: str = "labels",
) -> Tensor:
    """The k cases on which mutants of a stand-in for the model change their mind soonest.

    The model itself is asked about the inputs the stand-in learns from, never about the cases.
    ``order``: ``sprt`` (a sequential test on every case, in three tiers), ``ms`` (mean total variation), ``lcr`` (share
    of mutants with another label), ``gini`` (no mutants: the stand-in's own Gini impurity, the control).
    ``net="target"`` mutates the model itself, which must be a torch module: the white-box bound (Wang et al. 2019).
    ``answers="values"`` learns and compares outputs (two or more) as plain numbers, without a softmax: our answer to
    the paper's open question about regression. With ``sprt`` ties go by the mean over the mutants asked until then.

    Formula: for each case an SPRT of H₁: change rate ≥ κ(1 + delta) against H₀: ≤ κ(1 − delta) over mutants, κ the
    upper 99 % limit of clean inputs; sensitive cases first, by the mutants needed.
    """
    plan = Plan(
        mutants, tuple(part.strip() for part in operators.split(",") if part.strip()), rate, answers == "values"
    )
    _check(order, answers, plan, Sprt.around(0.1, delta, alpha, beta))
    how = Extraction(net, tau, rounds, start, check, step, epochs, batch, lr, cap, soft, plan.values)
    how.check()
    if net == "target":
        require(bench.target, ("train",), "lbt(net=target), which mutates the model itself,")
    # Not below the text of this selector: variants that differ in what comes after share their stand-in.
    shared = Stream(rng.seed, ("lbt",))
    if not len(cases):  # a rehearsal, which finds out whether there can be a stand-in
        if net != "target":
            can_make(fresh(how, bench.target, shared), plan.operators, plan.rate)
        return torch.empty(0, dtype=torch.int64)
    if net == "target":
        subject = bench.once(f"itself {how} {shared}", lambda: _itself(bench, how, shared, cases.x))
    else:
        subject = stand_in(bench, how, shared, cases.x, lambda made: can_make(made, plan.operators, plan.rate))
    facts: dict[str, Any] = {"stand_in": subject.to_json()}
    if order == "gini":
        _tell(bench, subject, facts)
        score = impurity(answer(subject.target, cases.x, bench.chunks)).cpu().double()
        return ranked(score, largest=True)[:k]
    family = bench.once(f"mutants {how} {plan} {shared}", lambda: family_of(subject, plan, shared, bench))
    test = Sprt.around(family.kappa, delta, alpha, beta)
    found = scored(
        subject.net,
        family.mutants,
        cases.x.to(subject.target.device),
        sprt=test,
        early=order == "sprt",
        tolerance=family.tolerance,
        chunks=_chunks(bench, subject),
    )
    _tell(bench, subject, facts | family.to_json() | _decisions(found, test, len(family.mutants)))
    return _ordered(found, order)[:k]


@dataclass(frozen=True, slots=True)
class Plan:
    mutants: int
    operators: tuple[str, ...]
    rate: float
    values: bool


@dataclass(frozen=True, slots=True)
class Family:
    """The valid mutants of a stand-in, and how often they change their mind about clean inputs: ``kappa`` at most."""

    mutants: Mutants
    kappa: float
    tolerance: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "mutants": len(self.mutants),
            "rejected": dict(self.mutants.rejected),
            "rates": {name: float(f"{rate:.4g}") for name, rate in self.mutants.rates.items()},
            "kappa": float(f"{self.kappa:.6g}"),
            **({} if self.tolerance is None else {"tolerance": float(f"{self.tolerance:.6g}")}),
        }


def _check(order: str, answers: str, plan: Plan, _test: Sprt) -> None:
    """Refuse what cannot be done before anything is asked; a test that could be made has checked itself."""
    if order not in ORDERS:
        raise UsageError(f"lbt has no order {order!r}; {did_you_mean(order, ORDERS)}")
    if answers not in ANSWERS:
        raise UsageError(f"lbt's answers are labels or values, got {answers!r}")
    check_family(plan.mutants, plan.operators, plan.rate)


def _chunks(bench: Bench, subject: StandIn) -> Chunks:
    """How many inputs a mutant is asked about at once: a GPU would wait for its orders with the few of a CPU."""
    return (
        bench.once("mutant chunks", lambda: Chunks(WIDE, alone=True))
        if subject.target.device.type == "cuda"
        else bench.chunks
    )


def _itself(bench: Bench, how: Extraction, rng: Stream, pool: Tensor) -> StandIn:
    """The model under test in the place of its stand-in, with inputs that it is checked on."""

    _, x = begin(bench, how, rng, pool)
    # A copy: mutants are put into its weights.
    target = bench.target
    with eval_mode(module_of(target)):
        own = ModuleTarget(copy.deepcopy(module_of(target)).eval(), target.spec, target.device)
    told = Answers.of(answer(own, x, bench.chunks).cpu(), how)
    return StandIn(own, Cases.of(x, told.labels), told, 1.0, (), "the model itself")


def family_of(subject: StandIn, plan: Plan, rng: Stream, bench: Bench) -> Family:
    """Mutants that are valid on the inputs the stand-in was checked on, and their line between clean and not."""
    own = subject.target
    x = subject.val.x.to(own.device)
    base = answer(own, x, bench.chunks).cpu()
    tolerance = _tolerance(base, subject.answers) if plan.values else None
    own_likeness = likeness(base, subject.answers)
    if own_likeness <= 0:
        raise UsageError("the stand-in explains nothing of the values (R² of 0 or less); give it more inputs or rounds")
    least = VALID * own_likeness

    def valid(net: nn.Module) -> bool:
        parts: list[Tensor] = []
        wrong = 0
        for part, y in zip(x.split(PART), subject.val.y.split(PART), strict=True):
            parts.append(net(part).cpu())
            wrong += int((parts[-1].argmax(1) != y).sum())
            if tolerance is None and 1 - wrong / len(x) < least:
                return False  # most mutants that are not valid are far from it
        scores = torch.cat(parts)
        if tolerance is None:
            differs = scores.argmax(1) != base.argmax(1)
        else:
            differs = (scores - base).abs().amax(1) > tolerance
        return bool(differs.any()) and likeness(scores, subject.answers) >= least

    with torch.no_grad(), eval_mode(own.module):
        mutants = made(
            own.module, valid, count=plan.mutants, operators=plan.operators, rate=plan.rate, rng=rng.at("mutants")
        )
    agree = base.argmax(1) == subject.val.y if tolerance is None else torch.ones(len(x), dtype=torch.bool)
    if int(agree.sum()) < 2:
        raise UsageError("stand-in and model agree on fewer than two inputs; give more inputs (--training) or rounds")
    clean = scored(own.module, mutants, x[agree.to(x.device)], tolerance=tolerance, chunks=bench.chunks)
    return Family(mutants, min(upper_mean(clean.lcr), 0.5), tolerance)


def _tolerance(base: Tensor, answers: Answers) -> float:
    """What counts as another value: more than the stand-in is wrong by, root mean square over inputs."""
    assert answers.numbers is not None
    return max(float((base - answers.numbers).abs().amax(1).square().mean().sqrt()), 1e-6)


def _ordered(found: MutantScores, order: str) -> Tensor:
    if order == "ms":
        return ranked(found.distance, largest=True)
    if order == "lcr":  # ties, of which there are many, by the other score
        first = ranked(found.distance, largest=True)
        return first[ranked(found.lcr[first], largest=True)]
    return three_tiers(found.decision, found.at, found.llr / found.asked.clamp_min(1), found.distance)


def _decisions(found: MutantScores, test: Sprt, mutants: int) -> dict[str, Any]:
    """What the sequential test came to."""
    sensitive, stable = int((found.decision == SENSITIVE).sum()), int((found.decision == STABLE).sum())
    asked = int(found.asked.sum())
    return {
        "p0": float(f"{test.p0:.6g}"),
        "p1": float(f"{test.p1:.6g}"),
        "sensitive": sensitive,
        "stable": stable,
        "undecided": len(found.decision) - sensitive - stable,
        "mutants_asked": round(asked / max(1, len(found.asked)), 2),
        "saved": round(1 - asked / max(1, len(found.asked) * mutants), 4),
    }


def _tell(bench: Bench, subject: StandIn, facts: dict[str, Any]) -> None:
    bench.tell(facts)
    bench.kept["stand-in"] = subject
