"""The first lines of the page: the finding, and under it point by point the numbers that carry it, from the rows."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from papers.rows import Row
from papers.tables import column, pick
from papers.twinfuzz_differences import ABLATIONS, FLOOR, LEAST, OTHERS, PAPERS, counted, counts, paired, standing
from papers.twinfuzz_subject import MAIN_EPS
from papers.twinfuzz_tables import Subject, average
from papers.twinfuzz_texts import BAR, FINDING, LEAD

ASKED = ("RobOT", "fine-tuning")  # whom TwinFuzz has to beat, on these data sets
ASKED_DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
COLUMNS = {"fooling_new": "static", "near_new": "white box at eps/3", "auto_near": "AutoAttack at eps/3"}
NO = "–"  # what a number is that is not there; a sentence with one is left out


def verdict(rows: list[Row], subjects: Sequence[Subject]) -> str:
    """The finding, and under it the numbers that carry it."""
    asked = [s for s in subjects if s.data in ASKED_DATA and s.eps == MAIN_EPS[s.data]]
    points = [point(Look(rows, asked)) for point in POINTS]
    there = [point for point in points if NO not in point]
    parts = ["# TwinFuzz: does robustness that generalises come from two models?\n", LEAD]
    if len(there) == len(points):
        parts.append(FINDING)
    parts += [_wrapped(line) + "\n" for line in _asked(rows, asked)]
    if there:
        both = "Two numbers are those of LeNet-4 and LeNet-5, means over seeds; what is compared are pairs of one seed."
        parts += [f"Point by point. {both}\n", *(_wrapped(f"- {point}", "  ") for point in there)]
    table = counted(rows, subjects, "TwinFuzz", OTHERS)
    if table:
        parts += [f"\nOver all subjects, ahead / level / behind; *both low*: both below {FLOOR}.\n", table, BAR]
    return "\n".join(parts)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _asked(rows: list[Row], subjects: Sequence[Subject]) -> list[str]:
    """The answer to what TwinFuzz is asked for, in one sentence a rival."""
    lines = []
    for other in ASKED:
        told = counts(rows, subjects, "TwinFuzz", other)
        low, whole = told.pop("floor"), sum(told.values())
        if not whole:
            lines.append(f"Against {other}: fewer than {LEAST} seeds, so nothing is said yet.")
            continue
        holds = "holds" if told["ahead"] == whole else "does not hold throughout" if told["ahead"] else "does not hold"
        more = f"; in {low} more both stand below {FLOOR}, which says nothing" if low else ""
        lines.append(
            f'**"Generalised robustness above {other}\'s outside the seed spread" {holds}**: ahead in {told["ahead"]}, '
            f"level in {told['level']}, behind in {told['behind']} of {whole} comparisons (subjects × columns, MNIST "
            f"and Fashion-MNIST){more}."
        )
    return lines


@dataclass(frozen=True, slots=True)
class Look:
    """Numbers of the LeNets, as words in a sentence."""

    rows: list[Row]
    subjects: Sequence[Subject]

    def of(self, data: str) -> list[list[Row]]:
        """The rows of each net."""
        return [s.rows(self.rows, "arms") for s in self.subjects if s.data == data]

    def mean(self, data: str, arm: str, key: str, digits: int = 3) -> str:
        """The means of an arm, net by net."""
        return " and ".join(average(column(pick(found, arm=arm), key), digits) for found in self.of(data)) or NO

    def path(self, data: str, key: str, *arms: str) -> str:
        """The means of several arms one after the other, net by net."""
        told = [" → ".join(average(column(pick(found, arm=arm), key)) for arm in arms) for found in self.of(data)]
        return " and ".join(told) or NO

    def stands(self, data: str, first: str, second: str, key: str) -> str:
        """Whether an arm is ahead of another, net by net."""
        words = {
            s.net.replace("lenet", "LeNet-"): standing(paired(s.rows(self.rows, "arms"), first, second, key))
            for s in self.subjects
            if s.data == data
        }
        if len(set(words.values())) == 1:
            return f"{next(iter(words.values()))} with both"
        return ", ".join(f"{word} with {net}" for net, word in words.items()) or NO

    def above(self, first: str, second: str, key: str) -> str:
        """In how many pairs of all nets and seeds the first is above the second."""
        found = [d for s in self.subjects for d in paired(s.rows(self.rows, "arms"), first, second, key)]
        return f"{sum(d > 0 for d in found)} of {len(found)}" if found else NO

    def span(self, arms: Sequence[str], key: str, digits: int = 3) -> str:
        """The least and the most of the means of arms, over nets."""
        means = [
            mean(values)
            for data in ASKED_DATA
            for found in self.of(data)
            for arm in arms
            if (values := column(pick(found, arm=arm), key))
        ]
        return f"{min(means):.{digits}f} to {max(means):.{digits}f}" if means else NO

    def most(self, key: str) -> str:
        """The most any net reaches, adversarial training left out."""
        found = [r for s in self.subjects for r in s.rows(self.rows, "arms") if r["protocol"]["arm"] != "adversarial"]
        return f"{max(column(found, key)):.3f} at most over {len(found)} nets" if found else NO

    def counted(self, other: str) -> str:
        told = counts(self.rows, self.subjects, PAPERS, other)
        whole = told["ahead"] + told["level"] + told["behind"]
        return f"{told['level']} of {whole} (ahead in {told['ahead']}, behind in {told['behind']})" if whole else NO


def _against(look: Look, data: str) -> str:
    parts = []
    for other in ASKED:
        told = [
            f"{title} {look.stands(data, 'TwinFuzz', other, key)} "
            f"({look.mean(data, 'TwinFuzz', key)} against {look.mean(data, other, key)})"
            for key, title in COLUMNS.items()
        ]
        parts.append(f"against {other}: {'; '.join(told)}.")
    return f"**{ASKED_DATA[data]}, eps {MAIN_EPS[data]:g}**, TwinFuzz {parts[0]} A{parts[1][1:]}"


def _plain(look: Look) -> str:
    told = [
        f"{title} {look.stands(data, 'TwinFuzz', 'plain', 'near_new')} "
        f"({look.mean(data, 'TwinFuzz', 'near_new')} against {look.mean(data, 'plain', 'near_new')})"
        for data, title in ASKED_DATA.items()
    ]
    bad = [look.stands(data, "TwinFuzz", "plain", "corruptions") for data in ASKED_DATA]
    start = [look.stands(data, "TwinFuzz", "resistant", "near_new") for data in ASKED_DATA]
    return (
        f"**TwinFuzz against the plain net, which nobody hardened**, white box at eps/3: {'; '.join(told)}. Under "
        f"corruptions: {bad[0]} on MNIST, {bad[1]} on Fashion-MNIST. Against the resistant net it started from, white "
        f"box at eps/3: {start[0]} on MNIST; {start[1]} on Fashion-MNIST."
    )


def _heap(look: Look) -> str:
    arms = ("plain", "resistant", "fine-tuning")
    near, auto = (look.path("fashion-mnist", key, *arms) for key in ("near_new", "auto_near"))
    return (
        "**The static heap itself costs white-box robustness**: plain → resistant → fine-tuned, Fashion-MNIST, white "
        f"box at eps/3: {near}; AutoAttack at eps/3: {auto}, on MNIST {look.path('mnist', 'auto_near', *arms)}."
    )


def _dlfuzz(look: Look) -> str:
    near = [look.mean(data, "DLFuzz", "near_new") for data in ASKED_DATA]
    sizes = [
        f"{look.mean(data, 'DLFuzz', 'picked.l2', 2)} against {look.mean(data, 'TwinFuzz', 'picked.l2', 2)}"
        for data in ASKED_DATA
    ]
    robot = look.mean("mnist", "RobOT", "picked.l2", 2)
    return (
        f"**DLFuzz's cases do best at eps/3**: {near[0]} on MNIST, {near[1]} on Fashion-MNIST under white box; above "
        f"TwinFuzz in {look.above('DLFuzz', 'TwinFuzz', 'near_new')} pairs, above RobOT in "
        f"{look.above('DLFuzz', 'RobOT', 'near_new')}. They lie nearer to their parents than TwinFuzz's (l2 {sizes[0]} "
        f"on MNIST, {sizes[1]} on Fashion-MNIST) and are picked by chance. But near is not enough: RobOT's lie at "
        f"{robot} on MNIST, and its nets are the weakest there at eps/3 (adversarial training apart)."
    )


def _full(look: Look) -> str:
    static = look.span(("TwinFuzz", "RobOT", "DLFuzz", "fine-tuning"), "fooling_new")
    return (
        f"**Static accuracy of 0.9 is not robustness.** Generalised static accuracy of fine-tuning, RobOT, TwinFuzz "
        f"and DLFuzz is {static}. Under AutoAttack at the full eps, adversarial training left out, it is "
        f"{look.most('auto')}."
    )


def _papers(look: Look) -> str:
    left = [look.mean(data, PAPERS, "seeding.steps.agreed", 0) for data in ASKED_DATA]
    grown = [look.mean(data, PAPERS, "picked.parents", 0) for data in ASKED_DATA]
    more = [look.mean(data, "TwinFuzz", "picked.parents", 0) for data in ASKED_DATA]
    tuned = [
        f"{title} {' and '.join(look.stands(data, PAPERS, 'fine-tuning', key) for key in ('near_new', 'auto_near'))}"
        for data, title in ASKED_DATA.items()
    ]
    return (
        f"**The paper's own seeds give few parents.** Of 20 000 images attacked on the plain net, 12 000 of which the "
        f"filter keeps, {left[0]} are mined "
        f"on MNIST, {left[1]} on Fashion-MNIST; the 2 000 cases learned come from {grown[0]} and from {grown[1]} "
        f"parents (TwinFuzz, attacked on both nets at once: {more[0]}, {more[1]}). Against fine-tuning at eps/3, under "
        f"white box and AutoAttack: {'; '.join(tuned)}."
    )


def _mining(look: Look) -> str:
    told = [
        f"{title} {look.stands(data, PAPERS, 'no mining', 'near_new')} "
        f"({look.mean(data, PAPERS, 'near_new')} against {look.mean(data, 'no mining', 'near_new')})"
        for data, title in ASKED_DATA.items()
    ]
    ours = [look.stands(data, "TwinFuzz", "no mining", "near_new") for data in ASKED_DATA]
    return (
        f"**Mining costs robustness**: the paper's seeds against the same without mining, white box at eps/3: "
        f"{'; '.join(told)}. TwinFuzz itself against that arm: {ours[0]} on MNIST; {ours[1]} on Fashion-MNIST. "
        f"Without mining there are {look.span(('no mining',), 'picked.parents', 0)} parents, so whether mining or the "
        "want of parents costs it, these rows do not tell."
    )


def _parts(look: Look) -> str:
    names = [name for name in ABLATIONS if name in ("no filter", "FOL only", "entropy only", "true class")]
    level = ", ".join(f"{name} {look.counted(name)}" for name in names)
    entropy = [look.stands(data, PAPERS, "entropy only", "near_new") for data in ASKED_DATA]
    return (
        f"**Quality filter, FOL, LIB, mined class: little or no difference.** The paper's seeds are level with: "
        f"{level}. Against entropy alone, white box at eps/3, they are {entropy[0]} on MNIST, {entropy[1]} on "
        "Fashion-MNIST."
    )


def _picks(look: Look) -> str:
    near, auto = (look.above("random pick", "TwinFuzz", key) for key in ("near_new", "auto_near"))
    return (
        f"**BE-ST picks no better than chance**: TwinFuzz's failures picked at random are above BE-ST's at eps/3 in "
        f"{near} pairs under white box, in {auto} under AutoAttack (three seeds of each net)."
    )


def _oracle(look: Look) -> str:
    told = [
        f"{look.mean(data, 'agreed oracle', 'precision', 2)} of its failures are wrong by the true label on {title}, "
        f"{look.mean(data, 'agreed oracle', 'labels_right', 2)} carry the right label"
        for data, title in ASKED_DATA.items()
    ]
    low = look.span(("agreed oracle",), "picked.parents", 0)
    behind = [look.stands(data, PAPERS, "agreed oracle", "auto_near") for data in ASKED_DATA]
    return (
        f"**The label-free oracle** works, with loss: {'; '.join(told)}. The rest are images of which the plain net's "
        f"answer, taken for the label, was wrong. The cases come from {low} parents; the labelled arm is, under "
        f"AutoAttack at eps/3, {behind[0]} on MNIST, {behind[1]} on Fashion-MNIST."
    )


def _upper(look: Look) -> str:
    clean = [look.mean(data, "adversarial", "clean", 2) for data in ASKED_DATA]
    plain = look.mean("fashion-mnist", "plain", "clean", 2)
    near = look.mean("fashion-mnist", "adversarial", "near_new")
    return (
        f"**Adversarial training is no upper bound on MNIST here**: it failed (clean accuracy {clean[0]}). On "
        f"Fashion-MNIST it is far above all fuzzers at eps/3 ({near}) and costs clean accuracy ({plain} → {clean[1]})."
    )


POINTS: tuple[Callable[[Look], str], ...] = (
    lambda look: _against(look, "mnist"),
    lambda look: _against(look, "fashion-mnist"),
    _plain,
    _heap,
    _dlfuzz,
    _full,
    _papers,
    _mining,
    _parts,
    _picks,
    _oracle,
    _upper,
)
