"""Attack objects of other libraries inside our evaluation: same numbers as by themselves, nothing left behind."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from assay.core.stats import wilson
from assay.engines.evaluate import evaluate
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of

EPS = 0.1


def art_classifier(net: nn.Module, data: Data) -> Any:
    estimators = importlib.import_module("art.estimators.classification")
    shape, classes = data.spec.shape, len(data.spec.classes)
    return estimators.PyTorchClassifier(net, nn.CrossEntropyLoss(), shape, classes, clip_values=(0.0, 1.0))


def art(name: str, **params: Any) -> Callable[[Any, nn.Module, Data], Any]:
    """Makes an attack of ART by its name."""

    def make(library: Any, net: nn.Module, data: Data) -> Any:
        evasion = importlib.import_module("art.attacks.evasion")
        return getattr(evasion, name)(art_classifier(net, data), verbose=True, **params)

    return make


MADE: dict[str, tuple[str, str, Callable[[Any, nn.Module, Data], Any]]] = {
    "torchattacks-pgd": ("torchattacks", "linf", lambda t, net, _: t.PGD(net, eps=EPS, alpha=0.01, steps=10)),
    "torchattacks-autoattack": (
        "torchattacks",
        "linf",
        lambda t, net, _: t.MultiAttack([t.FGSM(net, eps=EPS), t.APGD(net, eps=EPS, steps=10)]),
    ),
    "torchattacks-l2": ("torchattacks", "l2", lambda t, net, _: t.PGDL2(net, eps=1.0, alpha=0.2, steps=10)),
    "torchattacks-cw": ("torchattacks", "l2", lambda t, net, _: t.CW(net, steps=30)),
    "foolbox-pgd": ("foolbox", "linf", lambda f, net, _: f.attacks.LinfPGD(steps=10)),
    "foolbox-repeated": ("foolbox", "linf", lambda f, net, _: f.attacks.LinfPGD(steps=5).repeat(2)),
    "foolbox-deepfool": ("foolbox", "l2", lambda f, net, _: f.attacks.L2DeepFoolAttack(steps=20)),
    "foolbox-spatial": ("foolbox", "linf", lambda f, net, _: f.attacks.SpatialAttack(max_translation=1)),
    "art-pgd": ("art", "linf", art("ProjectedGradientDescent", eps=EPS, eps_step=0.01, max_iter=10)),
    "art-deepfool": ("art", "l2", art("DeepFool", max_iter=10)),
    "art-spatial": ("art", "linf", art("SpatialTransformation", max_translation=10, max_rotation=20)),
    "pyautoattack": (
        "pyautoattack",
        "linf",
        lambda p, net, _: p.AutoAttack(net, norm="Linf", eps=EPS, version="custom", attacks=["apgd-ce"]),
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_an_object_in_an_evaluation(name: str, digits_model: str, capfd: pytest.CaptureFixture[str]) -> None:
    root, norm, make = MADE[name]
    library = pytest.importorskip(root)
    data = load_data("digits/test[:100]")
    net = module_of(load_target(digits_model, device="cpu")).train()
    thing = make(library, net, data)
    weights = {k: v.clone() for k, v in net.state_dict().items()}
    capfd.readouterr()
    eps = EPS if norm == "linf" else 1.0
    results = [evaluate(net, data, suite=[thing], eps=eps, norm=norm) for _ in range(2)]
    assert results[0].clean.right > results[0].worst.right
    assert results[0].worst == results[1].worst
    assert results[0].protocol["attacks"] == results[1].protocol["attacks"]
    assert all(module.training for module in net.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in net.parameters())
    assert all(torch.equal(value, weights[key]) for key, value in net.state_dict().items())
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("root", ["torchattacks", "foolbox", "art", "pyautoattack"])
def test_the_same_numbers_as_by_itself(root: str, digits_model: str) -> None:
    library = pytest.importorskip(root)
    data = load_data("digits/test[:200]")
    x, y = data.cases.x, data.cases.y
    net = module_of(load_target(digits_model, device="cpu")).eval()
    if root == "torchattacks":
        thing = library.FGSM(net, eps=EPS)
        made = thing(x, y)
    elif root == "foolbox":
        thing = library.attacks.FGSM()
        made = thing(library.PyTorchModel(net, bounds=(0, 1), device="cpu"), x, y, epsilons=EPS)[1]
    elif root == "art":
        thing = art("ProjectedGradientDescent", eps=EPS, eps_step=0.01, max_iter=10)(library, net, data)
        made = torch.from_numpy(thing.generate(x.numpy(), y.numpy()))
    else:
        thing = library.AutoAttack(net, eps=EPS, version="custom", attacks=["apgd-ce"], seed=0)
        made, _ = thing.run_standard_evaluation(x, y, batch_size=len(x))
    alone = int((net(made).argmax(1) == y).sum())
    ours = evaluate(net, data, suite=thing, eps=EPS).worst.right
    if root == "pyautoattack":  # its start is random, and depends on which rows come with it
        low, high = wilson(alone, len(x))
        assert low <= ours / len(x) <= high
    else:
        assert ours == alone
