"""What the rows say of DARE's choices: learning rate and epoch, how far weights moved, and which epochs were mined."""

from collections import Counter
from collections.abc import Iterator, Sequence

from papers.dare_measure import Sizes
from papers.dare_tables import Model, found
from papers.dare_texts import CHOSEN_TEXT
from papers.dare_verdict import wrapped
from papers.rows import Row
from papers.tables import number, pick, table
from papers.twinfuzz_tables import average, ranked

Subject = dict[str, Row]  # rows of one net, by arm


def subjects(rows: Sequence[Row]) -> Iterator[tuple[Model, int, Subject]]:
    """The nets with a row of DARE, seed by seed."""
    for model, own in found(rows):
        for seed in sorted(r["protocol"]["seed"] for r in pick(own, arm="dare") if number(r, "trained.lr")):
            yield model, seed, {r["protocol"]["arm"]: r for r in pick(own, seed=seed)}


def chosen(rows: Sequence[Row]) -> str:
    """The learning rate of each net, and what follows from it."""
    told = list(subjects(rows))
    if not told:
        return ""
    body = [[model.title, str(seed), *_line(arms)] for model, seed, arms in told]
    head = ["model", "seed", "learning rate", "epoch", "gain, of inputs", "moved (L2)", "static: DARE", "static: noise"]
    sentences = wrapped(" ".join([_rates(told), _distances(told), _correlations(told)]))
    return "\n".join([CHOSEN_TEXT, f"{sentences}\n", table(head, body)])


def gain(row: Row) -> int:
    """How many more of the tenth of D the net gets right than the original."""
    after, before = number(row, "trained.val_accuracy") or 0, number(row, "trained.checked_accuracy_before") or 0
    return round((after - before) * (number(row, "trained.checked") or 0))


def _line(arms: Subject) -> list[str]:
    dare, values = arms["dare"], [_static(arms, arm) for arm in ("dare", "noise")]
    told = dare["numbers"]["trained"]
    far = f"{dare['numbers']['moved']['l2']:.3g}"
    each = [average([] if v is None else [v]) for v in values]
    return [f"{told['lr']:g}", str(told["epoch"]), f"{gain(dare):+d} of {told['checked']}", far, *each]


def _static(arms: Subject, arm: str) -> float | None:
    return number(arms[arm], "static_mean") if arm in arms else None


def _rates(told: Sequence[tuple[Model, int, Subject]]) -> str:
    rows = [arms["dare"] for _, _, arms in told]
    gains, checked = [gain(r) for r in rows], [r["numbers"]["trained"]["checked"] for r in rows]
    rates = Counter(r["numbers"]["trained"]["lr"] for r in rows)
    each = ", ".join(f"{rate:g} with {count}" for rate, count in sorted(rates.items()))
    return (
        f"Chosen with {len(rows)} nets: {each}. The net that is kept gets between {min(gains):+d} and {max(gains):+d} "
        f"more of the tenth ({min(checked)} to {max(checked)} inputs) right than M."
    )


def _distances(told: Sequence[tuple[Model, int, Subject]]) -> str:
    far: dict[Model, list[float]] = {}
    for model, _, arms in told:
        far.setdefault(model, []).append(arms["dare"]["numbers"]["moved"]["l2"])
    every = [value for values in far.values() for value in values]
    ratio = {model: max(values) / min(values) for model, values in far.items() if min(values)}
    line = f"The weights move by {min(every):.2g} to {max(every):.2g} (L2)"
    if not ratio:
        return f"{line}."
    widest = max(ratio, key=ratio.__getitem__)
    seeds = ", ".join(f"{value:.2g}" for value in far[widest])
    return f"{line}, and between seeds of one model by up to {ratio[widest]:.0f} times ({widest.title}: {seeds})."


def _correlations(told: Sequence[tuple[Model, int, Subject]]) -> str:
    """Do weights that move farther give a higher static number, of DARE and of noise alike?"""
    both = [arms for _, _, arms in told if _static(arms, "dare") is not None and _static(arms, "noise") is not None]
    far = [arms["dare"]["numbers"]["moved"]["l2"] for arms in both]
    values = [ranked(far, [_static(arms, arm) or 0 for arms in both]) for arm in ("dare", "noise")]
    if None in values:
        return "Of the rank correlation between the distance moved and the static number nothing can be said."
    dare, noise = (f"{value:+.2f}" for value in values)
    return (
        f"Rank correlation (Spearman) between the distance moved and the static number, over the {len(both)} nets that "
        f"have both: {dare} for DARE, {noise} for noise."
    )


def drawn(rows: Sequence[Row]) -> str:
    """How many draws of weight noise stand behind its numbers."""
    sizes = [r["protocol"]["sizes"] for arm in ("noise", "noise-noslice") for r in pick(rows, arm=arm)]
    kinds = sorted({(s["draws"], s["fresh_draws"]) for s in sizes}) or [(Sizes().draws, Sizes().fresh_draws)]
    many, few = (" or ".join(map(str, sorted(set(some)))) for some in zip(*kinds, strict=True))
    return f"Of weight noise, {many} draws stand behind clean and static numbers, and {few} behind fresh ones."


def later(rows: Sequence[Row]) -> str:
    """M is not the last epoch, and what came after it is mined too."""
    ends = [
        (number(arms["original"], "trained.epoch") or 0, arms["dare"]["numbers"]["trained"]["epochs_mined"][1])
        for _, _, arms in subjects(rows)
        if "original" in arms
    ]
    after = sum(last > own for own, last in ends)
    count = f" In {after} of {len(ends)} nets the latest mined epoch comes after M's own."
    text = (
        "- M is the net of the best validation epoch, that of the specification the net of the last. All other epochs "
        "of the second half of its own training are mined, those after it too."
    )
    return wrapped(text + count * bool(ends), "  ") + "\n"
