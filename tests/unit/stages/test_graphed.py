"""Training steps as CUDA graphs: when they are taken, what a state says, and the same weights as without."""

import json

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.stages.trainers import graphed
from assay.stages.trainers.loop import fit
from assay.stages.trainers.plan import Plan, optimiser_of
from assay.stages.trainers.watch import State, Unwatched

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def net() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def cases(n: int) -> Cases:
    rng = torch.Generator().manual_seed(1)
    return Cases.of(torch.rand(n, 1, 4, 4, generator=rng), torch.randint(3, (n,), generator=rng))


class Kept(Unwatched):
    """Keeps the last state."""

    def __init__(self, start: State | None = None) -> None:
        self.start = start

    def resume(self) -> State | None:
        return self.start

    def epoch(self, state: State, net: nn.Module) -> None:
        self.state = state


class Own(nn.Module):
    """A user's module: what its forward pass does on the host is not known."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def test_only_known_modules_without_hooks_on_a_gpu_are_captured() -> None:
    gpu = torch.device("cuda")
    assert graphed.possible(net(), gpu)
    assert not graphed.possible(net(), torch.device("cpu"))
    assert not graphed.possible(nn.Sequential(Own(), net()), gpu)
    hooked = net()
    hooked.register_forward_hook(lambda *_: None)
    assert not graphed.possible(hooked, gpu)


def test_a_step_that_cannot_be_captured_is_taken_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(graphed.Graphed, "_capture", lambda self, columns: tried.append(len(columns[0])))
    step = graphed.Graphed(lambda x, y: x.sum(), 4)
    sums = [float(step(torch.ones(n, 1), torch.zeros(n))) for n in (4, 4, 4, 4, 4, 2)]
    assert sums == [4, 4, 4, 4, 4, 2]
    assert tried == [4], "tried once, after the first steps, and never again"


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_state_is_plain_numbers_and_tensors_and_is_resumed_from(optimiser: str) -> None:
    plan = Plan(3, 16, 1e-2, optimiser)
    whole, half = Kept(), Kept()
    end = fit(net(), cases(50), cases(20), plan, rng=Stream(0), watch=whole)
    groups = json.loads(json.dumps(whole.state.optimiser["param_groups"]))
    assert all(isinstance(group["lr"], float) for group in groups)

    class Stops(Kept):
        def epoch(self, state: State, net: nn.Module) -> None:
            super().epoch(state, net)
            if state.epoch == 2:
                raise KeyboardInterrupt

    half = Stops()
    with pytest.raises(KeyboardInterrupt):
        fit(net(), cases(50), cases(20), plan, rng=Stream(0), watch=half)
    # As a GPU would have written it: how the optimiser was run there must not matter here.
    half.state.optimiser["param_groups"] = [{**g, "fused": True} for g in half.state.optimiser["param_groups"]]
    again = fit(net(), cases(50), cases(20), plan, rng=Stream(0), watch=Kept(half.state))
    for one, other in zip(end.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_the_rate_is_set_in_place_where_a_graph_reads_it() -> None:
    rate = torch.tensor(0.1)
    one, other = (torch.optim.SGD(net().parameters(), lr) for lr in (rate, 0.1))
    for optimiser in (one, other):
        graphed.set_rate(optimiser, 0.5)
    assert one.param_groups[0]["lr"] is rate
    assert float(rate) == other.param_groups[0]["lr"] == 0.5


@cuda
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_graph_learns_what_the_plain_step_learns(optimiser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(2, 16, 1e-2, optimiser)
    made = []
    for capture in (True, False):
        if not capture:
            monkeypatch.setattr(graphed, "possible", lambda *_: False)
        made.append(fit(net().cuda(), cases(300), cases(20), plan, rng=Stream(0), watch=Kept()))
    for one, other in zip(made[0].state_dict().values(), made[1].state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_what_an_optimiser_kept_lies_as_its_weights_do(optimiser: str) -> None:
    """Fused steps on a GPU refuse others, and a state from the disk lies in the usual order."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first, again = (optimiser_of(Plan(1, optimiser=optimiser), conv, fast=False) for _ in range(2))
    conv(torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))).sum().backward()
    first.step()
    told = graphed.state_of(first)
    for kept in told["state"].values():
        kept |= {name: value.contiguous() for name, value in kept.items() if isinstance(value, Tensor)}
    graphed.load_state(again, told)
    before, after = (optimiser.state[conv.weight] for optimiser in (first, again))
    like = [name for name, value in after.items() if isinstance(value, Tensor) and value.shape == conv.weight.shape]
    assert like
    for name in like:
        assert after[name].stride() == conv.weight.stride()
        assert torch.equal(after[name], before[name])
