"""The training loop: what it learns, what it keeps, how it resumes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.precision import half_precision
from assay.core.randomness import Stream
from assay.engines.train import train
from assay.stages.trainers.augment import Augmentation
from assay.stages.trainers.loop import Task, fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.bench import held_out
from assay.subjects.data.load import load_data, load_splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target


def blobs(n: int = 200) -> Cases:
    """Two classes that a linear net can part."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 2
    return Cases.of((0.3 + 0.4 * y[:, None] + 0.1 * torch.randn(n, 2, generator=rng)).clamp(0, 1), y)


class Keeper(Unwatched):
    """Keeps the log of every epoch, and the weights."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    def epoch(self, state: State, net: nn.Module) -> None:
        self.states.append({"log": dict(state.log[-1]), "weights": state.weights, "best": state.best})


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("plan", [Plan(8, 20, 0.05), Plan(8, 20, 0.1, "sgd", "step"), Plan(8, 20, 0.05, ema=0.9)])
def test_learns_to_part_two_blobs(plan: Plan) -> None:
    keeper = Keeper()
    trained = fit(net(), blobs(), blobs(), plan, rng=Stream(0), watch=keeper)
    assert keeper.states[-1]["log"]["val_accuracy"] > 0.95
    assert (trained(blobs().x).argmax(1) == blobs().y).float().mean() > 0.95


class OwnWay(nn.Sequential):
    """A net whose way forward somebody wrote, and speaks of numbers as if they lay in the usual order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self[1](self[0](x))
        out: torch.Tensor = self[3](seen.view(len(x) * 2, 4).view(len(x), 8))
        return out


def convolving(kind: type[nn.Sequential] = nn.Sequential) -> nn.Sequential:
    torch.manual_seed(0)
    return kind(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 2))


def shades() -> Cases:
    y = torch.arange(40) % 2
    return Cases.of((0.2 + 0.6 * y[:, None, None, None]).expand(-1, 1, 6, 6).clone(), y)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("kind", [nn.Sequential, OwnWay])
def test_convolutions_learn_with_channels_last_where_nobody_wrote_their_way(
    kind: type[nn.Sequential], *, halved: bool
) -> None:
    laid = []

    class Look(Unwatched):
        def epoch(self, state: State, net: nn.Module) -> None:
            laid.append(net.get_parameter("1.weight").is_contiguous())

    given = convolving(kind)
    with half_precision(torch.device("cpu"), asked=halved):
        trained = fit(given, shades(), shades(), Plan(6, 10, 0.05), rng=Stream(0), watch=Look())
    assert laid == [kind is OwnWay] * 6
    assert all(weight.is_contiguous() for weight in (*given.parameters(), *trained.parameters()))
    assert bool((trained(shades().x).argmax(1) == shades().y).all())


def test_an_average_that_was_kept_lies_as_one_that_was_not() -> None:
    """A teacher computes with it, and the order of numbers changes what they are rounded to."""
    whole = shades()
    kept: list[State] = []

    class Stopped(Unwatched):
        def resume(self) -> State | None:
            weights = {name: tensor.contiguous() for name, tensor in convolving().state_dict().items()}
            kept.append(
                State(1, weights, {}, dict(weights), weights, [{"score": 0.1, "val_loss": 1.0, "seconds": 1.0}])
            )
            return kept[0]

    fit(convolving(), whole, whole, Plan(2, 10, 0.05, ema=0.9, distil=0.5), rng=Stream(0), watch=Stopped())
    assert not kept[0].average["1.weight"].is_contiguous()


def test_the_best_epoch_is_returned_not_the_last() -> None:
    """A judge that likes the second epoch most gets the weights of the second epoch."""
    scores = iter([0.1, 0.9, 0.3, 0.2])
    keeper = Keeper()
    trained = fit(
        net(),
        blobs(),
        blobs(),
        Plan(4, 20, 0.05),
        rng=Stream(0),
        watch=keeper,
        judge=lambda net, val: {"score": next(scores), "val_loss": 0.0, "val_accuracy": 0.0},
    )
    second = keeper.states[1]["weights"]
    assert all(torch.equal(value, second[key]) for key, value in trained.state_dict().items())


def test_the_average_is_what_ema_says() -> None:
    """One batch an epoch: average_t = k average_{t-1} + (1 - k) weights_t, k growing up to 0.2."""
    keeper = Keeper()
    module = net()
    fit(module, blobs(20), blobs(20), Plan(3, 20, 0.1, "sgd", ema=0.2), rng=Stream(0), watch=keeper)
    average = module.state_dict()["0.weight"].clone()
    for kept, state in zip((1 / 10, 2 / 11, 0.2), keeper.states, strict=True):
        average = kept * average + (1 - kept) * state["weights"]["0.weight"]
    best = max(range(3), key=lambda i: (keeper.states[i]["log"]["score"], -keeper.states[i]["log"]["val_loss"]))
    if best == 2:
        assert torch.allclose(keeper.states[2]["best"]["0.weight"], average, atol=1e-6)
    else:
        assert not torch.allclose(keeper.states[2]["best"]["0.weight"], keeper.states[2]["weights"]["0.weight"])


def test_unlabelled_cases_are_left_out_of_training() -> None:
    cases = blobs(40)
    hidden = Cases(cases.x, torch.where(torch.arange(40) < 20, -1, cases.y), cases.origin)
    keeper = Keeper()
    fit(net(), hidden, cases, Plan(1, 10, 0.1), rng=Stream(0), watch=keeper)
    alone = Keeper()
    fit(net(), cases[slice(20, 40)], cases, Plan(1, 10, 0.1), rng=Stream(0), watch=alone)
    for key, value in keeper.states[0]["weights"].items():
        assert torch.equal(value, alone.states[0]["weights"][key])


def test_a_stopped_training_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    params = {"epochs": 4, "batch": 64, "augment": "shift=0.1", "ema": 0.9}
    whole_set = load_splits("digits")
    few = replace(whole_set, train=whole_set.part("train")[:256])
    train("alexnet(dense=32)", few, tmp_path / "whole.safetensors", params=params)

    class Stop(Exception):
        pass

    def stop_in_third(numbers: Any) -> None:
        if numbers["epoch"] > 2.3:
            raise Stop

    with pytest.raises(Stop):
        train(
            "alexnet(dense=32)",
            few,
            tmp_path / "cut.safetensors",
            params=params,
            progress=stop_in_third,
        )
    assert not (tmp_path / "cut.safetensors").exists()
    done = train("alexnet(dense=32)", few, tmp_path / "cut.safetensors", params=params)
    assert done.epochs == 4
    whole, _ = checkpoint.read(tmp_path / "whole.safetensors")
    resumed, _ = checkpoint.read(tmp_path / "cut.safetensors")
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert not (tmp_path / "cut.state.safetensors").exists()


def test_the_same_command_again_does_nothing_and_another_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    first = train("mlp", "digits", out, params={"epochs": 1})
    stamp = out.read_bytes()
    again = train("mlp", "digits", out, params={"epochs": 1})
    assert out.read_bytes() == stamp
    assert again.val_accuracy == first.val_accuracy
    with pytest.raises(UsageError, match=r"seed: 0 there, 1 asked"):
        train("mlp", "digits", out, params={"epochs": 1}, seed=1)
    train("mlp", "digits", out, params={"epochs": 1}, seed=1, overwrite=True)
    assert out.read_bytes() != stamp


def test_history_keeps_every_epoch_or_the_last(tmp_path: Path) -> None:
    train("mlp", "digits", tmp_path / "a.safetensors", params={"epochs": 3}, history=str(tmp_path / "all"))
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [f"epoch-000{i}.safetensors" for i in (1, 2, 3)]
    train("mlp", "digits", tmp_path / "b.safetensors", params={"epochs": 3}, history="last:2")
    assert sorted(p.name for p in (tmp_path / "b.history").iterdir()) == [f"epoch-000{i}.safetensors" for i in (2, 3)]
    target = load_target(f"mlp@{tmp_path / 'all' / 'epoch-0002.safetensors'}")
    assert target.spec.shape == (1, 8, 8)
    with pytest.raises(UsageError, match=r"last:N"):
        train("mlp", "digits", tmp_path / "c.safetensors", params={"epochs": 1}, history="h", keep="some")


def test_hold_out_is_fixed_and_disjoint(tmp_path: Path) -> None:
    whole = load_splits("digits")
    kept, out = held_out(whole, 0.5)
    assert len(kept.part("train")) == len(out) == 600
    together = torch.cat([kept.part("train").cases.x, out.cases.x]).flatten(1)
    assert torch.equal(together.unique(dim=0), whole.part("train").cases.x.flatten(1).unique(dim=0))
    done = train("mlp", "digits", tmp_path / "w.safetensors", params={"epochs": 1}, hold_out=0.5)
    assert checkpoint.read_meta(done.out)["training"]["hold_out"] == 0.5


def test_facts_travel_with_the_weights(tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    train("lenet5(padding=valid)", "digits", out, params={"epochs": 1})
    meta = checkpoint.read_meta(out)
    assert meta["model"] == "lenet5"
    assert meta["params"]["padding"] == "valid"
    mean = load_data("digits/train").cases.x.mean()
    assert meta["mean"] == [pytest.approx(float(mean), abs=1e-5)]
    assert load_target(f"lenet5@{out}").spec.classes == tuple("0123456789")
    with pytest.raises(UsageError, match="weights are those of a lenet5"):
        load_target(f"lenet4@{out}")


def test_a_lost_training_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lower --lr"):
        train("mlp", "digits", tmp_path / "w.safetensors", params={"epochs": 1, "lr": 1e30, "optimiser": "sgd"})


def test_augmentation_moves_pixels_as_it_says() -> None:
    x = torch.zeros(64, 1, 9, 9)
    x[:, 0, 4, 4] = 1
    rng = torch.Generator().manual_seed(0)
    shifted = Augmentation.parse("shift=0.2").apply(x, rng)
    places = {(int(i) // 9, int(i) % 9) for i in shifted.flatten(1).argmax(1)}
    assert len(places) > 5
    assert all(abs(r - 4) <= 2 and abs(c - 4) <= 2 for r, c in places)
    assert torch.equal(shifted.amax((1, 2, 3)), torch.ones(64)), "whole pixels: no blur"
    edge = torch.zeros(64, 1, 9, 9)
    edge[:, 0, :, 0] = 1
    flipped = Augmentation.parse("flip").apply(edge, rng)
    assert 10 < int(flipped[:, 0, 0, 8].sum()) < 54
    turned = Augmentation.parse("rotate=30").apply(edge, rng)
    assert not torch.allclose(turned, edge)
    with pytest.raises(UsageError, match="did you mean 'shift'"):
        Augmentation.parse("shfit")


def test_shifts_are_those_of_a_warp_and_what_comes_in_is_black() -> None:
    x = torch.rand(32, 3, 7, 12) + 1  # not square, and nothing of it black
    shifts, angle = Augmentation(shift=0.2), Augmentation(shift=0.2, rotate=1e-9)
    moved, warped = (how.apply(x, torch.Generator().manual_seed(3)) for how in (shifts, angle))
    assert torch.allclose(moved, warped, atol=1e-4)
    assert bool((moved == 0).any())
    assert bool((moved[moved != 0] >= 1).all())


class Noted(Unwatched):
    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def note(self, facts: Mapping[str, Any]) -> None:
        self.facts |= facts


def test_what_is_no_image_is_not_moved_and_that_is_told() -> None:
    """As recipe `assay` moves images, and hardens nets of vectors, too."""
    noted, made = Noted(), []
    for augment in ("", "shift=0.5"):
        plan = Plan(epochs=1, batch=8, augment=augment)
        made.append(fit(net(), blobs(40), blobs(40), plan, rng=Stream(0), watch=noted))
        assert noted.facts == ({"augment": "shift=0.5: moves nothing, as inputs are 2"} if augment else {})
    for one, other in zip(*(trained.parameters() for trained in made), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("augment", "shape", "idle"),
    [
        ("shift=0.04", (1, 12, 12), True),
        ("shift=0.04", (1, 12, 13), False),
        ("flip, shift=0.04", (1, 8, 8), False),
        ("rotate=1", (1, 8, 8), False),
        ("rotate=1", (64,), True),
    ],
)
def test_what_moves_nothing(augment: str, shape: tuple[int, ...], idle: bool) -> None:
    one = Augmentation.parse(augment)
    assert one.idle(shape) == idle
    x = torch.rand(200, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one.apply(x, torch.Generator().manual_seed(0)), x) == idle


def test_adversarial_training_beats_plain_under_attack(tmp_path: Path, digits_weights: Path) -> None:
    from assay.engines.evaluate import evaluate

    common = {"epochs": 8, "batch": 32, "lr": 2e-3}  # as those of the plain one
    trainer = "adversarial(eps=0.1, attack=pgd(steps=5, step=0.3, early_stop=false))"
    train("lenet5", "digits", tmp_path / "robust.safetensors", trainer=trainer, params=common)
    left = {
        name: evaluate(f"lenet5@{weights}", "digits/test", suite="pgd", eps=0.1).worst
        for name, weights in {"plain": digits_weights, "robust": tmp_path / "robust.safetensors"}.items()
    }
    assert left["robust"].ci95[0] > left["plain"].ci95[1], left


def test_the_held_out_part_can_be_loaded(tmp_path: Path) -> None:
    out = load_data("digits/held-out(0.5)")
    assert len(out) == 600
    kept = held_out(load_splits("digits"), 0.5)[0].part("train").cases.x.flatten(1)
    both = torch.cat([kept, out.cases.x.flatten(1)])
    assert len(both.unique(dim=0)) == len(load_splits("digits").part("train").cases.x.flatten(1).unique(dim=0))


def test_weights_without_the_history_asked_for_are_not_good_enough(tmp_path: Path) -> None:
    train("mlp", "digits", tmp_path / "w.safetensors", params={"epochs": 1})
    with pytest.raises(UsageError, match="without the history"):
        train("mlp", "digits", tmp_path / "w.safetensors", params={"epochs": 1}, history=str(tmp_path / "h"))


def test_what_a_trainer_returns_is_what_is_saved(tmp_path: Path) -> None:
    """A trainer without epochs of its own, which changes the net after the fact."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import copy, torch\n"
        "def zero(module, data, extra, *, rng, watch):\n"
        "    'Sets every weight to zero.'\n"
        "    made = copy.deepcopy(module)\n"
        "    for weight in made.parameters():\n"
        "        weight.data.zero_()\n"
        "    return made\n"
    )
    done = train("mlp", "digits", tmp_path / "w.safetensors", trainer=f"{file}:zero")
    weights, _ = checkpoint.read(tmp_path / "w.safetensors")
    assert all(not bool(tensor.any()) for tensor in weights.values())
    assert done.val_accuracy < 0.3


def test_momentum_is_the_first_beta_of_adam() -> None:
    """Against torch's own Adam over the same two batches of all cases; 0.9 is what Adam has by itself."""
    for momentum in (0.9, 0.5):
        plain = net()
        optimiser = torch.optim.Adam(plain.parameters(), 0.05, (momentum, 0.999))
        for _ in range(2):
            optimiser.zero_grad()
            nn.functional.cross_entropy(plain(blobs().x), blobs().y).backward()
            optimiser.step()
        plan = Plan(2, 200, 0.05, schedule="constant", momentum=momentum)
        keeper = Keeper()
        fit(net(), blobs(), blobs(), plan, rng=Stream(0), watch=keeper)
        for name, weight in plain.state_dict().items():
            assert torch.allclose(keeper.states[-1]["weights"][name], weight, atol=1e-5)


def test_a_task_is_told_of_every_epoch_before_it_is_judged() -> None:
    told: list[str] = []

    def loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        told.append("step")
        return nn.functional.cross_entropy(net(x), y)

    def judge(net: nn.Module, val: Cases) -> dict[str, float]:
        told.append("judged")
        return {"score": 0.0, "val_loss": 0.0}

    task = Task(loss, epoch=lambda _: told.append("epoch"))
    fit(net(), blobs(), blobs(), Plan(2, 100, 0.05), rng=Stream(0), watch=Unwatched(), judge=judge, task=task)
    assert told == ["step", "step", "epoch", "judged"] * 2
