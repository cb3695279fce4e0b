"""Replaying: do the failures of a run still fail? Each is asked anew, alone, several times, and nothing is written."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.cases import MINED, UNLABELLED, Cases, InputSpec, inside
from assay.core.deadline import limited
from assay.core.errors import BudgetSpent, Interrupted, ModelFailed, UsageError
from assay.core.ids import case_ids, rows_named
from assay.core.places import known_as
from assay.core.precision import full_precision
from assay.core.registry import Bound, bind
from assay.core.store import Store
from assay.core.units import count
from assay.engines.asking import asked_of
from assay.engines.compared import oracle_of, roles_of, siblings_given
from assay.engines.lanes import NONFINITE
from assay.engines.old_failures import old_failures, read_run
from assay.engines.run_target import Deferred, Model, own_text, result_text, target_of
from assay.engines.session import session
from assay.engines.shrunk import NO_CLASS, OF_THE_INPUT
from assay.engines.siblings import SIBLINGS
from assay.engines.stored import class_names, kind_of, named_by_run
from assay.engines.twins import TWINS
from assay.subjects.asked import Anew, Asked
from assay.subjects.bench import Bench, Data, class_places, fitted
from assay.subjects.target import Target, require

REPEATS = 3
STILL_FAILING, FIXED, FLAKY = "still failing", "fixed", "flaky"
VERDICTS = {name: name.replace(" ", "_") for name in (STILL_FAILING, FIXED, FLAKY)}  # as JSON calls them

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure asked anew: ``failed`` times of ``asked``.

    ``pred`` is the class given most often, among the answers that fail where there are any, None for one that is no
    number; ``was`` the class when it was found, None where nobody noted it; ``confidence`` the mean probability of
    ``pred``, None where the model does not tell.
    """

    id: str
    verdict: str
    label: str
    pred: str | None
    was: str | None
    failed: int
    asked: int
    confidence: float | None

    @property
    def told(self) -> str:
        """``class 3 → 5, was 8``."""
        now = "no number" if self.pred is None else self.pred
        was = f", was {self.was}" if self.was not in (None, self.pred) else ""
        return f"class {self.label} → {now}{was}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The failures of a run asked anew, of ``of`` that there were to ask; fewer where a budget of queries ended.

    ``model`` was asked, which is ``role`` where that is not plain; ``oracle`` said what fails.
    """

    run: str
    model: str
    oracle: str
    repeats: int
    of: int
    failures: tuple[Failure, ...]
    role: str = ""
    queries: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return len(self.failures) == self.of

    def counts(self) -> dict[str, int]:
        """How many got each verdict."""
        verdicts = [failure.verdict for failure in self.failures]
        return {key: verdicts.count(name) for name, key in VERDICTS.items()}

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"run": self.run, "model": self.model, "oracle": self.oracle, "repeats": self.repeats}
        told |= {"of": self.of, **self.counts(), "complete": self.complete}
        told |= {"queries": dict(self.queries)} if self.queries is not None else {}
        return told | {"failures": [asdict(failure) for failure in self.failures]}

    def __len__(self) -> int:
        return len(self.failures)

    def __repr__(self) -> str:
        told = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.counts().items())
        return f"<{len(self)} of {self.of} failures of {self.run} replayed: {told}>"


@limited
def replay(
    run: str | Path,
    ids: Sequence[str] = (),
    *,
    model: Model | None = None,
    siblings: Sequence[Model] = (),
    repeats: int = REPEATS,
    k: int | str | None = None,
    flaky: bool = False,
    shrunk: int | None = None,
    selected: int | None = None,
    distinct: bool = False,
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    call_timeout: str | float | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Ask the failures of a run anew: each alone, in float32, by the net as it came, ``repeats`` times.

    ``ids`` are those to ask (a beginning of one is enough), all where there are none; ``k`` takes the first so many.
    ``flaky`` adds what did not fail twice when it was found, ``shrunk`` takes the cases of that shrinking instead,
    ``selected`` those of that selection; ``distinct`` takes one of each kind, that of the smallest change. What fails
    is said by the recipe's own oracle, in a saved evaluation by the label. The model is the run's own unless
    another is given, of a hardening its result; ``siblings`` are those that the oracle compares with, where the run
    does not find them. Nothing is written to the run, and it may be at work meanwhile.

    A model that only answers is really asked each time, whatever it answered before: at most ``queries`` inputs in
    this call. Where they end first, the failures before have their verdicts; before the first, ``BudgetSpent``. A model
    that raises, or takes longer than ``call_timeout`` for one call, ends it.
    """
    if isinstance(repeats, bool) or repeats < 1:
        raise UsageError(f"--repeats is how often each failure is asked, from 1 up, got {repeats!r}")
    folder = read_run(run)
    every = old_failures(folder, flaky=flaky, shrunk=shrunk, selected=selected, distinct=distinct)
    names = case_ids(every)
    wanted = rows_named(list(ids), names, f"run {folder.name}") if ids else list(range(len(names)))
    cases = every[torch.tensor(wanted if k is None else wanted[: count(k, len(wanted), "-k")])]
    loading: dict[str, Any] = {"device": device, "mean": mean, "std": std}
    with session():
        target, text, role = _target(folder, cases, model, **loading, queries=queries, ask=ask)
        cases = fitted_to(target, folder, cases)
        oracle = oracle_of(folder)
        others = siblings_given(folder, cases, siblings, **loading)
        roles = roles_of(folder, oracle, cases, target, others, **loading)
        judge = Judge(target, oracle, roles, repeats)
        done: list[Failure] = []
        still, tell = 0, progress or (lambda _: None)
        try:
            for failure in judge.each(cases):
                done.append(failure)
                still += failure.verdict == STILL_FAILING
                tell({"done": len(done), "of": len(cases), "still": still})
        except BudgetSpent:
            if not done:
                raise
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped after {len(done)} of {len(cases)} failures; a replay keeps nothing, the same command starts "
                "again (-k N takes the first N)"
            ) from None
    queried = asked_of(target)
    return Replayed(known_as(folder.path), text, oracle.text, repeats, len(cases), tuple(done), role, queried)


class Judge:
    """Says of each case whether it fails every time it is asked alone."""

    def __init__(self, target: Target, oracle: Bound, roles: Mapping[str, Target], repeats: int = REPEATS) -> None:
        require(target, set(oracle.entry.needs) - {SIBLINGS, TWINS}, f"oracle {oracle.entry.name!r}")
        self.bench = Bench(_anew(target), {name: _anew(net) for name, net in roles.items()})
        self.oracle, self.repeats, self.classes = oracle, repeats, target.spec.classes

    def each(self, cases: Cases) -> Iterator[Failure]:
        """The cases one after another; all askings of one before the next."""
        names, was = case_ids(cases), _classes_before(cases)
        # As in shrinking: what was said of the input when it was found is not what is said now.
        base = cases.drop(*OF_THE_INPUT).note(seed_x=cases.parent)
        with ExitStack() as at_work:
            at_work.enter_context(full_precision())
            for net in (self.bench.target, *self.bench.roles.values()):
                at_work.enter_context(net.ready())
            for row, name in enumerate(names):
                one = base[row : row + 1].to(self.bench.target.device)
                try:
                    answers = [self._ask(one) for _ in range(self.repeats)]
                except ModelFailed as error:
                    raise ModelFailed(f"{error}; it was asked failure {name}") from error
                yield self._judged(name, int(cases.y[row]), was[row], answers)

    # Not inference mode: a net that keeps a tensor it makes then could never be trained again.
    @torch.no_grad()
    def _ask(self, one: Cases) -> tuple[bool, Tensor]:
        """Whether it fails, and the scores (K,)."""
        logits = self.bench.logits(one)
        # As when failures are stored: an answer that is no number is one whatever the oracle says.
        fails = bool(self.oracle(self.bench, one.note(logits=logits)).any()) or not bool(logits.isfinite().all())
        return fails, logits[0].float().cpu()

    def _judged(self, name: str, label: int, was: int, answers: list[tuple[bool, Tensor]]) -> Failure:
        failed = sum(fails for fails, _ in answers)
        telling = [scores for fails, scores in answers if fails or not failed]
        said = [int(scores.argmax()) if bool(scores.isfinite().all()) else NO_CLASS for scores in telling]
        pred = max(said, key=said.count)
        sure = None
        if pred != NO_CLASS and {"prob", "logit"} & set(self.bench.target.gives):
            same = [scores for scores, given in zip(telling, said, strict=True) if given == pred]
            sure = round(float(torch.stack(same).softmax(1)[:, pred].mean()), 6)
        verdict = STILL_FAILING if failed == len(answers) else FLAKY if failed else FIXED
        return Failure(
            id=name,
            verdict=verdict,
            label="unlabelled" if label == UNLABELLED else self.classes[label],
            pred=None if pred == NO_CLASS else self.classes[pred],
            was=None if was == NO_CLASS else self.classes[was],
            failed=failed,
            asked=len(answers),
            confidence=sure,
        )


def fitted_to(target: Target, run: Store, cases: Cases) -> Cases:
    """The cases with their classes as the target numbers them; refused where it does not take such inputs."""
    classes, name = class_names(run, cases), f"run {run.name}"
    known = InputSpec(tuple(cases.x.shape[1:]), target.spec.bounds, classes)
    made = fitted(target, Data(name, cases, known)).cases
    outside = int((~inside(cases.x, target.spec.bounds) & cases.x.flatten(1).isfinite().all(1)).sum())
    if outside:
        low, high = target.spec.bounds
        raise UsageError(f"the model takes inputs within [{low:g}, {high:g}]; {outside} failures of {name} do not fit")
    places = class_places(classes, target.spec.classes, name)
    if places is None:
        return made
    place = torch.tensor([*places, NO_CLASS])
    return made.note(**{column: place[cases.info[column]] for column in ("pred", MINED) if column in cases.info})


def by_label() -> Bound:
    """The oracle that asks for the label and nothing else."""
    return bind("oracle", "wrong_label", {})


def _target(run: Store, cases: Cases, model: Model | None, **given: Any) -> tuple[Target, str, str]:
    """The model to ask, its text, and what it is where the run has several."""
    if model is not None:
        return target_of(run, cases, model, **given, anew=True), model if isinstance(model, str) else "module", ""
    if kind_of(run) == "harden":
        text, best = result_text(run)
        with named_by_run(run):
            found = target_of(run, cases, text, **given, anew=True)
        return found, text, "the original model, which is the result" if not best else f"the result, of round {best}"
    found = target_of(run, cases, None, **given, anew=True)
    return found.target if isinstance(found, Deferred) else found, own_text(run), ""


def _anew(target: Target) -> Target:
    return Anew(target) if isinstance(target, Asked) else target


def _classes_before(cases: Cases) -> list[int]:
    """The class of each case when it was found."""
    if "pred" not in cases.info:
        return [NO_CLASS] * len(cases)
    pred = cases.info["pred"]
    known = cases.info["kind"] != NONFINITE if "kind" in cases.info else torch.ones_like(pred, dtype=torch.bool)
    return torch.where(known, pred, NO_CLASS).tolist()
