"""Hardening: a planted weakness that training on found cases mends, one that nothing mends, and what a run keeps."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core import store
from assay.core.errors import UsageError
from assay.core.shards import decode
from assay.engines import yardstick
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation
from assay.engines.found import load_failures
from assay.engines.harden import harden
from assay.engines.hardened import Hardened
from assay.outputs.report.build import report
from assay.outputs.status import readable, run_status
from assay.subjects.bench import Data
from assay.subjects.sources import checkpoint
from planted import Killed, hairsplitter, numbers, planted

EPS = 0.15
CHANGES = {"train.epochs": 12, "train.lr": 0.3, "train.batch": 32, "train.schedule": "constant"}

SLOWER: dict[str, Any] = {"changes": CHANGES | {"train.epochs": 4}, "ignore": ("vanishing_gradient", "weak_attacks")}


def hardened(strong: float = 0.3, **changed: Any) -> Hardened:
    given: dict[str, Any] = {
        "until": "pgd>=0.95, clean_drop<=0",
        "eps": EPS,
        "run": "h",
        "rounds": 2,
        "fuzz_cases": 1500,
        "per_round": 40,
        "changes": CHANGES,
        "ignore": ("vanishing_gradient",),  # the first number has none, by design
        "device": "cpu",
        "deterministic": True,
    }
    return harden("noise", hairsplitter(), planted(strong), **(given | changed))


def test_a_planted_weakness_is_mended() -> None:
    told = hardened()
    first, last = told.rounds[0].measured, told.rounds[1].measured
    assert (first.clean.accuracy, first.attacks["pgd"].accuracy) == (1.0, 0.0)
    assert told.met
    assert told.best == 1
    assert len(told.rounds) == 2, "one round is enough, and no more are made"
    assert last.attacks["pgd"].accuracy == 1.0
    assert told.rounds[1].selected == told.rounds[1].learned == 40
    assert told.rounds[1].fixed == told.rounds[1].checked > 0
    assert told.rounds[1].broken == 0
    assert told.test is not None
    worst = {name: measured.worst.accuracy for name, measured in told.test.columns().items()}
    assert worst["before"] == 0.0
    assert worst["after"] == 1.0
    assert worst["control"] < 0.5, "as much training without the cases does not do it"


def test_where_nothing_can_be_mended_the_run_ends_unmet() -> None:
    told = hardened(strong=0.0)
    assert not told.met
    assert told.stopped == "all rounds done"
    assert len(told.rounds) == 3
    assert [verdict.met for verdict in told.verdicts] == [False, True]
    assert told.after is not None
    assert told.after.worst.accuracy == 0.0


def test_the_best_round_is_kept_where_the_requirement_is_not_met() -> None:
    told = hardened(until="pgd>=0.95, clean_drop<=-0.5", rounds=1, out="best.safetensors")
    assert not told.met
    assert told.best == 1, "pgd holds there, and clean_drop is no further off than before"
    weights, facts = checkpoint.read(told.model)
    assert facts["hardening"]["round"] == 1
    assert facts["training"]["recipe"] == "noise"
    assert facts["training"]["mutate"] == "noise(eps=0.15, norm=linf)"
    assert facts["training"]["cases"] == 40
    assert len(facts["training"]["log"]) == CHANGES["train.epochs"] == told.rounds[1].epochs
    assert Path("best.safetensors").read_bytes() == told.model.read_bytes()
    net = hairsplitter()
    net.load_state_dict(weights)
    x, y = (getattr(planted(0.3).part("test").cases, name) for name in ("x", "y"))
    assert torch.equal(net(x).argmax(1), y)


def test_a_number_that_a_check_spoils_meets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(*given: Any, **named: Any) -> Evaluation:
        result = evaluate(*given, **named)
        if result.attacks["pgd"].left.accuracy > 0.5:
            result.warnings = [{"name": "planted", "message": "too good to be true", "see": ""}]
        return result

    monkeypatch.setattr(yardstick, "evaluate", spoiled)
    told = hardened(rounds=1, control=False)
    assert told.requirement.met(told.rounds[1].measured.numbers(told.rounds[0].measured))
    assert not told.met
    assert told.best == 0, "a round that can be trusted comes before one that cannot"


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not() -> None:
    whole = hardened(**SLOWER)
    assert whole.best == 2
    for phase, number in (
        ("measure", 0),
        ("fuzz", 1),
        ("train", 1),
        ("measure", 1),
        ("train", 2),
        ("control", 1),
        ("test", 0),
    ):
        with pytest.raises(KeyboardInterrupt):
            hardened(run="killed", progress=Killed(phase, number), **SLOWER)
    told = hardened(run="killed", **SLOWER)
    assert numbers(told) == numbers(whole)
    for name in ("round-000", "round-001", "round-002", "control-001"):
        files = [(run.run / "models" / f"{name}.safetensors").read_bytes() for run in (told, whole)]
        assert files[0] == files[1], name
    assert not list((told.run / "training").iterdir()), "no state of a training outlives it"


def test_ctrl_c_ends_with_what_is_done_and_the_same_call_goes_on() -> None:
    def press(numbers: Mapping[str, Any]) -> None:
        if numbers["phase"] == "train" and numbers["epoch"] > 2:
            signal.raise_signal(signal.SIGINT)

    told = hardened(progress=press)
    assert told.interrupted
    assert len(told.rounds) == 1
    assert told.to_json()["before"] is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heard: list[float] = []
    again = hardened(progress=lambda n: heard.append(n["epoch"]) if n["phase"] == "train" else None)
    assert again.met
    assert min(heard) > 2, "the epochs that were done are not done again"


def test_no_two_descendants_of_a_seed_stand_on_both_sides() -> None:
    told = hardened(strong=0.0, control=False)
    learned: set[int] = set()
    checked: set[int] = set()
    assert len(told.rounds) == 3
    for done in told.rounds[1:]:
        found = load_failures(store.read(told.run / f"round-{done.number:03d}"))
        assert len(found) == done.found
        rows = decode((told.run / f"state/round-{done.number:03d}.safetensors").read_bytes())
        learned |= set(found.origin[rows["selected"]].tolist())
        checked |= set(found.origin[rows["check"]].tolist())
        assert len(rows["fixed"]) == done.checked
        assert int(rows["fixed"].sum()) == done.fixed
        assert len(rows["broken"]) == done.broken
    assert len(learned) > 20
    assert len(checked) > 5
    assert not learned & checked


def test_the_test_part_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def counted(target: Any, data: Data, **named: Any) -> Evaluation:
        looked.append(data.name)
        return evaluate(target, data, **named)

    monkeypatch.setattr(yardstick, "evaluate", counted)
    told = hardened(until="pgd>=0.95, clean_drop<=-0.5", rounds=1)
    assert looked == ["planted/val"] * 2 + ["planted/test"] * 3, "before, control and after, when all is decided"
    assert hardened(until="pgd>=0.95, clean_drop<=-0.5", rounds=1).to_json()["test_looks"] == 1
    assert len(looked) == 5, "a finished run is read, not measured again"
    assert hardened(until="pgd>=0.95", rounds=9).met, "the requirement is no part of what makes a run this run"
    assert len(looked) == 5
    longer = hardened(until="fgsm>=0.9, clean_drop<=-0.5", rounds=0)
    assert longer.best == 1
    assert told.model == longer.model
    again = hardened(until="clean>=1", rounds=1)
    assert again.best == 0, "the original meets that"
    assert again.to_json()["test_looks"] == 2
    assert looked[5:] == ["planted/test"]


def test_the_module_that_was_given_comes_back_untouched() -> None:
    net = nn.Sequential(hairsplitter(), nn.Dropout(0.1))
    net[0].bias.requires_grad_(False)
    before: dict[str, Tensor] = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    told = harden(
        "noise",
        net,
        planted(0.3),
        until="pgd>=0.95",
        eps=EPS,
        rounds=1,
        fuzz_cases=500,
        changes=CHANGES,
        val_cases=16,
        test_cases=16,
        control=False,
    )
    assert told.rounds[1].epochs == 12
    assert net.training
    assert not net[0].bias.requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_the_heap_holds_every_round_or_the_last() -> None:
    endless: dict[str, Any] = {"strong": 0.0, "control": False, "test_cases": 8}
    every = hardened(**endless)
    last = hardened(run="last", changes=CHANGES | {"heap": "last"}, **endless)
    assert [done.learned for done in every.rounds] == [0, 40, 80]
    assert [done.learned for done in last.rounds] == [0, 40, 40]


def test_attacks_of_the_requirement_join_the_suite() -> None:
    told = hardened(until="bim>=0.9, pgd(steps=3)>=0.9, robust>=0.9, fol<=1", rounds=1, control=False)
    assert list(told.rounds[0].measured.attacks) == ["fgsm", "pgd(steps=20)", "bim", "pgd(steps=3)"]
    assert [str(verdict.clause) for verdict in told.verdicts] == [
        "bim>=0.9",
        "pgd(steps=3)>=0.9",
        "robust>=0.9",
        "fol<=1",
    ]
    assert told.met


def test_no_round_begins_that_time_does_not_allow() -> None:
    told = hardened(time=1e-6)
    assert told.stopped == "time is up"
    assert len(told.rounds) == 1
    assert hardened(time="1h").met, "more time continues the run"


def test_where_no_case_fails_there_is_nothing_to_learn() -> None:
    told = hardened(eps=1e-4, until="clean_drop<=-0.5")
    assert told.stopped == "no failing case was found to learn from"
    assert not told.met
    assert told.best == 0
    assert told.model.name == "round-000.safetensors"


def test_a_damaged_round_is_done_again() -> None:
    told = hardened()
    damaged = bytearray(told.model.read_bytes())
    damaged[-1] ^= 1
    told.model.write_bytes(damaged)
    assert numbers(hardened()) == numbers(told)
    assert [path.name for path in (told.run / "quarantine").glob("models_round-001*")] == [
        "models_round-001.safetensors.1"
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"until": "pdg>=0.5"}, "did you mean 'pgd'"),
        ({"until": "pgd<=0.5"}, "wrong way"),
        ({"until": "fol<=0.1", "norm": "l1"}, "fol is defined for the norms linf and l2, not for l1"),
        ({"per_round": "0.5"}, "per_round is a number of cases from 1 up, or a share such as 10%"),
        ({"per_round": 0}, "per_round is a number"),
        ({"rounds": -1}, "rounds must not be negative"),
        ({"suite": "seen"}, "the suite is empty"),
        ({"changes": {"train.epoch": 3}}, "did you mean 'epochs'"),
        ({"changes": {"heap": "some"}}, "heap is 'all'"),
        ({"out": "best.pt"}, "must end in .safetensors"),
        ({"test_cases": 0}, "must be at least 1"),
        ({"ignore": ("vanishing",)}, "did you mean 'vanishing_gradient'"),
    ],
)
def test_mistakes_are_told_before_a_run_folder_is_made(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        hardened(**changed)
    assert not (store.runs_root() / "h").exists()


def test_another_configuration_does_not_continue_a_run() -> None:
    hardened(rounds=0)
    with pytest.raises(UsageError, match="per_round: 40 in the run, 41 asked"):
        hardened(rounds=0, per_round=41)
    checkpoint.write(Path("other.safetensors"), {"w": torch.zeros(1)}, {})
    with pytest.raises(UsageError, match="exists and is no model of this hardening"):
        hardened(rounds=0, out="other.safetensors")


def test_status_and_report_show_the_rounds() -> None:
    told = hardened()
    status = run_status(store.read(told.run))
    assert status["kind"] == "harden"
    assert [done["robust"] for done in status["rounds"]] == [0.0, 1.0]
    assert "1: clean 1.000, robust 1.000" in readable(status)["rounds"]
    page = report(told.run).read_text()
    assert "planted/test, n=72, linf eps=0.15, seed 0: white box" in page
    assert "static, examples made on the original model" in page
    assert "Rounds, on the validation part" in page
    assert json.loads(json.dumps(told.to_json()))["rounds"][1]["validation"]["worst"]["right"] == 64
