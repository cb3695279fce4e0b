"""Run folders that were damaged, half copied or edited: what is good is shown, what is bad is named and set aside, and
the same command does the rest again.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import small
from assay.core import journal
from assay.core.journal import Line
from commands import Nursery

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(home: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an undisturbed run, to be copied for every damage."""
    folder = tmp_path_factory.mktemp("made")
    small.prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        home.run(*small.fuzz("a"), env={"ASSAY_RUNS": str(folder / "runs")}).ended(0)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs" / "a"


def flip(path: Path, share: float = 0.5, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[min(int(len(content) * share), len(content) - 1)] ^= 1 << bit
    path.write_bytes(content)


def first(run: Path, pattern: str) -> Path:
    return sorted(run.glob(pattern))[0]


def last(run: Path, pattern: str) -> Path:
    return sorted(run.glob(pattern))[-1]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def latest(run: Path) -> Path:
    """The file of guidance that the last commit names."""
    told = [json.loads(line)["meta"].get("guidance") for line in (run / "journal.jsonl").open()]
    return run / "guidance" / str([one for one in told if one][-1]["file"])


def edited(run: Path) -> None:
    """A number that somebody thought would do no harm."""
    path = run / "campaign.toml"
    path.write_text(path.read_text().replace("eps=0.9", "eps=0.8"))


def half_copied(run: Path) -> None:
    for folder in ("cases", "guidance"):
        shutil.rmtree(run / folder)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "first shard": (lambda run: flip(first(run, "cases/*")), "cases/"),
    "last shard": (lambda run: flip(last(run, "cases/*"), 0.99), "cases/"),
    "cut shard": (lambda run: cut(last(run, "cases/*")), "cases/"),
    "missing shard": (lambda run: first(run, "cases/*").unlink(), "cases/"),
    "seeds": (lambda run: flip(run / "state" / "seeds.safetensors"), "state/seeds.safetensors"),
    "pool": (lambda run: flip(first(run, "state/pool-*")), "state/pool"),
    "guidance": (lambda run: flip(latest(run)), "guidance/"),
    "missing guidance": (lambda run: latest(run).unlink(), "guidance/"),
    "journal, begin": (lambda run: flip(run / "journal.jsonl", 0.01), "journal.jsonl"),
    "journal, middle": (lambda run: flip(run / "journal.jsonl", 0.5), "journal.jsonl"),
    "journal, end": (lambda run: flip(run / "journal.jsonl", 0.99), "journal.jsonl"),
    "cut journal": (lambda run: cut(run / "journal.jsonl"), "journal.jsonl"),
    "campaign": (lambda run: flip(run / "campaign.toml", 0.3), "campaign.toml"),
    "campaign, high bit": (lambda run: flip(run / "campaign.toml", 0.5, 7), "campaign.toml"),
    "campaign's sum": (lambda run: flip(run / "campaign.toml", 0.995), "campaign.toml"),
    "missing campaign": (lambda run: (run / "campaign.toml").unlink(), "campaign.toml"),
    "edited campaign": (edited, "campaign.toml"),
    "environment": (lambda run: flip(run / "environment.json", 0.4), "environment.json"),
    "missing environment": (lambda run: (run / "environment.json").unlink(), "environment.json"),
    "stats": (lambda run: flip(run / "stats.json", 0.2), "stats.json"),
    "cut stats": (lambda run: cut(run / "stats.json"), "stats.json"),
    "half copied": (half_copied, "cases/"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_and_mended(what: str, run: Path, made: Path, home: Nursery) -> None:
    damage, named = DAMAGE[what]
    was = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    damage(run)
    changed = {path: path.read_bytes() for path in was if path.exists() and path.read_bytes() != was[path]}
    told = home.run("status", "a", "--json").ended(0).json
    assert any(said.startswith(named) for said in told["damage"]), told["damage"]
    page = Path(home.run("report", "a").ended(0).out.strip())
    assert named in page.read_text(), "the page names it too"
    shutil.rmtree(page.parent)
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(run) == small.committed(made / "runs" / "a"), "as if nothing had happened"
    aside = [path.read_bytes() for path in (run / "quarantine").glob("*")]
    for path, content in changed.items():
        assert content in aside, f"{path.name} is not deleted"
    after = home.run("status", "a", "--json").ended(0).json
    assert after["damage"] == []
    assert not list(run.rglob("*.tmp"))


def test_a_journal_with_other_line_ends_is_mended_and_goes_on(run: Path, made: Path, home: Nursery) -> None:
    """As an editor or a copy by way of another system leaves it: the same facts, in other bytes."""
    log = run / "journal.jsonl"
    changed = log.read_bytes().replace(b"\n", b"\r\n")
    log.write_bytes(changed)
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(run) == small.committed(made / "runs" / "a")
    assert (run / "quarantine" / "journal.jsonl.1").read_bytes() == changed
    home.run(*small.fuzz("a", "--cases", "120")).ended(0)  # it can be added to
    assert home.run("status", "a", "--json").ended(0).json["damage"] == []


@pytest.mark.parametrize("name", ["campaign.toml", "environment.json", "stats.json", "cases/{}", "cases"])
def test_a_folder_in_the_place_of_a_file_or_a_file_in_that_of_a_folder_is_set_aside(
    name: str, run: Path, made: Path, home: Nursery
) -> None:
    place = run / name.format(first(run, "cases/*").name)
    if place.is_dir():
        shutil.rmtree(place)
        place.write_text("mine")
    else:
        place.unlink()
        place.mkdir()
        (place / "x").write_text("mine")
    told = home.run("status", "a", "--json").ended(0).json["damage"]
    assert any(said.startswith(name.partition("/")[0]) for said in told), told
    home.run("report", "a").ended(0)
    shutil.rmtree(run / "report")
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(run) == small.committed(made / "runs" / "a")
    assert b"mine" in [path.read_bytes() for path in (run / "quarantine").rglob("*") if path.is_file()]
    assert home.run("status", "a", "--json").ended(0).json["damage"] == []


def test_a_folder_in_the_place_of_the_campaign_without_a_journal_is_set_aside_too(
    run: Path, made: Path, home: Nursery
) -> None:
    for name in ("journal.jsonl", "campaign.toml"):
        (run / name).unlink()
    (run / "campaign.toml").mkdir()
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(run) == small.committed(made / "runs" / "a")


def test_what_other_commands_added_is_named_when_it_is_cut_off(run: Path, home: Nursery) -> None:
    for _ in range(2):
        home.run("select", "a", "--by", "random", "-k", "2", "--quiet").ended(0)  # the second adds nothing
    home.run("shrink", "a", "-k", "2", "--quiet", "--trust-run").ended(0)
    lines = (run / "journal.jsonl").read_bytes().count(b"\n")
    flip(first(run, "cases/*"))
    at = next(i for i, line in enumerate((run / "journal.jsonl").open()) if '"cases/' in line)
    told = home.run(*(part for part in small.fuzz("a") if part != "--quiet")).ended(0)
    assert f"{lines - at - 2} commits are done again" in told.err
    assert "1 commits of select are gone, assay select makes them again" in told.err
    assert "1 commits of shrink are gone, assay shrink makes them again" in told.err


def test_both_files_of_guidance_cost_the_count_of_what_is_covered_only(run: Path, home: Nursery) -> None:
    """What was found is kept; only what was covered begins anew, and the user is told."""
    found = {name: text for name, text in small.committed(run).items() if name.startswith("cases/")}
    for path in (run / "guidance").iterdir():
        flip(path)
    home.run(*(part for part in small.fuzz("a") if part != "--quiet"), "--cases", "120").ended(0)
    after = small.committed(run)
    assert all(after[name] == content for name, content in found.items())


def test_a_folder_of_a_newer_version_is_left_alone(run: Path, home: Nursery) -> None:
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    begin = json.loads(lines[0])["meta"] | {"format": journal.FORMAT + 1}
    (run / "journal.jsonl").write_bytes(Line(0, {}, begin).encode() + b"".join(lines[1:]))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "LOCK"}
    for arguments in (small.fuzz("a"), ["status", "a"], ["report", "a"], ["select", "a", "--by", "random", "-k", "1"]):
        home.run(*arguments).ended(4, "newer Assay", f"format {journal.FORMAT + 1}", "upgrade")
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "LOCK"} == before


def test_without_its_journal_the_run_is_done_again(run: Path, made: Path, home: Nursery) -> None:
    (run / "journal.jsonl").unlink()
    home.run("status", "a").ended(4, "run 'a' has no journal in", "the command that made it does it again")
    home.run(*small.fuzz("a", "--seed", "9")).ended(4, "made with another configuration", "run.seed")
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(run) == small.committed(made / "runs" / "a")
    assert list((run / "quarantine").glob("cases_*"))


def test_a_run_that_had_only_begun_does_not_block_its_name(made: Path, tmp_path: Path, home: Nursery) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs"))
    run = tmp_path / "runs" / "a"
    stopped = "from assay.engines import campaign\ndef no(*_):\n    raise RuntimeError\ncampaign.Campaign.prepare = no"
    assert home.run(*small.fuzz("a", "--seed", "9"), before=stopped).code == 3
    assert len((run / "journal.jsonl").read_text().splitlines()) == 1
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(run) == small.committed(made / "runs" / "a")
    assert {path.name for path in (run / "quarantine").iterdir()} >= {"campaign.toml.1", "journal.jsonl.1"}
    home.run(*small.fuzz("a", "--seed", "9")).ended(4, "another configuration")


def test_a_refused_command_leaves_no_folder(made: Path, tmp_path: Path, home: Nursery) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs"))
    import numpy as np

    kept = np.load("seeds.npz")
    np.savez("wrong.npz", x=kept["x"], y=(kept["y"] + 1) % 10)  # none of them is classified as labelled
    arguments = [part if part != "seeds.npz" else "wrong.npz" for part in small.fuzz("a")]
    home.run(*arguments).ended(5)
    home.run(*(part for part in arguments if part not in ("--run", "a"))).ended(5)
    assert not list((tmp_path / "runs").iterdir())
