"""A frame of the status screen: what it shows, in a terminal of any size; and the screen's other ways of telling."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from assay.outputs.live import Moment, frame
from assay.outputs.screen import EACH, Screen, eval_line, fuzz_line, show_notices, train_line

SIGN = {"name": "no_finds_yet", "message": "no failure in 12345 cases; " + "try this " * 30, "more": "docs/status.md#x"}
FUZZ: dict[str, Any] = {
    "seconds": 12.0,
    "seeds": 256,
    "cases": 4000,
    "failures": 40,
    "waiting": 3,
    "tried": 4100,
    "rate": 310.4,
    "rate_mean": 341.6,
    "time_limit": 30.0,
    "seed_list": 694,
    "since_new": 2.5,
    "distinct": 30,
    "broken": 27,
    "kinds": 6,
    "nonfinite": 0,
    "flaky": 2,
    "skipped": 0,
    "valid": 0.982,
    "coverage": 0.345,
    "rules": {"rises": 120, "below": 0},
    "operators": {"blur": {"cases": 100, "failures": 1}, "noise": {"cases": 50, "failures": 9}},
    "stability": 1.0,
    "flat": None,
    "memory": {"rss": 512_000_000, "gpu": 1_500_000_000},
    "next_commit": 3.21,
    "warnings": [],
}


def shown(numbers: dict[str, Any], width: int = 100, height: int = 30, *, ascii_only: bool = False) -> list[str]:
    text, share = fuzz_line(numbers)
    moment = Moment("fuzz", text, share, numbers, numbers["seconds"])
    return [line.plain for line in frame(moment, width, height, ascii_only=ascii_only)]


def test_everything_is_there() -> None:
    text = "\n".join(shown(FUZZ))
    for fact in (
        "run time     12.0s of 30.0s",
        "cases        4100 (310/s now, 342/s)",
        "last new     2.5s ago",
        "failures     37 (6 kinds, 30 distinct)",
        "seeds done   256 (list of 694)",
        "seeds broken 27",
        "coverage     34.50%",
        "valid        98.2% of cases",
        "stability    100.0%",
        "trouble      2 flaky",
        "memory       512 MB, GPU 1.5 GB",
        "next commit  in about 3.2s, 3 failures wait",
        "kept because rises 120, below 0",
        "yield of     noise 9/50, blur 1/100",
        "Ctrl-C finishes this step",
        " 40.0%",
    ):
        assert fact in text, fact


@pytest.mark.parametrize("width", [1, 10, 25, 40, 60, 80, 96, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 9, 15, 50])
def test_it_fits_every_terminal(width: int, height: int) -> None:
    told = FUZZ | {"warnings": [SIGN, SIGN | {"name": "dried_up"}], "place": "round 1 of 3", "phase": "fuzz"}
    lines = shown(told, width, height)
    assert 1 <= len(lines) <= max(1, height - 1)
    assert max(map(len, lines)) <= max(1, width - 1)


def test_what_is_wrong_is_said_before_what_is_less_telling() -> None:
    lines = shown(FUZZ | {"warnings": [SIGN]}, 80, 10)
    assert any(line.startswith("! no_finds_yet no failure in 12345 cases;") for line in lines)
    assert any("docs/status.md#x" in line for line in lines)
    assert any("run time" in line for line in lines)
    assert not any("yield of" in line for line in lines)


def test_warnings_are_red_and_nothing_else() -> None:
    moment = Moment("fuzz", "", None, FUZZ | {"warnings": [SIGN]}, 1.0)
    red = [line.plain for line in frame(moment, 100, 30) if any("red" in str(span.style) for span in line.spans)]
    assert len(red) == 2
    assert red[0].startswith("! no_finds_yet")


def test_text_of_others_does_not_steer() -> None:
    rules = {"\x1b[2Jrule\n[bold]": 3}
    text = "\n".join(shown(FUZZ | {"rules": rules, "place": "\x1b]0;title\x07", "phase": "a\rb"}))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\\x1b[2Jrule\\n[bold] 3" in text


def test_a_terminal_without_unicode() -> None:
    lines = shown(FUZZ | {"warnings": [SIGN]}, 60, 30, ascii_only=True)
    assert "#" in lines[1]
    assert all(line.isascii() for line in lines)
    assert lines[2].startswith(" run time")


def test_other_verbs_show_what_they_have() -> None:
    text, share = eval_line({"done": 30, "of": 120, "attack": "pgd"})
    lines = [line.plain for line in frame(Moment("eval", text, share, {"done": 30}, 4.0, 12.0), 80, 24)]
    assert lines[0] == "assay eval  30 of 120 cases, pgd"
    assert lines[1].endswith(" 25.0%")
    assert "run time     4.0s, 12.0s left" in lines[2]
    line = train_line(4)
    line({"epoch": 1.0, "loss": 0.5, "val_accuracy": 0.9})
    assert line({"epoch": 2.0}) == ("epoch 2.0 of 4, loss 0.5000, val 0.9000", 0.5)


@pytest.mark.parametrize(
    ("limits", "share"),
    [({}, 256 / 694), ({"time_limit": 48.0}, 0.25), ({"time_limit": 24.0, "cases_limit": 8200}, 0.5)],
)
def test_how_much_of_the_budget_is_spent(limits: dict[str, float], share: float) -> None:
    numbers = {name: value for name, value in FUZZ.items() if name != "time_limit"} | limits
    assert fuzz_line(numbers)[1] == pytest.approx(share)


def test_a_line_every_ten_seconds_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("assay.outputs.screen.time.monotonic", lambda: now[0])
    with Screen("fuzz", fuzz_line, quiet=False) as screen:
        for _ in range(50):
            now[0] += 0.5
            screen(FUZZ | {"warnings": [SIGN]})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"fuzz {clock}: 4100 cases (310/s), 37 failures (30 distinct) and 3 to be kept at the next commit, "
        "256 seeds done, 34.5% covered, last new 2.5s ago; ! no_finds_yet"
        for clock in ("10.0s", "20.0s")
    ]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EACH, "lines", 0.0)
    with Screen("fuzz", fuzz_line, quiet=True, json_lines=True) as screen:
        screen(FUZZ)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """Ours, and given back as it was."""
    log = logging.getLogger("assay")
    handlers, level, propagate = log.handlers, log.level, log.propagate
    yield log
    log.handlers, log.propagate = handlers, propagate
    log.setLevel(level)


def test_json_lines_are_json_with_notices_and_an_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, log: logging.Logger
) -> None:
    monkeypatch.setitem(EACH, "json", 0.0)
    show_notices(quiet=False)
    before = log.handlers
    with Screen("fuzz", fuzz_line, quiet=False, json_lines=True) as screen:
        screen(FUZZ | {"rate": float("nan")})
        log.warning("of\n%s", "two lines")
    assert log.handlers == before
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in told] == ["progress", "warning", "ended"]
    assert told[0]["rate"] is None
    assert told[0]["operators"]["noise"] == {"cases": 50, "failures": 9}
    assert told[1]["message"] == "of\ntwo lines"


def test_json_lines_say_when_it_broke(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        with Screen("eval", eval_line, quiet=False, json_lines=True) as screen:
            screen({"done": 1, "of": 2})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in told] == ["broken"]
