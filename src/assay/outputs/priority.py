"""Orders of tests as tables for people and as files for programs."""

import csv
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from assay.core.cases import UNLABELLED
from assay.core.errors import UsageError
from assay.core.files import storage_error
from assay.core.ids import case_ids
from assay.core.places import known_as
from assay.engines.ordering import Ordered
from assay.engines.prioritise import Prioritised
from assay.engines.ranking_measures import Measures
from assay.outputs.export import csv_text
from assay.outputs.screen import plain
from assay.outputs.tables import asked_line

COLUMNS = ("rank", "row", "score", "predicted", "label")
SHOWN = 8  # rows of an order that a table shows


def priority_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """How far a prioritisation is."""
    return f"{numbers['done']} of {numbers['of']} methods, {plain(numbers['by'])}", numbers["done"] / numbers["of"]


def priority_table(result: Prioritised) -> Table:
    """A row a method, then the pool's own order and random ones."""
    n, labelled = len(result), result.labelled
    has_labels = bool((result.pool.cases.y != UNLABELLED).any())
    faults = ", not measured" if has_labels else ", no labels"
    if labelled:
        faults = f", {result.faults} wrong ({result.faults / labelled:.1%})"
    few = "" if labelled in (0, n) else f", of {labelled} with labels"
    notes = [
        *([f"forward pass {result.seconds:.2f} s, shared"] if result.seconds else []),
        *([result.layers] if result.layers else []),
        *([f"training data {result.training}"] if result.training else []),
        *(["APFD between its bounds: 1 where all wrong ones come first, 0 where last"] if labelled else []),
    ]
    table = Table(title=plain(f"{result.pool.name}, n={n}{faults}{few}, seed {result.seed}"), caption="; ".join(notes))
    table.add_column("by")
    numbers = ("APFD", "between bounds", f"wrong in first {result.k}", "of those possible") if labelled else ("first",)
    for column in (*numbers, "seconds"):
        table.add_column(column, justify="right")
    for method in result.methods:
        table.add_row(plain(method.by), *_cells(method, len(numbers)))
    if result.as_it_stands is not None:
        table.add_row("the pool as it stands", *_measured(result.as_it_stands), "", style="dim")
    if result.chance is not None:
        mean, spread = result.chance.mean, result.chance.spread
        cells = (
            _with_spread(mean.apfd, spread.apfd),
            _with_spread(mean.apfd_norm, spread.apfd_norm),
            f"{mean.faults:.1f} ± {spread.faults:.1f}",
            _with_spread(mean.rate, spread.rate),
        )
        table.add_row(f"random, {result.chance.drawn} orders", *cells, "", style="dim")
    return table


def reasons(result: Prioritised) -> list[str]:
    """Why methods that do not apply to this model do not, a line for each reason."""
    why: dict[str, list[str]] = {}
    for method in result.methods:
        if method.order is None:  # without its own name, so that those with the same reason share a line
            reason = method.why_not.partition("' ")
            why.setdefault(reason[2] if reason[0].startswith(("score '", "selector '")) else method.why_not, []).append(
                method.by
            )
    told = [plain(f"n/a: {', '.join(those)}: {reason}") for reason, those in why.items()]
    if result.measured and not result.faults:
        told.append("n/a: APFD: no case of the pool is wrong, so how early wrong ones come is not defined")
    return told


def asked_lines(result: Prioritised) -> list[str]:
    """What methods with a stand-in told, what a black box was asked, and whether the budget was enough."""
    lines = [line for method in result.methods for line in _stand_in(method)]
    if result.queries is not None:
        lines.append(asked_line(result.queries))
    lines += result.notes
    if result.run is not None:
        lines.append(f"answers kept in {known_as(result.run)}")
    if not result.complete:
        lines.append("not complete: the same command with more --queries goes on, and asks nothing twice")
    return [plain(line) for line in lines]


def _stand_in(method: Ordered) -> list[str]:
    facts = method.facts
    if "stand_in" not in facts:
        return []
    told = facts["stand_in"]
    pool = f", labels on {facts['pool_agreement']:.1%} of the pool" if "pool_agreement" in facts else ""
    rounds = f" after {len(told['rounds'])} rounds ({told['stopped']})" if told["rounds"] else f" ({told['stopped']})"
    test = ""
    if "kappa" in facts:
        test = (
            f"; {facts['mutants']} mutants, kappa {facts['kappa']:.4f}: {facts['sensitive']} sensitive, "
            f"{facts['undecided']} undecided, {facts['stable']} stable; {facts['saved']:.0%} of mutants' answers saved"
        )
    like = f"has an R² of {told['agreement']:.3f}" if "tolerance" in facts else f"agrees on {told['agreement']:.1%}"
    return [f"{method.by}: stand-in {like}{pool}{rounds}{test}"]


def _cells(method: Ordered, width: int) -> list[str]:
    if method.order is None:
        return ["n/a", *[""] * width]
    seconds = f"{method.seconds:.2f}"
    told = method.measures
    if told is None:
        more = " …" if len(method.order) > SHOWN else ""
        return [", ".join(map(str, method.order[:SHOWN].tolist())) + more, seconds]
    return [*_measured(told), seconds]


def _measured(told: Measures) -> list[str]:
    return [_number(told.apfd), _number(told.apfd_norm), str(told.faults), _number(told.rate)]


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:z.4f}"  # z: no minus before a zero


def _with_spread(value: float | None, spread: float | None) -> str:
    return "n/a" if value is None or spread is None else f"{value:z.4f} ± {spread:z.4f}"


def check_out(out: str | Path) -> Path:
    """The path of an order to write, if it is a new ``.csv`` or ``.npz`` file."""
    path = Path(out)
    if path.suffix not in _WRITERS:
        raise UsageError(f"--out takes a file ending in .csv (the order) or .npz (the first cases), got {str(out)!r}")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists and is not overwritten; give another --out")
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {path.parent}")
    return path


def one_order(methods: int) -> None:
    """Refuse to write the orders of several methods to one file."""
    if methods > 1:
        raise UsageError(f"--out writes one order, {methods} were asked for; give --by one name")


def write_order(result: Prioritised, out: str | Path, by: str | None = None) -> Path:
    """The order of one method as ``.csv``, of all cases, or its first k cases as ``.npz``, which loads as data."""
    path = check_out(out)
    if by is None:
        one_order(len(result.methods))
    method = result.methods[0] if by is None else result[by]
    if method.order is None:
        raise UsageError(f"{method.by} gave no order: {method.why_not}")
    try:
        with tempfile.TemporaryDirectory(prefix=".assay-", dir=path.parent) as beside:
            made = Path(beside) / path.name
            _WRITERS[path.suffix](made, result, method)
            made.rename(path)
    except OSError as error:
        raise storage_error(error, path, 0) from error
    return path


def _csv(path: Path, result: Prioritised, method: Ordered) -> None:
    assert method.order is not None
    classes = [*map(csv_text, result.classes), ""]  # a label of -1 reads the last one
    y, predicted = result.pool.cases.y.tolist(), result.predicted.tolist()
    score = [""] * len(result) if method.score is None else method.score.tolist()
    rows = (
        (rank, row, score[row], classes[predicted[row]], classes[y[row]])
        for rank, row in enumerate(method.order.tolist(), 1)
    )
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([COLUMNS, *rows])


def _npz(path: Path, result: Prioritised, method: Ordered) -> None:
    assert method.order is not None
    rows = method.order[: result.k]
    chosen = result.pool.cases[rows]
    told: dict[str, Any] = {"x": chosen.x, "y": chosen.y, "row": rows, "predicted": result.predicted[rows]}
    told |= {} if method.score is None else {"score": method.score[rows]}
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in told.items()}
    arrays |= {"id": np.array(case_ids(chosen)), "classes": np.array(result.classes)}
    np.savez(path, **arrays)


_WRITERS = {".csv": _csv, ".npz": _npz}
