"""Of two that want the same thing from the cache, one makes it."""

import threading

import pytest
import torch
from torch import Tensor

from assay.core.cache import remembered


def test_the_second_waits_for_the_first_and_makes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), list[str]()

    def slowly() -> dict[str, Tensor]:
        made.append("first")
        begun.set()
        assert go_on.wait(60)
        return {"x": torch.arange(3)}

    def again() -> dict[str, Tensor]:
        made.append("second")
        return {"x": torch.zeros(3)}

    found: dict[str, Tensor] = {}

    def wanting() -> None:
        found.update(remembered("kind", "key", again, lambda columns: "x" in columns))

    first = threading.Thread(target=lambda: remembered("kind", "key", slowly, lambda columns: "x" in columns))
    second = threading.Thread(target=wanting)
    first.start()
    assert begun.wait(60)
    second.start()
    while "this one waits for it" not in caplog.text and second.is_alive():
        second.join(0.01)
    go_on.set()
    first.join(60)
    second.join(60)
    assert made == ["first"]
    assert found["x"].tolist() == [0, 1, 2]
