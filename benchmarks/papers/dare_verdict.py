"""The first lines of the page: does DARE beat noise on its weights? Every word and number of it is from the rows."""

import textwrap
from collections.abc import Sequence
from statistics import mean

from papers.dare_attacks import ATTACKS
from papers.dare_paper import WON_ASE, WON_TOSEM
from papers.dare_tables import COLUMNS, CONTROLS, NAMES, SEEN, Model, found, models, winners
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
RACE = ("dare", *SEEN)  # the paper's
LONG_RACE = (*RACE, *CONTROLS)


def verdict(rows: Sequence[Row]) -> str:
    """The answers, with what carries them."""
    parts = ["# DARE: does mining a net's own past make it robust?\n", LEAD]
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
    return (
        f"{asked} Ahead with {told['ahead']} models, level with {told['level']}, behind with {told['behind']}{more}"
        f"{few}; the difference is {mean(pairs):+.3f} in the mean, above 0 in {won(pairs)} pairs."
    )


def races(rows: Sequence[Row], arms: Sequence[str]) -> dict[tuple[Model, str], list[str]]:
    """Who wins each scenario in which all these arms have rows."""
    told = {(model, attack): winners(model.rows(rows), arms, attack) for model in models() for attack in ATTACKS}
    return {scenario: names for scenario, names in told.items() if names}


def scenarios(rows: Sequence[Row]) -> str:
    """In how many scenarios DARE has the highest static ER, as the paper counts, and with controls in the race."""
    paper = f"(the paper: {WON_ASE[0]} of {WON_ASE[1]}, and {WON_TOSEM[0]} of {WON_TOSEM[1]} in its extension)"
    short, long = races(rows, RACE), races(rows, LONG_RACE)
    if not short:
        return f"**Scenarios won** {paper}: not known, no scenario has rows of all arms."
    noise = sum("noise" in names for names in races(rows, ("noise", *SEEN)).values())
    ours = sum("dare" in names for names in short.values())
    line = (
        f"**Scenarios won, on static examples: {ours} of {len(short)}** {paper}: DARE has the highest ER among itself "
        f"and the nets trained on the examples of one attack."
    )
    if not long:
        return line
    longer = sum("dare" in names for names in long.values())
    return (
        f"{line} In DARE's place random noise on the weights wins {noise}. With noise, cross-entropy on D and "
        f"distillation in the race too, DARE wins {longer} of {len(long)}."
    )


def race_table(rows: Sequence[Row]) -> str:
    """Scenarios won by each arm, in both races."""
    short, long = races(rows, RACE), races(rows, LONG_RACE)
    body = [
        [NAMES.get(arm, arm), *(str(sum(arm in names for names in race.values())) for race in (short, long))]
        for arm in LONG_RACE
    ]
    for line in body[len(RACE) :]:
        line[1] = "–"
    head = ["arm", f"as the paper counts, of {len(short)}", f"with controls, of {len(long)}"]
    return table(head, body)
