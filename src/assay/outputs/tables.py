"""Results as tables for people."""

from collections.abc import Iterable, Mapping

from rich.table import Table

from assay.engines.evaluation import Evaluation, Outcome, Share
from assay.outputs.screen import plain


def percent(share: Share) -> str:
    """A share with its interval: ``91.2 % (88.0–93.7)``."""
    low, high = share.ci95
    return f"{100 * share.accuracy:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def evaluation_table(result: Evaluation) -> Table:
    """One row a number; static and white-box numbers in columns of their own."""
    protocol = result.protocol
    eps = protocol["eps_text"]
    meaning = "left after the attacks so far" if protocol["cascade"] else "each attack alone"
    table = Table(
        title=plain(f"{protocol['data']}, n={protocol['n']}, {protocol['norm']} eps={eps}, seed {protocol['seed']}"),
        caption=f"{meaning}; 95 % intervals{' *unreliable, see below' if result.unreliable else ''}",
    )
    table.add_column("")
    table.add_column("white box" + ("*" if result.unreliable else ""), justify="right")
    if result.static_worst is not None:
        table.add_column(plain(f"static, made on {result.static_from}"), justify="right")
    table.add_column("tried", justify="right")
    table.add_column("broken", justify="right")
    table.add_column("seconds", justify="right")
    static = result.static_worst is not None
    table.add_row("clean", percent(result.clean), *([""] if static else []), "", "", "")
    for name, outcome in result.attacks.items():
        table.add_row(plain(name), *_cells(outcome, result.static.get(name)))
    worst = [percent(result.static_worst)] if result.static_worst is not None else []
    table.add_row("worst case", percent(result.worst), *worst, "", "", "", style="bold")
    return table


def per_class_table(result: Evaluation) -> Table:
    """Clean and worst-case accuracy of each class that occurs."""
    table = Table(caption="white box; 95 % Wilson intervals")
    for column in ("class", "n", "clean", "worst case"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for name, row in result.per_class.items():
        shares = (Share(round(row[k]["accuracy"] * row["n"]), row["n"]) for k in ("clean", "worst"))
        table.add_row(plain(name), str(row["n"]), *(percent(share) for share in shares))
    return table


def _cells(outcome: Outcome, static: Outcome | None) -> Iterable[str]:
    yield percent(outcome.left)
    if static is not None:
        yield percent(static.left)
    yield str(outcome.tried)
    yield str(outcome.broken)
    yield f"{outcome.seconds:.2f}"


def before_after_table(rows: Mapping[str, Mapping[str, Share]], title: str) -> Table:
    """Several models side by side: ``rows[number][model]``."""
    table = Table(title=plain(title), caption="95 % Wilson intervals")
    table.add_column("")
    models = list(next(iter(rows.values())))
    for model in models:
        table.add_column(model, justify="right")
    for number, shares in rows.items():
        table.add_row(number, *(percent(shares[model]) for model in models))
    return table
