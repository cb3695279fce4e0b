"""Passes replayed on a GPU: the same answers and slopes as the net's own. Elsewhere, the net itself."""

import random

import pytest
import torch
from torch import Tensor, nn

from assay.core.precision import full_precision, half_precision
from assay.subjects.replayed import SEEN, STEP, Replayed, replayable

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ELU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    return made.requires_grad_(False)


def inputs(n: int, seed: int = 1) -> Tensor:
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def slope(module: nn.Module, x: Tensor) -> Tensor:
    at = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(module(at).square().sum(), at)
    return grad


def test_on_a_cpu_it_is_the_net() -> None:
    mine, again = net(), Replayed(net())
    for _ in range(2 * SEEN):
        assert torch.equal(again(inputs(5)), mine(inputs(5)))
        assert torch.equal(slope(again, inputs(5)), slope(mine, inputs(5)))
    assert not again.records


def test_a_net_that_decides_on_the_host_is_not_replayed() -> None:
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if random.random() < 0.5 else -x

    watched = net()
    watched[0].register_forward_hook(lambda *_: None)  # type: ignore[index]  # a Sequential
    assert replayable(net())
    assert not replayable(nn.Sequential(net(), Moody()))
    assert not replayable(watched)


@GPU
def test_answers_and_slopes_are_those_of_the_net() -> None:
    mine, again = net().cuda(), Replayed(net().cuda())
    with full_precision():
        for n in (1, 5, STEP, STEP + 1, 100):
            for seed in range(2 * SEEN):
                x = inputs(n, seed).cuda()
                torch.testing.assert_close(again(x), mine(x))
                torch.testing.assert_close(slope(again, x), slope(mine, x))
    sizes = {(kind.shape[0], kind.sloped) for kind, record in again.records.items() if record is not None}
    assert sizes == {(size, sloped) for size in (STEP, 2 * STEP, 4 * STEP) for sloped in (True, False)}


@GPU
def test_a_pass_between_two_halves_of_another_does_it_no_harm() -> None:
    mine, again = net().cuda(), Replayed(net().cuda())
    x = inputs(9).cuda()
    with full_precision():
        for _ in range(2 * SEEN):
            slope(again, x)
            again(x)
        at = x.clone().requires_grad_()
        out = again(at)
        slope(again, 1 - x)
        again(x / 2)
        (grad,) = torch.autograd.grad(out.square().sum(), at)
        torch.testing.assert_close(grad, slope(mine, x))


@GPU
def test_the_way_back_may_be_gone_more_than_once_and_twice_over() -> None:
    mine, again = net().cuda(), Replayed(net().cuda())
    x = inputs(9).cuda()
    with full_precision():
        for _ in range(2 * SEEN):
            slope(again, x)
        at, there = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, right = again(at), mine(there)
        for k in range(3):
            (one,) = torch.autograd.grad(out[:, k].sum(), at, retain_graph=True)
            (other,) = torch.autograd.grad(right[:, k].sum(), there, retain_graph=True)
            torch.testing.assert_close(one, other)
        bent = []
        for module, point in ((again, at), (mine, there)):
            (first,) = torch.autograd.grad(module(point).exp().sum(), point, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), point)
            bent.append(second)
        torch.testing.assert_close(*bent)


@GPU
def test_it_follows_weights_and_precision() -> None:
    mine, again = net().cuda(), Replayed(net().cuda())
    x = inputs(9).cuda()
    for _ in range(2 * SEEN):
        again(x)
    with torch.no_grad():
        for module in (mine, again.net):
            for weight in module.parameters():
                weight.mul_(1.5)
    torch.testing.assert_close(again(x), mine(x))
    with half_precision(x.device):
        for _ in range(2 * SEEN):
            short = again(x)
        assert short.dtype == torch.bfloat16
    assert again(x).dtype == torch.float32


@GPU
def test_a_net_whose_rows_depend_on_each_other_is_left_as_it_is() -> None:
    class Levelled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(0))

    mine = Levelled(4, 2).cuda().requires_grad_(False)
    again = Replayed(mine)
    for seed in range(2 * SEEN):
        x = torch.rand(6, 4, generator=torch.Generator().manual_seed(seed)).cuda()
        torch.testing.assert_close(again(x), mine(x))
    assert list(again.records.values()) == [None]


@GPU
def test_records_of_many_sizes_share_their_memory() -> None:
    wide = (
        nn.Sequential(nn.Conv2d(1, 64, 3), nn.ELU(), nn.Flatten(), nn.Linear(64 * 36, 3)).cuda().requires_grad_(False)
    )
    again, sizes = Replayed(wide), range(STEP, 33 * STEP, STEP)
    taken = []
    for n in reversed(sizes):
        for _ in range(SEEN + 2):
            slope(again, torch.rand(n, 1, 8, 8, device="cuda"))
        taken.append(torch.cuda.memory_reserved())
    assert len([record for record in again.records.values() if record is not None]) == len(sizes)
    assert taken[-1] < 1.5 * taken[0]


@GPU
def test_a_net_that_asks_the_host_is_left_as_it_is() -> None:
    class Asking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * float(x.sum())

    torch.manual_seed(0)
    mine = Asking(4, 2).cuda().requires_grad_(False)
    again = Replayed(mine)
    for seed in range(2 * SEEN):
        x = torch.rand(6, 4, generator=torch.Generator().manual_seed(seed)).cuda()
        torch.testing.assert_close(again(x), mine(x))
    assert list(again.records.values()) == [None]
    assert torch.rand(3, device="cuda").shape == (3,), "random numbers come as before"
