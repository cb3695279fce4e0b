"""Work on rows in other processes: what travels, in which order it is done, how errors come back."""

import warnings

import numpy as np
import pytest
import torch

from assay.core.cases import Cases
from assay.core.errors import ModelFailed, UsageError
from assay.engines.jobs import InTurn, Raised, Rows, done, refuse_black_box, slices


def _cases(n: int = 5) -> Cases:
    x = torch.arange(n * 4, dtype=torch.float32).reshape(n, 1, 2, 2)
    return Cases(x, torch.arange(n) % 2, torch.arange(n) + 7).note(seed_x=x + 1, fol=torch.rand(n))


def test_rows_are_the_cases_and_a_copy_of_them() -> None:
    cases = _cases()
    rows = Rows.of(cases)
    for array in rows.columns.values():
        array.flags.writeable = False  # as Ray hands them out
    part = rows[1:4]
    for own, want in ((part.x, cases.x), (part.y, cases.y), (part.origin, cases.origin)):
        assert torch.equal(own, want[1:4])
    assert set(part.info) == {"seed_x", "fol"}
    assert torch.equal(part.info["seed_x"], cases.info["seed_x"][1:4])
    part.x.zero_()
    assert torch.equal(rows[1:4].x, cases.x[1:4])
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("n", "parts", "whole"), [(1, 8, 256), (255, 8, 256), (1000, 3, 256), (5000, 8, 512), (7, 3, 1)]
)
def test_slices_are_whole_batches_and_cover_everything_once(n: int, parts: int, whole: int) -> None:
    found = slices(n, parts, whole)
    rows = np.concatenate([np.arange(n)[part] for part in found])
    assert rows.tolist() == list(range(n))
    assert len(found) <= parts
    assert all((part.stop - part.start) % whole == 0 for part in found[:-1])


def test_jobs_are_done_in_turn_and_an_error_keeps_its_place() -> None:
    def work(job: int) -> int:
        if job == 2:
            raise UsageError("no two")
        return job * 10

    worker = InTurn(work)
    assert worker.step([(0, 1), (1, 2)]) == [(0, 10)]
    ((number, refused),) = worker.step([(2, 3)])
    assert number == 1
    assert worker.step([]) == [(2, 30)]
    with pytest.raises(UsageError, match="no two"):
        done(refused, "here")


def test_errors_that_are_ours_are_raised_at_once() -> None:
    def work(job: int) -> int:
        return 1 // job

    with pytest.raises(ZeroDivisionError):
        InTurn(work).step([(0, 0)])


def test_a_job_under_which_workers_died_says_where_it_was() -> None:
    assert done(5, "in the block of cases 0 to 7") == 5
    with pytest.raises(ModelFailed, match=r"died, in the block of cases 0 to 7; what was committed is kept"):
        done(ModelFailed("died"), "in the block of cases 0 to 7")
    with pytest.raises(UsageError, match="mine"):
        done(Raised(UsageError("mine")), "elsewhere")


@pytest.mark.parametrize(
    ("model", "queries", "ask", "white_box"),
    [
        ("http://127.0.0.1:1/x", None, "", False),
        ("cmd:cat", None, "", False),
        ("m.onnx", None, "", False),
        ("lenet5@w.safetensors", 10, "", False),
        ("lenet5@w.safetensors", None, "labels=true", False),
    ],
)
def test_models_that_only_answer_are_refused_in_a_sentence(
    model: str, queries: int | None, ask: str, white_box: bool
) -> None:
    with pytest.raises(UsageError, match="--ray takes no model that only answers"):
        refuse_black_box(model, queries, ask, white_box=white_box)
    refuse_black_box("m.onnx", None, "", white_box=True)
    refuse_black_box("lenet5@w.safetensors", None, "", white_box=False)


def test_shared_rows_lie_where_they_lay_and_chosen_ones_are_ones_own() -> None:
    cases = _cases()
    rows = Rows.of(cases)
    for array in rows.columns.values():
        array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared = rows.shared()
    assert shared.x.data_ptr() == rows.columns["x"].ctypes.data
    chosen = shared[torch.tensor([4, 1])]
    assert torch.equal(chosen.x, cases.x[[4, 1]])
    assert torch.equal(chosen.info["fol"], cases.info["fol"][[4, 1]])
    chosen.x.zero_()
    chosen.info["fol"].zero_()
    assert torch.equal(shared.x, cases.x)
    assert torch.equal(shared.info["fol"], cases.info["fol"])
