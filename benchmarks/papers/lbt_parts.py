"""The page beside the orders themselves: stand-ins, the sequential test, retraining, sweeps, what is missing."""

from collections.abc import Sequence
from statistics import mean

from papers.dare_verdict import wrapped
from papers.lbt_methods import METHODS, NO_SEED
from papers.lbt_remarks import helped, reruns, taus, thresholds
from papers.lbt_retrain import ARMS, BEFORE
from papers.lbt_sweep import SWEEPS
from papers.lbt_tables import SEEDS, Place, places, there
from papers.lbt_texts import AGREE_TEXT, LEAKED, NET_TEXT, RETRAIN_TEXT, SCRIPT, SWEEP_TEXT, TESTED_TEXT
from papers.rows import Row
from papers.tables import cell, column, lacked, number, pick, table
from papers.twinfuzz_tables import average

PARTED = ("lbt", "control", "lbt-ms")
TESTED = ("lbt", "lbt-half", "nmutant")
CLEAN = {"clean": "clean (leaked with extra cases)", "clean_held": "clean, held images"}
ARM_TITLES = {BEFORE: "before", "none": "no extra cases", **{arm: METHODS[arm].title for arm in ARMS if arm in METHODS}}


def agreeing(orders: Sequence[Row]) -> str:
    """How like the model the stand-in is, and what that means for the order."""
    body = []
    for place, own in there(orders):
        for name in PARTED:
            some = pick(own, method=name)
            if some:
                parts = [_part(some, part, key) for part in ("agree", "disagree") for key in ("fdr_mean", "apfd_norm")]
                shares = [cell(column(some, key)) for key in ("agreement", "agreement_pool")]
                asked = average(column(some, "queries"), 0)
                body.append([place.whole, METHODS[name].title, *shares, asked, *parts])
    if not body:
        return ""
    head = ["pool", "order", "agreement", "on the pool", "queries", "FDR agree", "APFD agree"]
    head += ["FDR disagree", "APFD disagree"]
    return "\n".join([AGREE_TEXT.format(ends=thresholds(orders)), table(head, body)])


def _part(some: Sequence[Row], part: str, key: str) -> str:
    return average(column(some, f"{part}.{key}"))


def sequential(orders: Sequence[Row]) -> str:
    """What the sequential test came to."""
    body = []
    for place, own in there(orders):
        for name in TESTED:
            some = [r for r in pick(own, method=name) if "kappa" in r["numbers"]]
            if some:
                counts = [average(column(some, key), 0) for key in ("sensitive", "undecided", "stable")]
                numbers = [cell(column(some, "kappa"), 4), *counts]
                more = [average(column(some, "mutants_asked"), 1), average(column(some, "saved"), 2)]
                body.append(
                    [place.whole, METHODS[name].title, *numbers, *more, _each(some, "rejected", 0), _rates(some)]
                )
    if not body:
        return ""
    head = ["pool", "order", "kappa", "sensitive", "undecided", "stable", "mutants asked", "saved", "rejected", "rates"]
    return "\n".join([TESTED_TEXT, table(head, body)])


def _each(some: Sequence[Row], key: str, digits: int) -> str:
    names = list(dict.fromkeys(name for r in some for name in r["numbers"].get(key, {})))
    return ", ".join(f"{name} {average(column(some, f'{key}.{name}'), digits)}" for name in names) or "–"


def _rates(some: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for r in some for name in r["numbers"].get("rates", {})))
    told = {name: sorted(set(column(some, f"rates.{name}"))) for name in names}
    return ", ".join(
        f"{name} {'–'.join(f'{v:g}' for v in (v[:1] + v[-1:] if len(v) > 1 else v))}" for name, v in told.items()
    )


# ---- retraining ----


def retraining(rows: Sequence[Row]) -> str:
    """Static and fresh accuracy after retraining, in columns of their own."""
    some = pick(rows, experiment="retrain")
    if not some:
        return ""
    epochs = sorted({r["protocol"]["retrain"]["epochs"] for r in some})
    clean = {key: title for key, title in CLEAN.items() if column(some, key)}
    body = []
    for place, own in there(some):
        before = pick(own, arm=BEFORE)
        for arm in ARMS:
            own_arm = pick(own, arm=arm)
            if own_arm:
                cells = [cell(column(own_arm, key)) for key in ("static", "fresh", *clean)]
                gains = [_gain(own_arm, before, key) for key in ("static", "fresh")]
                body.append([place.whole, ARM_TITLES[arm], str(len(own_arm)), *cells, *gains])
    head = ["pool", "extra cases by", "seeds", "static", "fresh", *clean.values(), "static gain", "fresh gain"]
    leaked = any(column([r], "clean") and (number(r, "extra") or 0) for r in some)
    told = {"epochs": " or ".join(map(str, epochs)), "clean": LEAKED if leaked else "", "helped": helped(some)}
    return "\n".join([RETRAIN_TEXT.format(**told), table(head, body)])


def _gain(own: Sequence[Row], before: Sequence[Row], key: str) -> str:
    values, old = column(own, key), column(before, key)
    return f"{round(mean(values) - mean(old), 3) + 0:+.3f}" if values and old else "–"  # + 0: no -0.000


# ---- sweeps ----


def sweeps(rows: Sequence[Row]) -> str:
    """LBT and its control with other settings."""
    some = pick(rows, experiment="sweep")
    if not some:
        return ""
    noise = " ".join(text for text in (reruns(rows), taus(rows)) if text)
    parts = [SWEEP_TEXT, *([wrapped(noise) + "\n"] if noise else []), NET_TEXT]
    for what, values in SWEEPS.items():
        for place, own in there(pick(some, what=what)):
            body = [line for value in values for line in _lines(own, value)]
            head = [what, "order", "seeds", "average FDR", "APFD, normalised", "agreement", "on the pool", "queries"]
            parts += [f"{what}, {place.whole}:\n", table([*head, "rejected", "rates"], body)]
    return "\n".join(parts)


def _lines(own: Sequence[Row], value: object) -> list[list[str]]:
    lines = []
    for name in ("lbt", "control"):
        some = pick(own, value=value, method=name)
        if some:
            keys = ("fdr_mean", "apfd_norm", "agreement", "agreement_pool")
            told = [cell(column(some, key)) for key in keys]
            more = [average(column(some, "queries"), 0), _each(some, "rejected", 0), _rates(some) or "–"]
            lines.append([str(value), METHODS[name].title, str(len(some)), *told, *more])
    return lines


# ---- what was not run ----


def missing(rows: Sequence[Row]) -> str:
    """What a full page would have and this one has not."""
    body = []
    for place in places():
        own = place.rows(rows)
        lacking = {name: _lacks(own, name) for name in METHODS} | _unretrained(own)
        absent = sum(map(len, lacking.values()))
        if absent:
            told = "all" if not own else lacked(lacking, SEEDS)
            body.append([place.whole, str(absent), told, f"`{_command(place)}`"])
    swept = [what for what in SWEEPS if not pick(rows, experiment="sweep", what=what)]
    lines = [f"Sweeps without a row: {', '.join(swept)} (`{SCRIPT} sweep`).\n"] if swept else []
    if not body:
        return "\n".join(["## Rows not run\n", *(lines or ["None.\n"])])
    told = f"Commands are arguments of `{SCRIPT}`.\n"
    return "\n".join(
        ["## Rows not run\n", table(["pool", "rows", "missing, with seeds", "command"], body), told, *lines]
    )


def _lacks(own: Sequence[Row], name: str) -> tuple[int, ...]:
    seeds = {r["protocol"]["seed"] for r in pick(own, experiment="orders", method=name)}
    if not METHODS[name].seeded:
        return () if NO_SEED in seeds else SEEDS
    return tuple(seed for seed in SEEDS if seed not in seeds)


def _unretrained(own: Sequence[Row]) -> dict[str, tuple[int, ...]]:
    told = {}
    for arm in ARMS:
        seeds = {r["protocol"]["seed"] for r in pick(own, experiment="retrain", arm=arm)}
        wanted = (NO_SEED,) if arm == BEFORE else SEEDS
        told[f"retrain {arm}"] = tuple(seed for seed in wanted if seed not in seeds)
    return told


def _command(place: Place) -> str:
    return f"orders retrain --data {place.data} --mut {place.mut} --attacks {place.attack}"
