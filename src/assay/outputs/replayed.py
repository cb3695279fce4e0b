"""What became of old failures, as tables for people."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from assay.engines.regress import Regressed
from assay.engines.replay import VERDICTS, Replayed
from assay.outputs.screen import plain

ROWS = 20  # failures in a table


def replay_table(told: Replayed) -> Table:
    """A row a failure, of the first ones."""
    rest = len(told) - ROWS
    table = Table(
        title=plain(f"run {told.run}: {_counts(told.counts())}"),
        caption=f"asked {told.repeats} times each, alone, in float32; fails by {plain(told.oracle)}"
        + (f"; {rest} more are in --json" if rest > 0 else ""),
    )
    for column in ("id", "verdict", "answer", "failed", "confidence"):
        table.add_column(column, justify="right" if column in ("failed", "confidence") else "left")
    for failure in told.failures[:ROWS]:
        sure = "–" if failure.confidence is None else f"{failure.confidence:.3f}"
        row = (failure.id, failure.verdict, plain(failure.told), f"{failure.failed} of {failure.asked}", sure)
        table.add_row(*row)
    return table


def regress_table(told: Regressed) -> Table:
    """A row a run; these are no part of any accuracy."""
    table = Table(title="old failures, asked first", caption="no number below counts them; assay replay tells of each")
    for column in ("run", "failures", "fixed", "still failing", "flaky"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for run in told.runs:
        counts = run.counts()
        cells = (len(run), counts["fixed"], counts["still_failing"], counts["flaky"])
        table.add_row(plain(run.run), *map(str, cells))
    return table


def regress_lines(told: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a saved evaluation keeps of old failures, a line a run."""
    return [
        f"{one['of']} of {_place(one['run'])}: {_counts({name: one[name] for name in VERDICTS.values()})}"
        + ("" if one["complete"] else "; the same command goes on")
        for one in told
    ]


def _place(text: str) -> str:
    """A path as it is from here, where it lies below."""
    path, here = Path(text), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else text


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
