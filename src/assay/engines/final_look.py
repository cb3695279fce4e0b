"""The end of hardening: the control, and the one look at the test part."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.core.journal import Line
from assay.core.randomness import Stream
from assay.core.store import Store
from assay.engines.hardened import Tested, numbers_tables
from assay.engines.hardening_models import Models
from assay.engines.rounds import Setting, Tell, round_name
from assay.engines.yardstick import Yardstick
from assay.subjects.sources.module import ModuleTarget


class FinalLook:
    """The models compared where nothing was chosen."""

    def __init__(self, folder: Store, setting: Setting, models: Models, yardstick: Yardstick, tell: Tell) -> None:
        self.folder, self.setting, self.models, self.yardstick, self.tell = folder, setting, models, yardstick, tell
        self.rng = Stream(setting.seed, ("harden",))

    def control(self, rounds: int) -> ModuleTarget:
        """The original trained as often and as long, without a single case."""
        target, done = self.models.original, {line.meta["round"] for line in self.folder.commits("control")}
        for number in range(1, rounds + 1):
            name = f"control-{number:03d}"
            if number not in done:
                training = {**self.setting.training, "round": number, "control": True}
                rng, say = self.rng.at("control", number), self.tell(phase="control", round=number)
                made, log = self.models.trained(
                    name, target, self.setting.after.train, self.setting.splits, None, rng, training, say
                )
                facts = {"training": training | {"log": log}, "hardening": {"round": number, "control": True}}
                files = {f"models/{name}.safetensors": self.models.encoded(made, **facts)}
                self.folder.commit(files, kind="control", round=number)
                self.models.forget(name)
            target = self.models.target(name)
        return target

    def test(self, best: int, *, control: bool, protocol: Mapping[str, Any]) -> Tested:
        """The look at the test part; one that was taken at the same models is not taken again."""
        looks = list(self.folder.commits("final"))
        for number, line in enumerate(looks, 1):
            if line.meta["best"] == best and (line.meta["control"] or not control):
                self._decide(best, number)
                tested = Tested.of_json(json.loads(self.folder.file(f"state/final-{number:03d}.json")))
                return replace(tested, looks=len(looks))
        self._decide(best, len(looks) + 1)
        targets = {"before": self.models.target(round_name(0))}
        if best:
            targets |= {"control": self.control(best)} if control else {}
            targets["after"] = self.models.target(round_name(best))
        found = {
            name: self.yardstick.measure(target, self.setting.test, self.tell(phase="test", model=name))
            for name, target in targets.items()
        }
        tested = Tested(found["before"], found.get("after", found["before"]), found.get("control"), len(looks) + 1)
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

    def _decide(self, best: int, look: int) -> None:
        """Commit which round is the result now, and which look at the test part is of it, where that is new."""
        told = {"best": best, "look": look}
        last = next(reversed(list(self.folder.commits("best"))), None)
        if last is None or any(last.meta[key] != value for key, value in told.items()):
            self.folder.commit({}, kind="best", **told)


def last_look(folder: Store) -> Line | None:
    """The look at the test part that belongs to the run's result; None where it has not been taken."""
    looks, results = list(folder.commits("final")), list(folder.commits("best"))
    number = results[-1].meta["look"] if results else len(looks)
    return looks[number - 1] if 1 <= number <= len(looks) else None
