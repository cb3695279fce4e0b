"""The registry as a table."""

from rich.table import Table

from assay.core.entries import Entry
from assay.core.registry import ENGINE_ARGUMENTS
from assay.outputs.screen import plain


def listing(kind: str, found: list[Entry]) -> Table:
    """Name, summary, what it needs of a target, parameters with their defaults, paper."""
    table = Table(title=kind, title_justify="left", expand=False)
    for column in ("name", "what it does", "needs", "parameters", "paper"):
        table.add_column(column, overflow="fold")
    for e in found:
        parameters = ", ".join(
            p.name if p.default is None else f"{p.name}={p.default}"
            for p in e.parameters
            if p.name not in ENGINE_ARGUMENTS
        )
        table.add_row(
            *(plain(text) for text in (e.name, e.summary.replace("``", ""), ", ".join(e.needs), parameters, e.paper))
        )
    return table
