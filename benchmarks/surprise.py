"""What surprise costs: seconds and memory of each measure, and DSA beside a plain version with torch.cdist.

    taskset -c 0,1 python benchmarks/surprise.py --threads 2
    python benchmarks/surprise.py --device cuda

Traces are made: one cloud a class, cut off below 0 as a ReLU does, all fitted and scored anew. The bar of DSA is 20
seconds on 2 cores and 1 GB for 10 000 tests against 60 000 traces of width 84. Memory is the peak of the whole process
(or of the device), torch and the traces included. The plain version does the same on the first ``--plain`` tests with
whole distance tables, and the two take turns.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from assay.core.randomness import Stream
from assay.stages.surprise.clusters import fit_clusters
from assay.stages.surprise.distances import fit_distances
from assay.stages.surprise.gaussians import fit_gaussians
from assay.stages.surprise.kernels import fit_kernels
from assay.stages.surprise.mixtures import fit_mixtures
from assay.stages.surprise.training import Surprise

Made = TypeVar("Made")
Fit = Callable[[Tensor, Tensor, int], Surprise]
RNG = Stream(0)
MEASURES: dict[str, Fit] = {
    "dsa": lambda *given: fit_distances(*given, rng=RNG),
    "dsa(share=0.3)": lambda *given: fit_distances(*given, share=0.3, rng=RNG),
    "lsa": fit_kernels,
    "mdsa": fit_gaussians,
    "mlsa": lambda *given: fit_mixtures(*given, rng=RNG),
    "mmdsa": lambda *given: fit_clusters(*given, rng=RNG),
}


def made(n: int, width: int, classes: int, seed: int, device: str) -> tuple[Tensor, Tensor]:
    """Traces and the classes they belong to; ``seed`` draws them, the clouds are always the same."""
    fixed, rng = (torch.Generator().manual_seed(s) for s in (0, seed))
    middles = torch.randn(classes, width, generator=fixed)
    labels = torch.randint(classes, (n,), generator=rng)
    traces = (middles[labels] + torch.randn(n, width, generator=rng)).clamp_min_(0.0)
    return traces.to(device), labels.to(device)


def plain_dsa(traces: Tensor, labels: Tensor, known: Tensor, classes: Tensor) -> Tensor:
    """DSA as one would write it down, with a table of all distances of a class."""
    values = torch.empty(len(traces), device=traces.device)
    for c in labels.unique().tolist():
        rows, same = labels == c, known[classes == c]
        near, place = torch.cdist(traces[rows], same).min(1)
        values[rows] = near / torch.cdist(same[place], known[classes != c]).amin(1)
    return values


def timed(job: Callable[[], Made], device: str) -> tuple[Made, float]:
    began = time.perf_counter()
    made = job()
    if device != "cpu":
        torch.cuda.synchronize()
    return made, time.perf_counter() - began


def peak(device: str) -> str:
    if device != "cpu":
        return f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB"
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f} GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=10_000)
    parser.add_argument("--traces", type=int, default=60_000)
    parser.add_argument("--width", type=int, default=84)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--plain", type=int, default=1000, help="tests that the plain version is given")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    told = parser.parse_args()
    if told.threads:
        torch.set_num_threads(told.threads)
    known = made(told.traces, told.width, told.classes, 1, told.device)
    asked = made(told.tests, told.width, told.classes, 2, told.device)
    print(f"{told.tests} tests, {told.traces} traces of width {told.width}, {told.classes} classes, {told.device}")
    print(f"before: {peak(told.device)}")
    for name, fit in MEASURES.items():
        fitted, fitting = timed(partial(fit, *known, told.classes), told.device)
        _, scoring = timed(partial(fitted, *asked), told.device)
        print(f"{name:15s} fit {fitting:7.2f} s  score {scoring:7.2f} s  peak so far {peak(told.device)}")
    few = (asked[0][: told.plain], asked[1][: told.plain])
    compare(few, known, told.classes, told.turns, told.device)


def compare(few: tuple[Tensor, Tensor], known: tuple[Tensor, Tensor], classes: int, turns: int, device: str) -> None:
    """Both ways take turns on the same tests; a fit of ours is part of its time, as it remembers what it measured."""
    ours, plain = [], []
    for _ in range(turns):
        ours.append(timed(lambda: MEASURES["dsa"](*known, classes)(*few), device)[1])
        plain.append(timed(lambda: plain_dsa(*few, *known), device)[1])
    apart = (MEASURES["dsa"](*known, classes)(*few) / plain_dsa(*few, *known) - 1).abs().max()
    first, second = statistics.median(ours), statistics.median(plain)
    print(
        f"dsa of {len(few[0])} tests: {first:.2f} s, with torch.cdist {second:.2f} s ({first / second:.2f} of it), "
        f"values within {float(apart):.1e}, peak with torch.cdist {peak(device)}"
    )


if __name__ == "__main__":
    main()
