"""The book of a hardening run: how rounds are measured, committed and read again, whatever made them."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.engines.hardened import Round, finite
from assay.engines.hardening_models import Models
from assay.engines.hardening_setting import Setting, Tell
from assay.engines.yardstick import Yardstick
from assay.subjects.target import Target, answer


class Book:
    """The rounds that are done, and how one more is put down."""

    def __init__(self, folder: Store, setting: Setting, models: Models, yardstick: Yardstick, tell: Tell) -> None:
        self.folder, self.setting, self.models, self.yardstick, self.tell = folder, setting, models, yardstick, tell
        self.rng = Stream(setting.seed, ("harden",))
        self.done = rounds_of(folder)
        for done in self.done:
            models.forget(round_name(done.number))  # a state that outlived its round

    def original(self) -> None:
        """Round 0: the model as it came."""
        began, target, data = time.monotonic(), self.models.original, self.setting.val
        measured = self.yardstick.measure(target, data, self.tell(phase="measure", round=0), fol=True)
        state = {"right": _right(target, data.cases)}
        weights = self.models.encoded(target.module, hardening={"round": 0})
        self.commit(Round(0, measured, "original", seconds=time.monotonic() - began), weights, state)

    def judged(self, target: Target, number: int, checks: Sequence[Cases] = ()) -> tuple[Round, dict[str, Tensor]]:
        """The round's numbers, and which rows they speak of; ``checks`` are failures never trained on, by round."""
        val, began = self.setting.val, time.monotonic()
        checks = checks or [val.cases[:0]]
        measured = self.yardstick.measure(target, val, self.tell(phase="measure", round=number), fol=True)
        was = decode(self.folder.file(f"state/{round_name(0)}.safetensors"))["right"]
        now, fixed = _right(target, val.cases), _right(target, Cases.cat(checks))
        state = {
            "checked": torch.cat([torch.full((len(part),), i) for i, part in enumerate(checks, 1)]),  # their round
            "fixed": fixed,
            "broken": (was & ~now).nonzero().flatten(),
            "mended": (~was & now).nonzero().flatten(),
        }
        counts: dict[str, Any] = {"broken": len(state["broken"]), "mended": len(state["mended"])}
        counts |= {"checked": len(fixed), "fixed": int(fixed.sum())}
        return Round(number, measured, **counts, measuring=time.monotonic() - began), state

    def commit(self, done: Round, weights: bytes, state: Mapping[str, Tensor]) -> None:
        """Put a round down for good."""
        name, told = round_name(done.number), done.to_json()
        first = self.done[0].measured if self.done else done.measured
        counted = ("found", "failing", "selected", "selected_failing", "checked", "fixed", "broken")
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
            counts={key: told[key] for key in counted if key in told},
            warnings=[warning["name"] for warning in done.measured.warnings],
        )
        self.done.append(done)


def _right(target: Target, cases: Cases) -> Tensor:
    """Which cases the target gets right, (N,)."""
    if not len(cases):
        return torch.zeros(0, dtype=torch.bool)
    return answer(target, cases.x, Chunks()).argmax(1).cpu() == cases.y


def rounds_of(folder: Store) -> list[Round]:
    """The committed rounds of a run; times, which are not committed, as far as ``stats.json`` knows them."""
    stats = folder.stats()
    clocks = {"seconds": "round_seconds", "training": "training_seconds", "measuring": "measuring_seconds"}
    times = {name: dict(enumerate(stats.get(key, []))) for name, key in clocks.items()}
    names = [round_name(line.meta["round"]) for line in folder.commits("round")]
    told = [json.loads(folder.file(f"state/{name}.json")) for name in names]
    return [
        Round.of_json(done, **{name: float(known.get(number, 0.0)) for name, known in times.items()})
        for number, done in enumerate(told)
    ]


def round_name(number: int) -> str:
    return f"round-{number:03d}"
