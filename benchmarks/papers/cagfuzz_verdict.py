"""The first lines of the page: what of the paper's claims holds. All from the rows."""

from collections.abc import Callable, Iterator, Sequence

from papers.cagfuzz_answers import COUNTED, MEANT, OTHERS, TWICE, by_word, errors, learned, rates, retrained, taught
from papers.cagfuzz_rq1 import SAMPLE
from papers.cagfuzz_tables import Gap, gap, over_models, sets, title
from papers.cagfuzz_texts import LEAD, NOTHING, READ_SO
from papers.cagfuzz_tools import CAGFUZZ, FGSM, NOISE
from papers.cagfuzz_trained import lesson
from papers.dare_verdict import wrapped
from papers.rows import Row
from papers.tables import pick


def verdict(rows: Sequence[Row]) -> str:
    parts = ["# CAGFuzz: are a CycleGAN's reconstructions better tests?\n", LEAD]
    if all(r["protocol"]["experiment"] == "smoke" for r in rows):
        return "\n".join([*parts, NOTHING])
    parts += ["## Answers\n", *(wrapped(f"- {line}", "  ") for line in short(rows)), ""]
    parts += [part for part in (errors(rows), learned(rows), retrained(rows)) if part]
    return "\n".join([*parts, READ_SO])


def short(rows: Sequence[Row]) -> Iterator[str]:
    """One answer a question, over all data sets."""
    told = {
        "noise as long": over_data(rows, "rq2", lambda own: _rate(own, NOISE)),
        "FGSM as long": over_data(rows, "rq2", lambda own: _rate(own, FGSM)),
    }
    yield from _joined("RQ2, errors per 100 tests, CAGFuzz against", told)
    yield from lesson(rows)
    told = {
        TWICE: over_data(rows, "rq1", lambda own: taught(own, CAGFUZZ).get(TWICE)),
        OTHERS: over_data(rows, "rq1", lambda own: taught(own, CAGFUZZ).get(OTHERS)),
        "the same, where CAGFuzz's generator has seen no more images than FGSM": over_data(
            rows, "rq1", lambda own: taught(own, SAMPLE).get(OTHERS)
        ),
    }
    yield from _joined("RQ1, accuracy after learning with CAGFuzz's tests against", told)
    told = {
        "on the clean test set": over_data(rows, "rq3", lambda own: _twice(own, "clean")),
        "under PGD made anew": over_data(rows, "rq3", lambda own: _twice(own, "fresh")),
    }
    yield from _joined("RQ3, accuracy after retraining against the images shown twice", told)


def over_data(rows: Sequence[Row], experiment: str, of: Callable[[list[Row]], Gap | None]) -> str:
    """``more on A (3 seeds); no clear difference on B (5 seeds) and C (2 seeds)``."""
    every = pick(rows, experiment=experiment)
    gaps = {title(data): of(pick(every, data=data)) for data in sets(every)}
    told = {f"{name} ({len(found.values)} seeds)": found for name, found in gaps.items() if found}
    return by_word(told, COUNTED if experiment == "rq2" else MEANT, "on")


def _joined(name: str, told: dict[str, str]) -> Iterator[str]:
    answers = [f"{what}: {words}" for what, words in told.items() if words]
    if answers:
        yield f"**{name}** " + ". ".join((answers[0], *(a[0].upper() + a[1:] for a in answers[1:]))) + "."


def _rate(own: Sequence[Row], tool: str) -> Gap | None:
    told = rates(own)
    return gap(told[CAGFUZZ], told[tool]) if CAGFUZZ in told and tool in told else None


def _twice(own: Sequence[Row], what: str) -> Gap:
    return gap(*(over_models(own, what, arm=arm) for arm in (CAGFUZZ, "twice")))
