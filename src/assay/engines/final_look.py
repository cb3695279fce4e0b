"""The end of hardening: the control, and the one look at the test part."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.core.cases import Cases
from assay.core.journal import Line
from assay.core.randomness import Stream
from assay.core.store import Store
from assay.engines.hardened import Tested, compared
from assay.engines.hardening_models import Models
from assay.engines.hardening_setting import Setting, Tell
from assay.engines.hardening_words import often
from assay.engines.numbers_tables import numbers_tables
from assay.engines.resistant_model import heap_in
from assay.engines.round_book import round_name
from assay.engines.trained_round import noise_beside
from assay.engines.yardstick import Yardstick
from assay.stages.trainers.kept_back import among
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget

logger = logging.getLogger("assay")


class FinalLook:
    """The models compared where nothing was chosen."""

    def __init__(self, folder: Store, setting: Setting, models: Models, yardstick: Yardstick, tell: Tell) -> None:
        self.folder, self.setting, self.models, self.yardstick, self.tell = folder, setting, models, yardstick, tell
        self.rng = Stream(setting.seed, ("harden",))

    def control(self, rounds: int) -> ModuleTarget:
        """The original trained as often and as long, without a single case.

        Where there are two models, the resistant one, which goes on learning from the attacks that made it so. Where
        the recipe has a trainer for it, by that; of one that only trains, on the inputs that it learned from.
        """
        first, done = self.setting.first, {line.meta["round"] for line in self.folder.commits("control")}
        target = self.models.original if first == 1 else self.models.target(round_name(first - 1))
        fit = self.setting.system.control
        splits, extra = self._without_cases()
        for number in range(first, rounds + 1):
            name = f"control-{number:03d}"
            if number not in done:
                training = {**self.setting.control, "round": number, "control": True}
                rng, say = self.rng.at("control", number), self.tell(phase="control", round=number)
                made = self.models.trained(name, target, fit, splits, extra, rng, training, say)
                facts = {"training": training | made.facts(), "hardening": {"round": number, "control": True}}
                files = {f"models/{name}.safetensors": self.models.encoded(made.module, **facts)}
                self.folder.commit(files, kind="control", round=number)
                self.models.forget(name)
            target = self.models.target(name)
        return target

    def _without_cases(self) -> tuple[Splits, Cases | None]:
        """What the control learns from, and what chooses its epochs."""
        splits = self.setting.system.control_data(self.setting.splits)
        if self.setting.first == 1:
            return splits, None
        heap = heap_in(self.folder)
        return replace(splits, val=among(splits.part("val"), heap.check)), heap.learn

    def asked(self, told: Mapping[str, Any], *, control: bool) -> None:
        """Say and commit at once that the requirement is another one, where the test part was looked at before."""
        looks, last = len(list(self.folder.commits("final"))), last_result(self.folder)
        if not looks or last.get("until", told["until"]) == told["until"]:  # old runs do not tell theirs
            return
        logger.warning(
            "run %s was hardened until '%s'; this asks '%s'; its test part was looked at %s",
            *(self.folder.name, last["until"], told["until"], often(looks)),
        )
        self._decide(told, self._look_at(self._compared(told["best"]), control=control))

    def test(self, told: Mapping[str, Any], *, control: bool, protocol: Mapping[str, Any]) -> Tested:
        """The look at the test part; one that was taken at the same models is not taken again.

        ``told`` is the result as the judge tells it.
        """
        best, looks = self._compared(told["best"]), len(list(self.folder.commits("final")))
        number = self._look_at(best, control=control)
        self._decide(told, number)
        if number <= looks:
            tested = Tested.of_json(json.loads(self.folder.file(f"state/final-{number:03d}.json")))
            return replace(tested, looks=looks)
        targets = self._targets(best, control=control)
        found = {
            name: self.yardstick.measure(target, self.setting.test, self.tell(phase="test", model=name))
            for name, target in targets.items()
        }
        before = found.pop("before")
        tested = Tested(before, found.pop("after", before), found.pop("control", None), number, **found)
        stem = f"state/final-{tested.looks:03d}"
        tables = {f"{stem}-{part}.json": table for part, table in numbers_tables(tested, protocol).items()}
        files = {f"{stem}.json": tested.to_json(), **tables}
        self.folder.commit(
            {name: json.dumps(told, allow_nan=False).encode() for name, told in files.items()},
            kind="final",
            best=best,
            control=control,
            tables=list(tables),
        )
        return tested

    def _compared(self, best: int) -> int:
        """The round that is looked at: the best one; of a recipe that only trains, what it trained, better or not."""
        return compared([line.meta.get("made", "") for line in self.folder.commits("round")], best)

    def _targets(self, best: int, *, control: bool) -> dict[str, ModuleTarget]:
        """The models that are compared, by column."""
        first, targets = self.setting.first, {"before": self.models.target(round_name(0))}
        if first > 1 and best != first - 1 and any(line.meta["round"] for line in self.folder.commits("round")):
            targets["resistant"] = self.models.target(round_name(first - 1))
        if best >= first and control:
            if self.setting.system.after.alone:
                targets["noise"] = noise_beside(self.models, best, self.rng)
            targets["control"] = self.control(best)
        if best:
            targets["after"] = self.models.target(round_name(best))
        return targets

    def _look_at(self, best: int, *, control: bool) -> int:
        """Which look at the test part is of that round: one taken before, else the next."""
        looks = [line.meta for line in self.folder.commits("final")]
        fits = (n for n, look in enumerate(looks, 1) if look["best"] == best and (look["control"] or not control))
        return next(fits, len(looks) + 1)

    def _decide(self, told: Mapping[str, Any], look: int) -> None:
        """Commit the result, what was asked of it, and which look at the test part is of it, where that is new."""
        now, last = {**told, "look": look}, last_result(self.folder)
        if any(key not in last or last[key] != value for key, value in now.items()):
            self.folder.commit({}, kind="best", **now)


def last_result(folder: Store) -> dict[str, Any]:
    """The facts of the run's last result: best, look, until, met, verdicts; nothing where there is none."""
    return next((dict(line.meta) for line in reversed(list(folder.commits("best")))), {})


def last_look(folder: Store) -> Line | None:
    """The look at the test part that belongs to the run's result; None where it has not been taken."""
    looks, results = list(folder.commits("final")), list(folder.commits("best"))
    number = results[-1].meta["look"] if results else len(looks)
    return looks[number - 1] if 1 <= number <= len(looks) else None
