"""Processes of a group that trains together, for tests: started anew, they import this file by its name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.stages.trainers.loop import Task, fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.ranks import PeerLost, Ranks, together
from assay.stages.trainers.watch import State, Unwatched

ROWS = 21  # with batches of 8: the last one has 5, too few for three ranks of two


def cases() -> Cases:
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(ROWS) % 3
    return Cases.of((torch.rand(ROWS, 4, generator=rng) + y[:, None] / 3) / 2, y)


class Net(nn.Module):
    """Linear, with a layer that nothing goes through: it has no gradient, and must not be moved by its decay."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x)
        return out


class Normed(nn.Module):
    """With statistics of batches, a constant, and an infinite one, as masks are."""

    limit: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.last = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("limit", torch.tensor([0.1, float("inf")]))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.norm(x))
        return out


class Told(Unwatched):
    """Keeps every epoch."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []

    def epoch(self, state: State, net: nn.Module) -> None:
        numbers = {name: value for name, value in state.log[-1].items() if name != "seconds"}
        self.epochs.append({"numbers": numbers, "weights": state.weights})


def learned(net: nn.Module, **more: Any) -> list[dict[str, Any]]:
    told = Told()
    plan = Plan(2, 8, 0.1, "sgd", weight_decay=0.1, ema=0.5)
    fit(net, cases(), cases(), plan, rng=Stream(1), watch=told, **more)
    return told.epochs


def squared(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    loss: Tensor = (net(x) - nn.functional.one_hot(y, 3)).square().mean()
    return loss


def work(rank: int, count: int, folder: str) -> None:
    """One process of a group: trains three nets and keeps what it was told."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=count)
    with together(Ranks(rank, count)) as ranks:
        made = {"plain": learned(Net()), "task": learned(Net(), task=Task(squared)), "normed": learned(Normed())}
        made["seen"] = [{"cases": ranks.seen}]
    torch.save(made, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def leave(rank: int, folder: str) -> None:
    """Rank 1 is gone before anything is done together; rank 0 says what it hears."""
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    if rank == 1:
        os._exit(0)
    try:
        Ranks(0, 2).average(list(Net().parameters()), torch.zeros(()), 0.5)
    except PeerLost:
        Path(folder, "heard").touch()
        os._exit(0)  # threads of a broken group do not end by themselves


def disagree(rank: int, folder: str) -> None:
    """Each rank's net has its own number of weights, and then of buffers; each says what it hears."""
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    ranks, net = Ranks(rank, 2), Net()
    net.register_buffer("seen", torch.zeros(100 * (1 + rank)))
    wide = list(nn.Linear(4, 3 + rank).parameters())
    shared: dict[str, Callable[[], object]] = {
        "weights": lambda: ranks.average(wide, torch.zeros(()), 0.5),
        "buffers": lambda: ranks.level(net),
    }
    for what, together_do in shared.items():
        try:
            together_do()
        except UsageError as error:
            Path(folder, f"{what}-{rank}.txt").write_text(str(error))
    distributed.destroy_process_group()
