"""The page of an arena: its table, who is told apart from whom, what each row took, and how to make it again."""

from pathlib import Path

from assay.core.errors import UsageError
from assay.core.files import make_folder, write_atomic
from assay.engines.arena import Arena
from assay.engines.arena_folder import PROTOCOL
from assay.engines.arena_standing import Standing
from assay.outputs.arena_tables import (
    cell_text,
    inputs_hash,
    meaning,
    not_run,
    part_of,
    spending,
    spent_names,
    spent_texts,
    title_of,
)
from assay.outputs.report.charts import Bar, bars
from assay.outputs.report.parts import Cell, Chart, Commands, Facts, Note, Page, Section, Table
from assay.outputs.report.place import page_path
from assay.outputs.report.render import rendered


def is_arena(place: str | Path) -> bool:
    """Whether an arena is kept in that folder."""
    return (Path(place) / PROTOCOL).is_file()


def arena_report(place: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of an arena, ``report/index.html`` in its folder unless ``out`` names another; its path."""
    told = Arena.read(place)
    if not told.rows:
        raise UsageError(f"{place} has no row yet; assay arena MODEL --data DATA --out {place} makes some")
    path = Path(place) / "report" / "index.html" if out is None else page_path(out)
    make_folder(path.parent)
    write_atomic(path, rendered(arena_page(told)))
    return path


def arena_page(told: Arena) -> Page:
    """Everything that is shown."""
    standing, protocol = told.standing(), told.protocol
    numbers = Table(
        ("row", *standing.columns, *spent_names(standing)),
        tuple(_row(told, standing, row) for row in standing.cells),
        note=" ".join(meaning(told)),
    )
    left = tuple((row, why or "not asked for") for row, why in not_run(told).items())
    attacks = {name: "; ".join(told_of["attacks"]) or "no attack" for name, told_of in protocol["columns"].items()}
    sections = (
        Section("numbers", "All rows", (numbers, *_charts(standing))),
        Section("apart", "Told apart from the best", (_apart(standing),)),
        Section("not-run", "Rows not run", (Table(("row", "why"), left),) if left else ()),
        Section("protocol", "How it was measured", (Facts({**_facts(told), **attacks}),)),
        Section("again", "Make a row again", (_commands(told),)),
    )
    facts = {"model": str(protocol["model"]), "data": str(protocol["data"]), "inputs": str(protocol["n"])}
    return Page(title_of(told), Note(_verdict(standing)), sections, facts)


def _row(told: Arena, standing: Standing, row: str) -> tuple[Cell | str, ...]:
    hint = f"n={told.protocol['n']}, {told.protocol['norm']} eps={told.protocol['eps_text']}"
    cells = (
        Cell(
            cell_text(cell),
            f"{hint}, {name}, {cell.seeds} seeds, data {inputs_hash(told.protocol)}",
            "bad" if cell.unreliable else "good" if standing.stands_out(row, name) else "",
        )
        for name, cell in standing.cells[row].items()
    )
    return (row, *cells, *spent_texts(standing, row))


def _charts(standing: Standing) -> list[Chart]:
    """A bar a row in each column; lines reach from the least seed to the largest."""
    charts = []
    for name in standing.columns:
        cells = {row: cells[name] for row, cells in standing.cells.items()}
        series = [Bar(cell.mean, *(cell.ci95 or (cell.low, cell.high))) for cell in cells.values()]
        table = Table(("row", name), tuple((row, cell_text(cell)) for row, cell in cells.items()))
        title = f"{name} ({standing.kinds[name]})"
        charts.append(Chart(bars(title, list(cells), {name: series}), title, table))
    return charts


def _apart(standing: Standing) -> Table:
    """What the difference of each row to the best of a column is worth."""
    rows = []
    for name in standing.columns:
        first = max(standing.cells, key=lambda row: standing.cells[row][name].mean)
        for row, cells in standing.cells.items():
            cell = cells[name]
            if row != first and cell.p is not None:
                points = f"{100 * (cell.mean - standing.cells[first][name].mean):+.1f} points"
                rows.append((f"{name}: {row} − {first}", points, f"{cell.p:.2g}", "no" if cell.best else "told apart"))
    return Table(("", "difference", "p (Holm)", ""), tuple(rows))


def _facts(told: Arena) -> dict[str, str]:
    p = told.protocol
    return {
        "each row": f"{spending(p)}; counted is {p['counted']}",
        "model hash": str(p["model_fingerprint"]),
        f"{part_of(p)} data hash": inputs_hash(p),
        "ball": f"{p['norm']} eps={p['eps_text']}",
        "rounds chosen by": f"{p['val_cases']} validation inputs, attacks' mean",
        "versions": ", ".join(f"{name} {version}" for name, version in p["versions"].items()),
    }


def _commands(told: Arena) -> Commands:
    last = {str(row["row"]): str(row["command"]) for row in sorted(told.rows, key=lambda row: int(row["seed"]))}
    return Commands(tuple((row, f"{command} --out OUT") for row, command in last.items()))


def _verdict(standing: Standing) -> str:
    """Who leads where."""
    said = []
    for name in standing.columns:
        best = [row for row in standing.cells if standing.stands_out(row, name)]
        said.append(f"{name}: {', '.join(best)}" if best else f"{name}: none is told apart from the best")
    return f"Best, or not told apart from the best. {'; '.join(said)}."
