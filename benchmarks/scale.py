"""Cases a second of a fuzzing campaign: in one process with one thread, and on Ray with 1, 2, … workers.

    python benchmarks/scale.py fuzz [--model MODEL] [--data digits] [--recipe robot] [--cases 60000] [--workers 1 2]

Strong scaling: every campaign does the same work (the same units of the same seeds) and what it finds is compared,
too. The clock is the campaign's own: neither loading, nor the start of Ray and of its workers is counted, commits are.
One thread a worker and one in the process alone, so that they are compared like with like. Take as many cases as keep
one process busy for a minute, on a machine that does nothing else. Without ``--model`` a LeNet-5 is trained first.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; workers take no more either

import torch

from assay.engines.fuzz import fuzz
from assay.engines.train import train

UNIT = 64  # seeds: many units for each worker, so that the last ones end together


def trained(folder: Path) -> str:
    out = folder / "lenet5.safetensors"
    train("lenet5", "digits", out, params={"epochs": 20, "batch": 32})
    return f"lenet5@{out}"


def campaign(given: argparse.Namespace, model: str, folder: Path, workers: int) -> tuple[float, int, int]:
    """Seconds, cases and failures; ``workers`` 0 is this process alone."""
    on: dict[str, Any] = {"ray": given.ray, "workers": workers} if workers else {}
    how: dict[str, Any] = {"cases": given.cases, "unit": given.unit, "deterministic": given.deterministic}
    how["curvature"] = given.curvature  # auto would time them, and may choose another one each time
    found = fuzz(given.recipe, model, given.data, folder=folder / f"run-{workers}", **how, **on)
    return found.seconds, found.cases, found.failures


def scaling(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    print(f"{'where':<12}{'seconds':>9}{'cases/s':>10}{'failures':>10}{'to serial':>11}{'to 1 worker':>13}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = given.model or trained(folder)
        rates: dict[int, float] = {}
        for workers in (0, *given.workers):
            seconds, cases, failures = campaign(given, model, folder, workers)
            rates[workers] = cases / seconds
            name = f"{workers} worker{'s' * (workers > 1)}" if workers else "serial"
            to_one = f"{rates[workers] / rates[1]:>12.2f}×" if workers and 1 in rates else ""
            line = f"{name:<12}{seconds:>9.1f}{rates[workers]:>10.0f}{failures:>10}{rates[workers] / rates[0]:>10.2f}×"
            print(line + to_one, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    part = verbs.add_parser("fuzz", help="units of seeds, worked on Ray")
    part.add_argument("--model", default="")
    part.add_argument("--data", default="digits")
    part.add_argument("--recipe", default="robot")
    part.add_argument("--cases", type=int, default=60_000)
    part.add_argument("--unit", type=int, default=UNIT)
    part.add_argument("--curvature", default="double")
    part.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    part.add_argument("--ray", default="local")
    part.add_argument("--deterministic", action="store_true", help="one unit at a time, as where bytes must repeat")
    part.set_defaults(work=scaling)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
