"""The sections of the page on what testing tools make: pools, tests (Table IV), equal time (Table V)."""

from collections.abc import Sequence
from statistics import mean

from papers.grid import FEW, MAIN_EPS, SELECTORS, TIMES, groups
from papers.makers import MAKERS, TOOLS
from papers.rows import Row
from papers.tables import cell, column, pairs, pick, seeds_of, table, won
from papers.texts import CUT_TEXT, POOLS_TEXT, SCRIPT, TIME_TEXT, TRANSFER_TEXT

LENET = ("mnist", "fashion-mnist")
POOLS = {name: maker for name, maker in TOOLS.items() if maker != "robot"}
FOUND = ("found", "distinct")
GAINS = {"static_fooling": "static examples that fool f0", "white": "white box"}
CUT, CUT_TIMES = 10000, (20.0,)
CUT_COMMAND = "rq3 --limit 10000 --times 20 --seeds 0 1 --device cpu"
RIVALS = (("KM-ST", "DeepGini"), ("BE-ST", "DeepGini"), ("random", "DeepGini"), ("random", "KM-ST"))
# Robustness that the FOL strategies gain over DeepGini, and the mean gain by generator, in per cent (RQ2).
PAPER_GAIN = {"DeepXplore": 84.62, "DLFuzz": 54.91, "ADAPT": 35.92}
PAPER_BY_POOL = {"DeepXplore": 48.36, "DLFuzz": 31.18, "ADAPT": 53.39}
PAPER_DROP = {"DeepXplore": 18.64, "DLFuzz": 26.41, "ADAPT": 23.09}
# Table IV: BE-ST, KM-ST, DeepGini on the tests of each tool, in per cent.
PAPER_TESTS = {
    "mnist": {"DeepXplore": (86.12, 80.56, 73.74), "DLFuzz": (76.39, 74.73, 65.59), "ADAPT": (82.60, 75.68, 70.36)},
    "fashion-mnist": {
        "DeepXplore": (51.57, 47.97, 34.14),
        "DLFuzz": (38.15, 35.44, 27.16),
        "ADAPT": (50.55, 47.50, 31.92),
    },
}


def command(title: str) -> str:
    group = next(g for g in groups() if g.title == title)
    return f"`{SCRIPT} {group.command} --device cuda`\n"


# ---- RQ2 on the pools of tools ----


def pools(rows: list[Row]) -> str:
    parts = [POOLS_TEXT]
    for data in LENET:
        found = pick(rows, experiment="pools", data=data, eps=MAIN_EPS[data], device="cuda", time=TIMES[-1])
        if found:
            other = pick(rows, experiment="transfer", data=data, eps=MAIN_EPS[data])
            parts.append(f"### {data}, eps {MAIN_EPS[data]:g}\n\n{command(f'selection from pools of tools, {data}')}")
            parts += [_sizes(found), _selected(found), _crossed(found, other), *_pool_verdict(found, other)]
    return "\n".join(parts) + "\n" if len(parts) > 1 else ""


def _sizes(found: list[Row]) -> str:
    body = []
    for name, maker in TOOLS.items():
        some = list({r["protocol"]["seed"]: r for r in pick(found, maker=maker)}.values())
        if some:
            counts = [f"{mean(column(some, key)):.0f}" for key in ("found", "distinct", "broken", "tried")]
            body.append([name, str(len(some)), *counts, *(cell(column(some, key), 2) for key in ("linf", "relative"))])
    head = ["pool of", "seeds", "failing cases", "seed × wrong class", "images", "cases tried", "median linf"]
    return f"What each made in {TIMES[-1]:g} s:\n\n" + table([*head, "median relative L2"], body)


def _selected(found: list[Row]) -> str:
    body = []
    columns = {"static": "static", "own": "static, tests of the same tool", "white": "white box", "clean": "clean"}
    for key, title in columns.items():
        for name, maker in POOLS.items():
            for size in FEW:
                cells = [pick(found, maker=maker, share=size, select=select) for select in SELECTORS.values()]
                if any(cells):
                    wanted = f"tests.{maker}" if key == "own" else key
                    values = (cell(column(c, wanted)) for c in cells)
                    body.append([title, name, _count(cells), seeds_of(cells), *values])
    return table(["column", "pool of", "cases", "seeds", *SELECTORS], body)


def _crossed(found: list[Row], other: list[Row]) -> str:
    """Random cases of every pool, on the tests of every tool."""
    size = FEW[-1]
    nets = [("f0", pick(other, select="f0")), ("retrained without cases", pick(other, select="none"))]
    nets.append(("FGSM + PGD-10", pick(other, select="random", share=size)))
    nets += [(name, pick(found, maker=maker, share=size, select="random")) for name, maker in TOOLS.items()]
    body = [
        [name, str(len(some)), *(cell(column(some, f"tests.{maker}")) for maker in TOOLS.values())]
        + [cell(column(some, key)) for key in ("static", "white")]
        for name, some in nets
        if some
    ]
    head = ["random cases of", "seeds", *(f"static, tests of {name}" for name in TOOLS)]
    title = f"As many random cases ({size:.0%} of RQ2's pool) from every pool, on the tests of every tool:\n\n"
    return title + table([*head, "static, attack examples", "white box"], body)


def _pool_verdict(found: list[Row], other: list[Row]) -> list[str]:
    told = []
    three = [r for r in found if r["protocol"]["maker"] in POOLS.values()]
    for key, title in (("static", "static"), ("white", "white box")):
        ahead = (f"{a} above {b} in {won(_by_selector(three, a, b, key))}" for a, b in RIVALS)
        told.append(f"- **{title}**, pairs of seed, pool and size: {', '.join(ahead)}.")
    gains = []
    for name, maker in POOLS.items():
        some = pick(found, maker=maker)
        gini, fol = (column(_of_three(some, which), "static_fooling") for which in (("DeepGini",), ("BE-ST", "KM-ST")))
        if gini and fol:
            gains.append(f"{name} {mean(fol) / mean(gini) - 1:+.1%} (the paper: {PAPER_GAIN[name]:+.2f} %)")
    if gains:
        told.append(
            f"- Mean of BE-ST and KM-ST on the static examples that fool f0, over DeepGini's: {', '.join(gains)}."
        )
    nets = {name: _of_three(pick(found, maker=maker)) for name, maker in POOLS.items()}
    nets["FGSM + PGD-10"] = _of_three([r for r in other if r["protocol"]["share"] in FEW])
    static, white = (
        [(name, mean(column(some, key))) for name, some in nets.items() if some] for key in ("static_fooling", "white")
    )
    paper = {name: f" (the paper: {gain} %)" for name, gain in PAPER_BY_POOL.items()}
    gains = [f"{name} {value:.1%}{paper.get(name, '')}" for name, value in static]
    whose = "By pool, mean over the paper's three selectors, static examples that fool f0"
    told.append(f"- {whose}: {', '.join(gains)}; the paper's are over four data sets.")
    told.append(f"- The same nets under white box: {', '.join(f'{name} {value:.3f}' for name, value in white)}.\n")
    return told


def _by_selector(rows: list[Row], first: str, second: str, key: str) -> list[float]:
    return pairs(rows, "select", SELECTORS[first], SELECTORS[second], key)


def _of_three(rows: list[Row], which: Sequence[str] = ("BE-ST", "KM-ST", "DeepGini")) -> list[Row]:
    """The rows of these selectors, as a rule those the paper has."""
    selects = [SELECTORS[name] for name in which]
    return [r for r in rows if r["protocol"]["select"] in selects]


def _count(cells: Sequence[Sequence[Row]]) -> str:
    counts = sorted({int(n) for rows in cells for n in column(rows, "cases")})
    return "–".join(f"{n}" for n in sorted({counts[0], counts[-1]})) if counts else "–"


# ---- Table IV ----


def transfer(rows: list[Row]) -> str:
    parts = [TRANSFER_TEXT]
    for data in LENET:
        found = pick(rows, experiment="transfer", data=data, eps=MAIN_EPS[data])
        if found:
            parts.append(f"### {data}, eps {MAIN_EPS[data]:g}\n\n{command(f'tests of tools (Table IV), {data}')}")
            parts += [_tests_made(found), _judged(found, data), _transfer_verdict(found)]
    return "\n".join(parts) + "\n" if len(parts) > 1 else ""


def _tests_made(found: list[Row]) -> str:
    some, body = pick(found, select="f0"), []
    for name, maker in TOOLS.items():
        values = {k: column(some, f"tests_made.{maker}.{k}") for k in ("found", "broken", "used", "linf", "relative")}
        if values["found"]:
            counts = [f"{mean(values[k]):.0f}" for k in ("found", "broken", "used")]
            body.append([name, str(len(some)), *counts, cell(values["linf"], 2), cell(values["relative"], 2)])
    head = ["tests of", "seeds", "failing cases", "test images", "used", "median linf", "median relative L2"]
    return table(head, body)


def _judged(found: list[Row], data: str) -> str:
    body = []
    nets = [("f0", pick(found, select="f0")), ("no cases", pick(found, select="none"))]
    for size in FEW:
        picked = ((name, pick(found, select=select, share=size)) for name, select in SELECTORS.items())
        nets += [(f"{name}, {size:.0%}", some) for name, some in picked]
    for name, some in nets:
        if some:
            body.append([name, str(len(some)), *(cell(column(some, f"tests.{m}")) for m in TOOLS.values())])
            body[-1] += [cell(column(some, key)) for key in ("static", "static_fooling", "white")]
    for place, name in enumerate(("BE-ST", "KM-ST", "DeepGini")):
        told = (f"{PAPER_TESTS[data][tool][place] / 100:.3f}" if tool in POOLS else "–" for tool in TOOLS)
        body.append([f"*{name}, the paper*", "", *told, "–", "–", "–"])
    head = ["net", "seeds", *(f"static, tests of {name}" for name in TOOLS), "static, attack examples"]
    return table([*head, "static, fooling only", "white box"], body)


def _transfer_verdict(found: list[Row]) -> str:
    told = []
    for name, maker in TOOLS.items():
        ahead = (f"{a} above {b} in {won(_by_selector(found, a, b, f'tests.{maker}'))}" for a, b in RIVALS)
        told.append(f"- tests of {name}, pairs of seed and size: {', '.join(ahead)}.")
    drops = []
    for name, maker in POOLS.items():
        some = _of_three(pick(found, share=FEW[-1]))
        if some:
            drop = mean(column(some, "static_fooling")) - mean(column(some, f"tests.{maker}"))
            drops.append(f"{name} {100 * drop:+.1f} (the paper: {PAPER_DROP[name]})")
    if drops:
        told.append(
            f"- Accuracy on the static attack examples that fool f0 less that on the tests, in points, means of BE-ST, "
            f"KM-ST and DeepGini at {FEW[-1]:.0%}: {', '.join(drops)}."
        )
    return "\n".join(told) + "\n"


# ---- Table V ----


def fuzzing(rows: list[Row]) -> str:
    """On the GPU with all images; and what was cut down for a CPU."""
    parts, every = [TIME_TEXT], pick(rows, experiment="rq3")
    for data in LENET:
        found = pick(every, data=data, eps=MAIN_EPS[data], device="cuda", limit=None)
        if found:
            pool = pick(rows, experiment="pools", data=data, eps=MAIN_EPS[data], device="cuda", select="random")
            parts.append(f"### {data}, eps {MAIN_EPS[data]:g}\n\n{command(f'equal time (Table V), {data}')}")
            parts += [_times(found, TIMES), _time_verdict(found, TIMES), _as_many(pool), _paper_times(data)]
    for data in LENET:
        found = pick(every, data=data, eps=MAIN_EPS[data], device="cpu", limit=CUT)
        if found:
            parts.append(f"### {data}, eps {MAIN_EPS[data]:g}, cut down\n\n`{SCRIPT} {CUT_COMMAND} --data {data}`\n")
            parts += [CUT_TEXT, _times(found, CUT_TIMES), _time_verdict(found, CUT_TIMES)]
    return "\n".join(parts) + "\n" if len(parts) > 1 else parts[0] + "\nNo row was run.\n"


def _times(found: list[Row], times: Sequence[float]) -> str:
    body = []
    for seconds in times:
        for name, maker in {"FOL-Fuzz": "robot", **MAKERS}.items():
            some = pick(found, maker=maker, time=seconds)
            if some:
                counts = (_whole(column(some, key)) for key in ("found", "distinct", "broken", "cases"))
                body.append([f"{seconds:g} s", name, str(len(some)), cell(column(some, "made_seconds"), 1), *counts])
                body[-1] += [cell(column(some, "relative"), 2)]
                body[-1] += [cell(column(some, key)) for key in ("static_fooling", "static", "white", "clean")]
    head = ["time", "cases from", "seeds", "seconds", "failing cases", "seed × wrong class", "images", "learned from"]
    head += ["median relative L2", "static, fooling only", "static", "white box", "clean"]
    return table(head, body)


def _whole(values: Sequence[float]) -> str:
    return cell(values, 0)


def _time_verdict(found: list[Row], times: Sequence[float]) -> str:
    told = []
    for seconds in times:
        here = pick(found, time=seconds)
        counts = [[mean(column(pick(here, maker=m), k) or [0.0]) for m in ("robot", "adapt")] for k in FOUND]
        if not all(count for both in counts for count in both):
            continue
        few, distinct = (f"{robot / adapt:.2f}" for robot, adapt in counts)
        told.append(
            f"- **{seconds:g} s**: FOL-Fuzz finds {few} times as many failing cases as ADAPT, {distinct} times as many "
            "that differ in seed or wrong class (the paper: 0.80 times as many after 5 minutes on MNIST, 0.78 on "
            "Fashion-MNIST)."
        )
        others = [(name, maker) for name, maker in MAKERS.items() if maker != "robot"]
        for key, title in GAINS.items():
            ahead = ", ".join(f"{n} in {won(pairs(here, 'maker', 'robot', m, key))}" for n, m in others)
            told.append(f"- {seconds:g} s, {title}: FOL-Fuzz's nets above those of {ahead} seeds.")
    return "\n".join(told) + "\n"


def _as_many(pool: list[Row]) -> str:
    """Random cases of the pools of RQ2, as many of each."""
    told = []
    for size in FEW:
        here = pick(pool, share=size)
        for key, title in GAINS.items() if pick(here, maker="robot") else ():
            values = ((n, column(pick(here, maker=m), key)) for n, m in {"FOL-Fuzz": "robot", **TOOLS}.items())
            each = ", ".join(f"{n} {cell(v)}" for n, v in values if v)
            told.append(f"- **As many random cases of each** ({_count([here])}), {title}: {each}.")
    return "\n".join(told) + "\n"


_PAPER_TIMES = {
    "mnist": ("1692 / 2125", "33.62 / 18.73", "3472 / 4521", "48.04 / 36.46", "7226 / 8943", "68.02 / 54.38"),
    "fashion-mnist": ("4294 / 5485", "40.75 / 6.74", "8906 / 10433", "53.88 / 14.94", "18527 / 21872", "69.03 / 27.24"),
}


def _paper_times(data: str) -> str:
    head = ["the paper: FOL-Fuzz / ADAPT", "5 min: cases", "gain, %", "10 min: cases", "gain, %", "20 min: cases"]
    return table([*head, "gain, %"], [[data, *_PAPER_TIMES[data]]])
