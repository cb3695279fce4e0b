"""The page docs/papers/robot.md: every number on it is computed from the rows."""

import math
from pathlib import Path
from statistics import mean, median, stdev

from papers.figures import Panel, figure
from papers.grid import ARMS, MAIN_EPS, SELECTORS, SIZES, Group, groups
from papers.rows import Row, Rows
from papers.subject import BINS
from papers.tables import cell, column, pick, seeds_of, table
from papers.texts import ARMS_TEXT, FOL_TEXT, NOT_HERE, PAPER, PROTOCOL, SCRIPT
from papers.tools_page import fuzzing, pools, transfer
from papers.verdict import correlation, verdict

COLUMNS = {"static": "static", "static_fooling": "static, fooling only", "white": "white box", "clean": "clean"}
LENET = ("mnist", "fashion-mnist")
MADE = ("pools", "transfer", "rq3")  # experiments on what tools make


def write_page(rows: Rows, out: Path) -> None:
    """The page and its figures."""
    out.mkdir(parents=True, exist_ok=True)
    every = [r for r in rows if "limit" not in r["protocol"]]
    figures = {f"robot-rq2-{data}.svg": curves(every, data) for data in LENET}
    figures |= {f"robot-rq1-{data}.svg": histograms(every, data) for data in LENET}
    for name, text in figures.items():
        (out / name).write_text(text, encoding="utf-8")
    parts = [verdict(every), PROTOCOL, selection(every), pools(every), transfer(every), fuzzing(list(rows))]
    parts += [arms(every), fol(every), missing(every)]
    (out / "robot.md").write_text("\n".join(parts), encoding="utf-8")


# ---- RQ2 ----


def selection(rows: list[Row]) -> str:
    parts = ["## RQ2: which cases of a pool to retrain on\n"]
    for group in (g for g in groups() if g.match["experiment"] == "rq2"):
        found = pick(rows, **group.match)
        if not found:
            continue
        data, eps = group.match["data"], group.match["eps"]
        parts.append(f"### {data}, eps {eps:g}\n\n`{SCRIPT} {group.command}`\n")
        parts += [_controls(rows, found, data, eps), _selection_table(found)]
        if eps == MAIN_EPS[data] and data in LENET:
            parts.append(f"![static and white-box robustness, {data}](robot-rq2-{data}.svg)\n")
            parts.append(picked(found, data))
    return "\n".join([*parts, PAPER])


def _controls(rows: list[Row], found: list[Row], data: str, eps: float) -> str:
    """The net before, and after as much training without any case."""
    before, none = pick(rows, experiment="f0", data=data, eps=eps), pick(found, select="none")
    body = [
        [f"{name} (seeds: {len(some)})", *(cell(column(some, key)) for key in COLUMNS)]
        for name, some in (("f0", before), ("retrained without cases", none))
    ]
    return table(["control", *COLUMNS.values()], body)


def _selection_table(found: list[Row]) -> str:
    body = []
    for key, title in COLUMNS.items():
        for share in SIZES:
            cells = [pick(found, share=share, select=select) for select in SELECTORS.values()]
            if any(cells):
                body.append([title, f"{share:.0%}", seeds_of(cells), *(cell(column(c, key)) for c in cells)])
    return table(["column", "size", "seeds", *SELECTORS], body)


def picked(found: list[Row], data: str) -> str:
    """What the selectors chose: the paper's Fig. 4 as numbers."""
    body = []
    for share in (SIZES[0], SIZES[-1]):
        for name, select in SELECTORS.items():
            told = [r["numbers"]["picked"] for r in pick(found, share=share, select=select)]
            if told:
                loss = [mean(t["zol"][i] for t in told) for i in (1, 3, 5)]
                most = cell([t["classes"][1] for t in told], 2)
                body.append(
                    [f"{share:.0%}", name, *(f"{v:.3g}" for v in loss), cell([t["fooling"] for t in told], 2), most]
                )
    head = ["size", "selector", "loss, 10 % quantile", "median", "90 %", "share that fools f0", "largest class share"]
    return f"What was picked ({data}; the paper's Fig. 4: loss of the selected cases):\n\n" + table(head, body)


def curves(rows: list[Row], data: str) -> str:
    found = pick(rows, experiment="rq2", data=data, eps=MAIN_EPS[data])
    panels = []
    for key in ("static", "white"):
        lines = {}
        for name, select in SELECTORS.items():
            points = []
            for share in SIZES:
                values = column(pick(found, share=share, select=select), key)
                if values:
                    points.append((100 * share, mean(values), stdev(values) if len(values) > 1 else 0.0))
            if points:
                lines[name] = points
        panels.append(Panel(f"{data}, eps {MAIN_EPS[data]:g}: {COLUMNS[key]}", "% of the pool", lines))
    return figure(panels)


# ---- what helps on both columns ----


def arms(rows: list[Row]) -> str:
    parts = [ARMS_TEXT]
    for data in LENET:
        eps = MAIN_EPS[data]
        found = pick(rows, experiment="arms", data=data, eps=eps, share=0.1)
        if not found:
            continue
        seeds = {r["protocol"]["seed"] for r in found}
        body = [_arm(name, pick(found, arm=name)) for name in ARMS if pick(found, arm=name)]
        same = [r for r in pick(rows, experiment="rq2", data=data, eps=eps) if r["protocol"]["seed"] in seeds]
        body.insert(0, _arm("RQ2's random, 10 %, one training", pick(same, share=0.1, select="random")))
        body.insert(0, _arm("no cases", pick(same, select="none")))
        upper = pick(rows, experiment="adversarial", data=data, eps=eps, train_eps=eps)
        body.append(_arm("adversarial training (upper control)", upper))
        group = next(g for g in groups() if g.title == f"arms, {data}")
        parts.append(f"### {data}, eps {eps:g}, 11 000 cases\n\n`{SCRIPT} {group.command}`\n")
        parts.append(table(["arm", "seeds", "static", "white box", "clean"], body))
    return "\n".join(parts)


def _arm(name: str, rows: list[Row]) -> list[str]:
    return [name, str(len(rows)), *(cell(column(rows, key)) for key in ("static", "white", "clean"))]


# ---- RQ1 ----


def fol(rows: list[Row]) -> str:
    parts = ["## RQ1: FOL and robustness\n", f"`{SCRIPT} rq1` trains the adversarial nets; all other rows serve too.\n"]
    body = []
    for data in LENET:
        here = [r for r in pick(rows, data=data, eps=MAIN_EPS[data]) if r["protocol"]["experiment"] not in MADE]
        if not here:
            continue
        lower = [r for r in here if _median(r, "pgd") < _median(r, "fgsm")]
        body.append([data, str(len(here)), *(f"{correlation(here, a, 'white'):+.2f}" for a in ("pgd", "fgsm"))])
        body[-1] += [f"{correlation(here, 'pgd', 'static'):+.2f}", f"{len(lower)} of {len(here)}"]
    head = ["data", "nets", "median FOL of PGD × white box", "of FGSM × white box", "of PGD × static"]
    head += ["nets with median FOL of PGD below that of FGSM"]
    parts.append("Spearman's rank correlation over all measured nets; FOL is that of fresh examples of test images.\n")
    parts.append(table(head, body))
    parts.append(_graded(rows))
    parts += [f"![FOL of fresh PGD and FGSM examples, {data}](robot-rq1-{data}.svg)\n" for data in LENET]
    return "\n".join([*parts, FOL_TEXT])


def _median(row: Row, attack: str) -> float:
    return float(row["numbers"][f"fol_{attack}"]["quantiles"][3])


def _graded(rows: list[Row]) -> str:
    """Nets from the weakest to the strongest, with their FOL."""
    body = []
    for data in LENET:
        match = {"data": data, "eps": MAIN_EPS[data]}
        here: list[tuple[str, list[Row]]] = [("f0", pick(rows, experiment="f0", **match))]
        for share in SIZES[-2:]:
            here.append((f"random {share:.0%}", pick(rows, experiment="rq2", share=share, select="random", **match)))
        here += [("fresh", pick(rows, experiment="arms", data=data, arm="fresh", share=0.1))]
        for row in sorted(pick(rows, experiment="adversarial", data=data), key=lambda r: r["protocol"]["train_eps"]):
            here.append((f"adversarial, eps {row['protocol']['train_eps']:g}", [row]))
        for name, some in here:
            if some:
                medians = [f"{median(_median(r, a) for r in some):.3g}" for a in ("pgd", "fgsm")]
                body.append([data, f"{name} ({len(some)})", cell(column(some, "white")), *medians])
    return table(["data", "net (seeds)", "white box", "median FOL, PGD", "median FOL, FGSM"], body)


def histograms(rows: list[Row], data: str) -> str:
    eps = MAIN_EPS[data]
    nets = {
        "f0": pick(rows, experiment="f0", data=data, eps=eps, seed=0),
        "random 10 %": pick(rows, experiment="rq2", data=data, eps=eps, seed=0, share=0.1, select="random"),
        "fresh": pick(rows, experiment="arms", data=data, eps=eps, seed=0, arm="fresh"),
        "adversarial": pick(rows, experiment="adversarial", data=data, eps=eps, seed=0, train_eps=eps),
    }
    panels = []
    for attack in ("pgd", "fgsm"):
        lines = {}
        for name, found in nets.items():
            if found and "histogram" in found[0]["numbers"][f"fol_{attack}"]:
                counts = found[0]["numbers"][f"fol_{attack}"]["histogram"]
                lines[name] = [(x, n / sum(counts), 0.0) for x, n in zip(BINS, counts, strict=False)]
        title = f"{data}: FOL of fresh {attack.upper()} examples"
        top = math.ceil(10 * max((y for line in lines.values() for _, y, _ in line), default=0.1)) / 10
        panels.append(Panel(title, "log10 FOL (share of the examples in each quarter)", lines, True, top))
    return figure(panels)


# ---- what was not run ----


def missing(rows: list[Row]) -> str:
    """What a full page would have and this one has not."""
    body = []
    for group in groups():
        found = _members(rows, group)
        if len(found) < group.size():
            seeds = sorted({r["protocol"]["seed"] for r in found})
            told = f"seeds {', '.join(map(str, seeds))}" if seeds else "none"
            body.append([group.title, f"{len(found)} of {group.size()}", told, f"`{SCRIPT} {group.command}`"])
    if not body:
        return "## Rows not run\n\nNone.\n"
    return "## Rows not run\n\n" + table(["rows", "there", "of", "command"], body) + NOT_HERE


def _members(rows: list[Row], group: Group) -> list[Row]:
    return [
        r
        for r in pick(rows, **group.match)
        if r["protocol"]["seed"] in group.seeds
        and all(r["protocol"].get(key) in values for key, values in group.vary.items())
    ]
