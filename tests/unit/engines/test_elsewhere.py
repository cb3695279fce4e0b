"""Evaluation, coverage and prioritising by workers give what one process gives; here the worker is in this process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

import assay
import small
from assay.engines.cluster import Cluster
from pools import Pools
from small import committed

CRITERIA = "nc,kmnc(k=10),nbc,snac,tknc(k=1),bknc(k=1),tknp(k=1),nlc,nlc(growing=true),cc,sc(score=dsa)"
METHODS = "gini,fol,dsa,lsa,ctm(criterion=nbc),cam(criterion=kmnc(k=2)),mc_dropout"


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> Pools:
    """Workers without Ray."""
    pools = Pools()
    for module in ("block_pool", "covering", "scoring", "transfer"):
        monkeypatch.setattr(f"assay.engines.{module}.pool", pools.here)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # of Ray alone it is asked whether it is there
    return pools


def _evaluated(model: str, **more: Any) -> assay.Evaluation:
    return assay.evaluate(model, "digits/test[:90]", suite="fast", eps=0.1, batch=32, deterministic=True, **more)


def test_an_evaluation_commits_the_same(digits_model: str, tmp_path: Any, workers: Pools) -> None:
    told: list[Mapping[str, Any]] = []
    _evaluated(digits_model, save="here")
    assert workers.jobs == []
    _evaluated(digits_model, save="there", ray="local", progress=told.append)
    assert len(workers.jobs) == 3, "every block"
    assert committed(tmp_path / "runs" / "there") == committed(tmp_path / "runs" / "here")
    assert told[-1]["done"] == 90
    assert told[-1]["workers"]["wanted"] == 2


def test_an_interrupted_evaluation_goes_on_here(digits_model: str, tmp_path: Any, workers: Pools) -> None:
    def stop(told: Any) -> None:
        if told["done"] == 64:
            raise KeyboardInterrupt

    _evaluated(digits_model, save="whole")
    with pytest.raises(KeyboardInterrupt):
        _evaluated(digits_model, save="cut", ray="local", progress=stop)
    assert len(workers.jobs) == 2
    _evaluated(digits_model, save="cut")
    assert committed(tmp_path / "runs" / "cut") == committed(tmp_path / "runs" / "whole")


def test_without_time_one_block_is_worked(digits_model: str, workers: Pools) -> None:
    for ray in (None, "local"):
        found = _evaluated(digits_model, time=1e-6, ray=ray)
        assert (found.clean.n, found.complete) == (32, False)
        assert len(workers.jobs) == (0 if ray is None else 2), "the second finds that there is no time"


def test_all_criteria_cover_the_same(digits_model: str, workers: Pools) -> None:
    how: dict[str, Any] = {"by": CRITERIA, "batch": 16, "deterministic": True}
    told: list[Mapping[str, Any]] = []
    here = assay.coverage(digits_model, "digits/test[:150]", **how)
    there = assay.coverage(digits_model, "digits/test[:150]", **how, ray="local", progress=told.append)
    assert there.to_json() == here.to_json()
    assert [line["done"] for line in told] == [1, 2, 4, 8, 16, 32, 64, 96, 128, 150]
    assert [(rows.start, rows.stop) for rows in workers.jobs] == [(0, 32), (32, 64), (64, 96), (96, 128), (128, 150)]


def test_all_methods_order_the_same(digits_model: str, workers: Pools) -> None:
    def orders(**more: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
        found = assay.prioritise(digits_model, "digits/train[:1100]", by=METHODS, deterministic=True, **more)
        return {
            m.by: (m.why_not, [] if m.order is None else m.order.tolist(), m.measures) for m in found.methods
        }, found.notes

    here, none = orders()
    assert workers.jobs == []
    there, notes = orders(ray="local")
    assert len(workers.jobs) == 3, "512 rows each, and the rest"
    assert there == here
    assert here["mc_dropout"][0].startswith("mc_dropout needs a net with dropout layers")
    assert none == ()
    assert notes == (
        "put in order by one process, for that cannot be split: ctm(criterion=nbc), cam(criterion=kmnc(k=2))",
    )


def test_one_method_that_cannot_be_used_is_refused_there_too(digits_model: str) -> None:
    with pytest.raises(assay.UsageError, match="needs a net with dropout layers"):
        assay.prioritise(digits_model, "digits/test[:20]", by="mc_dropout", ray="local")


def test_a_transfer_matrix_is_the_same(digits_model: str, tmp_path: Any, workers: Pools) -> None:
    small.prepare(tmp_path)
    models = [digits_model, small.MODEL]
    how: dict[str, Any] = {"suite": "fgsm", "eps": 0.1, "batch": 20, "deterministic": True}
    here = assay.transfer(models, "digits/test[:50]", **how)
    told: list[Mapping[str, Any]] = []
    there = assay.transfer(models, "digits/test[:50]", **how, ray="local", progress=told.append)
    assert there.to_json() == here.to_json()
    assert [line["done"] for line in told] == [20, 40, 50, 70, 90, 100]
    assert len(workers.jobs) == 6


def test_a_gate_measures_the_same(digits_model: str, monkeypatch: pytest.MonkeyPatch, workers: Pools) -> None:
    joined: list[Cluster] = []

    @contextmanager
    def connected(cluster: Cluster) -> Iterator[None]:
        joined.append(cluster)
        yield

    monkeypatch.setattr("assay.engines.gate.connected", connected)
    how: dict[str, Any] = {"require": "robust>=0.1", "eps": 0.1, "deterministic": True}
    here = assay.check(digits_model, "digits/test[:90]", **how).to_json()
    assert workers.jobs == []
    there = assay.check(digits_model, "digits/test[:90]", **how, ray="local", workers=3).to_json()
    assert joined == [Cluster("local", 3)]
    assert [(job.start, job.stop) for job in workers.jobs] == [(0, 90)]
    for gate in (here, there):
        gate.pop("seconds")
        for attack in gate.get("attacks", {}).values():
            attack.pop("seconds", None)
    assert there == here
    with pytest.raises(assay.UsageError, match="no run"):
        assay.check(digits_model, require="robust>=0.1", ray="local")
