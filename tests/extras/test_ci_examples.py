"""The examples for CI: they are what they say, and their commands are ones that Assay knows."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
import yaml  # type: ignore[import-untyped]

from assay.cli import app

HERE = Path(__file__).parents[2] / "examples" / "ci"


def flags() -> set[str]:
    command = typer.main.get_command(app)
    return {option for parameter in command.commands["check"].params for option in parameter.opts}  # type: ignore[attr-defined]


def asked(text: str) -> list[str]:
    return [word for word in shlex.split(text) if word.startswith("--")]


def test_the_workflow_is_one_and_its_command_is_ours() -> None:
    text = (HERE / "github.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["gate"]["steps"]
    gate = next(step["run"] for step in steps if step.get("name") == "Gate")
    assert gate.startswith("assay check ")
    assert set(asked(gate)) <= flags()
    assert all("if" in step for step in steps if "upload" in step.get("uses", "")), "also where the gate failed"
    files = {word for word in shlex.split(gate) if word.startswith("gate.")}
    assert files == {step["with"].get("path") or step["with"]["sarif_file"] for step in steps if "if" in step}


def test_the_script_asks_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an ``assay`` that tells what it was called with."""
    told = tmp_path / "assay"
    told.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\nexit 1\n')
    told.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("MODEL", "my net.py:f@w.safetensors")
    monkeypatch.setenv("BASELINE", "old one")
    done = subprocess.run(["/bin/sh", str(HERE / "check.sh")], capture_output=True, text=True, check=False)
    words = done.stdout.splitlines()
    assert done.returncode == 1, "the gate's own code comes through"
    assert words[:2] == ["check", "my net.py:f@w.safetensors"]
    assert words[-2:] == ["--baseline", "old one"]
    assert {word for word in words if word.startswith("--")} <= flags()


def test_the_tests_use_what_the_fixture_takes() -> None:
    from inspect import signature

    from assay.pytest_plugin import Subject

    text = (HERE / "test_model.py").read_text()
    compile(text, "test_model.py", "exec")
    named = set(re.findall(r"(\w+)=", text.split("def test_model_is_robust")[1]))
    assert named <= {"baseline", *signature(Subject.require).parameters}
