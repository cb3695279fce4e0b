"""Self-distillation: what the running average of a net says is part of what it learns, the same in every trainer."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.losses import boosted, divergence, smoothed
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.ranks import Ranks
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.teacher import Teacher
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Data, Splits, with_validation
from assay.subjects.data.load import load_splits
from sides import SPEC, cases, net
from watching import StateKeeper

BATCH, DISTIL, HEAT, BETA, RATE = 40, 0.3, 2.0, 1.5, 0.5
MOVED = 0.05
HOW = {"batch": BATCH, "lr": RATE, "optimiser": "sgd", "momentum": 0.0, "schedule": "constant", "eps": 0.1, "ema": 0.9}


def few() -> Splits:
    """One batch an epoch."""
    return Splits("few", Data("train", cases(BATCH), SPEC), Data("val", cases(BATCH, 1), SPEC))


def targets(teacher: nn.Module, some: Cases) -> Tensor:
    with torch.no_grad():
        said = (teacher(some.x) / HEAT).softmax(1)
    return torch.as_tensor((1 - DISTIL) * F.one_hot(some.y, 2) + DISTIL * said)


def test_targets_are_those_of_the_averaged_weights_in_evaluation_mode() -> None:
    student = nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    other = nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    other[1].running_mean.fill_(0.3)  # type: ignore[operator]
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    some, plan = cases(20), Plan(1, 7, ema=0.9, distil=DISTIL, temperature=HEAT)
    soft = Teacher(student, plan, Ranks()).soft(some.x, some.y, other.state_dict())
    torch.testing.assert_close(soft, targets(other.eval(), some))
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())
    assert all(part.training for part in student.modules())
    assert all(weight.requires_grad for weight in student.parameters())


def test_cross_entropies_of_probabilities_by_hand() -> None:
    logits, aims = torch.tensor([[0.0, 1.0, -1.0]]), torch.tensor([[0.2, 0.7, 0.1]])
    log = logits.log_softmax(1)
    assert smoothed(logits, aims, 0.0).item() == pytest.approx(-float((aims * log).sum()), abs=1e-6)
    rival = float(log.exp()[0, 1])
    right = -float((aims * log).sum()) - torch.log(torch.tensor(1.0001 - rival)).item()
    assert boosted(logits, torch.tensor([0]), aims).item() == pytest.approx(right, abs=1e-6)


def wanted(name: str, module: nn.Module, some: Cases, aims: Tensor) -> Tensor:
    """The loss of each trainer, where attacks add MOVED to every number."""
    clean: Tensor = module(some.x)
    moved: Tensor = module(some.x + MOVED)
    soft = -(aims * (clean if name == "trades" else moved).log_softmax(1)).sum(1)
    apart = divergence(moved, clean.log_softmax(1))
    if name == "trades":
        return (soft + BETA * apart).mean()
    if name == "mart":
        p = moved.softmax(1)
        rival, own = p.gather(1, 1 - some.y[:, None])[:, 0], clean.softmax(1).gather(1, some.y[:, None])[:, 0]
        return (soft - torch.log(1.0001 - rival) + BETA * apart * (1 - own)).mean()
    return soft.mean()


@pytest.mark.parametrize("name", ["adversarial", "trades", "mart", "dynamic", "fast"])
def test_every_trainer_learns_from_label_and_teacher_by_hand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of one batch: the teacher is the net at the start, then the average after the first step."""
    monkeypatch.setattr(Searches, "made", lambda self, net, x, *rest: x + MOVED)
    more = {"beta": BETA} if name in ("trades", "mart") else {}
    fit = bind("trainer", name, {**HOW, **more, "epochs": 2, "distil": DISTIL, "temperature": HEAT})
    keeper = StateKeeper()
    fit(net(), few(), None, rng=Stream(0), watch=keeper)
    some, student, teacher = cases(BATCH), net(), net()
    for step, state in enumerate(keeper.states):
        loss = wanted(name, student, some, targets(teacher, some))
        slopes = torch.autograd.grad(loss, list(student.parameters()))
        kept = min(0.9, (1 + step) / (10 + step))
        with torch.no_grad():
            for weight, mean, slope in zip(student.parameters(), teacher.parameters(), slopes, strict=True):
                weight.sub_(RATE * slope)
                mean.copy_(kept * mean + (1 - kept) * weight)
        assert state.log[-1]["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
        for weight, told in zip(student.parameters(), state.weights.values(), strict=True):
            torch.testing.assert_close(weight.detach(), told, atol=1e-6, rtol=1e-5)


def test_without_an_average_there_is_no_teacher() -> None:
    wrong: dict[str, dict[str, float]] = {
        "give ema=0.999 too": {"ema": 0.0},
        r"in \[0, 1\)": {"distil": 1.0},
        "above 0": {"temperature": 0.0},
    }
    for why, bad in wrong.items():
        fit = bind("trainer", "adversarial", {**HOW, "distil": 0.5, **bad})
        with pytest.raises(UsageError, match=why):
            fit(net(), few(), None, rng=Stream(0), watch=Unwatched())


def test_a_training_that_goes_on_has_the_same_teacher() -> None:
    fit = bind("trainer", "trades", {**HOW, "batch": 10, "epochs": 4, "distil": 0.5})
    whole = StateKeeper()
    fit(net(), few(), None, rng=Stream(0), watch=whole)
    rest = StateKeeper(whole.states[1])
    fit(net(), few(), None, rng=Stream(0), watch=rest)
    last, other = whole.states[-1], rest.states[-1]
    assert all(torch.equal(tensor, other.weights[name]) for name, tensor in last.weights.items())


def test_texts_of_older_trainings_stay_as_they_were() -> None:
    for name in ("adversarial", "trades", "mart", "dynamic", "fast"):
        plain: Any = bind("trainer", name, {"eps": 0.1})
        assert "distil" not in plain.text
        assert "temperature" not in plain.text
        assert "distil=0.5" in bind("trainer", name, {"eps": 0.1, "distil": 0.5}).text


def test_wrong_labels_are_believed_less() -> None:
    """Two in five labels of digits are drawn at random: the net comes to believe them, its average hardly does."""
    digits = with_validation(load_splits("digits"))
    some, rng = digits.part("train").cases[:400], torch.Generator().manual_seed(0)
    drawn = torch.rand(len(some), generator=rng) < 0.4
    labels = torch.where(drawn, torch.randint(10, some.y.shape, generator=rng), some.y)
    noisy = replace(digits, train=replace(digits.part("train"), cases=replace(some, y=labels)))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        start = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    how = {"epochs": 40, "batch": 40, "lr": 0.01, "schedule": "constant", "ema": 0.99, "eps": 0.03}
    last = {}
    for distil in (0.0, 0.8):
        keeper = StateKeeper()
        fit = bind("trainer", "adversarial", {**how, "distil": distil, "attack": "fgsm(early_stop=false)"})
        fit(start, noisy, None, rng=Stream(0), watch=keeper)
        last[distil] = keeper.states[-1].log[-1]
    assert last[0.8]["val_accuracy"] > last[0.0]["val_accuracy"]
    assert last[0.8]["score"] > last[0.0]["score"] + 0.05


def test_workers_that_would_each_have_another_teacher_are_refused() -> None:
    plan, normalised = Plan(1, 7, ema=0.9, distil=DISTIL), nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4))
    with pytest.raises(UsageError, match="another teacher"):
        Teacher(normalised, plan, Ranks(0, 2))
    Teacher(nn.Linear(9, 4), plan, Ranks(0, 2))
    Teacher(normalised, plan, Ranks())
