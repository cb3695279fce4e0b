"""Runs with failures made up, for measuring and testing what shows them: no model is asked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import norms, store
from assay.core.images import ssim
from assay.core.shards import encode

SHARD = 1000  # failures of a commit


def made_run(
    name: str,
    n: int,
    shape: tuple[int, ...] = (3, 32, 32),
    classes: Sequence[str] = tuple("0123456789"),
    *,
    recipe: str = "noise",
    model: str = "net.py:net",
    data: str = "digits",
    shrunk: int = 0,
    eps: float = 8 / 255,
    seed: int = 0,
) -> Path:
    """A fuzzing run with ``n`` failures, the first ``shrunk`` of them shrunk too; every third grew from one seed."""
    identity: dict[str, Any] = {
        "run": {"kind": "fuzz", "seed": seed, "unit": 256, "deterministic": False},
        "target": {"model": model, "fingerprint": "0" * 16, "classes": list(classes)},
        "data": {"spec": data, "fingerprint": "1" * 16},
        "recipe": {"name": recipe, "mutate": "noise(eps=0.1, norm=linf)", "oracle": "wrong_label", "seeds": "correct"},
    }
    rng = torch.Generator().manual_seed(seed)
    with store.opened(name, identity, {}) as run:
        about = {"of": n, "steps": [["correct", n]], "levels": {}, "unlabelled": 0, "grown": False, "mined": False}
        run.commit({}, kind="seeds", seeds=n, bounds=[0.0, 1.0], **about)
        for number, start in enumerate(range(0, n, SHARD)):
            columns = _shard(min(SHARD, n - start), start, shape, len(classes), eps, rng)
            counts = {
                "seeds": 1,
                "cases": 4 * len(columns["x"]),
                "failures": len(columns["x"]),
                "wrong": len(columns["x"]),
            }
            counts |= {"distinct": len(columns["x"]), "broken": len(columns["seeds"])}
            files = {f"cases/step-{number:06d}.safetensors": encode(columns)}
            run.commit(files, kind="fuzz", unit=number, rows=[number], counts=counts, kept={}, opinions={})
            if not number and shrunk:
                _shrunk(run, {name: column[:shrunk] for name, column in columns.items() if name != "seeds"}, columns)
        return run.path


def _shard(
    n: int, first: int, shape: tuple[int, ...], classes: int, eps: float, rng: torch.Generator
) -> dict[str, Tensor]:
    seeds = _soft(torch.rand(-(-n // 3), *shape, generator=rng))
    place = torch.arange(n) // 3
    step = eps * torch.randint(-1, 2, (n, *shape), generator=rng) * torch.rand(n, *[1] * len(shape), generator=rng)
    x = (seeds[place] + step).clamp(0, 1)
    y = torch.randint(classes, (n,), generator=rng)
    pred = (y + torch.randint(1, classes, (n,), generator=rng)) % classes
    delta, zero = x - seeds[place], torch.zeros(n, dtype=torch.int64)
    likeness = ssim(x, seeds[place]) if len(shape) == 3 else torch.full((n,), -1.0)
    return {
        "x": x, "y": y, "origin": first + place, "seeds": seeds, "seed": place, "pred": pred, "step": zero + 3,
        "cycle": zero, "kind": zero.clone(), "confidence": 0.3 + 0.7 * torch.rand(n, generator=rng),
        "linf": norms.size(delta, "linf"), "l2": norms.size(delta, "l2"), "ssim": likeness,
    }  # fmt: skip


def _soft(x: Tensor) -> Tensor:
    """Noise that looks a little like pictures."""
    return x if x.dim() != 4 else torch.nn.functional.avg_pool2d(x, 5, 1, 2)


def _shrunk(run: store.Store, some: dict[str, Tensor], whole: dict[str, Tensor]) -> None:
    """Half of the change taken back."""
    seeds = whole["seeds"][some["seed"]]
    x = seeds + (some["x"] - seeds) / 2
    delta, count = x - seeds, len(x)
    number = torch.arange(count)
    sizes = {"linf": norms.size(delta, "linf"), "l2": norms.size(delta, "l2"), "l0": (delta != 0).flatten(1).sum(1)}
    before = {f"{name}_before": 2 * column for name, column in sizes.items()}
    told = {"changed": number + 1, "changed_before": number + 9, "questions": number + 5, "failing": number >= 0}
    told |= {"minimal": number >= 0, "eight_bit": number % 2 == 0, "row": number, "pred": some["pred"]}
    columns = {"x": x, **sizes, **before, **told}
    files = {"state/shrunk-001-000.safetensors": encode(columns)}
    run.commit(files, kind="shrink", number=1, asked={"by": "auto"}, cases=count, of=count)
