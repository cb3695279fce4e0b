"""In which order the passes of shrinking leave least: the least of the change first, or the fewest pixels first?

    python benchmarks/shrink_orders.py MODEL --data digits/test [--cases 128] [--eps 0.2] [--threads 1]

The cases are what PGD (10 steps, within eps) and noise within twice that make of inputs the model gets right. Medians
of what is left: changed pixels, L2, L∞; the mean of questions a case; how many fail as an image of 8 bits.
"""

import argparse
import sys
import time

import torch

from assay.core.cases import Cases
from assay.engines.shrunk import shrunk
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from shrink import attacked

ORDERS = (
    "blocks,pixels",
    "line",
    "line,blocks,pixels,eight_bit",
    "blocks,pixels,line,eight_bit",
    "line,blocks,pixels,line,eight_bit",
    "eight_bit,blocks,pixels,line,eight_bit",
)


def noisy(model: str, text: str, n: int, eps: float) -> tuple[Bench, Cases]:
    """Inputs that noise turned: every number of them is moved by up to twice eps."""
    data = load_data(text, part="test")
    target = load_target(model, data=data, device="cpu")
    rng, found, left = torch.Generator().manual_seed(0), [], n
    for _ in range(100):
        moved = data.cases.x + 2 * eps * (2 * torch.rand(data.cases.x.shape, generator=rng) - 1)
        x = moved.clamp(*target.spec.bounds)
        with torch.no_grad():
            turned = (target(data.cases.x).argmax(1) == data.cases.y) & (target(x).argmax(1) != data.cases.y)
        rows = turned.nonzero().squeeze(1)[:left]
        found.append(data.cases[rows].with_x(x[rows]).note(seed_x=data.cases.x[rows]))
        left -= len(rows)
        if not left:
            break
    return Bench(target), Cases.cat(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", default="digits/test")
    parser.add_argument("--cases", type=int, default=128)
    parser.add_argument("--eps", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    numbers = "changed     l2   linf  questions  8 bit  minimal  seconds"
    print(f"{'cases':14} {'order':40} {numbers}")
    for name, make in (("pgd", attacked), ("noise", noisy)):
        bench, cases = make(given.model, given.data, given.cases, given.eps)
        for by in ORDERS:
            began = time.perf_counter()
            made = shrunk(bench, cases, by=by).info
            seconds = time.perf_counter() - began
            changed, l2, linf = (float(made[column].double().quantile(0.5)) for column in ("changed", "l2", "linf"))
            image = f"{int(made['eight_bit'].sum()):5}" if "eight_bit" in made else "    –"
            print(
                f"{len(cases):4} by {name:6} {by:40} {changed:7.0f} {l2:6.3f} {linf:6.3f} "
                f"{made['questions'].double().mean():10.0f}  {image} {int(made['minimal'].sum()):8} {seconds:8.1f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
