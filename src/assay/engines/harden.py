"""Hardening: fuzz, select, train, measure, until a requirement holds on the validation part.

The test part is looked at once, at the end. Same command, same run: it goes on. Where a recipe has two models, round 1
is the resistant one, and the rounds after it fuzz and train that. Where it finds no cases, one round trains.
"""

import time as clock
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core import environment, store
from assay.core.deadline import limited
from assay.core.errors import Interrupted, UsageError
from assay.core.files import canonical_json, sha256, write_atomic
from assay.core.passes import Passes, counted
from assay.core.requirement import ANYTHING, Requirement
from assay.core.units import budget, seconds
from assay.engines.ablation import ablate as without_parts
from assay.engines.ablation import ablations_of
from assay.engines.checks import ignored
from assay.engines.cluster import Cluster, cluster_of, connected
from assay.engines.final_look import FinalLook
from assay.engines.hardened import ALL_DONE, INTERRUPTED, Hardened, Tested
from assay.engines.hardening_models import Models, Progress, facts_of
from assay.engines.hardening_setting import Amounts, Setting, Stopped, System, refuse_fuzzing
from assay.engines.hardening_subject import Model, Subject, subject_of
from assay.engines.hardening_teller import Teller
from assay.engines.held_out import history_of
from assay.engines.judge import Judge
from assay.engines.round_book import Book
from assay.engines.rounds import Rounds
from assay.engines.session import session
from assay.engines.stop import Stopper
from assay.engines.train import writable
from assay.engines.trained_round import TrainedRound
from assay.engines.yardstick import Yardstick, suite_for
from assay.recipes.recipe import Recipe, ball_of
from assay.subjects.bench import Splits
from assay.subjects.sources import checkpoint


@limited
def harden(
    recipe: str | Recipe,
    model: Model,
    data: str | Splits,
    *,
    until: str = "",
    eps: str | float,
    norm: str | None = None,
    run: str | None = None,
    rounds: int = 5,
    time: str | float | None = None,
    per_round: str | int | None = None,
    fuzz_time: str | float | None = None,
    fuzz_cases: int | None = None,
    suite: str = "",
    changes: Mapping[str, Any] | None = None,
    val_cases: int = 1000,
    test_cases: int | None = None,
    seed: int = 0,
    control: bool = True,
    look: bool = True,
    ablate: bool = False,
    amp: bool = False,
    resistant: Model | None = None,
    history: str | None = None,
    ignore: Sequence[str] = (),
    out: str | Path | None = None,
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    call_timeout: str | float | None = None,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    progress: Progress | None = None,
) -> Hardened:
    """Train a model with the failures a recipe finds in it, round after round, until the requirement holds.

    ``until`` is written ``"pgd>=0.8, clean_drop<=0.01"`` and held against the first ``val_cases`` of the validation
    part, white box; a number that a trust check spoils meets nothing. Where nothing is asked, all rounds are done, and
    the model that attacks break least, on the mean, is the result. Each round fuzzes for ``fuzz_time`` (30s) or
    ``fuzz_cases`` and picks ``per_round`` cases: a number, or a share of the training part (10%). ``rounds`` and
    ``time`` count over all sessions of a run; no round is begun that would not end in time, going by the longest so
    far. The ``control`` is the original model trained as long without cases. ``test_cases`` limits the test part;
    without ``look`` it is not looked at. With ``ablate`` the training is made again without each of the recipe's parts,
    as long, and measured on the validation part. With ``amp`` trainings make their passes in bfloat16.

    A recipe with two models first builds the resistant one from the model that is given (round 1), or takes
    ``resistant``, and hardens that; its control is the resistant model trained as long on what made it so.

    A recipe that finds no cases trains once, for ``time`` where that is what it has. Its control is trained by the
    recipe's ``control`` on the same inputs, and the test part is looked at beside the original with random noise on the
    weights that training changed. ``history`` is the folder that a recipe such as dare mines, where that is not beside
    the weights. ``call_timeout`` is how long one call of the model may take.

    With ``ray`` (local, auto or an address) ``workers`` of a Ray cluster fuzz, train and measure, each with a
    ``gpu_share`` of a GPU where the model is on one.
    """
    cluster = cluster_of(ray, workers, gpu_share)
    requirement = Requirement.parse(until) if until else ANYTHING
    past = {} if history is None else {"train.history": history}
    changes = {**(changes or {}), **({"suite": suite} if suite else {}), **past}
    ball = ball_of(eps, norm)
    offered = {**ball, "history": history_of(model) or None}
    system = System.of(recipe, changes, offered, resistant=resistant is not None)
    system, time = system.timed(None if time is None else seconds(time), deterministic=deterministic)
    if ablate and not system.after.parts:
        said = "has another trainer than its own, whose parts nobody named" if system.recipe.parts else "names no parts"
        raise UsageError(f"recipe {system.recipe.name!r} {said}; --ablate is for --recipe assay as it is")
    refuse_fuzzing(system, fuzz_time=fuzz_time, fuzz_cases=fuzz_cases, per_round=per_round)
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
        needs=system.after.train.entry.needs,
    )
    full, labels = suite_for(system.after.suite, requirement.attacks, ball)
    system = replace(system, after=replace(system.after, suite=full))
    skipped = tuple(sorted(ignored(ignore)))
    yardstick = Yardstick(subject.target, full, eps, norm or "linf", seed, skipped, deterministic, cluster)
    protocol = yardstick.protocol(subject.name, subject.test, requirement)
    training = subject.splits.part("train")
    system.try_on(subject.target, training)
    asked = (per_round, fuzz_time, fuzz_cases)
    half = {"amp": True} if amp else {}
    setting = Setting(
        system=system,
        eps=eps,
        norm=norm,
        splits=subject.splits,
        val=subject.val,
        test=subject.test,
        amounts=Amounts.of(system, len(training), *asked, deterministic=deterministic),
        seed=seed,
        deterministic=deterministic,
        training=half | subject.training(system.after.train, subject.splits, seed, system.resistant),
        control=half | subject.training(system.control, system.control_data(subject.splits), seed, system.resistant),
        given=subject.given,
        cluster=cluster,
    )
    limits = _Limits(rounds, time, control)
    config = _config(subject, setting, yardstick, half) | {"gate": {"until": until}, "budget": limits.config()}
    mark = {"recipe": system.recipe.name, "start": subject.target.fingerprint(), "seed": seed, **subject.pair()}
    mark["identity"] = sha256(canonical_json(store.identity(config)).encode())[:16]
    copied = None if out is None else _free(Path(out), mark)
    with (
        store.opened(run, config, environment.describe(), fresh=fresh) as folder,
        session(deterministic=deterministic),
        nullcontext() if cluster is None else connected(cluster),  # once for all that is done there
        Stopper(None) as stop,
        counted() as asked_here,
    ):
        facts = facts_of(model, subject.target)
        models = Models(folder, subject.target, facts, mark, cluster=cluster, deterministic=deterministic, amp=amp)
        most = rounds if system.stages is not None else min(rounds, 1)
        parts = (folder, setting, models, yardstick, Teller(progress, stop, most, setting.first))
        book = Book(*parts)
        judge = Judge(requirement, labels, book.done)
        told = _Work(book, FinalLook(*parts), judge, limits, stop, asked_here).go(protocol, look=look, parts=ablate)
    found = replace(told, check=subject.command(told.run, told.compared, yardstick))
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


class _Work:
    """From the original model to the last number."""

    def __init__(
        self, book: Book, look: FinalLook, judge: Judge, limits: _Limits, stop: Stopper, asked: Passes
    ) -> None:
        self.book, self.look, self.judge, self.limits, self.stop = book, look, judge, limits, stop
        self.asked, self.asked_before = asked, int(book.folder.stats().get("passes", 0))
        stages = book.setting.system.stages
        self.work = TrainedRound(book) if stages is None else Rounds(book, stages)
        self.began = clock.monotonic() - float(book.folder.stats().get("seconds", 0.0))

    def go(self, protocol: dict[str, Any], *, look: bool, parts: bool) -> Hardened:
        """Rounds, control, and the look at the test part; what was done already is read from the run."""
        test: Tested | None = None
        control = self.limits.control
        if self.book.done and look:
            self.look.asked(self.judge.told(), control=control)
        try:
            stopped = self._rounds()
            if look:
                test = self.look.test(self.judge.told(), control=control, protocol=protocol)
            if parts:  # last: whoever stops it has the numbers of the test part
                without_parts(self.book)
        except Stopped:
            stopped = INTERRUPTED
        finally:
            self._write_stats()
        if not self.book.done:
            raise Interrupted("stopped before the original model was measured; the same command starts again")
        best = self.judge.best()
        return Hardened(
            run=self.book.folder.path,
            model=self.book.folder.path / f"models/round-{best:03d}.safetensors",
            requirement=self.judge.requirement,
            verdicts=self.judge.verdicts(best),
            shares=self.judge.shares(best),
            met=self.judge.met(self.book.done[best]),
            best=best,
            rounds=tuple(self.book.done),
            stopped=stopped,
            test=test,
            protocol=protocol,
            check="",
            seconds=self._seconds(),
            passes=self._passes(),
            alone=self.book.setting.system.after.alone,
            ablations=tuple(ablations_of(self.book.folder)),
        )

    def _rounds(self) -> str:
        """Why they ended."""
        done, first = self.book.done, self.book.setting.first
        if not done:
            self.book.original()
            self._write_stats()
        while not self.judge.over():
            longest = max((r.seconds for r in done[1:]), default=0.0)
            if why := self.work.over():
                return why
            if self.limits.rounds + first - len(done) < 1:
                return ALL_DONE
            if self.limits.time is not None and self._seconds() + longest > self.limits.time:
                return "time is up"
            if why := self.work.step():
                return why
            self._write_stats()
            if self.stop.interrupted:
                raise Stopped
        return "requirement met"

    def _seconds(self) -> float:
        return clock.monotonic() - self.began

    def _passes(self) -> int:
        return self.asked_before + self.asked.all

    def _write_stats(self) -> None:
        told = {"run": self.book.folder.name, "seconds": self._seconds(), "rounds": len(self.book.done) - 1}
        told["round_seconds"] = [round(done.seconds, 2) for done in self.book.done]
        told["training_seconds"] = [round(done.training, 2) for done in self.book.done]
        told["measuring_seconds"] = [round(done.measuring, 2) for done in self.book.done]
        told["passes"] = self._passes()
        self.book.folder.write_stats(told | {"updated": clock.time()})


def _config(
    subject: Subject, setting: Setting, yardstick: Yardstick, half: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What makes two hardenings the same."""
    ignoring = {"ignore": list(yardstick.ignore)} if yardstick.ignore else {}
    return {
        "run": {
            "kind": "harden",
            "seed": setting.seed,
            "deterministic": setting.deterministic,
            **setting.amounts.config(),
            **half,
        },
        **subject.config(),
        "recipe": setting.system.config(),
        "ball": {"eps": budget(setting.eps), "norm": yardstick.norm, **ignoring},
    }


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
