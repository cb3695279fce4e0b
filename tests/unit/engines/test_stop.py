"""The first Ctrl-C lets the block under way be finished and kept, the second ends at once."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import assay
from assay.core import store
from assay.engines.stop import Stopper
from thresholds import Threshold, line


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before, "who caught it gives it back"


class Pressed:
    """Hears of progress and presses Ctrl-C when it hears for the n-th time, and as often as told."""

    def __init__(self, at: int, times: int = 1) -> None:
        self.left, self.times = at, times

    def __call__(self, _told: Any) -> None:
        self.left -= 1
        if self.left == 0:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def commits(run: str, kind: str) -> int:
    return sum(1 for _ in store.read(store.find_run(run)).commits(kind))


def test_an_evaluation_keeps_the_block_under_way() -> None:
    given: dict[str, Any] = {"suite": "fgsm", "eps": 0.1, "batch": 4, "save": "kept"}
    with pytest.raises(KeyboardInterrupt):
        assay.evaluate(Threshold(), line(12), progress=Pressed(1), **given)
    assert commits("kept", "eval") == 1, "it struck in the first block, and none came after it"
    done = assay.evaluate(Threshold(), line(12), **given)
    assert commits("kept", "eval") == 3
    whole = assay.evaluate(Threshold(), line(12), **{**given, "save": None})
    assert (done.clean, done.worst) == (whole.clean, whole.worst)


def test_twice_is_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        assay.evaluate(Threshold(), line(12), suite="fgsm", eps=0.1, batch=4, save="a", progress=Pressed(1, times=2))
    assert commits("a", "eval") == 0


def test_without_a_run_there_is_nothing_to_finish_for() -> None:
    heard: list[Any] = []

    def press(told: Any) -> None:
        heard.append(told)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        assay.evaluate(Threshold(), line(12), suite="fgsm", eps=0.1, batch=4, progress=press)
    assert len(heard) == 1


def test_a_shrinking_keeps_the_block_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.engines import shrink as engine

    monkeypatch.setattr(engine, "BLOCK", {"cpu": 2})
    found = assay.fuzz("noise", Threshold(), line(width=6), run="first", eps=0.3)
    assert found.failures >= 5
    given: dict[str, Any] = {"model": Threshold(), "k": 5, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        assay.shrink("first", progress=Pressed(1), **given)
    assert commits("first", "shrink") == 1
    made = assay.shrink("first", **given)
    assert (commits("first", "shrink"), len(made)) == (3, 5)


def test_a_stopper_ends_where_it_is_asked() -> None:
    with Stopper(None) as stop:
        stop.end()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.interrupted
        with pytest.raises(KeyboardInterrupt):
            stop.end()
