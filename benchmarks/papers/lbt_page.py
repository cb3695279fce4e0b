"""The page docs/papers/lbt.md: every number on it is computed from the rows."""

from collections.abc import Sequence
from pathlib import Path

from papers.lbt_measure import BUDGETS
from papers.lbt_methods import DRAWS, LABELS, METHODS, NOTHING
from papers.lbt_parts import agreeing, missing, retraining, sequential, sweeps
from papers.lbt_remarks import shorter
from papers.lbt_tables import DATA_TITLES, by_seed, fault_share, there, usual
from papers.lbt_texts import (
    AVERAGE_TEXT,
    BUDGET_TEXT,
    DEVIATIONS,
    DIVERSITY_TEXT,
    NORM_TEXT,
    PROTOCOL,
    SCRIPT,
    TEST_TEXT,
)
from papers.lbt_verdict import compared, verdict
from papers.rows import Row
from papers.tables import cell, column, pick, table
from papers.twinfuzz_tables import average

BLACK = (LABELS, NOTHING)
SHOWN = ("lbt", "lbt-ms", "lbt-lcr", "lbt-half", "control", "random", "metasel", "gini", "dsa", "nmutant")


def write_page(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every = usual(rows)
    orders = pick(every, experiment="orders")
    parts = [verdict(every), PROTOCOL.format(draws=DRAWS, script=SCRIPT)]
    if every:
        parts.append(ran(every))
    if orders:
        parts += [
            large(orders, "fdr_mean", AVERAGE_TEXT),
            large(orders, "apfd_norm", NORM_TEXT),
            TEST_TEXT + "\n" + compared(orders),
            agreeing(orders),
            sequential(orders),
            budgets(orders),
            diversity(orders),
        ]
    parts += [retraining(every), sweeps(every), DEVIATIONS.format(epochs=shorter(every)), missing(every)]
    (out / "lbt.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


def ran(rows: Sequence[Row]) -> str:
    """What was run, on which machine, and by which command."""
    machines = sorted({str(r["numbers"]["machine"]) for r in rows})
    body = []
    for place, own in there(rows):
        share = fault_share(pick(own, experiment="orders"))
        p = own[0]["protocol"]
        seeds = sorted({r["protocol"]["seed"] for r in pick(own, experiment="orders", method="lbt")})
        command = f"`--data {place.data} --mut {place.mut} --attacks {place.attack}`"
        faults = "–" if share is None else f"{share:.4f}"
        clean = average(column(pick(own, experiment="retrain", arm="before"), "clean"), 4)
        body.append([place.whole, str(len(seeds)), str(p["base"]["epochs"]), clean, faults, command])
    head = ["pool", "seeds of LBT", "epochs of the model", "clean accuracy", "faults m/n", "command"]
    told = f"Computed on: {', '.join(machines)}, by `{SCRIPT} subjects pools orders retrain` and\n"
    return f"## What was run\n\n{told}\n{table(head, body)}"


# ---- orders ----


def large(orders: Sequence[Row], what: str, text: str) -> str:
    """One number of every method on every pool, a table for each data set."""
    parts = [text]
    for data in dict.fromkeys(place.data for place, _ in there(orders)):
        some = list(there(orders, data))
        body = [["faults m/n", "", *(_share(own) for _, own in some)]]
        best = {place: _best(own, what) for place, own in some}
        for name, method in METHODS.items():
            cells = [_marked(name, own, what, best[place]) for place, own in some]
            if any(c != "–" for c in cells):
                body.append([method.title, method.sees, *cells])
        parts += [f"{DATA_TITLES[data]}:\n", table(["order", "sees", *(place.title for place, _ in some)], body)]
    return "\n".join(parts)


def _share(own: Sequence[Row]) -> str:
    share = fault_share(own)
    return "–" if share is None else f"{share:.3f}"


def _best(own: Sequence[Row], what: str) -> str:
    """The best method of those that see labels at most."""
    means = {
        name: sum(values) / len(values)
        for name, method in METHODS.items()
        if method.sees in BLACK and (values := list(by_seed(own, name, what).values()))
    }
    return max(means, key=means.__getitem__, default="")


def _marked(name: str, own: Sequence[Row], what: str, best: str) -> str:
    values = list(by_seed(own, name, what).values())
    told = cell(values) if METHODS[name].seeded else average(values)
    return f"**{told}**" if name == best and values else told


def budgets(orders: Sequence[Row]) -> str:
    """FDR at each budget of the methods that matter most."""
    parts = [BUDGET_TEXT]
    keys = [*(f"fdr.{b}" for b in BUDGETS), "fdr_mean", "share.10", "apfd", "apfd_norm"]
    head = ["order", *(f"FDR {b} %" for b in BUDGETS), "average", "share 10 %", "APFD", "normalised"]
    for place, own in there(orders):
        body = [[METHODS[name].title, *(_over(own, name, key) for key in keys)] for name in SHOWN if _has(own, name)]
        parts += [f"{place.whole} (m/n {_share(own)}):\n", table(head, body)]
    return "\n".join(parts)


def diversity(orders: Sequence[Row]) -> str:
    parts = [DIVERSITY_TEXT]
    for place, own in there(orders):
        body = [_diverse(own, name) for name in SHOWN if _has(own, name)]
        whole = [average(column(own, f"diversity_whole.{key}"), 0) for key in ("pairs", "clusters")]
        parts.append(f"{place.whole} (in the whole pool {whole[0]} pairs, {whole[1]} clusters):\n")
        parts.append(table(["order", "FDR 10 %", "log volume", "pairs", "clusters"], body))
    return "\n".join(parts)


def _diverse(own: Sequence[Row], name: str) -> list[str]:
    keys = {"fdr.10": 3, "diversity.volume": 1, "diversity.pairs": 1, "diversity.clusters": 1}
    return [METHODS[name].title, *(_over(own, name, key, digits) for key, digits in keys.items())]


def _has(own: Sequence[Row], name: str) -> bool:
    return bool(pick(own, method=name))


def _over(own: Sequence[Row], name: str, key: str, digits: int = 3) -> str:
    return average(list(by_seed(own, name, key).values()), digits)
