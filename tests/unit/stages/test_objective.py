"""One look at a case: scores, slope, and three ways to the same second derivative."""

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.registry import Bound, bind
from assay.stages.objective import CURVATURES, Look, choose
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((5,), (0.0, 1.0), ("a", "b", "c"))


def bench(middle: nn.Module, dtype: torch.dtype = torch.float64) -> Bench:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), middle, nn.Linear(8, 8), middle, nn.Linear(8, 3)).to(dtype)
    return Bench(ModuleTarget(net, SPEC))


def cases(n: int = 12, dtype: torch.dtype = torch.float64) -> Cases:
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(n, 5, generator=rng, dtype=dtype)
    made = Cases.of(x, torch.randint(3, (n,), generator=rng))
    return made.note(seed_x=(x + 0.05 * torch.rand(n, 5, generator=rng, dtype=dtype)).clamp(0, 1))


def scores(*texts: str) -> dict[str, Bound]:
    return {text: bind("score", text, {}, {"eps": 0.1, "norm": "linf"}) for text in texts}


def look(*texts: str, curvature: str = "double") -> Look:
    return Look(scores(*texts), {text: float(i + 1) for i, text in enumerate(texts)}, scores("fol", "zol"), curvature)


def by_differences(seen: Look, ground: Bench, some: Cases) -> Tensor:
    """The slope of the objective by central differences of its value."""

    def value(x: Tensor) -> Tensor:
        moved = some.with_x(x)
        parts = [weight * seen.objective[name](ground, moved) for name, weight in seen.weights.items()]
        return torch.stack(parts).sum(0)

    step = 1e-6 * torch.eye(5, dtype=some.x.dtype)
    return torch.stack([(value(some.x + d) - value(some.x - d)) / 2e-6 for d in step], 1)


@pytest.mark.parametrize("curvature", ["double", "forward"])
def test_the_slope_is_the_derivative_of_the_objective(curvature: str) -> None:
    ground, some = bench(nn.Tanh()), cases()
    seen = look("fol", "true_prob", "rivals", curvature=curvature)
    assert torch.allclose(seen(ground, some).info["slope"], by_differences(seen, ground, some), atol=1e-6)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("form", [{"norm": "linf"}, {"norm": "l2"}, {"norm": "l2", "exact": True}])
def test_all_ways_agree_where_the_net_is_piecewise_linear(curvature: str, form: dict[str, object]) -> None:
    ground, some = bench(nn.ReLU()), cases()
    objective = {"fol": bind("score", "fol", form, {"eps": 0.1}), "rivals": bind("score", "rivals", {}, {})}
    seen = Look(objective, {"fol": 1.0, "rivals": -2.0}, {}, curvature)
    assert torch.allclose(seen(ground, some).info["slope"], by_differences(seen, ground, some), atol=1e-6)


def test_the_linear_way_is_wrong_on_a_curved_net_and_is_not_chosen() -> None:
    ground, some = bench(nn.Tanh()), cases(64)
    right, wrong = (look("fol", curvature=c)(ground, some).info["slope"] for c in ("double", "linear"))
    assert not torch.allclose(right, wrong, rtol=0.05)
    choice = choose(look("fol"), ground, some)
    assert choice.milliseconds["linear"] is None
    assert choice.curvature in ("double", "forward")
    assert choose(look("fol"), bench(nn.ReLU()), some).milliseconds["linear"] is not None


@pytest.mark.parametrize("middle", [nn.GELU(), nn.SiLU(), nn.Softplus()])
def test_a_net_that_bends_far_from_the_seeds_only_is_found_out(middle: nn.Module) -> None:
    """Scaled up, these are all but piecewise linear; it shows where the search leads, not at the seeds."""
    ground, some = bench(middle), cases(64)
    with torch.no_grad():
        for weight in ground.target.module[0].parameters():  # type: ignore[attr-defined]  # a ModuleTarget
            weight.mul_(8.0)
    assert choose(look("fol", "true_prob"), ground, some).milliseconds["linear"] is None


def test_a_net_without_forward_derivatives_falls_back_to_double() -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2.0

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            return grad * 2.0

    class Wrapped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Own.apply(x)  # type: ignore[no-untyped-call]  # torch leaves it so
            return out

    choice = choose(look("fol"), bench(Wrapped()), cases())
    assert choice.curvature == "double"
    with pytest.raises(UsageError, match="needs forward derivatives, which this net does not have; use double"):
        choose(look("fol"), bench(Wrapped()), cases(), "forward")
    assert choice.milliseconds["forward"] is None
    assert choice.milliseconds["linear"] is None


def test_an_asked_way_is_taken_and_an_unknown_one_refused() -> None:
    assert choose(look("fol"), bench(nn.ReLU()), cases(), "forward").curvature == "forward"
    with pytest.raises(UsageError, match="curvature is auto, double, forward, linear; got 'quick'"):
        choose(look("fol"), bench(nn.ReLU()), cases(), "quick")


@pytest.mark.parametrize("curvature", CURVATURES)
def test_scores_noted_are_those_of_the_case(curvature: str) -> None:
    ground, some = bench(nn.ReLU()), cases()
    seen = look("fol", "true_prob", curvature=curvature)(ground, some)
    for name, score in scores("fol", "zol").items():
        assert torch.allclose(seen.info[name], score(ground, some))
        assert not seen.info[name].requires_grad
    assert torch.allclose(seen.info["logits"], ground.logits(some))
    assert not seen.info["slope"].requires_grad
    assert not seen.info["logits"].requires_grad


def test_without_an_objective_no_gradient_is_taken() -> None:
    class Forward(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert not torch.is_grad_enabled()
            return x

    seen = Look(scores={"gini": bind("score", "gini", {}, {})})(bench(Forward()), cases())
    assert set(seen.info) == {"seed_x", "logits", "gini"}


def test_a_memory_that_is_too_small_halves_the_batch_and_changes_nothing() -> None:
    ground, some = bench(nn.ReLU()), cases()
    seen = look("fol", "rivals")
    whole = seen(ground, some)
    ground.chunks.size = 5
    parts = seen(ground, some)
    for name in ("logits", "slope", "fol", "zol"):
        assert torch.allclose(whole.info[name], parts.info[name], atol=1e-12)


def test_no_cases_no_trouble() -> None:
    for curvature in CURVATURES:
        seen = look("fol", "rivals", curvature=curvature)(bench(nn.ReLU()), cases()[slice(0, 0)])
        assert seen.info["slope"].shape == (0, 5)


def test_a_confident_net_has_a_finite_slope() -> None:
    ground = bench(nn.ReLU(), torch.float32)
    with torch.no_grad():
        for weight in ground.target.module.parameters():  # type: ignore[attr-defined]  # a ModuleTarget
            weight.mul_(30.0)
    for curvature in CURVATURES:
        seen = look("fol", "true_prob", "rivals", curvature=curvature)(ground, cases(dtype=torch.float32))
        assert seen.info["slope"].isfinite().all()


def test_only_a_missing_forward_derivative_is_answered() -> None:
    """Another error of the net is the net's own and comes through."""

    class Fickle(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls > 8:
                raise RuntimeError("the net broke down")
            return x

    with pytest.raises(RuntimeError, match="the net broke down"):
        choose(look("fol"), bench(Fickle()), cases())
