"""Agreement with pyautoattack, the port of the original AutoAttack (`make reference`): same success or more."""

from typing import Any

import pytest

pytest.importorskip("pyautoattack")

ATTACKS = ("apgd_ce", "apgd_dlr", "apgd_t", "fab_t", "square", "autoattack")


@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_digits(name: str, agree: Any, on_digits: Any) -> None:
    agree("pyautoattack", name, on_digits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_mnist(name: str, agree: Any, on_mnist: Any) -> None:
    agree("pyautoattack", name, on_mnist)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_as_strong_on_hardened_mnist(name: str, agree: Any, on_hardened: Any) -> None:
    agree("pyautoattack", name, on_hardened)
