"""Class names, run names, keys and archive members that are paths: nothing is written outside of where it belongs."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import PASSED, USAGE
from assay.subjects.data.load import load_splits
from bad_strings import NAMES_THAT_ARE_PATHS
from commands import Nursery, tree

pytestmark = pytest.mark.slow

RUN_NAMES = (
    "../../x",
    "/tmp/absolute",
    "CON",
    "nul",
    "x" * 400,
    "\u202er",
    "\U0001f600",
    ".",
    "..",
    "",
    "a/b",
    "a\\b",
)


def outside(folder: Path, *ours: str) -> dict[str, bytes | None]:
    """All that lies below a folder but for places that a command was told of."""
    return {name: content for name, content in tree(folder).items() if not name.startswith(ours)}


@pytest.mark.parametrize("name", RUN_NAMES)
def test_a_run_name_is_a_name(home: Nursery, digits_model: str, name: str, tmp_path: Path) -> None:
    data = ("--data", "digits/test[:5]")
    for arguments in (
        ("fuzz", digits_model, *data, f"--run={name}"),
        ("eval", digits_model, *data, "--suite", "fgsm", "--eps", "0.1", f"--save={name}"),
        ("harden", digits_model, "--data", "digits", "--recipe", "robot", f"--run={name}"),
    ):
        done = home.run(*arguments)
        done.ended(USAGE)
        assert len(done.said) < 1000
    assert tree(tmp_path) == {}


@pytest.fixture(scope="module")
def folder(home: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits whose classes are paths, a net and a run of them, all made by the verbs."""
    place = tmp_path_factory.mktemp("paths") / "deep" / "deeper"
    place.mkdir(parents=True)
    parts = load_splits("digits")
    arrays = {"classes": np.array(NAMES_THAT_ARE_PATHS)}
    for part in ("train", "val", "test"):
        data = parts.part(part)
        arrays |= {f"x_{part}": data.cases.x[:, 0].numpy(), f"y_{part}": data.cases.y.numpy()}
    np.savez(place / "d.npz", allow_pickle=False, **arrays)
    env = {"ASSAY_RUNS": str(place / "runs"), "ASSAY_CACHE": str(place / "cache")}
    weights = str(place / "w.safetensors")
    home.run("train", "mlp", "--data", str(place / "d.npz"), "--out", weights, "--epochs", "3", env=env).ended(PASSED)
    given = ("--data", f"{place / 'd.npz'}/test[:80]", "--recipe", "noise", "--eps", "0.3", "--cases", "3000")
    home.run("fuzz", f"mlp@{weights}", *given, "--run", "r", env=env).ended(PASSED)
    return place


def test_no_verb_makes_a_path_of_a_class_name(
    home: Nursery, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_RUNS", str(folder / "runs"))
    model, data = f"mlp@{folder / 'w.safetensors'}", ("--data", f"{folder / 'd.npz'}/test[:20]")
    run, out = str(folder / "runs" / "r"), tmp_path / "out"
    out.mkdir()
    around, before = folder.parents[1], outside(folder.parents[1], "deep/deeper/runs", "deep/deeper/cache")
    for arguments in (
        ("eval", model, *data, "--suite", "fgsm", "--eps", "0.1", "--save", "saved", "--per-class"),
        ("select", run, "--by", "random", "-k", "3", "--out", str(out / "s.npz")),
        ("shrink", run, "-k", "1"),
        ("report", run),
        ("export", run, "--to", "images", "--out", str(out / "images")),
        ("export", run, "--to", "npz", "--out", str(out / "f.npz")),
        ("prioritise", model, "--pool", f"{folder / 'd.npz'}/test[:20]", "--by", "gini", "--out", str(out / "p.csv")),
    ):
        home.run(*arguments).ended(PASSED)
    assert outside(around, "deep/deeper/runs", "deep/deeper/cache") == before
    assert {path.name for path in tmp_path.iterdir()} <= {"out", "cache"}
    assert {path.name for path in (folder / "runs").iterdir()} == {"r", "saved"}
    for path in [*(folder / "runs").rglob("*"), *out.rglob("*")]:
        assert path.name.isascii(), path
        assert len(path.name) <= 100
        assert not path.is_symlink()
    with np.load(out / "f.npz") as arrays:  # as data they are what they were
        assert [str(name) for name in arrays["classes"]] == list(NAMES_THAT_ARE_PATHS)


def test_members_of_an_archive_stay_inside(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    """Nothing is unpacked to the disk, so a member cannot be called where it should not lie."""
    place = tmp_path / "deep"
    place.mkdir()
    with zipfile.ZipFile(place / "d.npz", "w") as archive:
        for name, array in (("x", np.zeros((4, 8, 8), np.float32)), ("y", np.zeros(4, np.int64))):
            with archive.open(f"{name}.npy", "w") as member:
                np.save(member, array)
        for name in ("../../evil.npy", "/tmp/assay-evil.npy", "C:\\evil.npy", "x/../../evil", "con.npy", "n\x00l"):
            with archive.open(name, "w") as member:
                np.save(member, np.zeros(1))
    before = outside(tmp_path, "cache")
    home.run("eval", digits_model, "--data", str(place / "d.npz"), "--suite", "fgsm", "--eps", "0.1").ended(PASSED)
    assert outside(tmp_path, "cache") == before
    assert not Path("/tmp/assay-evil.npy").exists()


@pytest.mark.parametrize("name", ["../x.npz", "no/such/folder/x.npz", "r", "runs/r/x.npz", "runs/r/cases/x.npz"])
def test_what_is_written_goes_where_it_was_told_and_into_no_run(
    home: Nursery, folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = tree(folder)
    done = home.run("export", "runs/r", "--to", "npz", "--out", name)
    if name == "../x.npz":  # the user's own word is the user's own
        done.ended(PASSED)
        (folder.parent / "x.npz").unlink()
    else:
        done.ended(USAGE)
    assert tree(folder) == before


def test_nothing_is_written_through_a_link(home: Nursery, folder: Path, tmp_path: Path, digits_model: str) -> None:
    private = tmp_path / "private"
    private.write_text("mine")
    for name in ("x.npz", "w.safetensors", "p.csv", "aeg.safetensors"):
        Path(name).symlink_to(private)
    model = f"mlp@{folder / 'w.safetensors'}"
    pool = ("--pool", f"{folder / 'd.npz'}/test[:20]", "--by", "gini")
    for arguments in (
        ("export", str(folder / "runs" / "r"), "--to", "npz", "--out", "x.npz"),
        ("select", str(folder / "runs" / "r"), "--by", "random", "-k", "2", "--out", "x.npz"),
        ("prioritise", model, *pool, "--out", "p.csv"),
        ("train", "mlp", "--data", "digits", "--out", "w.safetensors", "--epochs", "1"),
    ):
        done = home.run(*arguments)
        assert "Traceback" not in done.err, done.err
        assert done.code == USAGE, f"{arguments}: {done.code}, {done.err}"
        assert private.read_text() == "mine", arguments
        assert Path(arguments[arguments.index("--out") + 1]).is_symlink(), arguments
