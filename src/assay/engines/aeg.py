"""Making a generator of test cases alone: one command, resumable, its facts kept with its weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.core.cache import remembered
from assay.core.errors import UsageError
from assay.core.files import write_atomic
from assay.core.registry import bind
from assay.core.specs import Params
from assay.engines.session import session
from assay.engines.train import writable
from assay.engines.training_files import History, TrainingWatch, check_same
from assay.stages.aeg import Aeg, Making, trained
from assay.stages.aeg.nets import depth_of
from assay.stages.aeg.sheet import sheet
from assay.stages.aeg.training import WHAT, fits, key_of
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import pick_device

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Made:
    """A generator and its files; ``found`` says where it came from if it was not trained now: file or cache."""

    aeg: Aeg
    out: Path
    sheet: Path
    found: str = ""
    seconds: float = 0.0  # what its training took, 0 where it was found

    def to_json(self) -> dict[str, Any]:
        return {
            "out": str(self.out),
            "sheet": str(self.sheet),
            "found": self.found,
            "name": self.aeg.name,
            "fingerprint": self.aeg.fingerprint(),
            "seconds": round(self.seconds, 2),
            **self.aeg.facts,
        }


def making_of(params: Params, seed: int = 0) -> Making:
    """How to make one, of parameters of the mutator ``cyclegan``."""
    given = bind("mutator", "cyclegan", {"seed": seed} | params).params
    if given["aeg"]:
        raise UsageError("aeg names a generator that is there already; leave it out to make one")
    making = Making(**{name: value for name, value in given.items() if name != "aeg"})
    making.check()
    return making


def make_aeg(
    data: str | Data,
    out: str | Path,
    *,
    params: Params | None = None,
    seed: int = 0,
    size: str = "",
    device: str = "auto",
    overwrite: bool = False,
    deterministic: bool = False,
    progress: Progress | None = None,
) -> Made:
    """Train a generator on ``data``, save it to ``out`` and a sheet of samples beside it, and keep it in the cache.

    A training that was stopped goes on with the same call. Fuzzing runs that need this generator find it.
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise UsageError(f"--out must end in .safetensors, got {out}")
    making = making_of(params or {}, seed)
    given = load_data(data, part="train", size=size)
    depth_of(given.spec.shape)  # refuses what is no image
    told = {"data_fingerprint": given.fingerprint(), **making.to_json()}
    picture = out.with_suffix(".png")
    if out.exists() and not overwrite:
        there = Aeg.load(out)
        check_same(out, {"data_fingerprint": there.facts["data_fingerprint"], **there.facts["making"]}, told)
        return Made(there, out, _with_sheet(there, given, picture), "file")
    writable(out.parent)
    watch = TrainingWatch(out, {"training": told}, History(None, None), progress or (lambda _: None), overwrite)
    now = False

    def make() -> dict[str, torch.Tensor]:
        nonlocal now
        now = True
        return trained(given, making, pick_device(device), watch).columns()

    with session(deterministic=deterministic):
        aeg = Aeg.of(remembered(WHAT, key_of(given, making), make, fits))
        aeg.save(out)
        write_atomic(picture, sheet(aeg, given))
    watch.state_file.unlink(missing_ok=True)
    return Made(aeg, out, picture, "" if now else "cache", sum(row["seconds"] for row in watch.log) if now else 0.0)


def _with_sheet(aeg: Aeg, data: Data, picture: Path) -> Path:
    if not picture.exists():
        write_atomic(picture, sheet(aeg, data))
    return picture
