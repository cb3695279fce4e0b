"""The little language of names."""

from pathlib import Path
from typing import Any

import pytest

from assay.core import specs
from assay.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40", 40),
        ("0.5", 0.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ('"40"', "40"),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ("8/255", 8 / 255),
        (" 1 / 4 ", 0.25),
        ("l2", "l2"),
        (" l2 ", "l2"),
        ("a/b", "a/b"),
        ("", ""),
    ],
)
def test_values(text: str, value: Any) -> None:
    read = specs.value(text)
    assert read == value
    assert type(read) is type(value)


def test_a_fraction_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="got '1/0'"):
        specs.value("1/0")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("fgsm", ["fgsm"]),
        (" fgsm , pgd ", ["fgsm", "pgd"]),
        ("fgsm,,pgd,", ["fgsm", "pgd"]),
        ("pgd(steps=40, step=0.1),bim", ["pgd(steps=40, step=0.1)", "bim"]),
        ("a(x=[1, 2], y={}),b[1:2]", ["a(x=[1, 2], y={})", "b[1:2]"]),
    ],
)
def test_split(text: str, parts: list[str]) -> None:
    assert specs.split(text) == parts


@pytest.mark.parametrize("text", ["pgd(steps=1", "pgd)", "a,b]", "a)(b", "a(b=1))((", 'a(b="x)', '"'])
def test_split_refuses_open_brackets(text: str) -> None:
    with pytest.raises(UsageError, match="brackets do not match"):
        specs.split(text)


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("pgd", "pgd", {}),
        (" pgd ", "pgd", {}),
        ("pgd()", "pgd", {}),
        ("pgd(steps=40, norm=l2)", "pgd", {"steps": 40, "norm": "l2"}),
        ("pgd( eps = 8/255 )", "pgd", {"eps": 8 / 255}),
        ("a.py:mine(sizes=[1, 2], text=x=y)", "a.py:mine", {"sizes": [1, 2], "text": "x=y"}),
        (("pgd", {"steps": 3}), "pgd", {"steps": 3}),
    ],
)
def test_step(text: specs.Step, name: str, params: dict[str, Any]) -> None:
    assert specs.step(text) == (name, params)


def test_the_parameters_of_a_step_are_a_copy() -> None:
    given: dict[str, Any] = {"steps": 3}
    specs.step(("pgd", given))[1]["steps"] = 4
    assert given == {"steps": 3}


@pytest.mark.parametrize("text", ["", " ", "\n\t", "(steps=1)", "pgd(steps=1)x", "pgd(a=1", "a)(b"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        specs.step(text)


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        specs.step("pgd(40)")
    assert str(refused.value) == "'40' in 'pgd(40)' is not key=value"


def test_steps_of_text_and_of_sequences() -> None:
    assert specs.steps("fgsm,pgd(steps=2)") == [("fgsm", {}), ("pgd", {"steps": 2})]
    assert specs.steps(["fgsm", ("pgd", {"steps": 2})]) == [("fgsm", {}), ("pgd", {"steps": 2})]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("mnist", "mnist", slice(None)),
        ("mnist/test[:500]", "mnist/test", slice(None, 500, None)),
        ("mnist[100:]", "mnist", slice(100, None, None)),
        ("mnist[-10:-1]", "mnist", slice(-10, -1, None)),
        ("mnist[::2]", "mnist", slice(None, None, 2)),
        ("mnist[ 1 : 2 ]", "mnist", slice(1, 2, None)),
        ("mnist[:]", "mnist", slice(None, None, None)),
    ],
)
def test_sliced(text: str, name: str, expected: slice) -> None:
    assert specs.sliced(text) == (name, expected)


@pytest.mark.parametrize("inside", ["", "5", "a:b", "1:2:3:4", "1.5:", "1;2", "-:", ":-", "--1:", "1 2:"])
def test_what_is_no_slice_is_refused(inside: str) -> None:
    with pytest.raises(UsageError) as refused:
        specs.sliced(f"mnist[{inside}]")
    assert str(refused.value) == f"a slice is written as [:500], [100:] or [::2], got [{inside}]"


@pytest.mark.parametrize("inside", ["::0", "::-1"])
def test_a_slice_steps_forward(inside: str) -> None:
    with pytest.raises(UsageError, match="a slice steps forward"):
        specs.sliced(f"mnist[{inside}]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mine.py:attack", (Path("mine.py"), "attack")),
        ("a/b.c/mine.py:_x1", (Path("a/b.c/mine.py"), "_x1")),
        ("/abs/mine.py:f", (Path("/abs/mine.py"), "f")),
        ("pgd", None),
        ("mine.py", None),
        ("mine.py:", None),
        ("mine.py:1f", None),
        ("mine.py:a.b", None),
        ("mine.txt:f", None),
        (".py:f", None),
    ],
)
def test_python_file(text: str, expected: tuple[Path, str] | None) -> None:
    assert specs.python_file(text) == expected


@pytest.mark.parametrize(
    ("wrong", "right", "hint"),
    [
        ("pdg", ["pgd", "fgsm"], "did you mean 'pgd'?"),
        ("zzzz", ["pgd", "fgsm"], "known: fgsm, pgd"),
        ("pgd", [], "none is known"),
    ],
)
def test_did_you_mean(wrong: str, right: list[str], hint: str) -> None:
    assert specs.did_you_mean(wrong, right) == hint


def test_dash_and_underscore_are_one() -> None:
    assert specs.canonical("fashion-mnist") == specs.canonical("fashion_mnist")


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        specs.step("pgd(steps=1, steps=2)")
    assert str(refused.value) == "'steps' is set twice in 'pgd(steps=1, steps=2)'"


def test_what_is_quoted_does_not_part() -> None:
    assert specs.split('a(t="x, (y"),b') == ['a(t="x, (y")', "b"]
    assert specs.step(r'a(t="x, \"y\" )", n=1)') == ("a", {"t": 'x, "y" )', "n": 1})


@pytest.mark.parametrize("text", [3, None, ("a",), ["a", {}, 1]])
def test_other_things_are_no_step(text: Any) -> None:
    with pytest.raises(UsageError, match="expected a name or name"):
        specs.step(text)


WRITTEN = [
    "l2",
    "a b",
    "",
    " a ",
    "1",
    "8/255",
    "null",
    "true",
    "True",
    "NaN",
    "x, y",
    "a)(",
    "[",
    '"',
    'a"b',
    "a=b",
    "é\n",
]


@pytest.mark.parametrize(
    "thing",
    [*WRITTEN, 0, -3, 0.1, 1e-300, True, False, None, [1, 2], ["a", "b,c"], {"k": [1]}],
)
def test_what_is_written_reads_back(thing: Any) -> None:
    name, params = specs.step(f"a(before=1, thing={specs.written(thing)}, after=2)")
    assert (name, params) == ("a", {"before": 1, "thing": thing, "after": 2})
    assert type(params["thing"]) is type(thing)
