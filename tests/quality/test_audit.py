"""The audit finds what it is there to find, and nothing in the repository as it stands."""

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


def test_the_repository_has_no_finding(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--offline"]) == 0, capsys.readouterr().out


def test_a_version_with_a_known_hole_is_found(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text((ROOT / "constraints.txt").read_text().replace("torch==2.13.0", "torch==2.9.1"))
    assert audit.main(["--offline", "--constraints", str(pins)]) == 1
    assert "CVE-2026-24747" in capsys.readouterr().out


def test_a_dependency_without_a_pin_is_found(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text((ROOT / "constraints.txt").read_text().replace("scipy==", "scipy>="))
    assert audit.main(["--offline", "--constraints", str(pins)]) == 1
    assert "scipy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import pickle\npickle.loads(b'')\n", "pickle.loads"),
        ("eval('1')\n", "eval"),
        ("import subprocess\nsubprocess.run('ls', shell=True)\n", "shell=True"),
        ("import torch\ntorch.load('x')\n", "torch.load"),
        ("import yaml\nyaml.load('')\n", "yaml.load"),
        ("import numpy as np\nnp.load('x', allow_pickle=True)\n", "numpy.load"),
        ("from pickle import loads\nloads(b'')\n", "pickle.loads"),
        ("from subprocess import run as go\ngo(['ls'])\n", "subprocess.run"),
        ("import torch as t\nt.load('x')\n", "torch.load"),
        ("import os\nos.execvp('ls', [])\n", "os.execvp"),
        ("import runpy\nrunpy.run_path('x.py')\n", "runpy.run_path"),
        ("import builtins\nbuiltins.exec('1')\n", "builtins.exec"),
        ("import pickle\npickle.Unpickler(open('x', 'rb')).load()\n", "pickle.Unpickler"),
    ],
)
def test_a_dangerous_call_is_found(
    audit: ModuleType, code: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "module.py").write_text(code)
    assert audit.main(["--offline", "--source", str(tmp_path)]) == 1
    assert words in capsys.readouterr().out


def test_a_call_that_is_meant_must_still_be_safe(audit: ModuleType, tmp_path: Path) -> None:
    place = tmp_path / "subjects" / "sources"
    place.mkdir(parents=True)
    (place / "checkpoint.py").write_text("import torch\ntorch.load('x', weights_only=False)\n")
    assert list(audit.dangers(tmp_path))


def test_every_protection_that_is_to_be_taken_out_is_there() -> None:
    """The rows of tools/protections.toml name lines of the source as it is, and tests that exist."""
    rows = tomllib.loads((ROOT / "tools" / "protections.toml").read_text(encoding="utf-8"))["row"]
    gone = [f"{row['file']}: {row['old']}" for row in rows if row["old"] not in source_of(row["file"])]
    assert gone == []
    assert [row["test"] for row in rows if not (ROOT / row["test"]).is_file()] == []
    assert len({row["test"] for row in rows if row["test"].startswith("tests/faults/")}) >= 15


def source_of(file: str) -> str:
    return (ROOT / "src" / "assay" / file).read_text(encoding="utf-8")
