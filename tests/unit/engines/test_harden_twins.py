"""Hardening with two models: the resistant one as round 1, its heap in every later one, its own control."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from assay.cli import app
from assay.core import store
from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.shards import decode
from assay.engines import rounds
from assay.engines.found import load_failures
from assay.engines.harden import harden
from assay.engines.hardened import Hardened
from assay.engines.hardening_models import Models
from assay.engines.resistant_model import heap_in
from assay.engines.train import train
from assay.outputs import harden_tables
from assay.outputs.report.build import report
from assay.outputs.status import readable, run_status
from assay.stages.trainers.kept_back import kept_back
from assay.stages.trainers.resistant import heap_for
from assay.subjects.bench import Data, Splits, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target, trained_with

EPS = 0.1
CHANGES: dict[str, Any] = {
    "train.epochs": 2,
    "train.batch": 32,
    "resistant.epochs": 2,
    "resistant.batch": 32,
    "resistant.share": 0.1,
    "seeds.attacked.count": 200,
}
NEVER = "fgsm>=1, clean>=1"


def hardened(model: Any, run: str = "h", **changed: Any) -> Hardened:
    given: dict[str, Any] = {
        "until": NEVER,
        "eps": EPS,
        "run": run,
        "rounds": 1,
        "fuzz_cases": 400,
        "per_round": 40,
        "suite": "fgsm",
        "changes": CHANGES,
        "val_cases": 60,
        "test_cases": 40,
        "device": "cpu",
        "deterministic": True,
    }
    return harden("twinfuzz", model, "digits", **(given | changed))


def committed(told: Hardened) -> dict[str, bytes]:
    """Every model and number of a run."""
    files = [*told.run.glob("models/*"), *told.run.glob("state/*")]
    return {str(file.relative_to(told.run)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def whole(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> Hardened:
    folder = tmp_path_factory.mktemp("twins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_RUNS", str(folder / "runs"))
        return hardened(digits_model)


def train_cases() -> Cases:
    return with_validation(load_splits("digits")).part("train").cases


def test_the_rounds_are_original_resistant_and_cases(whole: Hardened) -> None:
    assert [done.made for done in whole.rounds] == ["original", "resistant", "cases"]
    first = whole.rounds[1]
    share = round(0.1 * len(train_cases()))
    assert (first.selected, first.learned, first.epochs) == (share, share, 2)
    assert first.found - first.selected == first.checked == -(-share // 10)
    assert first.fixed > 0
    assert whole.rounds[2].learned == first.learned + whole.rounds[2].selected, "the heap is learned from again"
    assert whole.rounds[2].checked > first.checked, "and its kept-back part checked again"
    assert whole.fuzzed == 1


def test_the_heap_is_the_trainers_own_and_parted_as_the_cases_are(whole: Hardened, digits_model: str) -> None:
    heap = heap_in(store.read(whole.run))
    changed = {key.partition(".")[2]: value for key, value in CHANGES.items() if key.startswith("resistant.")}
    stage = bind("trainer", "resistant", changed, {"eps": EPS, "norm": "linf"})
    again = heap_for(stage, load_target(digits_model, device="cpu"), train_cases(), Stream(0, ("resistant",)))
    assert torch.equal(heap.learn.x, again.learn.x)
    assert torch.equal(heap.check.origin, again.check.origin)
    found = load_failures(store.read(whole.run / "round-002"))
    back = kept_back(found.origin, 0)
    assert not set(found[back].origin.tolist()) & set(heap.learn.origin.tolist()), "what is checked, no heap has seen"


def test_the_resistant_round_learns_from_what_the_next_ones_do(
    digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: dict[str, Any] = {}
    own = Models.trained

    def noted(self: Models, name: str, start: Any, fit: Any, data: Splits, extra: Cases | None, *rest: Any) -> Any:
        learned[name] = (start.fingerprint(), fit.entry.name, extra, data.part("val").cases)
        return own(self, name, start, fit, data, extra, *rest)

    monkeypatch.setattr(Models, "trained", noted)
    monkeypatch.setattr("assay.engines.judge.Judge.best", lambda self: len(self.rounds) - 1)
    told = hardened(digits_model, changes=CHANGES | {"heap": "last", "train.best": "floor"}, rounds=2)
    heap = heap_in(store.read(told.run))
    models = {n: load_target(f"lenet5@{told.run}/models/round-{n:03d}.safetensors").fingerprint() for n in range(3)}
    assert learned["round-001"][:3] == (models[0], "resistant", None), "the heap comes with the trainer"
    for number in (2, 3):
        start, name, extra, val = learned[f"round-{number:03d}"]
        assert (start, name) == (models[number - 1], "plain")
        assert torch.equal(extra.x[: len(heap.learn)], heap.learn.x), "also where only the last cases are kept"
        assert len(extra) == len(heap.learn) + told.rounds[number].selected
        assert int(val.info["failure"].sum()) == told.rounds[number].checked
    start, name, extra, val = learned["control-002"]
    assert (start, name) == (models[1], "plain"), "the control is the resistant model, trained on"
    assert torch.equal(extra.x, heap.learn.x)
    assert torch.equal(val.x[val.info["failure"] == 1], heap.check.x)
    assert "control-001" not in learned
    for file in ("round-001", "round-003", "control-003"):
        log = checkpoint.read_meta(told.run / f"models/{file}.safetensors")["training"]["log"]
        assert all("failures_accuracy" in row for row in log), "clean accuracy first, then that on failures"


def test_a_run_stopped_between_the_models_ends_the_same(whole: Hardened, digits_model: str) -> None:
    first = hardened(digits_model, rounds=0, control=False)
    assert [done.made for done in first.rounds] == ["original", "resistant"]
    assert (first.stopped, first.fuzzed) == ("all rounds done", 0)
    again = hardened(digits_model)
    kept, once = committed(again), committed(whole)
    assert {name for name in once if "final" not in name} <= kept.keys()
    assert all(kept[name] == once[name] for name in once if "final" not in name)


def test_the_same_heap_is_not_attacked_for_twice(
    whole: Hardened, digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Models, "trained", killed)
        with pytest.raises(KeyboardInterrupt):
            hardened(digits_model, rounds=0)
    monkeypatch.setattr("assay.stages.trainers.resistant.heap_of", killed)
    again = hardened(digits_model, rounds=0, control=False)
    assert committed(again)["models/round-001.safetensors"] == committed(whole)["models/round-001.safetensors"]


def test_the_final_look_shows_both_models_and_the_control(
    digits_model: str, monkeypatch: pytest.MonkeyPatch, whole: Hardened
) -> None:
    monkeypatch.setattr("assay.engines.judge.Judge.best", lambda self: len(self.rounds) - 1)
    told = hardened(digits_model)
    assert told.best == 2
    assert told.test is not None
    assert list(told.test.columns()) == ["before", "resistant", "control", "after"]
    assert told.resistant is not None
    assert sorted(p.name for p in told.run.glob("models/control*")) == ["control-002.safetensors"]
    json = told.to_json()
    assert json["resistant"]["clean"]["n"] == 40
    assert [done["made"] for done in json["rounds"]] == ["original", "resistant", "cases"]
    table = harden_tables.rounds_table(told)
    assert [str(cell) for cell in table.columns[0].cells] == ["original", "resistant", "1"]
    columns = [column.header for column in harden_tables.test_tables(told, told.test)[0].columns]
    assert columns[1:] == ["before", "resistant", "control", "after"]
    page = report(told.run).read_text()
    assert re.search(r"<td[^>]*>resistant</td>", page)
    assert "(the resistant model)" in readable(run_status(store.read(told.run)))["rounds"]
    again = hardened(digits_model)
    assert again.test == told.test, "read back from the run"
    seen = {name: trained_with(f"lenet5@{told.run}/models/{name}.safetensors") for name in NAMES}
    assert [[attack[0] for attack in seen[file] or ()] for file in NAMES] == [
        [],
        ["fgsm", "pgd"],
        ["fgsm", "pgd", "bim"],
        ["fgsm", "pgd"],
    ]


NAMES = ("round-000", "round-001", "round-002", "control-002")


def test_where_the_resistant_model_is_best_it_says_so(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.engines.judge.Judge.best", lambda self: 1)
    told = hardened(digits_model, rounds=0)
    assert told.test is not None
    assert list(told.test.columns()) == ["before", "after"]
    caption = str(harden_tables.test_tables(told, told.test)[0].caption)
    assert "no round came after the resistant model; no control was trained" in caption
    assert "No round came after the resistant model" in report(told.run).read_text()


def test_a_requirement_that_the_resistant_model_meets_ends_there(
    digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.engines.judge.Judge.met", lambda self, done: done.made == "resistant")
    told = hardened(digits_model, control=False)
    assert told.stopped == "requirement met"
    assert (told.best, len(told.rounds)) == (1, 2)


@pytest.fixture(scope="module")
def given(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("given") / "r.safetensors"
    trainer = 'resistant(attacks="fgsm, mim(steps=3)", share=0.05)'
    train(digits_model, "digits", out, trainer=trainer, eps=EPS, params={"epochs": 2})
    return f"lenet5@{out}"


def test_a_given_resistant_model_is_round_one(given: str, digits_model: str) -> None:
    told = hardened(digits_model, resistant=given, control=False)
    weights, facts = checkpoint.read(told.run / "models/round-001.safetensors")
    own, meta = checkpoint.read(Path(given.partition("@")[2]))
    assert all(torch.equal(weights[name], own[name]) for name in own)
    assert facts["training"] == meta["training"]
    assert facts["hardening"]["resistant"] == given
    first = told.rounds[1]
    assert (first.learned, first.epochs) == (0, 0)
    assert (first.checked, first.fixed) == (0, 0), "nobody knows which of its heap's kept-back part it was trained on"
    later = decode(store.read(told.run).file("state/round-002.safetensors"))
    assert set(later["checked"].tolist()) == {2}, "nor does it count later"
    assert len(later["checked"]) == len(later["fixed"]) == told.rounds[2].checked > 0
    assert first.selected == round(0.1 * len(train_cases())), "the heap is made on the original all the same"
    seen = trained_with(f"lenet5@{told.run}/models/round-002.safetensors")
    assert [attack[0] for attack in seen or ()] == ["fgsm", "mim", "fgsm", "pgd", "bim"]
    began = store.begun_with(told.run / "round-002")["target"]
    assert began["resistant_fingerprint"] == load_target(given).fingerprint()
    with pytest.raises(UsageError, match="another configuration"):
        hardened(digits_model)


def test_what_cannot_be_the_resistant_model_is_refused(given: str, digits_model: str, tmp_path: Path) -> None:
    train("mlp", "digits", tmp_path / "mlp.safetensors", params={"epochs": 1})
    with pytest.raises(UsageError, match="net of the same kind"):
        hardened(digits_model, resistant=f"mlp@{tmp_path}/mlp.safetensors")
    train(digits_model, "digits", tmp_path / "other.safetensors", mean=(0.2,), std=(0.3,), params={"epochs": 1})
    with pytest.raises(UsageError, match="answers otherwise"):
        hardened(digits_model, resistant=f"lenet5@{tmp_path}/other.safetensors")
    with pytest.raises(UsageError, match="is the vulnerable model itself: the two can never disagree"):
        hardened(digits_model, resistant=digits_model)
    with pytest.raises(UsageError, match="knows no resistant model"):
        harden("noise", digits_model, "digits", until=NEVER, eps=EPS, resistant=given)


def test_two_models_without_a_way_to_the_second_are_refused(digits_model: str) -> None:
    alone = "compares models, and hardening has one.*--set resistant=resistant"
    with pytest.raises(UsageError, match=alone):
        hardened(digits_model, changes={"resistant": "none"})
    with pytest.raises(UsageError, match="asks a vulnerable model beside the resistant one it tests; take recipe"):
        harden("noise", digits_model, "digits", until=NEVER, eps=EPS, changes={"oracle": "agreed"})


def test_without_a_single_attack_that_works_there_is_no_resistant_model(digits_model: str) -> None:
    with pytest.raises(NothingToTest, match="nothing to become resistant by"):
        hardened(digits_model, eps=1e-9, rounds=0)


@pytest.mark.parametrize("recipe", ["twinfuzz", "twinfuzz-code"])
def test_cases_are_picked_by_the_fol_that_the_run_noted(recipe: str, given: str, digits_model: str) -> None:
    """Both ends of the stored column: the length of the gradient for the mined class, whatever the ball is."""
    given_to: dict[str, Any] = {"rounds": 1, "fuzz_cases": 600, "per_round": 10, "suite": "fgsm", "changes": CHANGES}
    given_to |= {"val_cases": 30, "test_cases": 20, "device": "cpu", "control": False, "resistant": given}
    told = harden(recipe, digits_model, "digits", until=NEVER, eps=EPS, run="h", **given_to)
    found = load_failures(store.read(told.run / "round-002"))
    free = (~kept_back(found.origin, 0)).nonzero().flatten()
    order = free[found.info["fol"][free].double().argsort(stable=True)]
    assert len(free) > 20
    picked = decode(store.read(told.run).file("state/round-002.safetensors"))["selected"]
    assert picked.tolist() == [*order[:5].tolist(), *order[-5:].tolist()]
    x = found.x[free].requires_grad_()
    net = load_target(given, device="cpu").module  # type: ignore[attr-defined]
    loss = nn.functional.cross_entropy(net(x), found.info["mined"][free], reduction="sum")
    length = torch.autograd.grad(loss, x)[0].flatten(1).norm(dim=1)
    assert torch.allclose(found.info["fol"][free], length, rtol=1e-3, atol=1e-4)


def test_what_the_vulnerable_model_had_seen_the_resistant_one_has(digits_model: str, tmp_path: Path) -> None:
    old = tmp_path / "v.safetensors"
    train(digits_model, "digits", old, trainer="adversarial(attack=mim(steps=1))", eps=EPS, params={"epochs": 1})
    told = hardened(f"lenet5@{old}", rounds=0, control=False, changes=CHANGES | {"train": "adversarial(attack=bim)"})
    facts = checkpoint.read_meta(told.run / "models/round-001.safetensors")["training"]
    assert [name for name, _ in facts["seen"]] == ["mim", "fgsm", "pgd"], "and not what later rounds will see"
    assert facts["trainer"].startswith("resistant(")
    assert facts["cases"] == told.rounds[1].learned > 0


def test_any_trainer_may_build_the_resistant_model(digits_model: str) -> None:
    changes = {key: value for key, value in CHANGES.items() if not key.startswith("resistant.")}
    told = hardened(digits_model, rounds=0, control=False, changes=changes | {"resistant": "adversarial(epochs=1)"})
    first = told.rounds[1]
    assert (first.made, first.found, first.learned, first.checked, first.epochs) == ("resistant", 0, 0, 0, 1)


def test_data_without_labels_are_refused(digits_model: str) -> None:
    splits = with_validation(load_splits("digits"))
    part = splits.part("train")
    bare = Data(part.name, Cases.of(part.cases.x), part.spec)
    with pytest.raises(UsageError, match="has no labels"):
        harden("twinfuzz", digits_model, Splits("bare", bare, splits.val, splits.test), until=NEVER, eps=EPS)


def test_labels_that_were_made_up_are_not_learned_from(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = with_validation(load_splits("digits"))
    part = splits.part("train")
    y = torch.where(torch.arange(len(part)) % 2 == 0, part.cases.y, UNLABELLED)
    half = Data(part.name, Cases.of(part.cases.x, y), part.spec)
    picked: list[Cases] = []
    own = rounds.Rounds._picked

    def noted(self: rounds.Rounds, found: Cases, *rest: Any) -> Any:
        rows = own(self, found, *rest)
        picked.extend([found, found[rows["selected"]], found[rows["check"]]])
        return rows

    monkeypatch.setattr(rounds.Rounds, "_picked", noted)
    given = Splits("half", half, splits.val, splits.test)
    told = harden(
        "twinfuzz",
        digits_model,
        given,
        until=NEVER,
        eps=EPS,
        rounds=1,
        fuzz_cases=400,
        suite="fgsm",
        changes=CHANGES,
        val_cases=30,
        test_cases=20,
        control=False,
    )
    found, *used = picked
    assert (found.origin % 2 == 1).any(), "unlabelled seeds are fuzzed too"
    assert sum(map(len, used))
    assert all((cases.origin % 2 == 0).all() for cases in used)
    assert told.rounds[2].found == len(found)


def test_a_live_module_is_hardened_too(digits_model: str) -> None:
    module: nn.Module = load_target(digits_model, device="cpu").module  # type: ignore[attr-defined]
    told = hardened(module, rounds=0, control=False)
    assert [done.made for done in told.rounds] == ["original", "resistant"]
    assert told.check == ""


def test_from_the_command_line(given: str, digits_model: str) -> None:
    words = ["harden", digits_model, "--data", "digits", "--recipe", "twinfuzz", "--resistant", given]
    words += ["--until", NEVER, "--eps", "0.1", "--rounds", "0", "--suite", "fgsm", "--val-cases", "30"]
    told = CliRunner().invoke(app, [*words, "--test-cases", "20", "--set", "resistant.share=0.05", "--quiet"])
    assert told.exit_code == 1, told.output
    assert "NOT MET after 0 rounds" in told.output
    assert "resistant" in told.output
