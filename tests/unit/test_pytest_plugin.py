"""The pytest plugin as a user's tests meet it."""

import importlib.metadata
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.engines import gate_measure
from assay.engines.evaluate import evaluate
from assay.engines.gate import check
from assay.engines.replay import replay
from gates import inputs, live, prepare

pytest_plugins = ["pytester"]

INSTALLED = any(entry.name == "assay" for entry in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "assay.pytest_plugin"]  # twice would be refused
HEAD = """
import pytest
OLD, NEW, DATA = "gate.py:net@old.safetensors", "gate.py:net@new.safetensors", "gate.npz"
"""


@pytest.fixture(scope="module")
def _imported() -> None:
    """Pytester forgets what an inner run imports; what has been imported by then is not imported anew each time."""
    check(live("new"), inputs(8), require="robust>=0.1", eps=0.05)


@pytest.fixture
def project(_imported: None, pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with two versions of a model and inputs."""
    prepare(pytester.path)
    return pytester


def run(project: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    project.makepyfile(test_model=HEAD + text)
    return project.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", *arguments)


def test_a_requirement_that_holds_passes_and_is_told_at_the_end(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
def test_it(robustness):
    gate = robustness(NEW, DATA).require("robust>=0.5, clean>=0.8", suite="fgsm", eps="0.05")
    assert gate.rows[0].value == 0.74
""",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*robustness (assay)*",
            "met *robust>=0.5: robust is 74 % of 200 inputs*test_model.py::test_it*",
            "met *clean>=0.8: clean is 89.5 %*",
        ]
    )


def test_one_that_does_not_fails_with_what_was_measured_and_how_to_look_at_it(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
def test_it(robustness):
    robustness(NEW, DATA, eps=0.05, seed=3).require("robust>=0.9, clean>=0.8", suite="fgsm", ignore=["weak_attacks"])
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*robustness(NEW, DATA, eps=0.05, seed=3).require*",
            "E *robust>=0.9, clean>=0.8 is not met by gate.py:net@new.safetensors on gate.npz, linf eps 0.05, seed 3",
            "E *not met: robust is 74 % of 200 inputs (95 % interval 67.5 to 79.6 %); at least 90 % is required",
            "E *assay check gate.py:net@new.safetensors --data gate.npz --require 'robust>=0.9, clean>=0.8' --eps 0.05 "
            "--seed 3 --suite fgsm --ignore weak_attacks --save NAME; then assay replay NAME",
        ]
    )
    assert "pytest_plugin.py" not in result.stdout.str(), "the user sees his own line, not ours"


def test_an_undecided_number_fails_and_says_how_many_inputs_would_decide(project: pytest.Pytester) -> None:
    text = """
def test_it(robustness):
    robustness(NEW, DATA).require("robust>=0.72", eps=0.05)

def test_by_the_bare_number(robustness):
    robustness(NEW, DATA).require("robust>=0.72", eps=0.05, decide="point")
"""
    result = run(project, text)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E *undecided: robust is 74 %*; about * inputs would decide*"])


def test_live_models_tensors_and_a_baseline(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
import torch
from gates import inputs, live

def test_it(robustness):
    new = robustness(live("new"), inputs(), baseline=live("old"))
    new.require("clean_drop<=0.2")
    with pytest.raises(AssertionError, match="clean drops by 10.5 points over the same 200 inputs"):
        new.require("clean_drop<=0.01")
""",
    )
    result.assert_outcomes(passed=1)


def test_a_mistake_is_one_sentence(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
def test_it(robustness):
    robustness(NEW, DATA).require("robust>=0.5", eps=0.05, suite="pdg")
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["assay: unknown attack or suite 'pdg'; did you mean 'pgd'?"])
    assert "Traceback" not in result.stdout.str()
    assert "another exception" not in result.stdout.str()


def test_tests_that_measure_are_marked_and_the_mark_gives_defaults(project: pytest.Pytester) -> None:
    text = """
@pytest.mark.robustness(eps=0.05, suite="fgsm")
def test_marked(robustness):
    robustness(NEW, DATA).require("robust>=0.5")

def test_unmarked(robustness):
    robustness(NEW, DATA).require("clean>=0.5")

def test_other():
    pass
"""
    run(project, text, "-m", "not robustness", "--strict-markers").assert_outcomes(passed=1, deselected=2)
    run(project, text, "-m", "robustness", "--strict-markers").assert_outcomes(passed=2, deselected=1)


def test_the_same_protocol_is_measured_once_in_a_session(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return evaluate(*given, **named)

    monkeypatch.setattr(gate_measure, "evaluate", counted)
    result = run(
        project,
        """
@pytest.mark.parametrize("bound", [0.1, 0.2, 0.3])
def test_it(robustness, bound):
    robustness(NEW, DATA).require(f"robust>={bound}", eps=0.05)

def test_another_ball(robustness):
    robustness(NEW, DATA).require("robust>=0.1", eps=0.06)
""",
    )
    result.assert_outcomes(passed=4)
    assert len(calls) == 2


def test_what_fails_is_kept_and_can_be_replayed(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RUNS", str(project.path / "runs"))
    text = """
def test_it(robustness):
    robustness(NEW, DATA).require("robust>=0.9", eps=0.05)

def test_another(robustness):
    robustness(NEW, DATA).require("robust>=0.9", eps=0.06)
"""
    result = run(project, text, "--assay-save", "ci")
    result.assert_outcomes(failed=2)
    line = next(line for line in result.stdout.lines if "replay one: assay replay" in line)
    folder, case = shlex.split(line.partition("assay replay ")[2])
    assert Path(folder).name == "ci"
    assert replay(folder, [case]).counts()["still_failing"] == 1
    assert (project.path / "runs" / "ci-2").is_dir(), "another evaluation is another run"


def test_settings_come_from_the_ini_file(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nassay_time = 0.000001s\nassay_device = cpu\n")
    text = """
def test_it(robustness):
    gate = robustness(NEW, DATA).require("robust>=0.1", eps=0.05)
    assert not gate.complete and gate.rows[0].n == 64

def test_the_test_knows_better(robustness):
    assert robustness(NEW, DATA).require("robust>=0.1", eps=0.05, time="1h").complete
"""
    run(project, text).assert_outcomes(passed=2)
    run(project, text, "--assay-device", "nowhere").assert_outcomes(failed=2)


def test_names_from_files_cannot_steer_the_terminal(project: pytest.Pytester) -> None:
    prepare(project.path, names=("da\x1b[31mrk", "li\nght"))
    result = run(
        project,
        """
def test_it(robustness):
    robustness(NEW, DATA).require("robust[*]>=0.1", eps=0.05)
""",
    )
    result.assert_outcomes(passed=1)
    assert "\x1b[31mrk" not in result.stdout.str()
    assert "of class da\\x1b[31mrk " in result.stdout.str()
    assert "of class li\\x0aght " in result.stdout.str()


def test_the_plugin_costs_other_tests_nothing() -> None:
    code = "import sys, assay.pytest_plugin; sys.exit(bool({'torch', 'numpy', 'rich', 'typer'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
