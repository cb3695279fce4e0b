"""RQ3: what FOL-Fuzz finds against what an attack makes in the same time, and what retraining makes of either."""

import time
from typing import Any

import torch

from assay.core.cases import Cases
from assay.engines.fuzz import fuzz
from assay.subjects.bench import Data
from papers.subject import POOL, Subject, trainer

BATCH = 512  # images attacked between two looks at the clock


def compared(subject: Subject, validation: Data, source: str, seconds: float) -> dict[str, Any]:
    """Retrained on all failing cases that the source gives in that time; ``as many``: as many as FOL-Fuzz found."""
    found = fuzzed(subject, seconds) if source != "attack" else None
    made, tried = (found, 0) if source == "robot" and found is not None else attacked(subject, seconds)
    count = len(made) if source != "attack, as many" or found is None else min(len(found), len(made))
    order = torch.randperm(len(made), generator=subject.rng.at("rq3").generator())
    extra = made[order[:count].to(made.x.device)]
    started = time.perf_counter()
    fit = trainer("plain", subject.plan.retrain)
    net = subject.retrained(subject.module, extra, validation, fit, "retrain")
    spent = time.perf_counter() - started
    told = {"cases": len(extra), "seeds_broken": int(extra.origin.unique().numel()), "tried": tried}
    size = (extra.x - extra.info["seed_x"]).flatten(1)
    return (
        subject.measured(net)
        | told
        | {
            "linf": round(float(size.abs().amax(1).median()), 4),
            "l2": round(float(size.norm(dim=1).median()), 4),
            "train_seconds": round(spent, 2),
        }
    )


def fuzzed(subject: Subject, seconds: float) -> Cases:
    """The failures that recipe robot finds on training images within the time."""
    data = subject.splits.part("train")
    name = f"papers-rq3-{subject.data}-{subject.seed}-{seconds:g}"
    device = subject.f0.device
    on_host = Data(data.name, data.cases.to("cpu"), data.spec)
    found = fuzz("robot", subject.f0, on_host, run=name, time=seconds, seed=subject.seed, fresh=True)
    return found.load().to(device)


def attacked(subject: Subject, seconds: float) -> tuple[Cases, int]:
    """PGD examples of random training images that fool the plain net, and how many were tried within the time."""
    train = subject.part("train")
    rng = subject.rng.at("rq3", "attack")
    order = torch.randperm(len(train), generator=rng.generator()).to(train.x.device)
    parts, at, started = [], 0, time.perf_counter()
    while time.perf_counter() - started < seconds and at < len(order):
        made = subject.attacked(subject.f0, train[order[at : at + BATCH]], POOL[1], rng)
        parts.append(made[~subject.right(subject.f0, made)])
        at += BATCH
    return Cases.cat(parts), min(at, len(order))
