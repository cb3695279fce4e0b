"""``assay status``: what the screen shows, of a run that lives or is dead, or that somebody tampered with."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from assay.core import store
from assay.core.sealed import sealed_json
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.outputs.readings import reading
from assay.outputs.status import readable, run_status
from assay.outputs.watch import moment_of, watch
from thresholds import Threshold, line


@pytest.fixture
def found() -> Found:
    return fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=16)


def change(run: Path, **stats: Any) -> None:
    told = json.loads((run / "stats.json").read_text())
    told.pop("sum")
    (run / "stats.json").write_bytes(sealed_json(told | stats))


def test_a_dead_run_tells_how_it_went(found: Found) -> None:
    told = run_status(store.read(found.run))
    assert told["under_way"] is None
    assert told["valid_share"] == 1.0
    facts = readable(told)
    assert facts["valid"] == "100.0% of cases"
    assert facts["last new failure"].startswith("after ")
    assert int(facts["cases a second"]) > 0
    assert "warnings" not in facts
    json.dumps(told, allow_nan=False)


def test_warnings_are_told(found: Found) -> None:
    sign = {"name": "dried_up", "message": "for \x1b[2J long", "more": "docs/status.md#dried_up"}
    change(found.run, warnings=[sign, "junk", {"name": 3}])
    told = run_status(store.read(found.run))
    assert [row["name"] for row in told["warnings"]] == ["dried_up", "3"]
    assert readable(told)["warnings"].startswith("dried_up: for \\x1b[2J long (docs/status.md#dried_up)\n")


@pytest.mark.parametrize(
    "stats",
    [
        {"now": "x"},
        {"now": {"tried": "many"}},
        {"now": {}},
        {"stats": 3, "last_new": "x", "operators": [1], "warnings": {"a": 1}},
        {"operators": {"a": {"cases": "1"}, "b": 2}},
        {"seconds": "long", "updated": None, "last_new": 1.0},
    ],
)
def test_what_anybody_may_have_written_is_no_reason_to_fail(found: Found, stats: dict[str, Any]) -> None:
    change(found.run, **stats)
    if "seconds" not in stats:
        readable(run_status(store.read(found.run)))
    moment_of(store.read(found.run))
    assert reading(stats) is None


def test_a_living_run_can_be_looked_at_without_blocking_it(capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of a run: its lock is held, its numbers are there, and it goes on as if nobody looked."""
    looked: list[dict[str, Any]] = []

    def look(numbers: Any) -> None:
        if not looked and numbers["seeds"] >= 16:
            looked.append(run_status(store.read(store.find_run("a"))))

    found = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=16, lanes=8, progress=look)
    alone = fuzz("noise", Threshold(), line(40), run="b", eps=0.1, unit=16, lanes=8)
    assert looked[0]["alive"]
    assert looked[0]["under_way"]["tried"] > 0
    facts = readable(looked[0])
    assert "cases (" in facts["under way"]
    assert facts["memory"].endswith(("MB", "GB"))
    assert (found.run / "journal.jsonl").read_bytes() == (alone.run / "journal.jsonl").read_bytes()


def test_watching_shows_it_until_it_ends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("assay.outputs.watch", fromlist=["EACH"]).EACH, "lines", 0.01)
    watching = threading.Thread(target=lambda: watch(store.find_run("a")))

    def look(numbers: Any) -> None:
        if numbers["seeds"] >= 16 and not watching.ident:
            watching.start()
        if watching.ident:
            threading.Event().wait(0.005)

    fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=16, lanes=8, progress=look)
    watching.join(60)
    assert not watching.is_alive()
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all("cases (" in line and "distinct)" in line for line in lines)


def test_watching_a_dead_run_ends_at_once(found: Found, capsys: pytest.CaptureFixture[str]) -> None:
    watch(found.run)
    assert capsys.readouterr().out == ""
    watch(found.run, as_json=True)
    assert json.loads(capsys.readouterr().out)["alive"] is False
