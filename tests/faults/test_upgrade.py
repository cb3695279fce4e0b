"""Runs written by an earlier version: they open, show what they hold, and go on as that version did."""

import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load_file

import small
from commands import Nursery

OLD = Path(__file__).parent / "old_runs"
COLUMNS = ("x", "y", "origin", "pred", "seed")  # later versions may note more of a case
HARDEN = ["harden", small.MODEL, "--data", "digits", "--recipe", "noise", "--eps", "0.1", "--fuzz-cases", "200"]
HARDEN += ["--per-round", "5%", "--set", "train.epochs=1", "--set", "mutate.eps=0.9", "--val-cases", "20"]
HARDEN += [
    "--test-cases",
    "20",
    "--until",
    "clean>=0.999",
    "--no-control",
    "--deterministic",
    "--run",
    "run",
    "--quiet",
]
EVAL = ["eval", small.MODEL, "--data", "seeds.npz", "--suite", "fast", "--eps", "0.1", "--batch", "8", "--quiet"]


def unpacked(kind: str, folder: Path) -> Path:
    """An old run at ``runs/run``, and what it became at ``more``."""
    with ZipFile(OLD / f"{kind}.zip") as old:
        old.extractall(folder)
    (folder / "runs").mkdir()
    shutil.move(folder / "run", folder / "runs" / "run")
    return folder / "runs" / "run"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fuzz", "eval", "harden"])
def test_an_old_run_opens(kind: str, home: Nursery, tmp_path: Path) -> None:
    run = unpacked(kind, tmp_path)
    before = small.committed(run)
    told = home.run("status", "run", "--json").ended(0).json
    assert told["kind"] == kind
    assert told["damage"] == []
    assert told["commits"] > 2
    assert Path(home.run("report", "run").ended(0).out.strip()).is_file()
    assert home.run("select", "run", "--by", "random", "-k", "2", "--json").ended(0).json
    home.run("export", "run", "--to", "npz", "--out", "cases.npz").ended(0)
    after = small.committed(run)
    assert all(after[name] == content for name, content in before.items() if name != "journal.jsonl")
    assert after["journal.jsonl"].startswith(before["journal.jsonl"])
    assert not (run / "quarantine").exists()


def test_an_old_fuzzing_goes_on_as_it_did(home: Nursery, tmp_path: Path) -> None:
    run = unpacked("fuzz", tmp_path)
    had = len(list((run / "cases").iterdir()))
    done = home.run(*small.fuzz("run", "--cases", "120")).ended(0)
    assert done.json["complete"]
    assert home.run("status", "run", "--json").ended(0).json["damage"] == []
    _same_cases(run, tmp_path / "more")
    assert len(list((run / "cases").iterdir())) > had
    home.run("shrink", "run", "-k", "3", "--quiet").ended(0)


def _same_cases(run: Path, expected: Path) -> None:
    def shards(folder: Path) -> list[dict[str, torch.Tensor]]:
        return [load_file(path) for path in sorted((folder / "cases").iterdir())]

    found, wanted = shards(run), shards(expected)
    for name in COLUMNS:
        assert torch.equal(torch.cat([s[name] for s in found]), torch.cat([s[name] for s in wanted])), name


def test_an_old_evaluation_is_not_made_again(home: Nursery, tmp_path: Path) -> None:
    run = unpacked("eval", tmp_path)
    before = {name: content for name, content in small.committed(run).items() if name.startswith(("cases", "state"))}
    home.run(*EVAL, "--save", "run").ended(0)
    after = small.committed(run)
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_an_old_hardening_goes_on_to_the_same_model(home: Nursery, tmp_path: Path) -> None:
    run = unpacked("harden", tmp_path)
    home.run(*HARDEN, "--rounds", "2").ended(1)
    for wanted in sorted((tmp_path / "more" / "models").iterdir()):
        found, expected = load_file(run / "models" / wanted.name), load_file(wanted)
        assert all(torch.equal(found[name], expected[name]) for name in expected), wanted.name
