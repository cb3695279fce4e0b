"""The first lines of the page: does LBT beat a random order and a stand-in without mutants? All from the rows."""

from collections.abc import Sequence
from statistics import mean

from papers.dare_verdict import signed_ranks, wrapped
from papers.lbt_methods import METHODS
from papers.lbt_tables import DATA_TITLES, LEAST, PAPERS, against, there
from papers.lbt_texts import LEAD, NOTHING, READ_SO
from papers.rows import Row
from papers.tables import cell, column, table, won

ASKED = {
    "random": "a random order",
    "control": "its control, the stand-in's own Gini without mutants,",
    "gini": "the model's own Gini, which needs its probabilities,",
    "metasel": "MetaSel, which needs probabilities and labels,",
    "nmutant": "mutants of the model itself, the white-box bound,",
}
BAR = ("random", "control")
ANSWERS = {"ahead": "Yes", "level": "Not outside the seed spread", "behind": "No, it is behind", "–": "Not known"}
FULL = 0.9  # a share of faults with which there is little left to find


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
    return "\n".join([*parts, READ_SO])


def bar(rows: Sequence[Row], sets: Sequence[str]) -> str:
    """Whether the bar that was set before is met."""
    asked = "**The bar: average FDR above that of a random order and of the control, outside the seed spread, on"
    asked += " both data sets."
    told = {(data, other): against(rows, "lbt", other, data=data).word for data in sets for other in BAR}
    if len(sets) < 2 or "–" in told.values():
        return f"{asked} Not decided yet.** Rows of {LEAST} seeds or more are missing."
    if set(told.values()) == {"ahead"}:
        return f"{asked} Met.**"
    lost = [
        f"{word} against {'the control' if other == 'control' else 'random'} on {DATA_TITLES[data]}"
        for (data, other), word in told.items()
    ]
    return f"{asked} Not met.** In the mean over pools LBT is {', '.join(lost)}."


def answered(rows: Sequence[Row], other: str, data: str) -> str:
    """One question with its answer."""
    told = against(rows, "lbt", other, data=data)
    asked = f"**Does LBT beat {ASKED[other]} on {DATA_TITLES[data]}? {ANSWERS[told.word]}.**"
    if not told.differences:
        return f"{asked} There are no rows of both."
    few = f" (fewer than {LEAST} seeds say nothing of a pool)" if not told.judged else ""
    mine, theirs = ([pair[i] for pair in told.means] for i in (0, 1))
    return (
        f"{asked} Average FDR in the mean over pools {cell(mine)} against {cell(theirs)}{_papers(rows, other, data)}. "
        f"Pool by pool ahead on {told.count('ahead')}, level on {told.count('level')}, behind on "
        f"{told.count('behind')}{few}; above 0 in {won(told.differences)} pairs (p {signed_ranks(told.differences)}, "
        f"A12 {told.a12:.2f})."
    )


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


def fault_share(own: Sequence[Row]) -> float | None:
    """m/n of a pool."""
    faults, n = column(own, "faults"), column(own, "n")
    return faults[-1] / n[-1] if faults and n else None


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
                p = signed_ranks(told.differences)
                numbers = [f"{mean(told.differences):+.4f}", won(told.differences), p.removeprefix("= ")]
                body.append([method.title, method.sees, title, words, *numbers, f"{told.a12:.2f}"])
    head = ["LBT against", "sees", "measure", "ahead / level / behind", "difference", "pairs above 0", "p", "A12"]
    return table(head, body)
