"""The first lines of the page: what of the paper's claims holds. All from the rows."""

from collections.abc import Iterator, Sequence

from papers.cagfuzz_parts import arm_title
from papers.cagfuzz_rq2 import EQUAL
from papers.cagfuzz_tables import Gap, gap, models, over_models, sets, shown, title
from papers.cagfuzz_texts import LEAD, NOTHING, READ_SO
from papers.cagfuzz_tools import CAGFUZZ, FGSM, HUNTER, NOISE, TITLES, TOOLS, XPLORE
from papers.cagfuzz_trained import lesson
from papers.dare_verdict import wrapped
from papers.rows import Row
from papers.tables import pick

ANSWERS = {"more": "Yes", "level": "Not outside the interval", "less": "No, less", "–": "Not known"}


def verdict(rows: Sequence[Row]) -> str:
    parts = ["# CAGFuzz: are a CycleGAN's reconstructions better tests?\n", LEAD]
    if all(r["protocol"]["experiment"] == "smoke" for r in rows):
        return "\n".join([*parts, NOTHING])
    for lines in (errors(rows), lesson(rows), learned(rows), retrained(rows)):
        parts += [wrapped(f"- {line}", "  ") for line in lines]
    return "\n".join([*parts, "", READ_SO])


def _said(told: Gap) -> str:
    return ANSWERS[told.word]


def learned(rows: Sequence[Row]) -> Iterator[str]:
    """RQ1, a sentence for each data set and each of the arms that CAGFuzz is to beat."""
    every = pick(rows, experiment="rq1")
    for data in sets(every):
        own = pick(every, data=data)
        mine = over_models(own, "whole", arm=CAGFUZZ)
        against = {
            "the images shown twice": over_models(own, "whole", arm="twice"),
            "noise as long": over_models(own, "whole", arm=NOISE),
            "FGSM made on another model": transferred(own, same=False),
            "FGSM made on the model itself": transferred(own, same=True),
        }
        told = {name: gap(mine, theirs) for name, theirs in against.items()}
        answers = "; ".join(f"{name}: {_said(one).lower()}, {one.text()}" for name, one in told.items() if one.values)
        if answers:
            yield (
                f"**RQ1, {title(data)}: is accuracy on the whole test set higher after learning with CAGFuzz's tests "
                f"than with …?** {answers} (points, mean over models; {shown(mine)} % with CAGFuzz, "
                f"{shown(over_models(own, 'whole', arm='original'))} % with the images alone)."
            )


def transferred(own: Sequence[Row], *, same: bool) -> dict[int, float]:
    """By seed the mean over models of FGSM made on the model itself, or on the two others."""
    named = models(own)
    values: dict[int, list[float]] = {}
    for row in own:
        p = row["protocol"]
        maker = p["arm"].removeprefix("fgsm-")
        if maker in named and p["arm"] != maker and (maker == p["model"]) == same:
            values.setdefault(p["seed"], []).append(row["numbers"]["whole"])
    full = len(named) * (1 if same else len(named) - 1)
    return {seed: sum(v) / len(v) for seed, v in values.items() if len(v) == full}


def errors(rows: Sequence[Row]) -> Iterator[str]:
    """RQ2 on equal terms: who errs most, and how many of the errors hold."""
    every = pick(rows, experiment="rq2", terms=EQUAL)
    for data in sets(every):
        own = pick(every, data=data)
        counts = {t: over_models(own, "errors", tool=t) for t in TOOLS}
        held = {t: over_models(own, "held", tool=t) for t in TOOLS}
        there = [t for t in TOOLS if counts[t]]
        if CAGFUZZ not in there:
            continue
        order = sorted(there, key=lambda t: -sum(counts[t].values()) / len(counts[t]))
        listed = ", ".join(f"{TITLES[t]} {_one(counts[t])} ({_one(held[t])} held)" for t in order)
        rest = [f"{TITLES[t]}: {_compared(counts, held, t)}" for t in (NOISE, FGSM, HUNTER, XPLORE) if t in there]
        images = sorted({r["protocol"]["images"] for r in own})[-1]
        yield (
            f"**RQ2, {title(data)}, equal terms: errors of {images} images, mean over models.** {listed}. CAGFuzz "
            f"against {'; '.join(rest)}. The witness gives {_share(own, 'witness')} % of CAGFuzz's tests their label, "
            f"and {_share(own, 'clean_witness')} % of the images they were made of."
        )


def _compared(counts: dict[str, dict[int, float]], held: dict[str, dict[int, float]], tool: str) -> str:
    told = {"errors": gap(counts[CAGFUZZ], counts[tool]), "held": gap(held[CAGFUZZ], held[tool])}
    return ", ".join(f"{name} {one.word} ({one.text(1, 0)})" for name, one in told.items())


def _one(values: dict[int, float]) -> str:
    return shown(values, 1, 0).partition(" ")[0]


def _share(own: Sequence[Row], what: str) -> str:
    return shown(over_models(own, what, tool=CAGFUZZ)).partition(" ")[0]


def retrained(rows: Sequence[Row]) -> Iterator[str]:
    """RQ3: what CAGFuzz's tests are worth beside plain training, the images twice, and noise."""
    every = pick(rows, experiment="rq3")
    for data in sets(every):
        own = pick(every, data=data)
        lines = []
        for what, name in (("clean", "clean test set"), ("mixed", "test + tests"), ("fresh", "PGD, anew")):
            mine = over_models(own, what, arm=CAGFUZZ)
            others = {arm: gap(mine, over_models(own, what, arm=arm)) for arm in ("before", "plain", "twice", NOISE)}
            told = ", ".join(f"{arm_title(a)} {g.text()}" for a, g in others.items() if g.values)
            if told:
                lines.append(f"{name} {shown(mine)} %, against {told}")
        if lines:
            yield f"**RQ3, {title(data)}: after five epochs with CAGFuzz's tests, points, mean over models.** " + (
                "; ".join(lines) + "."
            )
