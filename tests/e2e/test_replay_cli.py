"""``assay replay`` and ``assay eval --regress`` as a user types them, in processes of their own."""

import shutil
import signal
import time
from pathlib import Path

import pytest

from commands import SECONDS, Nursery, assay, tree

RUNS = Path("runs")


@pytest.fixture(scope="module")
def made(home: Nursery, digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A fuzzing run, and the ids of its failures."""
    runs = {"ASSAY_RUNS": str(tmp_path_factory.mktemp("runs"))}
    base = ("fuzz", digits_model, "--data", "digits/train[:60]", "--recipe", "noise", "--eps", "0.4", "--run", "first")
    home.run(*base, "--quiet", env=runs).ended(0)
    told = home.run("replay", "first", "--repeats", "1", "--json", env=runs).ended(0).json
    return Path(told["run"]), [failure["id"] for failure in told["failures"]]


@pytest.fixture
def fuzzed(made: tuple[Path, list[str]]) -> list[str]:
    """The ids of the failures of a run called first, which is this test's own."""
    shutil.copytree(made[0], RUNS / "first")
    return made[1]


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A net that was trained with noise, so that some of the failures are none to it."""
    from assay.engines.train import train

    path = tmp_path_factory.mktemp("weights") / "other.safetensors"
    train("lenet5", "digits", path, params={"epochs": 4, "batch": 32, "lr": 2e-3}, seed=7)
    return f"lenet5@{path}"


def test_all_still_fail_and_the_run_is_as_it_was(home: Nursery, fuzzed: list[str], digits_model: str) -> None:
    before = tree(RUNS / "first")
    told = home.run("replay", "first", "--json").ended(0).json
    assert set(told) >= {"run", "model", "repeats", "of", "still_failing", "fixed", "flaky", "failures"}
    assert (told["of"], told["still_failing"], told["fixed"], told["flaky"]) == (len(fuzzed), len(fuzzed), 0, 0)
    assert (told["model"], told["repeats"]) == (digits_model, 3)
    keys = {"id", "verdict", "label", "pred", "was", "failed", "asked", "confidence"}
    assert all(set(failure) == keys and failure["pred"] == failure["was"] for failure in told["failures"])
    shown = home.run("replay", "first").ended(0)
    assert f"{len(fuzzed)} still failing, 0 fixed, 0 flaky" in shown.out
    assert sum(name in shown.out for name in fuzzed) == 20, "the first twenty"
    assert f"{len(fuzzed) - 20} more are" in shown.out
    assert f"model asked: {digits_model}" in shown.out.replace("\n", "")
    assert tree(RUNS / "first") == before


@pytest.mark.slow
def test_another_model_has_fixed_some(home: Nursery, fuzzed: list[str], other_model: str) -> None:
    told = home.run("replay", "first", "--model", other_model, "--json").ended(0)
    assert not told.err, "another model is what was meant"
    assert 0 < told.json["fixed"] < len(fuzzed)
    first = {failure["id"]: failure for failure in told.json["failures"]}
    moved = [f for f in first.values() if f["verdict"] == "still failing" and f["pred"] != f["was"]]
    for failure in moved[:1]:
        shown = home.run("replay", "first", failure["id"], "--model", other_model).ended(0)
        assert f"class {failure['label']} → {failure['pred']}, was {failure['was']}" in shown.out
    home.run("replay", "first", "--model", other_model, "--require", "fixed").ended(1)
    mended = [name for name, failure in first.items() if failure["verdict"] == "fixed"]
    home.run("replay", "first", *mended, "--model", other_model, "--require", "fixed").ended(0)
    home.run("replay", "first", "--require", "failing", "--quiet").ended(0)
    home.run("replay", "first", "--require", "fixed", "--json").ended(1)


def test_some_by_the_beginning_of_their_id(home: Nursery, fuzzed: list[str]) -> None:
    told = home.run("replay", "first", fuzzed[5][:8], fuzzed[2], "--repeats", "2", "--json").ended(0).json
    assert [(failure["id"], failure["asked"]) for failure in told["failures"]] == [(fuzzed[5], 2), (fuzzed[2], 2)]
    assert home.run("replay", "first", "-k", "4", "--json").ended(0).json["of"] == 4


def test_the_ids_are_those_of_export_and_report(home: Nursery, fuzzed: list[str]) -> None:
    import numpy as np

    home.run("export", "first", "--to", "npz", "--out", "first.npz").ended(0)
    with np.load("first.npz") as arrays:
        assert arrays["id"].tolist() == fuzzed
    home.run("export", "first", "--to", "images", "--out", "pictures").ended(0)
    assert {path.stem for path in Path("pictures").rglob("*.png")} == set(fuzzed)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["first", "00ff00ff00ff00ff"], 4, "run first has no failure 00ff00ff00ff00ff"),
        (["first", "abc"], 4, "4 to 16 of the digits 0-9a-f, got 'abc'"),
        (["nowhere"], 4, "no run 'nowhere'"),
        (["first", "--shrunk", "3"], 4, "no shrinking 3"),
        (["first", "--require", "perfect"], 4, "'fixed', 'failing'"),
        (["first", "--repeats", "0"], 4, "--repeats"),
        (["first", "--model", "lenet5@none.safetensors"], 4, "none.safetensors"),
    ],
)
def test_mistakes_are_one_message(home: Nursery, fuzzed: list[str], words: list[str], code: int, told: str) -> None:
    assert told in home.run("replay", *words).ended(code).said


def test_nothing_to_replay_is_five(home: Nursery, digits_model: str) -> None:
    base = ("fuzz", digits_model, "--data", "digits/train[:5]", "--recipe", "noise", "--eps", "0.0001", "--run", "none")
    home.run(*base).ended(0)
    home.run("replay", "none").ended(5, "holds no failures")


def test_of_a_damaged_run_what_is_good(home: Nursery, fuzzed: list[str]) -> None:
    shard = next((RUNS / "first" / "cases").iterdir())
    raw = shard.read_bytes()
    shard.write_bytes(raw[:-3] + bytes(3))
    before = tree(RUNS / "first")
    home.run("replay", "first").ended(5, f"{shard.parent.name}/{shard.name}: missing or changed")
    with (RUNS / "first" / "journal.jsonl").open("ab") as log:
        log.write(b'{"torn')
    shard.write_bytes(raw)
    home.run("replay", "first").ended(0, "are not valid")
    assert set(tree(RUNS / "first")) == set(before), "nothing is mended by who only reads"


@pytest.mark.slow
def test_a_run_that_is_at_work_is_replayed_meanwhile(home: Nursery, other_home: Nursery, digits_model: str) -> None:
    base = ("fuzz", digits_model, "--data", "digits/train[:40]", "--recipe", "noise", "--eps", "0.4")
    working = other_home.start(*base, "--time", "100s", "--run", "live", "--quiet")
    until = time.monotonic() + SECONDS
    while not any((RUNS / "live" / "cases").glob("*.safetensors")):
        assert working.poll() is None, working.wait().err
        assert time.monotonic() < until
        time.sleep(0.05)
    told = home.run("replay", "live", "-k", "5", "--json").ended(0).json
    assert told["still_failing"] == told["of"] > 0
    assert working.poll() is None, "and it is at work still"
    working.kill(signal.SIGTERM)
    working.wait()


def test_ctrl_c_ends_it_at_once(home: Nursery, fuzzed: list[str]) -> None:
    slow = "import signal, os\nfrom assay.engines import replay\nask = replay.Judge._ask\n"
    slow += "def asked(self, one):\n os.kill(os.getpid(), signal.SIGINT)\n return ask(self, one)\n"
    slow += "replay.Judge._ask = asked"
    before = tree(RUNS / "first")
    home.run("replay", "first", before=slow).ended(2, "failures; a replay keeps nothing")
    assert tree(RUNS / "first") == before


@pytest.mark.slow
def test_old_failures_come_first_and_no_number_counts_them(home: Nursery, fuzzed: list[str], other_model: str) -> None:
    base = ("eval", other_model, "--data", "digits/test[:40]", "--suite", "fgsm", "--eps", "0.1", "--save", "e")
    result = home.run(*base, "--regress", "first", "--json").ended(0).json
    old = result["regress"]
    replayed = home.run("replay", "first", "--model", other_model, "--json").json
    assert {name: old[name] for name in ("of", "fixed", "still_failing", "flaky")} == {
        name: replayed[name] for name in ("of", "fixed", "still_failing", "flaky")
    }
    assert old["runs"][0]["failures"] == replayed["failures"]
    assert result["clean"]["n"] == 40
    shown = home.run(*base, "--regress", "first").ended(0).out
    assert shown.index("old failures, asked first") < shown.index("worst case")
    assert home.run(*base, "--regress", "first", "--json").json["regress"] == old
    home.run(*base).ended(4, "regress.runs")
    home.run(*base[:-1], "f", "--regress", "nowhere").ended(4, "no run 'nowhere'")
    assert not (RUNS / "f").exists()
    for verb in ("status", "report"):
        home.run(verb, "e").ended(0)
    examples = home.run("replay", "e", "--json").ended(0).json
    assert examples["still_failing"] == examples["of"] == result["attacks"]["fgsm"]["broken"]


def test_the_help_knows_it_without_torch() -> None:
    told = assay("replay", "--help").ended(0, "--require", "--repeats", "--flaky", "--shrunk")
    assert "ID" in told.out


@pytest.mark.slow
def test_a_hardening_asks_its_result(home: Nursery, digits_model: str) -> None:
    base = ("harden", digits_model, "--data", "digits", "--recipe", "noise", "--until", "fgsm>=1", "--eps", "0.3")
    small = ("--rounds", "1", "--fuzz-cases", "2000", "--val-cases", "40", "--test-cases", "40", "--no-control")
    hard = home.run(*base, *small, "--suite", "fgsm", "--set", "train.epochs=2", "--run", "h", "--json").json
    before = {name: part for name, part in tree(RUNS / "h").items() if not name.endswith("LOCK")}
    home.run("replay", "h").ended(0, "the result", f"round-{hard['best']:03d}.safetensors")
    result = home.run("replay", "h", "--model", f"lenet5@{RUNS}/h/models/round-001.safetensors", "--json").json
    assert result["fixed"] > 0, "it was trained with them"
    own = home.run("replay", str(RUNS / "h" / "round-001"), "--json").ended(0).json
    assert own["still_failing"] == own["of"] == result["of"]
    assert {name: part for name, part in tree(RUNS / "h").items() if not name.endswith("LOCK")} == before
