"""A disk that is full, read-only or over its quota: exit 3 within one step, with the bytes needed; then the same
command finishes, and nothing shows that anything happened.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

import small
from commands import Nursery, Result, assay
from injected import breaking

SAID = 1000  # bytes that a message may take: its file must not grow either
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"


def no_mounts() -> bool:
    """Whether this machine lets nobody mount a file system of their own."""
    return bool(subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode)


def in_a_small_disk(disk: Path, size: str, *commands: str) -> Result:
    """Shell commands where a file system of that size lies at ``disk``."""
    mount = f"mount -t tmpfs -o size={size} none {disk}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", " ; ".join((mount, *commands))],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.skipif(no_mounts(), reason="no file systems of one's own here")
def test_a_real_disk_fills_and_is_freed(root: Path, tmp_path: Path) -> None:
    """On a file system of 200 kB of which something else takes most, until it is removed."""
    import shlex
    import sys

    disk = tmp_path / "disk"
    disk.mkdir()
    assay_ = f"{sys.executable} -m assay"
    fuzz, status = (shlex.join(part) for part in (small.fuzz("a"), ["status", "a"]))
    told = in_a_small_disk(
        disk,
        "200k",
        f"export ASSAY_RUNS={disk}",
        f"head -c 140000 /dev/zero > {disk}/ballast",
        f"{assay_} {fuzz} >/dev/null; echo first $?",
        f"find {disk} -name '*.tmp' | wc -l",
        f"{assay_} {status} >/dev/null; echo status $?",
        f"rm {disk}/ballast",
        f"{assay_} {fuzz} >/dev/null; echo second $?",
        f"cp -r {disk}/a {tmp_path}/kept",
        f"mount -o remount,ro {disk}",
        f"{assay_} {shlex.join(small.fuzz('b'))}; echo readonly $?",
        f"{assay_} {status} >/dev/null; echo status $?",
    )
    words = told.out.split("\n")
    assert [w for w in words if w] == ["first 3", "0", "status 0", "second 0", "readonly 3", "status 0"], told
    assert re.search(r"error: cannot write .+: the disk is full \(\d+ bytes needed\)", told.err), told.err
    assert "the file system is read-only" in told.err
    assert "Traceback" not in told.err
    assay(*small.fuzz("alone")).ended(0)
    assert small.committed(tmp_path / "kept") == small.committed(root / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ENOSPC", "EDQUOT", "EROFS", "EIO"])
def test_a_disk_that_stays_broken_ends_the_run_within_a_step(
    how: str, home: Nursery, root: Path, tmp_path: Path
) -> None:
    """From some call on every one fails, those that clean up too where such a disk refuses them."""
    log = tmp_path / "calls"
    home.run(*small.fuzz("alone"), before=breaking(root, log)).ended(0)
    noted = log.read_text().splitlines()
    shard = next(i for i, call in enumerate(noted, 1) if call.startswith("write alone/cases/"))
    for number in (1, 5, shard):
        home.run(*small.fuzz("a"), before=breaking(root, log, number, how, for_good=True)).ended(
            3, "error: cannot write", "what was committed before is intact"
        )
        after = log.read_text().splitlines()[number:]
        assert len(after) < 8, f"it went on for {after}"
    if how in ("ENOSPC", "EDQUOT"):
        assert not list(root.rglob("*.tmp"))
    home.run("status", "a").ended(0)
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(root / "a") == small.committed(root / "alone")
    assert not list(root.rglob("*.tmp"))


def test_files_may_not_grow(home: Nursery, root: Path) -> None:
    """``ulimit -f``: the system refuses what is larger, for every file of the run."""
    home.run(*small.fuzz("alone")).ended(0)
    sizes = {len(content) for content in small.committed(root / "alone").values()}
    for limit in sorted(size for size in sizes if size > SAID):
        home.run(*small.fuzz("a"), before=LIMIT.format(limit - 1)).ended(3, "bytes needed", "ulimit -f")
        assert not list(root.rglob("*.tmp"))
    home.run(*small.fuzz("a")).ended(0)
    assert small.committed(root / "a") == small.committed(root / "alone")


EXPORTS = [["export", "a", "--to", "npz"], ["export", "a", "--to", "images"]]
OTHERS = [
    (["report", "a"], "runs/a/report"),
    (["select", "a", "--by", "random", "-k", "3"], "runs/a/state"),
    (["shrink", "a", "-k", "3", "--quiet"], "runs/a/state"),
    (["train", "tiny.py:net", "--data", "digits", "--epochs", "1", "--quiet", "--out", "out/w.safetensors"], "out"),
    (["eval", small.MODEL, "--data", "seeds.npz", "--eps", "0.1", "--save", "e", "--quiet"], "runs/e"),
    (["prioritise", small.MODEL, "--pool", "seeds.npz", "--run", "p", "--quiet"], "runs/p"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "place"), OTHERS, ids=[one[0][0] for one in OTHERS])
def test_every_command_that_writes(arguments: list[str], place: str, home: Nursery, root: Path, tmp_path: Path) -> None:
    """Its first write of a file of its own fails, and then all: exit 3 and one message, and later it does its work."""
    (tmp_path / "out").mkdir()
    home.run(*small.fuzz("a")).ended(0)
    before = small.committed(root / "a")
    log = tmp_path / "log"
    home.run(*arguments, before=breaking(tmp_path / place, log, 1, "ENOSPC", for_good=True)).ended(
        3, "error: cannot write", "the disk is full"
    )
    assert small.committed(root / "a") == before, "what was committed is intact"
    assert not list(tmp_path.rglob("*.tmp"))
    home.run("status", "a").ended(0)
    home.run(*arguments).ended(0)


@pytest.mark.parametrize("arguments", EXPORTS, ids=["npz", "images"])
def test_an_export_that_does_not_fit(arguments: list[str], home: Nursery, root: Path, tmp_path: Path) -> None:
    home.run(*small.fuzz("a")).ended(0)
    out = "a.npz" if "npz" in arguments else "pictures"
    told = [*arguments, "--out", out]
    home.run(*told, before=LIMIT.format(SAID)).ended(3, "error: cannot write")
    assert not Path(out).exists()
    assert not list(tmp_path.glob(".assay-*"))
    home.run(*told).ended(0)


def test_a_cache_that_cannot_be_written_costs_time_only(home: Nursery, root: Path, tmp_path: Path) -> None:
    home.run(*small.fuzz("alone")).ended(0)
    cache = Path(os.environ["ASSAY_CACHE"])
    kept = {path for path in cache.rglob("*") if path.is_file()}
    assert kept
    for number, how in ((1, "ENOSPC"), (1, "EROFS")):
        name, broken = f"a{how.lower()}", tmp_path / how
        home.run(
            *small.fuzz(name), before=breaking(broken, tmp_path / "log", number, how, for_good=True), env=_cache(broken)
        ).ended(0)
        assert small.committed(root / name) == small.committed(root / "alone")


def _cache(folder: Path) -> dict[str, str]:
    return {"ASSAY_CACHE": str(folder)}
