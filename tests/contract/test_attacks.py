"""What every registered attack must keep, run over the registry: a new attack is tested by existing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.core import norms
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind, entry, names
from assay.subjects.sources.module import ModuleTarget

EPS = {"linf": 0.1, "l2": 0.8, "l1": 3.0, "l0": 6.0}
Make = Callable[..., ModuleTarget]


def budgets() -> list[tuple[str, str]]:
    """Every attack, in linf and l2 where it has a norm."""
    pairs = []
    for name in names("attack"):
        takes = {p.name for p in entry("attack", name).parameters}
        pairs += [(name, norm) for norm in (("linf", "l2") if "norm" in takes else ("linf",))]
    return pairs


def attack_of(name: str, norm: str) -> Bound:
    return bind("attack", name, {}, {"eps": EPS[norm], "norm": norm})


def batch(target: ModuleTarget, n: int = 12) -> tuple[Tensor, Tensor]:
    x = torch.rand(n, *target.spec.shape, generator=torch.Generator().manual_seed(1))
    return x, target(x).argmax(1)


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_stays_in_the_ball_and_the_bounds(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target()
    x, y = batch(target)
    made = attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    assert made.shape == x.shape
    assert made.dtype == x.dtype
    assert made.isfinite().all()
    assert not made.requires_grad
    assert (norms.size(made - x, norms.check(norm)) <= EPS[norm] * (1 + 1e-4) + 1e-6).all()
    assert made.min() >= 0
    assert made.max() <= 1


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_leaves_inputs_and_model_untouched(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target()
    target.module.train()
    weights = {k: v.clone() for k, v in target.module.state_dict().items()}
    x, y = batch(target)
    before = x.clone(), y.clone()
    attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert target.module.training
    for key, value in target.module.state_dict().items():
        assert torch.equal(value, weights[key])
    for weight in target.module.parameters():
        assert weight.grad is None
        assert weight.requires_grad


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_a_row_does_not_depend_on_its_batch(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target()
    x, y = batch(target)
    attack, rng = attack_of(name, norm), Stream(0).rows(torch.arange(len(x)))
    whole = attack(target, x, y, rng=rng)
    for i in range(len(x)):
        one = attack(target, x[i : i + 1], y[i : i + 1], rng=rng[torch.tensor([i])])
        assert torch.allclose(whole[i : i + 1], one, atol=1e-5)


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_same_randomness_same_bytes(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target()
    x, y = batch(target)
    attack = attack_of(name, norm)
    torch.manual_seed(1)
    first = attack(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    torch.manual_seed(2)  # the global generator must play no part
    assert torch.equal(first, attack(target, x, y, rng=Stream(0).rows(torch.arange(len(x)))))


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_empty_batch(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target()
    x, y = batch(target, 0)
    assert attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(0))).shape == x.shape


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_fools_a_linear_model_that_can_be_fooled(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target()
    x = (0.5 + 0.02 * torch.randn(64, *target.spec.shape, generator=torch.Generator().manual_seed(3))).clamp(0, 1)
    y = target(x).argmax(1)
    made = attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(64)))
    # The margin of these points is far below what the ball allows: 16 weights of size about 1, eps 0.1 each.
    assert (target(made).argmax(1) != y).float().mean() > 0.9


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_does_not_loop_over_cases(name: str, norm: str, linear_target: Make) -> None:
    """Batched attacks call the model as often for 64 rows as for the row of them that takes longest."""
    target = linear_target()
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    hook = target.module.register_forward_hook(count)
    x, y = batch(target, 64)
    attack, rng = attack_of(name, norm), Stream(0).rows(torch.arange(64))
    attack(target, x, y, rng=rng)
    together, most = calls, 0
    for i in range(0, 64, 4):
        calls = 0
        attack(target, x[i : i + 1], y[i : i + 1], rng=rng[torch.tensor([i])])
        most = max(most, calls)
    hook.remove()
    assert 0 < together <= 2 * most + 2


def test_there_are_attacks() -> None:
    assert {"fgsm", "bim", "mim", "pgd"} <= set(names("attack"))
