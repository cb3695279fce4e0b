"""224×224: that the whole of it runs on large images. No claim is made from 20 of them.

Two files that are not ours are looked for in $ASSAY_DATA and in --work: ``imagenet_samples20.npz`` and the weights
``efficientnet_lite0.npz``.
"""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.engines.fuzz import fuzz
from assay.subjects.bench import Data
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target
from assay.subjects.target import answer
from papers.cagfuzz_subject import Params
from papers.rows import Rows

IMAGES, WEIGHTS, NET = "imagenet_samples20.npz", "efficientnet_lite0.npz", "efficientnet_lite0"
AEG = "cyclegan(width=16, epochs=2, images=10, batch=2, snapshots=2)"
RECIPE = "cagfuzz"
CASES = 200
CLASSES = tuple(map(str, range(1000)))


def protocol(small: bool) -> Params:
    told = {"experiment": "smoke", "data": IMAGES, "model": NET, "aeg": AEG, "cases": CASES, "seed": 0}
    return told | ({"small": True} if small else {})


def run_smoke(rows: Rows, work: Path, device: str, small: bool) -> None:
    """The one row of it."""
    made = protocol(small)
    if not rows.has(made):
        print(rows.fill(made, partial(numbers, work, device))["numbers"], flush=True)


def numbers(work: Path, device: str) -> Params:
    """A campaign with a generator, features and a target of 224×224 images."""
    began = time.perf_counter()
    data, weights = _data(_found(IMAGES, work)), _weights(work)
    target = load_target(f"{NET}@{weights}", data=data, device=device)
    right = int((answer(target, data.cases.x, Chunks(10)).argmax(1).cpu() == data.cases.y).sum())
    features = f"reference(model={NET}@{weights})"
    changes = {"mutate.of": AEG, "mutate.features": features}
    found = fuzz(
        RECIPE, target, data, folder=work / f"smoke-{time.time_ns()}", cases=CASES, changes=changes, training=data
    )
    return {
        "images": len(data),
        "right": right,
        "tried": found.cases,
        "errors": found.failures,
        "broken": found.broken,
        "fuzz_seconds": round(found.seconds, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "machine": torch.cuda.get_device_name() if target.device.type == "cuda" else "CPU",
    }


def _found(name: str, work: Path) -> Path:
    folders = [Path(f) for f in (os.environ.get("ASSAY_DATA"), work) if f]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise UsageError(f"the smoke run needs {name}; put it into {' or '.join(map(str, folders))}")


def _data(path: Path) -> Data:
    """The images as cases in [0, 1]; classes are numbers."""
    with np.load(path, allow_pickle=False) as file:
        x, y = torch.from_numpy(file["x_test"]), torch.from_numpy(file["y_test"]).long()
    spec = InputSpec((3, *x.shape[1:3]), (0.0, 1.0), CLASSES)
    return Data(path.stem, Cases.of(x.permute(0, 3, 1, 2).float().div(255).contiguous(), y), spec)


def _weights(work: Path) -> Path:
    """The weights with what the net takes: 224×224 in [0, 1], of which 127/255 is subtracted, divided by 128/255."""
    made = work / f"{NET}.safetensors"
    if not made.exists():
        facts = {"model": NET, "params": {}, "shape": [3, 224, 224], "bounds": [0, 1], "classes": list(CLASSES)}
        with np.load(_found(WEIGHTS, work), allow_pickle=False) as file:
            weights = {name: torch.as_tensor(file[name]) for name in file.files}
        checkpoint.write(made, weights, facts | {"mean": [127 / 255], "std": [128 / 255]})
    return made
