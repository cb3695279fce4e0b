"""Agreement with torchattacks (`make reference`): same attack, same success or more."""

from typing import Any

import pytest
import torch

from assay.core.randomness import Stream
from assay.core.registry import bind

torchattacks: Any = pytest.importorskip("torchattacks")

ATTACKS = (
    "fgsm",
    "bim",
    "mim",
    "pgd",
    "pgd_l2",
    "apgd_ce",
    "apgd_dlr",
    "apgd_t",
    "fab_t",
    "square",
    "cw",
    "deepfool",
    "jsma",
    "autoattack",
)


@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_digits(name: str, agree: Any, on_digits: Any) -> None:
    agree("torchattacks", name, on_digits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_mnist(name: str, agree: Any, on_mnist: Any) -> None:
    agree("torchattacks", name, on_mnist)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_hardened_mnist(name: str, agree: Any, on_hardened: Any) -> None:
    agree("torchattacks", name, on_hardened)


def test_fgsm_gives_the_same_images(on_digits: Any) -> None:
    target, cases, eps = on_digits.target, on_digits.data.cases, on_digits.linf
    with torch.no_grad():
        right = target(cases.x).argmax(1) == cases.y
    peer = torchattacks.FGSM(target.module, eps=eps)(cases.x, cases.y)
    ours = bind("attack", "fgsm", {}, {"eps": eps})(target, cases.x, cases.y, rng=Stream(0).rows(cases.origin))
    # Ours leaves inputs alone that are wrong already. A gradient of exactly zero may differ in sign by rounding.
    same = (ours[right] - peer[right]).abs() < 1e-5
    assert same.float().mean() > 0.999
