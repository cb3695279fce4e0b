"""On a GPU the outcome of a step is looked at when the next one begins, and masks are not looked up: same results."""

from pathlib import Path

import pytest
import torch

import assay
import small
from assay.core import rows
from assay.core.store import read
from assay.engines.lanes import Lanes
from assay.engines.unit import Unit

BEGIN = Lanes.__init__


def late(self: Lanes, *given: object, **named: object) -> None:
    BEGIN(self, *given, **named)  # type: ignore[arg-type]  # whatever it takes
    self.late = True


def stored(run: Path) -> list[tuple[dict[str, str], dict[str, int]]]:
    """The digests of what was committed, and what was counted."""
    return [(dict(line.files), dict(line.meta["counts"])) for line in read(run).commits("fuzz")]


@pytest.mark.parametrize("recipe", ["robot", "noise", "deephunter"])
@pytest.mark.parametrize("unit", [4, 64])
def test_a_late_look_finds_the_same(recipe: str, unit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small.prepare(tmp_path)

    def fuzz(name: str) -> list[tuple[dict[str, str], dict[str, int]]]:
        eps = 0.9 if recipe == "noise" else None
        found = assay.fuzz(
            recipe,
            small.MODEL,
            "seeds.npz",
            run=name,
            training="seeds.npz",
            eps=eps,
            unit=unit,
            lanes=8,
            cases=400,
            deterministic=True,
        )
        assert found.cases >= 400
        return stored(found.run)

    soon = fuzz("soon")
    monkeypatch.setattr(Lanes, "__init__", late)
    monkeypatch.setattr(rows, "_all_at_once", lambda mask: True)
    assert fuzz("late") == soon
    assert any(files for files, _ in soon), "nothing was found that could differ"


def test_a_unit_is_closed_only_when_the_step_under_way_has_been_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit(0, 0, torch.arange(2))
    lanes = Lanes.__new__(Lanes)
    lanes.open, lanes._lanes = [unit], None
    open_then: list[list[Unit]] = []
    monkeypatch.setattr(Lanes, "settle", lambda self: open_then.append(list(self.open)))
    lanes.close(unit)  # one of its seeds may have failed in that step: whose it is must be known
    assert open_then == [[unit]]
    assert lanes.open == []


def test_rows_all_at_once_are_those_of_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    memory, new = torch.rand(6, 3, 2, generator=draw), torch.rand(6, 2, generator=draw)
    place, mask = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([True, False, True, False, False, True])
    found = {}
    for at_once in (False, True):
        monkeypatch.setattr(rows, "_all_at_once", lambda _, at_once=at_once: at_once)
        written = memory.clone()
        rows.put_where(written, mask, place, new)
        found[at_once] = written, rows.taken_where(memory, mask, place, new)
    for few, all_ in zip(*found.values(), strict=True):
        assert torch.equal(few, all_)
    written, taken = found[True]
    assert torch.equal(written[0, 0], new[0])
    assert torch.equal(written[1], memory[1])
    assert torch.equal(taken[5], memory[5, 2])
    assert torch.equal(taken[4], new[4])
