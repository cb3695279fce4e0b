"""``assay serve`` and the verbs that ask it, as a user types them."""

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cli import run
from served import served

Assay = Callable[..., str]


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Assay:
    """Runs a command; its output, or of a failing one its complaint."""

    def typed(*arguments: str, code: int = 0) -> str:
        assert run(list(arguments)) == code
        heard = capsys.readouterr()
        return heard.err if code else heard.out

    return typed


def described(url: str, token: str = "") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as reply:
        told: dict[str, Any] = json.load(reply)
        return told


def test_a_served_model_is_evaluated_and_fuzzed(digits_model: str, assay: Assay) -> None:
    square = ["--data", "digits/test[:12]", "--suite", "square(queries=20)", "--eps", "0.2", "--json", "--quiet"]
    with served(digits_model) as url:
        assert described(url)["gives"] == "probabilities"
        black = json.loads(assay("eval", url, *square, "--queries", "1000"))
        white = json.loads(assay("eval", digits_model, *square))
        assert (black["access"], black["complete"]) == ("black box", True)
        assert black["clean"] == white["clean"]
        assert black["attacks"]["square"]["broken"] == white["attacks"]["square"]["broken"]
        assert 0 < black["queries"]["asked"] <= 1000
        fuzzing = ["--data", "digits/train[:30]", "--recipe", "noise", "--eps", "0.3", "--run", "fuzzed"]
        part = json.loads(assay("fuzz", url, *fuzzing, "--queries", "60", "--json"))
        assert not part["complete"]
        assert 0 < part["queries"]["asked"] <= 60
        told = assay("fuzz", url, *fuzzing, "--queries", "70")
        assert "the same command with more --queries goes on" in told
        whole = json.loads(assay("fuzz", url, *fuzzing, "--queries", "100000", "--json"))
        assert whole["complete"]
        assert whole["failures"] > 0


def test_labels_alone_allow_what_needs_labels(digits_model: str, assay: Assay) -> None:
    data = ["--data", "digits/test[:6]", "--eps", "0.3"]
    with served(digits_model, "--labels", ends_by=signal.SIGTERM) as url:
        assert described(url)["gives"] == "labels"
        refused = assay("eval", url, *data, "--suite", "black-box", "--save", "none", code=4)
        assert "needs prob" in refused
        assert "suites: corruptions, label-only" in refused
        assert not Path("runs/none").exists()
        shown = assay("eval", url, *data, "--suite", "hop_skip_jump(queries=40)")
        assert "black box" in shown
        assert "checks not made" in shown
        assert "asked: " in shown
        spent = assay("eval", url, *data, "--suite", "label-only", "--queries", "20")
        assert "no number yet" in spent
        told = json.loads(assay("eval", url, *data, "--suite", "label-only", "--queries", "20", "--json"))
        assert told["complete"] is False
        assert told["queries"]["asked"] <= 20


def test_a_token_guards_it_and_shows_nowhere(digits_model: str, assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ["--data", "digits/test[:6]", "--suite", "corruptions", "--save", "kept"]
    with served(digits_model, ASSAY_TOKEN="s3cret-token") as url:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            described(url)
        assert described(url, "s3cret-token")["assay"] == 1
        assert "ASSAY_TOKEN" in assay("eval", url, *data, code=4)
        monkeypatch.setenv("ASSAY_TOKEN", "s3cret-token")
        assert "s3cret" not in assay("eval", url, *data)
        written = [path for path in Path("runs").rglob("*") if path.is_file()]
        assert written
        assert not [path for path in written if b"s3cret" in path.read_bytes()]


def test_slips_are_told_in_a_sentence(digits_model: str, assay: Assay) -> None:
    assert "give a token" in assay("serve", digits_model, "--host", "0.0.0.0", code=4)
    assert "names no weights" in assay("serve", "lenet5", code=4)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "another --port" in assay("serve", digits_model, "--port", port, code=4)


def test_checks_alone_end_at_the_budget_like_the_rest(digits_model: str, assay: Assay) -> None:
    checks = ["eval", digits_model, "--data", "digits/test[:12]", "--eps", "0.1", "--checks-only", "--queries", "3"]
    told = json.loads(assay(*checks, "--json"))
    assert told == {
        "complete": False,
        "queries": {"limit": 3, "asked": 3, "wanted": told["queries"]["wanted"]},
        "run": None,
    }
    assert "3 of 3 queries are spent; give more --queries" in assay(*checks)


def test_a_shrinking_ends_at_the_budget_of_its_run(digits_model: str, assay: Assay) -> None:
    fuzzing = ["--data", "digits/train[:30]", "--recipe", "noise", "--eps", "0.3", "--run", "fuzzed"]
    spent = json.loads(assay("fuzz", digits_model, *fuzzing, "--queries", "200", "--json"))
    assert spent["failures"] > 0
    told = json.loads(assay("shrink", "fuzzed", "--queries", str(spent["queries"]["asked"]), "--json"))
    assert told["complete"] is False
    assert "the same command with more --queries goes on" in assay("shrink", "fuzzed", "--queries", "1")
    whole = json.loads(assay("shrink", "fuzzed", "--queries", "1000000", "--json"))
    assert whole["complete"]
    assert whole["queries"]["asked"] > spent["queries"]["asked"]
    Path("runs/fuzzed/answers.jsonl").unlink()
    assert "nothing is picked yet: 1 of 1" in assay(
        "select", "fuzzed", "--by", "top(score=gini)", "-k", "2", "--queries", "1"
    )
