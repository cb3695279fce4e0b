"""Hardening with recipes that find no cases: one round that trains, and what it is held against."""

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.engines import hardened
from assay.engines.evaluation import Share
from assay.engines.harden import harden
from assay.engines.hardened import Hardened, Round
from assay.engines.hardening_words import noise_line
from assay.engines.measured import Measured
from assay.engines.numbers_tables import numbers_tables
from assay.engines.stored import stored_cases
from assay.engines.yardstick import Yardstick
from assay.outputs import harden_tables
from assay.outputs.report.build import report
from assay.outputs.status import readable, run_status
from assay.recipes.recipe import Recipe, hardening, resolve
from assay.stages.trainers.loop import fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.shaken import shaken
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits
from assay.subjects.sources import checkpoint
from planted import Killed, hairsplitter, numbers, planted

EPS = 0.15
TRAINING = "epochs=6, lr=0.3, batch=32, schedule=constant"


def spoken(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    epochs: int = 12,
    odd: bool = False,
) -> nn.Module:
    """Trains and says so; learns from inputs that are pushed, which mends the planted weakness."""
    assert extra is None
    watch.note({"used": torch.tensor(3) if odd else 3, "inputs": 7, "inputs_from": "here", "used_wrong": 1})
    watch.note({"layer": "nowhere"})
    cases = data.part("train").cases
    x = cases.x.clone()
    x[:, 1] = 0.5 - 0.12 * (2.0 * cases.y - 1)
    pushed = replace(cases, x=x)
    return fit(module, pushed, pushed, Plan(epochs, 32, 0.3, schedule="constant"), rng=rng, watch=watch)


@pytest.fixture(autouse=True, scope="module")
def _known() -> None:
    """Not at import: tests over the registry are collected then."""
    register("trainer", name="spoken", needs=("train",))(spoken)


MENDS = Recipe(name="mends", summary="Trains.", train="spoken", control="plain(lr=1e-4)")
PLAIN = Recipe(name="plainly", summary="Trains.", train=f"plain({TRAINING})")


def trained(recipe: Recipe = MENDS, **changed: Any) -> Hardened:
    given: dict[str, Any] = {
        "until": "pgd>=0.95, clean_drop<=-1",  # cannot be met
        "eps": EPS,
        "run": "t",
        "ignore": ("vanishing_gradient",),
        "device": "cpu",
        "deterministic": True,
    }
    return harden(recipe, hairsplitter(), planted(), **(given | changed))


# The round.


def test_one_round_trains_and_then_it_is_over() -> None:
    told = trained()
    assert [done.made for done in told.rounds] == ["original", "trained"]
    assert (told.stopped, told.met, told.best) == ("the recipe trains once", False, 1)
    assert told.rounds[1].measured.attacks["pgd"].accuracy > 0.95 > told.rounds[0].measured.attacks["pgd"].accuracy
    assert told.rounds[1].epochs == 12
    assert told.rounds[1].to_json().keys().isdisjoint({"found", "selected", "learned", "checked", "fixed"})
    assert not list(told.run.glob("round-*")), "nothing was fuzzed"
    facts = checkpoint.read_meta(told.model)
    assert facts["training"]["trainer"] == "spoken(epochs=12, odd=false)"
    assert facts["training"]["recipe"] == "mends"
    assert len(facts["training"]["log"]) == 12
    assert facts["hardening"]["round"] == 1
    assert trained(until="pgd>=0.9", rounds=9).met, "the same run, asked for less"


def test_no_round_is_the_original_alone() -> None:
    told = trained(rounds=0)
    assert len(told.rounds) == 1
    assert told.stopped == "all rounds done"
    assert told.test is not None
    assert list(told.test.columns()) == ["before", "after"]
    assert harden_tables.closing_lines(told) == ["NOT MET after no training (all rounds done)"]
    assert len(trained(rounds=1).rounds) == 2, "and the same run goes on with one"


def test_an_original_that_meets_it_is_not_trained() -> None:
    told = trained(until="clean>=1")
    assert told.met
    assert len(told.rounds) == 1
    assert told.test is not None
    said = str(harden_tables.test_tables(told, told.test)[0].caption)
    assert "the original met the requirement before any training" in said


def test_what_says_how_to_fuzz_is_refused() -> None:
    for asked in ({"fuzz_time": "3s"}, {"fuzz_cases": 100}, {"per_round": "10%"}):
        with pytest.raises(UsageError, match=f"finds no cases, it trains: --{next(iter(asked)).replace('_', '-')} wo"):
            trained(**asked)
    with pytest.raises(UsageError, match="knows no resistant model"):
        trained(resistant=hairsplitter())
    assert not (store.runs_root() / "t").exists()


# What it is held against.


def test_the_test_part_shows_noise_and_control_beside_it() -> None:
    told = trained()
    assert told.test is not None
    columns = told.test.columns()
    assert list(columns) == ["before", "noise", "control", "after"]
    assert columns["after"].worst.accuracy > 0.95 > 0.1 > columns["control"].worst.accuracy
    assert told.to_json()["noise"] == columns["noise"].to_json()
    assert told.test.noise_json().items() <= told.to_json().items()
    assert told.to_json()["static_over_noise"]["ci95"][0] > 0, "noise mends nothing here"
    assert told.noise == columns["noise"]
    weights = {name: checkpoint.read(told.run / f"models/{name}.safetensors")[0] for name in MODELS}
    nets = {name: hairsplitter() for name in MODELS}
    for name, net in nets.items():
        net.load_state_dict(weights[name])
    again = shaken(nets["round-000"], nets["round-001"], Stream(0, ("harden",)).at("noise", 1))
    assert torch.equal(*(net.get_parameter("weight") for net in (again, nets["noise-001"])))
    log = checkpoint.read_meta(told.run / "models/control-001.safetensors")["training"]
    assert log["trainer"].startswith("plain(")
    assert "lr=0.0001" in log["trainer"]
    assert len(log["log"]) == 12, "as many epochs as the trainer has"
    assert "recipe" not in log


MODELS = ("round-000", "noise-001", "control-001", "round-001")


def test_a_second_look_makes_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = trained(control=False)
    assert told.test is not None
    assert list(told.test.columns()) == ["before", "after"]
    assert not list(told.run.glob("models/noise*"))
    both = trained()
    assert both.to_json()["test_looks"] == 2
    monkeypatch.setattr("assay.engines.trained_round.shaken", lambda *given: pytest.fail("it is there"))
    monkeypatch.setattr(Yardstick, "measure", lambda *given, **named: pytest.fail("it is measured"))
    assert numbers(trained()) == numbers(both)
    assert numbers(trained(control=False))["control"] is None


def test_the_trained_model_is_shown_also_where_the_original_is_no_worse() -> None:
    told = trained(PLAIN, changes={"train.lr": 1e-6})
    assert (told.best, told.compared) == (0, 1)
    assert told.test is not None
    assert list(told.test.columns()) == ["before", "noise", "control", "after"]
    said = str(harden_tables.test_tables(told, told.test)[0].caption)
    assert "by the requirement the original is no worse, and is the result" in said
    assert told.model.name == "round-000.safetensors"
    assert told.to_json()["compared"] == 1
    assert "the original is no worse" in report("t").read_text().lower()


def test_a_recipe_without_a_control_has_the_plain_trainer() -> None:
    chosen = hardening(PLAIN, {}, {})
    assert chosen.control is not None
    assert chosen.control.entry.name == "plain"
    assert chosen.control.params["epochs"] == 6
    assert chosen.control.params["lr"] == 1e-3


def test_controls_learn_from_what_was_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = planted()
    whole = parts.part("train")
    apart = replace(parts, train=whole[:80], held_out=replace(whole, cases=whole.cases[80:], name="apart"))
    seen: list[tuple[str, int, bool]] = []

    @register("trainer", name="looks")
    def looks(module: nn.Module, data: Splits, extra: Cases | None, *, rng: Stream, watch: Watch) -> nn.Module:
        """Says what it was given."""
        seen.append((data.part("train").name, len(data.part("train")), data.held_out is None))
        return spoken(module, data, extra, rng=rng, watch=watch, epochs=1)

    recipe = Recipe(name="looking", summary="Trains.", train="looks", control="looks")
    harden(recipe, hairsplitter(), apart, until="pgd>=0.99, clean_drop<=-1", eps=EPS, run="l", device="cpu")
    assert seen == [("planted/train[:80]", 80, False), ("apart", 40, True)]
    told = store.read(store.runs_root() / "l").config["data"]
    assert told["held_out"] == apart.held_out.fingerprint() if apart.held_out else False


DOES = "static: random noise of the same size on the same weights does as well: this is no sign of robustness"
APART = "static: after is not told apart from random noise of the same size on the same weights"


@pytest.mark.parametrize(
    ("noise", "after", "n", "does", "line", "over"),
    [
        (45, 40, 50, True, DOES, (-0.1, -0.242097, 0.043432)),
        (20, 20, 50, True, DOES, (0.0, -0.185608, 0.185608)),
        (20, 21, 50, False, f"{APART} (+2.0 points, 95 % interval -16.7 to 20.5)", (0.02, -0.167175, 0.205222)),
        (20, 29, 50, False, f"{APART} (+18.0 points, 95 % interval -1.5 to 35.7)", (0.18, -0.015057, 0.356902)),
        (20, 30, 50, False, "", (0.2, 0.004576, 0.375244)),
        (40, 58, 100, False, "", (0.18, 0.041455, 0.309132)),
    ],
)
def test_what_is_said_of_the_noise(
    noise: int, after: int, n: int, does: bool, line: str, over: tuple[float, float, float]
) -> None:
    test = hardened.Tested(measured(5, n), measured(after, n), None, 1, noise=measured(noise, n))
    assert test.noise_does == does
    assert noise_line(test) == line
    assert test.over_noise == pytest.approx(over, abs=1e-6)
    told = {"difference": over[0], "ci95": list(over[1:])}
    assert test.noise_json() == {"noise_does_as_well": does, "static_over_noise": told}
    note = numbers_tables(test, {"data": "d", "n": n, "eps": None, "seed": 0})["static"]["note"]
    assert (f"Static: {line[8:]}." in note) == bool(line)
    assert note.count("on the same weights") == bool(line)
    assert hardened.Tested.of_json(json.loads(json.dumps(test.to_json()))) == test


def measured(right: int, n: int) -> Measured:
    """So many right, static; white box all alike."""
    worst, static = Share(30, n), Share(right, n)
    return Measured(Share(n, n), {"pgd": worst}, worst, {"pgd": static}, static)


def test_without_noise_nothing_is_said_of_it() -> None:
    test = hardened.Tested(measured(5, 50), measured(20, 50), None, 1)
    assert (test.noise_does, test.over_noise, test.noise_json(), noise_line(test)) == (False, None, {}, "")


# Runs of before.


def test_old_runs_are_read_as_they_are() -> None:
    share = {"right": 3, "n": 4, "accuracy": 0.75, "ci95": [0.3, 0.95]}
    plain = {"clean": share, "attacks": {"pgd": share}, "worst": share, "warnings": [], "unreliable": False}
    plain["static"] = {"attacks": {"pgd": share}, "worst": share}
    look = hardened.Tested.of_json(
        {"control": plain, "before": plain, "resistant": plain, "after": plain, "test_looks": 2}
    )
    assert list(look.columns()) == ["before", "resistant", "control", "after"]
    assert (look.looks, look.noise, look.noise_does) == (2, None, False)
    assert "noise" not in look.to_json()
    alone = hardened.Tested.of_json({"control": None, "before": plain, "after": plain, "test_looks": 1})
    assert list(alone.columns()) == ["before", "after"]
    done = Round.of_json({"round": 1, "found": 5, "selected": 2, "validation": plain})
    assert (done.made, done.found, done.notes) == ("cases", 5, {})
    assert "notes" not in done.to_json()


# What survives.


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not() -> None:
    whole = trained()
    for phase in ("measure", "train", "control", "test"):
        with pytest.raises(KeyboardInterrupt):
            trained(run="killed", progress=Killed(phase))
    told = trained(run="killed")
    assert numbers(told) == numbers(whole)
    for name in MODELS:
        files = [(run.run / "models" / f"{name}.safetensors").read_bytes() for run in (told, whole)]
        assert files[0] == files[1], name
    assert not list((told.run / "training").iterdir()), "no state of a training outlives it"


def test_ctrl_c_in_the_training_and_the_same_call_goes_on() -> None:
    def press(told: Mapping[str, Any]) -> None:
        if told["phase"] == "train" and told["epoch"] > 2:
            signal.raise_signal(signal.SIGINT)

    assert trained(progress=press).interrupted
    heard: list[float] = []
    again = trained(progress=lambda told: heard.append(told["epoch"]) if told["phase"] == "train" else None)
    assert len(again.rounds) == 2
    assert min(heard) > 2, "the epochs that were done are not done again"
    assert again.rounds[1].notes["layer"] == "nowhere", "what the trainer says is not lost"


# What is said.


def test_notes_are_kept_and_shown() -> None:
    notes = {"used": 3, "inputs": 7, "inputs_from": "here", "used_wrong": 1, "layer": "nowhere"}
    told = trained()
    assert told.rounds[1].notes == notes
    assert told.to_json()["rounds"][1]["notes"] == notes
    assert checkpoint.read_meta(told.model)["training"]["notes"] == notes
    assert trained().rounds[1].notes == notes, "read again"
    (table,) = harden_tables.notes_tables(told)
    assert list(table.columns[0].cells) == ["mined", "cut after"]
    page = report("t").read_text()
    assert "What the trainer says of round 1" in page
    assert "<dt>cut after</dt><dd>nowhere</dd>" in page
    with pytest.raises(UsageError, match="notes are JSON values"):
        trained(run="odd", changes={"train.odd": True})


def test_nothing_speaks_of_cases() -> None:
    told = trained()
    table = harden_tables.rounds_table(told)
    assert list(table.columns[0].cells) == ["original", "trained"]
    assert {"found", "selected", "fixed"}.isdisjoint(str(column.header) for column in table.columns)
    assert "fixed" not in str(table.caption)
    broke, outcome = harden_tables.closing_lines(told)
    assert broke.startswith("broke ")
    assert outcome == "NOT MET after training (the recipe trains once)"
    assert harden_tables.comparison_line(told).count("after − ") == 2
    status = run_status(store.read(told.run))
    assert "found" not in status["rounds"][1]
    assert readable(status)["rounds"].splitlines()[1].endswith("(trained)")
    page = report("t").read_text()
    assert re.search(r"<td[^>]*>trained</td>", page)
    assert 'scope="col">found' not in page
    with pytest.raises(NothingToTest, match="its recipe finds none, it trains"):
        stored_cases(store.read(told.run))
    config = store.read(told.run).config
    assert set(config["recipe"]) == {"name", "train", "control", "suite"}
    assert "per_round" not in config["run"]


# The recipe.


def test_a_recipe_that_only_trains_is_no_fuzzer() -> None:
    with pytest.raises(UsageError, match="recipe mends finds no cases, it trains: assay harden"):
        resolve(MENDS, {}, {})
    assert resolve(MENDS, {"mutate": "noise", "mutate.eps": 0.1}, {}).mutate.entry.name == "noise"
    assert resolve(MENDS, {"mutate": "noise", "control": "none"}, {"eps": 0.1}).name == "mends"
    for change, said in {
        "mutate.eps": "finds no cases, it trains: mutate says nothing there",
        "select": "select says nothing there",
        "heap": "heap says nothing there",
        "trian": "no stage 'trian'; did you mean 'train'",
    }.items():
        with pytest.raises(UsageError, match=said):
            hardening(MENDS, {change: "all"}, {})


def test_the_control_is_a_stage_like_others() -> None:
    assert hardening("noise", {}, {"eps": 0.1}).control is None, "the trainer itself, without cases"
    assert "control" not in hardening("noise", {}, {"eps": 0.1}).config()
    own = hardening(MENDS, {"control.lr": 0.5, "train.epochs": 2}, {}).control
    assert own is not None
    assert (own.params["lr"], own.params["epochs"]) == (0.5, 2)
    named = hardening(MENDS, {"control": "plain(epochs=9)"}, {}).control
    assert named is not None
    assert named.params["epochs"] == 9
    assert "control" in hardening("noise", {"control": "plain"}, {"eps": 0.1}).config()
    with pytest.raises(UsageError, match="unknown trainer 'pgd'"):
        hardening(MENDS, {"control": "pgd"}, {})
    with pytest.raises(UsageError, match="no control but its own trainer"):
        hardening("noise", {"control.epochs": 3}, {"eps": 0.1})


def test_trainers_of_the_past_learn_from_no_cases() -> None:
    with pytest.raises(UsageError, match="not from the cases that recipe 'noise' finds"):
        trained(Recipe(name="noise", summary="Both.", mutate="noise", train="dare"))


# In time, and without being asked for anything.

TIMED = Recipe(name="timed", summary="Trains.", train=f"plain({TRAINING}, time=60)", control="plain(lr=1e-4)")


def test_a_recipe_that_only_trains_is_given_the_time() -> None:
    told = trained(TIMED, time="1s", deterministic=False)
    assert told.rounds[1].epochs > 6
    assert 0.2 < told.rounds[1].training < 1.5
    assert told.to_json()["rounds"][1]["training_seconds"] == round(told.rounds[1].training, 2)
    facts = checkpoint.read_meta(told.run / "models/control-001.safetensors")["training"]
    assert "time=1.0" in facts["trainer"]
    again = trained(TIMED, time="1s", deterministic=False)
    assert [done.to_json() for done in again.rounds] == [done.to_json() for done in told.rounds]
    assert again.rounds[1].training == pytest.approx(told.rounds[1].training, abs=0.01)


def test_another_trainer_has_the_time_of_the_recipe() -> None:
    told = trained(TIMED, time="0.5s", changes={"train": "fast(batch=50)"}, deterministic=False, control=False)
    facts = checkpoint.read_meta(told.run / "models/round-001.safetensors")["training"]
    assert facts["trainer"].startswith("fast(")
    assert "time=0.5" in facts["trainer"]
    assert "time" not in hardening("assay", {"train": "fast(epochs=3)"}, {"eps": 0.1}).train.text
    control = hardening("assay", {"train": "fast", "control.epochs": 3}, {"eps": 0.1}).control
    assert control is not None
    assert (control.params["epochs"], control.params["time"]) == (3, 0.0)


def test_whoever_says_epochs_does_not_mean_the_time() -> None:
    told = trained(TIMED, changes={"train.epochs": 2, "control.epochs": 3})
    assert told.rounds[1].epochs == 2
    assert len(checkpoint.read_meta(told.run / "models/control-001.safetensors")["training"]["log"]) == 3
    untimed = trained(PLAIN, time="1s", run="u")  # its epochs are what it has
    assert untimed.rounds[1].epochs == 6
    assert "time" not in checkpoint.read_meta(untimed.run / "models/round-001.safetensors")["training"]["trainer"]


def test_what_fits_in_a_time_does_not_repeat(caplog: pytest.LogCaptureFixture) -> None:
    trained(TIMED, time="0.2s", control=False)
    assert "how many epochs fit in a time depends on the machine" in caplog.text


def test_where_nothing_is_asked_the_best_is_the_one_that_holds_most() -> None:
    told = trained(until="", control=False)
    assert told.met
    assert told.best == 1
    assert told.verdicts == ()
    assert told.to_json()["until"] == ""
    assert told.to_json()["met"] is None
    assert harden_tables.closing_lines(told)[-1] == "done after training (the recipe trains once)"
    worse = Recipe(name="worse", summary="Trains.", train="plain(epochs=1, lr=1e-9)")
    assert trained(worse, until="", control=False, run="w").best == 0


def test_the_test_part_may_be_left_alone() -> None:
    told = trained(look=False)
    assert told.test is None
    assert not list(store.read(told.run).commits("final"))
    assert trained().test is not None


def test_passes_are_counted_over_all_sessions() -> None:
    told = trained(look=False)
    assert told.passes > 0
    assert trained(look=False).passes == told.passes
    assert trained().passes > told.passes


# What each part adds.

PARTED = Recipe(
    name="parted",
    summary="Trains.",
    train="adversarial(epochs=6, lr=0.3, batch=32, schedule=constant, ema=0.5)",
    parts=(("attacks", "share=0"), ("average", "ema=0"), ("search", "plain"), ("nothing", "awp=0")),
)


def test_a_training_is_made_again_without_each_of_its_parts() -> None:
    told = trained(PARTED, until="", control=False, ablate=True)
    assert [done.part for done in told.ablations] == ["attacks", "average", "search"]  # it has no awp to leave out
    assert "ema=0.0" in told.ablations[1].trainer
    assert told.ablations[2].trainer.startswith("plain(")
    assert "ema=0.5" in told.ablations[2].trainer
    whole = told.rounds[1].measured
    difference, low, high = told.ablations[0].missed(whole)
    assert difference == whole.worst.accuracy - told.ablations[0].measured.worst.accuracy
    assert low < difference <= high
    assert difference > 0.5  # what the attacks taught is the planted weakness
    again = trained(PARTED, until="", control=False, ablate=True)
    assert [done.to_json() for done in again.ablations] == [done.to_json() for done in told.ablations]
    shown = harden_tables.ablation_table(told)
    assert list(shown.columns[0].cells) == ["nothing", "attacks", "average", "search"]
    page = report(told.run).read_text(encoding="utf-8")
    assert "Parts of the training" in page


def test_a_recipe_that_names_no_parts_is_not_ablated() -> None:
    with pytest.raises(UsageError, match="names no parts"):
        trained(ablate=True)


def test_one_that_is_stopped_among_its_parts_has_the_numbers_of_the_test_part() -> None:
    told = trained(PARTED, until="", control=False, ablate=True, progress=Stopping())
    assert told.interrupted
    assert told.ablations == ()
    assert told.to_json()["test_looks"] == 1
    assert "more rounds" not in report("t").read_text(encoding="utf-8")


class Stopping:
    """Ctrl-C once the first part is left out."""

    def __call__(self, numbers: Mapping[str, Any]) -> None:
        if numbers["phase"] == "ablate":
            signal.raise_signal(signal.SIGINT)
