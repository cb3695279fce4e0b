"""Printing tables on stdout; knows no torch, so that looking is quick."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from assay.outputs.screen import Lines, plain

WIDE = 160  # columns where stdout is a file or a pipe


def show(table: Table) -> None:
    """Print to stdout; where that is no terminal, wide enough that nothing is folded."""
    # No markup: brackets in a name are part of the name, and would be links and colours otherwise.
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=WIDE)
    console.print(table)


def facts_table(facts: Mapping[str, Any], title: str = "") -> Table:
    """Names and values."""
    table = Table(title=plain(title) or None, show_header=False)
    for name, value in facts.items():
        table.add_row(plain(name), value if isinstance(value, Lines) else plain(str(value)))
    return table
