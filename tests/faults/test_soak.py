"""Ten thousand commits: memory and open files stay flat, and the last commit costs no more calls than the first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMITS, WARM = 10_000, 1_000

# A whole fuzzing run of a tiny net, one seed a commit. What a disk does with 10 000 fsyncs is not measured here.
WORK = """
import gc, json, os, resource, sys
from pathlib import Path
os.fsync = lambda handle: None
from assay.core import store
from assay.cli import run
real, seen = store.Store.commit, []
def told():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"rss": pages * resource.getpagesize(), "files": len(os.listdir("/proc/self/fd"))}
calls = 0
opened = os.open
def counted(*given, **more):
    global calls
    calls += 1
    return opened(*given, **more)
os.open = counted
def commit(self, files, **meta):
    before = calls
    real(self, files, **meta)
    if len(self.lines) in SHOWN:
        seen.append(told() | {"lines": len(self.lines), "calls": calls - before, "shards": len(files)})
store.Store.commit = commit
code = run(sys.argv[1:])
read = []
for _ in range(6):
    found = store.read(Path(os.environ["ASSAY_RUNS"]) / "soak")
    read.append(told() | {"lines": len(found.lines)})
    del found
print(json.dumps({"code": code, "seen": seen, "read": read}))
"""

CAMPAIGN = """
[run]
seed = 3
unit = 1
[recipe]
name = "noise"
mutate = "noise(eps=0.9)"
schedule = "per_seed(steps=1, failures=1)"
"""


@pytest.mark.slow
def test_memory_and_open_files_stay_flat(tmp_path: Path) -> None:
    import small

    small.prepare(tmp_path, CAMPAIGN, 64)
    done = subprocess.run(
        [sys.executable, "-c", f"SHOWN = ({WARM}, {COMMITS}){WORK}", *small.fuzz("soak", "--cases", str(COMMITS))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 0
    early, late = told["seen"]
    assert (early["lines"], late["lines"]) == (WARM, COMMITS)
    assert late["rss"] <= 1.05 * early["rss"], told
    assert late["files"] == early["files"], told
    assert late["calls"] - 2 * late["shards"] == early["calls"] - 2 * early["shards"], "a commit is no dearer later"
    first, last = told["read"][1], told["read"][-1]
    assert last["lines"] >= COMMITS
    assert last["rss"] <= 1.05 * first["rss"], told
    assert last["files"] == first["files"], told
