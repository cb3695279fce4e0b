"""What every registered attack must keep, run over the registry: a new attack is tested by existing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind, entry, names
from assay.subjects.sources.module import ModuleTarget

EPS = {"linf": 0.1, "l2": 0.8, "l1": 3.0, "l0": 6.0}
FEW_QUERIES = 300  # a linear model is fooled by fewer
CANNOT_FOOL = {"corrupt", "spatial"}  # what they do to an image is none of a linear model's weaknesses
SHAPE = (1, 8, 8)
Make = Callable[..., ModuleTarget]


def takes(name: str) -> set[str]:
    return {p.name for p in entry("attack", name).parameters}


def attack_of(name: str, norm: str) -> Bound:
    params = {"queries": FEW_QUERIES} if "queries" in takes(name) else {}
    return bind("attack", name, params, {"eps": EPS[norm], "norm": norm})


def knows(name: str, norm: str) -> bool:
    """Whether the attack works in this norm: one that does not says so, on no inputs too."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    target = ModuleTarget(net, InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c")))
    none = torch.arange(0)
    try:
        attack_of(name, norm)(target, torch.zeros(0, 1, 8, 8), none, rng=Stream(0).rows(none))
    except UsageError as error:
        assert norm in str(error)  # noqa: PT017  the message must name what was asked
        return False
    return True


def budgets(*, bounded: bool = False) -> list[tuple[str, str]]:
    """Every attack in every norm it knows; ``bounded`` ones have a ball to stay in."""
    pairs = []
    for name in names("attack"):
        has = takes(name)
        if bounded and "eps" not in has:
            continue
        known = [norm for norm in norms.NORMS if knows(name, norm)] if "norm" in has else ["linf"]
        assert known, f"{name} knows no norm at all"
        pairs += [(name, norm) for norm in known]
    return pairs


def batch(target: ModuleTarget, n: int = 12) -> tuple[Tensor, Tensor]:
    x = torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1))
    return x, target(x).argmax(1)


@pytest.mark.parametrize(("name", "norm"), budgets())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_has_the_form_of_its_inputs(name: str, norm: str, dtype: torch.dtype, linear_target: Make) -> None:
    """In single and double precision, and on bounds that are not [0, 1]."""
    target = linear_target(SHAPE)
    target.module.to(dtype)
    target.spec = InputSpec(SHAPE, (-1.0, 1.0), target.spec.classes)
    x, y = batch(target)
    x = (2 * x - 1).to(dtype)
    made = attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    assert made.shape == x.shape
    assert made.dtype == dtype
    assert made.isfinite().all()
    assert not made.requires_grad
    assert made.min() >= -1
    assert made.max() <= 1


@pytest.mark.parametrize(("name", "norm"), budgets(bounded=True))
def test_a_bf16_net_does_not_leave_the_ball(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target(SHAPE)
    x, y = batch(target)
    target.module.to(torch.bfloat16)
    made = attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    assert made.dtype == torch.float32
    assert (norms.size(made - x, norms.check(norm)) <= EPS[norm] * (1 + 1e-4) + 1e-6).all()


@pytest.mark.parametrize(("name", "norm"), budgets(bounded=True))
def test_stays_in_the_ball_and_the_bounds(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target(SHAPE)
    x, y = batch(target)
    made = attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    assert (norms.size(made - x, norms.check(norm)) <= EPS[norm] * (1 + 1e-4) + 1e-6).all()
    assert made.min() >= 0
    assert made.max() <= 1


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_leaves_inputs_and_model_untouched(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target(SHAPE)
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
    target = linear_target(SHAPE)
    x, y = batch(target)
    attack, rng = attack_of(name, norm), Stream(0).rows(torch.arange(len(x)))
    whole = attack(target, x, y, rng=rng)
    for i in range(len(x)):
        one = attack(target, x[i : i + 1], y[i : i + 1], rng=rng[torch.tensor([i])])
        assert torch.allclose(whole[i : i + 1], one, atol=1e-5)


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_same_randomness_same_bytes(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target(SHAPE)
    x, y = batch(target)
    attack = attack_of(name, norm)
    torch.manual_seed(1)
    first = attack(target, x, y, rng=Stream(0).rows(torch.arange(len(x))))
    torch.manual_seed(2)  # the global generator must play no part
    assert torch.equal(first, attack(target, x, y, rng=Stream(0).rows(torch.arange(len(x)))))


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_empty_batch(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target(SHAPE)
    x, y = batch(target, 0)
    assert attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(0))).shape == x.shape


@pytest.mark.parametrize(("name", "norm"), [pair for pair in budgets() if pair[0] not in CANNOT_FOOL])
def test_fools_a_linear_model_that_can_be_fooled(name: str, norm: str, linear_target: Make) -> None:
    target = linear_target(SHAPE)
    x = (0.5 + 0.02 * torch.randn(64, *target.spec.shape, generator=torch.Generator().manual_seed(3))).clamp(0, 1)
    y = target(x).argmax(1)
    made = attack_of(name, norm)(target, x, y, rng=Stream(0).rows(torch.arange(64)))
    # The margin of these points is far below what the ball allows: 16 weights of size about 1, eps 0.1 each.
    assert (target(made).argmax(1) != y).float().mean() > 0.9


@pytest.mark.parametrize(("name", "norm"), budgets())
def test_does_not_loop_over_cases(name: str, norm: str, linear_target: Make) -> None:
    """Batched attacks call the model as often for 24 rows as for the row of them that takes longest."""
    target = linear_target(SHAPE)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    hook = target.module.register_forward_hook(count)
    x, y = batch(target, 24)
    attack, rng = attack_of(name, norm), Stream(0).rows(torch.arange(24))
    attack(target, x, y, rng=rng)
    together, most = calls, 0
    for i in range(24):
        calls = 0
        attack(target, x[i : i + 1], y[i : i + 1], rng=rng[torch.tensor([i])])
        most = max(most, calls)
    hook.remove()
    assert together <= 2 * most + 2


def test_there_are_attacks() -> None:
    """Every attack this issue of the registry must have: a file that fails to be read would go unseen."""
    gradient = {"fgsm", "bim", "mim", "pgd", "apgd_ce", "apgd_dlr", "apgd_t", "fab_t", "cw", "deepfool", "jsma"}
    others = {"square", "hop_skip_jump", "boundary", "spatial", "corrupt"}
    assert gradient | others <= set(names("attack"))
