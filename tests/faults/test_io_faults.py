"""Every call to the disk fails once, is cut short, or is the last the process makes: the same command then finishes,
and what it leaves equals an undisturbed run.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import small
from commands import Nursery
from injected import KILLED, KILLED_WITHIN, SHORT, breaking, calls, swept

pytestmark = pytest.mark.slow

ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS")
ONE_COMMIT = 6  # files of the unit that was open: two shards, two of guidance, a torn journal, a temporary file


def alone(run: Path) -> dict[str, bytes]:
    found = small.committed(run)
    assert len(found) > 4
    return found


def check(told: list[Any], root: Path, undisturbed: dict[str, bytes], codes: tuple[int, ...], again: int = 0) -> None:
    """What must hold after each fault: the command's exit, status meanwhile, and the run in the end."""
    whole = undisturbed["journal.jsonl"].decode()
    for point in told:
        name, broken = point["name"], point["broken"]
        assert "Traceback" not in broken["err"], f"{name}: {broken['err']}"
        assert broken["code"] in codes, f"{name}: exit {broken['code']}: {broken['err']}"
        lines = small.timeless(point["journal"][: point["journal"].rfind("\n") + 1].encode()).decode()
        assert whole.startswith(lines), f"{name}: a line that no undisturbed run writes"
        assert point["status"]["code"] == (0 if point["there"] else 4), f"{name}: {point['status']}"
        assert "Traceback" not in point["status"]["err"], f"{name}: {point['status']['err']}"
        assert point["again"]["code"] == again, f"{name}: {point['again']['err']}"
        final = small.committed(root / name)
        assert final == undisturbed, f"{name}: {sorted(k for k in undisturbed if final.get(k) != undisturbed[k])}"
        assert final["journal.jsonl"].decode().startswith(lines), f"{name}: a commit was lost"
        assert not list((root / name).rglob("*.tmp")), name
        aside = list((root / name).rglob("quarantine/*"))
        assert len(aside) <= ONE_COMMIT, f"{name}: more than the open unit was done again: {aside}"


def test_each_call_of_a_run_fails_once(home: Nursery, root: Path, tmp_path: Path) -> None:
    noted = calls(home, root, tmp_path / "calls", *small.fuzz("alone"))
    points = [(i, ERRORS[i % len(ERRORS)]) for i in range(1, len(noted) + 1)]
    told = swept(home, root, tmp_path / "sweep", small.fuzz("{}"), points)
    check(told, root, alone(root / "alone"), (0, 3))
    for number, point in enumerate(told, 1):
        call, said = noted[number - 1], point["broken"]["err"]
        last = number == len(noted)  # signing off: the work is done by then
        assert point["broken"]["code"] == (0 if last else 3), f"{call}: {point['broken']}"
        assert not point["left"], f"{call}: {point['left']}"
        wanted = r"error: cannot write .+; what was committed before is intact, the same command goes on from there"
        assert last or re.search(wanted, said), f"{call}: {said}"
        if call.startswith(("write", "replace")):
            assert re.search(r"\(\d+ bytes needed\)", said), f"{call}: {said}"


def test_the_process_dies_at_each_call(home: Nursery, root: Path, tmp_path: Path) -> None:
    noted = calls(home, root, tmp_path / "calls", *small.fuzz("alone"))
    points = [(i, KILLED) for i, call in enumerate(noted, 1) if not call.startswith(("open", "utime"))]
    points += [(i, KILLED_WITHIN) for i, call in enumerate(noted, 1) if call.startswith("write")]
    told = swept(home, root, tmp_path / "sweep", small.fuzz("{}"), points)
    check(told, root, alone(root / "alone"), (-9,))
    units = [json.loads(line)["meta"].get("unit") for line in (root / "alone" / "journal.jsonl").open()]
    assert len([u for u in units if u is not None]) == len({u for u in units if u is not None}) >= 2


def test_writes_that_take_a_part_only_go_on(home: Nursery, root: Path, tmp_path: Path) -> None:
    calls(home, root, tmp_path / "calls", *small.fuzz("alone"))
    home.run(*small.fuzz("short"), before=breaking(root, tmp_path / "log", 1, SHORT, for_good=True)).ended(0)
    assert small.committed(root / "short") == alone(root / "alone")
    assert (tmp_path / "log").read_text().count("write") > 2 * (tmp_path / "calls").read_text().count("write")


@pytest.mark.parametrize(
    ("arguments", "code", "every"), [(small.EVAL, 0, 3), (small.HARDEN, 1, 25)], ids=["eval", "harden"]
)
def test_other_runs_too(arguments: list[str], code: int, every: int, home: Nursery, root: Path, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    done = home.run(*(part.replace("{}", "alone") for part in arguments), before=breaking(root, log)).ended(code)
    assert done.code == code
    noted = log.read_text().splitlines()
    points = [(i, (*ERRORS, KILLED)[i // every % 5]) for i in range(2, len(noted) - 1, every)]
    told = swept(home, root, tmp_path / "sweep", arguments, points)
    check(told, root, alone(root / "alone"), (3, -9), code)
