"""``--batch auto``: the arithmetic, with a memory that is made up."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import assay
from assay.core.cases import Cases
from assay.core.errors import OutOfMemory, UsageError
from assay.engines.block_size import (
    COPIES,
    KEPT,
    LEAST,
    MOST,
    PASS_BYTES,
    block_size,
    kept_size,
    largest,
    rows_at_once,
    size_for,
)
from assay.engines.cluster import Cluster
from assay.subjects.asked import Asked
from assay.subjects.sources.module import ModuleTarget

CASES = Cases.of(torch.zeros(300, 1, 4, 4), torch.zeros(300, dtype=torch.int64))
ROW = 16 * 4  # bytes of an input


def test_a_pass_takes_as_many_rows_as_keep_it_small() -> None:
    def of(taken: int, most: int = 10**9) -> int:
        asked: list[int] = []
        size = rows_at_once(
            lambda: asked.append(1), 100, most, torch.device("cpu"), lambda work: (work(), (taken, 0))[1]
        )
        assert asked
        return size

    assert of(100 * PASS_BYTES // 1024) == 1024
    assert of(100 * PASS_BYTES // 1024, most=700) == 700
    assert of(100 * PASS_BYTES) == 100, "what was shown has fit"
    assert of(0, most=50) == 50


def test_a_size_is_the_largest_double_that_fits_in_four_fifths() -> None:
    assert largest(1000 * 512 * 10 // 8, 1000) == 512  # exactly 80 %
    assert largest(1000 * 512 * 10 // 8 - 1, 1000) == LEAST
    assert largest(0, 1) == LEAST, "less is found by halving"
    assert largest(2**60, 1) == MOST
    assert largest(2**60, 1, most=1000) == 512


def test_the_probe_is_one_step_on_one_block(linear_target: Callable[..., ModuleTarget]) -> None:
    asked: list[int] = []
    target = linear_target()
    target.module.register_forward_hook(lambda _m, x, _out: asked.append(len(x[0])))

    def probe(work: Callable[[], object]) -> tuple[int, int]:
        work()
        # 1000 bytes a row, and as much free as makes 2048 rows fit and 4096 not
        return 1000 * LEAST, int(2048 * (1000 + COPIES * ROW) / 0.8) + 8

    assert block_size("auto", target, CASES, probe=probe) == 2048
    assert asked == [LEAST]
    assert block_size("auto", target, CASES, probe=probe, share=0.5) == 1024
    assert block_size("auto", target, CASES, probe=probe, most=600) == 512


def test_no_probe_where_the_size_is_known(linear_target: Callable[..., ModuleTarget]) -> None:
    def probe(work: Callable[[], object]) -> tuple[int, int]:
        raise AssertionError("nothing is to be measured")

    target = linear_target()
    assert block_size(33, target, CASES, probe=probe) == 33
    assert block_size("auto", target, CASES, kept=64, probe=probe) == 64
    assert block_size("auto", target, CASES, fixed=True, probe=probe) == LEAST
    assert block_size("auto", Asked(target), CASES, probe=probe) == LEAST
    assert block_size("auto", target, CASES) == LEAST, "a CPU"
    for wrong in (0, -1, "some"):
        with pytest.raises(UsageError, match="auto or a number from 1 up"):
            block_size(wrong, target, CASES)


def test_a_probe_that_does_not_fit_leaves_the_least(linear_target: Callable[..., ModuleTarget]) -> None:
    def full(work: Callable[[], object]) -> tuple[int, int]:
        raise OutOfMemory("full")

    def broken(work: Callable[[], object]) -> tuple[int, int]:
        raise RuntimeError("another")

    assert block_size("auto", linear_target(), CASES, probe=full) == LEAST
    with pytest.raises(RuntimeError, match="another"):
        block_size("auto", linear_target(), CASES, probe=broken)


def test_commits_time_and_workers_bound_it(
    linear_target: Callable[..., ModuleTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[tuple[int, float]] = []

    def noted(*_: object, most: int, share: float, **__: object) -> int:
        bounds.append((most, share))
        return most

    monkeypatch.setattr("assay.engines.block_size.block_size", noted)
    many = Cases.of(torch.zeros(10_000, 1), torch.zeros(10_000, dtype=torch.int64))

    def asked(*, save: str | None = None, timed: bool = False, cluster: Cluster | None = None) -> None:
        size_for("auto", linear_target(), many, save=save, fresh=False, fixed=False, timed=timed, cluster=cluster)

    asked()
    asked(save="new")
    asked(timed=True)
    asked(cluster=Cluster("local", 8, 0.25))
    asked(cluster=Cluster("local", 1000))
    assert bounds == [(MOST, 1.0), (KEPT, 1.0), (KEPT, 1.0), (1250, 0.25), (LEAST, 1.0)]


def test_workers_that_are_not_named_are_counted(
    linear_target: Callable[..., ModuleTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def counted(cluster: Cluster, share: float) -> int:
        asked.append(share)
        return 8

    monkeypatch.setattr("assay.engines.block_size.room", counted)
    monkeypatch.setattr("assay.engines.block_size.block_size", lambda *_, most, **__: most)
    many = Cases.of(torch.zeros(10_000, 1), torch.zeros(10_000, dtype=torch.int64))

    def size(target: Any, batch: int | str, workers: int | None) -> int:
        cluster = Cluster("local", workers, 0.25)
        return size_for(batch, target, many, save=None, fresh=False, fixed=False, timed=False, cluster=cluster)

    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    assert size(on_gpu, "auto", None) == 1250
    assert asked == [0.25]
    assert size(on_gpu, "auto", 2) == 5000
    size(on_gpu, 64, None)
    size(linear_target(), "auto", None)
    assert asked == [0.25], "only where it matters"


def test_a_run_that_is_continued_keeps_its_size(digits_model: str) -> None:
    whole = assay.evaluate(digits_model, "digits/test[:40]", suite="fgsm", eps=0.1, save="kept", batch=10)
    assert kept_size("kept", fresh=False) == 10
    assert kept_size("kept", fresh=True) is None
    assert kept_size("other", fresh=False) is None
    again = assay.evaluate(digits_model, "digits/test[:40]", suite="fgsm", eps=0.1, save="kept", batch="auto")
    assert again.accuracy("worst") == whole.accuracy("worst")
    with pytest.raises(UsageError, match=r"run\.block: 10 in the run, 20 asked"):
        assay.evaluate(digits_model, "digits/test[:40]", suite="fgsm", eps=0.1, save="kept", batch=20)
