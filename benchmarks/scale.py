"""How the work of a verb grows with workers on Ray, or with lanes: seconds, rate, and what came of it.

    python benchmarks/scale.py fuzz [--workers 1 2] [--seeds 16384] [--weak]
    python benchmarks/scale.py evaluate [--suite standard] [--images 2048] [--weak]
    python benchmarks/scale.py train [--model resnet20] [--trainer plain] [--weak]
    python benchmarks/scale.py fuzz --device cuda --lanes 256 1024 4096 16384 --seeds 1024 --weak

Strong scaling is the same work for all; with ``--weak`` each worker brings work of its own, and the ideal is the same
time for all. Work is a number of seeds, each worked once, and not a number of cases: a budget of cases ends inside what
is under way, and the more workers, the more of that is thrown away. With ``--lanes`` the axis is how much is done at a
time in one process (lanes of fuzzing, blocks of an evaluation, batches of a training): that is what a GPU has to grow
with.

One thread a worker and one in the process alone, so that they are compared like with like. Start-up is not counted, nor
the first epoch; commits are. Without ``--model`` fuzzing and evaluation test a LeNet-5 that is trained first. A model
without weights is random, and its own answers are the labels.
"""

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; workers take no more either

import torch
from torch import nn

from assay.engines.evaluate import evaluate
from assay.engines.fuzz import fuzz
from assay.engines.train import train
from assay.subjects.bench import Data, Splits
from subjects import images, labelled_by, trained_lenet, untrained

UNIT = 256  # seeds, as a campaign on a CPU takes them by itself
VALIDATED = 256  # images: what is measured is learning


class Place(NamedTuple):
    """Where so many times the work is done: ``workers`` 0 is this process alone, ``lanes`` 0 as many as suit it."""

    name: str
    workers: int
    lanes: int
    work: int


class Done(NamedTuple):
    """What was done in which time, and what came of it."""

    units: int
    seconds: float
    result: str

    @property
    def rate(self) -> float:
        return self.units / self.seconds


def places(given: argparse.Namespace) -> list[Place]:
    if given.lanes:
        least = min(given.lanes)
        return [Place(f"{n} lanes", 0, n, n // least if given.weak else 1) for n in sorted(given.lanes)]
    named = [(f"{n} worker{'s' * (n > 1)}", n) for n in sorted(given.workers)]
    return [Place("serial", 0, 0, 1), *(Place(name, n, 0, n if given.weak else 1) for name, n in named)]


def on(given: argparse.Namespace, place: Place) -> dict[str, Any]:
    return {"ray": given.ray, "workers": place.workers} if place.workers else {}


def subject(given: argparse.Namespace, count: int) -> tuple[str | nn.Module, Data]:
    """The model under test and so many images."""
    data = images(given.data, count)
    if "@" in given.model:
        return given.model, data
    net = untrained(given.model, data, given.device)
    return net, labelled_by(net, data)


def fuzzed(given: argparse.Namespace, folder: Path, place: Place) -> Done:
    model, data = subject(given, given.seeds * place.work)
    how: dict[str, Any] = {"lanes": place.lanes, "unit": "auto"} if place.lanes else {"unit": given.unit}
    how["curvature"] = given.curvature  # auto would time them, and may choose another one each time
    seeds = {"seeds": "correct"}  # all that the model gets right, however many a recipe would draw
    found = fuzz(
        given.recipe,
        model,
        data,
        folder=folder / "run",
        changes=seeds,
        device=given.device,
        deterministic=given.deterministic,
        **how,
        **on(given, place),
    )
    return Done(found.cases, found.seconds, f"{found.failures} failures")


class Clock:
    """Listens to an evaluation: its seconds from when work begins, which is when workers are ready."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = 0.0

    def __call__(self, told: Mapping[str, Any]) -> None:
        self.last = told["seconds"]
        self.first = self.last if self.first is None else self.first


def evaluated(given: argparse.Namespace, folder: Path, place: Place) -> Done:
    model, data = subject(given, given.images * place.work)
    clock = Clock()
    result = evaluate(
        model,
        data,
        suite=given.suite,
        eps=given.eps,
        batch=place.lanes or given.batch,
        device=given.device,
        deterministic=given.deterministic,
        progress=clock,
        **on(given, place),
    )
    return Done(len(data), clock.last - (clock.first or 0.0), f"{100 * result.worst.accuracy:.2f} % robust")


def learned(given: argparse.Namespace, folder: Path, place: Place) -> Done:
    """The batch grows with the work: each worker has as many images a step as one worker alone."""
    data = images(given.data, given.images * place.work)
    splits = Splits(data.name, train=data, val=images(given.data, VALIDATED))
    batch = place.lanes or given.batch * place.work
    done = train(
        given.model,
        splits,
        folder / "out.safetensors",
        trainer=given.trainer,
        params={"epochs": given.epochs, "batch": batch},
        device=given.device,
        deterministic=given.deterministic,
        **on(given, place),
    )
    seconds = sum(row["seconds"] for row in done.log[1:])
    return Done(len(data) * (given.epochs - 1), seconds, f"{100 * done.val_accuracy:.1f} % right")


def table(rows: Sequence[tuple[Place, Done]], unit: str, *, weak: bool) -> Iterator[str]:
    """Rates beside those of one process and of the smallest other place; an efficiency of 1 is the same time."""
    serial = next((done for place, done in rows if place.name == "serial"), None)
    first, base = next((place, done) for place, done in rows if place.name != "serial")
    heads = [unit, "seconds", f"{unit}/s", "came of it", *(["to serial"] if serial else []), f"to {first.name}"]
    heads += ["efficiency"] if weak else []
    yield "where".ljust(12) + "".join(head.rjust(18) for head in heads)
    for place, done in rows:
        cells = [str(done.units), f"{done.seconds:.1f}", f"{done.rate:.0f}", done.result]
        cells += [f"{done.rate / serial.rate:.2f}×"] if serial else []
        other = place.name != "serial"
        cells += [f"{done.rate / base.rate:.2f}×" if other else ""]
        cells += [f"{done.rate / base.rate / (place.work / first.work):.2f}" if weak and other else ""]
        yield (place.name.ljust(12) + "".join(cell.rjust(18) for cell in cells)).rstrip()


def measure(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    logging.getLogger("assay").addHandler(logging.StreamHandler())  # warnings: a worker that died spoils the figure
    kind = "weak" if given.weak else "strong"
    what = " ".join(f"{name}={getattr(given, name)}" for name in given.told if getattr(given, name))
    rows = []
    with tempfile.TemporaryDirectory() as kept:
        if not given.model:
            given.model = "resnet20" if given.verb == "train" else trained_lenet(Path(kept))
        for place in places(given):
            with tempfile.TemporaryDirectory() as folder:
                done = given.work(given, Path(folder), place)
            rows.append((place, done))
            print(f"{place.name}: {done.units} {given.unit_name} in {done.seconds:.1f} s", file=sys.stderr, flush=True)
    print(f"{given.verb}, {kind} scaling, {given.device}, torch {torch.__version__}: {what}")
    print(*table(rows, given.unit_name, weak=given.weak), sep="\n")


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")

    def verb(
        name: str, work: Callable[..., Done], unit: str, own: Mapping[str, tuple[Any, str]]
    ) -> argparse.ArgumentParser:
        part = verbs.add_parser(name, help=(work.__doc__ or "").strip())
        part.add_argument("--weak", action="store_true", help="work grows with workers, or with lanes")
        part.add_argument("--workers", type=int, nargs="+", default=[1, 2])
        part.add_argument("--lanes", type=int, nargs="+", default=[], help="instead of workers: done at a time")
        part.add_argument("--device", default="cpu")
        part.add_argument("--ray", default="local")
        part.add_argument("--deterministic", action="store_true", help="as where bytes must repeat")
        part.add_argument("--model", default="", help="name@weights, or name alone: random weights")
        for flag, (default, told) in own.items():
            part.add_argument(f"--{flag}", type=type(default), default=default, help=told)
        part.set_defaults(work=work, unit_name=unit, told=("model", *own))
        return part

    of = "digits, or random(3x32x32)"
    fuzzing = {
        "data": ("digits", of),
        "recipe": ("robot", ""),
        "seeds": (16384, "of one worker, or of the fewest lanes"),
        "unit": (UNIT, ""),
    }
    verb("fuzz", fuzzed, "cases", {**fuzzing, "curvature": ("double", "how slopes are taken")})
    block = {"images": (2048, "of one worker"), "batch": (256, "images a block"), "eps": ("0.1", "")}
    verb("evaluate", evaluated, "images", {"data": ("digits", of), "suite": ("standard", ""), **block})
    batch = {"images": (2000, "of one worker"), "batch": (128, "images a step of one worker"), "epochs": (4, "")}
    verb("train", learned, "images", {"data": ("random(3x32x32)", of), "trainer": ("plain", ""), **batch})
    return parser


def main() -> None:
    parser = parser_of()
    given = parser.parse_args()
    if given.verb == "train" and given.epochs < 2:
        parser.error("--epochs must be at least 2: the first is not counted")
    if given.device != "cpu" and not given.lanes:
        parser.error("on a GPU the axis is lanes: --lanes 256 1024 4096")
    measure(given)


if __name__ == "__main__":
    main()
