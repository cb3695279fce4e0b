"""Are masked models found out, and honest ones left alone? Nets with a planted mask, and nets without one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.engines.evaluate import evaluate
from assay.engines.train import train
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

TEST = "digits/test[:40]"
TRAIN = load_data("digits/train[:600]").cases
PROTOTYPES = torch.stack([TRAIN.x[TRAIN.y == label].mean(0) for label in range(10)])

Change = Callable[[Tensor], Tensor]
Answer = Callable[[nn.Module, Tensor], Tensor]


class Masked(nn.Module):
    """A net behind and before something else."""

    def __init__(self, net: nn.Module, before: Change | None = None, after: Change | None = None) -> None:
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x if self.before is None else self.before(x))
        return out if self.after is None else self.after(out)


class Switch(nn.Module):
    """A detector: inputs that look unusual get another answer."""

    def __init__(self, net: nn.Module, unusual: Change, other: Answer) -> None:
        super().__init__()
        self.net, self.unusual, self.other = net, unusual, other

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.unusual(x)[:, None], self.other(self.net, x), self.net(x))


class Doubtful(nn.Module):
    """A detector of low confidence: where two scores come close, the nearest prototype decides."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.net(x)
        best = scores.topk(2, 1).values
        return torch.where((best[:, :1] - best[:, 1:]) < 1.5, nearest(self.net, x), scores)


class Choice(nn.Module):
    """Tosses a coin which of two nets answers."""

    def __init__(self, one: nn.Module) -> None:
        super().__init__()
        self.one = one

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.one(x if torch.rand(()) < 0.5 else x.roll(1, 3))
        return out


class Awake(nn.Module):
    """Puts itself back into training mode."""

    def __init__(self, net: nn.Module, part: nn.Module) -> None:
        super().__init__()
        self.net, self.part = net, part

    def forward(self, x: Tensor) -> Tensor:
        self.train()
        out: Tensor = self.net(self.part(x))
        return out


class WrongBackward(torch.autograd.Function):
    """The identity, with something else for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: str) -> Tensor:
        ctx.kind = kind
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        noise = torch.randn(grad.shape, generator=torch.Generator().manual_seed(len(grad)))
        return {"noise": noise, "zeros": torch.zeros_like(grad), "turned": -grad}[ctx.kind], None


def wrong_backward(kind: str) -> Change:
    def change(x: Tensor) -> Tensor:
        out: Tensor = WrongBackward.apply(x, kind)  # type: ignore[no-untyped-call]
        return out

    return change


def centred(scores: Tensor) -> Tensor:
    """Scores around the middle of the two best: only the best is above 0."""
    return scores - scores.topk(2, 1).values.mean(1, keepdim=True)


def thermometer(x: Tensor) -> Tensor:
    return (x[..., None] > (torch.arange(16) + 0.5) / 16).float().mean(-1)


@torch.no_grad()
def jpeg_like(x: Tensor) -> Tensor:
    """The coefficients of a cosine transform, rounded."""
    n = x.shape[-1]
    wave = torch.cos(torch.pi * (torch.arange(n) + 0.5) * torch.arange(n)[:, None] / n) * (2 / n) ** 0.5
    wave[0] /= 2**0.5
    rounded = ((wave @ (x - 0.5) @ wave.T) * 4).round() / 4
    back: Tensor = wave.T @ rounded @ wave
    return (back + 0.5).clamp(0, 1)


def off_grid(x: Tensor) -> Tensor:
    """Digits have 17 levels of grey; an attack leaves them."""
    return (x * 16 - (x * 16).round()).abs().flatten(1).amax(1) > 1e-3


def variation(x: Tensor) -> Tensor:
    along, down = x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]
    return along.abs().flatten(1).mean(1) + down.abs().flatten(1).mean(1)


def rough(x: Tensor) -> Tensor:
    return variation(x) > float(variation(TRAIN.x).quantile(0.95))


def far(x: Tensor) -> Tensor:
    """Further from every training input than they usually are from each other."""
    return torch.cdist(x.flatten(1), TRAIN.x.flatten(1)).amin(1) > 1.8


def sure(net: nn.Module, x: Tensor) -> Tensor:
    return 10 * F.one_hot(net(x).argmax(1), 10).float()


def constant(net: nn.Module, x: Tensor) -> Tensor:
    return 10 * F.one_hot(torch.zeros(len(x), dtype=torch.int64), 10).float()


def coarse(net: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = net((x * 4).round() / 4)
    return out


def smooth(net: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = net(F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1))
    return out


def nearest(net: nn.Module, x: Tensor) -> Tensor:
    return 10 * F.one_hot(torch.cdist(x.flatten(1), PROTOTYPES.flatten(1)).argmin(1), 10).float()


# Checks that set one attack against another, or against itself.
COMPARISONS = (
    "black_box_beats_white_box",
    "single_step_beats_iterative",
    "more_steps_help",
    "full_range",
    "flat_curve",
)

# What is planted, and a check that must see it.
PLANTED: dict[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "steep tanh": (lambda net: Masked(net, after=lambda z: torch.tanh(50 * centred(z))), "zero_gradient"),
    "tanh": (lambda net: Masked(net, after=lambda z: 10 * torch.tanh(z)), "vanishing_gradient"),
    "sigmoid": (lambda net: Masked(net, after=lambda z: torch.sigmoid(2 * z)), "vanishing_gradient"),
    "clamp": (lambda net: Masked(net, after=lambda z: (100 * centred(z)).clamp(-1, 1)), "zero_gradient"),
    "times 1e4": (lambda net: Masked(net, after=lambda z: z * 1e4), "vanishing_gradient"),
    "times 1e6": (lambda net: Masked(net, after=lambda z: z * 1e6), "vanishing_gradient"),
    "distilled": (lambda net: Masked(net, after=lambda z: z * 100), "vanishing_gradient"),
    "softmax": (lambda net: Masked(net, after=lambda z: (5 * z).softmax(1)), "softmax_output"),
    "log of clamp": (
        lambda net: Masked(net, after=lambda z: (9 * z).softmax(1).clamp(1e-4, 1 - 1e-4).log()),
        "zero_gradient",
    ),
    "rounded": (lambda net: Masked(net, before=lambda x: (x * 4).round() / 4), "zero_gradient"),
    "8 bit": (lambda net: Masked(net, before=lambda x: (x * 255).round() / 255), "zero_gradient"),
    "thermometer": (lambda net: Masked(net, before=thermometer), "zero_gradient"),
    "bit depth": (lambda net: Masked(net, before=lambda x: ((x * 8).floor() / 8).detach()), "zero_gradient"),
    "jpeg": (lambda net: Masked(net, before=jpeg_like), "zero_gradient"),
    "half jpeg": (lambda net: Masked(net, before=lambda x: 0.9 * jpeg_like(x) + 0.1 * x), "discontinuous"),
    "signs": (lambda net: Masked(net, after=lambda z: z.sign() + 2 * (z == z.amax(1, True)).float()), "zero_gradient"),
    "noise": (lambda net: Masked(net, before=lambda x: x + 0.05 * torch.randn_like(x)), "randomised"),
    "dropout": (lambda net: Masked(net, before=lambda x: F.dropout(x, 0.1, training=True)), "randomised"),
    "shifted at random": (lambda net: Masked(net, before=lambda x: x.roll(int(torch.randint(2, ())), 3)), "randomised"),
    "one of two": (Choice, "randomised"),
    "noise in the backward pass": (lambda net: Masked(net, before=wrong_backward("noise")), "vanishing_gradient"),
    "zeros in the backward pass": (lambda net: Masked(net, before=wrong_backward("zeros")), "zero_gradient"),
    "turned in the backward pass": (lambda net: Masked(net, before=wrong_backward("turned")), "vanishing_gradient"),
    "rippled": (lambda net: Masked(net, before=lambda x: x + 0.02 * torch.sin(1000 * x)), "vanishing_gradient"),
    "awake dropout": (lambda net: Awake(net, nn.Dropout(0.2)), "train_mode"),
    "awake normalisation": (lambda net: Awake(net, nn.BatchNorm2d(1)), "batch_norm_changing"),
    "grid detector, sure": (lambda net: Switch(net, off_grid, sure), "zero_gradient"),
    "grid detector, constant": (lambda net: Switch(net, off_grid, constant), "zero_gradient"),
    "grid detector, coarse": (lambda net: Switch(net, off_grid, coarse), "zero_gradient"),
    "grid detector, smooth": (lambda net: Switch(net, off_grid, smooth), "discontinuous"),
    "grid detector, nearest": (lambda net: Switch(net, off_grid, nearest), "zero_gradient"),
    "variation detector, sure": (lambda net: Switch(net, rough, sure), "discontinuous"),
    "variation detector, smooth": (lambda net: Switch(net, rough, smooth), "discontinuous"),
    "distance detector, coarse": (lambda net: Switch(net, far, coarse), "discontinuous"),
    "distance detector, nearest": (lambda net: Switch(net, far, nearest), "discontinuous"),
    "doubt detector": (Doubtful, "zero_gradient"),
}


@pytest.fixture(scope="session")
def nets(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, nn.Module]:
    """Honest nets: LeNet-5 plain and adversarially trained, an MLP, a ResNet-20."""
    folder = tmp_path_factory.mktemp("honest")
    short = {"batch": 32, "lr": 2e-3}
    attack = "pgd(steps=3, step=0.5, early_stop=false)"
    train("mlp", "digits", folder / "mlp.safetensors", params={**short, "epochs": 8})
    train("resnet20", "digits", folder / "resnet20.safetensors", params={**short, "epochs": 3})
    adversarial = {**short, "epochs": 5, "attack": attack}
    train("lenet5", "digits", folder / "adversarial.safetensors", trainer="adversarial", params=adversarial, eps=0.1)
    specs = {"lenet5": digits_model, "adversarial": f"lenet5@{folder / 'adversarial.safetensors'}"}
    specs |= {name: f"{name}@{folder / name}.safetensors" for name in ("mlp", "resnet20")}
    return {name: opened(spec) for name, spec in specs.items()}


def opened(spec: str) -> nn.Module:
    target = load_target(spec, data=load_data(TEST), device="cpu")
    assert isinstance(target, ModuleTarget)
    return target.module


def fired(net: nn.Module, suite: str, eps: float, norm: str = "linf", ignore: tuple[str, ...] = ()) -> set[str]:
    torch.manual_seed(0)
    result = evaluate(net, TEST, suite=suite, eps=eps, norm=norm, ignore=ignore, device="cpu")
    assert result.unreliable is bool(result.warnings)
    return {warning["name"] for warning in result.warnings}


@pytest.mark.parametrize(("net", "suite", "eps"), [("lenet5", "fast", 0.1), ("mlp", "apgd_ce", 0.2)])
@pytest.mark.parametrize("planted", PLANTED)
def test_planted_masks_are_found(nets: dict[str, nn.Module], planted: str, net: str, suite: str, eps: float) -> None:
    """By a look at the net itself, without any attack against another."""
    make, check = PLANTED[planted]
    assert check in fired(make(nets[net]), suite, eps, ignore=COMPARISONS)


@pytest.mark.parametrize(
    ("planted", "checks"),
    [
        ("steep tanh", {"full_range", "flat_curve"}),
        ("rounded", {"full_range", "flat_curve", "black_box_beats_white_box"}),
        ("noise in the backward pass", {"black_box_beats_white_box"}),
        ("grid detector, sure", {"full_range", "flat_curve", "single_step_beats_iterative"}),
    ],
)
def test_masks_would_have_been_believed(nets: dict[str, nn.Module], planted: str, checks: set[str]) -> None:
    """What the flags are for: the same net looks far more robust behind a mask. And attacks that meet show it, too."""
    plain = evaluate(nets["mlp"], TEST, suite="apgd_ce", eps=0.1, device="cpu")
    masked = evaluate(PLANTED[planted][0](nets["mlp"]), TEST, suite="apgd_ce", eps=0.1, device="cpu")
    assert masked.worst.accuracy > plain.worst.accuracy + 0.3
    assert {warning["name"] for warning in masked.warnings} >= checks


@pytest.mark.parametrize(
    ("net", "suite", "balls"),
    [
        ("lenet5", "fast", [(0.02, "linf"), (0.1, "linf"), (0.5, "linf"), (0.3, "l2"), (2.0, "l2")]),
        ("lenet5", "apgd_ce", [(0.1, "linf"), (0.5, "l2")]),
        ("adversarial", "fast", [(0.02, "linf"), (0.1, "linf"), (0.3, "linf"), (0.5, "l2"), (2.0, "l2")]),
        ("adversarial", "apgd_ce", [(0.15, "linf"), (1.0, "l2")]),
        ("mlp", "fast", [(0.02, "linf"), (0.1, "linf"), (0.5, "linf"), (0.5, "l2"), (2.0, "l2")]),
        ("mlp", "apgd_ce", [(0.02, "linf"), (0.1, "linf"), (0.5, "linf"), (0.5, "l2")]),
        ("resnet20", "fast", [(0.1, "linf")]),
        ("resnet20", "apgd_ce", [(0.3, "linf"), (2.0, "l2")]),
    ],
)
def test_honest_nets_are_left_alone(
    nets: dict[str, nn.Module], net: str, suite: str, balls: list[tuple[float, str]]
) -> None:
    assert {ball: fired(nets[net], suite, *ball) for ball in balls} == {ball: set() for ball in balls}
