"""Do DeepXplore, DLFuzz and ADAPT find? A defect behind a neuron that no class score leads to, and digits."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.engines.fuzz import fuzz
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target

SPEC = InputSpec((1, 6, 6), (0.0, 1.0), ("down", "up"))
KEY = ((1, 1), (0, 4), (2, 3), (3, 1), (4, 4), (5, 2))  # as many pixels above as below
BAR = 2.1  # of the neuron that sums them: 0.35 a pixel, 0.15 more than seeds have


class Planted(nn.Module):
    """Says whether the upper half is the brighter one, but the contrary where a neuron passes a bar.

    Up to the bar the neuron has no part in the scores, so that their slope does not lead to it.
    """

    def __init__(self, bar: float = BAR) -> None:
        super().__init__()
        self.register_buffer("bar", torch.tensor(bar))
        self.hidden, self.act = nn.Linear(36, 8), nn.ReLU()
        weight = torch.full((8, 6, 6), -0.01)
        weight[0], weight[1], weight[2], weight[5] = 0.0, 0.0, 0.0, 0.0
        for row, column in KEY:
            weight[0, row, column] = 1.0
        weight[1, :3], weight[2, 3:] = 1 / 18, 1 / 18
        bias = torch.tensor([0.0, 0.0, 0.0, 0.2, 0.3, 4.0, 0.1, 0.2])
        with torch.no_grad():
            self.hidden.weight.copy_(weight.flatten(1))
            self.hidden.bias.copy_(bias)

    def forward(self, x: Tensor) -> Tensor:
        neurons = self.act(self.hidden(x.flatten(1)))
        score = neurons[:, 1] - neurons[:, 2]
        score = score * (1 - 2 * (100 * (neurons[:, 0] - self.bar)).clamp(0, 1))
        return torch.stack([-score, score], 1)


def seeds(n: int = 64) -> Data:
    rng = torch.Generator().manual_seed(0)
    x = 0.6 + 0.1 * torch.rand(n, 1, 6, 6, generator=rng)
    up = torch.arange(n) % 2 == 1
    x[up, :, 3:] -= 0.5
    x[~up, :, :3] -= 0.5
    for row, column in KEY:
        x[:, 0, row, column] = 0.2
    return Data("planted", Cases.of(x, up.long()), SPEC)


def passed(x: Tensor) -> Tensor:
    return torch.stack([x[:, 0, row, column] for row, column in KEY]).sum(0) > BAR


BLIND = {
    "dlfuzz": "0.5 * rivals(k=5, logits=true), -true_logit",
    "adapt": "-0.5 * true_logit",
    "deepxplore-alone": "-0.5 * true_logit",
}


@pytest.mark.parametrize(("recipe", "calls"), [("dlfuzz", 5), ("adapt", 16), ("deepxplore-alone", 16)])
def test_a_neuron_is_pushed_over_its_bar(recipe: str, calls: int) -> None:
    """Half of the seeds within so many calls a seed; none without the neurons in the objective."""
    changes: dict[str, Any] = {} if recipe == "dlfuzz" else {"strategy.k": 3}
    found = fuzz(recipe, Planted(), seeds(), run="a", cases=64 * calls, unit=64, changes=changes)
    assert found.broken >= 32
    assert passed(found.load().x).all()
    assert not passed(seeds().cases.x).any()
    changes |= {"objective": BLIND[recipe]}
    assert not fuzz(recipe, Planted(), seeds(), run="b", cases=64 * calls, unit=64, changes=changes).failures


@pytest.mark.parametrize("strategy", ["heavy", "uncovered(k=5)", "rare", "random(k=5)", 'mixed(of="heavy, rare", m=6)'])
def test_other_ways_to_choose_find_it_too(strategy: str) -> None:
    """A quarter of the seeds within 8 small steps."""
    found = fuzz("dlfuzz", Planted(), seeds(), run="a", changes={"strategy": strategy, "schedule.iters": 8})
    assert found.broken >= 16
    assert found.cases <= 64 * 8


@pytest.mark.parametrize("kind", ["light", "occl"])
def test_models_are_driven_apart(kind: str) -> None:
    """A third of the seeds within the 20 steps of the paper; the models agree on all of them before."""
    changes = {"mutate.kind": kind}
    found = fuzz("deepxplore", Planted(), seeds(), run="a", changes=changes, siblings=[Planted(bar=1e9)])
    assert found.broken >= 22
    assert found.cases <= 64 * 20
    assert passed(found.load().x).all()
    assert found.coverage is not None
    assert found.coverage["total"] == 24, "of both nets"


def relatives(model: str, count: int = 2) -> list[nn.Module]:
    """The same net with weights a little off."""
    rng = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        net = copy.deepcopy(load_target(model).module)  # type: ignore[attr-defined]
        with torch.no_grad():
            for weight in net.parameters():
                weight.mul_(1 + 0.1 * torch.randn(weight.shape, generator=rng))
        made.append(net)
    return made


@pytest.mark.parametrize(
    ("recipe", "least", "farthest"), [("dlfuzz", 20, 0.25), ("adapt", 40, 0.5), ("deepxplore-alone", 40, 0.5)]
)
def test_failures_on_digits_hold_when_asked_one_by_one(
    digits_model: str, recipe: str, least: int, farthest: float
) -> None:
    data = load_data("digits/test[:60]")
    found = fuzz(recipe, digits_model, data, run="a")
    cases, target = found.load(), load_target(digits_model)
    assert found.broken >= least
    assert cases.x.min() >= 0
    assert cases.x.max() <= 1
    for x, y in zip(cases.x[:200], cases.y[:200], strict=True):
        assert target(x[None]).argmax(1) != y
    away = (cases.x - cases.info["seed_x"]).flatten(1).norm(dim=1) / cases.info["seed_x"].flatten(1).norm(dim=1)
    assert away.max() <= farthest
    assert torch.equal(cases.info["seed_x"], data.cases.x[cases.origin])
    assert (target(cases.info["seed_x"]).argmax(1) == cases.y).all()


@pytest.mark.parametrize("kind", ["light", "occl", "blackout"])
def test_models_differ_on_digits_when_asked_one_by_one(digits_model: str, kind: str) -> None:
    data, others = load_data("digits/test[:60]"), relatives(digits_model)
    changes = {"mutate.kind": kind, "mutate.height": 5, "mutate.width": 5, "mutate.patch": 3}
    found = fuzz("deepxplore", digits_model, data, run="a", siblings=others, changes=changes)
    cases, nets = found.load(), [load_target(digits_model), *(load_target(net, data=data) for net in others)]
    assert found.failures >= 5
    assert found.failures == found.broken, "one for each seed"
    assert cases.x.min() >= 0
    assert cases.x.max() <= 1
    for x, seed in zip(cases.x, cases.info["seed_x"], strict=True):
        assert len({int(net(x[None]).argmax(1)) for net in nets}) > 1
        assert len({int(net(seed[None]).argmax(1)) for net in nets}) == 1
    change = cases.x - cases.info["seed_x"]
    if kind == "light":
        assert change.abs().max() <= 0.5 + 1e-6
        free = (cases.x > 1e-6) & (cases.x < 1 - 1e-6)
        spread = torch.stack([(c[f].max() - c[f].min()) for c, f in zip(change, free, strict=True) if f.any()])
        assert spread.median() < 1e-5, "every pixel moves alike but where it meets the bounds"
    if kind == "occl":
        assert (change[:, :, 5:] == 0).all()
        assert (change[:, :, :, 5:] == 0).all()
    if kind == "blackout":
        assert (change <= 0).all()


def test_without_another_model_deepxplore_is_its_form_for_one(
    digits_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = fuzz("deepxplore", digits_model, load_data("digits/test[:10]"), run="a")
    assert "this is deepxplore-alone, its form for one model alone" in caplog.text
    assert 'name = "deepxplore-alone"' in (found.run / "campaign.toml").read_text()


@pytest.mark.parametrize("recipe", ["dlfuzz", "adapt", "deepxplore-alone"])
def test_a_run_goes_on_where_it_stood(digits_model: str, recipe: str) -> None:
    """What a strategy has learnt is there again: the counts grow, they do not begin anew."""
    data = load_data("digits/test[:40]")
    told: dict[str, Any] = {"run": "a", "unit": 8}
    first = fuzz(recipe, digits_model, data, cases=300, **told)
    second = fuzz(recipe, digits_model, data, cases=900, **told)
    assert second.cases >= 900 > first.cases >= 300
    assert second.failures > first.failures
    assert first.coverage is not None
    assert second.coverage is not None
    assert second.coverage["covered"] >= first.coverage["covered"]
