"""Printing tables on stdout; knows no torch, so that looking is quick."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from assay.outputs.screen import plain

WIDE = 160  # columns where stdout is a file or a pipe


def show(table: Table) -> None:
    """Print to stdout; where that is no terminal, wide enough that nothing is folded."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDE)
    console.print(table)


def facts_table(facts: Mapping[str, Any], title: str = "") -> Table:
    """Names and values."""
    table = Table(title=plain(title) or None, show_header=False)
    for name, value in facts.items():
        table.add_row(name, plain(str(value)))
    return table
