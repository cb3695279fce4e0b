"""Signs that a run is not working: each fires where it should and nowhere else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.engines import gauges, signs
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.subjects.bench import Data

FINE = {"tried": 20_000, "failures": 5, "since_new": 3.0, "valid": 1.0, "flat": None}


def names(found: Found | None = None, ignored: tuple[str, ...] = (), **now: Any) -> list[str]:
    given = Found(Path("r"), seconds=10.0) if found is None else found  # one without failures is empty
    told = signs.signs(given, FINE | now, ignored)
    return [sign["name"] for sign in told]


def test_a_run_that_works_has_none() -> None:
    assert names() == []


@pytest.mark.parametrize(
    ("seconds", "tried", "failures", "fires"),
    [
        (5.0, 9_999, 0, False),
        (5.0, 10_000, 0, True),
        (60.0, 10, 0, True),
        (60.0, 0, 0, False),
        (500.0, 10**6, 1, False),
    ],
)
def test_no_finds_yet(seconds: float, tried: int, failures: int, fires: bool) -> None:
    found = Found(Path("r"), seconds=seconds)
    assert ("no_finds_yet" in names(found, tried=tried, failures=failures, since_new=None)) == fires


@pytest.mark.parametrize(
    ("seconds", "since", "fires"), [(200.0, 119.0, False), (200.0, 121.0, True), (900.0, 400.0, False)]
)
def test_dried_up(seconds: float, since: float, fires: bool) -> None:
    assert ("dried_up" in names(Found(Path("r"), seconds=seconds), since_new=since)) == fires


@pytest.mark.parametrize(("tried", "valid", "fires"), [(999, 0.0, False), (1000, 0.09, True), (1000, 0.11, False)])
def test_filters_too_much(tried: int, valid: float, fires: bool) -> None:
    assert ("filters_too_much" in names(tried=tried, valid=valid)) == fires


def test_the_model() -> None:
    shaky = {"asked": 64, "same_class": 60, "same_scores": 2, "warnings": ["randomised"], "confirm": "4/5"}
    found = Found(Path("r"), seconds=1.0, failures=10, flaky=11, skipped=4, skipped_because="boom", stability=shaky)
    found.seeding = {"of": 100, "steps": {"correct": 49}}
    assert names(found) == ["mostly_flaky", "seeds_skipped", "bad_clean_accuracy", "randomised"]
    assert names(found, ignored=("randomised", "mostly_flaky")) == ["seeds_skipped", "bad_clean_accuracy"]
    found.seeding = {"of": 100, "steps": {"attacked": 49, "correct": 2}}
    assert "bad_clean_accuracy" not in names(found), "what the attack left out is no fault of the data"


def test_each_has_a_place_in_the_docs() -> None:
    root = Path(__file__).parents[3]
    for name, place in signs.PLACES.items():
        page, _, anchor = place.format(name).partition("#")
        assert f"\n## {anchor}\n" in (root / page).read_text(), name


SPEC = InputSpec((2,), (0.0, 1.0), ("low", "high"))


def seeds() -> Data:
    x = torch.linspace(0.3, 0.7, 40)[:, None].repeat(1, 2)
    return Data("line", Cases.of(x, (x.mean(1) > 0.5).long()), SPEC)


class Steps(nn.Module):
    """Says the same of all inputs of a side: nothing to climb."""

    def forward(self, x: Tensor) -> Tensor:
        high = (x.mean(1, keepdim=True) > 0.5).float() + 0 * x.sum(1, keepdim=True)
        return torch.cat([1 - high, high], 1)


def test_signs_of_a_real_run_are_logged_once_kept_and_can_be_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gauges, "READ_SECONDS", 0.0)
    monkeypatch.setattr(signs, "NOTHING_CASES", 500)
    found = fuzz("noise", Steps(), seeds(), run="a", eps=0.0001, cases=2000)
    assert [sign["name"] for sign in found.warnings] == ["no_finds_yet"]
    assert found.warnings[0]["more"] == "docs/status.md#no_finds_yet"
    said = [record.getMessage() for record in caplog.records if "no_finds_yet" in record.getMessage()]
    assert len(said) == 1
    quiet = fuzz("noise", Steps(), seeds(), run="b", eps=0.0001, cases=2000, ignore=["no_finds_yet"])
    assert quiet.warnings == []


def test_a_net_without_slope_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "READ_SECONDS", 0.0)
    seen: set[str] = set()

    def look(numbers: Any) -> None:
        seen.update(sign["name"] for sign in numbers["warnings"])

    fuzz("robot", Steps(), seeds(), run="a", cases=800, progress=look, curvature="double")
    assert "zero_gradient" in seen
