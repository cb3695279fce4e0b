"""What an engine measures: a model, its data fitted to it, and the cases among them that have labels."""

from pathlib import Path
from typing import Any

from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import NothingToTest
from assay.subjects.bench import Data, fitted
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target


def load_subject(
    model: Any,
    data: str | Data,
    *,
    device: str,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    answers: Path | None = None,
) -> tuple[Target, Data, Cases]:
    """The target, the data with labels in its order of classes, and their labelled cases, of which there are some."""
    given = load_data(data, part="test", like=model)
    target = load_target(
        model,
        data=given,
        device=device,
        mean=mean,
        std=std,
        queries=queries,
        ask=ask,
        white_box=white_box,
        answers=answers,
    )
    given = fitted(target, given)
    labelled = given.cases[given.cases.y != UNLABELLED]
    if not len(labelled):
        raise NothingToTest(f"{given.name} has no labels, so there is no accuracy to measure")
    return target, given, labelled
