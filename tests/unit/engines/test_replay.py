"""Replaying: the verdicts, what is asked of whom and how often, and that a run stays as it is."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from answers import NAN, planted, planted_target
from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.ids import case_ids
from assay.core.shards import decode, encode
from assay.engines.found import load_failures
from assay.engines.old_failures import old_failures
from assay.engines.replay import Replayed, replay
from assay.subjects.sources.load import load_target
from thresholds import Threshold, line

RUNS = Path("runs")


@pytest.fixture
def failures(digits_model: str) -> Cases:
    """Those of a run called first."""
    assay.fuzz("noise", digits_model, "digits/train[:60]", run="first", eps=0.4)
    return load_failures(store.read(RUNS / "first"))


def verdicts(told: Replayed) -> list[tuple[str, int]]:
    return [(failure.verdict, failure.failed) for failure in told.failures]


# Verdicts -----------------------------------------------------------------------------------------------------------


def test_the_verdicts_exactly(failures: Cases) -> None:
    y, was = failures.y.tolist(), failures.info["pred"].tolist()
    other = next(c for c in range(10) if c not in (y[2], was[2]))
    given = [[y[0]], [was[1]], [other], [y[3], was[3], y[3]], [NAN], [was[5], y[5], was[5]], [y[6]]]
    target = planted_target(failures, given)
    told = replay("first", model=target)
    assert verdicts(told)[:7] == [
        ("fixed", 0),
        ("still failing", 3),
        ("still failing", 3),
        ("flaky", 1),
        ("still failing", 3),
        ("flaky", 2),
        ("fixed", 0),
    ]
    shown = [failure.told for failure in told.failures]
    assert shown[1] == f"class {y[1]} → {was[1]}"
    assert shown[2] == f"class {y[2]} → {other}, was {was[2]}"
    assert shown[3] == f"class {y[3]} → {was[3]}", "of the answers that fail"
    assert shown[4] == f"class {y[4]} → no number, was {was[4]}"
    sure = float(torch.tensor([4.0] + [0.0] * 9).softmax(0)[0])
    assert told.failures[0].confidence == pytest.approx(sure, abs=1e-6)
    assert (told.failures[4].confidence, told.failures[4].pred) == (None, None)
    assert sum(told.counts().values()) == told.of == len(failures)
    assert told.complete


def test_an_answer_that_is_no_number_fails_whatever_class_it_seems_to_be(failures: Cases) -> None:
    assert 0 in failures.y, "which is what argmax makes of NaN"
    assert verdicts(replay("first", model=planted_target(failures, [[NAN]]))) == [("still failing", 3)] * len(failures)


def test_each_is_asked_alone_in_float32_and_really_so_often(failures: Cases) -> None:
    target = planted_target(failures, [[0]])
    replay("first", model=target, repeats=5)
    assert planted(target).batches == [(1, torch.float32)] * (5 * len(failures))
    assert set(planted(target).asked.values()) == {5}
    once = planted_target(failures, [[0, 1]])
    assert all(failure.asked == 1 for failure in replay("first", model=once, repeats=1).failures)
    for wrong in (0, -1, True):
        with pytest.raises(UsageError, match="--repeats"):
            replay("first", model=once, repeats=wrong)


def test_a_net_that_flips_is_flaky_and_comes_back_as_it_was() -> None:
    class Flip(Threshold):
        turn = itertools.count()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert not self.training, "in evaluation mode"
            assert not torch.is_grad_enabled()
            sign = 1 if next(self.turn) % 2 else -1
            return super().forward(x) * sign

    found = assay.fuzz("noise", Threshold(), line(width=6), run="live", eps=0.15)
    net = Flip().train()
    told = replay("live", model=net, repeats=4)
    assert verdicts(told) == [("flaky", 2)] * len(found)
    assert net.training
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


def test_the_runs_own_model_is_asked_and_every_failure_still_fails(failures: Cases) -> None:
    told = replay("first")
    assert verdicts(told) == [("still failing", 3)] * len(failures)
    assert [failure.pred for failure in told.failures] == [str(p) for p in failures.info["pred"].tolist()]
    assert [failure.was for failure in told.failures] == [failure.pred for failure in told.failures]
    assay.fuzz("noise", Threshold(), line(width=6), run="live", eps=0.15)
    with pytest.raises(UsageError, match="give --model"):
        replay("live")


# Which ones ---------------------------------------------------------------------------------------------------------


def test_some_by_id_the_first_ones_and_none_twice(failures: Cases) -> None:
    ids = case_ids(failures)
    told = replay("first", [ids[4][:9], ids[1]])
    assert [failure.id for failure in told.failures] == [ids[4], ids[1]]
    assert len(replay("first", [ids[4], ids[4]])) == 1
    assert [failure.id for failure in replay("first", k=3).failures] == ids[:3]
    assert len(replay("first", k="10%")) == round(len(ids) / 10)
    with pytest.raises(UsageError, match="no failure 0123456789abcdef"):
        replay("first", ["0123456789abcdef"])


def test_an_input_that_was_found_twice_is_one_failure(failures: Cases) -> None:
    run = store.read(RUNS / "first")
    name, shard = next((n, decode(run.file(n))) for line in run.commits("fuzz") for n in line.files if "cases/" in n)
    with store.continued(RUNS / "first") as writable:
        again = {name.replace("step-0", "step-9"): encode(shard)}
        writable.commit(again, kind="fuzz", unit=99, rows=[], counts={}, kept={})
    assert len(load_failures(store.read(RUNS / "first"))) == len(failures) + len(shard["y"])
    assert len(old_failures(store.read(RUNS / "first"))) == len(replay("first")) == len(failures)


def _flaky(folder: Path, rows: int) -> None:
    """Put some failures of the run among those that did not fail again, and take nothing away."""
    with store.continued(folder) as run:
        shard = next(decode(run.file(n)) for line in run.commits("fuzz") for n in line.files if "cases/" in n)
        some = {name: part if name == "seeds" else part[:rows].clone() for name, part in shard.items()}
        some["x"] = (some["x"] + 1 / 64).clamp(0, 1)
        run.commit({"flaky/step-900000.safetensors": encode(some)}, kind="fuzz", unit=99, rows=[], counts={}, kept={})


def test_what_is_flaky_is_asked_where_that_is_wanted(failures: Cases) -> None:
    _flaky(RUNS / "first", 4)
    assert len(replay("first")) == len(failures)
    assert len(replay("first", flaky=True)) == len(failures) + 4


def test_a_run_with_nothing_but_flaky_ones_says_so(digits_model: str) -> None:
    assay.fuzz("noise", digits_model, "digits/train[:5]", run="clean", eps=0.0001)
    with pytest.raises(NothingToTest, match=r"holds no failures$"):
        replay("clean")
    assay.fuzz("noise", digits_model, "digits/train[:20]", run="some", eps=0.4)
    with store.continued(RUNS / "clean") as run, store.continued(RUNS / "some") as other:
        shard = next(other.file(n) for line in other.commits("fuzz") for n in line.files if "cases/" in n)
        run.commit({"flaky/step-900000.safetensors": shard}, kind="fuzz", unit=99, rows=[], counts={}, kept={})
    with pytest.raises(NothingToTest, match="that are flaky lie apart: --flaky"):
        replay("clean")
    assert replay("clean", flaky=True).counts()["still_failing"] > 0


def test_the_cases_of_a_shrinking(failures: Cases) -> None:
    made = assay.shrink("first", k=4)
    told = replay("first", shrunk=made.number)
    assert [failure.id for failure in told.failures] == case_ids(made.cases)
    assert verdicts(told) == [("still failing", 3)] * 4
    with pytest.raises(UsageError, match="no shrinking 7"):
        replay("first", shrunk=7)
    with pytest.raises(UsageError, match="not both"):
        replay("first", shrunk=1, flaky=True)


def test_a_selection_in_its_order(failures: Cases) -> None:
    picked = assay.select("first", by="top(score=gini)", k=4)
    told = replay("first", selected=1)
    assert [failure.id for failure in told.failures] == case_ids(picked.cases) != case_ids(failures)[:4]
    assert told.of == 4
    assert [failure.id for failure in replay("first", case_ids(picked.cases)[2:3], selected=1).failures] == [
        case_ids(picked.cases)[2]
    ]
    with pytest.raises(UsageError, match="run first has no selection 2; its last one is 1"):
        replay("first", selected=2)
    for wrong in ({"flaky": True}, {"shrunk": 1}):
        with pytest.raises(UsageError, match="give --"):
            replay("first", selected=1, **wrong)


def test_one_of_each_kind_is_that_of_the_smallest_change(failures: Cases) -> None:
    told = replay("first", distinct=True)
    kept = old_failures(store.read(RUNS / "first"), distinct=True)
    assert [failure.id for failure in told.failures] == case_ids(kept)
    assert 1 < told.of < len(failures)
    pairs = set(zip(failures.y.tolist(), failures.info["pred"].tolist(), strict=True))
    assert set(zip(kept.y.tolist(), kept.info["pred"].tolist(), strict=True)) == pairs, "none is lost"
    sizes = (failures.x - failures.info["seed_x"]).flatten(1).norm(dim=1)
    smallest = case_ids(failures[sizes.argmin()[None]])[0]
    assert smallest in case_ids(kept)


def test_kinds_of_a_saved_evaluation_are_told_by_its_data(digits_model: str) -> None:
    assay.evaluate(digits_model, "digits/test[:60]", suite="fgsm", eps=0.3, save="seen")
    whole, some = replay("seen"), replay("seen", distinct=True)
    assert 1 < some.of < whole.of
    assert {failure.id for failure in some.failures} < {failure.id for failure in whole.failures}


def test_of_a_pool_those_that_fail(digits_model: str) -> None:
    assay.fuzz("noise", digits_model, "digits/train[:40]", run="pool", eps=0.3, changes={"oracle": "every"}, cases=300)
    every = load_failures(store.read(RUNS / "pool"))
    wrong = every[every.info["pred"] != every.y]
    assert 0 < len(wrong) < len(every)
    told = replay("pool")
    assert {failure.id for failure in told.failures} == set(case_ids(wrong))
    assert told.counts()["still_failing"] == told.of


# Which oracle, which model ------------------------------------------------------------------------------------------


def test_the_recipes_own_oracle_decides(digits_model: str, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    assay.train("lenet5", "digits", other, params={"epochs": 2, "batch": 32, "lr": 2e-3}, seed=5)
    pair: dict[str, Any] = {"siblings": [f"lenet5@{other}"], "changes": {"oracle": "disagree", "seeds": "agreed"}}
    assay.fuzz("noise", digits_model, "digits/train[:60]", run="pair", eps=0.4, **pair)
    told = replay("pair", k=12)
    assert told.oracle == "disagree"
    assert verdicts(told) == [("still failing", 3)] * len(told)
    # Two that always agree: whatever the label is, that is no failure by this oracle.
    cases = load_failures(store.read(RUNS / "pair"))
    same = (planted_target(cases, [[1]]), planted_target(cases, [[1]]))
    planted(same[1]).register_buffer("another", torch.ones(1))  # a net of its own
    assert verdicts(replay("pair", model=same[0], siblings=[same[1]])) == [("fixed", 0)] * len(cases)
    assert set(planted(same[1]).asked.values()) == {3}
    other.rename(tmp_path / "moved.safetensors")
    with pytest.raises(UsageError, match=r"other\.safetensors"):
        replay("pair")
    assert len(replay("pair", siblings=[f"lenet5@{tmp_path / 'moved.safetensors'}"], k=3)) == 3


def test_a_saved_evaluation_goes_by_labels(digits_model: str) -> None:
    result = assay.evaluate(digits_model, "digits/test[:40]", suite="fgsm,pgd(steps=5)", eps=0.15, save="kept")
    told = replay("kept")
    assert told.of == sum(outcome.broken for outcome in result.attacks.values()) > 0
    assert told.oracle == "wrong_label"
    assert verdicts(told) == [("still failing", 3)] * told.of
    cases = old_failures(store.read(RUNS / "kept"))
    right = planted_target(cases, [[y] for y in cases.y.tolist()])
    assert replay("kept", model=right).counts() == {"still_failing": 0, "fixed": told.of, "flaky": 0}


def test_a_hardening_asks_its_result_and_a_round_its_own_model(digits_model: str) -> None:
    small: dict[str, Any] = {"fuzz_cases": 1500, "val_cases": 40, "test_cases": 40, "control": False}
    hard = assay.harden(
        "noise",
        digits_model,
        "digits",
        until="fgsm>=1",
        eps=0.3,
        run="h",
        rounds=2,
        suite="fgsm",
        changes={"train.epochs": 2},
        **small,
    )
    told = replay("h")
    assert told.of == len(old_failures(store.read(RUNS / "h")))
    assert told.model == f"lenet5@{hard.model}"
    assert told.role == (
        f"the result, of round {hard.best}" if hard.best else "the original model, which is the result"
    )
    assert told.counts() == replay("h", model=f"lenet5@{hard.model}").counts()
    first = load_failures(store.read(RUNS / "h" / "round-001"))
    alone = replay(RUNS / "h" / "round-001")
    assert verdicts(alone) == [("still failing", 3)] * len(set(case_ids(first)))
    _without_result(RUNS / "h")
    with pytest.raises(UsageError, match="has no result yet"):
        replay("h")


def _without_result(run: Path) -> None:
    """As a hardening is that was stopped before its end."""
    log = run / "journal.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    first = next(i for i, text in enumerate(lines) if b'"kind":"final"' in text or b'"kind":"best"' in text)
    log.write_bytes(b"".join(lines[:first]))


def test_classes_in_another_order_are_matched_by_name() -> None:
    found = assay.fuzz("noise", Threshold(), line(width=6), run="live", eps=0.15)

    class Turned(Threshold):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).flip(1)

    from assay.core.cases import InputSpec
    from assay.subjects.sources.module import ModuleTarget

    turned = ModuleTarget(Turned(), InputSpec((6,), (0.0, 1.0), ("high", "low")))
    told = replay("live", model=turned)
    assert verdicts(told) == [("still failing", 3)] * len(found)
    assert all(failure.pred == failure.was != failure.label for failure in told.failures)
    strange = ModuleTarget(Threshold(), InputSpec((6,), (0.0, 1.0), ("cat", "dog")))
    with pytest.raises(UsageError, match="not the target's"):
        replay("live", model=strange)


def test_models_that_do_not_take_the_cases_are_refused(failures: Cases) -> None:
    with pytest.raises(UsageError, match="shape"):
        replay("first", model=load_target(Threshold(), data=line(width=6)))
