"""The stream of events and its sinks: what they are told, and that none of them ever stops or holds up the work."""

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import small
from assay.cli import run as command
from assay.core import store
from assay.core.errors import UsageError
from assay.core.journal import Line
from assay.core.onlookers import looking_on
from assay.core.shards import encode
from assay.outputs.track import Event, Take, pictures, sinks, stream
from assay.outputs.track.home import Home
from assay.outputs.track.numbers import clean_name, numbers_in
from assay.outputs.track.stream import Stream, tracked

CONFIG: dict[str, dict[str, Any]] = {
    "run": {"kind": "fuzz", "seed": 1},
    "target": {"model": "m", "classes": ["cat", "dog"]},
}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set of numbers is an event, however quick the work."""
    monkeypatch.setattr(stream, "EVERY", 0.0)


def lines(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def given_to(*takes: Callable[[Event], None]) -> Stream:
    """A stream to sinks that are functions of the test."""
    return Stream([(f"sink-{i}", take) for i, take in enumerate(takes)], "fuzz", {"model": "m"}, Home(expected=False))


# What is told


def test_events_in_their_order(tmp_path: Path) -> None:
    with tracked("jsonl:told/events.jsonl", "fuzz", facts={"model": "m"}, run=False) as tell:
        tell({"cases": 10, "yield": {"noise": 2}, "phase": "", "attack": "pgd"})
        tell({"cases": 20, "bad": float("nan")})
        tell.result({"failures": 2, "cases": 20, "broken": 1, "seeds": 4, "protocol": {"eps": 0.1}})
    begin, first, second, end = lines(tmp_path / "told/events.jsonl")
    assert (begin["event"], begin["verb"], begin["config"], begin["run"]) == ("begin", "fuzz", {"model": "m"}, None)
    assert first["numbers"] == {"fuzz/cases": 10, "fuzz/yield/noise": 2}
    assert first["texts"] == {"attack": "pgd"}
    assert second["numbers"] == {"fuzz/cases": 20}
    assert (end["event"], end["status"]) == ("end", "done")
    assert end["verdict"] == "2 failures in 20 cases; 1 of 4 seeds broken"
    assert end["numbers"] == {"result/failures": 2, "result/cases": 20, "result/broken": 1, "result/seeds": 4}


def test_numbers_that_come_too_often_are_held_back_and_the_last_ones_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "EVERY", 3600.0)
    with tracked("jsonl:e.jsonl", "fuzz", run=False) as tell:
        for cases in range(100):
            tell({"cases": cases})
    told = [event["numbers"]["fuzz/cases"] for event in lines(tmp_path / "e.jsonl") if event["event"] == "numbers"]
    assert told == [0, 99]


def test_epochs_are_never_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "EVERY", 3600.0)
    with tracked("jsonl", "train", beside="nets/net.safetensors") as tell:
        for epoch in (1, 2, 3):
            tell({"epoch": epoch - 0.5})
            tell({"epoch": epoch, "loss": 1.0, "val_accuracy": 0.5})
    told = [event for event in lines(tmp_path / "nets/net.events.jsonl") if event.get("by") == "epoch"]
    assert [event["step"] for event in told] == [1, 2, 3]
    assert told[0]["numbers"] == {"train/epoch": 1, "train/loss": 1.0, "train/val_accuracy": 0.5}


@pytest.mark.parametrize(
    ("error", "result", "status"),
    [
        (None, {}, "done"),
        (KeyboardInterrupt(), {}, "interrupted"),
        (ValueError("x"), {}, "failed"),
        (None, {"interrupted": True}, "interrupted"),
        (None, {"stopped": "interrupted"}, "interrupted"),
        (None, {"met": False}, "not met"),
        (None, {"complete": False}, "budget spent"),
    ],
)
def test_the_end_says_how(error: BaseException | None, result: dict[str, Any], status: str, tmp_path: Path) -> None:
    def work() -> None:
        with tracked("jsonl:e.jsonl", "fuzz", run=False) as tell:
            tell({"cases": 1})
            tell.result(result)
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    assert lines(tmp_path / "e.jsonl")[-1]["status"] == status


def test_a_result_of_any_form_ends_the_stream(tmp_path: Path) -> None:
    with tracked("jsonl:e.jsonl", "eval", run=False) as tell:
        tell.result({"clean": 3, "odd": [1, 2]})
    assert lines(tmp_path / "e.jsonl")[-1]["verdict"] == ""


def test_work_that_never_begins_tells_nothing(tmp_path: Path) -> None:
    def refused() -> None:
        with tracked("jsonl", "fuzz"), store.opened("a", CONFIG, {}):
            raise UsageError("no such thing")

    with pytest.raises(UsageError, match="no such thing"):
        refused()
    assert list((tmp_path / "runs").iterdir()) == []


def test_rounds_and_commits_of_a_run(tmp_path: Path) -> None:
    with tracked("jsonl", "harden") as tell, store.opened("a", CONFIG, {}) as folder:
        folder.commit({}, kind="round", round=0, numbers={"robust": 0.2}, counts={"found": 0})
        with store.opened(None, CONFIG, {}, folder=folder.path / "round-001") as inner:
            inner.commit({}, kind="fuzz", unit=0)
        folder.commit({}, kind="round", round=1, numbers={"robust": 0.5}, counts={"found": 7})
        tell.result({"met": True, "unreliable": False, "verdicts": [{"clause": "robust>=0.4", "value": 0.5}]})
    begin, *rounds, end = lines(tmp_path / "runs/a/events.jsonl")
    assert (begin["name"], begin["run"]) == ("a", str(tmp_path / "runs/a"))
    assert begin["config"]["target"]["classes"] == ["cat", "dog"]
    assert [(r["by"], r["step"], r["numbers"]) for r in rounds] == [
        ("round", 0, {"round/robust": 0.2, "round/found": 0}),
        ("round", 1, {"round/robust": 0.5, "round/found": 7}),
    ]
    assert end["verdict"] == "requirement met (robust>=0.4: 0.5)"


def test_nobody_is_told_once_the_stream_has_ended(tmp_path: Path) -> None:
    with tracked("jsonl:e.jsonl", "fuzz", run=False) as tell:
        tell({"cases": 1})
    before = (tmp_path / "e.jsonl").read_bytes()
    with store.opened("a", CONFIG, {}) as folder:
        folder.commit({}, kind="round", round=1, numbers={"robust": 1.0})
    assert (tmp_path / "e.jsonl").read_bytes() == before


def test_a_torn_line_is_ended_and_the_next_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"event": "numbers", "st')
    with tracked("jsonl:e.jsonl", "fuzz", run=False) as tell:
        tell({"cases": 1})
    torn, *good = (tmp_path / "e.jsonl").read_text().splitlines()
    assert torn == '{"event": "numbers", "st'
    assert [json.loads(line)["event"] for line in good] == ["begin", "numbers", "end"]


# Sinks that do not behave


def test_a_sink_that_fails_warns_once_and_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    good: list[str] = []

    def bad(event: Event) -> None:
        raise ConnectionError("http://me:sec@ret@host refused\nmore")

    tell = given_to(bad, lambda event: good.append(event["event"]))
    with caplog.at_level(logging.WARNING, "assay"):
        for cases in range(5):
            tell({"cases": cases})
        tell.close(None)
    assert (good[:3], good[-1]) == (["open", "begin", "numbers"], "end")
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "--log sink-0 is left out from here on, the work goes on: ConnectionError: http://…@host refused",
    ]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_whatever_a_sink_raises_stays_in_its_thread(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: Event) -> None:
        raise error

    tell = given_to(bad)
    with caplog.at_level(logging.WARNING, "assay"):
        tell({"cases": 1})
        tell.close(None)
    assert type(error).__name__ in caplog.text


def test_a_sink_that_hangs_is_given_up_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "LEAVING", 0.2)
    release, good = threading.Event(), list[str]()

    def hangs(event: Event) -> None:
        if event["event"] == "begin":
            release.wait()

    tell = given_to(hangs, lambda event: good.append(event["event"]))
    with caplog.at_level(logging.WARNING, "assay"):
        tell({"cases": 1})
        tell.close(None)  # comes back although nobody released it
    assert not release.is_set()
    assert "--log sink-0 is left out from here on, the work goes on: no answer for 0.2 s" in caplog.text
    assert good == ["open", "begin", "numbers", "end"]
    release.set()


def test_a_sink_that_hangs_is_given_up_while_the_work_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "STALL", 0.05)
    release, entered = threading.Event(), threading.Event()

    def hangs(event: Event) -> None:
        entered.set()
        release.wait()

    sink = sinks.Sink("slow", hangs)
    with caplog.at_level(logging.WARNING, "assay"):
        sink.post({"event": "begin"})
        assert entered.wait(60)
        time.sleep(0.1)
        sink.post({"event": "numbers"})
        sink.post({"event": "numbers"})
    assert [record.getMessage() for record in caplog.records] == [
        "--log slow is left out from here on, the work goes on: no answer for 0.05 s"
    ]
    release.set()


def test_a_slow_sink_gets_fewer_numbers_and_everything_else() -> None:
    release, got = threading.Event(), list[str]()

    def slow(event: Event) -> None:
        release.wait()
        got.append(event["event"])

    sink = sinks.Sink("slow", slow)
    sink.post({"event": "begin"})
    for _ in range(100):
        sink.post({"event": "numbers"}, may_skip=True)
    for _ in range(10):
        sink.post({"event": "image"})
    sink.post({"event": "end"})
    release.set()
    sinks.finish([sink])
    assert got[0] == "begin"
    assert got[-1] == "end"
    assert got.count("image") == 10
    assert got.count("numbers") <= sinks.WAITING


def test_a_full_disk_drops_the_lines_and_not_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "assay"), tracked("jsonl:/dev/full", "fuzz", run=False) as tell:
        tell({"cases": 1})
        tell({"cases": 2})
    assert "jsonl:/dev/full is left out from here on" in caplog.text
    assert "No space left" in caplog.text


# Which sinks


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("jsnl", "unknown sink 'jsnl'; did you mean 'jsonl'?"),
        ("jsonl", "--log jsonl has no run folder to write to; give --save NAME, or jsonl:FILE"),
        ("jsonl(file=x)", "has no parameter 'file'"),
        ("jsonl:a, jsonl:a", "--log names jsonl:a twice"),
        ("none.py:sink", "no such file"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(log: str, said: str) -> None:
    with pytest.raises(UsageError) as refused, tracked(log, "eval", run=False, named_by="--save NAME"):
        pytest.fail("the work began")
    assert said in str(refused.value)


def test_a_sink_of_the_users_own_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def sink(home, *, word='told'):\n"
        "    out = open('mine.txt', 'w')\n"
        "    def take(event):\n"
        "        print(word, event['event'], file=out, flush=True)\n"
        "    return take\n"
        "def wrong(home):\n"
        "    return 3\n"
    )
    with tracked("mine.py:sink(word=heard)", "fuzz", run=False) as tell:
        tell({"cases": 1})
    assert (tmp_path / "mine.txt").read_text().split() == [
        "heard",
        "open",
        "heard",
        "begin",
        *["heard", "numbers"],
        "heard",
        "end",
    ]
    with pytest.raises(UsageError, match="must return a function that takes an event, it gave int"):
        sinks.sinks_of("mine.py:wrong", Home())


def test_no_sink_is_no_thread_and_the_screen_itself() -> None:
    def screen(numbers: Any) -> None: ...

    before = threading.active_count()
    with tracked("", "fuzz") as tell:
        assert tell.on(screen) is screen
        tell({"cases": 1})
        assert threading.active_count() == before


# Names and numbers


def test_numbers_are_finite_and_not_too_many() -> None:
    tree = {"a": {"b": 1, "c": True, "d": float("inf"), "e": "text", "f": [1]}, "huge": 10**400}
    assert numbers_in(tree, "x/") == {"x/a/b": 1.0, "x/a/c": 1.0}
    assert len(numbers_in({str(i): i for i in range(1000)})) == 200


@pytest.mark.parametrize(
    "name", ["../../etc", "/abs", "a//b", "<script>", "\x1b[31m", "é\n", "", "x" * 999, "a/../b", "."]
)
def test_clean_names_are_paths_that_lead_nowhere_else(name: str) -> None:
    cleaned = clean_name(name)
    assert cleaned
    assert len(cleaned) <= 200
    assert all(part.strip(".") for part in cleaned.split("/"))
    assert all(c.isalnum() or c in "_. -/" for c in cleaned)


# Pictures


def shard(n: int, pred: Any = 1, **more: torch.Tensor) -> bytes:
    rng = torch.Generator().manual_seed(n)
    x = torch.rand(n, 1, 4, 4, generator=rng)
    preds = torch.full((n,), pred) if isinstance(pred, int) else pred
    columns = {"x": x, "y": torch.zeros(n, dtype=torch.int64), "origin": torch.arange(n), "pred": preds}
    return encode(columns | {"seeds": torch.zeros(1, 1, 4, 4), "seed": torch.zeros(n, dtype=torch.int64)} | more)


def test_a_few_pictures_of_each_pair_and_not_many_in_all(tmp_path: Path) -> None:
    def told(pred: Any, n: int = 50) -> list[Event]:
        (tmp_path / "cases").mkdir(exist_ok=True)
        (tmp_path / "cases/s").write_bytes(shard(n, pred))
        return list(made.of(tmp_path, Line(1, {"cases/s": ""}, {"kind": "fuzz"})))

    made = pictures.Pictures()
    assert len(told(1)) == pictures.OF_A_PAIR
    assert told(1) == []
    assert len(told(torch.arange(51), 51)) == pictures.OF_A_COMMIT
    for first in range(100, 2000, 100):
        n = 60 + first // 100
        told(torch.arange(first, first + n), n)
    assert made.made == pictures.MOST


def test_pictures_of_a_run_are_told_with_ids_and_classes(tmp_path: Path) -> None:
    got: list[Event] = []
    tell = given_to(got.append)
    with looking_on(tell), store.opened("a", CONFIG, {}) as folder:
        folder.commit({"cases/step-000001.safetensors": shard(2)}, kind="fuzz", unit=0)
        tell.close(None)
    images = [event for event in got if event["event"] == "image"]
    assert [(event["true"], event["predicted"], event["number"]) for event in images] == [
        ("cat", "dog", 1),
        ("cat", "dog", 2),
    ]
    assert all(len(event["id"]) == 16 for event in images)
    assert images[0]["picture"].shape == (96, 3 * 96 + 2 * pictures.GAP, 3)


def test_examples_of_an_evaluation_are_pictured_where_they_fool(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    fools = torch.tensor([False, True, False])
    (tmp_path / "cases/s").write_bytes(shard(3, 1, success=fools))
    told = list(pictures.Pictures().of(tmp_path, Line(1, {"cases/s": ""}, {"kind": "eval"})))
    assert len(told) == 1


def test_a_picture_shows_seed_case_and_difference() -> None:
    seed, case = torch.zeros(1, 96, 96), torch.zeros(1, 96, 96)
    case[0, 0, 0] = 1.0
    image = pictures.drawn(case, seed)
    assert image[0, 0].tolist() == [0, 0, 0]
    assert image[0, 96].tolist() == [255, 255, 255]  # the gap
    assert image[0, 98].tolist() == [255, 255, 255]
    assert image[0, 2 * 98].tolist() == [255, 255, 255]
    assert image[50, 2 * 98 + 50].tolist() == [128, 128, 128]  # no change is grey


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 12), (4, 5, 5), (2, 1500, 700)])
def test_pictures_of_every_shape(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 300 - 100
    x[0, 0, 0] = torch.nan
    image = pictures.drawn(x, None)
    assert image.dtype == "uint8"
    assert image.shape[2] == 3
    assert max(image.shape[:2]) <= 512


# The verbs as typed


def test_fuzz_tells_its_run_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.prepare(tmp_path)
    for name, more in (("plain", ()), ("told", ("--log", "jsonl"))):
        assert command(small.fuzz(name, "--cases", "60", *more)) == 0
    told = lines(tmp_path / "runs/told/events.jsonl")
    assert [told[0]["event"], told[-1]["event"]] == ["begin", "end"]
    assert told[0]["config"]["recipe"]["name"] == "noise"
    images = [event for event in told if event["event"] == "image"]
    assert images
    assert "picture" not in images[0]
    assert told[-1]["numbers"]["result/failures"] > 0
    (tmp_path / "runs/told/events.jsonl").unlink()
    assert small.committed(tmp_path / "runs/told") == small.committed(tmp_path / "runs/plain")
    monkeypatch.setenv("ASSAY_FUZZ_LOG", "jsonl")
    assert command(small.fuzz("told", "--cases", "120")) == 0
    assert command(small.fuzz("told", "--cases", "180")) == 0
    again = lines(tmp_path / "runs/told/events.jsonl")
    assert [event["event"] for event in again if event["event"] in ("begin", "end")] == ["begin", "end"] * 2


def test_other_verbs_tell_too(tmp_path: Path) -> None:
    small.prepare(tmp_path)
    assert (
        command([*(part.format("e") for part in small.EVAL), "--eps", "0.5", "--log", "jsonl", "--json", "--quiet"])
        == 0
    )
    told = lines(tmp_path / "runs/e/events.jsonl")
    assert "n=16" in told[-1]["verdict"]
    assert any(event["event"] == "image" for event in told)
    assert 0 <= told[-1]["numbers"]["result/worst/accuracy"] <= 1
    assert command(["prioritise", small.MODEL, "--pool", "seeds.npz", "--log", "jsonl:p.jsonl", "--quiet"]) == 0
    assert lines(tmp_path / "p.jsonl")[0]["config"]["command"]["pool"] == "seeds.npz"
    assert (
        command(["train", "mlp", "--data", "digits", "--epochs", "1", "--out", "m.safetensors", "--log", "jsonl"]) == 0
    )
    assert lines(tmp_path / "m.events.jsonl")[-1]["verdict"].startswith("validation accuracy")


def test_hardening_tells_its_rounds(tmp_path: Path) -> None:
    small.prepare(tmp_path)
    assert command([*(part.format("h") for part in small.HARDEN), "--log", "jsonl", "--json"]) in (0, 1)
    told = lines(tmp_path / "runs/h/events.jsonl")
    assert [event["step"] for event in told if event.get("by") == "round"] == [0, 1]
    assert told[-1]["verdict"].startswith("requirement ")
    assert not (tmp_path / "runs/h/round-001/events.jsonl").exists()


def test_a_sink_that_cannot_be_is_exit_4(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small.prepare(tmp_path)
    assert command(["eval", small.MODEL, "--data", "seeds.npz", "--eps", "0.1", "--log", "jsonl"]) == 4
    assert "error: --log jsonl has no run folder to write to; give --save NAME" in capsys.readouterr().err
    assert command(small.fuzz("a", "--log", "nowhere")) == 4
    assert not (tmp_path / "runs/a").exists()


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UsageError, match=r"--log tensorboard needs tensorboard"):
        sinks.sinks_of("tensorboard", Home())


def test_the_kind_is_open_to_others() -> None:
    from assay.core.registry import bind, names

    assert {"jsonl", "mlflow", "tensorboard"} <= set(names("sink"))
    take: Take = bind("sink", "jsonl", {"place": "x"})(Home())
    assert callable(take)
