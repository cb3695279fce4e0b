"""How much the generator was trained, and what becomes of RQ2's errors: makings, and the table of them."""

from collections.abc import Sequence

from papers.cagfuzz_rq2 import EQUAL, OWN
from papers.cagfuzz_tables import by_seed, sets, shown, title
from papers.cagfuzz_tools import CAGFUZZ, FGSM, NOISE
from papers.rows import Row
from papers.tables import pick, seeds_of, table

# From a few steps to half of the usual training, one snapshot each; the usual one is RQ2's own.
MAKINGS = {
    300: "images=300,epochs=1,snapshots=1",
    1000: "images=1000,epochs=1,snapshots=1",
    2000: "images=2000,epochs=1,snapshots=1",
    4000: "images=2000,epochs=2,snapshots=1",
    8000: "images=2000,epochs=4,snapshots=1",
}
USUAL = 16_000  # pairs of images, in cyclegan's own training
TOOLS = (CAGFUZZ, NOISE, FGSM)
MODEL = "lenet5"
CANDIDATES = 2  # both directions of the one snapshot

TEXT = f"""\
## What the errors measure: how little the generator was trained

The same test images of LeNet-5 as in RQ2, generators that learned from fewer pairs of images ({USUAL} are the usual
training). On its own terms a tool's first candidate is its test; *above 0.9* are the tests that the cosine keeps. The
paper does not say how long its generator was trained, and finds 894 errors in 2000 tests of MNIST.
"""


def trained(rows: Sequence[Row]) -> str:
    """A table for each data set, the least trained generator first."""
    every = pick(rows, experiment="trained")
    parts = [TEXT] if every else []
    head = ["pairs learned", "L2", "errors", "witness agrees, %", "errors held", "above 0.9", "errors of these", "held"]
    head += ["noise as long: errors", "held"]
    for data in sets(every):
        own = pick(every, data=data)
        usual = pick(rows, experiment="rq2", data=data, model=MODEL)
        body = [_line(str(pairs), pick(own, pairs=pairs)) for pairs in MAKINGS if pick(own, pairs=pairs)]
        body += [_line(f"{USUAL} (RQ2)", usual)] if usual else []
        seeds = seeds_of([pick(own, tool=tool, pairs=pairs, terms=OWN) for tool in TOOLS for pairs in MAKINGS])
        parts += [f"### {title(data)}, LeNet-5, {seeds} seeds\n", table(head, body)]
    return "\n".join(parts)


def _line(label: str, rows: Sequence[Row]) -> list[str]:
    def told(what: str, tool: str, terms: str, scale: float = 1, digits: int = 0) -> str:
        return shown(by_seed(rows, what, tool=tool, terms=terms), scale, digits)

    own = [told("l2", CAGFUZZ, OWN, 1, 2), told("errors", CAGFUZZ, OWN), told("witness", CAGFUZZ, OWN, 100, 1)]
    kept = [told(what, CAGFUZZ, EQUAL) for what in ("tests", "errors", "held")]
    noise = [told(what, NOISE, OWN) for what in ("errors", "held")]
    return [label, *own, told("held", CAGFUZZ, OWN), *kept, *noise]


def lesson(rows: Sequence[Row]) -> list[str]:
    """The least and the usual training of each data set, in one line for all."""
    every = pick(rows, experiment="trained", tool=CAGFUZZ, terms=OWN)
    told = []
    for data in sets(every):
        least = min(r["protocol"]["pairs"] for r in pick(every, data=data))
        few = pick(every, data=data, pairs=least)
        usual = pick(rows, experiment="rq2", data=data, model=MODEL, tool=CAGFUZZ, terms=OWN)
        if not usual:
            continue
        (many, many_held), (some, some_held) = (
            [shown(by_seed(ones, what), 1, 0) for what in ("errors", "held")] for ones in (few, usual)
        )
        told.append(
            f"{title(data)} ({len(by_seed(few, 'errors'))} seeds) {many} ({many_held} held) after {least} pairs of "
            f"images, {some} ({some_held} held) after {USUAL}"
        )
    if not told:
        return []
    name = "What the errors measure: how little the generator was trained."
    return [f"**{name}** CAGFuzz's errors in 2000 tests of LeNet-5, no filter: {'; '.join(told)}."]
