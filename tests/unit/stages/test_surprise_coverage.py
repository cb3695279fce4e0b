"""Surprise coverage against a count by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.core.specs import step
from assay.engines.prioritise import prioritise
from assay.stages.coverage.profile import profile_of
from assay.stages.coverage.sc import bucket_of
from assay.stages.surprise.training import held_out, training_traces
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.observer import Observer
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget


def surprise(bench: Bench, cases: Cases, score: str) -> Tensor:
    values: Tensor = bind("score", *step(score))(bench, cases)
    return values.double()


def test_buckets_are_open_below_and_closed_above() -> None:
    some = [-1.0, 0.0, 1e-9, 0.5, 0.5000001, 1.0, 2.0, 2.0000001, torch.inf, torch.nan]
    values = torch.tensor(some, dtype=torch.float64)
    found = bucket_of(values, 4, 0.0, 2.0)
    assert found.tolist() == [-1, -1, 0, 0, 1, 1, 3, -1, -1, -1]
    assert bucket_of(values[:2], 2, -2.0, 2.0).tolist() == [0, 0]


@pytest.mark.parametrize("score", ["dsa", "mdsa", "lsa(jitter=0.1)"])
def test_surprise_coverage_counts_the_buckets_hit(score: str, digits_model: str) -> None:
    bench = Bench(load_target(digits_model), training=load_data("digits/train"))
    observer = Observer.of([bench.target], "auto")
    cases = load_data("digits/test[:90]").cases
    values = surprise(bench, cases, score)
    lower, upper = float(values.quantile(0.1)), float(values.quantile(0.9))
    text = f"sc(score={score}, buckets=20, lower={lower}, upper={upper})"
    criterion = bind("criterion", *step(text))()
    want: set[int] = set()
    added, active = [], []
    for value in values.tolist():
        place = math.ceil((value - lower) / (upper - lower) * 20) - 1
        inside = lower < value <= upper
        added.append(int(inside and place not in want))
        active.append(int(inside))
        want |= {place} if inside else set()
    profile = profile_of(observer, load_data("digits/train"), bench.chunks)
    coverage = criterion.begin(observer, profile)
    seen = observer.all(cases.x, bench.chunks)
    assert torch.allclose(coverage.active(seen), values.double()), "a case alone counts by its surprise"
    assert coverage.gain(seen).tolist() == active
    assert coverage.add(seen[:40]).tolist() + coverage.add(seen[40:]).tolist() == added
    assert (coverage.covered(), coverage.total) == (len(want), 20)
    other = criterion.begin(observer, profile)
    other.merge(coverage.state())
    assert other.gain(seen).sum() == 0


def test_the_upper_end_is_what_held_out_training_data_show(digits_model: str) -> None:
    training = load_data("digits/train")
    bench = Bench(load_target(digits_model))
    out = torch.arange(len(training)) % 10 == 9
    rest = replace(bench, training=replace(training, cases=training.cases[~out]))
    values = surprise(rest, training.cases[out], "dsa")
    observer = Observer.of([bench.target], "last")
    profile = profile_of(observer, training, bench.chunks)
    begun = bind("criterion", "sc", {"buckets": 1})().begin(observer, profile)
    largest = bind("criterion", "sc", {"buckets": 1, "upper": float(values.max())})()
    cases = load_data("digits/test").cases
    seen = observer.all(cases.x, bench.chunks)
    found = begun.gain(seen)
    assert torch.equal(found, largest.begin(observer, profile).gain(seen))
    assert 0 < int((found == 0).sum()) < len(cases) / 2, "some lie beyond, most do not"


@pytest.mark.parametrize("score", ["mlsa", "lsa", "mdsa"])
def test_the_lower_end_is_what_held_out_training_data_show_where_that_is_negative(
    score: str, digits_model: str
) -> None:
    training = load_data("digits/train")
    bench = Bench(load_target(digits_model))
    out = torch.arange(len(training)) % 10 == 9
    rest = replace(bench, training=replace(training, cases=training.cases[~out]))
    shown = surprise(rest, training.cases[out], score)
    shown = shown[shown.isfinite()]
    lower, upper = min(0.0, float(shown.min())), float(shown.max())
    assert (lower < 0) == (score != "mdsa")
    observer = Observer.of([bench.target], "last")
    profile = profile_of(observer, training, bench.chunks)
    cases = load_data("digits/test").cases
    values = surprise(Bench(bench.target, training=training), cases, score)
    found = bind("criterion", "sc", {"score": score})().begin(observer, profile).gain(observer.all(cases.x, Chunks()))
    clear = ((values - lower).abs() > 1e-3) & ((values - upper).abs() > 1e-3)  # batches differ in their last digits
    assert torch.equal(found[clear] > 0, ((values > lower) & (values <= upper))[clear])
    from_zero = bind("criterion", "sc", {"score": score, "lower": 0.0})().begin(observer, profile)
    lost = int((found > 0).sum()) - int(from_zero.gain(observer.all(cases.x, Chunks())).sum())
    assert lost > 0.05 * len(cases) if lower else lost == 0


class Counting(nn.Module):
    """Counts the rows that go through it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3))
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        out: Tensor = self.net(12 * x - 6)
        return out


def test_score_and_criterion_look_at_the_training_data_once() -> None:
    spec, rng = InputSpec((6,), (0.0, 1.0), ("a", "b", "c")), torch.Generator().manual_seed(1)
    known, pool = (Data(n, Cases.of(torch.rand(k, 6, generator=rng)), spec) for n, k in (("train", 400), ("pool", 90)))
    rows, alone = {}, "cam(criterion=sc(score=dsa), layers=last)"
    for by in ("dsa", alone, f"dsa,{alone},ctm(criterion=sc(score=dsa, buckets=9), layers=last)"):
        net = Counting()
        told = prioritise(ModuleTarget(net, spec), pool, by=by, training=known)
        assert all(method.order is not None for method in told.methods)
        rows[by] = net.rows
    tries = 8  # rows by which the layers are found, two for each who asks
    assert all(490 <= count <= 490 + tries for count in rows.values()), rows


def test_held_out_training_cases_are_compared_with_the_others_alone(digits_model: str) -> None:
    bench = Bench(load_target(digits_model), training=load_data("digits/train[:95]"))
    bench.once("surprise something", lambda: 1)
    rest, cases = held_out(bench, "dsa", "last")
    assert (len(cases), rest.training and len(rest.training)) == (9, 86)
    assert "surprise something" not in rest.kept, "what was fitted to all of them"
    asked = Observer.of([bench.target], "last")
    assert torch.allclose(cases.info["neurons"], asked.all(cases.x, Chunks()).neurons, atol=1e-5)
    traces, logits = training_traces(rest, "dsa", "last")
    assert rest.training is not None
    again = asked.all(rest.training.cases.x, Chunks())
    assert torch.allclose(traces, again.neurons, atol=1e-5)
    assert torch.allclose(logits, again.logits, atol=1e-4)


def test_surprise_coverage_says_what_it_lacks(digits_model: str) -> None:
    target = load_target(digits_model)
    with pytest.raises(UsageError, match="give --training"):
        bind("criterion", "sc", {})().begin(Observer.of([target], "auto"), None)
    observer = Observer.of([target], "conv*")
    with pytest.raises(UsageError, match="looks at layer act4"):
        bind("criterion", "sc", {})().begin(observer, profile_of(observer, load_data("digits/train"), Chunks()))


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"score": "gini"}, "must be a surprise"),
        ({"buckets": 0}, "buckets"),
        ({"lower": 2.0, "upper": 1.0}, "range"),
        ({"upper": math.inf}, "upper"),
        ({"lower": -math.inf}, "lower"),
        ({"lower": 1.0, "upper": 1.0}, "range"),
    ],
)
def test_surprise_coverage_refuses_nonsense(params: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        bind("criterion", "sc", params)()
