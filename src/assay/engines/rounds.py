"""The rounds of hardening: fuzz, split by seed, select, train, measure, commit."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import UNLABELLED, Cases
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.engines.found import load_failures
from assay.engines.fuzz import fuzz
from assay.engines.hardened import Round, finite
from assay.engines.hardening_models import Models
from assay.engines.resistant_model import RESISTANT, Building, Given, heap_in
from assay.engines.yardstick import Yardstick
from assay.recipes.recipe import Hardening, Recipe, Stages
from assay.stages.selectors.ranking import checked
from assay.stages.trainers.kept_back import Parted, among, kept_back
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.sources.load import attacks_in, told_seen
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, answer

Say = Callable[[Mapping[str, Any]], None]
Tell = Callable[..., Say]  # (phase=…, round=…) -> where the numbers of that phase go


class Stopped(KeyboardInterrupt):
    """Ctrl-C between two steps of a round; what is committed stays."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change from round to round."""

    recipe: str | Recipe
    changes: Mapping[str, Any]
    stages: Stages
    after: Hardening
    eps: str | float
    norm: str | None
    splits: Splits
    val: Data  # the part of the validation cases that is measured
    test: Data
    per_round: int
    fuzzing: Mapping[str, Any]  # time and cases of one round's fuzzing
    seed: int
    deterministic: bool
    training: Mapping[str, Any]  # what every checkpoint says of how it was trained
    given: Given | None = None  # the resistant model, where there are two and it is not built

    @property
    def first(self) -> int:
        """The first round that fuzzes; where there are two models, the one before is the resistant one."""
        return 1 if self.stages.resistant is None else 2


class Rounds:
    """A hardening run under way."""

    def __init__(self, folder: Store, setting: Setting, models: Models, yardstick: Yardstick, tell: Tell) -> None:
        self.folder, self.setting, self.models, self.yardstick, self.tell = folder, setting, models, yardstick, tell
        self.rng = Stream(setting.seed, ("harden",))
        self.done = rounds_of(folder)
        for done in self.done:
            models.forget(round_name(done.number))  # a state that outlived its round
        self.kept: list[Parted] = []  # of every round, read when the next one begins

    def original(self) -> None:
        """Round 0: the model as it came."""
        began, target, data = time.monotonic(), self.models.original, self.setting.val
        measured = self.yardstick.measure(target, data, self.tell(phase="measure", round=0), fol=True)
        state = {"right": _right(target, data.cases)}
        weights = self.models.encoded(target.module, hardening={"round": 0})
        self._commit(Round(0, measured, "original", seconds=time.monotonic() - began), weights, state)

    def resistant(self) -> None:
        """Round 1 where there are two models: the resistant one, built from the original or given.

        Its heap of attacks on the original is what this round found: later rounds learn from it too.
        """
        s, name, began = self.setting, round_name(1), time.monotonic()
        assert s.stages.resistant is not None  # only such a hardening has this round
        building = Building(self.models, s.training["start"], s.stages.resistant, s.splits, s.seed)
        heap = building.kept_heap(self.folder)
        self.kept = [heap]
        try:
            if s.given is None:
                target, training = building.built(name, self.tell(phase="train", round=1), heap, round=1)
            else:
                target, training = s.given.target, s.given.training
            done, state = self._judged(target, 1)
        except BaseException:
            self.kept.clear()  # as if it had not begun
            raise
        learn, check = len(heap.learn), len(heap.check)
        counts: dict[str, Any] = {"found": learn + check, "selected": learn}
        counts |= {"learned": learn, "epochs": len(training["log"])} if s.given is None else {}
        facts = {"training": training, "hardening": {"round": 1, "made": RESISTANT}}
        done = replace(done, made=RESISTANT, **counts, seconds=time.monotonic() - began)
        self._commit(done, self.models.encoded(target.module, **facts), state)
        self.models.forget(name)

    def next(self) -> bool:
        """One more round from the last model; False where there is no new case to learn from."""
        number, began = len(self.done), time.monotonic()
        self.kept = self.kept or [self._kept(r) for r in self.done[1:]]
        name, current = round_name(number), self.models.target(round_name(number - 1))
        found = self._found(number, current)
        rows = {} if found is None else self._picked(found, current, number)
        if found is None or not len(rows["selected"]):
            return False
        self.kept.append(_parted(found, rows))
        try:
            learn = Cases.cat([k.learn for k in self._learned()])
            check = Cases.cat([k.check for k in self.kept])
            training = self._training(number, learn)
            made, log = self.models.trained(
                name,
                current,
                self.setting.after.train,
                self._with_checks(check),
                learn,
                self.rng.at("train", number),
                training,
                self.tell(phase="train", round=number),
            )
            target = ModuleTarget(made, current.spec, current.device)
            done, state = self._judged(target, number)
        except BaseException:
            self.kept.pop()  # as if it had not begun
            raise
        done = replace(done, found=len(found), selected=len(rows["selected"]), learned=len(learn), epochs=len(log))
        weights = self.models.encoded(made, training=training | {"log": log}, hardening={"round": number})
        self._commit(replace(done, seconds=time.monotonic() - began), weights, rows | state)
        self.models.forget(name)
        return True

    def _learned(self) -> list[Parted]:
        """What is learned from: all rounds or the last one, and always what made the resistant model so."""
        last = self.kept[-1:] if self.setting.first == 1 else [self.kept[0], self.kept[-1]]
        return self.kept if self.setting.after.heap == "all" else last

    def _found(self, number: int, current: Target) -> Cases | None:
        """What the recipe finds on the current model, in a run folder of its own; None where that is nothing."""
        s = self.setting
        path = self._own_folder(number, current)
        try:
            found = fuzz(
                s.recipe,
                current if s.first == 1 else self.models.original,
                self._seeds(number),
                resistant=None if s.first == 1 else current,
                folder=path,
                seed=self.rng.at("fuzz", number).generator().initial_seed() % 2**31,
                eps=s.eps,
                norm=s.norm,
                changes=s.changes,
                training=s.splits.part("train"),
                deterministic=s.deterministic,
                progress=self.tell(phase="fuzz", round=number),
                **s.fuzzing,
            )
            if found.interrupted:
                raise Stopped
            return load_failures(store.read(path))
        except NothingToTest:
            return None

    def _seeds(self, number: int) -> Data:
        """The training part in an order of the round's own: time that is short would always work the first seeds."""
        train = self.setting.splits.part("train")
        order = torch.randperm(len(train), generator=self.rng.at("order", number).generator())
        return replace(train, cases=train.cases[order], name=f"{train.name} (order of round {number})", source="")

    def _own_folder(self, number: int, current: Target) -> Path:
        """Where the round's cases lie; those of another model, where a round before it was done again, go aside."""
        path = self.folder.path / round_name(number)
        told = store.begun_with(path).get("target", {})
        if told and told.get(f"{RESISTANT}_fingerprint", told["fingerprint"]) != current.fingerprint():
            aside = self.folder.path / "quarantine"
            aside.mkdir(exist_ok=True)
            path.rename(next(p for i in range(1, 10_000) if not (p := aside / f"{path.name}.{i}").exists()))
        return path

    def _picked(self, found: Cases, current: Target, number: int) -> dict[str, Tensor]:
        """The rows kept back to check, and of the others those that the selector picks.

        Some recipes give unlabelled seeds the class a model gives them; what grew from these is not learned from.
        """
        train = self.setting.splits.part("train").cases
        labelled = torch.isin(found.origin, train.origin[train.y != UNLABELLED])
        back = kept_back(found.origin, self.setting.seed)
        mine, back = (~back & labelled).nonzero().flatten(), back & labelled
        k, select = min(self.setting.per_round, len(mine)), self.setting.after.select
        if k:
            with current.ready():
                some = found[mine].to(current.device)
                rows = select(Bench(current), some, k, rng=self.rng.at("select", number))
            mine = mine[checked(rows, k, len(mine), select.entry.name)]
        return {"selected": mine, "check": back.nonzero().flatten()}

    def _with_checks(self, check: Cases) -> Splits:
        """The data to train with: kept-back failures among the validation cases, at most as many as clean ones."""
        splits, clean = self.setting.splits, self.setting.splits.part("val")
        order = torch.randperm(len(check), generator=self.rng.at("validate", len(self.kept)).generator())
        return replace(splits, val=among(clean, check[order[: len(clean)]]))

    def _training(self, number: int, learn: Cases) -> dict[str, Any]:
        digest = hashlib.sha256(learn.x.contiguous().numpy().tobytes() + learn.y.numpy().tobytes()).hexdigest()
        stages, seen = self.setting.stages, self.setting.training["seen"]
        mutate = stages.mutate
        told: dict[str, Any] = {"recipe": self.setting.stages.name, "mutate": mutate.text}
        told["select"] = self.setting.after.select.text
        if seen is not None:  # their cases are learned from, by all models but the control
            told["seen"] = told_seen(seen, *(attacks_in(stage.params) for stage in (mutate, *stages.seeds.values())))
        counts = {"round": number, "cases": len(learn), "cases_fingerprint": digest[:16]}
        return {**self.setting.training, **told, **counts}

    def _judged(self, target: Target, number: int) -> tuple[Round, dict[str, Tensor]]:
        """The round's numbers, and which rows they speak of.

        Of a given resistant model nobody knows what it was trained on: its heap's kept-back part is not counted.
        """
        val, checks = self.setting.val, [k.check for k in self.kept]
        if self.setting.given is not None:
            checks[0] = checks[0][:0]
        check = Cases.cat(checks)
        measured = self.yardstick.measure(target, val, self.tell(phase="measure", round=number), fol=True)
        was = decode(self.folder.file(f"state/{round_name(0)}.safetensors"))["right"]
        now, fixed = _right(target, val.cases), _right(target, check)
        state = {
            "checked": torch.cat([torch.full((len(part),), i) for i, part in enumerate(checks, 1)]),  # their round
            "fixed": fixed,
            "broken": (was & ~now).nonzero().flatten(),
            "mended": (~was & now).nonzero().flatten(),
        }
        counts: dict[str, Any] = {"broken": len(state["broken"]), "mended": len(state["mended"])}
        return Round(number, measured, checked=len(check), fixed=int(fixed.sum()), **counts), state

    def _commit(self, done: Round, weights: bytes, state: Mapping[str, Tensor]) -> None:
        name, told = round_name(done.number), done.to_json()
        first = self.done[0].measured if self.done else done.measured
        self.folder.commit(
            {
                f"models/{name}.safetensors": weights,
                f"state/{name}.safetensors": encode(state),
                f"state/{name}.json": json.dumps(told, allow_nan=False).encode(),
            },
            kind="round",
            round=done.number,
            made=done.made,
            numbers=finite(done.measured.numbers(first)),
            counts={key: told[key] for key in ("found", "selected", "checked", "fixed", "broken")},
            warnings=[warning["name"] for warning in done.measured.warnings],
        )
        self.done.append(done)

    def _kept(self, done: Round) -> Parted:
        """The cases of a committed round, from its own run folder."""
        if done.made == RESISTANT:
            return heap_in(self.folder)
        number, found = done.number, done.found
        path = self.folder.path / round_name(number)
        run = store.read(path)
        there = run.totals("fuzz").get("failures", 0)
        if there != found:
            raise UsageError(f"{path} holds {there} failures, round {number} had {found}; start anew with --fresh")
        cases = load_failures(run)
        rows = decode(self.folder.file(f"state/{round_name(number)}.safetensors"))
        return _parted(cases, rows)


def _parted(found: Cases, rows: Mapping[str, Tensor]) -> Parted:
    """The cases of a round: those to learn from, and those that are never trained on."""
    plain = Cases(found.x, found.y, found.origin)  # training needs no columns, and they are as large as the inputs
    return Parted(plain[rows["selected"]], plain[rows["check"]])


def _right(target: Target, cases: Cases) -> Tensor:
    """Which cases the target gets right, (N,)."""
    if not len(cases):
        return torch.zeros(0, dtype=torch.bool)
    return answer(target, cases.x, Chunks()).argmax(1).cpu() == cases.y


def rounds_of(folder: Store) -> list[Round]:
    """The committed rounds of a run; times, which are not committed, as far as ``stats.json`` knows them."""
    times = dict(enumerate(folder.stats().get("round_seconds", [])))
    names = [round_name(line.meta["round"]) for line in folder.commits("round")]
    told = [json.loads(folder.file(f"state/{name}.json")) for name in names]
    return [Round.of_json(done, seconds=float(times.get(number, 0.0))) for number, done in enumerate(told)]


def round_name(number: int) -> str:
    return f"round-{number:03d}"
