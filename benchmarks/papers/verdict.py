"""The first lines of the page: what stands, with its numbers computed from the rows."""

from statistics import mean
from typing import Any

from papers.grid import MAIN_EPS, SELECTORS, SIZES
from papers.makers import TOOLS
from papers.rows import Row
from papers.tables import pairs, pick, won
from papers.texts import LEAD

LENET = ("mnist", "fashion-mnist")


def verdict(rows: list[Row]) -> str:
    """The finding, and under it the numbers that carry it."""
    parts = ["# RobOT: what its selection of test cases is worth\n", LEAD]
    for data in LENET:
        parts += _static(rows, data)
    parts += [line for data in LENET for line in _white(rows, data)]
    parts += _large(rows)
    parts += [line for data in LENET for line in (*_pools(rows, data), *_tests(rows, data), *_time(rows, data))]
    return "\n".join(parts) + "\n"


def _static(rows: list[Row], data: str) -> list[str]:
    """Static examples: the paper's claim, and random selection beside it."""
    eps = MAIN_EPS[data]
    if not _pairs(rows, data, "KM-ST", "DeepGini", "static"):
        return []
    ahead = ", ".join(
        f"{a} above {b} in {won(_pairs(rows, data, a, b, 'static'))}"
        for a, b in (("BE-ST", "DeepGini"), ("KM-ST", "DeepGini"), ("random", "DeepGini"), ("random", "BE-ST"))
    )
    ahead += f", above KM-ST in {won(_pairs(rows, data, 'random', 'KM-ST', 'static'))}"
    gain = ", ".join(f"{name} {_gain(rows, data, name):+.1%}" for name in ("BE-ST", "KM-ST", "random"))
    return [
        f"- **{data}, eps {eps:g}, static** (pairs of seed and size): {ahead}. Mean accuracy on the static examples "
        f"that fool f0, relative to DeepGini's: {gain} (the paper: +30.48 % for its two, over four data sets)."
    ]


def _white(rows: list[Row], data: str) -> list[str]:
    """Fresh attacks: means at the smallest and the largest size."""
    told = []
    for name in SELECTORS:
        both = _ends(_selected(rows, data, name))
        if both:
            lower = sum(many < few for few, many in both)
            few, many = (mean(ends) for ends in zip(*both, strict=True))
            told.append(f"{name} {few:.3f} → {many:.3f} (lower in {lower} of {len(both)} seeds)")
    f0 = _mean(rows, "white", experiment="f0", data=data, eps=MAIN_EPS[data])
    if f0 is None or not told:
        return []
    turned = won(_pairs(rows, data, "DeepGini", "BE-ST", "white"))
    also = won(_pairs(rows, data, "DeepGini", "KM-ST", "white"))
    return [
        f"- **{data}, eps {MAIN_EPS[data]:g}, white box**, from {SIZES[0]:.0%} to {SIZES[-1]:.0%} of the pool: "
        f"{', '.join(told)}; f0 itself {f0:.3f}. DeepGini above BE-ST in {turned} pairs, above KM-ST in {also}."
    ]


def _large(rows: list[Row]) -> list[str]:
    """The paper's own eps on MNIST."""
    found = [r for r in rows if r["protocol"]["data"] == "mnist" and r["protocol"]["eps"] == 0.3]
    found = [r for r in found if r["protocol"]["experiment"] == "rq2" and r["protocol"]["share"] > 0]
    if not found:
        return []
    best = max(found, key=lambda r: float(r["numbers"]["static"]))
    most = max(float(r["numbers"]["white"]) for r in found)
    return [
        f"- **mnist, eps 0.3 (the paper's)**: over {len(found)} retrained nets static accuracy reaches "
        f"{best['numbers']['static']:.3f}, white-box accuracy {most:.3f} at most."
    ]


def _pools(rows: list[Row], data: str) -> list[str]:
    """Selection from what DeepXplore, DLFuzz and ADAPT make."""
    found = [r for r in _made(rows, "pools", data) if r["protocol"]["maker"] != "robot"]
    if not found:
        return []
    told = []
    for key, title in (("static", "static"), ("white", "white box")):
        ahead = (
            f"{a} above {b} in {won(pairs(found, 'select', SELECTORS[a], SELECTORS[b], key))}"
            for a, b in (("BE-ST", "DeepGini"), ("KM-ST", "DeepGini"), ("random", "DeepGini"), ("random", "KM-ST"))
        )
        told.append(f"{title}: {', '.join(ahead)}")
    return [f"- **{data}, pools of DeepXplore, DLFuzz and ADAPT** (pairs of seed, pool and size), {'; '.join(told)}."]


def _tests(rows: list[Row], data: str) -> list[str]:
    """Table IV: the order of selectors on the tests of the three tools."""
    found, told = _made(rows, "transfer", data), []
    for a, b in (("BE-ST", "DeepGini"), ("KM-ST", "DeepGini"), ("random", "DeepGini"), ("random", "KM-ST")):
        makers = [maker for maker in TOOLS.values() if maker != "robot"]
        both = [d for m in makers for d in pairs(found, "select", SELECTORS[a], SELECTORS[b], f"tests.{m}")]
        told.append(f"{a} above {b} in {won(both)}")
    note = "static accuracy on the tests of these tools, pairs of seed, tool and size"
    return [f"- **{data}, Table IV** ({note}): {', '.join(told)}."] if found else []


def _time(rows: list[Row], data: str) -> list[str]:
    """Table V: FOL-Fuzz and ADAPT."""
    found = [r for r in _made(rows, "rq3", data) if r["protocol"].get("device") == "cuda"]
    both = {m: [r for r in found if r["protocol"].get("maker") == m] for m in ("robot", "adapt")}
    if not all(both.values()):
        return []
    times = sorted({r["protocol"]["time"] for r in both["robot"]})
    counts = {m: mean(float(r["numbers"]["found"]) for r in some) for m, some in both.items()}
    static, white = (won(pairs(found, "maker", "robot", "adapt", key)) for key in ("static_fooling", "white"))
    return [
        f"- **{data}, Table V** ({' and '.join(f'{t:g}' for t in times)} s on the GPU): FOL-Fuzz finds "
        f"{counts['robot'] / counts['adapt']:.2f} times as many failing cases as ADAPT; its nets are ahead of ADAPT's "
        f"in {static} pairs on static examples that fool f0 and in {white} under white box (the paper: fewer cases, "
        "ahead on static examples throughout)."
    ]


def _made(rows: list[Row], experiment: str, data: str) -> list[Row]:
    return pick(rows, experiment=experiment, data=data, eps=MAIN_EPS[data])


def correlation(rows: list[Row], attack: str, key: str) -> float:
    """Spearman's rank correlation between the median FOL of fresh examples and a column."""
    from scipy.stats import spearmanr

    fol = [r["numbers"][f"fol_{attack}"]["quantiles"][3] for r in rows]
    return float(spearmanr(fol, [r["numbers"][key] for r in rows]).statistic)


def _pairs(rows: list[Row], data: str, first: str, second: str, key: str) -> list[float]:
    """Differences first − second of two selectors, for every seed and size that has both."""
    told: dict[tuple[int, float], dict[str, float]] = {}
    for row in rows:
        p = row["protocol"]
        if p["experiment"] == "rq2" and p["data"] == data and p["eps"] == MAIN_EPS[data]:
            told.setdefault((p["seed"], p["share"]), {})[p["select"]] = row["numbers"][key]
    a, b = SELECTORS[first], SELECTORS[second]
    return [v[a] - v[b] for v in told.values() if a in v and b in v]


def _gain(rows: list[Row], data: str, name: str) -> float:
    """How much larger the mean accuracy on fooling static examples is than with DeepGini, relative."""
    gini = [float(r["numbers"]["static_fooling"]) for r in _selected(rows, data, "DeepGini")]
    own = [float(r["numbers"]["static_fooling"]) for r in _selected(rows, data, name)]
    return mean(own) / mean(gini) - 1


def _selected(rows: list[Row], data: str, name: str) -> list[Row]:
    return pick(rows, experiment="rq2", data=data, eps=MAIN_EPS[data], select=SELECTORS[name])


def _ends(rows: list[Row]) -> list[tuple[float, float]]:
    """White-box accuracy after the fewest and after the most cases, for every seed that has both."""
    told: dict[int, dict[float, float]] = {}
    for row in rows:
        told.setdefault(row["protocol"]["seed"], {})[row["protocol"]["share"]] = float(row["numbers"]["white"])
    return [(v[SIZES[0]], v[SIZES[-1]]) for v in told.values() if SIZES[0] in v and SIZES[-1] in v]


def _mean(rows: list[Row], key: str, **match: Any) -> float | None:
    values = [r["numbers"][key] for r in pick(rows, **match)]
    return mean(values) if values else None
