"""Cost of the gradient attacks in bare forward+backward passes of the same model and batch, and against a peer.

    make bench-attacks        (or: python benchmarks/attacks.py [--batch 128 --repeats 7 --device cpu])

Every figure is a ratio of times taken in one process, in alternation, so that a noisy machine disturbs both alike.
The model is a LeNet-5 trained on digits enlarged to 28×28, so no data file is needed; with MNIST in $ASSAY_DATA it is
trained on that, 5 epochs. Two sizes of the ball: one that breaks every input, one that leaves some standing. Exit 1
where a ratio is over its bar: 1.25 without early stop, 0.5 for PGD-40 with the active set in the large ball.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.core.allocator import keep_blocks
from assay.core.errors import UsageError
from assay.core.losses import cross_entropy
from assay.core.randomness import Stream
from assay.engines.train import train
from assay.stages.attacks.fgsm import fgsm
from assay.stages.attacks.pgd import pgd
from assay.subjects.bench import Data, Splits
from assay.subjects.data.arrays import to_data
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget


def data_set() -> Splits:
    """MNIST where its file is at hand, else digits enlarged to its size."""
    try:
        return load_splits("mnist")
    except UsageError:
        small = load_splits("digits")

        def large(part: Data) -> Data:
            x = F.interpolate(part.cases.x, size=(28, 28), mode="bilinear").clamp(0, 1)
            return to_data(part.name, x.numpy(), part.cases.y.numpy(), part.spec.classes)

        return Splits("digits-28", *(large(small.part(p)) for p in ("train", "val", "test")))


def bare_passes(target: ModuleTarget, x: Tensor, y: Tensor, steps: int) -> None:
    """What no gradient attack can do without: k forward and backward passes to the input."""
    for _ in range(steps):
        at = x.detach().requires_grad_()
        torch.autograd.grad(cross_entropy(target(at), y).sum(), at)


def peer_pgd(target: ModuleTarget, eps: float, steps: int) -> Callable[[Tensor, Tensor], Any] | None:
    """torchattacks' PGD, where it is installed (its import needs no torchvision)."""
    try:
        from torchattacks import PGD
    except ImportError:
        return None
    peer = PGD(target.module, eps=eps, alpha=eps / 10, steps=steps, random_start=True)
    return lambda x, y: peer(x, y)


def jobs_of(target: ModuleTarget, x: Tensor, y: Tensor, steps: int, eps: float) -> dict[str, Callable[[], Any]]:
    """What is timed for one number of steps: the bare passes, our attacks, the peer's."""
    rng = Stream(0, ("bench",)).rows(torch.arange(len(x), device=x.device))
    jobs: dict[str, Callable[[], Any]] = {"bare": lambda: bare_passes(target, x, y, steps)}
    if steps == 1:
        jobs["fgsm"] = lambda: fgsm(target, x, y, rng=rng, eps=eps)
        return jobs
    jobs[f"pgd-{steps}, every step"] = lambda: pgd(target, x, y, rng=rng, eps=eps, steps=steps, early_stop=False)
    jobs[f"pgd-{steps}, active set"] = lambda: pgd(target, x, y, rng=rng, eps=eps, steps=steps)
    peer = peer_pgd(target, eps, steps)
    if peer is not None:
        jobs[f"torchattacks pgd-{steps}"] = lambda: peer(x, y)
    return jobs


def median_seconds(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median time of each job; jobs take turns, forwards and backwards, so that drift hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(repeats + 1):
        for name in list(jobs) if i % 2 else reversed(list(jobs)):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = time.perf_counter()
            jobs[name]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if i:  # the first turn warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--eps", type=float, nargs="*", default=[0.3, 0.1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_blocks()
    data = data_set()
    with TemporaryDirectory() as scratch:
        weights = Path(scratch) / "w.safetensors"
        train("lenet5", data, weights, params={"epochs": 5 if data.name == "mnist" else 15}, device=args.device)
        target = load_target(f"lenet5@{weights}", device=args.device)
    assert isinstance(target, ModuleTarget)
    cases = data.part("test").cases[: args.batch].to(target.device)
    x, y = cases.x, cases.y

    def accuracy(made: Tensor) -> float:
        with torch.no_grad():
            return float((target(made).argmax(1) == y).float().mean())

    print(
        f"LeNet-5 on {data.name}, batch {len(x)}, {args.threads} thread(s), {target.device}, "
        f"torch {torch.__version__}, median of {args.repeats}\n"
    )
    over = False
    with target.ready():
        for eps in args.eps:
            print(f"{f'eps {eps}':24} {'ms':>9} {'× bare':>8} {'accuracy':>9}")
            for steps in (1, 10, 40):
                jobs = jobs_of(target, x, y, steps, eps)
                took = median_seconds(jobs, args.repeats)
                for name, seconds in took.items():
                    ratio = seconds / took["bare"]
                    left = "" if name == "bare" else f"{accuracy(jobs[name]()):.3f}"
                    label = f"{steps} bare passes" if name == "bare" else name
                    bar = 1.25 if "every" in name else 0.5 if name == "pgd-40, active set" and eps >= 0.3 else 9.0
                    over |= ratio > bar
                    mark = "  over its bar" if ratio > bar else ""
                    print(f"{label:24} {1000 * seconds:9.2f} {ratio:8.2f} {left:>9}{mark}")
            print()
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
