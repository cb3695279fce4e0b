"""Hardening: fuzz, select, train, measure, until a requirement holds on the validation part.

The test part is looked at once, at the end. Same command, same run: it goes on. Where a recipe has two models, round 1
is the resistant one, and the rounds after it fuzz and train that.
"""

import logging
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core import environment, store
from assay.core.errors import Interrupted, UsageError
from assay.core.files import canonical_json, sha256, write_atomic
from assay.core.requirement import Requirement
from assay.core.units import budget, count, seconds
from assay.engines.checks import ignored
from assay.engines.final_look import FinalLook
from assay.engines.hardened import INTERRUPTED, Hardened, Tested
from assay.engines.hardening_models import Models, Progress, facts_of
from assay.engines.hardening_subject import Model, Subject, subject_of
from assay.engines.judge import Judge
from assay.engines.rehearsal import rehearsed
from assay.engines.rounds import Rounds, Say, Setting, Stopped
from assay.engines.session import session
from assay.engines.siblings import SIBLINGS, for_siblings
from assay.engines.stop import Stopper
from assay.engines.train import writable
from assay.engines.twins import TWINS, check_twins
from assay.engines.yardstick import Yardstick, suite_for
from assay.recipes.recipe import Recipe, ball_of, hardening, resolve
from assay.stages.trainers.resistant import attacks_of
from assay.subjects.bench import Splits
from assay.subjects.sources import checkpoint
from assay.subjects.target import require

log = logging.getLogger("assay")

FUZZ_TIME = "30s"


def harden(
    recipe: str | Recipe,
    model: Model,
    data: str | Splits,
    *,
    until: str,
    eps: str | float,
    norm: str | None = None,
    run: str | None = None,
    rounds: int = 5,
    time: str | float | None = None,
    per_round: str | int = "10%",
    fuzz_time: str | float | None = None,
    fuzz_cases: int | None = None,
    suite: str = "",
    changes: Mapping[str, Any] | None = None,
    val_cases: int = 1000,
    test_cases: int | None = None,
    seed: int = 0,
    control: bool = True,
    resistant: Model | None = None,
    ignore: Sequence[str] = (),
    out: str | Path | None = None,
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    progress: Progress | None = None,
) -> Hardened:
    """Train a model with the failures a recipe finds in it, round after round, until the requirement holds.

    ``until`` is written ``"pgd>=0.8, clean_drop<=0.01"`` and held against the first ``val_cases`` of the validation
    part, white box; a number that a trust check spoils meets nothing. Each round fuzzes for ``fuzz_time`` (30s) or
    ``fuzz_cases`` and picks ``per_round`` cases: a number, or a share of the training part. ``rounds`` and ``time``
    count over all sessions of a run; no round is begun that would not end in time, going by the longest so far. The
    ``control`` is the original model trained as long without cases. ``test_cases`` limits the test part.

    A recipe with two models first builds the resistant one from the model that is given (round 1), or takes
    ``resistant``, and hardens that; its control is the resistant model trained as long on what made it so.
    """
    requirement = Requirement.parse(until)
    changes = {**(changes or {}), **({"suite": suite} if suite else {})}
    ball = ball_of(eps, norm)
    recipe = for_siblings(recipe, (), "hardening has one")
    stages, after = resolve(recipe, changes, ball), hardening(recipe, changes, ball)
    check_twins(stages, given=resistant is not None)
    if SIBLINGS in stages.needs() and stages.resistant is None:
        raise UsageError(
            f"recipe {stages.name!r} compares models, and hardening has one; take another recipe, "
            "or say how a resistant one is built: --set resistant=resistant"
        )
    subject = subject_of(
        model,
        data,
        val_cases=val_cases,
        test_cases=test_cases,
        size=size,
        mean=mean,
        std=std,
        device=device,
        resistant=resistant,
    )
    full, labels = suite_for(after.suite, requirement.attacks, ball)
    after = replace(after, suite=full)
    skipped = tuple(sorted(ignored(ignore)))
    yardstick = Yardstick(subject.target, full, eps, norm or "linf", seed, skipped, deterministic)
    protocol = yardstick.protocol(subject.name, subject.test, requirement)
    twins = stages.resistant is not None
    needs = {*stages.needs(), *after.select.entry.needs} - {SIBLINGS, TWINS}
    require(subject.target, needs, f"recipe {stages.name!r}")
    rehearsed(subject.target, (), stages, subject.splits.part("train"), subject.target if twins else None)
    if stages.resistant is not None:
        attacks_of(stages.resistant, subject.target)
    setting = Setting(
        recipe=recipe,
        changes=changes,
        stages=stages,
        after=after,
        eps=eps,
        norm=norm,
        splits=subject.splits,
        val=subject.val,
        test=subject.test,
        per_round=count(per_round, len(subject.splits.part("train")), "per_round"),
        fuzzing=_fuzzing(fuzz_time, fuzz_cases, deterministic),
        seed=seed,
        deterministic=deterministic,
        training=subject.training(after.train, seed, stages),
        given=subject.given,
    )
    limits = _Limits(rounds, None if time is None else seconds(time), control)
    config = _config(subject, setting, yardstick) | {"gate": {"until": until}, "budget": limits.config()}
    mark = {"recipe": stages.name, "start": subject.target.fingerprint(), "seed": seed, **subject.pair()}
    mark["identity"] = sha256(canonical_json(store.identity(config)).encode())[:16]
    copied = None if out is None else _free(Path(out), mark)
    with (
        store.opened(run, config, environment.describe(), fresh=fresh) as folder,
        session(deterministic=deterministic),
        Stopper(None) as stop,
    ):
        models = Models(folder, subject.target, facts_of(model, subject.target), mark)
        parts = (folder, setting, models, yardstick, _Teller(progress, stop, rounds, setting.first))
        work = Rounds(*parts)
        judge = Judge(requirement, labels, work.done)
        told = _Work(work, FinalLook(*parts), judge, limits, stop).go(protocol)
    found = replace(told, check=subject.command(told.run, told.best, yardstick))
    if copied is not None:
        write_atomic(copied, told.model.read_bytes())
    return found


@dataclass(frozen=True, slots=True)
class _Limits:
    """What may be raised on a run that exists."""

    rounds: int
    time: float | None
    control: bool

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise UsageError(f"rounds must not be negative, got {self.rounds}")

    def config(self) -> dict[str, Any]:
        return {"rounds": self.rounds, "control": self.control, **({} if self.time is None else {"time": self.time})}


class _Teller:
    """Passes numbers on to the screen, and stops the work where the user pressed Ctrl-C."""

    def __init__(self, progress: Progress | None, stop: Stopper, rounds: int, first: int) -> None:
        self.progress, self.stop, self.rounds, self.first = progress or (lambda _: None), stop, rounds, first

    def __call__(self, **place: Any) -> Say:
        told = {**place, "rounds": self.rounds, "place": self._place(place.get("round", 0))}

        def say(numbers: Mapping[str, Any]) -> None:
            self.progress({**told, **numbers})
            if self.stop.interrupted:
                raise Stopped

        return say

    def _place(self, number: int) -> str:
        """A round as people count them: those that fuzz, from 1 on."""
        if number < self.first:
            return ("original", "resistant")[number]
        return f"round {number - self.first + 1} of {self.rounds}"


class _Work:
    """From the original model to the last number."""

    def __init__(self, work: Rounds, look: FinalLook, judge: Judge, limits: _Limits, stop: Stopper) -> None:
        self.work, self.look, self.judge, self.limits, self.stop = work, look, judge, limits, stop
        self.began = clock.monotonic() - float(work.folder.stats().get("seconds", 0.0))

    def go(self, protocol: dict[str, Any]) -> Hardened:
        """Rounds, control, and the look at the test part; what was done already is read from the run."""
        test: Tested | None = None
        control = self.limits.control
        if self.work.done:
            self.look.asked(self.judge.told(), control=control)
        try:
            stopped = self._rounds()
            test = self.look.test(self.judge.told(), control=control, protocol=protocol)
        except Stopped:
            stopped = INTERRUPTED
        finally:
            self._write_stats()
        if not self.work.done:
            raise Interrupted("stopped before the original model was measured; the same command starts again")
        best = self.judge.best()
        return Hardened(
            run=self.work.folder.path,
            model=self.work.folder.path / f"models/round-{best:03d}.safetensors",
            requirement=self.judge.requirement,
            verdicts=self.judge.verdicts(best),
            shares=self.judge.shares(best),
            met=self.judge.met(self.work.done[best]),
            best=best,
            rounds=tuple(self.work.done),
            stopped=stopped,
            test=test,
            protocol=protocol,
            check="",
            seconds=self._seconds(),
        )

    def _rounds(self) -> str:
        """Why they ended."""
        if not self.work.done:
            self.work.original()
            self._write_stats()
        while not any(map(self.judge.met, self.work.done)):
            longest = max((r.seconds for r in self.work.done[1:]), default=0.0)
            left = self.limits.rounds + self.work.setting.first - len(self.work.done)
            if left < 1:
                return "all rounds done"
            if self.limits.time is not None and self._seconds() + longest > self.limits.time:
                return "time is up"
            if len(self.work.done) < self.work.setting.first:
                self.work.resistant()
            elif not self.work.next():
                return "no failing case was found to learn from"
            self._write_stats()
            if self.stop.interrupted:
                raise Stopped
        return "requirement met"

    def _seconds(self) -> float:
        return clock.monotonic() - self.began

    def _write_stats(self) -> None:
        told = {"run": self.work.folder.name, "seconds": self._seconds(), "rounds": len(self.work.done) - 1}
        told["round_seconds"] = [round(done.seconds, 2) for done in self.work.done]
        self.work.folder.write_stats(told | {"updated": clock.time()})


def _config(subject: Subject, setting: Setting, yardstick: Yardstick) -> dict[str, dict[str, Any]]:
    """What makes two hardenings the same."""
    ignoring = {"ignore": list(yardstick.ignore)} if yardstick.ignore else {}
    return {
        "run": {
            "kind": "harden",
            "seed": setting.seed,
            "deterministic": setting.deterministic,
            "per_round": setting.per_round,
            **{f"fuzz_{name}": value for name, value in setting.fuzzing.items()},
        },
        **subject.config(),
        "recipe": setting.stages.config() | setting.after.config(),
        "ball": {"eps": budget(setting.eps), "norm": yardstick.norm, **ignoring},
    }


def _fuzzing(time: str | float | None, cases: int | None, deterministic: bool) -> dict[str, Any]:
    """How long each round fuzzes."""
    if cases is not None and cases < 1:
        raise UsageError(f"fuzz_cases must be at least 1, got {cases}")
    if time is None and cases is None:
        time = FUZZ_TIME
    if deterministic and time is not None:
        log.warning("how many cases are found in a time depends on the machine; with --fuzz-cases the result repeats")
    limits = {"time": None if time is None else seconds(time), "cases": cases}
    return {name: value for name, value in limits.items() if value is not None}


def _free(out: Path, mark: Mapping[str, Any]) -> Path:
    """Where the best model is copied to; only an earlier copy of the same hardening is replaced."""
    if out.suffix != ".safetensors":
        raise UsageError(f"--out must end in .safetensors, got {out}")
    if out.exists():
        told = checkpoint.read_meta(out).get("hardening", {})
        if {name: told.get(name) for name in mark} != dict(mark):
            raise UsageError(f"{out} exists and is no model of this hardening; choose another --out")
    writable(out.parent)
    return out
