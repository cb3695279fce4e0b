"""What channels last gains on this machine: inputs a second with the weights in that order, over the usual one.

    OMP_NUM_THREADS=2 python benchmarks/ordering.py lenet5 resnet20 vgg16 resnet18

Gradients of inputs, as searches take them, and of weights; nets are untrained and in evaluation mode. Both orders take
turns, and the median of the turns counts.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from assay.core.registry import bind
from assay.subjects.ordered import reorder

SHAPES = {"lenet5": (1, 28, 28)}
BATCH = {"lenet5": 128}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("nets", nargs="+")
    asked.add_argument("--turns", type=int, default=7)
    told = asked.parse_args()
    print(f"{torch.get_num_threads()} threads\n\n| net | gradients of inputs/s | of weights/s |\n|---|---:|---:|")
    for name in told.nets:
        shape = SHAPES.get(name, (3, 32, 32))
        x = torch.rand(BATCH.get(name, 64), *shape)
        y = torch.arange(len(x)) % 10
        nets = [bind("model", name, {"shape": shape, "classes": 10})().eval() for _ in range(2)]
        reorder(nets[1])
        hows = (_of_inputs, _of_weights)
        cells = [_compared([partial(how, net, x, y) for net in nets], len(x), told.turns) for how in hows]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _compared(works: list[Callable[[], object]], n: int, turns: int) -> str:
    rates: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for work, found in zip(works, rates, strict=True):
            started = time.perf_counter()
            work()
            if turn:  # the first makes what is made once
                found.append(n / (time.perf_counter() - started))
    usual, last = map(statistics.median, rates)
    return f"{usual:.0f} → {last:.0f}, {last / usual:.2f}×"


def _of_inputs(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    net.requires_grad_(False)
    at = x.clone().requires_grad_()
    torch.autograd.grad(F.cross_entropy(net(at), y), at)


def _of_weights(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    net.requires_grad_(True)
    net.zero_grad()
    F.cross_entropy(net(x), y).backward()


if __name__ == "__main__":
    main()
