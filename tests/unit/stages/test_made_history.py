"""A history made by a short training: from the training part alone, an epoch a snapshot, and all of them mined."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.trainers import dare as module
from assay.stages.trainers.dare import Dare, tuned
from assay.stages.trainers.loop import fit
from assay.stages.trainers.made_history import PLAN, made_history
from assay.stages.trainers.plan import Plan
from assay.subjects.bench import Data, Splits
from assay.subjects.history import Snapshots
from watching import StateKeeper

SPEC = InputSpec((2,), (0.0, 1.0), ("a", "b"))


def part(name: str, n: int, seed: int) -> Data:
    """Two classes that overlap."""
    y = torch.arange(n) % 2
    noise = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return Data(name, Cases.of((0.35 + 0.3 * y[:, None] + 0.2 * noise).clamp(0, 1), y), SPEC)


def splits(held_out: Data | None = None) -> Splits:
    return Splits("parted", part("train", 200, 0), part("val", 60, 1), held_out=held_out)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def weights(made: Snapshots) -> list[Tensor]:
    return [tensor for epoch in made.epochs for tensor in made.read(epoch).values()]


@pytest.mark.parametrize("plan", [PLAN, Plan(3, 50, 0.1)])
def test_an_epoch_of_the_training_part_is_a_snapshot(plan: Plan) -> None:
    keeper = StateKeeper()
    fit(net(), splits().part("train").cases, part("val", 60, 1).cases, plan, rng=Stream(5).at("history"), watch=keeper)
    made = made_history(net(), splits(), Stream(5), plan)
    assert made.made
    assert made.epochs == tuple(range(1, plan.epochs + 1))
    wanted = [tensor for state in keeper.states for tensor in state.weights.values()]
    assert all(torch.equal(a, b) for a, b in zip(weights(made), wanted, strict=True))
    first, last = (dict(made.read(epoch)) for epoch in (made.epochs[0], made.epochs[-1]))
    assert not torch.equal(first["0.weight"], last["0.weight"]), "not the same net again and again"


def test_what_is_held_out_does_not_show_in_it() -> None:
    """The net may not learn from inputs that are mined afterwards."""
    made = [weights(made_history(net(), splits(out), Stream(5))) for out in (None, part("a", 80, 7), part("b", 300, 8))]
    for other in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], other, strict=True))


def best_of_all(made: Snapshots, cases: Cases) -> Tensor:
    """Per input the first epoch that is surest of its class, of all of them; 0 where the net itself is. Written out."""
    nets = [net() for _ in (0, *made.epochs)]
    for epoch, past in zip(made.epochs, nets[1:], strict=True):
        past.load_state_dict(dict(made.read(epoch)))
    with torch.no_grad():
        out = torch.stack([past(cases.x).softmax(1) for past in nets])
    sure = out[:, torch.arange(len(cases)), cases.y]
    right = out.argmax(2) == cases.y
    allowed = right | right[0]
    allowed[0] = True
    return sure.masked_fill(~allowed, -1.0).argmax(0)


def test_all_of_it_is_mined_whatever_since_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """An early snapshot is no unripe net: it is the model a few steps on."""
    out, keeper = part("rest", 120, 9), StateKeeper()
    made = made_history(net(), splits(out), Stream(5), replace(PLAN, lr=1.0, momentum=0.0))  # goes to and fro
    tuned(net(), splits(out), made, Dare(layer="1", slice="all", since=0.9, lr=1e-4), rng=Stream(5), watch=keeper)
    back = Stream(5).at("check").rows(out.cases.origin).uniform(()) < module.CHECKED
    wanted = best_of_all(made, out.cases[~back])
    assert int(wanted[wanted > 0].min()) < 5, "early ones are among the best"
    assert keeper.notes["used"] == int((wanted > 0).sum())
    assert keeper.notes["epochs_mined"] == [int(wanted[wanted > 0].min()), int(wanted.max())]
    # The trainer takes it where it is given no history.
    given: list[Snapshots] = []

    def kept(net: nn.Module, data: Splits, snapshots: Snapshots, how: Dare, **named: Any) -> nn.Module:
        given.append(snapshots)
        return net

    monkeypatch.setattr(module, "tuned", kept)
    bind("trainer", "dare", {"since": 0.9})(net(), splits(out), None, rng=Stream(5), watch=keeper)
    own = weights(made_history(net(), splits(), Stream(5)))
    assert all(torch.equal(a, b) for a, b in zip(weights(given[0]), own, strict=True))
    assert given[0].made
