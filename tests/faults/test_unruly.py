"""Fault 6: models that change their mind, look at their neighbours, raise, hang or are slow."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core import store
from assay.core.shards import decode
from commands import Child, Nursery, Result, work_of
from unruly import DATA, MODEL, ODD, UNIT, unruly

pytestmark = pytest.mark.slow

SKIPPED_UNIT = ODD[0] // UNIT
FUZZ = ("fuzz", MODEL, "--data", DATA, "--recipe", "noise", "--config", "small.toml", "--set", "seeds=all", "--quiet")
SHORT = ("--set", "schedule.steps=20")


@pytest.fixture(autouse=True)
def files(_own_folder: None, tmp_path: Path) -> None:
    unruly(tmp_path)


def fuzz(home: Nursery, run: str, does: str = "", *more: str, at: int = 0) -> Result:
    env = {"UNRULY": does, "UNRULY_AT": str(at)}
    return home.run(*FUZZ, *(() if "--recipe" in more else SHORT), "--run", run, "--json", *more, env=env)


def units(run: str) -> dict[int, tuple[dict[str, int], list[bytes]]]:
    """What each unit of a run committed: its counts, and the contents of its files."""
    kept = store.read(Path("runs") / run)
    told = {}
    for line in kept.commits("fuzz"):
        contents = [kept.file(name) for name in sorted(line.files)]
        told[int(line.meta["unit"])] = (line.meta["counts"], contents)
    return told


def columns(run: str, place: str = "cases") -> dict[str, torch.Tensor]:
    """The columns of all shards of a run in ``cases`` or ``flaky``."""
    kept = store.read(Path("runs") / run)
    parts = [decode(kept.file(name)) for line in kept.commits("fuzz") for name in line.files if name.startswith(place)]
    return {name: torch.cat([part[name] for part in parts]) for name in ("x", "y", "origin", "failed", "asked", "pred")}


def opens(home: Nursery, run: str) -> dict[str, Any]:
    """The run can be looked at and reported."""
    home.run("report", run).ended(0)
    told: dict[str, Any] = home.run("status", run, "--json").ended(0).json
    return told


# Unstable answers -----------------------------------------------------------------------------------------------------


def test_a_steady_model_is_told_to_be_steady(home: Nursery) -> None:
    told = fuzz(home, "steady").ended(0).json
    assert told["stability"] == {
        "share": 1.0,
        "asked": 64,
        "same_class": 64,
        "same_scores": 64,
        "warnings": [],
        "confirm": "1/1",
    }
    assert (told["flaky"], told["skipped"], told["skipped_because"]) == (0, 0, None)
    assert told["failures"] > 20, "there is something to find"
    shown = home.run("status", "steady").ended(0, "100.0 % of 64 seeds keep their class").out
    assert "skipped" not in shown


def test_a_randomised_model_is_flagged_and_goes_on_as_it_began(home: Nursery) -> None:
    first = fuzz(home, "dice", "noise", "--cases", "1000").ended(0, "warning: randomised: the net gives the same input")
    told = first.json["stability"]
    assert told["warnings"] == ["randomised"]
    assert told["confirm"] == "4/5"
    assert told["share"] < 1
    assert told["same_scores"] == 0
    again = fuzz(home, "dice", "", "--cases", "2000").ended(0, "randomised").json  # it behaves now; the run goes on
    assert again["stability"] == told
    assert len(list(store.read(Path("runs/dice")).commits("stability"))) == 1
    assert opens(home, "dice")["stability"] == told
    home.run("status", "dice").ended(0, "(randomised); failures fail 4 of 5 times")
    assert bool((columns("dice")["failed"] >= 4).all())
    assert bool((columns("dice", "flaky")["failed"] < 4).all())


def test_what_a_coin_decides_is_stored_as_often_as_chance_says(home: Nursery) -> None:
    """Of the odd inputs each answer is flipped with probability 1/2; all others are as steady as can be."""
    odd = tuple(range(64, 96))
    unruly(Path.cwd(), odd)
    many = ("--set", "schedule.failures=20")
    steady = fuzz(home, "steady", "", "--confirm", "4/5", *many).ended(0)
    mixed = fuzz(home, "mixed", "coins", *many).ended(0, "randomised")
    assert mixed.json["stability"]["warnings"] == ["randomised"]
    kept, flaky, all_kept = columns("mixed"), columns("mixed", "flaky"), columns("steady")
    chance, chance_flaky = ((part["origin"] >= 64) & (part["origin"] < 96) for part in (kept, flaky))
    expected = all_kept["x"][(all_kept["origin"] < 64) | (all_kept["origin"] >= 96)]
    assert torch.equal(kept["x"][~chance], expected), "everything that the steady part finds is stored"
    assert bool((kept["failed"][~chance] == 5).all())
    assert bool(chance_flaky.all()), "nothing of it is called flaky"
    stored, asked = int(chance.sum()), int(chance.sum()) + len(flaky["x"])
    share = 6 / 32  # of 5 tosses, 4 or 5
    assert asked > 200
    assert abs(stored - share * asked) < 4 * (asked * share * (1 - share)) ** 0.5
    assert steady.json["flaky"] == 0


def test_answers_that_depend_on_neighbours_are_flagged_and_asked_alone(home: Nursery) -> None:
    told = fuzz(home, "company", "company").ended(0, "batch_dependent", "other inputs of the batch").json
    assert told["stability"]["warnings"] == ["batch_dependent"]
    kept = columns("company")
    assert set(kept["failed"].tolist()) == {5}
    # Alone, an input is its own mean: the net is the plain rule.
    left = kept["x"][:, 0, :, :3].flatten(1).sum(1) - kept["x"][:, 0, :, 3:].flatten(1).sum(1)
    assert torch.equal((left < 0).long() != kept["y"], torch.ones(len(left), dtype=torch.bool))
    assert told["flaky"] > 0, "in company more fail"
    told = home.run(
        "eval", MODEL, "--data", DATA, "--checks-only", "--eps", "0.05", "--json", env={"UNRULY": "company"}
    ).ended(1)
    assert "batch_dependent" in {warning["name"] for warning in told.json["warnings"]}


def test_confirm_is_what_makes_a_run_only_where_it_is_given(home: Nursery) -> None:
    fuzz(home, "asked", "", "--confirm", "2/3").ended(0)
    kept = columns("asked")
    assert set(kept["asked"].tolist()) == {3}
    fuzz(home, "asked", "", "--confirm", "3/3").ended(4, "run.confirm: 2/3 in the run, 3/3 asked")
    fuzz(home, "asked").ended(4, "run.confirm: 2/3 in the run, (unset) asked")
    fuzz(home, "asked", "", "--confirm", "2/3").ended(0)
    for wrong in ("0/3", "4/3", "3", "a/b", "1/1001"):
        fuzz(home, "wrong", "", "--confirm", wrong).ended(4, "--confirm is K/N", "such as 4/5", wrong)
    box = ("fuzz", "call:unruly.py:answers", "--data", DATA, "--recipe", "noise", "--confirm", "2/3", "--run", "wrong")
    home.run(*box).ended(4, "--confirm 2/3", "repeats=5")
    assert not Path("runs/wrong/journal.jsonl").exists()
    told = home.run(*box[:6], "--run", "box", "--json").ended(0).json
    assert told["stability"]["asked"] == 0
    assert "repeats" in told["stability"]["reason"]
    home.run("status", "box").ended(0, "n/a (no input is asked twice")


# Errors ---------------------------------------------------------------------------------------------------------------


RECIPES = {
    "noise": (),
    "robot": (),
    "deephunter": ("--set", "coverage=nc"),  # a pool of parents
    "adapt": ("--set", "strategy.k=2"),  # a strategy that learns
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_net_that_raises_once_leaves_what_an_undisturbed_run_leaves(recipe: str, home: Nursery) -> None:
    more = ("--deterministic", "--recipe", recipe, "--cases", "400", *RECIPES[recipe])
    fuzz(home, "calm", "", *more).ended(0)
    for at in (36, 60):
        told = fuzz(home, f"once{at}", "raise", *more, at=at).ended(0, "raised ValueError: a bad input", "once more")
        assert "\x1b" not in told.err
        assert told.json["skipped"] == 0
        assert Path("misbehaving").exists(), "the net raised"
        Path("misbehaving").unlink()
        assert work_of(Path(f"runs/once{at}")) == work_of(Path("runs/calm"))


@pytest.mark.parametrize("more", [(), ("--deterministic",)], ids=["many open units", "one open unit"])
def test_a_net_that_raises_on_certain_seeds_loses_their_unit_only(more: tuple[str, ...], home: Nursery) -> None:
    fuzz(home, "calm", "", *more).ended(0)
    told = fuzz(home, "odd", "raise on odd", *more).ended(0, f"{UNIT} seeds are skipped")
    assert told.json["skipped"] == UNIT
    assert told.json["skipped_because"] == "the model raised ValueError: a bad input"
    assert told.json["seeds"] == 128 - UNIT
    calm, odd = units("calm"), units("odd")
    assert odd.pop(SKIPPED_UNIT) == ({"skipped": UNIT}, [])
    del calm[SKIPPED_UNIT]
    assert {n: contents for n, (_, contents) in odd.items()} == {n: contents for n, (_, contents) in calm.items()}
    status = opens(home, "odd")
    assert (status["skipped"], status["skipped_because"]) == (UNIT, told.json["skipped_because"])
    home.run("status", "odd").ended(0, "16 seeds, each tried twice: the model raised ValueError: a bad input")
    before = work_of(Path("runs/odd"))
    assert fuzz(home, "odd", "raise on odd", *more).ended(0).json["skipped"] == UNIT
    assert work_of(Path("runs/odd")) == before, "it is not tried for ever"


# At load the net is asked about the first inputs, so it begins to fail later.
LATER = """
import os
from assay.engines.campaign import Campaign
before = Campaign.go
def go(self, *given):
    os.environ["UNRULY"] = "raise on odd"
    return before(self, *given)
Campaign.go = go
"""


def test_a_net_that_fails_on_all_ends_the_run_which_goes_on_when_it_is_mended(home: Nursery) -> None:
    unruly(Path.cwd(), tuple(range(64, 128)))
    more = ("--deterministic", "--data", f"{DATA}[64:]")
    fuzz(home, "calm", "", *more).ended(0)
    failed = home.run(*FUZZ, *SHORT, *more, "--run", "broken", before=LATER)
    failed.ended(3, "fails on 3 of 3 units", "ValueError: a bad input", "the same command goes on")
    assert len(failed.said.splitlines()) == 1
    assert opens(home, "broken").get("cases") is None
    told = fuzz(home, "broken", "", *more).ended(0).json
    assert told["skipped"] == 0, "what was never shown to work is tried again"
    assert work_of(Path("runs/broken")) == work_of(Path("runs/calm"))


def test_a_net_that_raises_while_seeds_are_chosen_says_so(home: Nursery) -> None:
    env = {"UNRULY": "raise on odd"}
    ended = home.run(*FUZZ, *SHORT, "--set", "seeds=correct", "--run", "seeds", env=env)
    ended.ended(3, "ValueError: a bad input, twice, while seeds were chosen", "--set seeds=all")
    opens(home, "seeds")
    home.run(*FUZZ, *SHORT, "--set", "seeds=correct", "--run", "seeds").ended(0)


def test_a_function_that_raises_loses_its_unit_only(home: Nursery) -> None:
    box = ("fuzz", "call:unruly.py:answers", *FUZZ[2:], *SHORT, "--json")
    told = home.run(*box, "--run", "box", env={"UNRULY": "raise on odd"}).ended(0, "seeds are skipped").json
    assert told["skipped"] == UNIT
    assert "failed: ValueError: a bad input" in told["skipped_because"]


EVAL = ("eval", MODEL, "--data", DATA, "--suite", "pgd(steps=3)", "--eps", "0.05", "--batch", "16", "--json", "--quiet")


def test_an_evaluation_is_never_of_fewer_inputs_than_it_says(home: Nursery) -> None:
    calm = home.run(*EVAL, "--save", "calm").ended(0).json
    once = home.run(*EVAL, "--save", "once", env={"UNRULY": "raise", "UNRULY_AT": "40"}).ended(0, "once more").json
    assert [calm[key] for key in ("clean", "worst")] == [once[key] for key in ("clean", "worst")]
    assert units_of_eval("once") == units_of_eval("calm")
    ended = home.run(*EVAL, "--save", "odd", env={"UNRULY": "raise on odd"})
    ended.ended(3, "ValueError: a bad input, twice, in the block of cases 80 to 95", "the same command goes on")
    opens(home, "odd")
    mended = home.run(*EVAL, "--save", "odd").ended(0).json
    assert mended["clean"] == calm["clean"]
    assert units_of_eval("odd") == units_of_eval("calm")


def units_of_eval(run: str) -> dict[str, bytes]:
    return {name: content for name, content in work_of(Path("runs") / run).items() if name.startswith("cases/")}


def test_a_prioritisation_is_never_of_fewer_tests_than_it_says(home: Nursery) -> None:
    order = ("prioritise", MODEL, "--pool", DATA, "--by", "gini", "--json", "--quiet")
    calm = home.run(*order).ended(0).json
    once = home.run(*order, env={"UNRULY": "raise", "UNRULY_AT": "2"}).ended(0, "once more").json
    assert once["methods"][0]["rows"] == calm["methods"][0]["rows"]
    home.run(*order, env={"UNRULY": "raise on odd"}).ended(3, "ValueError: a bad input, twice, while tests were put")


@pytest.mark.parametrize("does", ["in place", "one buffer"])
def test_a_net_that_writes_into_what_it_is_given_or_gave_finds_the_same(does: str, home: Nursery) -> None:
    fuzz(home, "calm").ended(0)
    told = fuzz(home, "rude", does).ended(0).json
    assert told["stability"]["warnings"] == []
    assert told["flaky"] == 0
    assert work_of(Path("runs/rude")) == work_of(Path("runs/calm"))
    calm = home.run(*EVAL, "--save", "calm-eval").ended(0).json
    rude = home.run(*EVAL, "--save", "rude-eval", env={"UNRULY": does}).ended(0).json
    assert [calm[key] for key in ("clean", "worst")] == [rude[key] for key in ("clean", "worst")]
    assert units_of_eval("rude-eval") == units_of_eval("calm-eval")


WRONG = {
    "exit": "the model called exit(0)",
    "rows": "the model answered",
    "columns": "the model answered",
    "none": "with NoneType, not",
    "numbers": "torch.int64",
    "mute": "the model raised Mute",
}


@pytest.mark.parametrize("does", WRONG)
def test_whatever_a_net_does_instead_of_answering_is_its_failure(does: str, home: Nursery) -> None:
    told = fuzz(home, "odd", f"{does} on odd").ended(0, f"{UNIT} seeds are skipped").json
    assert told["skipped"] == UNIT
    assert told["seeds"] == 128 - UNIT
    assert WRONG[does] in told["skipped_because"]
    assert opens(home, "odd")["skipped"] == UNIT
    ended = home.run(*EVAL, "--save", "odd-eval", env={"UNRULY": f"{does} on odd"})
    ended.ended(3, WRONG[does], "twice, in the block of cases 80 to 95")


@pytest.mark.parametrize(
    ("does", "said"), [("mute", "Mute"), ("exit", "SystemExit: 0"), ("raise", "ValueError: a bad")]
)
def test_a_net_that_cannot_say_why_it_fails_at_once_is_refused(does: str, said: str, home: Nursery) -> None:
    unruly(Path.cwd(), (3,))
    fuzz(home, "odd", f"{does} on odd").ended(4, f"the net does not take inputs of shape (1, 6, 6): {said}")
    assert not Path("runs/odd").exists()


def test_a_net_that_fails_on_most_goes_on_when_it_is_mended_but_not_with_what_was_skipped(home: Nursery) -> None:
    unruly(Path.cwd(), (36, 52, 68))
    more = ("--deterministic", "--data", f"{DATA}[:80]")
    failed = home.run(*FUZZ, *SHORT, *more, "--run", "broken", before=LATER)
    failed.ended(3, "fails on 3 of 5 units", f"{2 * UNIT} seeds that were skipped stay so", "--fresh")
    told = fuzz(home, "broken", "", *more).ended(0).json
    assert told["skipped"] == 2 * UNIT, "the last one was not committed: mended, the net is asked again"
    assert told["seeds"] == 80 - 2 * UNIT


# Hanging, being slow, being stopped -----------------------------------------------------------------------------------


def test_a_net_that_hangs_on_certain_seeds_loses_their_unit_only(home: Nursery) -> None:
    fuzz(home, "calm").ended(0)
    told = fuzz(home, "odd", "hang on odd", "--call-timeout", "0.4").ended(0, f"{UNIT} seeds are skipped")
    assert told.json["skipped"] == UNIT
    assert told.json["skipped_because"] == "the model did not answer within 0.4 s (--call-timeout)"
    calm, odd = units("calm"), units("odd")
    del calm[SKIPPED_UNIT], odd[SKIPPED_UNIT]
    assert {n: contents for n, (_, contents) in odd.items()} == {n: contents for n, (_, contents) in calm.items()}
    for wrong in ("0", "-1", "soon"):
        fuzz(home, "wrong", "", "--call-timeout", wrong).ended(4, "--call-timeout", wrong)
    assert not Path("runs/wrong").exists()


def test_a_hang_that_no_signal_ends_ends_the_process_and_loses_nothing(home: Nursery) -> None:
    more = ("--deterministic", "--call-timeout", "0.4")
    fuzz(home, "calm", "", *more).ended(0)
    stuck = fuzz(home, "stuck", "stuck", *more, at=90)
    stuck.ended(3, "did not answer within 0.4 s", "cannot be interrupted", "the same command goes on")
    assert opens(home, "stuck")["seeds"] > 0
    fuzz(home, "stuck", "", *more).ended(0)
    assert work_of(Path("runs/stuck")) == work_of(Path("runs/calm"))


def test_evaluation_and_hardening_know_the_limit_too(home: Nursery) -> None:
    env = {"UNRULY": "hang on odd"}
    ended = home.run(*EVAL, "--save", "odd", "--call-timeout", "0.4", env=env)
    ended.ended(3, "did not answer within 0.4 s (--call-timeout), twice, in the block of cases 80 to 95")
    home.run(*EVAL, "--save", "odd").ended(0)
    hard = ("harden", MODEL, "--data", DATA, "--recipe", "noise", "--until", "pgd>=0.5", "--eps", "0.05")
    home.run(*hard, "--call-timeout", "none").ended(4, "--call-timeout", "none")


def asking(verb: str) -> tuple[str, ...]:
    """A command that asks the net about all data, or about all failures of the run ``calm``."""
    return {
        "shrink": ("shrink", "calm"),
        "prioritise": ("prioritise", MODEL, "--pool", DATA),
        "select": ("select", "calm", "--by", "top(score=gini)", "-k", "5"),
        "coverage": ("coverage", MODEL, "--data", DATA, "--by", "nc"),
        "transfer": ("transfer", MODEL, f"./{MODEL}", "--data", DATA, "--eps", "0.05", "--suite", "pgd(steps=3)"),
        "replay": ("replay", "calm"),
    }[verb]


@pytest.mark.parametrize("verb", ["shrink", "prioritise", "select", "coverage", "transfer", "replay"])
def test_every_command_that_asks_knows_the_limit(verb: str, home: Nursery) -> None:
    fuzz(home, "calm").ended(0)
    more = ("--quiet", "--call-timeout")
    told = home.run(*asking(verb), *more, "0.4", env={"UNRULY": "hang on odd"})
    told.ended(3, "did not answer within 0.4 s (--call-timeout)")
    home.run(*asking(verb), *more, "1000001").ended(4, "--call-timeout '1000001': at most 1000000 seconds")
    home.run(*asking(verb), *more, "20s").ended(0)


def hanging(home: Nursery, *more: str) -> Child:
    """A run whose model hangs now."""
    child = home.start(*FUZZ, *SHORT, "--run", "hung", *more, env={"UNRULY": "hang", "UNRULY_AT": "90"})
    while not Path("misbehaving").exists():
        assert child.poll() is None, child.wait().err
    return child


def test_ctrl_c_ends_a_model_that_hangs(home: Nursery) -> None:
    fuzz(home, "calm", "", "--deterministic").ended(0)
    child = hanging(home, "--deterministic", "--call-timeout", "2s")
    child.kill(signal.SIGINT)  # what is under way may still end: it does not, and its time runs out
    child.wait().ended(2, "the same command continues")
    Path("misbehaving").unlink()
    child = hanging(home, "--deterministic")
    child.kill(signal.SIGINT)
    while not interrupted(child):  # the first press was taken
        assert child.poll() is None
    child.kill(signal.SIGINT)
    child.wait().ended(2, "what was committed is kept")
    fuzz(home, "hung", "", "--deterministic").ended(0)
    assert work_of(Path("runs/hung")) == work_of(Path("runs/calm"))


def interrupted(child: Child) -> bool:
    """Whether no signal waits for that process any more."""
    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
    pending = [line.split()[1] for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return all(int(mask, 16) == 0 for mask in pending)


def test_a_slow_model_ends_within_a_step_of_its_time(home: Nursery) -> None:
    told = fuzz(home, "slow", "slow", "--time", "2s").ended(0).json
    calls = [tuple(map(float, line.split())) for line in Path("calls.txt").read_text().splitlines()]
    begun = next(start for start, rows in calls if rows > 64)  # no question before the first step has as many
    late = [start for start, _ in calls if start > begun + 2]
    assert len(late) <= 1, "no step begins after its time; what was found is asked again, all at once"
    assert told["complete"]
    assert told["cases"] > 0
