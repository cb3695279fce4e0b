"""The rounds of hardening: fuzz, split by seed, select, train, measure, commit."""

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.files import make_folder
from assay.core.shards import decode
from assay.engines.found import load_failures
from assay.engines.fuzz import fuzz
from assay.engines.hardened import Round
from assay.engines.hardening_setting import Stopped
from assay.engines.resistant_model import RESISTANT, Building, heap_in
from assay.engines.round_book import Book, round_name
from assay.recipes.recipe import Stages
from assay.stages.selectors.ranking import checked
from assay.stages.trainers.kept_back import Parted, among, kept_back
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.sources.load import attacks_in, told_seen
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target


class Rounds:
    """A hardening run under way whose recipe finds cases to learn from."""

    def __init__(self, book: Book, stages: Stages) -> None:
        self.book, self.stages, self.after = book, stages, book.setting.system.after
        self.folder, self.setting, self.models, self.rng = book.folder, book.setting, book.models, book.rng
        self.kept: list[Parted] = []  # of every round, read when the next one begins
        self.said: dict[str, Any] = {}  # by the selector, of its work in this round

    def over(self) -> str:
        """Why there is no round after those that are done; such a recipe goes on as long as it may."""
        return ""

    def step(self) -> str:
        """One more round; why there is none, "" where there is."""
        if len(self.book.done) < self.setting.first:
            self.resistant()
            return ""
        return "" if self.next() else "no failing case was found to learn from"

    def resistant(self) -> None:
        """Round 1 where there are two models: the resistant one, built from the original or given.

        Its heap of attacks on the original is what this round found: later rounds learn from it too.
        """
        s, name, began = self.setting, round_name(1), time.monotonic()
        assert self.stages.resistant is not None  # only such a hardening has this round
        building = Building(self.models, s.training["start"], self.stages.resistant, s.splits, s.seed)
        heap = building.kept_heap(self.folder)
        self.kept = [heap]
        try:
            if s.given is None:
                target, training = building.built(name, self.book.tell(phase="train", round=1), heap, round=1)
            else:
                target, training = s.given.target, s.given.training
            done, state = self.book.judged(target, 1, self._checks())
        except BaseException:
            self.kept.clear()  # as if it had not begun
            raise
        learn, check = len(heap.learn), len(heap.check)
        counts: dict[str, Any] = {"found": learn + check, "selected": learn}
        if s.given is None:
            counts |= {"learned": learn, "epochs": len(training["log"]), "notes": training.get("notes", {})}
        facts = {"training": training, "hardening": {"round": 1, "made": RESISTANT}}
        done = replace(done, made=RESISTANT, **counts, seconds=time.monotonic() - began)
        self.book.commit(done, self.models.encoded(target.module, **facts), state)
        self.models.forget(name)

    def next(self) -> bool:
        """One more round from the last model; False where there is no new case to learn from."""
        number, began = len(self.book.done), time.monotonic()
        self.kept = self.kept or [self._kept(r) for r in self.book.done[1:]]
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
            made = self.models.trained(
                name,
                current,
                self.after.train,
                self._with_checks(check),
                learn,
                self.rng.at("train", number),
                training,
                self.book.tell(phase="train", round=number),
            )
            target = ModuleTarget(made.module, current.spec, current.device)
            done, state = self.book.judged(target, number, self._checks())
        except BaseException:
            self.kept.pop()  # as if it had not begun
            raise
        done = replace(done, found=len(found), selected=len(rows["selected"]), learned=len(learn))
        said = {"selection": self.said} if self.said else {}
        done = replace(done, epochs=len(made.log), training=made.seconds, notes=made.notes | said)
        done = replace(done, **self._failing(found, rows["selected"]))
        weights = self.models.encoded(made.module, training=training | made.facts(), hardening={"round": number})
        self.book.commit(replace(done, seconds=time.monotonic() - began), weights, rows | state)
        self.models.forget(name)
        return True

    def _learned(self) -> list[Parted]:
        """What is learned from: all rounds or the last one, and always what made the resistant model so."""
        last = self.kept[-1:] if self.setting.first == 1 else [self.kept[0], self.kept[-1]]
        return self.kept if self.after.heap == "all" else last

    def _found(self, number: int, current: Target) -> Cases | None:
        """What the recipe finds on the current model, in a run folder of its own; None where that is nothing."""
        s = self.setting
        path = self._own_folder(number, current)
        try:
            found = fuzz(
                s.system.recipe,
                current if s.first == 1 else self.models.original,
                self._seeds(number),
                resistant=None if s.first == 1 else current,
                folder=path,
                seed=self.rng.at("fuzz", number).generator().initial_seed() % 2**31,
                eps=s.eps,
                norm=s.norm,
                changes=s.system.changes,
                training=s.splits.part("train"),
                deterministic=s.deterministic,
                ray=s.cluster,
                progress=self.book.tell(phase="fuzz", round=number, **({"kept": "kept"} if s.system.keeps_all else {})),
                **self._limits(),
            )
            if found.interrupted:
                raise Stopped
            return load_failures(store.read(path))
        except NothingToTest:
            return None

    def _limits(self) -> dict[str, Any]:
        """Time and cases of one round's fuzzing; where a seed has one case, no more than there are seeds."""
        limits = dict(self.setting.amounts.fuzzing or {})
        if getattr(self.stages.schedule(), "once", False):
            counts = [int(bound.params["count"]) for bound in self.stages.seeds.values() if "count" in bound.params]
            limits["cases"] = min(limits.get("cases", math.inf), len(self.setting.splits.part("train")), *counts)
        return limits

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
            make_folder(aside)
            path.rename(next(p for i in range(1, 10_000) if not (p := aside / f"{path.name}.{i}").exists()))
        return path

    def _picked(self, found: Cases, current: Target, number: int) -> dict[str, Tensor]:
        """The rows kept back to check, and of the others those that the selector picks.

        A selector that begins with inputs of its own has those of the training part, never others. Where the recipe
        keeps every case, only those that fail are kept back: they are checked as failures. Some recipes give unlabelled
        seeds the class a model gives them; what grew from these is not learned from.
        """
        train = self.setting.splits.part("train").cases
        labelled = torch.isin(found.origin, train.origin[train.y != UNLABELLED])
        back = kept_back(found.origin, self.setting.seed)
        mine, back = (~back & labelled).nonzero().flatten(), back & labelled
        if self.setting.system.keeps_all:
            back &= _fails(found)
        k, select = min(self.setting.amounts.per_round, len(mine)), self.after.select
        if k:
            with current.ready():
                some = found[mine].to(current.device)
                bench = Bench(current, training=self.setting.splits.part("train"))
                rows = select(bench, some, k, rng=self.rng.at("select", number))
                self.said = bench.told()
            mine = mine[checked(rows, k, len(mine), select.entry.name)]
        return {"selected": mine, "check": back.nonzero().flatten()}

    def _failing(self, found: Cases | None, selected: Tensor) -> dict[str, Any]:
        """How many of the cases fail that were found, and that were selected, where not all do."""
        if found is None or not self.setting.system.keeps_all:
            return {}
        fails = _fails(found)
        return {"failing": int(fails.sum()), "selected_failing": int(fails[selected].sum())}

    def _with_checks(self, check: Cases) -> Splits:
        """The data to train with: kept-back failures among the validation cases, at most as many as clean ones."""
        splits, clean = self.setting.splits, self.setting.splits.part("val")
        order = torch.randperm(len(check), generator=self.rng.at("validate", len(self.kept)).generator())
        return replace(splits, val=among(clean, check[order[: len(clean)]]))

    def _training(self, number: int, learn: Cases) -> dict[str, Any]:
        digest = hashlib.sha256(learn.x.contiguous().numpy().tobytes() + learn.y.numpy().tobytes()).hexdigest()
        stages, seen = self.stages, self.setting.training["seen"]
        mutate = stages.mutate
        told: dict[str, Any] = {"recipe": stages.name, "mutate": mutate.text}
        told["select"] = self.after.select.text
        if seen is not None:  # their cases are learned from, by all models but the control
            told["seen"] = told_seen(seen, *(attacks_in(stage.params) for stage in (mutate, *stages.seeds.values())))
        counts = {"round": number, "cases": len(learn), "cases_fingerprint": digest[:16]}
        return {**self.setting.training, **told, **counts}

    def _checks(self) -> list[Cases]:
        """Failures that were never trained on, by round.

        Of a given resistant model nobody knows what it was trained on: its heap's kept-back part is not counted.
        """
        checks = [k.check for k in self.kept]
        return checks if self.setting.given is None else [checks[0][:0], *checks[1:]]

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


def _fails(found: Cases) -> Tensor:
    """Which cases the model got wrong that they were found on, (N,)."""
    return found.info["pred"] != found.y


def _parted(found: Cases, rows: Mapping[str, Tensor]) -> Parted:
    """The cases of a round: those to learn from, and those that are never trained on."""
    plain = Cases(found.x, found.y, found.origin)  # training needs no columns, and they are as large as the inputs
    return Parted(plain[rows["selected"]], plain[rows["check"]])
