"""Campaign files: every verb takes its options from one, flags come over it, and a run's own file repeats it."""

import json
import tomllib
from pathlib import Path

import pytest

from assay.cli import run

CAMPAIGN = """
[target]
model = "{model}"

[data]
spec = "digits/test[:40]"

[ball]
eps = 0.1

[run]
seed = 3

[gate]
require = "pgd>=0.2"

[eval]
suite = "fgsm"

[fuzz]
data = "digits/train[:48]"
cases = 200
[fuzz.set]
"schedule.steps" = 7

[harden]
data = "digits"
"""


@pytest.fixture
def campaign(digits_model: str) -> str:
    Path("c.toml").write_text(CAMPAIGN.format(model=digits_model))
    return "c.toml"


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    capsys.readouterr()
    assert run(arguments) == code, capsys.readouterr().err
    return capsys.readouterr().out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(arguments) == 4
    return capsys.readouterr().err


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    return tomllib.loads(out_of([*arguments, "--show-config"], capsys))


def test_one_file_serves_several_verbs(campaign: str, digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(["eval", "--config", campaign], capsys)["eval"]
    assert (told["model"], told["data"], told["eps"], told["suite"]) == (
        digits_model,
        "digits/test[:40]",
        "0.1",
        "fgsm",
    )
    told = shown(["harden", "--config", campaign, "--recipe", "renew"], capsys)["harden"]
    assert (told["data"], told["until"], told["seed"]) == ("digits", "pgd>=0.2", 3)
    told = shown(["fuzz", "--config", campaign], capsys)["fuzz"]
    assert (told["data"], told["cases"], told["set"]) == ("digits/train[:48]", 200, ["schedule.steps=7"])
    result = json.loads(out_of(["eval", "--config", campaign, "--json"], capsys))
    assert (result["clean"]["n"], list(result["attacks"]), result["protocol"]["seed"]) == (40, ["fgsm"], 3)


def test_flag_over_environment_over_file_over_default(
    campaign: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_EVAL_EPS", "0.2")
    monkeypatch.setenv("ASSAY_EVAL_SUITE", "pgd")
    text = out_of(["eval", "--config", campaign, "--eps", "0.3", "--show-config"], capsys)
    assert 'eps = "0.3"  # flag' in text
    assert 'suite = "pgd"  # environment' in text
    assert "seed = 3  # file" in text
    assert 'norm = "linf"  # default' in text


def test_what_is_shown_is_a_file_that_says_the_same(campaign: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = out_of(["fuzz", "--config", campaign, "--show-config"], capsys)
    Path("again.toml").write_text(text)
    again = out_of(["fuzz", "--config", "again.toml", "--show-config"], capsys)
    assert tomllib.loads(again) == tomllib.loads(text)


def test_the_file_of_a_saved_evaluation_repeats_it(campaign: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = json.loads(out_of(["eval", "--config", campaign, "--eps", "0.05", "--save", "a", "--json"], capsys))
    again = json.loads(out_of(["eval", "--config", first["run"], "--save", "b", "--json"], capsys))
    assert Path(again["run"]).name == "b"
    for told in (first, again):
        told.pop("run")
        for attack in told["attacks"].values():
            attack.pop("seconds")
    assert again == first
    files = [Path(f"runs/{name}/campaign.toml").read_bytes() for name in "ab"]
    assert files[0] == files[1], "the name of the run is no part of it"


def test_the_file_of_a_prioritisation_repeats_it(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["prioritise", digits_model, "--pool", "digits/test[:60]", "--by", "gini,max_p", "-k", "10", "--json"]
    first = json.loads(out_of([*base, "--run", "a"], capsys))
    again = json.loads(out_of(["prioritise", "--config", "runs/a/campaign.toml", "--run", "b", "--json"], capsys))
    rows = [[(method["by"], method["rows"]) for method in told["methods"]] for told in (first, again)]
    assert rows[0] == rows[1]
    assert [by for by, _ in rows[0]][:2] == ["gini", "max_p"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[evil]\nx = 1\n", "unknown table [evil]; did you mean 'eval'?"),
        ("[eval]\nsuit = 'fgsm'\n", "unknown key 'suit' in [eval]; did you mean 'suite'?"),
        ("[budget]\ntine = '3s'\n", "unknown key 'tine' in [budget]; did you mean 'time'?"),
        ("x = 1\n", "x must stand in a table"),
        ("[eval]\neach = 1\n", "each is true or false, got 1"),
        ("[eval]\neps = true\n", "eps cannot be True"),
        ("[eval]\neps = {a = 1}\n", "eps cannot be {'a': 1}"),
        ("[eval]\ntrust-run = true\n", "for the command line only: --trust-run"),
        ("[eval\n", "not valid TOML"),
        ("[recipe]\nmutate = 3\n", "mutate in [recipe] cannot be 3"),
        ("[eval]\nseed = 0x" + "f" * 6000 + "\n", "seed is too large a number, of 24000 bits"),
        ("[eval]\nseed = " + "9" * 5000 + "\n", "not valid TOML"),
        ("[fuzz.set]\n'schedule.steps' = 1979-05-27\n", "schedule.steps cannot be 1979-05-27, a date or a time"),
    ],
)
def test_a_file_with_a_mistake_is_refused(text: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text(text)
    assert words in refused(["eval", "m", "--data", "digits", "--config", "bad.toml"], capsys)


def test_a_run_of_another_verb_is_refused(campaign: str, capsys: pytest.CaptureFixture[str]) -> None:
    out_of(["eval", "--config", campaign, "--save", "a", "--json"], capsys)
    said = refused(["harden", "--config", "runs/a/campaign.toml"], capsys)
    assert "a run made by assay eval, not by assay harden" in said


def test_a_run_of_python_has_no_command(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    import assay

    assay.evaluate(digits_model, "digits/test[:16]", suite="fgsm", eps=0.1, save="a")
    assert "no command line made" in refused(["eval", "--config", "runs/a/campaign.toml"], capsys)


def test_every_verb_has_the_options() -> None:
    from assay.cli import _command

    for name, verb in _command().commands.items():
        assert {"config", "show_config"} <= {parameter.name for parameter in verb.params}, name


CASES = "digits/test[:8]"
NET = """
from pathlib import Path
from torch import nn

def net():
    Path("ran").touch()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.fixture
def of_code(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one's own that names a Python file."""
    from safetensors.torch import save_file
    from torch import nn

    monkeypatch.setenv("ASSAY_CACHE", "cache")
    Path("net.py").write_text(NET)
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), "w.safetensors")
    model = ["net.py:net@w.safetensors", "--data", CASES]
    assert run(["eval", *model, "--suite", "fgsm", "--eps", "0.1", "--save", "a", "--json"]) == 0
    Path("ran").unlink()
    return Path("runs/a")


def test_the_file_of_ones_own_run_may_name_code(of_code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out_of(["eval", "--config", str(of_code), "--json"], capsys)
    assert Path("ran").exists()


@pytest.mark.parametrize(
    ("was", "now"), [("net.py:net", "./net.py:net"), ('suite = "fgsm"', 'suite = "fgsm"\nlog = "jsonl:told"'), ("", "")]
)
def test_the_file_of_a_run_from_elsewhere_runs_no_code_and_writes_nothing(
    of_code: Path, was: str, now: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = of_code / "campaign.toml"
    file.write_text(file.read_text().replace(was, now))
    if not was:  # as it is, from another machine
        monkeypatch.setenv("ASSAY_CACHE", "other-cache")
    assert "no command of yours made" in refused(["eval", "--config", str(of_code), "--json"], capsys)
    assert "no command of yours made" in refused(["eval", "--config", str(file), "--show-config"], capsys)
    assert not Path("ran").exists()
    assert not Path("told").exists()
    Path("mine.toml").write_bytes(file.read_bytes())  # looked at and copied: the user's own text
    out_of(["eval", "--config", "mine.toml", "--json"], capsys)
    assert Path("ran").exists()


def test_an_older_run_of_ones_own_is_known_by_its_first_line(
    of_code: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.core import trust
    from assay.core.store import read

    monkeypatch.setenv("ASSAY_CACHE", "other-cache")
    trust.remember(read(of_code).lines[0])  # the way it was noted before
    file = of_code / "campaign.toml"
    told = file.read_text()
    file.write_text(told.partition("[command]")[0])
    assert "no command line made" in refused(["eval", "--config", str(of_code)], capsys)  # its own words, no other
    file.write_text(told)
    assert "no command of yours made" in refused(["eval", "--config", str(of_code)], capsys)


def test_a_token_is_not_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_TOKEN", "sesame")
    assert "sesame" not in out_of(["serve", "lenet5@w.safetensors", "--show-config"], capsys)
