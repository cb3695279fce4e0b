"""Filters and the seeder of RobOT: exact on hand-made cases."""

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((2,), (0.0, 1.0), ("a", "b"))
BENCH = Bench(ModuleTarget(nn.Linear(2, 2), SPEC))


def cases(x: list[list[float]], before: list[list[float]] | None = None, **columns: list[float]) -> Cases:
    n = len(x)
    seed = torch.tensor([[0.6, 0.8]]).repeat(n, 1)  # of length 1
    made = Cases.of(torch.tensor(x), torch.zeros(n, dtype=torch.int64))
    came = torch.tensor(before) if before else torch.zeros(n, 2)
    return made.note(seed_x=seed, before_x=came, **{name: torch.tensor(v) for name, v in columns.items()})


def verdict(name: str, some: Cases, **params: object) -> list[bool]:
    told: list[bool] = bind("filter", name, params)(BENCH, some).tolist()
    return told


def test_within_measures_from_the_seed_in_its_own_length() -> None:
    some = cases([[0.6, 0.8], [0.6, 0.35], [0.6, 0.25], [float("nan"), 0.8]])
    assert verdict("within", some) == [True, True, False, False]
    assert verdict("within", some, relative=0.1) == [True, False, False, False]
    assert verdict("within", some, relative=None, eps=0.46) == [True, True, False, False]
    assert verdict("within", some, relative=None, eps=0.46, norm="l1") == [True, True, False, False]


def test_rises_compares_with_the_best_of_the_seed() -> None:
    some = cases([[0.5, 0.5]] * 3, fol=[0.9, 1.0, 1.1], best_fol=[1.0, 1.0, 1.0])
    assert verdict("rises", some) == [False, True, True]
    assert verdict("rises", some, strict=True) == [False, False, True]
    assert verdict("rises", some, within=0.3) == [False, False, False]
    assert verdict("rises", some, within=0.35) == [False, True, True]


def test_what_no_longer_moves_is_not_kept() -> None:
    """Otherwise a seed whose gradient has vanished would pass its own test for ever."""
    here = [[0.5, 0.5], [0.5, 0.5]]
    some = cases(here, [[0.5, 0.5], [0.5, 0.499]], fol=[2.0, 2.0], best_fol=[1.0, 1.0])
    assert verdict("rises", some) == [False, True]
    flat = some.note(fol=torch.tensor([1e-19, 1e-19]))
    assert verdict("below", flat) == [False, True]
    assert verdict("below", flat, level=1e-20) == [False, False]


class Steps(nn.Module):
    """Class 1 from 0.5 up; sure far away from there, so that the loss has a slope near 0.5 alone."""

    def forward(self, x: Tensor) -> Tensor:
        level = 40 * (x.mean(1, keepdim=True) - 0.5)
        return torch.cat([-level, level], 1)


def test_steep_seeds_are_right_and_have_a_slope() -> None:
    x = torch.tensor([[0.0, 0.0], [0.45, 0.45], [0.55, 0.55], [0.45, 0.45], [1.0, 1.0]])
    data = Cases.of(x, torch.tensor([0, 0, 1, 1, 1]))
    bench = Bench(ModuleTarget(Steps(), SPEC))
    chosen = bind("seeder", "steep", {"count": 5})(bench, data, rng=Stream(0))
    assert chosen.origin.tolist() == [1, 2]
    assert len(bind("seeder", "steep", {"count": 1, "least": -1.0})(bench, data, rng=Stream(0))) <= 1
