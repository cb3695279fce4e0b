"""The demonstration: the whole way on the embedded digits, through the same functions that users call."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.core import store
from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.store import Store
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation, Share
from assay.engines.fuzz import fuzz
from assay.engines.train import train
from assay.outputs.report.build import report
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Bench, Splits
from assay.subjects.data.load import load_splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.target import Target, answer

EPS = 0.1
NOISE = 0.4  # random noise has to be larger than an attack's to fool a net at all
PLAN = {"epochs": 20, "batch": 32, "lr": 2e-3}


@dataclass(frozen=True, slots=True)
class Shown:
    """What the demonstration found."""

    run: Path
    report: Path
    weights: Path
    tuned: Path
    eps: float
    failures: int
    table: dict[str, dict[str, Share]]

    def to_json(self) -> dict[str, Any]:
        rows = {number: {model: s.to_json() for model, s in shares.items()} for number, shares in self.table.items()}
        return {
            "run": str(self.run),
            "report": str(self.report),
            "failures": self.failures,
            "eps": self.eps,
            "table": rows,
        }


def demo(*, run: str = "demo", seed: int = 0, say: Callable[[str], None] = lambda _: None) -> Shown:
    """Train a small net, attack it, fuzz it, fine-tune it on what was found, attack it again, write a report."""
    folder = store.new_folder(run)
    data = load_splits("digits")
    weights = folder / "weights" / "plain.safetensors"
    say(f"1/5 training lenet5 on digits ({len(data.part('train'))} cases, {PLAN['epochs']} epochs)")
    train("lenet5", data, weights, params=PLAN, seed=seed)
    plain = load_target(f"lenet5@{weights}", device="cpu")

    say("2/5 fuzzing it with random noise")
    changes = {"schedule.failures": 3, "mutate.eps": NOISE}
    found = fuzz(
        "noise",
        f"lenet5@{weights}",
        data.part("train"),
        run=folder.name,
        changes=changes,
        seed=seed,
        device="cpu",
    )
    cases = found.load().drop("seed_x")
    learn, check = cases[cases.origin % 2 == 0], cases[cases.origin % 2 == 1]

    say(f"3/5 fine-tuning on {len(learn)} of {len(cases)} failures; as control, on as many plain noisy cases")
    tuned = _tuned(plain, data, learn, seed)
    noisy = _noisy(plain, data, len(learn), seed)
    models = {"before": plain, "control: random noise": _tuned(plain, data, noisy, seed), "after": tuned}

    say("4/5 attacking all three on the test part")
    results = {n: evaluate(m, data.part("test"), suite="fast", eps=EPS, seed=seed) for n, m in models.items()}
    table = _table(models, results, check)

    say("5/5 writing the report")
    path = folder / "weights" / "tuned.safetensors"
    facts = checkpoint.read_meta(weights)
    checkpoint.write(path, {k.removeprefix("net."): v for k, v in module_of(tuned).state_dict().items()}, facts)
    with store.continued(folder) as kept:
        _commit_numbers(kept, table, len(check))
    return Shown(folder, report(folder), weights, path, EPS, found.failures, table)


def next_commands(shown: Shown) -> list[str]:
    """Three things to do next, with what the demonstration left."""
    assay = "assay" if shutil.which("assay") else os.path.relpath(sys.argv[0])
    return [
        f"{assay} eval lenet5@{shown.tuned} --data digits/test --suite 'pgd(restarts=5)' --eps {shown.eps:g}",
        f"{assay} fuzz lenet5@{shown.weights} --data digits/test --recipe noise --eps {NOISE:g} --time 20s",
        f"{assay} train lenet5 --data digits --trainer 'adversarial(eps=0.1)' --out robust.safetensors",
    ]


def _noisy(plain: Target, data: Splits, count: int, seed: int) -> Cases:
    """Training cases with the same noise, failing or not: what fine-tuning on failures must beat."""
    train = data.part("train").cases
    rng = Stream(seed, ("demo", "noise"))
    some = train[torch.randint(len(train), (count,), generator=rng.generator())]
    noise = bind("mutator", "noise", {"eps": NOISE})
    return some.with_x(noise(Bench(plain), some, rng=rng.rows(torch.arange(count))))


def _tuned(plain: Target, data: Splits, extra: Cases, seed: int) -> Target:
    trainer = bind("trainer", "plain", PLAN | {"lr": 5e-4})
    rng = Stream(seed, ("demo", "tune"))
    module = trainer(module_of(plain), data, extra, rng=rng, watch=Unwatched())
    return load_target(module.eval(), data=data.part("train"))


def _table(models: dict[str, Target], results: dict[str, Evaluation], check: Cases) -> dict[str, dict[str, Share]]:
    """Rows of numbers, a column a model."""
    table = {"clean": {name: result.clean for name, result in results.items()}}
    if len(check):
        bench = {name: Bench(model) for name, model in models.items()}
        right = {n: answer(b.target, check.x, b.chunks).argmax(1) == check.y for n, b in bench.items()}
        table["failures not trained on"] = {name: Share(int(r.sum()), len(check)) for name, r in right.items()}
    for attack in next(iter(results.values())).attacks:
        table[f"left after {attack}"] = {name: result.attacks[attack].left for name, result in results.items()}
    return table


def _commit_numbers(run: Store, table: dict[str, dict[str, Share]], checked: int) -> None:
    numbers = {
        "title": f"Before and after, digits/test, linf eps {EPS:g}",
        "models": list(table["clean"]),
        "rows": [
            {"name": name, "cells": [share.to_json() for share in shares.values()]} for name, shares in table.items()
        ],
        "note": "Attacks are made anew on each model (white box). 95 % Wilson intervals. "
        f"'Failures not trained on' are {checked} found cases whose seeds were kept out of fine-tuning.",
    }
    run.commit({"state/numbers.json": json.dumps(numbers).encode()}, kind="numbers")
