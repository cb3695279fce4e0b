"""The first lines of the page: does LBT beat a random order and a stand-in without mutants? All from the rows."""

from collections.abc import Sequence
from statistics import mean, stdev

from papers.dare_verdict import signed_ranks, wrapped
from papers.lbt_methods import DRAWS, METHODS
from papers.lbt_remarks import gaps
from papers.lbt_tables import DATA_TITLES, FULL, LEAST, PAPERS, Against, against, fault_share, there
from papers.lbt_texts import LEAD, NOTHING, READ_SO
from papers.rows import Row
from papers.tables import cell, table, won

ASKED = {
    "random": "a random order",
    "control": "its control, the stand-in's own Gini without mutants,",
    "gini": "the model's own Gini, which needs its probabilities,",
    "metasel": "MetaSel, which needs probabilities and labels,",
    "nmutant": "mutants of the model itself, which see its weights,",
}
BAR = ("random", "control")
ANSWERS = {"ahead": "Yes", "level": "Not outside the seed spread", "behind": "No, it is behind", "–": "Not known"}
SLIGHT = 0.01  # a difference of average FDR below it is called so


def verdict(rows: Sequence[Row]) -> str:
    parts = ["# LBT: do the mutants of a stand-in find a black box's faults?\n", LEAD]
    orders = [r for r in rows if r["protocol"]["experiment"] == "orders"]
    if not orders:
        return "\n".join([*parts, NOTHING])
    sets = list(dict.fromkeys(place.data for place, _ in there(orders)))
    parts.append(wrapped(bar(orders, sets)) + "\n")
    for other in ASKED:
        parts += [wrapped(f"- {answered(orders, other, data)}", "  ") for data in sets]
    parts.append("")
    ceiling = full(orders)
    parts += [wrapped(ceiling) + "\n"] if ceiling else []
    missing = gaps(rows)
    parts += [missing] if missing else []
    return "\n".join([*parts, READ_SO.format(draws=DRAWS)])


def bar(rows: Sequence[Row], sets: Sequence[str]) -> str:
    """Whether the bar that was set before is met."""
    asked = "**The bar: average FDR above that of a random order and of the control, outside the seed spread, on"
    asked += " both data sets."
    told = {(other, data): against(rows, "lbt", other, data=data) for other in BAR for data in sets}
    words = {one.word for one in told.values()}
    if len(sets) < 2 or "–" in words:
        return f"{asked} Not decided yet.** Rows of {LEAST} seeds or more are missing."
    each = [" and ".join(_stood(told[other, data], other, data) for data in sets) for other in BAR]
    met = "Met" if words == {"ahead"} else "Not met"
    return f"{asked} {met}.** In the mean over pools LBT is {'; it is '.join(each)}."


OF = {"ahead": "ahead of", "level": "level with", "behind": "behind"}


def _stood(told: Against, other: str, data: str) -> str:
    """How LBT stands on a data set, with the mean difference and, of pairs, their spread."""
    name = "its control, the same stand-in without mutants," if other == "control" else "a random order"
    gaps = told.gaps
    spread = f" ± {stdev(gaps):.4f}, below 0 with {sum(g < 0 for g in gaps)} of {len(gaps)} seeds" * told.paired
    marked = "**" * (told.word == "behind")
    return f"{marked}{_slightly(told)}{OF[told.word]} {name} on {DATA_TITLES[data]}{marked} ({mean(gaps):+.4f}{spread})"


def _slightly(told: Against) -> str:
    return "slightly " * (told.word != "level" and abs(mean(told.gaps)) < SLIGHT)


def answered(rows: Sequence[Row], other: str, data: str) -> str:
    """One question with its answer."""
    told = against(rows, "lbt", other, data=data)
    answer = ANSWERS[told.word]
    if told.word == "behind":
        answer = f"No, it is {_slightly(told)}behind"
    asked = f"**Does LBT beat {ASKED[other]} on {DATA_TITLES[data]}? {answer}.**"
    if not told.differences:
        return f"{asked} There are no rows of both."
    few = f" (fewer than {LEAST} seeds say nothing of a pool)" if not told.judged else ""
    mine, theirs = ([pair[i] for pair in told.means] for i in (0, 1))
    gaps = f", difference {mean(told.gaps):+.4f} ± {stdev(told.gaps):.4f}" if told.paired and len(mine) > 1 else ""
    return (
        f"{asked} {_rests(told)}: average FDR in the mean over pools {cell(mine)} against {cell(theirs)}{gaps}"
        f"{_papers(rows, other, data)}. Pool by pool ahead on {told.count('ahead')}, level on {told.count('level')}, "
        f"behind on {told.count('behind')}{few}; above 0 in {won(told.differences)} pairs "
        f"(p {ranked(told.differences)}; A12 {told.a12:.2f})."
    )


def _rests(told: Against) -> str:
    """How many pools and seeds an answer rests on."""
    pools, seeds = len(told.words), len(told.means)
    crowded = f" ({told.full} of them with more than {FULL:.0%} faults)" if told.full else ""
    return f"{pools} pool{'s' * (pools != 1)}{crowded}, {seeds} seed{'s' * (seeds != 1)} that all of them have"


def ranked(differences: Sequence[float]) -> str:
    """Wilcoxon's p, two-sided, and which way.

    >>> ranked([-0.1, -0.2, -0.3, -0.4]), ranked([0.1, 0.2, 0.3, 0.4]), ranked([0.0])
    ('= 0.12, LBT lower', '= 0.12, LBT higher', '–')
    """
    p = signed_ranks(differences, "two-sided")
    return p if p == "–" else f"{p}, LBT {way(differences)}"


def way(differences: Sequence[float]) -> str:
    """Which way the signed ranks point."""
    told = sorted((d for value in differences if (d := round(value, 5))), key=abs)
    ranks = {size: mean(i for i, d in enumerate(told) if abs(d) == size) + 1 for size in set(map(abs, told))}
    total = sum(ranks[abs(d)] * (1 if d > 0 else -1) for d in told)
    return "higher" if total > 0 else "lower" if total < 0 else "neither way"


def _papers(rows: Sequence[Row], other: str, data: str) -> str:
    """The same on the paper's pools alone, where there are others too."""
    told = against(rows, "lbt", other, data=data, pools=PAPERS)
    if not told.means or len(told.words) == len(against(rows, "lbt", other, data=data).words):
        return ""
    mine, theirs = ([pair[i] for pair in told.means] for i in (0, 1))
    return f" (on the paper's two pools {cell(mine)} against {cell(theirs)}: {told.word})"


def full(rows: Sequence[Row]) -> str:
    """Pools in which nearly all are faults."""
    named = []
    for place, own in there(rows):
        share = fault_share(own)
        if share is not None and share > FULL:
            named.append(f"{place.whole} ({share:.1%})")
    if not named:
        return ""
    return (
        f"Pools in which more than {FULL:.0%} of the inputs are faults, so that any order finds them and average FDR "
        f"has hardly room to differ: {'; '.join(named)}. There APFD between its bounds tells more."
    )


def compared(rows: Sequence[Row]) -> str:
    """LBT against every other method: pools, differences, Wilcoxon, A12."""
    body = []
    for name, method in METHODS.items():
        if name == "lbt":
            continue
        for what, title in (("fdr_mean", "average FDR"), ("apfd_norm", "APFD, normalised")):
            told = against(rows, "lbt", name, what)
            if told.differences:
                words = " / ".join(str(told.count(word)) for word in ("ahead", "level", "behind"))
                numbers = [f"{mean(told.differences):+.4f}", won(told.differences)]
                numbers.append(ranked(told.differences).removeprefix("= "))
                body.append([method.title, method.sees, title, words, *numbers, f"{told.a12:.2f}"])
    head = ["LBT against", "sees", "measure", "ahead / level / behind", "difference", "pairs above 0", "p", "A12"]
    return table(head, body)
