"""The page docs/papers/dare.md: every number on it is computed from the rows."""

from collections.abc import Sequence
from pathlib import Path

from papers.dare_arms import ABLATIONS, MAIN
from papers.dare_attacks import ATTACKS
from papers.dare_measure import FRESH
from papers.dare_paper import CLEAN, robust
from papers.dare_paper import COLUMNS as PAPER_ARMS
from papers.dare_tables import (
    COLUMNS,
    CONTROLS,
    NAMES,
    ORDER,
    SEEDS,
    SEEN,
    TITLES,
    Model,
    command,
    found,
    models,
    usual,
    winners,
)
from papers.dare_texts import (
    ABLATION_TEXT,
    CLEAN_TEXT,
    DEVIATIONS,
    EXAMPLES_TEXT,
    FRESH_TEXT,
    PAIRED_TEXT,
    PROTOCOL,
    RACE_TEXT,
    SCRIPT,
    SETTINGS_TEXT,
    STATIC_TEXT,
)
from papers.dare_verdict import ASKED, RACE, race_table, verdict
from papers.rows import Row
from papers.tables import cell, column, lacked, number, pick, seeds_of, table
from papers.twinfuzz_differences import paired, written
from papers.twinfuzz_tables import average, by_arm

STATIC_ARMS = ("original", "dare", *SEEN, *CONTROLS, "dare-noslice", "noise-noslice", "whole")


def write_page(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every = usual([r for r in rows if "limit" not in r["protocol"]])
    parts = [verdict(every), PROTOCOL]
    if every:
        parts += [ran(every), static(every), fresh(every), differences(every), clean(every), ablations(every)]
        parts.append(examples(every))
    parts += [DEVIATIONS, missing(every)]
    (out / "dare.md").write_text("\n".join(parts), encoding="utf-8")


def ran(rows: list[Row]) -> str:
    """What was run, on which machine, and by which command."""
    machines = sorted({str(r["numbers"].get("machine", r["numbers"]["device"])) for r in rows})
    body = []
    for model, own in found(rows):
        epochs = own[0]["protocol"]["base"]["epochs"]
        sizes = own[0]["protocol"]["sizes"]
        seeds = sorted({r["protocol"]["seed"] for r in own})
        images = f"{sizes['static']} ({sizes['static_few']})"
        again = f"{sizes['fresh']}, {sizes['small']} ({sizes['few']})"
        body.append([model.title, str(len(seeds)), str(epochs), images, again, f"`{command(model, rows, seeds)}`"])
    head = ["model", "seeds", "epochs", "static images (JSMA, C&W)", "fresh: full, small (JSMA, C&W)", "command"]
    told = f"Computed on: {', '.join(machines)}, by `{SCRIPT} arms` and\n"
    return f"## What was run\n\n{told}\n{table(head, body)}"


# ---- static ----


def static(rows: list[Row]) -> str:
    head = ["model", "attack", "paper: Dare", "paper: best other", *(NAMES.get(a, a) for a in STATIC_ARMS)]
    body = [
        _scenario(model, own, attack)
        for model, own in found(rows)
        for attack in ATTACKS
        if column(own, f"static.{attack}")
    ]
    return "\n".join([STATIC_TEXT, table(head, body), RACE_TEXT, race_table(rows)])


def _scenario(model: Model, own: list[Row], attack: str) -> list[str]:
    paper = robust(model.data, model.net, attack)
    others = {arm: value for arm, value in paper.items() if arm != "dare"}
    best = max(others, key=others.__getitem__) if others else ""
    said = [f"{paper['dare']:.3f}", f"{others[best]:.3f} ({TITLES[best.removeprefix('at-')]})"] if best else ["–", "–"]
    first = winners(own, RACE, attack)
    means = {arm: average(column(pick(own, arm=arm), f"static.{attack}")) for arm in STATIC_ARMS}
    return [model.title, TITLES[attack], *said, *(f"**{v}**" if a in first else v for a, v in means.items())]


# ---- fresh ----


def fresh(rows: list[Row]) -> str:
    parts = [FRESH_TEXT]
    small = [f"small.{name}" for name in (*FRESH, "cw")]
    full = [f"fresh.{name}" for name in (*FRESH, "cw", "jsma")]
    for ball, keys, mean_key in (("Small ball", small, "small_mean"), ("Full ball", full, "fresh_mean")):
        for model, own in found(rows):
            linf, l2 = (own[0]["protocol"]["balls"][norm][(keys is full and 0) or 1] for norm in ("linf", "l2"))
            body = [
                [NAMES.get(name, name), *(cell(column(some, key)) for key in (*keys, mean_key, "smallest_l2"))]
                for name, some in by_arm(own, MAIN)
                if column(some, mean_key)
            ]
            heads = [TITLES[key.partition(".")[2]] for key in keys]
            parts.append(f"{ball}, {model.title} (linf {linf:.3g}, l2 {l2:g}):\n")
            parts.append(table(["arm", *heads, "mean", "smallest l2"], body))
    return "\n".join(parts)


# ---- pairs, clean, ablations ----


def differences(rows: list[Row]) -> str:
    parts = [PAIRED_TEXT]
    keys = {**COLUMNS, "clean": "clean"}
    rest = [("dare", other) for other in ("original", "dare-noslice", "distilled", "whole", *SEEN)]
    for first, other in (*ASKED, *rest):
        body = []
        for model, own in found(rows):
            told = [paired(own, first, other, key) for key in keys]
            if any(told):
                body.append([model.title, *map(written, told)])
        if body:
            parts.append(table([f"{NAMES[first]} less {NAMES.get(other, other)}", *keys.values()], body))
    return "\n".join(parts)


def clean(rows: list[Row]) -> str:
    body = []
    for model, own in found(rows):
        said = dict(zip(("original", *PAPER_ARMS), CLEAN.get((model.data, model.net), ()), strict=False))
        told = {arm: cell(column(pick(own, arm=arm), "clean")) for arm in MAIN}
        body.append([model.title, *(f"{v} ({said[arm]:.3f})" if arm in said else v for arm, v in told.items())])
    return "\n".join([CLEAN_TEXT, table(["model", *(NAMES.get(arm, arm) for arm in MAIN)], body)])


CONTROLLED = ("noise", "dare-noslice", "noise-noslice")


def ablations(rows: list[Row]) -> str:
    parts = [ABLATION_TEXT]
    for model, own in found(rows):
        body = []
        for name, some in by_arm(own, ("original", "dare", *CONTROLLED, "ce", *ABLATIONS)):
            numbers = [average(column(some, key)) for key in ("clean", *COLUMNS)]
            used, rate = column(some, "trained.used"), column(some, "trained.lr")
            rates = ", ".join(f"{r:g}" for r in sorted(set(rate)))
            shift = f"{average(column(some, 'moved.weights'), 0)}, {average(column(some, 'moved.l2'), 2)}"
            body.append([NAMES.get(name, name), seeds_of([some]), *numbers, average(used, 0), rates or "–", shift])
        head = ["arm", "seeds", "clean", *COLUMNS.values(), "used", "learning rates", "weights moved, how far"]
        parts += [f"{model.title}:\n", table(head, body)]
    return "\n".join(parts)


def examples(rows: list[Row]) -> str:
    body = []
    for model, own in found(rows):
        some = pick(own, arm="original")
        told = []
        for attack in ATTACKS:
            at = f"trained.examples.{attack}"
            shares = [(number(r, f"{at}.fooling") or 0) / (number(r, f"{at}.tried") or 1) for r in some]
            sizes = " / ".join(
                average(column(some, f"{at}.{norm}"), digits) for norm, digits in (("linf", 3), ("l2", 2), ("l0", 0))
            )
            told.append(f"{average(shares, 2)}: {sizes}")
        body.append([model.title, *told])
    return "\n".join([EXAMPLES_TEXT, table(["model", *(TITLES[a] for a in ATTACKS)], body)])


# ---- what was not run ----


def missing(rows: list[Row]) -> str:
    """What a full page would have and this one has not."""
    body = []
    for model in models():
        there = {(r["protocol"]["arm"], r["protocol"]["seed"]) for r in model.rows(rows)}
        lacking = {name: tuple(s for s in SEEDS if (name, s) not in there) for name in ORDER}
        whole, absent = len(ORDER) * len(SEEDS), sum(map(len, lacking.values()))
        if absent:
            told = "all" if absent == whole else lacked(lacking, SEEDS)
            body.append([model.title, f"{whole - absent} of {whole}", told, f"`{command(model, rows)}`"])
    if not body:
        return "## Rows not run\n\nNone.\n"
    return "## Rows not run\n\n" + table(["model", "there", "missing, with seeds", "command"], body) + SETTINGS_TEXT
