"""What a campaign tells while it runs: the numbers are true, resumed, and in no committed file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.core import store
from assay.core.plot import read_plot
from assay.engines import gauges
from assay.engines.found import summary
from assay.engines.fuzz import fuzz
from assay.engines.kinds import kinds_in
from thresholds import Threshold, line


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading at each step, however quick they are."""
    monkeypatch.setattr(gauges, "READ_SECONDS", 0.0)


def half_valid(folder: Path) -> str:
    """A rule that lets through what has its first value above its second, and a recipe with it."""
    (folder / "rule.py").write_text("def first_larger(bench, cases):\n    return cases.x[:, 0] > cases.x[:, 1]\n")
    return str(folder / "rule.py") + ":first_larger"


@pytest.mark.usefixtures("every_step")
def test_readings_count_what_is_under_way() -> None:
    told: list[Any] = []
    found = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=16, lanes=8, progress=told.append)
    tried = [numbers["tried"] for numbers in told]
    assert tried == sorted(tried)
    steps = [after - before for before, after in zip([0, *tried], tried, strict=False)]
    assert set(steps[:8]) == {8}, "a case of each lane, whether its seed has ended or not"
    assert tried[-1] == found.cases
    assert told[-1]["valid"] == 1.0
    assert told[-1]["seed_list"] == 40
    assert told[-1]["stability"] == 1.0
    for numbers in told:
        assert numbers["failures"] - numbers["waiting"] >= numbers["distinct"] or numbers["waiting"]
    assert told[-1]["memory"]["rss"] > 1e6


@pytest.mark.usefixtures("every_step")
def test_the_share_of_valid_cases_is_counted_and_committed(tmp_path: Path) -> None:
    told: list[Any] = []
    rule = half_valid(tmp_path)
    found = fuzz(
        "noise", Threshold(), line(40), run="a", eps=0.1, unit=16, changes={"valid": [rule]}, progress=told.append
    )
    assert 0.4 < found.valid / found.cases < 0.6
    assert told[-1]["valid"] == pytest.approx(found.valid / found.cases)
    assert summary(store.read(found.run)).valid == found.valid
    cases = found.load()
    assert (cases.x[:, 0] > cases.x[:, 1]).all()


def test_lanes_do_not_change_what_is_counted(tmp_path: Path) -> None:
    rule = half_valid(tmp_path)
    given: dict[str, Any] = {"eps": 0.1, "unit": 16, "changes": {"valid": [rule]}}
    one, other = (fuzz("noise", Threshold(), line(40), run=f"r{n}", lanes=n, **given) for n in (3, 64))
    assert (one.run / "journal.jsonl").read_bytes() == (other.run / "journal.jsonl").read_bytes()
    assert one.valid == other.valid < one.cases


def test_kinds_counted_on_the_way_are_those_of_the_whole_run() -> None:
    found = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=8, cases=1500)
    kinds = kinds_in(store.read(found.run))
    assert kinds is not None
    assert read_plot(found.run)[-1]["kinds"] == len(kinds) > 1
    more = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=8, cases=3000)  # begun from the shards
    assert read_plot(more.run)[-1]["kinds"] == len(kinds_in(store.read(more.run)) or ())


def test_plot_and_stats_are_continued() -> None:
    first = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=8, cases=1500)
    before = (first.run / "plot.csv").read_bytes()
    then = json.loads((first.run / "stats.json").read_text())
    assert 0 < then["last_new"] <= then["seconds"]
    again = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=8, cases=4000)
    assert (again.run / "plot.csv").read_bytes().startswith(before)
    rows = read_plot(again.run)
    assert rows[-1]["cases"] == again.cases
    assert rows[-1]["distinct"] == again.distinct
    assert [r["seconds"] for r in rows] == sorted(r["seconds"] for r in rows)


def test_no_clock_gets_into_what_is_committed() -> None:
    """Two runs at unlike speed, read at unlike moments, are the same bytes."""
    fast = fuzz("noise", Threshold(), line(40), run="fast", eps=0.1, unit=16)

    def dawdle(_: Mapping[str, Any]) -> None:
        torch.randn(60, 60)

    slow = fuzz("noise", Threshold(), line(40), run="slow", eps=0.1, unit=16, progress=dawdle)
    for name in ("journal.jsonl", *(f"cases/{p.name}" for p in (fast.run / "cases").glob("*"))):
        assert (fast.run / name).read_bytes() == (slow.run / name).read_bytes()


def test_coverage_is_a_share_in_the_plot(digits_model: str) -> None:
    found = fuzz("dlfuzz", digits_model, "digits/test[:30]", run="a", cases=200)
    assert found.coverage is not None
    assert read_plot(found.run)[-1]["coverage"] == pytest.approx(found.coverage["share"], abs=1e-6)


def test_a_run_begun_before_valid_cases_were_counted_goes_on() -> None:
    """Its commits do not tell; the share is of those that do."""
    found = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=8, cases=500)
    lines = []
    for kept in store.read(found.run).lines:
        counts = {name: n for name, n in kept.meta.get("counts", {}).items() if name != "valid"}
        lines.append(replace(kept, meta={**kept.meta, **({"counts": counts} if counts else {})}))
    (found.run / "journal.jsonl").write_bytes(b"".join(kept.encode() for kept in lines))
    more = fuzz("noise", Threshold(), line(40), run="a", eps=0.1, unit=8, cases=2000)
    assert 0 < more.valid == more.cases - found.cases
    assert json.loads((more.run / "stats.json").read_text())["now"]["valid"] == 1.0


def test_operators_of_a_mutator_are_counted(digits_model: str) -> None:
    found = fuzz("deephunter", digits_model, "digits/test[:24]", run="a", cases=400, changes={"coverage": "nc"})
    assert set(found.operators) >= {"rotation", "noise"}
    made, failed = (sum(row[name] for row in found.operators.values()) for name in ("cases", "failures"))
    assert 0 < made <= found.cases
    assert found.failures <= failed + found.nonfinite
    assert found.operators["pixels"]["cases"] == 0, "no kind of the group"
    again = summary(store.read(found.run))
    assert again.operators == found.operators


def test_operators_of_a_users_own_mutator(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "OPERATORS = ('up', 'down')\n"
        "def shift(bench, cases, *, rng):\n"
        "    down = rng.uniform(()) < 0.25\n"
        "    step = torch.where(down, -0.3, 0.3)[:, None]\n"
        "    return cases.with_x((cases.info['seed_x'] + step).clamp(0, 1)).note(operator=down.long())\n"
    )
    changes = {"mutate": f"{tmp_path}/mine.py:shift"}
    found = fuzz("noise", Threshold(), line(40), run="a", unit=16, changes=changes)
    up, down = found.operators["up"], found.operators["down"]
    assert up["cases"] + down["cases"] == found.cases
    assert 0.1 < down["cases"] / found.cases < 0.5
    level = line(40).cases.x.mean(1)
    low = set(found.load().origin.tolist()) & set((level < 0.5).nonzero().flatten().tolist())
    assert low, "seeds below are broken by going up"
    assert up["failures"] >= len(low)


def test_the_public_name_takes_signs_to_ignore() -> None:
    with pytest.raises(assay.UsageError, match="no sign 'nofinds' to ignore; there are no_finds_yet"):
        fuzz("noise", Threshold(), line(40), run="a", ignore=["nofinds"])
