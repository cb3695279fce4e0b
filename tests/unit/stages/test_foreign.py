"""Objects of other libraries as attacks, tested on stand-ins that look like each library from outside."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.cli import run as cli
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind, lookup
from assay.core.specs import step, steps
from assay.engines.evaluate import evaluate
from assay.recipes.suite import attacks_of
from assay.subjects.bench import Data
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]


def of(module: str) -> Callable[[type], type]:
    """The class as if it were of that module."""

    def claim(kind: type) -> type:
        kind.__module__ = module
        return kind

    return claim


@of("torchattacks.attack")
class Attack:
    """The base class both torchattacks and foolbox have."""


@of("torchattacks.attacks.fgsm")
class FGSM(Attack):
    """Leaves every trace that a library may: modes, gradients, prints, random state, attributes of its own."""

    def __init__(self, model: nn.Module, eps: float = 0.1, alpha: float = 0.01) -> None:
        self.model, self.eps, self.alpha = model, eps, alpha
        self.attack, self.attack_mode, self.normalization_used = "FGSM", "default", None
        self.supported_mode, self.targeted, self.device = ["default"], False, torch.device("cpu")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        print("noise on stdout")
        assert not self.model.training
        self.seen = len(x)
        at = (x + 1e-3 * torch.rand(x.shape)).requires_grad_()
        nn.functional.cross_entropy(self.model(at), y).backward()
        self.model.train()
        assert at.grad is not None
        return (x + self.eps * at.grad.sign()).clamp(0, 1)


@of("torchattacks.attacks.pgdl2")
class PGDL2(FGSM):
    pass


@of("torchattacks.attacks.cw")
class CW(FGSM):
    """No radius of its own: it moves each row by its place in the batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        del self.eps

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return x + 0.05 * torch.arange(len(x)).view(-1, 1, 1, 1)


@of("art.attacks.evasion.fgm")
class FastGradient:
    def __init__(self, estimator: Any, eps: Any = 0.1, norm: Any = np.inf) -> None:
        self._estimator, self.eps, self.norm, self._targeted, self.verbose = estimator, eps, norm, False, True

    @property
    def estimator(self) -> Any:
        return self._estimator

    @property
    def targeted(self) -> bool:
        return self._targeted

    def generate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        assert x.dtype == np.float32
        assert y.shape == (len(x),)
        assert not self.verbose
        self.estimator.model.weight.grad = torch.ones_like(self.estimator.model.weight)
        sign = np.where(np.random.rand(*x.shape) > 0.5, self.eps, -self.eps)
        return np.asarray(np.clip(x + sign.astype(np.float32), 0, 1))


@of("pyautoattack.autoattack")
class AutoAttack:
    def __init__(self, model: nn.Module, eps: float = 0.1, norm: str = "Linf") -> None:
        self.model, self.epsilon, self.norm, self.seed, self.verbose = model, eps, norm, None, True
        self.attacks_to_run = ["apgd-ce"]

    def run_standard_evaluation(self, x: Tensor, y: Tensor, /, *, batch_size: int = 250) -> tuple[Tensor, Tensor]:
        assert batch_size == len(x)
        assert not self.verbose
        assert self.seed is not None
        torch.manual_seed(self.seed)
        sys.settrace(None)
        return x + self.epsilon * torch.randn(x.shape).sign(), y


def fool(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, eps: float) -> Tensor:
    at = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(nn.functional.cross_entropy(model(at), y), at)
    return x + eps * grad.sign()


@of("foolbox.attacks.base")
class FoolboxAttack:
    pass


FoolboxAttack.__name__ = "Attack"


@of("foolbox.attacks.pgd")
class LinfPGD(FoolboxAttack):
    distance = SimpleNamespace(p=float("inf"))

    def __init__(self, steps: int = 3) -> None:
        self.steps, self._private = steps, 5

    def __call__(self, model: Any, x: Tensor, y: Tensor, *, epsilons: float) -> tuple[Tensor, ...]:
        low, high = model.bounds
        made = fool(model.net, x, y, epsilons).clamp(low, high)
        return made, made, model.net(made).argmax(1) != y


@of("foolbox.attacks.base")
class MinimizationAttack(FoolboxAttack):
    pass


@of("foolbox.attacks.deepfool")
class L2DeepFool(MinimizationAttack):
    distance = SimpleNamespace(p=2)

    def __call__(self, model: Any, x: Tensor, y: Tensor, *, epsilons: float | None) -> tuple[Tensor, ...]:
        made = fool(model.net, x, y, 0.3).clamp(0, 1)
        found = torch.arange(len(x)) % 2 == 0
        return made, made, found


@of("foolbox.attacks.spatial")
class SpatialAttack(FoolboxAttack):
    def __call__(self, model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.flip(-1), x.flip(-1), torch.ones(len(x), dtype=torch.bool)


@pytest.fixture(autouse=True)
def foolbox(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(net: nn.Module, bounds: tuple[float, float], device: object) -> SimpleNamespace:
        assert not net.training
        return SimpleNamespace(net=net, bounds=bounds)

    monkeypatch.setitem(sys.modules, "foolbox", SimpleNamespace(PyTorchModel=model))


def estimator(target: ModuleTarget, clip: tuple[float, float] | None = (0.0, 1.0)) -> SimpleNamespace:
    def predict(x: np.ndarray) -> np.ndarray:
        return np.asarray(target.module(torch.from_numpy(x)).detach())

    return SimpleNamespace(model=target.module, clip_values=clip, predict=predict)


def every(target: ModuleTarget) -> dict[str, Any]:
    return {
        "torchattacks": FGSM(target.module),
        "foolbox": LinfPGD(),
        "art": FastGradient(estimator(target)),
        "pyautoattack": AutoAttack(target.module),
    }


def batch(target: ModuleTarget, n: int = 8) -> tuple[Tensor, Tensor, Rows]:
    x = torch.rand(n, *target.spec.shape, generator=torch.Generator().manual_seed(1))
    return x, target(x).argmax(1), Stream(0).rows(torch.arange(n))


LIBRARIES = ["torchattacks", "foolbox", "art", "pyautoattack"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_object_is_an_attack(library: str, linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)
    attack = bind("attack", every(target)[library], {}, {"eps": 0.1, "norm": "linf"})
    made = attack(target, x, y, rng=rng)
    assert made.shape == x.shape
    assert not made.requires_grad
    assert 0.09 < (made - x).abs().max() <= 0.1 + 1e-6
    assert made.min() >= 0
    assert made.max() <= 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_nothing_is_left_behind(
    library: str, linear_target: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = linear_target()
    target.module.train()
    thing = every(target)[library]
    attributes = dict(vars(thing))
    x, y, rng = batch(target)
    torch.manual_seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    monkeypatch.setattr(target.module.get_parameter("weight"), "grad", None)
    bind("attack", thing, {}, {"eps": 0.1})(target, x, y, rng=rng)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert target.module.training
    for weight in target.module.parameters():
        assert weight.grad is None
        assert weight.requires_grad
    assert vars(thing) == attributes
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_repeat_and_follow_the_rows(library: str, linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)
    attack = bind("attack", every(target)[library], {}, {"eps": 0.1})
    first = attack(target, x, y, rng=rng)
    torch.manual_seed(77)
    np.random.seed(3)
    assert torch.equal(attack(target, x, y, rng=rng), first)
    if library in ("art", "pyautoattack"):  # whose stand-ins are all chance
        assert not torch.equal(attack(target, x, y, rng=rng.at(1)), first)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_empty_batch(library: str, linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target, 0)
    assert bind("attack", every(target)[library], {}, {"eps": 0.1})(target, x, y, rng=rng).shape == x.shape


@pytest.mark.parametrize("library", ["torchattacks", "art", "pyautoattack"])
def test_another_eps_than_it_was_made_with_is_refused(library: str, linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target, 0)
    attack = bind("attack", every(target)[library], {}, {"eps": 0.2})
    with pytest.raises(UsageError, match=rf"{library}\.\w+ was made with eps 0\.1, asked for is 0\.2"):
        attack(target, x, y, rng=rng)


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_norm_than_its_own_is_refused(library: str, linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target, 0)
    attack = bind("attack", every(target)[library], {}, {"eps": 0.1, "norm": "l2"})
    with pytest.raises(UsageError, match=rf"{library}\.\w+ works in linf, asked for is l2"):
        attack(target, x, y, rng=rng)


def test_the_ball_is_its_own_where_none_is_given(linear_target: Make) -> None:
    target = linear_target()
    for thing, eps, norm in (
        (FGSM(target.module, eps=0.3), 0.3, "linf"),
        (PGDL2(target.module, eps=2.0), 2.0, "l2"),
        (CW(target.module), None, "linf"),
        (FastGradient(None, eps=np.float32(0.5), norm=2), 0.5, "l2"),
        (FastGradient(None, eps=np.ones(3), norm="inf"), None, "linf"),
        (AutoAttack(target.module, eps=0.2, norm="L1"), 0.2, "l1"),
        (L2DeepFool(), None, "l2"),
    ):
        params = bind("attack", thing, {}).params
        assert (params["eps"], params["norm"]) == (eps, norm)


def test_foolbox_needs_eps_unless_it_minimises(linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)
    with pytest.raises(UsageError, match=r"foolbox\.LinfPGD needs eps"):
        bind("attack", LinfPGD(), {})(target, x, y, rng=rng)
    made = bind("attack", L2DeepFool(), {})(target, x, y, rng=rng)
    moved = (made != x).flatten(1).any(1)
    assert moved.tolist() == [True, False] * 4, "rows that failed are as they were"


def test_without_a_radius_of_its_own_rows_that_need_more_have_failed(linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)
    x = x * 0.2
    attack = bind("attack", CW(target.module), {}, {"eps": 0.12})
    made = attack(target, x, y, rng=rng)
    assert torch.allclose((made - x).flatten(1).amax(1), torch.tensor([0, 0.05, 0.1, 0, 0, 0, 0, 0]), atol=1e-6)
    assert torch.equal(made[3:], x[3:])


def test_turning_images_has_no_ball(linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)
    attack = bind("attack", SpatialAttack(), {}, {"eps": 0.1, "norm": "l2"})
    assert attack.params == {}
    assert torch.equal(attack(target, x, y, rng=rng), x.flip(-1))


def test_the_text_says_how_it_was_made(linear_target: Make) -> None:
    target = linear_target()
    assert bind("attack", FGSM(target.module, 0.25), {}).text == "torchattacks.FGSM(alpha=0.01, eps=0.25, norm=linf)"
    assert bind("attack", LinfPGD(7), {}, {"eps": 0.1}).text == "foolbox.LinfPGD(eps=0.1, norm=linf, steps=7)"
    art = bind("attack", FastGradient(None, np.float64(0.5)), {})
    assert art.text == "art.FastGradient(eps=0.5, norm=linf)"
    auto = bind("attack", AutoAttack(target.module), {})
    assert auto.text == 'pyautoattack.AutoAttack(attacks_to_run=["apgd-ce"], eps=0.1, norm=linf)'


def test_what_it_is_made_of_is_in_the_text(linear_target: Make) -> None:
    both = FGSM(linear_target().module, 0.5)
    both.attacks = [FGSM(both.model, 0.5, 0.1), CW(both.model)]  # type: ignore[attr-defined]
    told = bind("attack", both, {}).text
    assert told.startswith('torchattacks.FGSM(alpha=0.01, attacks="FGSM(alpha=0.1, eps=0.5); CW(alpha=0.01)"')


def test_other_bounds_are_refused(linear_target: Make) -> None:
    target = linear_target()
    other = ModuleTarget(target.module, InputSpec(target.spec.shape, (-1.0, 1.0), target.spec.classes))
    x, y, rng = batch(target, 0)
    for thing in (FGSM(target.module), AutoAttack(target.module), FastGradient(estimator(target))):
        with pytest.raises(UsageError, match=r"takes inputs in \[0, 1\], this target takes \[-1, 1\]"):
            bind("attack", thing, {})(other, x, y, rng=rng)
    bind("attack", FastGradient(estimator(target, None)), {})(other, x, y, rng=rng)
    x, y, rng = batch(target)
    made = bind("attack", LinfPGD(), {}, {"eps": 0.5})(other, x, y, rng=rng)
    assert made.min() < -0.1


def test_an_object_that_aims_at_a_class_is_refused(linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target, 0)
    theirs, arts = FGSM(target.module), FastGradient(estimator(target))
    theirs.attack_mode, arts._targeted = "targeted(label)", True
    for thing in (theirs, arts):
        with pytest.raises(UsageError, match="is targeted"):
            bind("attack", thing, {})(target, x, y, rng=rng)


def test_what_goes_wrong_inside_names_the_library(linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)

    @of("torchattacks.attacks.broken")
    class Broken(FGSM):
        def __call__(self, x: Tensor, y: Tensor) -> Tensor:
            raise ValueError("no luck")

    @of("torchattacks.attacks.broken")
    class Misshapen(FGSM):
        def __call__(self, x: Tensor, y: Tensor) -> Tensor:
            return x[:1]

    @of("torchattacks.attacks.broken")
    class Greedy(FGSM):
        def __call__(self, x: Tensor, y: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("gone")

    with pytest.raises(UsageError, match=r"torchattacks\.Broken failed: ValueError: no luck"):
        bind("attack", Broken(target.module), {})(target, x, y, rng=rng)
    with pytest.raises(UsageError, match=r"torchattacks\.Misshapen must return a tensor like its inputs"):
        bind("attack", Misshapen(target.module), {})(target, x, y, rng=rng)
    with pytest.raises(torch.OutOfMemoryError):  # the engine halves the batch then
        bind("attack", Greedy(target.module), {})(target, x, y, rng=rng)


def test_rows_made_nan_of_are_as_they_were(linear_target: Make) -> None:
    @of("torchattacks.attacks.nan")
    class Lost(FGSM):
        def __call__(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.where(torch.arange(len(x)).view(-1, 1, 1, 1) == 2, torch.nan, x + 0.01)

    target = linear_target()
    x, y, rng = batch(target)
    made = bind("attack", Lost(target.module), {})(target, x, y, rng=rng)
    assert torch.equal(made[2], x[2])
    assert (made[3] != x[3]).any()


def test_another_model_than_the_one_under_test_is_refused(linear_target: Make) -> None:
    target, other = linear_target(), linear_target(seed=1)
    x, y, rng = batch(target)
    same, wrong = FGSM(target.module), FGSM(other.module)
    bind("attack", same, {})(target, x, y, rng=rng)
    with pytest.raises(UsageError, match=r"torchattacks\.FGSM attacks the model it was made with"):
        bind("attack", wrong, {})(target, x, y, rng=rng)


def test_double_precision_goes_through_the_models_own(linear_target: Make) -> None:
    target = linear_target()
    x, y, rng = batch(target)
    for thing in every(target).values():
        made = bind("attack", thing, {}, {"eps": 0.1})(target, x.double(), y, rng=rng)
        assert made.dtype == torch.float64
        assert (made - x).abs().max() > 0.09


def test_what_is_of_no_known_library_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Linear is no attack: give its name, or file\.py:function"):
        lookup("attack", nn.Linear(1, 1))
    with pytest.raises(UsageError, match="is no oracle"):
        lookup("oracle", LinfPGD())
    with pytest.raises(UsageError, match="expected a name or name"):
        attacks_of([FGSM], {})

    @of("art.estimators.pytorch")
    class PyTorchClassifier:
        pass

    with pytest.raises(UsageError, match=r"art\.PyTorchClassifier is not an attack on inputs"):
        lookup("attack", PyTorchClassifier())


def test_steps_let_objects_through(linear_target: Make) -> None:
    thing = LinfPGD()
    assert step(thing) == (thing, {})
    assert steps(thing) == [(thing, {})]
    assert steps(["pgd", thing, (thing, {"eps": 1})]) == [("pgd", {}), (thing, {}), (thing, {"eps": 1})]


def test_a_suite_of_names_and_objects(linear_target: Make) -> None:
    net = linear_target().module
    found = attacks_of(["pgd", LinfPGD(3), FGSM(net), LinfPGD(4)], {"eps": 0.1, "norm": "linf"})
    assert list(found) == [
        "pgd",
        "foolbox.LinfPGD(eps=0.1, norm=linf, steps=3)",
        "torchattacks.FGSM",
        "foolbox.LinfPGD(eps=0.1, norm=linf, steps=4)",
    ]
    with pytest.raises(UsageError, match="twice"):
        attacks_of([LinfPGD(3), LinfPGD(3)], {"eps": 0.1})


def data_of(target: ModuleTarget, n: int = 40) -> Data:
    x, y, _ = batch(target, n)
    return Data("some", Cases.of(x, y), target.spec)


@pytest.mark.parametrize("library", LIBRARIES)
def test_evaluate_takes_an_object(library: str, linear_target: Make) -> None:
    target = linear_target()
    result = evaluate(target.module, data_of(target), suite=every(target)[library], eps=0.1, batch=16)
    assert result.worst.right < result.clean.right == 40
    (name,) = result.attacks
    assert name.startswith(f"{library}.")
    assert result.protocol["attacks"][name].startswith(f"{name}(")
    assert (result.protocol["eps"], result.protocol["norm"]) == (0.1, "linf")


def test_evaluate_takes_its_ball_from_the_object(linear_target: Make) -> None:
    target = linear_target()
    result = evaluate(target.module, data_of(target), suite=[FGSM(target.module, 0.2)])
    assert result.protocol["eps"] == 0.2
    with pytest.raises(UsageError, match=r"was made with eps 0\.2, asked for is 0\.1"):
        evaluate(target.module, data_of(target), suite=["pgd", FGSM(target.module, 0.2)], eps=0.1)


USER_FILE = """
import assay
from torch import nn

class Attack: ...
Attack.__module__ = "torchattacks.attack"

class Push(Attack):
    def __init__(self, eps): self.eps, self.model = eps, nn.Flatten()
    def __call__(self, x, y): return x + self.eps
Push.__module__ = "torchattacks.attacks.push"

thing = Push(0.125)
"""


def test_an_object_of_a_file(tmp_path: Path, linear_target: Make) -> None:
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE)
    attack = bind("attack", f"{path}:thing", {})
    assert attack.text == f"{path}:thing(eps=0.125, norm=linf, object=torchattacks.Push)"
    assert not attack.from_file, "it is tried on no inputs before a run starts"
    target = linear_target()
    x, y, rng = batch(target)
    flat = ModuleTarget(nn.Flatten(), target.spec)
    assert torch.allclose(attack(flat, x, y, rng=rng), (x + 0.125).clamp(0, 1))


def test_the_command_line_takes_an_object_of_a_file(
    tmp_path: Path, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE.replace("nn.Flatten()", f"assay.load_target({digits_model!r}).module"))
    command = ["eval", digits_model, "--data", "digits/test[:20]", "--suite", f"{path}:thing", "--json"]
    assert cli(command) == 0
    told = json.loads(capsys.readouterr().out)["attacks"][f"{path}:thing"]
    assert told["queries"] == {"forward": None, "gradient": None}, "it asks a model of its own"
    assert cli([*command, "--eps", "0.2"]) == 4
    assert "was made with eps 0.125, asked for is 0.2" in capsys.readouterr().err
