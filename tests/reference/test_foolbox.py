"""Agreement with foolbox (`make reference`): same attack, same success or more."""

from typing import Any

import pytest

pytest.importorskip("foolbox")

ATTACKS = ("fgsm", "bim", "mim", "pgd", "pgd_l2", "cw", "deepfool", "hop_skip_jump", "boundary", "spatial")


@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_digits(name: str, agree: Any, on_digits: Any) -> None:
    agree("foolbox", name, on_digits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_mnist(name: str, agree: Any, on_mnist: Any) -> None:
    agree("foolbox", name, on_mnist)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_hardened_mnist(name: str, agree: Any, on_hardened: Any) -> None:
    agree("foolbox", name, on_hardened)
