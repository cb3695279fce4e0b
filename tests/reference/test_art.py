"""Agreement with the adversarial-robustness-toolbox (`make reference`): same attack, same success or more."""

from typing import Any

import pytest

pytest.importorskip("art")

ATTACKS = ("fgsm", "bim", "mim", "pgd", "pgd_l2", "apgd_ce", "square", "deepfool", "jsma", "hop_skip_jump", "boundary")


@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_digits(name: str, agree: Any, on_digits: Any) -> None:
    agree("art", name, on_digits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_mnist(name: str, agree: Any, on_mnist: Any) -> None:
    agree("art", name, on_mnist)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_hardened_mnist(name: str, agree: Any, on_hardened: Any) -> None:
    agree("art", name, on_hardened)
