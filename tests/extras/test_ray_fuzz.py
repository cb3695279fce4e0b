"""Fuzzing on Ray: what one process gives, byte for byte, whoever works it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.cli import run as command
from assay.core.errors import UsageError
from assay.engines.cluster import Cluster, connected
from ray_workers import Worked
from small import CAMPAIGN, MODEL, committed, fuzz, prepare

HERE_AND_THERE: tuple[tuple[str, dict[str, Any]], ...] = (("here", {}), ("there", {"ray": "local", "workers": 2}))
LEARNS: dict[str, Any] = {"mutate": "noise(eps=0.9)", "schedule": "pool(mutants=4)", "keep": ["gains"]}


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """One for all tests: what ``--ray`` starts otherwise takes seconds each time."""
    with connected(Cluster("local", 4)):
        yield


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Worked:
    return Worked(monkeypatch)


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of the same task as ``digits_model``, trained less."""
    from assay.engines.train import train

    path = tmp_path_factory.mktemp("weights") / "other.safetensors"
    train("lenet5", "digits", path, params={"epochs": 2, "batch": 32, "lr": 2e-3}, seed=1)
    return f"lenet5@{path}"


def same(here: str, there: str) -> None:
    """Every file of the runs but their clocks and the command that made them, and the journals to the byte."""
    one, other = (committed(Path("runs") / name) for name in (here, there))
    del one["campaign.toml"], other["campaign.toml"]
    assert sorted(one) == sorted(other)
    assert [name for name in one if one[name] != other[name]] == []
    journals = [(Path("runs") / name / "journal.jsonl").read_bytes() for name in (here, there)]
    assert journals[0] == journals[1]


def stats(name: str) -> Any:
    return json.loads((Path("runs") / name / "stats.json").read_text())


def test_robot_is_the_same_bytes_for_any_number_of_workers_and_ends_at_the_same_case(
    digits_model: str, worked: Worked
) -> None:
    how: dict[str, Any] = {"cases": 700, "unit": 8, "changes": {"schedule.steps": 30}, "deterministic": True}
    here = assay.fuzz("robot", digits_model, "digits/train[:64]", run="here", **how)
    assert here.failures
    assert worked.take() == (0, 0)
    for workers in (1, 2, 4):
        found = assay.fuzz(
            "robot", digits_model, "digits/train[:64]", run=f"on{workers}", ray="local", workers=workers, **how
        )
        same("here", f"on{workers}")
        assert (found.cases, found.failures, found.complete) == (here.cases, here.failures, True)
        told = stats(f"on{workers}")["workers"]
        assert (told["wanted"], told["lost"]) == (workers, 0)
        jobs, actors = worked.take()
        assert jobs >= units(f"on{workers}") > 0, "every unit that was committed came from a worker"
        assert 1 <= actors <= workers
    assert 700 <= here.cases < 700 + 30, "the budget ends inside a unit"


def test_a_recipe_that_learns_is_the_same_bytes_for_any_number_of_workers(tmp_path: Path, worked: Worked) -> None:
    prepare(tmp_path, CAMPAIGN, seeds=60)
    assert command(fuzz("here", "--deterministic", "--cases", "400")) == 0
    for workers in ("1", "2", "4"):
        ray = ["--deterministic", "--cases", "400", "--ray", "--workers", workers]
        assert command(fuzz(f"on{workers}", *ray)) == 0
        same("here", f"on{workers}")
        assert worked.take()[0] >= units(f"on{workers}") > 0
    assert _journal("here")[0]["identity"]["run"]["wave"] == 4


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("noise", {"eps": 0.1, "unit": 16}),
        ("adapt", {"cases": 900, "unit": 8}),
        ("noise", {"cases": 300, "unit": 8, "changes": {**LEARNS, "coverage": "nlc"}}),
        ("noise", {"cases": 300, "unit": 8, "changes": {**LEARNS, "coverage": "cc(distance=0.5)"}}),
    ],
    ids=["noise", "adapt", "nlc", "cc"],
)
def test_other_recipes_are_the_same_bytes_too(
    recipe: str, more: dict[str, Any], digits_model: str, worked: Worked
) -> None:
    for name, where in HERE_AND_THERE:
        found = assay.fuzz(recipe, digits_model, "digits/train[:64]", run=name, deterministic=True, **more, **where)
        assert found.cases
    same("here", "there")
    assert worked.take()[0] >= units("there") > 0


def test_twinfuzz_with_both_of_its_models_is_the_same_bytes(digits_model: str, other_model: str) -> None:
    how: dict[str, Any] = {"cases": 300, "unit": 4, "resistant": other_model, "deterministic": True}
    for name, where in HERE_AND_THERE:
        found = assay.fuzz("twinfuzz", digits_model, "digits/train[:100]", run=name, eps=0.2, **how, **where)
        assert found.cases >= 300
    same("here", "there")


def test_without_deterministic_the_same_units_are_worked_and_the_time_limit_ends_them_all(digits_model: str) -> None:
    whole = assay.fuzz("noise", digits_model, "digits/train[:64]", run="here", eps=0.1, unit=8)
    there = assay.fuzz("noise", digits_model, "digits/train[:64]", run="there", eps=0.1, unit=8, ray="local", workers=2)
    assert there.seeds == whole.seeds
    assert abs(there.cases - whole.cases) <= 0.02 * whole.cases, "batches of other company round otherwise"
    short = assay.fuzz("robot", digits_model, "digits/train", run="short", time=2.0, unit=64, ray="local", workers=2)
    assert short.complete
    assert short.seeds, "what had ended when the time was up is kept"
    more = short.seconds + 2.0
    again = assay.fuzz("robot", digits_model, "digits/train", run="short", time=more, unit=64, ray="local", workers=2)
    assert again.seeds > short.seeds


def test_a_run_goes_on_from_inside_a_wave_here_or_there(tmp_path: Path) -> None:
    prepare(tmp_path, CAMPAIGN, seeds=60)
    assert command(fuzz("whole", "--deterministic", "--cases", "400")) == 0
    assert command(fuzz("parts", "--deterministic", "--cases", "60", "--ray", "--workers", "2")) == 0
    assert (_journal("parts")[-1]["unit"] + 1) % 4, "it stopped inside a wave"
    assert command(fuzz("parts", "--deterministic", "--cases", "220")) == 0
    assert command(fuzz("parts", "--deterministic", "--cases", "400", "--ray", "--workers", "2")) == 0
    same("whole", "parts")


def units(name: str) -> int:
    """How many units the run has committed."""
    return len({line["unit"] for line in _journal(name) if "unit" in line})


def _journal(name: str) -> list[Any]:
    return [json.loads(line)["meta"] for line in (Path("runs") / name / "journal.jsonl").read_text().splitlines()]


OWN = """
import torch
from beside import SHIFT

def shift(bench, cases, *, rng, eps: float = 0.3):
    return (cases.x + SHIFT * eps * (rng.uniform(tuple(cases.x.shape[1:])) - 0.5)).clamp(0, 1)
"""


def test_what_users_wrote_travels_with_what_lies_beside_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("SHIFT = 3.0\n")
    how: dict[str, Any] = {"changes": {"mutate": "own.py:shift"}, "unit": 8, "deterministic": True}
    for name, where in HERE_AND_THERE:
        assert assay.fuzz("noise", MODEL, "seeds.npz", run=name, **how, **where).failures
    same("here", "there")


FAILING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        self.bad = None

    def forward(self, x):
        if len(x) == 3:
            raise ValueError("three are too many")
        return self.inner(x)

def net():
    torch.manual_seed(0)
    return Net()
"""


def test_units_on_which_the_model_fails_are_skipped_as_in_one_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    # Units of five seeds: the last one, of three of the thirteen, is a batch that the net refuses.
    how: dict[str, Any] = {"unit": 5, "deterministic": True, "changes": {"seeds": "all"}}
    for name, where in HERE_AND_THERE:
        caplog.clear()
        found = assay.fuzz("noise", "failing.py:net", "seeds.npz[:13]", run=name, **how, **where)
        assert found.skipped == 3
        assert "three are too many" in str(found.skipped_because)
        assert any("tried once more" in record.getMessage() for record in caplog.records)
    same("here", "there")


def test_black_boxes_and_lone_options_are_refused_before_anything_starts(tmp_path: Path) -> None:
    prepare(tmp_path)
    with pytest.raises(UsageError, match="leave --ray out"):
        assay.fuzz("noise", MODEL, "seeds.npz", queries=10, ray="local")
    with pytest.raises(UsageError, match="are of --ray"):
        assay.fuzz("noise", MODEL, "seeds.npz", workers=2)
    assert not (tmp_path / "runs").exists()


def test_without_ray_all_is_done_here_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(tmp_path)
    found = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    with caplog.at_level(logging.WARNING, "assay"):
        assert assay.fuzz("noise", MODEL, "seeds.npz", eps=0.5, run="here", ray="local").cases
    assert [record.getMessage() for record in caplog.records if "assay[ray]" in record.getMessage()] == [
        "--ray needs ray: pip install 'assay[ray]'; all work is done in this process"
    ]
