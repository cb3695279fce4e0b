"""Numbers, times and budgets as people write them."""

import pytest

from assay.core.errors import UsageError
from assay.core.units import budget, clock, number, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("8/255", 8 / 255), (" 1 / 4 ", 0.25), ("-1/2", -0.5), ("1e-3", 0.001), (3, 3.0), (0.5, 0.5)],
)
def test_numbers(text: str | float, value: float) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["", "eight", "1/0", "0/0", "1/2/3", "/", "1/", "0x10", "1,5"])
def test_what_is_no_number_is_refused_by_its_name_and_value(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        number(text, "step")
    assert str(refused.value) == f"step must be a number such as 0.1 or 8/255, got {text!r}"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1e308/1e-308", float("nan"), float("inf")])
def test_a_number_is_finite(text: str | float) -> None:
    with pytest.raises(UsageError, match="number must be finite"):
        number(text)


def test_a_budget_is_not_negative() -> None:
    assert budget("8/255") == 8 / 255
    assert budget(0) == 0.0
    with pytest.raises(UsageError, match="eps must not be negative, got '-1/255'"):
        budget("-1/255")
    with pytest.raises(UsageError, match="eps must be finite"):
        budget("nan")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        (90, 90.0),
        ("30s", 30.0),
        ("10m", 600.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("250ms", 0.25),
        ("1m1s500ms", 61.5),
    ],
)
def test_times(text: str | float, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "10 m", "m", "10x", "1h30", "-5s", "-5", "1h,30m", "nan"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        seconds(text)
    assert str(refused.value) == f"a time is written as 30s, 10m or 1h30m, got {text!r}"


@pytest.mark.parametrize("text", ["0", "0s", 0, -1.0, float("inf"), float("nan"), "9" * 400])
def test_a_time_is_positive_and_finite(text: str | float) -> None:
    with pytest.raises(UsageError, match="a time must be positive"):
        seconds(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0s"),
        (12.34, "12.3s"),
        (59.94, "59.9s"),
        (59.96, "1m00s"),
        (60, "1m00s"),
        (61.4, "1m01s"),
        (119.6, "2m00s"),
        (3599.4, "59m59s"),
        (3599.6, "1h00m"),
        (4000, "1h06m"),
        (90_000, "25h00m"),
    ],
)
def test_clock(value: float, text: str) -> None:
    assert clock(value) == text


def test_an_integer_beyond_every_float_is_no_number() -> None:
    with pytest.raises(UsageError, match="eps must be a number such as"):
        number(10**400, "eps")
