"""The examples for CI: they are what they say, and their commands are ones that Assay knows."""

import re
import shlex
import subprocess
import sys
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


def test_the_workflow_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repository whose second commit has a net of other layers: the old one is built by its own code."""
    import numpy
    import torch
    from safetensors.torch import save_file

    def commit(*layers: str) -> None:
        scope: dict[str, object] = {}
        made = f"nn.Sequential(nn.Flatten(), {', '.join(layers)})"
        (tmp_path / "model.py").write_text(f"from torch import nn\n\n\ndef net():\n    return {made}\n")
        exec((tmp_path / "model.py").read_text(), scope)
        save_file(scope["net"]().state_dict(), tmp_path / "weights.safetensors")  # type: ignore[operator]
        git("add", "-A")
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a net")

    def git(*words: str) -> None:
        subprocess.run(["git", *words], check=True, cwd=tmp_path, capture_output=True)

    x = torch.rand(40, 1, 5, 5)
    numpy.savez(tmp_path / "data.npz", x=x.numpy(), y=(torch.arange(40) % 2).numpy())
    git("init", "-q")
    commit("nn.Linear(25, 2)")
    commit("nn.Linear(25, 8)", "nn.ReLU()", "nn.Linear(8, 2)")
    workflow = yaml.safe_load((HERE / "github.yml").read_text())
    monkeypatch.setenv("MODEL", workflow["env"]["MODEL"])
    monkeypatch.setenv("DATA", "data.npz")
    monkeypatch.setenv("REQUIRE", "clean>=0, clean_drop<=1, robust>=0")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    named = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "name" in step]
    for line in named:
        done = subprocess.run(["bash", "-e", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path)
        # Nets that have learned nothing are unreliable: the gate says so by its own code, and not that it cannot.
        assert done.returncode == (1 if line.startswith("assay") else 0), done.stderr
    assert "old/model.py:net@old/weights.safetensors" in done.stdout
    assert (tmp_path / "gate.xml").is_file()
    assert (tmp_path / "gate.sarif").is_file()
    assert "clean_drop" in (tmp_path / "summary.md").read_text()


def test_the_workflow_installs_no_stranger() -> None:
    """The name on the package registry is not ours."""
    assert not re.search(r"pip install ['\"]?assay\b", (HERE / "github.yml").read_text())


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
