"""A run folder from somebody else: nothing it names is run or asked, and nothing in it leads out of it."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import PASSED, USAGE
from bad_runs import Change, all_of, evil_file, listing, pipe, retold, telling
from commands import Nursery, tree

pytestmark = pytest.mark.slow

VERBS = (
    ("status",),
    ("report",),
    ("export", "--to", "npz", "--out", "failures.npz"),
    ("select", "--by", "top(score=gini)", "-k", "1", "--quiet"),
    ("select", "--by", "spread", "-k", "1", "--quiet"),
    ("shrink", "--quiet"),
    ("replay", "-k", "1", "--quiet"),
)


@pytest.fixture(scope="module")
def made(home: Nursery, digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run as somebody else made it, in a folder and with a cache of their own."""
    folder = tmp_path_factory.mktemp("theirs")
    env = {"ASSAY_RUNS": str(folder / "runs"), "ASSAY_CACHE": str(folder / "cache")}
    given = ("--data", "digits/test[:60]", "--recipe", "noise", "--eps", "0.3", "--cases", "2000", "--run", "theirs")
    home.run("fuzz", digits_model, *given, "--quiet", env=env).ended(PASSED)
    return folder / "runs" / "theirs"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs" / "theirs"))


def look(home: Nursery, run: Path, *verb: str) -> Any:
    return home.run(verb[0], str(run), *verb[1:])


PLACES = [
    telling("target", "model", "{evil}:make@{weights}"),
    telling("target", "model", "call:{evil}:make"),
    telling("target", "model", "cmd:touch {canary}"),
    telling("recipe", "oracle", "{evil}:make"),
    telling("target", "with", ["{evil}:make@{weights}"]),
    telling("target", "resistant", "{evil}:make@{weights}"),
    telling("data", "spec", "{evil}:make"),
    telling("data", "spec", "{evil}:make/train"),
    telling("data", "spec", "{evil}:make/test[:60]"),
    all_of(
        telling("data", "training", "{evil}:make"),
        telling("recipe", "score", ["{evil}:make"]),
        telling("recipe", "mutate", "{evil}:make"),
        telling("recipe", "seeds", "{evil}:make"),
    ),
]


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_no_verb_runs_what_only_a_run_folder_names(
    home: Nursery, run: Path, digits_model: str, number: int, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    evil = evil_file(tmp_path, canary)

    def change(lines: list[dict[str, Any]]) -> None:
        PLACES[number](lines)
        text = json.dumps(lines[0]).replace("{evil}", str(evil)).replace("{canary}", str(canary))
        text = text.replace("{weights}", digits_model.partition("@")[2])
        lines[0] = json.loads(text)

    retold(run, change)
    for verb in VERBS:
        done = look(home, run, *verb)
        assert "Traceback" not in done.err, done.err
        assert done.code in (PASSED, USAGE), done.err
        assert not canary.exists(), verb
    home.run("prioritise", digits_model, "--pool", str(run), "--by", "dsa", "--quiet").ended(
        USAGE if number in (6, 7, 8) else PASSED
    )
    regress = ("--data", "digits/test[:5]", "--suite", "fgsm", "--eps", "0.1", "--regress", str(run), "--quiet")
    home.run("eval", digits_model, *regress).ended(PASSED)
    assert not canary.exists()


def test_the_message_names_the_code_and_the_ways_on(home: Nursery, run: Path, tmp_path: Path) -> None:
    evil = evil_file(tmp_path, tmp_path / "canary")
    retold(run, telling("recipe", "oracle", f"{evil}:make"))
    look(home, run, "shrink").ended(USAGE, "theirs", f"{evil}:make", "--trust-run", "--model")
    assert not (tmp_path / "canary").exists()
    look(home, run, "shrink", "--trust-run")
    assert (tmp_path / "canary").exists()  # asked for by name


def test_a_round_does_not_wait_for_what_lies_around_it(home: Nursery, run: Path, tmp_path: Path) -> None:
    outer = tmp_path / "runs" / "outer"
    outer.mkdir()
    pipe(outer / "journal.jsonl")
    round_of = Path(shutil.copytree(run, outer / "round-001"))
    home.run("replay", str(round_of), "-k", "1", "--quiet").ended(USAGE, "journal.jsonl is no regular file")


def test_nothing_is_sent_where_only_a_run_folder_says_so(home: Nursery, run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        retold(run, telling("target", "model", f"http://127.0.0.1:{server.getsockname()[1]}/"))
        done = home.run("shrink", str(run), env={"ASSAY_TOKEN": "secret"})
        done.ended(USAGE, "http://127.0.0.1", "--trust-run")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_run_of_ones_own_goes_on_without_a_word(
    home: Nursery, digits_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(digits_model.partition("@")[2], "w.safetensors")
    Path("net.py").write_text(
        "from assay.subjects.zoo.lenet import lenet5\ndef make():\n    return lenet5(shape=(1, 8, 8), classes=10)\n"
    )
    given = ("--data", "digits/test[:60]", "--eps", "0.3", "--cases", "2000", "--run", "mine", "--quiet")
    home.run("fuzz", "net.py:make@w.safetensors", *given).ended(PASSED)
    home.run("shrink", "mine", "--quiet").ended(PASSED)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    evil_file(elsewhere, tmp_path / "canary").rename(elsewhere / "net.py")
    shutil.copy("w.safetensors", elsewhere)
    monkeypatch.chdir(elsewhere)  # where the same words name another file
    home.run("shrink", str(tmp_path / "runs" / "mine"), "--any-failure").ended(USAGE, "net.py:make", "--trust-run")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "name",
    ["../../secret", "cases/../../../secret", "/dev/zero", "{secret}", "state/sub/x", "secret", "cases/\x00", ""],
)
def test_names_in_a_journal_do_not_become_paths(home: Nursery, run: Path, name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"mine")
    for folder in (run, run.parent, run.parent.parent):  # wherever such a name might be read from
        (folder / "secret").write_bytes(b"mine")
    outside = tree(tmp_path)
    retold(run, listing(name.replace("{secret}", str(secret)), b"mine"))
    done = look(home, run, "status", "--json").ended(PASSED)
    assert done.json["damage"], done.json
    look(home, run, "report").ended(PASSED)
    look(home, run, "select", "--by", "random", "-k", "1", "--quiet")
    kept = {name: content for name, content in tree(tmp_path).items() if not name.startswith("runs/theirs/")}
    assert kept == {name: content for name, content in outside.items() if not name.startswith("runs/theirs/")}


@pytest.mark.parametrize("name", ["cases", "state", "quarantine", "report", "models", "flaky"])
def test_folders_of_a_run_do_not_lead_out_of_it(home: Nursery, run: Path, name: str, tmp_path: Path) -> None:
    private = tmp_path / "private"
    shutil.copytree(run / name, private) if (run / name).exists() else private.mkdir()
    (private / "diary").write_text("mine")
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(private)
    before = tree(private)
    for verb in VERBS:
        look(home, run, *verb).ended(USAGE, name, "symbolic link", "remove it")
    assert tree(private) == before


@pytest.mark.parametrize("name", ["journal.jsonl", "campaign.toml", "stats.json", "LOCK", "answers.jsonl"])
@pytest.mark.parametrize("how", ["link", "pipe"])
def test_files_of_a_run_are_files(home: Nursery, run: Path, name: str, how: str, tmp_path: Path) -> None:
    private = tmp_path / "private"
    shutil.copy(run / name, private) if (run / name).exists() else private.touch()
    (run / name).unlink(missing_ok=True)
    pipe(run / name) if how == "pipe" else (run / name).symlink_to(private)
    before = private.read_bytes()
    for verb in (*VERBS[:2], VERBS[-1]):
        look(home, run, *verb).ended(USAGE, "theirs")
    assert private.read_bytes() == before


def test_temporary_files_are_not_written_through_links(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("mine")
    Path("w.safetensors.tmp").symlink_to(private)
    home.run("train", "mlp", "--data", "digits", "--out", "w.safetensors", "--epochs", "1", "--quiet")
    assert private.read_text() == "mine"


def test_a_run_folder_that_is_a_link_is_not_written_to(home: Nursery, run: Path) -> None:
    before = tree(run)
    (run.parent / "link").symlink_to(run)
    look(home, run.parent / "link", "status").ended(PASSED)
    look(home, run.parent / "link", "shrink").ended(USAGE, "symbolic link")
    given = ("--data", "digits/test[:5]", "--run", "link")
    home.run("fuzz", "lenet5@w.safetensors", *given).ended(USAGE)
    assert tree(run) == before


HOSTILE: dict[str, Change | bytes] = {
    "deep": b"[" * 200_000 + b"\n",
    "huge number": b'{"step":' + b"9" * 50_000 + b"}\n",
    "not a number": b'{"files":{},"meta":{"kind":"fuzz","x":NaN},"step":3,"sum":"0"}\n',
    "no text": b"\xff\xfe\x00\n",
    "identity": lambda lines: lines[0]["meta"].update(identity=["x"]),
    "table": telling("target", "classes", 7),
    "tables": lambda lines: lines[0]["meta"]["identity"].update(target="x"),
    "format": lambda lines: lines[0]["meta"].update(format="9"),
    "kind": lambda lines: lines[1]["meta"].update(kind={}),
    "digest": lambda lines: lines[1]["files"].update({"state/seeds.safetensors": 7}),
    "model": telling("target", "model", {"a": 1}),
    "classes": telling("target", "classes", [None, {}]),
    "oracle": telling("recipe", "oracle", 3.5),
    "step": lambda lines: lines[1].update(step=10**30),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lines_of_any_kind_are_read_or_left_out(home: Nursery, run: Path, name: str) -> None:
    change = HOSTILE[name]
    if isinstance(change, bytes):
        with (run / "journal.jsonl").open("ab") as log:
            log.write(change)
    else:
        retold(run, change)
    for verb in (*VERBS[:2], VERBS[-1]):
        done = look(home, run, *verb)
        assert "Traceback" not in done.err, (verb, done.err)
        assert done.code in (PASSED, USAGE, 5), (verb, done.err)
