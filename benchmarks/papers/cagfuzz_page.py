"""The page docs/papers/cagfuzz.md: every number on it is computed from the rows."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from assay.stages.aeg.sheet import CAPTION
from papers import cagfuzz_paper as paper
from papers.cagfuzz_limits import deviations
from papers.cagfuzz_parts import rq1, rq2, rq3
from papers.cagfuzz_rq1 import ORIGINAL, SAMPLE, TWICE
from papers.cagfuzz_rq2 import TERMS
from papers.cagfuzz_rq3 import ARMS, BEFORE
from papers.cagfuzz_subject import DATA, FAMILY
from papers.cagfuzz_tables import MODEL_TITLES, by_seed, sets, shown, title, usual
from papers.cagfuzz_texts import COLOURS_TEXT, PROTOCOL, SCRIPT, SHEETS_TEXT, SMOKE_TEXT
from papers.cagfuzz_tools import CAGFUZZ, NOISE, TOOLS
from papers.cagfuzz_trained import trained
from papers.cagfuzz_verdict import verdict
from papers.dare_verdict import wrapped
from papers.rows import Row
from papers.tables import lacked, pick, table

SEEDS = {"rq1": (0, 1, 2, 3, 4), "rq2": (0, 1, 2), "rq3": (0, 1, 2)}
# Rows of another generator go to a file of their own, so that a page has those of one generator only.
OTHER = "rq1 rq2 rq3 --data cifar10 --aeg images=5000,first_norm=false --rows FILE"


def write_page(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every = usual(rows)
    parts = [verdict(every), PROTOCOL.format(script=SCRIPT)]
    asked = [r for r in every if r["protocol"]["experiment"] != "smoke"]
    if asked:
        parts += [ran(asked), rq1(asked), rq2(asked), trained(asked), rq3(asked), printed(asked)]
    parts += [smoke(every), sheets(out), deviations(every), missing(every)]
    (out / "cagfuzz.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


def ran(rows: Sequence[Row]) -> str:
    """What was run, on which machine, and by which command."""
    machines = sorted({str(r["numbers"]["machine"]) for r in rows})
    body = []
    for data in sets(rows):
        own = pick(rows, data=data)
        for model in dict.fromkeys(r["protocol"]["model"] for r in own):
            some = pick(own, model=model)
            counts = [str(len({r["protocol"]["seed"] for r in pick(some, experiment=e)})) for e in SEEDS]
            told = pick(some, experiment="rq2", tool=CAGFUZZ, terms=TERMS[0])
            clean, witness = (shown(by_seed(told, what), 100, 2) for what in ("model_accuracy", "witness_accuracy"))
            command = f"`rq1 rq2 rq3 --data {data} --models {model}`"
            body.append([title(data), MODEL_TITLES.get(model, model), *counts, clean, witness, command])
    head = ["data", "model", "seeds RQ1", "RQ2", "RQ3", "model, clean %", "witness, clean %", "command"]
    return f"## What was run\n\nComputed on: {', '.join(machines)}, by `{SCRIPT}` and\n\n{table(head, body)}"


def printed(rows: Sequence[Row]) -> str:
    """The two bars of Fig. 7 that the paper tells in its text, beside ours."""
    lines = []
    for (data, model, first, second), what, arms in (
        (paper.MIXED, ("clean", "mixed"), (BEFORE, BEFORE)),
        (paper.RETRAINED, ("mixed", "mixed"), (BEFORE, CAGFUZZ)),
    ):
        own = pick(rows, experiment="rq3", data=data, model=model)
        ours = [shown(by_seed(own, w, arm=a), 100, 2) for w, a in zip(what, arms, strict=True)]
        where = f"{title(data)}, {MODEL_TITLES[model]}"
        name = "clean → test + tests, before" if what[0] == "clean" else "test + tests, before → after retraining"
        lines.append([where, name, f"{first:g} → {second:g}", " → ".join(ours)])
    told = "The paper's second figure is named with a clean accuracy before; what set it is of is not told.\n"
    head = ["", "accuracy in %", "paper", "here"]
    return f"### The two bars of Fig. 7 that the paper's text tells\n\n{told}\n{table(head, lines)}"


def smoke(rows: Sequence[Row]) -> str:
    own = pick(rows, experiment="smoke")
    if not own:
        return ""
    n = own[-1]["numbers"]
    told = f"{n['right']} of {n['images']} images are classified correctly; {n['tried']} cases in {n['fuzz_seconds']} s"
    return f"{SMOKE_TEXT}\n{told} ({n['machine']}), {n['errors']} errors.\n"


def sheets(out: Path) -> str:
    found = [data for data in DATA if (out / f"cagfuzz-{data}.png").exists()]
    pictures = [f"![{title(d)}](cagfuzz-{d}.png)\n" for d in found]
    colours = [COLOURS_TEXT] if "cifar10" in found else []
    caption = wrapped(f"{CAPTION[0].upper()}{CAPTION[1:]}.") + "\n"
    return "\n".join([SHEETS_TEXT, caption, *pictures, *colours]) if found else ""


def missing(rows: Sequence[Row]) -> str:
    """Rows of a full page that there are none of, with the commands that compute them."""
    lines = []
    for data, (experiment, seeds) in product(DATA, SEEDS.items()):
        family = FAMILY["colour" if data == "cifar10" else "grey"]
        for model in family:
            own = pick(rows, experiment=experiment, data=data, model=model)
            lacking = {
                " ".join(match.values()): tuple(s for s in seeds if not pick(own, seed=s, **match))
                for match in _asked(experiment, family)
            }
            if any(lacking.values()):
                lines.append(f"- `{SCRIPT} {experiment} --data {data} --models {model}`: {_lacked(lacking, seeds)}")
    lines.append(f"- `{SCRIPT} {OTHER}`: everything, with a generator that keeps brightness and contrast")
    if not pick(rows, experiment="smoke"):
        lines.append(f"- `{SCRIPT} smoke`")
    return "\n".join(["## Rows that were not run\n", "With the seeds that are missing:\n", *lines, ""])


def _asked(experiment: str, family: Sequence[str]) -> list[dict[str, str]]:
    """What a row of that experiment is of, beside model and seed."""
    if experiment == "rq2":
        return [{"tool": tool, "terms": terms} for tool, terms in product(TOOLS, TERMS)]
    small = (ORIGINAL, TWICE, NOISE, *(f"fgsm-{m}" for m in family), CAGFUZZ, SAMPLE)
    return [{"arm": arm} for arm in (small if experiment == "rq1" else ARMS)]


def _lacked(lacking: dict[str, tuple[int, ...]], seeds: tuple[int, ...]) -> str:
    alike = len(set(lacking.values())) == 1
    return lacked({"everything": next(iter(lacking.values()))} if alike else lacking, seeds)
