"""The transfer matrix: examples made on one model, judged by the others."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from assay.core import deadline
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.units import budget
from assay.engines.blocks import BLOCK, Progress
from assay.engines.cascade import Block, Column, run_suite
from assay.engines.columns import suites_told
from assay.engines.evaluation import Share
from assay.engines.protocol import portable, protocol_of, to_the_end
from assay.engines.session import session
from assay.engines.subject import load_subject
from assay.recipes.suite import attacks_of, possible
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.black_box import is_black_box, is_onnx
from assay.subjects.target import Target, answer, require

log = logging.getLogger("assay")


@dataclass(frozen=True, slots=True)
class Transfer:
    """``fooled[a][b]``: of the inputs that a and b both get right, those that b gets wrong as attacked on a.

    Where a and b are one model the number is white-box and stands in ``white_box``, not in the matrix. A share counts
    an input as fooled where any attack of the suite fooled it; ``Share.right`` is their number.
    """

    models: tuple[str, ...]
    fooled: dict[str, dict[str, Share]]
    white_box: dict[str, Share]
    protocol: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        def told(share: Share) -> dict[str, Any]:
            rate = share.to_json()
            return {"rate": rate.pop("accuracy"), **rate} if share.n else {"rate": None, "n": 0}

        return {
            "models": list(self.models),
            "fooled": {a: {b: told(share) for b, share in row.items()} for a, row in self.fooled.items()},
            "white_box": {a: told(share) for a, share in self.white_box.items()},
            "protocol": self.protocol,
        }


@deadline.limited
def transfer(
    models: Sequence[Any],
    data: str | Data,
    *,
    suite: Any = "pgd",
    eps: str | float | None = None,
    norm: str = "linf",
    names: Sequence[str] = (),
    ask: str = "",
    white_box: bool = False,
    seed: int = 0,
    batch: int = BLOCK,
    device: str = "auto",
    deterministic: bool = False,
    call_timeout: str | float | None = None,
    progress: Progress | None = None,
) -> Transfer:
    """Attack every model and judge what comes out by every other; gradient attacks go on after their first success.

    ``ask`` says how those are asked that only answer; ``white_box`` opens those of them that are ONNX files.
    One that takes longer than ``call_timeout`` for one call ends it.
    """
    labels = tuple(names) or tuple(m if isinstance(m, str) else f"model {i}" for i, m in enumerate(models, 1))
    if len(models) < 2 or len(set(labels)) != len(models):
        raise UsageError("a transfer matrix needs two or more models, each with a name of its own")
    given = load_data(data, part="test", like=models[0])
    targets: dict[str, Target] = {}
    for label, model in zip(labels, models, strict=True):
        closed = is_black_box(model)
        opened = white_box and is_onnx(model)
        how = ask if closed and not opened else ""
        targets[label], own, cases = load_subject(model, given, device=device, ask=how, white_box=opened)
        if own is not given:
            raise UsageError(f"{label} orders its classes otherwise than the data; retrain it on these data")
    first = next(iter(targets.values()))
    offered = {"eps": None if eps is None else budget(eps), "norm": norm}
    allowed, limited = possible(attacks_of(suite, offered), len(first.spec.classes))
    for label, why in limited.items():
        log.warning("attack %s is %s", label, why)
    attacks = {label: to_the_end(a) for label, a in allowed.items()}
    text = None if eps is None else str(eps)
    protocol = protocol_of("", first, given, attacks, text, seed=seed, each=True, curve=False)
    protocol |= {"model": list(labels), "model_fingerprint": [t.fingerprint() for t in targets.values()]}
    protocol |= {"limited": limited} if limited else {}
    for target in targets.values():
        for label, attack in attacks.items():
            require(target, attack.entry.needs, f"attack {label!r}", suites_told)
            portable(label, attack)
    rates = _Rates(targets, batch)
    with ExitStack() as stack:
        stack.enter_context(session(deterministic=deterministic))
        for target in targets.values():
            stack.enter_context(target.ready())
        for place, (name, maker) in enumerate(targets.items()):
            for start in range(0, len(cases), batch):
                block = cases[start : start + batch].to(maker.device)
                rates.add(name, block, Column(maker, maker, attacks), Stream(seed, ("transfer",)))
                if progress is not None:
                    progress({"done": place * len(cases) + start + len(block), "of": len(targets) * len(cases)})
    return rates.result(protocol)


class _Rates:
    def __init__(self, targets: dict[str, Target], batch: int) -> None:
        self.targets, self.chunks = targets, Chunks(batch)
        self.counts = {a: {b: [0, 0] for b in targets} for a in targets}

    def add(self, name: str, cases: Cases, column: Column, rng: Stream) -> None:
        right = {b: answer(t, cases.x, self.chunks).argmax(1) == cases.y for b, t in self.targets.items()}
        outcome = Block(cases.y.cpu(), right[name].cpu())
        made = Cases.cat(run_suite(column, cases, right[name], rng, self.chunks, outcome, "made", each=True))
        rows = right[name].nonzero().flatten().cpu().repeat(len(column.attacks))  # attack by attack, as they were made
        for b, judge in self.targets.items():
            if name == b:
                wrong = made.info["success"]
            else:
                scores = answer(judge, made.x, self.chunks).cpu()
                wrong = ((scores.argmax(1) != made.y) | ~scores.isfinite().all(1)) & made.info["allowed"]
            fooled = torch.zeros(len(cases), dtype=torch.bool)
            fooled[rows[wrong]] = True
            both = (right[name] & right[b]).cpu()
            self.counts[name][b][0] += int((fooled & both).sum())
            self.counts[name][b][1] += int(both.sum())

    def result(self, protocol: dict[str, Any]) -> Transfer:
        shares = {a: {b: Share(*count) for b, count in row.items()} for a, row in self.counts.items()}
        white = {a: row.pop(a) for a, row in shares.items()}
        return Transfer(tuple(self.targets), shares, white, protocol)
