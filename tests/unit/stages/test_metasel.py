"""MetaSel: its features by hand, its meta-model on separable ones, and what it learns from."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.ids import input_ids
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.imitation import Extraction
from assay.stages.selectors import metasel as module
from assay.stages.selectors.metasel import FLOOR, LEAST, Meta, features, log_probabilities, metasel
from assay.stages.stand_in import begin
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

RNG = Stream(3, ("test",))
SMALL: dict[str, Any] = {"start": 10, "check": 60, "rounds": 2, "labelled": 600}


def test_the_features_of_two_answers_by_hand() -> None:
    own, other = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.2, 0.6, 0.2]]).log()
    ((*told,),) = features(own + 7.0, other - 2.0, temperature=2.0).tolist()  # scores mean the same up to a constant
    logs = [math.log(p) for p in (0.5, 0.25, 0.25, 0.2, 0.6, 0.2)]
    root = [math.sqrt(p) for p in (0.5, 0.25, 0.25, 0.2, 0.6, 0.2)]
    differences = [a - b for a, b in zip(logs[:3], logs[3:], strict=True)]
    sure = [root[0] / sum(root[:3]), root[4] / sum(root[3:])]  # p^(1/T) over their sum, at T = 2
    assert told == pytest.approx([*logs, *differences, 0.0, *sure], abs=1e-6)
    assert features(own, own, 2.0)[0, 9] == 1.0, "the classes are equal"


def test_a_black_box_has_the_features_of_the_model_behind_it(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target()
    x = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        plain = target(x * 40)  # as sure as can be: most probabilities vanish
    asked = Asked(target)(x * 40)
    assert log_probabilities(plain).min() == FLOOR
    np.testing.assert_allclose(features(plain, plain, 1000.0), features(asked, asked, 1000.0), atol=1e-4)


@pytest.mark.parametrize("kind", ["mlp", "logistic"])
def test_the_meta_model_learns_what_is_wrong_and_says_how_likely(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (300, 4)), rng.normal(2.5, 1, (40, 4))])
    x[:, 3] = 5.0  # says nothing, and must not divide by zero
    wrong = np.arange(340) >= 300
    model = Meta.of(x, wrong, kind, RNG)
    told = model.wrong(np.array([[0, 0, 0, 5.0], [2.5, 2.5, 2.5, 5.0]]))
    assert 0 <= told[0] < 0.2 < 0.8 < told[1] <= 1
    again = Meta.of(x, wrong, kind, RNG).wrong(x)
    np.testing.assert_array_equal(again, model.wrong(x))


@pytest.mark.parametrize("count", [0, LEAST - 1, 30 - LEAST + 1])
def test_without_errors_there_is_nothing_to_learn(count: int) -> None:
    with pytest.raises(UsageError, match=f"of 30 labelled ones it gets {count} wrong.*--training"):
        Meta.of(np.zeros((30, 2)), np.arange(30) < count, "mlp", RNG)


class Half(nn.Module):
    """Right on digits but where the picture is darker than most: there it says the next class, half sure."""

    def __init__(self, inner: nn.Module, level: float) -> None:
        super().__init__()
        self.inner, self.level = inner, level

    def forward(self, x: Tensor) -> Tensor:
        scores = self.inner(x)
        dark = x.flatten(1).mean(1) < self.level
        return torch.where(dark[:, None], scores.roll(1, 1) * 0.2, scores)


@pytest.fixture
def half(digits_model: str) -> ModuleTarget:
    own = load_target(digits_model, device="cpu")
    assert isinstance(own, ModuleTarget)
    level = float(load_data("digits/train").cases.x.flatten(1).mean(1).quantile(0.2))
    return ModuleTarget(Half(own.module, level).eval(), own.spec, own.device)


def test_those_come_first_that_the_target_gets_wrong(half: ModuleTarget) -> None:
    pool = load_data("digits/test[:200]").cases
    bench = Bench(half, training=load_data("digits/train"))
    order = metasel(bench, Cases.of(pool.x), len(pool), rng=RNG, **SMALL)
    assert sorted(order.tolist()) == list(range(len(pool)))
    wrong = bench.logits(pool).argmax(1) != pool.y
    count = int(wrong.sum())
    assert 20 < count < 80
    assert float(wrong[order[:count]].double().mean()) > 0.8, "a random order has a fifth of them"
    told = bench.told()
    assert (told["labelled"], told["meta"]) == (600, "mlp")
    assert told["stand_in"]["checked_on"] == 60
    assert 60 < told["labelled_wrong"] < 200
    again = metasel(Bench(half, training=bench.training), Cases.of(pool.x), 7, rng=RNG, **SMALL)
    assert torch.equal(again, order[:7]), "labels of the pool are not looked at, and the same call gives the same"


def test_it_learns_from_labelled_inputs_that_are_nobody_elses(
    half: ModuleTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = load_data("digits/train").cases
    y = every.y.clone()
    y[::3] = UNLABELLED
    data = Data("some", Cases.of(every.x, y), half.spec)
    bench, pool = Bench(half, training=data), Cases.of(every.x[100:150])
    learned: list[Cases] = []
    own = module._labelled

    def noted(*given: Any) -> Cases:
        learned.append(own(*given))
        return learned[-1]

    monkeypatch.setattr(module, "_labelled", noted)
    metasel(bench, pool, 5, rng=RNG, **{**SMALL, "labelled": 5000})
    start = begin(bench, Extraction("lenet5", 0.95, 2, 10, 60), Stream(RNG.seed, ("lbt",)), pool.x)
    taken = {name for some in (*start, pool.x) for name in input_ids(some)}
    names = input_ids(learned[0].x)
    assert not taken & set(names)
    assert len(set(names)) == len(names), "each once"
    true = dict(zip(input_ids(every.x), y.tolist(), strict=True))
    assert [true[name] for name in names] == learned[0].y.tolist()
    rest = {name for name in true if true[name] != UNLABELLED} - taken
    assert set(names) == rest, "all that are left, where fewer are left than asked for"


def test_the_stand_in_is_the_one_of_lbt(half: ModuleTarget) -> None:
    pool = Cases.of(load_data("digits/test[:30]").cases.x)
    bench = Bench(half, training=load_data("digits/train"))
    bind("selector", "metasel", SMALL)(bench, pool, 5, rng=Stream(4, ("a",)))
    made = [name for name in bench.kept if name.startswith("stand-in ")]
    same = {name: SMALL[name] for name in ("start", "check", "rounds")}
    bind("selector", "lbt", {**same, "order": "gini"})(bench, pool, 5, rng=Stream(4, ("b",)))
    assert [name for name in bench.kept if name.startswith("stand-in ")] == made


def test_no_case_needs_no_stand_in(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target()
    assert metasel(Bench(target), Cases.of(torch.zeros(0, 1, 4, 4)), 3, rng=RNG).shape == (0,)
    with pytest.raises(UsageError, match="--training"):
        metasel(Bench(target), Cases.of(torch.zeros(3, 1, 4, 4)), 3, rng=RNG)


@pytest.mark.parametrize("given", [{"meta": "tree"}, {"labelled": 3}, {"temperature": 0.0}])
def test_what_makes_no_sense_is_refused_at_once(given: dict[str, Any]) -> None:
    spec = InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b"))
    with pytest.raises(UsageError, match="metasel"):
        metasel(Bench(ModuleTarget(nn.Flatten(), spec)), Cases.of(torch.zeros(0, 1, 4, 4)), 1, rng=RNG, **given)
