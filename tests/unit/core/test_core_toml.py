"""TOML that the standard library reads back to the same thing."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.core.toml import dumps

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=6)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
tables = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), st.dictionaries(keys, values, max_size=4), max_size=3
)


@given(tables)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_round_trip(config: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(config)) == config


def test_the_text_itself() -> None:
    config = {"run": {"seed": 0, "eps": "8/255", "on": True, "sizes": (1, 2), "inner": {"a b": 1.5}}, "budget": {}}
    text = dumps(config)
    assert text == (
        '[run]\nseed = 0\neps = "8/255"\non = true\nsizes = [1, 2]\n\n[run.inner]\n"a b" = 1.5\n\n[budget]\n'
    )


def test_types_and_order_survive() -> None:
    config = {"run": {"z": 1, "a": 1.0, "m": True, "big": 10**30, "small": 1e-300}}
    back = tomllib.loads(dumps(config))
    assert [(k, type(v), v) for k, v in back["run"].items()] == [(k, type(v), v) for k, v in config["run"].items()]


@pytest.mark.parametrize(
    "text",
    ['"', "\\", "\n", "\r", "\t", "\0", "\x1b[0m", "\x7f", "😀", "\u202e", "'''", '"""', "# no comment", "é\u2028"],
)
def test_awkward_text_survives(text: str) -> None:
    assert tomllib.loads(dumps({"run": {"text": text, "list": [text], "table": [{"k": text}]}})) == {
        "run": {"text": text, "list": [text], "table": [{"k": text}]}
    }


def test_numbers_that_are_not_finite_survive() -> None:
    back = tomllib.loads(dumps({"run": {"a": math.inf, "b": -math.inf, "c": math.nan}}))["run"]
    assert (back["a"], back["b"]) == (math.inf, -math.inf)
    assert math.isnan(back["c"])


@pytest.mark.parametrize("value", [None, object(), b"x", {1, 2}, [None], {"a": [None]}])
def test_what_toml_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="a configuration cannot hold"):
        dumps({"run": {"x": value}})


def test_nothing_is_nothing() -> None:
    assert tomllib.loads(dumps({})) == {}


def test_table_names_and_keys_that_need_quotes() -> None:
    config = {"a.b": {"x": 1, "in ner": {"😀": 2}}, "": {"é": 3}, "ß": {"]": {"[": True}}, "😀": {}}
    assert tomllib.loads(dumps(config)) == config


def test_numbers_of_numpy_are_numbers() -> None:
    back = tomllib.loads(dumps({"run": {"eps": np.float64(0.1), "list": [np.float64(2.0)]}}))
    assert back == {"run": {"eps": 0.1, "list": [2.0]}}


def test_what_is_no_unicode_is_shown_by_its_bytes() -> None:
    text = dumps({"run": {"path": "a\udcff", "k\ud800": 1}})
    assert tomllib.loads(text) == {"run": {"path": "a\\udcff", "k\\ud800": 1}}
    assert text.encode("utf-8").decode("utf-8") == text
