"""The first lines of the page: does DARE beat noise on its weights? Every word and number of it is from the rows."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean

from papers.dare_attacks import ATTACKS
from papers.dare_paper import WON_ASE, WON_TOSEM
from papers.dare_tables import (
    COLUMNS,
    CONTROLS,
    NAMES,
    RACE,
    SEEN,
    Model,
    common,
    found,
    seeds_told,
    winners,
)
from papers.dare_texts import LEAD, NOTHING, READ_SO
from papers.rows import Row
from papers.tables import table, won
from papers.twinfuzz_differences import FLOOR, LEAST, WORDS, paired, stands

WHERE = {
    "static_mean": "on static examples, as the paper measures",
    "small_mean": "under fresh white-box attacks in the small ball",
    "fresh_mean": "under fresh white-box attacks in the full ball",
}
ASKED = (("dare", "noise"), ("dare-noslice", "noise-noslice"), ("dare", "ce"))
LONG_RACE = (*RACE, *CONTROLS)
TINY = 1e-15  # no p-value is told below


def verdict(rows: Sequence[Row]) -> str:
    """The answers, with what carries them."""
    parts = ["# DARE: does mining a net's own training make it robust?\n", LEAD]
    if not rows:
        return "\n".join([*parts, NOTHING])
    parts += [wrapped(f"- {answered(rows, *pair, key)}", "  ") for pair in ASKED for key in COLUMNS]
    parts += [wrapped(f"- {scenarios(rows)}", "  ") + "\n", READ_SO]
    return "\n".join(parts)


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def standings(rows: Sequence[Row], first: str, other: str, key: str) -> dict[str, int]:
    """With how many models an arm is ahead of another, level, behind, and with how many both are low."""
    words = [stands(own, first, other, key) for _, own in found(rows)]
    return {word: words.count(word) for word in (*WORDS, "floor")}


def answer(told: dict[str, int]) -> str:
    """Yes, no, or neither.

    >>> answer({"ahead": 2, "level": 0, "behind": 0}), answer({"ahead": 0, "level": 1, "behind": 3})
    ('Yes', 'No')
    >>> answer({"ahead": 1, "level": 1, "behind": 0}), answer({"ahead": 0, "level": 0, "behind": 0})
    ('With some models', 'Not known')
    """
    whole = told["ahead"] + told["level"] + told["behind"]
    if not whole:
        return "Not known"
    return "Yes" if told["ahead"] == whole else "With some models" if told["ahead"] else "No"


def answered(rows: Sequence[Row], first: str, other: str, key: str) -> str:
    """One question with its answer."""
    told = standings(rows, first, other, key)
    pairs = [d for _, own in found(rows) for d in paired(own, first, other, key)]
    random = "random " * other.startswith("noise")
    asked = f"**Does {NAMES[first]} beat {random}{NAMES[other]} {WHERE[key]}? {answer(told)}.**"
    if not pairs:
        return f"{asked} There are no pairs of rows."
    low = told.pop("floor")
    more = f", both below {FLOOR} with {low}, which says nothing" if low else ""
    few = f" (fewer than {LEAST} seeds say nothing of a model)" if not sum(told.values()) + low else ""
    ahead = f"{told['ahead']} model{'s' * (told['ahead'] != 1)}"
    return (
        f"{asked} Ahead with {ahead}, level with {told['level']}, behind with {told['behind']}{more}{few}; the "
        f"difference is {mean(pairs):+.3f} in the mean, above 0 in {won(pairs)} pairs (p {signed_ranks(pairs)})."
    )


def signed_ranks(differences: Sequence[float], alternative: str = "greater") -> str:
    """The p-value of Wilcoxon's signed-rank test, one-sided (are differences above 0?) or ``two-sided``.

    >>> signed_ranks([0.1, 0.2, 0.3, 0.4]), signed_ranks([-0.1, -0.2, -0.3]), signed_ranks([0.0, 0.0])
    ('= 0.062', '> 0.99', '–')
    >>> signed_ranks([-0.1, -0.2, -0.3, -0.4], "two-sided")
    '= 0.12'
    """
    from scipy.stats import wilcoxon

    told = [d for value in differences if (d := round(value, 5))]  # else equal ones differ in their last bits
    if not told:
        return "–"
    tied = len(set(map(abs, told))) < len(told)  # with ties there is no exact one
    p = float(wilcoxon(told, alternative=alternative, method="approx" if tied else "exact").pvalue)
    if p < TINY:  # below, nothing but rounding is left of it: 0, or less
        return f"< {TINY:g}"
    return "> 0.99" if p > 0.99 else f"= {p:.2g}"


Won = tuple[list[str], int]  # who wins a scenario, and over how many seeds


def races(rows: Sequence[Row], arms: Sequence[str]) -> dict[tuple[Model, str], Won]:
    """Who wins each scenario in which all these arms have rows of a seed."""
    told = {}
    for model, own in found(rows):
        for attack in ATTACKS:
            seeds = len(common(own, arms, f"static.{attack}"))
            if seeds:
                told[model, attack] = winners(own, arms, attack), seeds
    return told


def wins(race: Mapping[tuple[Model, str], Won], arm: str, seeds: int = 0) -> int:
    """How many scenarios an arm wins; with ``seeds``, of those decided on so many."""
    return sum(arm in names for names, count in race.values() if seeds in (0, count))


def decided(race: Mapping[tuple[Model, str], Won]) -> dict[int, int]:
    """How many scenarios are decided on one seed, on two, and so on."""
    return dict(sorted(Counter(count for _, count in race.values()).items()))


def _decided(race: Mapping[tuple[Model, str], Won], were: str = "") -> str:
    (least, first), *rest = decided(race).items()
    others = [f"{count} on {seeds_told(seeds).split()[0]}" for seeds, count in rest]
    return ", ".join([f"{first}{were} on {seeds_told(least)}", *others])


def scenarios(rows: Sequence[Row]) -> str:
    """In how many scenarios DARE has the highest static ER, as the paper counts, and with controls in the race."""
    paper = f"(the paper: {WON_ASE[0]} of {WON_ASE[1]}, and {WON_TOSEM[0]} of {WON_TOSEM[1]} in its extension)"
    short, long = races(rows, RACE), races(rows, LONG_RACE)
    if not short:
        return f"**Scenarios won** {paper}: not known, no scenario has rows of all arms."
    noise = wins(races(rows, ("noise", *SEEN)), "noise")
    line = (
        f"**Scenarios won, on static examples: {wins(short, 'dare')} of {len(short)}** {paper}: DARE has the highest "
        f"ER among itself and the nets trained on the examples of one attack. Of the {len(short)}, "
        f"{_decided(short, ' were decided')}."
    )
    if not long:
        return line
    return (
        f"{line} In DARE's place random noise on the weights wins {noise}. With noise, cross-entropy on D and "
        f"distillation in the race too, DARE wins {wins(long, 'dare')} of {len(long)} ({_decided(long)})."
    )


def race_table(rows: Sequence[Row]) -> str:
    """Scenarios won by each arm, in both races; those of the first also by how many seeds decided them."""
    short, long = races(rows, RACE), races(rows, LONG_RACE)
    on = decided(short)
    body = []
    for arm in LONG_RACE:
        told = [str(wins(short, arm, seeds)) if arm in RACE else "–" for seeds in (0, *on)]
        body.append([NAMES.get(arm, arm), *told, str(wins(long, arm))])
    parts = [f"of these on {seeds_told(seeds)}, of {count}" for seeds, count in on.items()]
    last = f"with controls, of {len(long)}" + (f" ({_decided(long)})" if long else "")
    return table(["arm", f"as the paper counts, of {len(short)}", *parts, last], body)
