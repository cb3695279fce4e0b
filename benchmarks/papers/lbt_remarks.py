"""Sentences of LBT's page beside its tables, from the rows: stand-ins, a setting run again, retraining, gaps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

from papers.dare_verdict import wrapped
from papers.lbt_methods import METHODS, TAU
from papers.lbt_retrain import ARMS, BEFORE
from papers.lbt_subject import POOLS
from papers.lbt_sweep import SWEEPS
from papers.lbt_tables import DATA_TITLES, POOL_TITLES, SEEDS, Place, places, stands, there
from papers.rows import Row, key
from papers.tables import column, number, pick

USUAL_RATE = 0.05  # of mutants, where no sweep has another
LEAST_GROWTH = 0.05  # of what it has learned from a stand-in is augmented by at least (LEAST_Z of the stage)
SPECIFIED_EPOCHS = 10  # of retraining
ALIKE, CLEAR = 0.02, 0.05  # accuracies that differ by less are about the same, by more clearly not


def by_seed(rows: Sequence[Row], what: str) -> dict[int, float]:
    """A number of rows that differ in their seeds only."""
    return {r["protocol"]["seed"]: value for r in rows if (value := number(r, what)) is not None}


# ---- stand-ins ----


def thresholds(orders: Sequence[Row]) -> str:
    """Which stand-ins reached tau, and how those that did not ended."""
    parts = [text for data in dict.fromkeys(place.data for place, _ in there(orders)) if (text := _ends(orders, data))]
    return "\n".join(wrapped(f"- {text}", "  ") for text in parts) + "\n" if parts else ""


def _ends(orders: Sequence[Row], data: str) -> str:
    made = list(_stand_ins(pick(orders, data=data, method="lbt")))
    if not made:
        return ""
    ends, steps = Counter(one["stopped"] for one in made), [step for one in made for step in _growth(one)]
    final = [one["agreement"] for one in made]
    told = f"**{DATA_TITLES[data]}**: tau {TAU[data]:.2f} was reached by {ends['tau']} of {len(made)} stand-ins; "
    told += f"they end at an agreement of {min(final):.3f} to {max(final):.3f}"
    told += "" if ends["tau"] == len(made) else f" ({', '.join(f'{ends[why]} by {why}' for why in sorted(ends))})"
    least = sum(abs(after - before - round(LEAST_GROWTH * before)) < 1 for before, after in steps)
    if steps and least == len(steps):
        told += (
            f". All {least} augmentations added exactly {LEAST_GROWTH:.0%} of what was there, the least there is: too "
            "few inputs were disputed, and those with the smallest margin took their place"
        )
    elif steps:
        told += f". Of {len(steps)} augmentations {least} added no more than the least, {LEAST_GROWTH:.0%}"
    return f"{told}."


def _stand_ins(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Each stand-in once: pools of a model and seed share it."""
    each = {}
    for row in rows:
        made = row["numbers"].get("stand_in")
        if made:
            each[key({"mut": row["protocol"]["mut"], "seed": row["protocol"]["seed"], "made": made})] = made
    yield from each.values()


def _growth(one: dict[str, Any]) -> list[tuple[int, int]]:
    sizes = [int(r["learned_from"]) for r in one["rounds"]]
    return list(pairwise(sizes))


# ---- sweeps ----


def reruns(rows: Sequence[Row]) -> str:
    """What one setting came to each time it was run, in the tables and in sweeps: the seed that differs most, and the
    means over seeds; beside them how far apart the values of a sweep are.
    """
    return " ".join(text for text in (*(_again(*one) for one in there(pick(rows, method="lbt"))), _apart(rows)) if text)


def _again(place: Place, own: Sequence[Row]) -> str:
    sweep = pick(own, experiment="sweep")
    runs = [
        pick(own, experiment="orders"),
        pick(sweep, what="rate", value=USUAL_RATE),
        pick(sweep, what="tau", value=TAU[place.data]),
    ]
    told = [by_seed(run, "fdr_mean") for run in runs if run]
    seeds = sorted(set.intersection(*map(set, told))) if len(told) > 1 else []
    if not seeds:
        return ""
    each = {seed: [run[seed] for run in told] for seed in seeds}
    worst = max(seeds, key=lambda seed: max(each[seed]) - min(each[seed]))
    means = [mean(run[seed] for seed in seeds) for run in told]
    return (
        f"The same setting run {len(told)} times on {place.whole} has with seed {worst} an average FDR of "
        f"{_listed(each[worst])}, and of {_listed(means)} in the mean over {len(seeds)} seeds."
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values[:-1]) + f" and {values[-1]:.3f}"


def _apart(rows: Sequence[Row]) -> str:
    """How far the best and the worst value of a sweep lie apart, by the rule for orders that share no stand-in."""
    told: dict[str, list[str]] = {}
    for what in SWEEPS:
        some = pick(rows, experiment="sweep", what=what, method="lbt")
        values = {value: column(pick(some, value=value), "fdr_mean") for value in SWEEPS[what]}
        found = sorted((each for each in values.values() if each), key=mean)
        if len(found) > 1:
            word = stands(list(zip(found[-1], found[0], strict=False)))
            told.setdefault(word, []).append(f"{mean(found[-1]) - mean(found[0]):.3f} ({what})")
    if set(told) - {"–"} == set():
        return ""
    parts = [f"{', '.join(gaps)}: {INSIDE[word]}" for word, gaps in told.items() if word in INSIDE]
    return f"The best and the worst value of a sweep lie apart by {'; by '.join(parts)}."


INSIDE = {"level": "inside the seed spread", "ahead": "outside the seed spread"}


def taus(rows: Sequence[Row]) -> str:
    """Which thresholds of the sweep were reached at all."""
    some = pick(rows, experiment="sweep", what="tau", method="lbt")
    reached = {
        value: [r["numbers"].get("stand_in", {}).get("stopped") == "tau" for r in pick(some, value=value)]
        for value in sorted({r["protocol"]["value"] for r in some})
    }
    never = [f"{value:g}" for value, each in reached.items() if not any(each)]
    told = [f"{value:g} was reached by {sum(each)} of {len(each)}" for value, each in reached.items() if any(each)]
    parts = [f"Of the thresholds tau, {', '.join(told)} stand-ins."] if told else []
    if never:
        same = ": rows of these are one setting run again" if len(never) > 1 else ""
        parts.append(f"No stand-in reached {', '.join(never)}{same}.")
    return " ".join(parts)


# ---- retraining ----


def helped(rows: Sequence[Row]) -> str:
    """Whether retraining with LBT's first cases helps as much as with cases drawn at random, attack by attack."""
    parts = [text for attack in POOLS if (text := _helped(pick(rows, experiment="retrain", attack=attack), attack))]
    return "\n".join(wrapped(f"- {text}", "  ") for text in parts) + "\n" if parts else ""


def _helped(some: Sequence[Row], attack: str) -> str:
    told = {what: [two for _, own in there(some) if (two := _both(own, what))] for what in ("static", "fresh")}
    if not told["fresh"]:
        return ""
    parts = []
    for what, pairs in told.items():
        mine, theirs = (mean(pair[i] for pair in pairs) for i in (0, 1))
        lower = sum(a < b for a, b in pairs)
        parts.append(f"{what} {mine:.3f} against {theirs:.3f}, lower on {lower} of {len(pairs)} models")
    gap = max((mean(a - b for a, b in pairs) for pairs in told.values()), key=abs)
    more = f"{'clearly ' * (abs(gap) > CLEAR)}{'more' if gap > 0 else 'less'} than"
    word = "about as much as" if abs(gap) < ALIKE else more
    asked = f"**Under {POOL_TITLES[attack]}, LBT's first cases helped {word} the same number drawn at random**"
    return f"{asked}: {'; '.join(parts)}."


def _both(own: Sequence[Row], what: str) -> tuple[float, float] | None:
    """The means of LBT and of random over the seeds that both have."""
    mine, theirs = (by_seed(pick(own, arm=arm), what) for arm in ("lbt", "random"))
    seeds = [seed for seed in mine if seed in theirs]
    return (mean(mine[s] for s in seeds), mean(theirs[s] for s in seeds)) if seeds else None


def shorter(rows: Sequence[Row]) -> str:
    """Epochs of retraining that are not those of the specification."""
    epochs = sorted({r["protocol"]["retrain"]["epochs"] for r in pick(rows, experiment="retrain")} - {SPECIFIED_EPOCHS})
    told = " or ".join(map(str, epochs))
    return f"- Retraining ran {told} epochs; the specification says {SPECIFIED_EPOCHS}.\n" if epochs else ""


# ---- gaps ----


def gaps(rows: Sequence[Row]) -> str:
    """What is missing, in short; the whole of it stands at the end of the page."""
    whole = places()
    parts = _unordered(rows, whole) + _unretrained(rows, whole) + _unswept(rows)
    if not parts:
        return ""
    return wrapped(f"**Rows are missing**: {'; '.join(parts)}. Which: see *Rows not run*.") + "\n"


def _unordered(rows: Sequence[Row], whole: Sequence[Place]) -> list[str]:
    orders = pick(rows, experiment="orders")
    none, parts = [], []
    for name, method in METHODS.items():
        counts = [n for place in whole if (n := len(_seeds(place.rows(orders), method=name)))]
        wanted = len(SEEDS) if method.seeded else 1
        if not counts:
            none.append(method.title)
        elif len(counts) < len(whole) or min(counts) < wanted:
            parts.append(f"{method.title} on {len(counts)} of {len(whole)} pools, with {_range(counts)} seeds")
    return ([f"no row of {', '.join(none)}"] if none else []) + parts


def _unretrained(rows: Sequence[Row], whole: Sequence[Place]) -> list[str]:
    some = pick(rows, experiment="retrain")
    drawn = [arm for arm in ARMS if arm != BEFORE]
    counts = [n for place in whole for arm in drawn if (n := len(_seeds(place.rows(some), arm=arm)))]
    if not counts:
        return ["no row of retraining"]
    pools = sum(bool(place.rows(some)) for place in whole)
    none = [METHODS[arm].title for arm in drawn if arm in METHODS and not pick(some, arm=arm)]
    if not none and pools == len(whole) and min(counts) == len(SEEDS):
        return []
    more = f", none by {', '.join(none)}" if none else ""
    return [f"retraining on {pools} of {len(whole)} pools, with {_range(counts)} of {len(SEEDS)} seeds{more}"]


def _unswept(rows: Sequence[Row]) -> list[str]:
    """Orders that have rows at some values of a sweep and not at all of them."""
    some = pick(rows, experiment="sweep")
    return [
        f"no {METHODS[name].title} in the sweep of {what} at {value}"
        for what, values in SWEEPS.items()
        for name in ("lbt", "control")
        for value in values
        if pick(some, what=what, method=name) and not pick(some, what=what, method=name, value=value)
    ]


def _seeds(own: Sequence[Row], **match: str) -> set[int]:
    return {r["protocol"]["seed"] for r in pick(own, **match)}


def _range(counts: Sequence[int]) -> str:
    return "–".join(map(str, sorted({min(counts), max(counts)})))
