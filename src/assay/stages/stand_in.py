"""A stand-in: a net of our own, taught by nothing but a black box's answers until it answers as the black box does."""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import BudgetSpent, UsageError
from assay.core.ids import input_ids
from assay.core.randomness import Stream
from assay.core.specs import python_file
from assay.stages.imitation import Answers, Extraction, agreement, taught
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.load import new_net, pick_device, user_net
from assay.subjects.sources.module import ModuleTarget, probed
from assay.subjects.target import Target, answer, require

log = logging.getLogger("assay")

LEAST_Z = 0.05  # of what the stand-in has learned from is augmented at least
GROWTH = 0.005  # agreement that grows by less than this, twice running, will not grow
FLIP = 3  # rounds after which the Jacobian step changes its sign
WEAK = 0.8  # of tau: a stand-in that agrees less is no stand-in
SHARE = 0.8  # of a small budget of queries that the first questions may take


@dataclass(frozen=True, slots=True)
class StandIn:
    """The stand-in and how it came to be.

    ``val`` are the inputs that it is checked on, with the target's labels; ``answers`` the target's answers to them in
    the form the stand-in has learned them. ``agreement`` is the share of equal labels there (R² for values).
    ``stopped`` says why no further round was made: tau, growth, rounds or queries. ``cut`` says whether a budget of
    queries has kept it from asking all it wanted to.
    """

    target: ModuleTarget
    val: Cases
    answers: Answers
    agreement: float
    log: tuple[dict[str, Any], ...]
    stopped: str
    cut: bool = False

    @property
    def net(self) -> nn.Module:
        return self.target.module

    def to_json(self) -> dict[str, Any]:
        return {
            "agreement": round(self.agreement, 6),
            "checked_on": len(self.val),
            "stopped": self.stopped,
            "cut": self.cut,
            "rounds": list(self.log),
        }


def stand_in(
    bench: Bench,
    how: Extraction,
    rng: Stream,
    pool: Tensor | None = None,
    fits: Callable[[nn.Module], None] | None = None,
) -> StandIn:
    """The stand-in of the bench's target, made once; what it starts from are inputs of ``bench.training``, never those
    of the ``pool``.

    Rounds of training on the target's answers, checked on inputs kept apart; after each, inputs on which stand-in and
    target disagree are moved along the stand-in's Jacobian and the target is asked about them (Papernot et al. 2017).
    ``fits`` may refuse the net before anything is asked.
    """
    how.check()

    def make() -> StandIn:
        net = fresh(how, bench.target, rng)
        if fits is not None:
            fits(net)
        return _extracted(bench, how, rng, pool, net)

    return bench.once(f"stand-in {how} {rng}", make)


def _extracted(bench: Bench, how: Extraction, rng: Stream, pool: Tensor | None, net: nn.Module) -> StandIn:
    target = bench.target
    require(target, ("prob",) if how.values or how.soft else ("label",), "a stand-in that learns from probabilities")
    start, check = begin(bench, how, rng, pool)
    ask = _asker(target, how, bench.chunks)
    val_answers = ask(check, None)
    known = ask(start, val_answers)
    val = Cases.of(check, val_answers.labels)
    made = ModuleTarget(net, target.spec, _device(target))
    asked = set(input_ids(torch.cat([start, check])))
    x, told = _capped(start, known, how.cap, rng.at("reservoir", 0))
    history: list[dict[str, Any]] = []
    cut = _room(target, how) < 1
    for number in range(1, how.rounds + 1):
        made = ModuleTarget(
            taught(made.module, x, told, val, val_answers, how, rng.at("round", number)), target.spec, made.device
        )
        score = agreement(made, val, val_answers, bench.chunks)
        history.append({"round": number, "learned_from": len(x), "agreement": round(score, 6)})
        log.info("stand-in %s, round %d: learned from %d answers, agreement %.4f", how.net, number, len(x), score)
        stopped = _enough([line["agreement"] for line in history], how, number)
        if stopped:
            break
        wanted = _new_ones(_moved(made, x, told, how, number, bench.chunks), asked)
        more, answers = _answered(target, wanted, lambda some: ask(some, val_answers), rng.at("few", number))
        cut = cut or len(more) < len(wanted)
        if not len(more):
            stopped = "queries" if len(wanted) else "growth"
            break
        asked.update(input_ids(more))
        x, told = _capped(torch.cat([x, more]), told.joined(answers), how.cap, rng.at("reservoir", number))
    if score < WEAK * how.tau:
        log.warning(
            "the stand-in is little like the model (%s %.3f): orders it gives mean little; give it more inputs "
            "(--training, start=), rounds or a larger net (net=)",
            "R²" if how.values else "agreement",
            score,
        )
    return StandIn(made, val, val_answers, history[-1]["agreement"], tuple(history), stopped, cut)


def _answered(target: Target, x: Tensor, ask: Callable[[Tensor], Answers], rng: Stream) -> tuple[Tensor, Answers]:
    """Those inputs that the target answers, with the answers: all, or what a budget of queries has room for.

    An input that was answered before costs nothing, and those that are left out are so by lot. So a run that is
    continued learns from what it has learned from before, whatever it has asked since.
    """
    if isinstance(target, Asked):
        left, known = target.affordable(), target.knows(x)
        if left is not None and int((~known).sum()) > left:
            order = torch.randperm(len(x), generator=rng.generator())
            known[order[~known[order]][:left]] = True
            x = x[known]
    try:
        return x, ask(x)
    except BudgetSpent:  # retries have taken what was left
        assert isinstance(target, Asked)  # nobody else has a budget
        x = x[target.knows(x)]
        return x, ask(x)


def _enough(scores: list[float], how: Extraction, number: int) -> str:
    """Why the rounds end here, "" where they go on."""
    if scores[-1] >= how.tau:
        return "tau"
    grown = [after - before for before, after in itertools.pairwise(scores)]
    if len(grown) >= 2 and max(grown[-2:]) < GROWTH:
        return "growth"
    return "rounds" if number == how.rounds else ""


def begin(bench: Bench, how: Extraction, rng: Stream, pool: Tensor | None) -> tuple[Tensor, Tensor]:
    """The inputs that the stand-in starts from, and those it is checked on; no input is in both, nor in the pool."""
    if bench.training is None:
        raise UsageError(
            "a stand-in begins with inputs like those the model is used on, and none are known here; give them, "
            "labels are not needed: --training DATA"
        )
    classes = len(bench.target.spec.classes)
    start, check = how.start * classes, how.checked_on
    most, part = _limit(bench.target), _room(bench.target, how)
    if part < 1:
        start, check = int(start * part), int(check * part)
        log.warning("the budget of queries is small: the stand-in starts from %d inputs, %d check it", start, check)
    drawn = _drawn(bench.training, start + check, rng, pool)
    if len(drawn) < start + check:
        check = int(len(drawn) * check / (start + check))
    if min(check, len(drawn) - check) < 2 * classes:
        few = f"; a budget of {most} queries is too small" if part < 1 else ""
        raise UsageError(
            f"a stand-in for {classes} classes needs {2 * classes} inputs to begin with and as many to be checked on "
            f"at least; of {bench.training.name}, less the inputs of the pool, there are {len(drawn) - check} and "
            f"{check}{few or '; give others: --training DATA'}"
        )
    # The beginning of one order: with a larger budget the same questions come again, and their answers are known.
    return drawn[: len(drawn) - check], drawn[len(drawn) - check :]


def _drawn(data: Data, number: int, rng: Stream, pool: Tensor | None) -> Tensor:
    """The first of the data in a random order, ``number`` of them, each once and none of the pool."""
    seen = set() if pool is None else set(input_ids(pool))
    rows: list[int] = []
    for row in torch.randperm(len(data), generator=rng.at("start").generator()).tolist():
        (name,) = input_ids(data.cases.x[row : row + 1])
        if name not in seen:
            seen.add(name)
            rows.append(row)
        if len(rows) == number:
            break
    return data.cases.x[rows]


def _asker(target: Target, how: Extraction, chunks: Chunks) -> Callable[[Tensor, Answers | None], Answers]:
    """Asks the target, and puts its answers in the form the stand-in learns; values are scaled as those before."""

    def ask(x: Tensor, like: Answers | None) -> Answers:
        with target.ready():
            return Answers.of(answer(target, x, chunks).cpu(), how, like)

    return ask


def _moved(
    made: ModuleTarget,
    x: Tensor,
    told: Answers,
    how: Extraction,
    number: int,
    chunks: Chunks,
) -> Tensor:
    """New inputs to ask about: those on which stand-in and target disagree, a step along the stand-in's Jacobian."""
    scores = answer(made, x, chunks).cpu()
    rows, output = told.disputed(scores, LEAST_Z)
    low, high = made.spec.bounds
    size = how.step * (high - low) * (1 if (number - 1) // FLIP % 2 == 0 else -1)

    def step(x: Tensor, output: Tensor) -> Tensor:
        here = x.to(made.device).requires_grad_()
        with torch.enable_grad():
            chosen = made(here).gather(1, output.to(made.device)[:, None]).sum()
        # Papernot: the Jacobian of probabilities. Here: of scores, because probabilities near 1 have none.
        slope = torch.autograd.grad(chosen, here)[0]
        return (here.detach() + size * slope.sign()).clamp(low, high).cpu()

    return chunks.map(step, x[rows], output) if len(rows) else x[:0]


def _new_ones(x: Tensor, asked: set[str]) -> Tensor:
    """Those that were not asked about before, each once: an input disputed twice may take the same step twice."""
    first = {name: row for row, name in reversed(list(enumerate(input_ids(x)))) if name not in asked}
    return x[sorted(first.values())]


def _capped(x: Tensor, told: Answers, cap: int, rng: Stream) -> tuple[Tensor, Answers]:
    """At most ``cap`` of them, drawn."""
    if len(x) <= cap:
        return x, told
    rows = torch.randperm(len(x), generator=rng.generator())[:cap].sort().values
    return x[rows], told[rows]


def fresh(how: Extraction, target: Target, rng: Stream) -> nn.Module:
    """The net with fresh weights that depend on nothing but the stream."""
    place = python_file(how.net)
    with torch.random.fork_rng([]):
        torch.manual_seed(rng.at("weights").generator().initial_seed())
        net = user_net(*place) if place else new_net(how.net, target.spec, {})
    device = _device(target)
    return probed(net.to(device).eval(), target.spec, device).module


def _device(target: Target) -> torch.device:
    """Where the stand-in lives: with the target, or where torch is fastest when the target is somewhere else."""
    return pick_device() if isinstance(target, Asked) else target.device


def _room(target: Target, how: Extraction) -> float:
    """The share of the first questions that a budget of queries has room for, 1 where it has for all."""
    wanted, most = how.start * len(target.spec.classes) + how.checked_on, _limit(target)
    return 1.0 if most is None else min(1.0, SHARE * most / wanted)


def _limit(target: Target) -> int | None:
    """How many inputs the whole budget of queries allows."""
    if not isinstance(target, Asked) or target.queries.limit is None:
        return None
    # What was asked before under a larger one is known, and costs nothing.
    return max(target.queries.limit, target.queries.asked) // target.repeats
