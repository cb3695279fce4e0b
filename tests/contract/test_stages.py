"""What every registered stage must keep, run over the registry."""

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.core.randomness import Stream
from assay.core.registry import ENGINE_ARGUMENTS, FOLDERS, Bound, bind, entries, lookup, names
from assay.recipes.recipe import Recipe, Suite, parts_of, resolve
from assay.stages.trainers.loop import Unwatched
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.sources.module import ModuleTarget

SHAPE = (1, 6, 6)
SPEC = InputSpec(SHAPE, (0.0, 1.0), ("a", "b", "c"))


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def bench() -> Bench:
    return Bench(ModuleTarget(net(), SPEC))


def some_cases(n: int = 10) -> Cases:
    rng = torch.Generator().manual_seed(n)
    cases = Cases.of(torch.rand(n, *SHAPE, generator=rng), torch.randint(3, (n,), generator=rng))
    return cases.note(step=torch.arange(n), hits=torch.zeros(n, dtype=torch.int64))


def bound(kind: str, name: str) -> Bound:
    return bind(kind, name, {}, {"eps": 0.1, "norm": "linf"})


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_entry_says_what_it_is(kind: str) -> None:
    assert entries(kind), f"nothing of kind {kind}"
    for entry in entries(kind):
        assert entry.summary.endswith("."), f"{kind} {entry.name}: the summary is one sentence"
        for parameter in entry.parameters:
            assert parameter.type, f"{kind} {entry.name}: parameter {parameter.name} has no type"


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in FOLDERS for n in names(k) if k not in ("recipe", "suite")])
def test_stages_are_plain_functions_with_named_parameters(kind: str, name: str) -> None:
    function = lookup(kind, name)[1]
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert inspect.Parameter.VAR_POSITIONAL not in kinds


@pytest.mark.parametrize("name", names("mutator"))
@pytest.mark.parametrize("n", [0, 1, 10])
def test_mutators(name: str, n: int) -> None:
    stage, ground, cases = bound("mutator", name), bench(), some_cases(n)
    before = cases.x.clone()
    rng = Stream(0).rows(cases.origin)
    made = stage(ground, cases, rng=rng)
    assert made.shape == cases.x.shape
    assert torch.equal(cases.x, before)
    assert torch.equal(made, stage(ground, cases, rng=rng))
    if n:
        assert made.min() >= 0
        assert made.max() <= 1
        assert not torch.equal(made, cases.x)
        alone = stage(ground, cases[slice(0, 1)], rng=rng[slice(0, 1)])
        assert torch.allclose(made[:1], alone, atol=1e-5)


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ("oracle", "schedule") for n in names(k)])
@pytest.mark.parametrize("n", [0, 10])
def test_judges(kind: str, name: str, n: int) -> None:
    verdict = bound(kind, name)(bench(), some_cases(n))
    assert verdict.shape == (n,)
    assert verdict.dtype == torch.bool


@pytest.mark.parametrize("name", names("seeder"))
def test_seeders_choose_among_the_cases(name: str) -> None:
    cases = some_cases(20)
    chosen = bound("seeder", name)(bench(), cases, rng=Stream(0))
    assert 0 < len(chosen) <= 20
    assert torch.equal(chosen.x, cases.x[chosen.origin])
    assert torch.equal(chosen.y, cases.y[chosen.origin])


@pytest.mark.parametrize("name", names("selector"))
@pytest.mark.parametrize("k", [0, 7, 50])
def test_selectors_give_k_distinct_rows(name: str, k: int) -> None:
    cases = some_cases(20)
    rows = bound("selector", name)(bench(), cases, k, rng=Stream(3))
    assert len(rows) == min(k, 20)
    assert len(rows.unique()) == len(rows)
    assert torch.equal(rows, bound("selector", name)(bench(), cases, k, rng=Stream(3)))


def splits() -> Splits:
    cases = some_cases(48).drop("step", "hits")
    return Splits("made", *(Data(f"made/{p}", cases, SPEC) for p in ("train", "val", "test")))


@pytest.mark.parametrize("name", names("trainer"))
def test_trainers_leave_the_module_alone_and_learn(name: str) -> None:
    module = net()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    stage = bind("trainer", name, {"epochs": 2, "batch": 16}, {"eps": 0.05})
    extra = some_cases(8).drop("step", "hits")
    made = stage(module, splits(), extra, rng=Stream(0), watch=Unwatched())
    assert made is not module
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    assert any(not torch.equal(v, before[k]) for k, v in made.state_dict().items())
    again = stage(module, splits(), extra, rng=Stream(0), watch=Unwatched())
    for key, value in made.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), "the same seed must give the same weights"


@pytest.mark.parametrize("name", names("recipe"))
def test_recipes_resolve(name: str) -> None:
    assert isinstance(lookup("recipe", name)[1], Recipe)
    stages = resolve(name, {}, {"eps": 0.1})
    assert stages.name == name
    assert all(isinstance(text, str) for text in stages.config().values())


@pytest.mark.parametrize("name", names("suite"))
def test_suites_resolve(name: str) -> None:
    suite: Any = lookup("suite", name)[1]
    assert isinstance(suite, Suite)
    parts = parts_of(name, {"eps": 0.1, "norm": "linf"}, trained=("fgsm",))
    (attacks,) = parts.values()
    if suite.relative:
        assert ("fgsm" in attacks) == (name == "seen")
    else:
        assert len(attacks) == len(suite.attacks)


def test_engines_fill_in_what_users_cannot() -> None:
    assert set(ENGINE_ARGUMENTS) == {"rng", "watch"}
