"""The same attacks in other libraries, set up alike: used by the benchmark and by tests/reference.

A library that is not installed is left out. What a peer returns is judged by the caller, never believed.
"""

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

Made = Callable[[Tensor, Tensor], Tensor]  # (x, y) -> adversarial inputs
LIBRARIES = {
    "torchattacks": "torchattacks",
    "foolbox": "foolbox",
    "art": "adversarial-robustness-toolbox",
    "pyautoattack": "pyautoattack",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a comparison has in common: the net, the ball, the effort, and the batch in one piece."""

    net: nn.Module
    shape: tuple[int, ...]
    classes: int
    batch: int
    eps: float = 0.1
    steps: int = 40
    device: str = "cpu"


def missing() -> list[str]:
    """The packages of the peers that are not here."""
    return [package for root, package in LIBRARIES.items() if importlib.util.find_spec(root) is None]


def peers_of(attack: str, setting: Setting) -> dict[str, Made]:
    """The attack of that name in every library here that has it; ``library/how`` where one has it in two ways."""
    return {
        name: make(setting)
        for name, make in PEERS.get(attack, {}).items()
        if importlib.util.find_spec(name.partition("/")[0]) is not None
    }


def wanted(y: Tensor, classes: int) -> Tensor:
    """The class to aim at in the targeted comparisons: the next one."""
    return (y + 1) % classes


# torchattacks


def _torch(name: str, **params: Any) -> Callable[[Setting], Made]:
    """Its attack of that name; ``eps`` and so on are read off the setting where a parameter is a function of it."""

    def make(s: Setting) -> Made:
        kind = getattr(importlib.import_module("torchattacks"), name)
        attack = kind(s.net, **_filled(params, s))
        return lambda x, y: attack(x, y)

    return make


# foolbox


def _foolbox(name: str, minimal: bool = False, ball: bool = True, **params: Any) -> Callable[[Setting], Made]:
    def make(s: Setting) -> Made:
        library = importlib.import_module("foolbox")
        attack = getattr(library.attacks, name)(**_filled(params, s))
        model = library.PyTorchModel(s.net, bounds=(0, 1), device=s.device)

        def run(x: Tensor, y: Tensor) -> Tensor:
            if not ball:
                return torch.as_tensor(attack(model, x, y)[1])
            return torch.as_tensor(attack(model, x, y, epsilons=None if minimal else s.eps)[1])

        return run

    return make


# adversarial-robustness-toolbox


class _Single(nn.Module):
    """The net for single precision whatever comes: some of ART's attacks turn to double under numpy 2."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x.float())
        return out


def _art(name: str, aimed: bool = False, **params: Any) -> Callable[[Setting], Made]:
    def make(s: Setting) -> Made:
        estimators = importlib.import_module("art.estimators.classification")
        evasion = importlib.import_module("art.attacks.evasion")
        where = "gpu" if s.device.startswith("cuda") else "cpu"
        model = estimators.PyTorchClassifier(
            _Single(s.net).eval(),
            nn.CrossEntropyLoss(),
            s.shape,
            s.classes,
            clip_values=(0.0, 1.0),
            device_type=where,
        )
        # The fast gradient method alone has no progress bar to be silenced.
        quiet = {} if name == "FastGradientMethod" else {"verbose": False}
        attack = getattr(evasion, name)(model, batch_size=s.batch, **quiet, **_filled(params, s))

        def run(x: Tensor, y: Tensor) -> Tensor:
            labels = wanted(y, s.classes) if aimed else y
            return torch.from_numpy(attack.generate(x.cpu().numpy(), labels.cpu().numpy())).to(x.device)

        return run

    return make


# pyautoattack


def _auto(module: str, name: str, **params: Any) -> Callable[[Setting], Made]:
    def make(s: Setting) -> Made:
        kind = getattr(importlib.import_module(f"pyautoattack.{module}"), name)
        attack = kind(s.net, norm="Linf", eps=s.eps, device=s.device, seed=0, **_filled(params, s))
        return lambda x, y: torch.as_tensor(attack.perturb(x, y))

    return make


def _auto_standard(s: Setting) -> Made:
    attack = importlib.import_module("pyautoattack").AutoAttack(s.net, norm="Linf", eps=s.eps, device=s.device, seed=0)
    attack.logger.disabled = True
    return lambda x, y: torch.as_tensor(attack.run_standard_evaluation(x, y, batch_size=s.batch)[0])


def _torch_standard(s: Setting) -> Made:
    library = importlib.import_module("torchattacks")
    with redirect_stdout(StringIO()):
        attack = library.AutoAttack(s.net, norm="Linf", eps=s.eps, n_classes=s.classes, seed=0)
    return lambda x, y: torch.as_tensor(attack(x, y))


def _torch_hundred(s: Setting) -> Made:
    """The same with the iterations of the paper: its own standard version makes ten."""
    library = importlib.import_module("torchattacks")
    ball: dict[str, Any] = {"norm": "Linf", "eps": s.eps, "seed": 0}
    with redirect_stdout(StringIO()):
        attack = library.MultiAttack(
            [
                library.APGD(s.net, steps=100, loss="ce", **ball),
                library.APGDT(s.net, steps=100, n_classes=s.classes, **ball),
                library.FAB(s.net, steps=100, multi_targeted=True, n_classes=s.classes, **ball),
                library.Square(s.net, n_queries=5000, **ball),
            ]
        )
    return lambda x, y: torch.as_tensor(attack(x, y))


def _filled(params: dict[str, Any], s: Setting) -> dict[str, Any]:
    return {key: value(s) if callable(value) else value for key, value in params.items()}


def _eps(s: Setting) -> float:
    return s.eps


def _stride(s: Setting) -> float:
    return s.eps / 10


def _steps(s: Setting) -> int:
    return s.steps


def _classes(s: Setting) -> int:
    return s.classes


_CW: dict[str, Any] = {"minimal": True, "steps": _steps, "stepsize": 0.1, "initial_const": 1.0}
PEERS: dict[str, dict[str, Callable[[Setting], Made]]] = {
    "fgsm": {
        "torchattacks": _torch("FGSM", eps=_eps),
        "foolbox": _foolbox("LinfFastGradientAttack"),
        "art": _art("FastGradientMethod", eps=_eps),
    },
    "bim": {
        "torchattacks": _torch("BIM", eps=_eps, alpha=_stride, steps=_steps),
        "foolbox": _foolbox("LinfBasicIterativeAttack", rel_stepsize=0.1, steps=_steps),
        "art": _art("BasicIterativeMethod", eps=_eps, eps_step=_stride, max_iter=_steps),
    },
    "mim": {
        "torchattacks": _torch("MIFGSM", eps=_eps, alpha=_stride, steps=_steps, decay=1.0),
        "foolbox": _foolbox(
            "LinfMomentumIterativeFastGradientMethod", rel_stepsize=0.1, steps=_steps, momentum=1.0, random_start=False
        ),
        "art": _art("MomentumIterativeMethod", eps=_eps, eps_step=_stride, max_iter=_steps, decay=1.0),
    },
    "pgd": {
        "torchattacks": _torch("PGD", eps=_eps, alpha=_stride, steps=_steps),
        "foolbox": _foolbox("LinfProjectedGradientDescentAttack", rel_stepsize=0.1, steps=_steps),
        "art": _art("ProjectedGradientDescent", eps=_eps, eps_step=_stride, max_iter=_steps, num_random_init=1),
    },
    "pgd_l2": {
        "torchattacks": _torch("PGDL2", eps=_eps, alpha=_stride, steps=_steps),
        "foolbox": _foolbox("L2ProjectedGradientDescentAttack", rel_stepsize=0.1, steps=_steps),
        "art": _art("ProjectedGradientDescent", norm=2, eps=_eps, eps_step=_stride, max_iter=_steps, num_random_init=1),
    },
    "apgd_ce": {
        "torchattacks": _torch("APGD", eps=_eps, steps=_steps, loss="ce"),
        "pyautoattack": _auto("autopgd_base", "APGDAttack", n_iter=_steps, loss="ce"),
        "art": _art(
            "AutoProjectedGradientDescent",
            eps=_eps,
            eps_step=lambda s: 2 * s.eps,
            max_iter=_steps,
            nb_random_init=1,
            loss_type="cross_entropy",
        ),
    },
    "apgd_dlr": {
        "torchattacks": _torch("APGD", eps=_eps, steps=_steps, loss="dlr"),
        "pyautoattack": _auto("autopgd_base", "APGDAttack", n_iter=_steps, loss="dlr"),
    },
    "apgd_t": {
        "torchattacks": _torch("APGDT", eps=_eps, steps=_steps, n_classes=_classes),
        "pyautoattack": _auto(
            "autopgd_base", "APGDAttack_targeted", n_iter=_steps, n_target_classes=lambda s: min(9, s.classes - 1)
        ),
    },
    "fab_t": {
        "torchattacks": _torch("FAB", eps=_eps, steps=_steps, multi_targeted=True, n_classes=_classes),
        "pyautoattack": _auto("fab_pt", "FABAttack_PT", n_iter=_steps, targeted=True),
    },
    "square": {
        "torchattacks": _torch("Square", eps=_eps, n_queries=_steps),
        "pyautoattack": _auto("square", "SquareAttack", n_queries=_steps, resc_schedule=True),
        "art": _art("SquareAttack", eps=_eps, max_iter=_steps),
    },
    "cw": {
        # Their default steps of 0.01 end nowhere in 100 iterations. ART's takes nine seconds for each image.
        "torchattacks": _torch("CW", c=10, lr=0.1, steps=_steps),
        "foolbox": _foolbox("L2CarliniWagnerAttack", **_CW, binary_search_steps=1),
        "foolbox/5": _foolbox("L2CarliniWagnerAttack", **_CW, binary_search_steps=5),
    },
    "deepfool": {
        "torchattacks": _torch("DeepFool", steps=_steps),
        "foolbox": _foolbox("L2DeepFoolAttack", minimal=True, steps=_steps),
        "art": _art("DeepFool", max_iter=_steps),
    },
    "jsma": {
        "torchattacks": _torch("JSMA"),
        "art": _art("SaliencyMapMethod", aimed=True, theta=1.0, gamma=0.1),
    },
    "hop_skip_jump": {
        "foolbox": _foolbox("HopSkipJumpAttack", minimal=True, steps=_steps, max_gradient_eval_steps=1000),
        "art": _art("HopSkipJump", max_iter=_steps, max_eval=1000),
    },
    "boundary": {
        "foolbox": _foolbox("BoundaryAttack", minimal=True, steps=_steps),
        # One iteration of ART's asks about forty times.
        "art": _art("BoundaryAttack", targeted=False, max_iter=lambda s: max(1, s.steps // 40), num_trial=20),
    },
    "spatial": {
        "foolbox": _foolbox(
            "SpatialAttack", ball=False, max_translation=3, max_rotation=30, num_translations=5, num_rotations=31
        ),
    },
    "autoattack": {
        "torchattacks": _torch_standard,
        "torchattacks/100": _torch_hundred,
        "pyautoattack": _auto_standard,
    },
}
