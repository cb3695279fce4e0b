"""The page docs/papers/dare.md: every number on it is computed from the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.dare_arms import ABLATIONS, MAIN
from papers.dare_attacks import ATTACKS
from papers.dare_chosen import chosen, drawn, later
from papers.dare_measure import FRESH
from papers.dare_paper import CLEAN, robust
from papers.dare_paper import COLUMNS as PAPER_ARMS
from papers.dare_tables import (
    COLUMNS,
    CONTROLS,
    NAMES,
    ORDER,
    RACE,
    SEEDS,
    SEEN,
    TITLES,
    Model,
    beside,
    command,
    common,
    found,
    models,
    of_seeds,
    over,
    seeds_told,
    usual,
    winners,
)
from papers.dare_texts import (
    ABLATION_TEXT,
    BESIDE_TEXT,
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
from papers.dare_verdict import ASKED, race_table, verdict
from papers.rows import Row
from papers.tables import cell, column, lacked, number, pick, table
from papers.twinfuzz_differences import paired, written
from papers.twinfuzz_tables import average, by_arm

STATIC_ARMS = ("original", "dare", *SEEN, *CONTROLS, "dare-noslice", "noise-noslice", "whole")


def write_page(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every = usual([r for r in rows if "limit" not in r["protocol"]])
    parts = [verdict(every), PROTOCOL.format(draws=drawn(every), script=SCRIPT)]
    if every:
        parts += [ran(every), static(every), fresh(every), differences(every), clean(every), chosen(every)]
        parts += [ablations(every), examples(every)]
    parts += [DEVIATIONS + later(every), missing(every)]
    (out / "dare.md").write_text("\n".join(parts), encoding="utf-8")


def ran(rows: list[Row]) -> str:
    """What was run, on which machine, and by which command."""
    machines = sorted({str(r["numbers"].get("machine", r["numbers"]["device"])) for r in rows})
    body = []
    for model, own in (*found(rows), *beside(rows)):
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
    head = ["model", "attack", "paper: Dare", "paper: best other", "seeds", *(NAMES.get(a, a) for a in STATIC_ARMS)]
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
    key, first = f"static.{attack}", winners(own, RACE, attack)
    seeds = common(own, RACE, key)
    means = {arm: average(over(own, seeds, arm, key)) for arm in STATIC_ARMS}
    cells = [f"**{value}**" if arm in first else value for arm, value in means.items()]
    return [model.title, TITLES[attack], *said, str(len(seeds)), *cells]


# ---- fresh ----


@dataclass(frozen=True, slots=True)
class Ball:
    """One ball of fresh attacks: where its numbers stand in a row, and its sizes in the protocol (``at``)."""

    title: str
    key: str
    at: int
    attacks: tuple[str, ...]


BALLS = (Ball("Small ball", "small", 1, (*FRESH, "cw")), Ball("Full ball", "fresh", 0, (*FRESH, "cw", "jsma")))


def fresh(rows: list[Row]) -> str:
    parts = [FRESH_TEXT.format(draws=drawn(rows))]
    for ball in BALLS:
        for model, own in found(rows):
            linf, l2 = (own[0]["protocol"]["balls"][norm][ball.at] for norm in ("linf", "l2"))
            keys = [*(f"{ball.key}.{name}" for name in ball.attacks), f"{ball.key}_mean", "smallest_l2"]
            seeds = common(own, RACE, f"{ball.key}_mean")
            body = [
                [NAMES.get(arm, arm), *(cell(over(own, seeds, arm, key)) for key in keys)]
                for arm, _ in by_arm(own, MAIN)
            ]
            parts.append(f"{ball.title}, {model.title} (linf {linf:.3g}, l2 {l2:g}; {seeds_told(len(seeds))}):\n")
            parts.append(table(["arm", *(TITLES[name] for name in ball.attacks), "mean", "smallest l2"], body))
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
        seeds = common(own, RACE, "clean")
        told = {arm: cell(over(own, seeds, arm, "clean")) for arm in MAIN}
        cells = [f"{v} ({said[arm]:.3f})" if arm in said else v for arm, v in told.items()]
        body.append([model.title, str(len(seeds)), *cells])
    return "\n".join([CLEAN_TEXT, table(["model", "seeds", *(NAMES.get(arm, arm) for arm in MAIN)], body)])


ABLATED = ("original", "dare", "noise", "dare-noslice", "noise-noslice", "ce", *ABLATIONS)


def ablations(rows: list[Row]) -> str:
    others = beside(rows)
    parts = [ABLATION_TEXT, *([BESIDE_TEXT] if others else [])]
    for model, own in (*found(rows), *others):
        seeds = common(own, [name for name, some in by_arm(own, ABLATED) if column(some, "clean")], "clean")
        body = [_moved(name, some) for name, some in by_arm(of_seeds(own, seeds), ABLATED)]
        head = ["arm", "clean", *COLUMNS.values(), "used", "learning rates", "weights moved, how far"]
        parts += [f"{model.title} ({seeds_told(len(seeds))}):\n", table(head, body)]
    return "\n".join(parts)


def _moved(name: str, some: list[Row]) -> list[str]:
    numbers = [average(column(some, key)) for key in ("clean", *COLUMNS)]
    used, rate = column(some, "trained.used"), column(some, "trained.lr")
    rates = ", ".join(f"{r:g}" for r in sorted(set(rate)))
    shift = f"{average(column(some, 'moved.weights'), 0)}, {average(column(some, 'moved.l2'))}"
    return [NAMES.get(name, name), *numbers, average(used, 0), rates or "–", shift]


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
