"""DARE: a toy whose answer is known, what may not move, how the learning rate is chosen, how it resumes."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.slicing import Slice
from assay.stages.trainers.dare import RATES, Dare, regression, tuned
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Data, Splits
from assay.subjects.cut import cut_of
from assay.subjects.history import Snapshots
from assay.subjects.sources.module import ModuleTarget
from watching import StateKeeper

SPEC = InputSpec((3,), (0.0, 1.0), ("a", "b", "c"))


def toy() -> nn.Sequential:
    """Each input is seen by two units, and each class adds up its two."""
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3))
    net.load_state_dict(
        {
            "0.weight": torch.eye(3).repeat_interleave(2, 0),
            "0.bias": torch.zeros(6),
            "2.weight": 4 * torch.eye(3).repeat_interleave(2, 1),
            "2.bias": torch.zeros(3),
        }
    )
    return net


def broken(net: nn.Sequential) -> nn.Sequential:
    """The units of class c hardly see their input: all of the class is wrong."""
    weights = net.state_dict()  # shares the net's memory
    weights["0.weight"][4:] *= 0.01
    weights["2.bias"][0] = 0.5
    return net


def cases(n: int = 600, seed: int = 0) -> Cases:
    y = torch.arange(n) % 3
    noise = 0.2 * torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))
    return Cases.of((noise + 0.8 * torch.eye(3)[y]).clamp(0, 1), y)


def data(**parts: Cases) -> Splits:
    made = {name: Data(name, some, SPEC) for name, some in ({"train": cases(), "val": cases(60, 1)} | parts).items()}
    return Splits("toy", **made)


def history() -> Snapshots:
    now = broken(toy())
    past = {name: tensor.clone() for name, tensor in now.state_dict().items()}
    past["0.weight"] = toy().state_dict()["0.weight"]
    worse = {name: torch.zeros_like(tensor) for name, tensor in past.items()}
    return Snapshots.of_weights({1: worse, 2: past, 3: dict(now.state_dict())})


def right(net: nn.Module, some: Cases) -> Tensor:
    """Accuracy on each class."""
    hit = (net(some.x).argmax(1) == some.y).float()
    return torch.stack([hit[some.y == k].mean() for k in range(3)])


QUICK = Dare(layer="1", slice="all", epochs=40, lr=0.05, batch=32, patience=0)


def test_a_class_that_the_past_knew_better_is_restored_and_others_stay() -> None:
    now, fresh, keeper = broken(toy()), cases(300, 5), StateKeeper()
    assert right(now, fresh).tolist() == [1.0, 1.0, 0.0]
    made = tuned(now, data(), history(), QUICK, rng=Stream(0), watch=keeper)
    assert right(made, fresh).tolist() == [1.0, 1.0, 1.0]
    assert keeper.notes["used"] == keeper.notes["used_wrong"] > 150  # class c alone was surer in the past
    assert keeper.notes["epochs_mined"] == [2, 2]
    before, after = now.state_dict(), made.state_dict()
    assert torch.equal(after["0.weight"][:4], before["0.weight"][:4])  # what sees the other classes
    seen = fresh.x[fresh.y == 2]
    units = [nn.functional.linear(seen, w["0.weight"], w["0.bias"]).relu() for w in (after, toy().state_dict())]
    assert (units[0] - units[1]).abs().amax() < 0.1  # the units give what they gave in the past
    for name in ("2.weight", "2.bias"):  # behind the cut
        assert torch.equal(after[name], before[name])


def test_the_held_out_part_is_mined_where_there_is_one() -> None:
    keeper = StateKeeper()
    splits = replace(data(), held_out=Data("rest", cases(90, 7), SPEC))
    tuned(broken(toy()), splits, history(), replace(QUICK, epochs=1), rng=Stream(0), watch=keeper)
    assert keeper.notes["inputs"] + keeper.notes["checked"] == 90
    assert keeper.notes["inputs_from"] == "held-out part"
    keeper = StateKeeper()
    tuned(broken(toy()), data(), history(), replace(QUICK, epochs=1), rng=Stream(0), watch=keeper)
    assert keeper.notes["inputs"] + keeper.notes["checked"] == 600
    assert "training part" in keeper.notes["inputs_from"]


@pytest.mark.parametrize("slice", ["units", "random", "all"])
def test_what_is_outside_of_the_slice_and_statistics_do_not_move(slice: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3))
    net(cases().x)  # statistics of its own
    net.eval()
    past = {1: {name: tensor + 0.1 * torch.randn_like(tensor) if tensor.is_floating_point() else tensor
                for name, tensor in net.state_dict().items()}}  # fmt: skip
    past[1]["1.running_var"] = past[1]["1.running_var"].abs()
    how = Dare(layer="4", slice=slice, epochs=3, lr=0.01, batch=32)
    made = tuned(net, data(), Snapshots.of_weights(past), how, rng=Stream(0), watch=Unwatched()).state_dict()
    before = net.state_dict()
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked", "5.weight", "5.bias"):
        assert torch.equal(made[name], before[name]), name
    same = made["3.weight"] == before["3.weight"]
    assert not same.all()
    if slice != "all":  # 2 of 20 units come in and 2 go out
        assert int((~same).sum()) <= 4
        assert int((made["0.weight"] != before["0.weight"]).any(1).sum()) <= 2


def test_the_learning_rate_is_chosen_by_accuracy_on_inputs_never_learned_from() -> None:
    keeper = StateKeeper()
    how = replace(QUICK, lr=None, epochs=2)
    made = tuned(broken(toy()), data(), history(), how, rng=Stream(0), watch=keeper)
    log = keeper.states[-1].log
    assert [row["lr"] for row in log] == [rate for rate in RATES for _ in range(2)]
    best = max(log, key=lambda row: (row["score"], -row["val_loss"]))
    assert best["lr"] == max(RATES)  # the toy is far from its aim: the longest steps come nearest
    assert all(torch.equal(made.state_dict()[k], v) for k, v in keeper.states[-1].best.items())


@pytest.mark.parametrize("done", range(1, 7))
def test_a_stopped_work_goes_on_and_ends_the_same(done: int) -> None:
    how = replace(QUICK, lr=None, epochs=2)
    whole = StateKeeper()
    made = tuned(broken(toy()), data(), history(), how, rng=Stream(0), watch=whole)
    rest = StateKeeper(whole.states[done - 1])
    again = tuned(broken(toy()), data(), history(), how, rng=Stream(0), watch=rest)
    assert len(rest.states) == 6 - done
    assert all(torch.equal(again.state_dict()[k], v) for k, v in made.state_dict().items())


def test_patience_ends_a_trial() -> None:
    keeper = StateKeeper()
    net = toy()  # nothing to gain: past and present differ by a hair in class c
    past = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    past["0.weight"][4:] *= 1.0001
    how = replace(QUICK, epochs=30, patience=2, lr=1e-9)
    tuned(net, data(), Snapshots.of_weights({1: past}), how, rng=Stream(0), watch=keeper)
    assert len(keeper.states) < 30


def test_the_classifier_itself_moves_without_the_transformation_but_not_its_first_layers() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    past = {1: {name: 2 * tensor for name, tensor in net.state_dict().items()}}
    how = Dare(transform=False, lr=0.01, epochs=2)
    made = tuned(net, data(), Snapshots.of_weights(past), how, rng=Stream(0), watch=Unwatched()).state_dict()
    before = net.state_dict()
    assert all(torch.equal(made[name], before[name]) for name in ("0.weight", "0.bias"))
    assert all(not torch.equal(made[name], before[name]) for name in ("2.weight", "4.weight"))


def test_a_count_limits_the_inputs_used() -> None:
    keeper = StateKeeper()
    tuned(broken(toy()), data(), history(), replace(QUICK, epochs=1, count=17), rng=Stream(0), watch=keeper)
    assert keeper.notes["used"] == 17


def test_without_history_snapshots_are_made_and_said_to_be_ours() -> None:
    keeper = StateKeeper()
    fit = bind("trainer", "dare", {"layer": "1", "slice": "all", "epochs": 1})
    fit(broken(toy()), data(), None, rng=Stream(0), watch=keeper)
    assert keeper.notes["history_made"] is True
    assert keeper.notes["history"].startswith("made by us")


def test_units_outside_of_the_slice_are_not_in_the_loss() -> None:
    net, some, rows = toy(), cases(12), torch.arange(12)
    cut = cut_of(ModuleTarget(net, SPEC), "1")
    chosen = Slice({}, torch.tensor([True, False, False, True, False, False]))

    def loss(moved: int) -> float:
        wanted = cut.output(net, some.x).detach()
        wanted[:, moved] += 2.0
        return regression(net, cut, chosen, wanted).loss(net, some.x, some.y, rows).item()

    assert [loss(unit) for unit in range(6)] == [2.0, 0.0, 0.0, 2.0, 0.0, 0.0]  # 4 in one of the two that count


def test_unlabelled_inputs_are_not_mined_and_since_counts() -> None:
    some = cases(90, 7)
    some.y[:30] = UNLABELLED
    keeper = StateKeeper()
    splits = replace(data(), held_out=Data("rest", some, SPEC))
    tuned(broken(toy()), splits, history(), replace(QUICK, epochs=1), rng=Stream(0), watch=keeper)
    assert keeper.notes["inputs"] + keeper.notes["checked"] == 60
    with pytest.raises(NothingToTest, match="no other epoch"):  # epoch 2 of 3 was the good one
        tuned(broken(toy()), splits, history(), replace(QUICK, since=0.9), rng=Stream(0), watch=Unwatched())


@pytest.mark.parametrize(("name", "layer"), [("dare_last", "softmax"), ("dare_noslice", "1"), ("dare", "1")])
def test_variants_are_cut_where_they_say(name: str, layer: str) -> None:
    keeper = StateKeeper()
    params = {"epochs": 1} | ({} if name == "dare_last" else {"layer": "1"})
    bind("trainer", name, params)(broken(toy()), data(), None, rng=Stream(0), watch=keeper)
    assert keeper.notes["layer"] == layer
    if name == "dare_last":
        assert keeper.notes["sliced"]["units"] == 3  # every class


@pytest.mark.parametrize("head_first", [False, True])
def test_first_layers_are_those_that_run_first(head_first: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"stem": (3, 8), "body": (8, 8), "head": (8, 3)}
            for name in reversed(sizes) if head_first else sizes:
                self.add_module(name, nn.Linear(*sizes[name]))

        def forward(self, x: Tensor) -> Tensor:
            stem, body, head = (self.get_submodule(name) for name in ("stem", "body", "head"))
            out: Tensor = head(body(stem(x).relu()).relu())
            return out

    torch.manual_seed(1)
    net = Net()
    past = {1: {name: 2 * tensor for name, tensor in net.state_dict().items()}}
    how = Dare(transform=False, lr=0.01, epochs=1)
    made = tuned(net, data(), Snapshots.of_weights(past), how, rng=Stream(0), watch=Unwatched()).state_dict()
    still = {name for name, tensor in net.state_dict().items() if torch.equal(tensor, made[name])}
    assert still == {"stem.weight", "stem.bias"}


def test_a_net_of_one_layer_has_nothing_frozen() -> None:
    net = nn.Linear(3, 3)
    past = {1: {name: 2 * tensor for name, tensor in net.state_dict().items()}}
    how = Dare(transform=False, lr=0.01, epochs=1)
    made = tuned(net, data(), Snapshots.of_weights(past), how, rng=Stream(0), watch=Unwatched()).state_dict()
    assert not torch.equal(made["weight"], net.state_dict()["weight"])


def test_refusals() -> None:
    now = broken(toy())
    with pytest.raises(NothingToTest, match="no other epoch"):
        tuned(now, data(), Snapshots.of_weights({1: dict(now.state_dict())}), QUICK, rng=Stream(0), watch=Unwatched())
    for wrong in (
        {"share": 0.0},
        {"count": -1},
        {"epochs": 0},
        {"lr": -1.0},
        {"batch": 0},
        {"patience": -1},
        {"slice": "unit"},
        {"since": 1.5},
    ):
        with pytest.raises(UsageError):
            tuned(now, data(), history(), replace(QUICK, **wrong), rng=Stream(0), watch=Unwatched())
    fit = bind("trainer", "dare", {})
    with pytest.raises(UsageError, match="not from cases"):
        fit(now, data(), cases(3), rng=Stream(0), watch=Unwatched())
