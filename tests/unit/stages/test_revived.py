"""Units that are dead begin anew, and nothing else changes."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.engines.train import train
from assay.stages.trainers.loop import fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.ranks import Ranks
from assay.stages.trainers.revived import Dead, revive, revived
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.zoo.lenet import lenet5
from assay.subjects.zoo.resnet import resnet20

RNG = Stream(3)


def made(net: nn.Module, *dead: tuple[str, list[int]]) -> nn.Module:
    """The net with units whose rectifiers get what is far below nought."""
    with torch.no_grad():
        for name, rows in dead:
            layer = net.get_submodule(name)
            assert isinstance(layer, nn.Linear | nn.Conv2d)
            layer.weight[rows] = 0
            assert layer.bias is not None
            layer.bias[rows] = -5.0
    return net


def images(n: int = 40, shape: tuple[int, ...] = (1, 12, 12)) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.rand(n, *shape, generator=rng), torch.randint(3, (n,), generator=rng)


def small_lenet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lenet5(shape=(1, 12, 12), classes=3)


def test_dead_units_begin_anew_and_the_net_answers_as_before() -> None:
    x, y = images()
    net = made(small_lenet(), ("conv2", [0, 7]), ("dense2", [3]))
    before, weights = net(x).detach(), copy.deepcopy(net.state_dict())
    begun = {one.layer: one for one in revive(net, [(x[:30], y[:30]), (x[30:], y[30:])], RNG)}
    assert {0, 7} <= set(begun["conv2"].rows)
    assert 3 in begun["dense2"].rows
    assert torch.allclose(net(x), before, atol=1e-6)
    assert begun["conv2"].each == 9  # a map of three by three
    changed = (net.get_parameter("conv2.weight") != weights["conv2.weight"]).flatten(1).any(1)
    assert changed.nonzero()[:, 0].tolist() == begun["conv2"].rows
    fed = net.get_parameter("dense1.weight")[:, begun["conv2"].columns]
    others = [row for row in range(120) if row not in begun["dense1"].rows]
    assert bool((fed[others] == 0).all())


def test_what_begins_anew_learns() -> None:
    x, y = images()
    net = made(small_lenet(), ("dense1", list(range(100))))
    revive(net, [(x, y)], RNG)
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):  # the first moves what goes out of them, the second what comes in
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    moved = net.get_parameter("dense1.weight").grad
    assert moved is not None
    assert int((moved[:100].abs().amax(1) > 0).sum()) > 90


def test_a_net_that_is_alive_stays_as_it_is() -> None:
    x, y = images()
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.Tanh(), nn.Linear(8, 3))
    weights = copy.deepcopy(net.state_dict())
    assert revive(net, [(x, y)], RNG) == []
    assert all(torch.equal(now, weights[name]) for name, now in net.state_dict().items())
    assert net.training


def test_maps_that_are_normalised_are_left_alone() -> None:
    x, y = images(40, (3, 8, 8))
    net = resnet20(shape=(3, 8, 8), classes=3).eval()
    norm = net.get_submodule("block2_1.norm1")
    assert isinstance(norm, nn.BatchNorm2d)
    with torch.no_grad():
        norm.weight[4], norm.bias[4] = 0.1, -5.0  # no weight of the layer before it changes that
    assert not [one for one in revive(net, [(x, y)], RNG) if "conv" in one.layer]


def test_a_case_that_a_unit_learns_from_keeps_it() -> None:
    """Also where only one part has it."""
    x, y = torch.zeros(6, 1, 12, 12), torch.zeros(6, dtype=torch.long)
    x[5] = 1
    torch.manual_seed(0)  # of one in fifteen another unit learns from nothing, too, but is not dead
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 4), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        net.get_parameter("1.weight")[0], net.get_parameter("1.bias")[0] = 1.0, -100.0  # above nought for that one
        net.get_parameter("1.bias")[1:] = torch.tensor([1.0, 1.0, -100.0])
    begun = revive(net, [(x[:4], y[:4]), (x[4:], y[4:])], RNG)
    assert [one.rows for one in begun] == [[3]]


class Odd(nn.Module):
    """Asks its first layer without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(nn.functional.linear(x, self.first.weight, self.first.bias).relu())
        return out


ODD: dict[str, Callable[[], nn.Module]] = {
    "no layers": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4)),
    "one layer": lambda: nn.Sequential(nn.Linear(4, 3)),
    "not called": lambda: made(Odd(), ("first", [1, 2])),
    "normalised after": lambda: nn.Sequential(
        made(nn.Sequential(nn.Linear(4, 6)), ("0", [1])), nn.ReLU(), weight_norm(nn.Linear(6, 3))
    ),
    "all normalised": lambda: nn.Sequential(weight_norm(nn.Linear(4, 6)), nn.ReLU(), weight_norm(nn.Linear(6, 3))),
    "kept": lambda: made(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), ("0", [1])).requires_grad_(False),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_built_otherwise_is_left_alone(name: str) -> None:
    net, x = ODD[name](), torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    before = copy.deepcopy(net.state_dict())
    assert revive(net, [(x, torch.zeros(20, dtype=torch.long))], RNG) == []
    assert all(torch.equal(now, before[name]) for name, now in net.state_dict().items())


class Skipping(nn.Module):
    """Its second layer is not what the first one feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        out: Tensor = self.last(hidden + self.second(hidden.detach() * 0 + 1).relu())
        return out


def test_a_layer_that_feeds_another_than_the_next_is_left_alone() -> None:
    x = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    net = made(Skipping(), ("first", [1, 2]))
    weights = copy.deepcopy(net.state_dict())
    assert "first" not in {one.layer for one in revive(net, [(x, torch.zeros(20, dtype=torch.long))], RNG)}
    assert torch.equal(net.get_parameter("first.weight"), weights["first.weight"])


class Kept(Unwatched):
    def __init__(self, start: State | None = None) -> None:
        self.start, self.states = start, list[State]()

    def resume(self) -> State | None:
        return self.start

    def epoch(self, state: State, net: nn.Module) -> None:
        self.states.append(copy.deepcopy(state))


def test_a_training_revives_for_its_share_and_goes_on_the_same() -> None:
    x, y = images(96)
    cases, val = Cases.of(x, y), Cases.of(*images(20))
    dead = made(small_lenet(), ("dense1", list(range(60))))
    plan = Plan(4, 32, 1e-3, ema=0.9, revive=0.5)
    without = fit(dead, cases, val, Plan(4, 32, 1e-3, ema=0.9), rng=RNG, watch=Unwatched())
    assert torch.equal(without.get_parameter("dense1.weight")[:60], dead.get_parameter("dense1.weight")[:60])
    kept = Kept()
    whole = fit(dead, cases, val, plan, rng=RNG, watch=kept)
    assert int((whole.get_parameter("dense1.weight")[:60].abs().amax(1) > 0).sum()) == 60
    again = fit(dead, cases, val, plan, rng=RNG, watch=Kept(kept.states[0]))
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_only_the_share_of_a_training_revives() -> None:
    """Units that die in every epoch begin anew before those of its first half alone."""
    x, y = images(96)
    net, seen = small_lenet(), list[bool]()

    class Killing(Unwatched):
        def epoch(self, state: State, net: nn.Module) -> None:
            seen.append(bool((net.get_parameter("dense1.weight")[:60] != 0).all()))
            made(net, ("dense1", list(range(60))))

    made(net, ("dense1", list(range(60))))
    fit(net, Cases.of(x, y), Cases.of(x, y), Plan(4, 32, 1e-3, revive=0.5), rng=RNG, watch=Killing())
    assert seen == [True, True, False, False]


def test_units_that_only_attacks_wake_are_alive() -> None:
    """Dead for every case, not for what is made of it to learn from."""
    x, y = images(64, (4,))
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        net.get_parameter("0.weight")[0], net.get_parameter("0.bias")[0] = 1.0, -10.0
    start = net.get_parameter("0.weight").detach()[0].clone()

    def fit_(*, far: float) -> Tensor:
        plan = Plan(1, 64, 1e-6, revive=1.0)
        cases = Cases.of(x, y)
        done = fit(net, cases, cases, plan, rng=RNG, watch=Unwatched(), batch=lambda _, x, *rest: (x + far,))
        return done.get_parameter("0.weight").detach()[0]

    assert torch.allclose(fit_(far=9.0), start, atol=1e-3)
    assert not torch.allclose(fit_(far=0.0), start, atol=1e-3)


def test_the_optimiser_forgets_and_the_average_goes_along_where_they_are_dead_there_too() -> None:
    x, y = images()
    parts, net = [(x, y)], small_lenet()
    average = {name: tensor.clone() for name, tensor in made(net, ("dense1", [5])).state_dict().items()}
    alive = average["dense2.weight"][:, 9].clone()
    made(net, ("dense1", [9]))  # lately: in the average it works still
    average["dense1.bias"][9] = 1.0
    optimiser = torch.optim.Adam(net.parameters())
    nn.functional.cross_entropy(net(x), y).backward()
    optimiser.step()
    weight = net.get_parameter("dense1.weight")
    optimiser.state[weight]["exp_avg"].fill_(1.0)
    made(net, ("dense1", [5, 9]))
    revived(net, optimiser, average, Ranks(), RNG, lambda: parts)
    kept = optimiser.state[weight]["exp_avg"]
    assert bool((kept[[5, 9]] == 0).all())
    assert bool((kept[0] == 1).all())
    assert torch.equal(average["dense2.weight"][:, 9], alive)


def test_the_average_goes_along() -> None:
    x, y = images()
    net = made(small_lenet(), ("dense1", [5]))
    average = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    revived(net, torch.optim.SGD(net.parameters(), 0.1), average, Ranks(), RNG, lambda: [(x, y)])
    assert all(torch.equal(average[name], now) for name, now in net.state_dict().items())
    assert bool((average["dense1.weight"][5] != 0).all())


@pytest.mark.parametrize("trainer", ["plain", "adversarial", "trades", "mart", "dynamic", "fast", "replay"])
def test_every_trainer_that_has_it_revives(trainer: str, tmp_path: Path) -> None:
    params = {"epochs": 2, "revive": 0.6, "batch": 256}
    eps = None if trainer == "plain" else 0.1
    assert train("lenet5", "digits", tmp_path / "w.safetensors", trainer=trainer, params=params, eps=eps).epochs == 2


def test_a_share_is_a_share(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="share of the training"):
        train("lenet5", "digits", tmp_path / "w.safetensors", params={"epochs": 1, "revive": 2.0})


def test_units_of_maps_are_blocks_of_inputs() -> None:
    assert Dead("conv", "dense", [0, 2], 3).columns == [0, 1, 2, 6, 7, 8]
