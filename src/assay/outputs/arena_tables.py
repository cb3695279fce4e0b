"""The table of an arena: for the screen, and as Markdown for pages."""

import re
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from assay.core.registry import names
from assay.core.specs import canonical, step, written
from assay.core.units import clock
from assay.engines.arena import TEST, VAL, Arena
from assay.engines.arena_columns import UNSEEN
from assay.engines.arena_row import NONE
from assay.engines.arena_standing import SURE, Cell, Standing, unseen_in
from assay.outputs.harden_tables import harden_line
from assay.outputs.screen import eval_line, plain

SPENT = ("seconds", "passes", "found", "distinct")  # what a row took and found, behind the columns
PARTS = {TEST: "test", VAL: "validation"}
MOVES = re.compile(r"\b(shift|rotate|scale)\b")  # in what a trainer says of augmentation
UNEVEN = 1.5  # times the passes of another seed in the same time: no chance, but another share of the machine
SCALE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def arena_table(told: Arena) -> Table:
    """A row a recipe or trainer; the best of each column stand out."""
    standing = told.standing()
    table = Table(title=plain(title_of(told)), caption="\n".join(map(plain, meaning(told))))
    table.add_column("row")
    for name in (*standing.columns, *spent_names(standing)):
        table.add_column(plain(name), justify="right")
    for row, cells in standing.cells.items():
        bold = {name: "bold" if standing.stands_out(row, name) else "" for name in cells}
        numbers = (Text(cell_text(cell, "\n"), style=bold[name]) for name, cell in cells.items())
        table.add_row(plain(row), *numbers, *spent_texts(standing, row))
    return table


def arena_markdown(told: Arena) -> str:
    """The same as Markdown: what was measured, the table, what it means, and the rows that are not there."""
    standing = told.standing()
    head = ("row", *standing.columns, *spent_names(standing))
    lines = [f"| {' | '.join(map(_escaped, head))} |", f"|---{'|---:' * (len(head) - 1)}|"]
    for row, cells in standing.cells.items():
        marks = {name: "**" if standing.stands_out(row, name) else "" for name in cells}
        numbers = (f"{marks[name]}{cell_text(cell)}{marks[name]}" for name, cell in cells.items())
        lines.append(f"| `{_escaped(row)}` | {' | '.join([*numbers, *spent_texts(standing, row)])} |")
    missing = [f"`{_escaped(row)}`" + (f" ({_escaped(why)})" if why else "") for row, why in not_run(told).items()]
    left = f"Rows not run: {', '.join(missing)}." if missing else "No recipe and no trainer is left out."
    return "\n".join([f"**{_escaped(title_of(told))}**", "", *lines, "", *map(_escaped, meaning(told)), "", left, ""])


def title_of(told: Arena) -> str:
    """Model, data, number of inputs and ball."""
    p = told.protocol
    inputs = f"{p['n']} {part_of(p)} inputs"
    return f"{p['model']} on {p['data']}, {inputs}, {p['norm']} eps={p['eps_text']}, {spending(p)} a row"


def part_of(protocol: Mapping[str, Any]) -> str:
    """Which inputs an arena measures on, in words."""
    return PARTS[str(protocol.get("part", TEST))]


def inputs_hash(protocol: Mapping[str, Any]) -> str:
    """The fingerprint of these inputs."""
    return str(protocol[f"{protocol.get('part', TEST)}_fingerprint"])


def spending(protocol: Mapping[str, Any]) -> str:
    """What each row may spend."""
    return f"{amount(protocol['passes'])} passes" if "passes" in protocol else clock(float(protocol["time"]))


def meaning(told: Arena) -> list[str]:
    """How the table is to be read, a sentence or two a line."""
    standing = told.standing()
    said = [
        f"Percent right: mean over seeds (least–largest of them; of a single seed its 95 % interval). Counted: "
        f"{told.protocol['counted']}.",
        "Bold: the best of a column and what is not told apart from it, where anything is. Two rows are told apart "
        "input by input, over the same inputs (McNemar's test; over several seeds, of each input's share), with p "
        f"below {SURE} by Holm over all pairs of rows, and only where no seed of one is as good as one of the other.",
    ]
    if shared := told.protocol.get("trainers"):
        told_so = ", ".join(f"{name}={written(value)}" for name, value in shared.items())
        said.append(f"Every row that is a trainer has {told_so}, as far as it knows them; recipes have their own.")
    if "static" in standing.kinds.values():
        made = ", ".join(name for name, kind in standing.kinds.items() if kind == "static")
        said.append(
            f"Static: {made} has examples made on the model that all rows start from; the others are white box."
        )
    if others := unseen_in(told.protocol):
        said.append(
            f"{UNSEEN} is the mean of {', '.join(others)}: attacks that no row trains with unless its name says so."
        )
    movers = [row for row in standing.cells if _moves(told, row)]
    if movers and any(name.split("(")[0] == "spatial" for name in told.protocol["columns"]):
        said.append(f"Near to spatial, these move the images that they learn from at random: {', '.join(movers)}.")
    unlike = [row for row in standing.cells if len(_settings(told, row)) > 1]
    said += [f"Seeds of unlike settings, so their mean is of two things: {', '.join(unlike)}."] if unlike else []
    columns, most = told.protocol["columns"], told.protocol["n"]
    limited = [f"{name} of {p['cases']}" for name, p in columns.items() if (p.get("cases") or most) < most]
    said += [f"Of fewer inputs: {', '.join(limited)}."] if limited else []
    checks = {name for row in standing.cells.values() for cell in row.values() for name in cell.unreliable}
    said += (
        [f"* unreliable, and compared with nothing: {', '.join(sorted(checks))} (docs/checks.md)."] if checks else []
    )
    late = [row for row in standing.cells if beyond(standing.spent[row], told.protocol)]
    said += [f"Took more than half as much again as they may: {', '.join(late)}."] if late else []
    if "time" in told.protocol and (uneven := [row for row in standing.cells if _uneven(told, row)]):
        said.append(
            f"In the same time some seeds of these made more than {UNEVEN:g} times the passes of others, so their "
            f"spread is that of a busy machine, too: {', '.join(uneven)}."
        )
    machines = {_machine(row) for row in told.rows}
    if len(machines) > 1:
        said.append(f"Rows were run on different machines, so equal times are not equal work: {'; '.join(machines)}.")
    return said


def _moves(told: Arena, row: str) -> bool:
    """Whether the trainer of a row shifts, turns or scales what it learns from; one of others may have other words."""
    trainers = [(one["made"].get("stages") or {}).get("train") for one in told.rows if one["row"] == row]
    return any(MOVES.search(str(step(one)[1].get("augment", ""))) for one in trainers if one)


def _uneven(told: Arena, row: str) -> bool:
    """Whether seeds of a row had unlike shares of the machine."""
    passes = [float(one["made"]["passes"]) for one in told.rows if one["row"] == row]
    return max(passes) > UNEVEN * min(passes)


def _settings(told: Arena, row: str) -> set[str]:
    """How the stages of a row were set, over its seeds: a recipe may have changed between them."""
    return {str(one["made"].get("stages")) for one in told.rows if one["row"] == row}


def beyond(spent: Mapping[str, float | None], protocol: Mapping[str, Any]) -> bool:
    """Whether a row took a good deal more than it may."""
    name = "passes" if "passes" in protocol else "seconds"
    return (spent[name] or 0.0) > 1.5 * float(protocol.get("passes") or protocol["time"])


def _machine(row: Mapping[str, Any]) -> str:
    told = row["environment"]
    return f"{told.get('cuda') or told['machine']}, {told['cores']} cores, torch {told['packages']['torch']}"


def not_run(told: Arena) -> dict[str, str]:
    """Every recipe and trainer that has no row here, with the reason where it was tried."""
    there = {str(row["row"]) for row in told.rows}
    tried = {str(one["row"]): str(one["why"]) for one in told.not_run if one["row"] not in there}
    known = {canonical(row.split("(")[0]) for row in (*there, *tried)}
    rest = {canonical(name): name for name in (*names("trainer"), *names("recipe"))}  # one name may be both
    return tried | {name: "" for key, name in sorted(rest.items()) if key not in known}


def cell_text(cell: Cell, between: str = " ") -> str:
    """``43.5 (41.0–45.0)``, with a star where a check spoils it."""
    low, high = cell.ci95 if cell.ci95 is not None else (cell.low, cell.high)
    star = "*" * bool(cell.unreliable)
    return f"{100 * cell.mean:.1f}{star}{between}({100 * low:.1f}–{100 * high:.1f})"


def spent_names(standing: Standing) -> list[str]:
    """Those of the last columns that any row has a number in."""
    return [name for name in SPENT if any(spent[name] is not None for spent in standing.spent.values())]


def spent_texts(standing: Standing, row: str) -> list[str]:
    numbers = ((name, standing.spent[row][name]) for name in spent_names(standing))
    return ["–" if value is None else f"{value:.1f}" if name == "seconds" else amount(value) for name, value in numbers]


def amount(value: float) -> str:
    """A count in three figures.

    >>> amount(1234567), amount(87.3)
    ('1.23M', '87')
    """
    for size, sign in SCALE:
        if value >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.0f}"


def _escaped(text: str) -> str:
    return plain(text).replace("|", "\\|").replace("*", "\\*")


def arena_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """The row and seed, and what is being done for it."""
    place = f"{numbers['row']}, seed {numbers['seed']}" if numbers["row"] != NONE else "the model as it is"
    if numbers["phase"] == "columns":
        text, share = eval_line(numbers)
        return f"{place}: {numbers['column']}: {text}", share
    text, share = harden_line(numbers)
    return f"{place}: {text}", share
