"""The answers to the three questions, each with a small table. All from the rows."""

from collections.abc import Iterator, Mapping, Sequence

from papers.cagfuzz_parts import arm_title
from papers.cagfuzz_rq1 import SAMPLE
from papers.cagfuzz_rq2 import EQUAL, OWN
from papers.cagfuzz_tables import Gap, gap, listed, models, one, over_models, rate, sets, shown, title
from papers.cagfuzz_texts import POOR, RQ1_ASKED, RQ2_ASKED, RQ3_ASKED
from papers.cagfuzz_tools import CAGFUZZ, NOISE, TITLES, TOOLS
from papers.dare_verdict import wrapped
from papers.rows import Row
from papers.tables import number, pick, table

COUNTED = {"more": "more", "less": "less", "level": "no clear difference", "–": "one seed, no interval"}
MEANT = COUNTED | {"more": "higher", "less": "lower"}  # of accuracy
PLAIN = {tool: name.replace(",", "") for tool, name in TITLES.items()}  # as they stand in sentences
MEASURED = (("clean", "clean test set"), ("mixed", "test + tests"), ("fresh", "PGD, anew"))
BESIDE = ("before", "plain", "twice", NOISE)
TEACHERS = ("the images shown twice", "noise as long", "FGSM made on another model", "FGSM made on the model itself")
TWICE, NOISY, OTHERS, ITSELF = TEACHERS


def by_word(gaps: Mapping[str, Gap], words: Mapping[str, str], join: str = "") -> str:
    """Names by the answer that they have: ``more than A; no clear difference to B and C``, or all with ``join``."""
    groups: dict[str, list[str]] = {}
    for name, told in gaps.items():
        if told.values:
            groups.setdefault(told.word, []).append(name)
    links = {word: join or ("than" if word in ("more", "less") else "to") for word in words}
    return "; ".join(f"{words[w]} {links[w]} {listed(groups[w])}" for w in words if w in groups)


def seeds(*values: Mapping[int, float]) -> str:
    count = len(set.intersection(*(set(v) for v in values)))
    return "1 seed" if count == 1 else f"{count} seeds"


# ---- RQ2 ----


def errors(rows: Sequence[Row]) -> str:
    every = pick(rows, experiment="rq2")
    told = [part for data in sets(every) if (part := found(pick(every, data=data), data))]
    poor = [POOR] if told and "cifar10" in sets(every) else []
    return "\n".join([RQ2_ASKED, *poor, *told]) if told else ""


def rates(own: Sequence[Row], what: str = "errors") -> dict[str, dict[int, float]]:
    """By tool and seed the share of the tests that err, on equal terms."""
    told = {tool: rate(pick(own, terms=EQUAL), what, tool=tool) for tool in TOOLS}
    return {tool: values for tool, values in told.items() if values}


def found(own: Sequence[Row], data: str) -> str:
    """The sentences and the table of a data set."""
    equal, errs, held = pick(own, terms=EQUAL), rates(own), rates(own, "held")
    if CAGFUZZ not in errs:
        return ""
    counts = {t: over_models(equal, "errors", tool=t) for t in errs}
    by_rate, by_count = (
        {PLAIN[t]: gap(told[CAGFUZZ], told[t]) for t in errs if t != CAGFUZZ} for told in (errs, counts)
    )
    images = max(r["protocol"]["images"] for r in own)
    free = {t: over_models(pick(own, terms=OWN), "errors", tool=t) for t in TOOLS}
    sentence = f"**{title(data)}, {seeds(errs[CAGFUZZ])}.** "
    if by_rate:
        told, counted = by_word(by_rate, COUNTED), by_word(by_count, COUNTED)
        sentence += f"Errors per 100 tests: {told}. "
        sentence += "Counts say the same. " if told == counted else f"Counts: {counted}. "
        told = by_word({PLAIN[t]: gap(held[CAGFUZZ], held[t]) for t in held if t != CAGFUZZ}, COUNTED)
        sentence += f"Errors held per 100 tests: {told}. "
    sentence += _few({t: over_models(equal, "tests", tool=t) for t in errs}, images)
    if any(free.values()):
        listing = ", ".join(f"{PLAIN[t]} {one(v)}" for t, v in free.items() if v)
        sentence += f"On own terms, errors in {images} tests each: {listing}. "
    agrees, clean = (one(over_models(equal, what, tool=CAGFUZZ), 100, 1) for what in ("witness", "clean_witness"))
    sentence += f"The witness gives {agrees} % of CAGFuzz's tests their label, and {clean} % of their images."
    return f"{wrapped(sentence)}\n\n{_found(own, errs, free, images)}"


def _few(tests: dict[str, dict[int, float]], images: int) -> str:
    """The tools that the cosine leaves tests of less than half of the images."""
    few = [f"{PLAIN[t]} {one(v)}" for t, v in tests.items() if sum(v.values()) / len(v) < images / 2]
    return f"The cosine leaves {listed(few)} tests of {images} images, so that counts mislead. " if few else ""


def _found(own: Sequence[Row], errs: dict[str, dict[int, float]], free: dict[str, dict[int, float]], n: int) -> str:
    equal, held = pick(own, terms=EQUAL), rates(own, "held")
    head = ["tool", f"tests of {n} images", "errors", "held", "errors per 100 tests", "held per 100 tests"]
    head += ["CAGFuzz minus it", f"own terms: errors in {n}"]
    body = []
    for tool in errs:
        counts = [one(over_models(equal, what, tool=tool)) for what in ("tests", "errors", "held")]
        shares = [one(told[tool], 100, 2) if tool in told else "–" for told in (errs, held)]
        against = "" if tool == CAGFUZZ else gap(errs[CAGFUZZ], errs[tool]).text()
        body.append([TITLES[tool], *counts, *shares, against, one(free[tool])])
    return table(head, body)


# ---- RQ1 ----


def transferred(own: Sequence[Row], *, same: bool, what: str = "whole") -> dict[int, float]:
    """By seed the mean over models of FGSM made on the model itself, or on the two others."""
    named = models(own)
    values: dict[int, list[float]] = {}
    for row in own:
        p = row["protocol"]
        maker = p["arm"].removeprefix("fgsm-")
        value = number(row, what)
        if value is not None and maker in named and p["arm"] != maker and (maker == p["model"]) == same:
            values.setdefault(p["seed"], []).append(value)
    full = len(named) * (1 if same else len(named) - 1)
    return {seed: sum(v) / len(v) for seed, v in values.items() if len(v) == full}


def taught(own: Sequence[Row], arm: str) -> dict[str, Gap]:
    """An arm's accuracy on the whole test set minus that of the arms it is to beat, of those that there are."""
    mine = over_models(own, "whole", arm=arm)
    against = {
        TWICE: over_models(own, "whole", arm="twice"),
        NOISY: over_models(own, "whole", arm=NOISE),
        OTHERS: transferred(own, same=False),
        ITSELF: transferred(own, same=True),
    }
    told = {name: gap(mine, theirs) for name, theirs in against.items()}
    return {name: difference for name, difference in told.items() if difference.values}


def learned(rows: Sequence[Row]) -> str:
    every = pick(rows, experiment="rq1")
    lines, body = [], []
    for data in sets(every):
        own = pick(every, data=data)
        whole, sample = taught(own, CAGFUZZ), taught(own, SAMPLE)
        lines += [wrapped(f"- {line}", "  ") for line in _learned(own, data, whole, sample)]
        body += [
            [title(data), name, whole[name].text(), sample[name].text() if name in sample else "–"] for name in whole
        ]
    head = ["data", "against", "CAGFuzz", "CAGFuzz, AEG of the sample"]
    return "\n".join([RQ1_ASKED, *lines, "", table(head, body)]) if lines else ""


def _learned(own: Sequence[Row], data: str, whole: dict[str, Gap], sample: dict[str, Gap]) -> Iterator[str]:
    if not whole:
        return
    mine, alone = (over_models(own, "whole", arm=arm) for arm in (CAGFUZZ, "original"))
    line = f"**{title(data)}, {seeds(mine)}**: {shown(mine)} % with CAGFuzz's tests, {shown(alone)} % with the images "
    line += f"alone. CAGFuzz: {by_word(whole, MEANT)}."
    if sample:
        few = by_word(sample, MEANT)
        line += f" AEG of the sample: {'the same' if few == by_word(whole, MEANT) else few}."
    sizes = [over_models(own, "l2", arm=CAGFUZZ), transferred(own, same=True, what="l2") if ITSELF in whole else {}]
    if all(sizes):
        line += f" FGSM has L2 {one(sizes[1], 1, 2)}, CAGFuzz {one(sizes[0], 1, 2)}."
    yield line


# ---- RQ3 ----


def retrained(rows: Sequence[Row]) -> str:
    """What CAGFuzz's tests are worth beside plain training, the images twice, and noise."""
    every = pick(rows, experiment="rq3")
    body = []
    for data in sets(every):
        own = pick(every, data=data)
        for what, name in MEASURED:
            mine = over_models(own, what, arm=CAGFUZZ)
            if mine:
                others = [gap(mine, over_models(own, what, arm=arm)).text() for arm in BESIDE]
                body.append([f"{title(data)}, {seeds(mine)}", name, shown(mine), *others])
    head = ["data", "measured on", "CAGFuzz, %", *(f"minus {arm_title(arm)}" for arm in BESIDE)]
    return f"{RQ3_ASKED}\n{table(head, body)}" if body else ""
