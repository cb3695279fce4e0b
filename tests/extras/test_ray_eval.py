"""Evaluation, coverage and prioritising on Ray: what one process gives, whoever works it and whoever dies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.cli import run
from assay.core.errors import UsageError
from assay.engines.cluster import Cluster, connected
from ray_workers import Worked
from small import MODEL, committed, prepare

DYING = """
import os
from pathlib import Path

MARK = Path({mark!r})

def dying(target, x, y, *, rng, eps: float = 0.1):
    try:
        MARK.touch(exist_ok=False)  # of several at once, one
        os.kill(os.getpid(), 9)
    except FileExistsError:
        pass
    return (x + eps * (rng.uniform(tuple(x.shape[1:])) - 0.5)).clamp(0, 1)
"""
CRITERIA = "nc,kmnc(k=10),nbc,tknc(k=1),tknp(k=1),nlc,cc,sc(score=dsa)"


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """One for all tests: what ``--ray`` starts otherwise takes seconds each time."""
    with connected(Cluster("local", 4)):
        yield


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Worked:
    return Worked(monkeypatch)


def test_runs_are_the_same_bytes_for_any_number_of_workers(tmp_path: Path, worked: Worked) -> None:
    prepare(tmp_path, seeds=60)
    how: dict[str, Any] = {"suite": "fast", "eps": 0.1, "batch": 8, "deterministic": True}
    here = assay.evaluate(MODEL, "seeds.npz", **how, save="here")
    assert worked.take() == (0, 0)
    for workers in (1, 2, 4):
        there = assay.evaluate(MODEL, "seeds.npz", **how, save=f"on{workers}", ray="local", workers=workers)
        assert there.accuracy("worst") == here.accuracy("worst")
        # All but what clocks say: seconds in the effort of the journal's lines, and with them the sums of the lines.
        assert committed(tmp_path / "runs" / f"on{workers}") == committed(tmp_path / "runs" / "here")
        stats = json.loads((tmp_path / "runs" / f"on{workers}" / "stats.json").read_text())
        assert stats["workers"]["wanted"] == workers
        jobs, actors = worked.take()
        assert jobs == 8, "all blocks of eight, the last of four"
        assert 1 <= actors <= workers


def test_a_worker_that_dies_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepare(tmp_path, seeds=60)
    mark = tmp_path / "died"
    (tmp_path / "own.py").write_text(DYING.format(mark=str(mark)))
    how: dict[str, Any] = {"suite": ["own.py:dying"], "batch": 8, "deterministic": True}
    with caplog.at_level("WARNING", "assay"):
        assay.evaluate(MODEL, "seeds.npz", **how, save="there", ray="local", workers=2)
    assert mark.exists()
    assert sum(record.getMessage().startswith("a worker is lost") for record in caplog.records) == 1
    assert json.loads((tmp_path / "runs" / "there" / "stats.json").read_text())["workers"]["lost"] == 1
    assay.evaluate(MODEL, "seeds.npz", **how, save="here")
    assert committed(tmp_path / "runs" / "there") == committed(tmp_path / "runs" / "here")


def test_a_black_box_is_refused_before_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "box.py").write_text(f"def box(x):\n    open({str(asked)!r}, 'w')\n    return x.reshape(len(x), -1)\n")
    prepare(tmp_path)
    for verb, data in (("eval", "--data"), ("coverage", "--data"), ("prioritise", "--pool")):
        assert run([verb, "call:box.py:box", data, "seeds.npz", "--ray", "--quiet"]) == 4
        assert "--ray takes no model that only answers" in capsys.readouterr().err
    assert not asked.exists()


def test_workers_need_ray(tmp_path: Path) -> None:
    prepare(tmp_path)
    with pytest.raises(UsageError, match="--workers and --gpu-share are of --ray"):
        assay.evaluate(MODEL, "seeds.npz", eps=0.1, workers=2)


def test_coverage_and_surprise_are_merged_to_the_same(digits_model: str, worked: Worked) -> None:
    how: dict[str, Any] = {"by": CRITERIA, "batch": 16, "deterministic": True}
    here = assay.coverage(digits_model, "digits/test[:150]", **how)
    there = assay.coverage(digits_model, "digits/test[:150]", **how, ray="local", workers=2)
    assert there.to_json() == here.to_json()
    assert worked.take()[0] == 5, "parts of 32 inputs"


def test_orders_are_the_same(digits_model: str, worked: Worked) -> None:
    how: dict[str, Any] = {"by": "gini,fol,dsa,cam(criterion=nbc)", "deterministic": True}
    here = assay.prioritise(digits_model, "digits/train[:1100]", **how)
    there = assay.prioritise(digits_model, "digits/train[:1100]", **how, ray="local", workers=2)
    for own, other in zip(here.methods, there.methods, strict=True):
        assert own.order is not None
        assert other.order is not None
        assert own.order.tolist() == other.order.tolist(), own.by
        assert own.measures == other.measures
    assert worked.take()[0] == 3, "parts of 512 inputs, or fewer"
