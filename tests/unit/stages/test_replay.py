"""Trainer replay: what fuzzing finds, when it is made anew, which part of a batch it is, and how a training goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.train import train
from assay.stages.trainers.fuzzed import Fuzzing
from assay.stages.trainers.loop import Moment
from assay.stages.trainers.replay import Fresh
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.time_box import TimeBox
from assay.stages.trainers.watch import Unwatched
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import attacks_in
from assay.subjects.sources.module import ModuleTarget
from sides import SPEC, cases, net, splits
from watching import StateKeeper

ONE = InputSpec((1,), (0.0, 1.0), ("low", "high"))


def edge() -> nn.Module:
    """High from a half on."""
    line = nn.Linear(1, 2)
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[0.0], [4.0]]))
        line.bias.copy_(torch.tensor([0.0, -2.0]))
    return line


def fuzzing(mutate: str, objective: str, steps: int, eps: float = 0.5) -> Fuzzing:
    return Fuzzing.parse(mutate, objective, steps, ModuleTarget(edge(), ONE), eps=eps, norm="linf")


def test_the_first_case_of_another_class_is_kept_by_hand() -> None:
    """Steps of 0.1 down: 0.55 is wrong after one, 0.65 after two, 0.75 never in two; 0.3 is wrong from the start."""
    x = torch.tensor([[0.55], [0.75], [0.3], [0.65]])
    some = Cases(x, torch.ones(4, dtype=torch.int64), torch.tensor([9, 9, 9, 9]))
    fuzz = fuzzing("ascend(lr=0.1, low=1, high=1, scale=rms)", "-true_prob", 2)
    found = fuzz.found(edge(), some, torch.arange(4), Stream(0))
    order = found.origin.argsort()
    assert found.origin[order].tolist() == [0, 3], "rows, not the origins of the cases"
    assert found.x[order].flatten().tolist() == pytest.approx([0.45, 0.45], abs=1e-3)
    assert found.y.tolist() == [1, 1]
    assert not found.info


def test_weights_of_an_objective_count() -> None:
    some = Cases(torch.tensor([[0.55]]), torch.tensor([1]), torch.tensor([0]))
    down = "ascend(lr=0.1, low=1, high=1, scale=rms)"
    assert len(fuzzing(down, "9 * true_prob, zol", 3).found(edge(), some, torch.arange(len(some)), Stream(0))) == 0
    assert len(fuzzing(down, "true_prob, 9 * zol", 3).found(edge(), some, torch.arange(len(some)), Stream(0))) == 1


def test_without_an_objective_every_try_begins_at_the_input() -> None:
    """Else 40 tries would walk out of the ball."""
    some = Cases(torch.full((300, 1), 0.55), torch.ones(300, dtype=torch.int64), torch.arange(300))
    found = fuzzing("noise", "", 40, eps=0.06).found(edge(), some, torch.arange(len(some)), Stream(0))
    assert len(found) > 290
    assert float((found.x - 0.55).abs().amax()) <= 0.06 + 1e-6
    far = Cases(torch.full((300, 1), 0.6), some.y, some.origin)
    assert len(fuzzing("noise", "", 40, eps=0.06).found(edge(), far, torch.arange(len(far)), Stream(0))) == 0


def test_what_has_something_to_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="something to fit"):
        fuzzing("cyclegan", "", 1)
    with pytest.raises(UsageError, match="one step or more"):
        fuzzing("noise", "", 0)
    with pytest.raises(UsageError, match="unknown score"):
        fuzzing("ascend", "fool", 1)
    some = Cases(torch.full((1, 1), 0.55), torch.tensor([1]), torch.tensor([0]))
    with pytest.raises(UsageError, match="climbs an objective, and there is none"):
        fuzzing("ascend", "", 1).found(edge(), some, torch.arange(len(some)), Stream(0))


@pytest.mark.parametrize(("share", "replaced"), [(0.5, [1, 3, 5]), (1 / 3, [1, 3]), (1.0, [1, 3, 5])])
def test_a_share_of_a_batch_is_replaced_by_its_own_cases(share: float, replaced: list[int]) -> None:
    """Inputs above 0.5 by less than the one step have a case: those of places 1, 3 and 5."""
    x = torch.tensor([[0.9], [0.52], [0.9], [0.53], [0.9], [0.54]])
    some = Cases(x, torch.ones(6, dtype=torch.int64), torch.arange(6))
    fresh = Fresh(fuzzing("ascend(lr=0.1, low=1, high=1, scale=rms)", "-true_prob", 1), None, 1, share, Stream(0))
    fresh.begin(edge(), some, 0, {})
    ids = torch.tensor([5, 4, 3, 2, 1, 0])
    (made,) = fresh.batch(edge(), x[ids], some.y, ids, Moment(Stream(0), 0.0))
    away = (made - x[ids]).flatten()
    assert ids[away != 0].sort().values.tolist() == (replaced if share != 1 / 3 else [3, 5])
    assert away[away != 0].tolist() == pytest.approx([-0.1] * len(replaced), abs=1e-3)


def test_the_rest_is_attacked_where_an_attack_is_named() -> None:
    x = torch.tensor([[0.9], [0.52], [0.9], [0.9]])
    some = Cases(x, torch.ones(4, dtype=torch.int64), torch.arange(4))
    rest = Searches("fgsm(early_stop=false)", edge(), ONE, eps=0.2, norm="linf", batch=4)
    fresh = Fresh(fuzzing("ascend(lr=0.1, low=1, high=1, scale=rms)", "-true_prob", 1), rest, 1, 0.25, Stream(0))
    fresh.begin(edge(), some, 0, {})
    (made,) = fresh.batch(edge(), x, some.y, some.origin, Moment(Stream(0), 0.0))
    assert made.flatten().tolist() == pytest.approx([0.7, 0.42, 0.7, 0.7], abs=1e-3)


def test_cases_are_made_anew_against_the_net_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Tensor, Tensor]] = []
    found = Fuzzing.found

    def watched(self: Fuzzing, net: nn.Module, some: Cases, which: Tensor, rng: Stream) -> Cases:
        asked.append((next(net.parameters()).detach().clone(), which))
        return found(self, net, some, which, rng)

    monkeypatch.setattr(Fuzzing, "found", watched)
    keeper, start = StateKeeper(), net()
    bind("trainer", "replay", {"epochs": 5, "batch": 100, "lr": 0.02, "eps": 0.1, "every": 2})(
        start, splits(), None, rng=Stream(0), watch=keeper
    )
    after = [next(start.parameters()).detach(), *(state.weights["0.weight"] for state in keeper.states)]
    for epoch in (0, 2, 4):
        met = torch.cat([which for mine, which in asked if torch.equal(mine, after[epoch])])
        assert met.sort().values.tolist() == list(range(len(splits().part("train")))), "each input once in a period"
    assert sum(len(which) for _, which in asked) == 3 * len(splits().part("train"))
    told = [row["fresh"] for row in keeper.states[-1].log]
    assert told[0] == told[1]
    assert told[2] == told[3] > 0
    assert told[4] > 0


@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
@pytest.mark.parametrize("mutate", ["ascend(lr=0.02, scale=rms)", "noise"])
def test_a_training_that_goes_on_in_the_middle_of_a_period_ends_the_same(epoch: int, mutate: str) -> None:
    how = {"epochs": 5, "batch": 100, "lr": 0.02, "eps": 0.1, "every": 3, "mutate": mutate}
    how |= {"objective": ""} if mutate == "noise" else {}
    whole = StateKeeper()
    bind("trainer", "replay", how)(net(), splits(), None, rng=Stream(0), watch=whole)
    rest = StateKeeper(whole.states[epoch - 1])
    bind("trainer", "replay", how)(net(), splits(), None, rng=Stream(0), watch=rest)
    assert len(rest.states) == 5 - epoch
    last, other = whole.states[-1], rest.states[-1]
    assert all(torch.equal(tensor, other.weights[name]) for name, tensor in last.weights.items())
    assert [row["fresh"] for row in last.log] == [row["fresh"] for row in other.log]


def test_the_state_on_disk_holds_what_it_takes(tmp_path: Path) -> None:
    data = load_splits("digits")
    few = replace(data, train=data.part("train")[:256], val=data.part("val")[:64])
    how: dict[str, Any] = {"trainer": "replay(every=2)", "params": {"epochs": 4, "batch": 32, "lr": 0.01}, "eps": 0.1}
    whole = train("mlp", few, tmp_path / "whole.safetensors", **how)
    assert whole.log[-1]["fresh"] > 0

    class Stop(Exception):
        pass

    def stop_in_fourth(numbers: Any) -> None:
        if numbers["epoch"] > 3.3:
            raise Stop

    with pytest.raises(Stop):
        train("mlp", few, tmp_path / "cut.safetensors", progress=stop_in_fourth, **how)
    resumed = train("mlp", few, tmp_path / "cut.safetensors", **how)
    for row, same in zip(whole.log, resumed.log, strict=True):
        assert row | {"seconds": 0} == same | {"seconds": 0}


def test_it_learns_to_withstand() -> None:
    held = {}
    for trainer, more in (("plain", {}), ("replay", {"eps": 0.15, "share": 1.0, "every": 1})):
        fit = bind("trainer", trainer, {"epochs": 30, "batch": 40, "lr": 0.02, **more})
        module = fit(net(), splits(), None, rng=Stream(0), watch=Unwatched()).eval()
        searches = Searches("pgd(steps=20)", module, SPEC, eps=0.15, norm="linf", batch=100)
        held[trainer] = searches.judge(Stream(1))(module, cases(200, 2))["score"]
    assert held["plain"] <= 0.4
    assert held["replay"] >= 0.7


def test_which_attacks_a_training_has_seen() -> None:
    assert attacks_in({"attack": "pgd(steps=10), pgd(norm=l2, eps=0.5)"}) == [
        ("pgd", {"steps": 10}),
        ("pgd", {"norm": "l2", "eps": 0.5}),
    ]
    assert attacks_in({"attack": "", "mutate": 'attacked(attack="fgsm(eps=0.1)")'}) == [("fgsm", {"eps": 0.1})]


def test_a_short_time_makes_cases_of_what_it_meets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of part of the inputs, as a time box makes them."""

    def three_of_two_steps(box: TimeBox, log: object) -> int:
        box.steps = 2
        return 3

    monkeypatch.setattr(TimeBox, "begin", three_of_two_steps)
    keeper = StateKeeper()
    bind("trainer", "replay", {"batch": 10, "lr": 0.02, "eps": 0.1, "every": 2})(
        net(), splits(), None, rng=Stream(0), watch=keeper
    )
    known = [int((state.memory[".known"] != 0).sum()) for state in keeper.states]
    assert known[0] == known[2] == 20 < known[1] <= 40, "a period, its second epoch, a new period"
    whole, rest = keeper.states[-1], StateKeeper(keeper.states[0])
    bind("trainer", "replay", {"batch": 10, "lr": 0.02, "eps": 0.1, "every": 2})(
        net(), splits(), None, rng=Stream(0), watch=rest
    )
    for row, same in zip(whole.log, rest.states[-1].log, strict=True):
        assert row | {"seconds": 0} == same | {"seconds": 0}, "with the same passes and cases"


def test_a_training_that_goes_on_gives_the_same_bytes_whatever_batches_its_inputs_came_in() -> None:
    """Rounding depends on which inputs are asked about together."""
    data = load_splits("digits")
    few = replace(data, train=data.part("train")[:300], val=data.part("val")[:40])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = bind("model", "mlp", {"shape": (1, 8, 8), "classes": 10})()
    how = {"epochs": 4, "batch": 32, "lr": 0.01, "eps": 0.1, "every": 4}
    whole = StateKeeper()
    bind("trainer", "replay", how)(module, few, None, rng=Stream(0), watch=whole)
    rest = StateKeeper(whole.states[1])
    bind("trainer", "replay", how)(module, few, None, rng=Stream(0), watch=rest)
    assert [row["loss"] for row in whole.states[-1].log] == [row["loss"] for row in rest.states[-1].log]
    assert [row["passes"] for row in whole.states[-1].log] == [row["passes"] for row in rest.states[-1].log]
