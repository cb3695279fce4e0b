"""The tables of CAGFuzz's page."""

from collections.abc import Sequence

from papers import cagfuzz_paper as paper
from papers.cagfuzz_rq2 import EQUAL, OWN
from papers.cagfuzz_rq3 import ARMS, LEARNED
from papers.cagfuzz_tables import MODEL_TITLES, by_seed, gap, models, over_models, sets, shown, title
from papers.cagfuzz_texts import RQ1_TEXT, RQ2_EQUAL_TEXT, RQ2_OWN_TEXT, RQ3_TEXT
from papers.cagfuzz_tools import TITLES, TOOLS
from papers.rows import Row
from papers.tables import pick, seeds_of, table

CONTROLS = ("original", "twice", "noise")


def arms_there(rows: Sequence[Row]) -> list[str]:
    """The arms of RQ1 that have rows, in their order."""
    named = dict.fromkeys(r["protocol"]["arm"] for r in rows)
    fgsm = [f"fgsm-{model}" for model in models(rows)]
    return [arm for arm in (*CONTROLS, *fgsm, "cagfuzz", "cagfuzz-sample") if arm in named]


def arm_title(arm: str) -> str:
    made_on = arm.removeprefix("fgsm-")
    if made_on in MODEL_TITLES:
        return f"FGSM on {MODEL_TITLES[made_on]}"
    own = {"cagfuzz": "CAGFuzz", "cagfuzz-sample": "CAGFuzz, AEG of the sample", "noise": "noise, as long"}
    return own.get(arm, TITLES.get(arm, arm))


def rq1(rows: Sequence[Row]) -> str:
    """Accuracy after learning from few images, on both test sets, and differences to ``twice``."""
    every = pick(rows, experiment="rq1")
    if not every:
        return ""
    parts = [RQ1_TEXT]
    for data in sets(every):
        own = pick(every, data=data)
        arms = arms_there(own)
        head = ["%", *map(arm_title, arms)]
        seeds = seeds_of([pick(own, model=m, arm=a) for m in models(own) for a in arms])
        printed = [_printed(data, model, arms) for model in models(own)]
        parts.append(f"### {title(data)}, {seeds} seeds\n")
        for what, name in (("whole", "the whole test set"), ("small", "the small test set, as the paper measures")):
            body = [[MODEL_TITLES[m], *(shown(by_seed(own, what, model=m, arm=a)) for a in arms)] for m in models(own)]
            body += [line for line in printed if line and what == "small"]
            parts += [f"Accuracy on {name}:\n", table(head, body)]
        parts += ["Difference to `twice` on the whole test set, in points, 95 % interval:\n", _against(own, arms)]
        tests = [shown(over_models(own, "tests", arm=a), 1, 0) for a in arms]
        sizes = [shown(over_models(own, "l2", arm=a), 1, 2) for a in arms]
        parts.append(table(["mean over models", *head[1:]], [["tests kept", *tests], ["mean L2", *sizes]]))
    return "\n".join(parts)


def _printed(data: str, model: str, arms: Sequence[str]) -> list[str]:
    """The paper's line, where it has one."""
    told = paper.RQ1.get(data, {}).get(model)
    return (
        [] if told is None else [f"{MODEL_TITLES[model]}, paper", *(f"{told[a]:g}" if a in told else "" for a in arms)]
    )


def _against(own: Sequence[Row], arms: Sequence[str]) -> str:
    rest = [arm for arm in arms if arm != "twice"]
    body = [
        [
            MODEL_TITLES[m],
            *(
                gap(by_seed(own, "whole", model=m, arm=a), by_seed(own, "whole", model=m, arm="twice")).text()
                for a in rest
            ),
        ]
        for m in models(own)
    ]
    mean = (gap(over_models(own, "whole", arm=a), over_models(own, "whole", arm="twice")).text() for a in rest)
    return table(["points", *map(arm_title, rest)], [*body, ["mean over models", *mean]])


def rq2(rows: Sequence[Row]) -> str:
    """Errors of every tool, on equal terms and on its own."""
    every = pick(rows, experiment="rq2")
    parts = []
    for terms, text in ((EQUAL, RQ2_EQUAL_TEXT), (OWN, RQ2_OWN_TEXT)):
        some = pick(every, terms=terms)
        parts += [text] if some else []
        for data in sets(some):
            own = pick(some, data=data)
            n = sorted({r["protocol"]["images"] for r in own})
            seeds = seeds_of([pick(own, model=m, tool=t) for m in models(own) for t in TOOLS])
            parts += [f"### {title(data)}, {n[-1]} images a model, {seeds} seeds\n", _tools(own, data)]
    return "\n".join(parts)


def _tools(own: Sequence[Row], data: str) -> str:
    names = " / ".join(MODEL_TITLES[m] for m in models(own))
    head = ["tool", "tests", "errors", f"errors: {names}", "errors held", "witness agrees, %", "more active, %"]
    head += ["cosine", "L2", "Linf", "SSIM", "errors in the paper"]
    body = []
    for tool in TOOLS:
        if not pick(own, tool=tool):
            continue
        each = [shown(by_seed(own, "errors", model=m, tool=tool), 1, 0).partition(" ")[0] for m in models(own)]
        counts = [shown(over_models(own, what, tool=tool), 1, 0) for what in ("tests", "errors", "held")]
        shares = [shown(over_models(own, what, tool=tool)).partition(" ")[0] for what in ("witness", "more")]
        sizes = [
            shown(over_models(own, w, tool=tool), 1, 3).partition(" ")[0] for w in ("cosine", "l2", "linf", "ssim")
        ]
        printed = str(paper.RQ2.get(data, {}).get(tool, ""))
        body.append([TITLES[tool], *counts[:2], " / ".join(each), counts[2], *shares, *sizes, printed])
    return table(head, body)


def rq3(rows: Sequence[Row]) -> str:
    """Accuracy before and after retraining, a table for each model."""
    every = pick(rows, experiment="rq3")
    if not every:
        return ""
    parts = [RQ3_TEXT]
    head = ["learned beside the training part", "clean", "test + tests", *(f"tests: {TITLES[t]}" for t in LEARNED)]
    head += ["PGD, anew", "validation + tests, before → after", "tests learned"]
    for data in sets(every):
        for model in models(pick(every, data=data)):
            own = pick(every, data=data, model=model)
            seeds = seeds_of([pick(own, arm=arm) for arm in ARMS])
            parts.append(f"### {title(data)}, {MODEL_TITLES[model]}, {seeds} seeds\n")
            parts.append(table(head, [_arm(own, arm) for arm in ARMS if pick(own, arm=arm)]))
    return "\n".join(parts)


def _arm(own: Sequence[Row], arm: str) -> list[str]:
    keys = ["clean", "mixed", *(f"static.{tool}" for tool in LEARNED), "fresh"]
    val = " → ".join(shown(by_seed(own, what, arm=arm)).partition(" ")[0] for what in ("val_before", "val_after"))
    tests = shown(by_seed(own, "distinct", arm=arm), 1, 0).partition(" ")[0]
    cells = [shown(by_seed(own, what, arm=arm), 100, 2 if what in ("clean", "mixed") else 1) for what in keys]
    return [arm_title(arm), *cells, val, tests]
