"""Functions as targets, and what `load_target` makes of black boxes in general."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.cases import Cases, InputSpec
from assay.core.errors import BudgetSpent, NoAnswer, UsageError
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1, 2, 2), (0.0, 1.0), ("0", "1", "2"))
FILE = """
import numpy as np
CALLS = []
def predict(x):
    CALLS.append(len(x))
    p = np.stack([x.mean((1, 2, 3)), x.max((1, 2, 3))], 1)
    x[:] = 7  # whoever is sloppy with its inputs harms nobody
    return np.concatenate([p, 1 - p.sum(1, keepdims=True)], 1)
def labels(x):
    return (x.mean((1, 2, 3)) > 0.25).astype(int)
def broken(x):
    raise ValueError("no weights today")
number = 7
"""


@pytest.fixture
def data() -> Data:
    x = torch.rand(6, 1, 2, 2, generator=torch.Generator().manual_seed(0)) / 2
    return Data("made", Cases.of(x, torch.arange(6) % 3), SPEC)


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "my.py").write_text(FILE)
    return f"call:{tmp_path / 'my.py'}"


def load(*args: Any, **more: Any) -> Asked:
    target = load_target(*args, **more)
    assert isinstance(target, Asked)
    return target


def test_a_function_of_a_file(text: str, data: Data) -> None:
    target = load(f"{text}:predict", data=data)
    x = data.cases.x
    before = x.clone()
    out = target(x).softmax(1)
    assert torch.allclose(out[:, 0], x.mean((1, 2, 3)))
    assert torch.allclose(out[:, 1], x.amax((1, 2, 3)))
    assert torch.equal(x, before)
    assert target.gives == {"label", "prob"}
    assert target.spec == SPEC
    assert target.queries.asked == 6  # the one that was asked to see what it answers is among them


def test_labels_are_seen_from_one_question(text: str, data: Data) -> None:
    target = load(f"{text}:labels", data=data)
    assert target.gives == {"label"}
    assert target.queries.asked == 1
    assert load(f"{text}:labels", data=data, ask="labels=true").queries.asked == 0  # it was told


def test_a_live_function(data: Data) -> None:
    target = load(lambda rows: np.full((len(rows), 4), 0.25), data=data)
    assert target.spec.classes == ("0", "1", "2", "3")
    assert load_target(target) is target


def test_a_function_that_fails_is_told(text: str, data: Data) -> None:
    with pytest.raises(NoAnswer, match="broken failed: ValueError: no weights today"):
        load(f"{text}:broken", data=data)


def test_the_fingerprint_follows_the_file(text: str, data: Data) -> None:
    first = load(f"{text}:predict", data=data).fingerprint()
    assert first == load(f"{text}:predict", data=data).fingerprint()
    assert first != load(f"{text}:labels", data=data).fingerprint()
    path = Path(text.removeprefix("call:"))
    path.write_text(FILE + "# changed\n")
    assert first != load(f"{text}:predict", data=data).fingerprint()
    assert load(_one, data=data).fingerprint() != load(_two, data=data).fingerprint()


def _one(rows: Any) -> Any:
    return np.zeros(len(rows), int)


def _two(rows: Any) -> Any:
    return np.ones(len(rows), int)


def test_an_earlier_command_saves_the_first_question(text: str, data: Data) -> None:
    kept = Path("answers.jsonl")
    first = load(f"{text}:labels", data=data, queries=3)
    first.keep(kept)
    first(data.cases.x[:3])
    again = load(f"{text}:labels", data=data, queries=3, answers=kept)
    again.keep(kept)
    assert again.gives == {"label"}
    assert again.queries.asked == 3
    with pytest.raises(BudgetSpent):
        again(data.cases.x)


def test_a_budget_makes_a_black_box_of_any_model(linear_target: Callable[..., ModuleTarget]) -> None:
    module = linear_target()
    target = load(module, queries=4, ask="batch=2, repeats=2")
    assert target.gives == {"label", "prob"}
    assert (target.batch, target.affordable()) == (2, 2)
    with pytest.raises(UsageError, match="the target only answers"):
        module_of(target)
    live = load(module.module, data=Data("made", Cases.of(torch.rand(3, 1, 4, 4)), module.spec), ask="labels=true")
    assert live.gives == {"label"}
    assert live.queries.limit is None
    assert load(target, queries=9).queries.limit == 9
    with pytest.raises(UsageError, match="asked in a way of its own"):
        load(target, ask="repeats=3")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mean": (0.5,), "std": (0.5,)}, "--mean and --std are for a bare net"),
        ({"white_box": True}, "--white-box opens ONNX files"),
        ({"ask": "timeout=3"}, "timeout means nothing for a function"),
        ({"queries": 0}, "from 1 up"),
        ({"ask": "classes=2"}, "classes=2, but the data have 3"),
        ({"white_box": True, "queries": 3}, "leave one out"),
        ({"data": None}, "does not say what inputs it takes"),
    ],
)
def test_nonsense_is_refused_before_anything_is_asked(
    text: str, data: Data, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_target(f"{text}:predict", **{"data": data, **more})


def test_texts_that_name_no_function(text: str, data: Data) -> None:
    for wrong, message in (
        ("call:my.py", "names no function; write call:file.py:function"),
        (f"{text}:number", "is int, expected a function"),
        (f"{text}:predikt", "did you mean 'predict'"),
        ("call:none.py:f", "no such file"),
    ):
        with pytest.raises(UsageError, match=message):
            load_target(wrong, data=data)
    with pytest.raises(UsageError, match="rate means nothing for a model in this process"):
        load_target(torch.nn.Flatten(), data=data, ask="rate=3")
