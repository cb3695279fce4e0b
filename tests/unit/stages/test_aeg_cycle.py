"""The CycleGAN's step: who learns from what, fakes that are shown again, snapshots."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from assay.stages.aeg.cycle import CycleGan
from assay.stages.aeg.making import Making


def gan(seed: int = 0, **how: object) -> CycleGan:
    torch.manual_seed(seed)
    return CycleGan((1, 8, 8), (8, 8), Making(width=4, **how))  # type: ignore[arg-type]  # as users give them


def images(n: int = 3, seed: int = 5) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x, y = (torch.rand(n, 1, 8, 8, generator=rng) * 2 - 1 for _ in range(2))
    return x, y


def slopes(loss: Tensor, net: nn.Module) -> Tensor:
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)])


@pytest.mark.parametrize("loss", ["lsgan", "log"])
def test_every_net_learns_from_its_own_loss(loss: str) -> None:
    """Against the losses written one by one: each net's slope in the sum is that of its own losses alone."""
    net, (x, y) = gan(loss=loss, buffer=0, cycle=7.0, identity=2.0), images()
    one_step = net.loss(x, y)
    one_step.backward()

    def far(scores: Tensor, wanted: float) -> Tensor:
        if loss == "lsgan":
            return ((scores - wanted) ** 2).mean()
        share = torch.sigmoid(scores)
        return -(torch.log(share) if wanted else torch.log(1 - share)).mean()

    fake_y, fake_x = net.there(x), net.back(y)
    makers = far(net.of_y(fake_y), 1) + far(net.of_x(fake_x), 1)
    makers = makers + 7 * ((net.back(fake_y) - x).abs().mean() + (net.there(fake_x) - y).abs().mean())
    makers = makers + 2 * ((net.there(y) - y).abs().mean() + (net.back(x) - x).abs().mean())
    judge_x = (far(net.of_x(x), 1) + far(net.of_x(fake_x.detach()), 0)) / 2
    judge_y = (far(net.of_y(y), 1) + far(net.of_y(fake_y.detach()), 0)) / 2
    assert float(one_step.detach()) == pytest.approx(float((makers + judge_x + judge_y).detach()), rel=1e-5)
    for part, own in ((net.there, makers), (net.back, makers), (net.of_x, judge_x), (net.of_y, judge_y)):
        found = torch.cat([weight.grad.flatten() for weight in part.parameters() if weight.grad is not None])
        assert torch.allclose(found, slopes(own, part), atol=1e-6)


def test_without_identity_loss_nothing_is_asked_of_it() -> None:
    x, y = images()
    with_it, without = (float(gan(buffer=0, identity=weight).loss(x, y).detach()) for weight in (1.0, 0.0))
    net = gan(buffer=0)
    own = (net.there(y) - y).abs().mean() + (net.back(x) - x).abs().mean()
    assert with_it - without == pytest.approx(float(own.detach()), rel=1e-4)


def test_the_log_loss_by_hand() -> None:
    net = gan(loss="log")
    scores = torch.tensor([0.0, math.log(3)])  # shares of 1/2 and 3/4
    assert float(net._far(scores, 1.0)) == pytest.approx(-(math.log(1 / 2) + math.log(3 / 4)) / 2)
    assert float(net._far(scores, 0.0)) == pytest.approx(-(math.log(1 / 2) + math.log(1 / 4)) / 2)
    assert float(gan()._far(torch.tensor([0.0, 3.0]), 1.0)) == pytest.approx((1 + 4) / 2)


def numbered(start: int, n: int) -> Tensor:
    return torch.arange(start, start + n, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)


def test_fakes_are_shown_again_and_none_is_lost() -> None:
    net, seen, again = gan(buffer=10), list[float](), 0
    for turn in range(40):
        new = numbered(4 * turn, 4)
        shown_x, shown_y = net._shown_again(new, new + 1000)
        assert torch.equal(shown_x + 1000, shown_y), "both domains swap alike"
        again += int((shown_x != new).flatten(1).any(1).sum())
        seen += shown_x[:, 0, 0, 0].tolist()
        assert int(net.filled) == min(4 * (turn + 1), 10)
    kept = net.get_buffer("fakes_x")[:, 0, 0, 0].tolist()
    # While it fills a fake is kept and shown, later one of the two.
    assert sorted([*seen, *kept]) == sorted([*map(float, range(160)), *map(float, range(10))])
    assert 50 < again < 100, "of 150 fakes about half"


def test_a_batch_larger_than_the_buffer_and_no_buffer_at_all() -> None:
    net, new = gan(buffer=3), numbered(0, 8)
    assert torch.equal(net._shown_again(new, new)[0], new)
    later = numbered(8, 8)
    shown = net._shown_again(later, later)[0]
    assert {float(v) for v in shown[:, 0, 0, 0]} <= {*map(float, range(3)), *map(float, range(8, 16))}
    bare = gan(buffer=0)
    assert torch.equal(bare._shown_again(new, new)[0], new)


def test_snapshots_are_the_newest_first() -> None:
    net, told = gan(snapshots=2), []
    for turn in range(3):
        with torch.no_grad():
            for weight in net.there.parameters():
                weight.fill_(turn)
            for weight in net.back.parameters():
                weight.fill_(10 + turn)
        net.take_snapshot()
        told.append((net.kept_there[:, 0].tolist(), net.kept_back[:, 0].tolist()))
    assert told == [([0, 0], [10, 0]), ([1, 0], [11, 10]), ([2, 1], [12, 11])]
    assert int(net.epochs) == 3
    assert net.kept_there.shape == (2, parameters_to_vector(net.there.parameters()).numel())


def test_its_state_is_all_of_it() -> None:
    """Weights, fakes and snapshots come back from the state alone, and the next step is the same."""
    x, y = images()
    net = gan(buffer=4)
    net.loss(x, y).backward()
    net.take_snapshot()
    other = gan(seed=1, buffer=4)
    other.load_state_dict(net.state_dict())
    losses = []
    for each in (net, other):
        torch.manual_seed(3)
        losses.append(float(each.loss(x, y).detach()))
    assert losses[0] == losses[1]
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True))
