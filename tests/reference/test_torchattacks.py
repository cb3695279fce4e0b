"""Agreement with torchattacks, where it is installed (`make reference`): same attack, same success or more."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.stats import wilson
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of

torchattacks: Any = pytest.importorskip("torchattacks")

EPS = 0.1
PAIRS: dict[str, tuple[dict[str, Any], Callable[[nn.Module], Any]]] = {
    "fgsm": ({}, lambda net: torchattacks.FGSM(net, eps=EPS)),
    "bim": ({"steps": 20, "step": 0.1}, lambda net: torchattacks.BIM(net, eps=EPS, alpha=EPS / 10, steps=20)),
    "pgd": ({"steps": 20, "step": 0.1}, lambda net: torchattacks.PGD(net, eps=EPS, alpha=EPS / 10, steps=20)),
    "mim": ({"steps": 20, "step": 0.1}, lambda net: torchattacks.MIFGSM(net, eps=EPS, alpha=EPS / 10, steps=20)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_as_strong_as_the_peer(name: str, digits_model: str) -> None:
    params, make = PAIRS[name]
    target = load_target(digits_model, device="cpu")
    net = module_of(target).eval()
    cases = load_data("digits/test").cases

    def right(made: Tensor) -> int:
        with torch.no_grad():
            return int((net(made).argmax(1) == cases.y).sum())

    peer = right(make(net)(cases.x, cases.y))
    attack = bind("attack", name, params, {"eps": EPS})
    ours = right(attack(target, cases.x, cases.y, rng=Stream(0).rows(cases.origin)))
    assert ours / len(cases) <= wilson(peer, len(cases))[1]


def test_fgsm_gives_the_same_images(digits_model: str) -> None:
    target = load_target(digits_model, device="cpu")
    net = module_of(target).eval()
    cases = load_data("digits/test").cases
    right = net(cases.x).argmax(1) == cases.y
    peer = torchattacks.FGSM(net, eps=EPS)(cases.x, cases.y)
    ours = bind("attack", "fgsm", {}, {"eps": EPS})(target, cases.x, cases.y, rng=Stream(0).rows(cases.origin))
    # Ours leaves inputs alone that are wrong already. A gradient of exactly zero may differ in sign by rounding.
    same = (ours[right] - peer[right]).abs() < 1e-5
    assert same.float().mean() > 0.999
