"""What the report says of a saved evaluation."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from assay.core.store import Store
from assay.engines.evaluation import Share
from assay.engines.saved import Saved, worst_pairs
from assay.outputs.report.charts import Bar, Series, bars, columns, lines, number
from assay.outputs.report.classes import accuracy_cell, confusion, histogram, per_class_chart
from assay.outputs.report.parts import Cell, Chart, Facts, Note, Part, Section, Table
from assay.outputs.tables import percent


def hint_of(protocol: Mapping[str, Any]) -> str:
    """With what a number was measured: ball, suite, seed, data."""
    if not protocol:
        return ""
    ball = "no norm" if protocol.get("norm") is None else str(protocol["norm"])
    ball += "" if protocol.get("eps") is None else f" eps {protocol.get('eps_text') or protocol['eps']}"
    suite = ", ".join(protocol.get("attacks", {}))
    data = f"{protocol.get('data')} (hash {protocol.get('data_fingerprint')})"
    return f"{ball}; suite {suite}; seed {protocol.get('seed')}; data {data}"


def eval_verdict(saved: Saved) -> Note:
    """What a reader takes away."""
    told = saved.told
    if not told:
        return _unfinished(saved)
    clean, worst = told["clean"], told["worst"]
    attacks = list(told["attacks"])
    under = attacks[0] if len(attacks) == 1 else f"the worst of {len(attacks)} attacks"
    protocol, most = told["protocol"], "up to " if told.get("curve") else ""
    ball = "" if protocol.get("eps") is None else f" of size {most}{number(protocol['eps'])} ({protocol['norm']})"
    said = (
        f"Under {under}{ball} the model is right on {_percent(worst)} of {worst['n']} inputs; as they are, on "
        f"{_percent(clean)}."
    )
    if told.get("minimal"):
        size = told["minimal"]
        said = (
            f"The smallest change found that fools the model is {size['median']:.4g} in {protocol['norm']} at the "
            f"median, over {size['n']} inputs; as they are, it is right on {_percent(clean)} of {clean['n']} inputs."
        )
    if not told["warnings"]:
        return Note(said)
    names = ", ".join(warning["name"] for warning in told["warnings"])
    return Note(f"UNRELIABLE ({names}): {said} That does not show how robust it is; see what to trust.", "warning")


def _unfinished(saved: Saved) -> Note:
    if not len(saved.right):
        return Note("The evaluation has not ended: no input is done yet. The same command goes on.", "warning")
    clean, worst = (Share(int(rows.sum()), len(rows)) for rows in (saved.right, saved.standing()))
    return Note(
        f"The evaluation has not ended: of its first {clean.n} inputs the model is right on {percent(clean)}, under "
        f"attack on {percent(worst)}; no check of trust was made. The same command goes on.",
        "warning",
    )


def _percent(told: Mapping[str, Any]) -> str:
    low, high = told["ci95"]
    return f"{100 * told['accuracy']:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f})"


def eval_sections(saved: Saved) -> Iterator[Section]:
    """The parts of the page, in reading order."""
    told, hint = saved.told, hint_of(saved.protocol)
    yield Section("trust", "Can these numbers be trusted?", tuple(_trust(told)) if told else ())
    yield Section("numbers", "Accuracy, clean and under attack", tuple(_numbers(saved, hint)))
    yield Section("curve", "Accuracy over the size of the change", tuple(_curve(told, hint)))
    yield Section("sizes", "How large the changes are that fool it", tuple(_sizes(saved)))
    if told.get("per_class"):
        yield Section("classes", "Class by class", (per_class_chart(told["per_class"], hint),))
    yield Section("confusion", "What is taken for what", tuple(_confusion(saved)))
    yield Section("cost", "What it took", tuple(_cost(saved)))


def _title(protocol: Mapping[str, Any]) -> str:
    """Data, number of inputs, ball and seed: what the numbers of a table have in common."""
    ball = "" if protocol["eps"] is None else f", {protocol['norm']} eps {protocol['eps_text']}"
    return f"{protocol['data']}, n={protocol['n']}{ball}, seed {protocol['seed']}"


def _trust(told: Mapping[str, Any]) -> Iterator[Part]:
    for warning in told["warnings"]:
        yield warning_note(warning)
    ignored, not_made = told.get("ignored_checks", ()), told.get("checks_not_made", {})
    if not told["warnings"]:
        but = " that were made" if ignored or not_made else ""
        yield Note(f"No check{but} found anything that spoils these numbers. docs/checks.md tells what they look for.")
    if ignored:
        yield Note(f"Not made, as was asked: {', '.join(ignored)}.", "warning")
    if not_made:
        reasons: dict[str, list[str]] = {}
        for name, why in not_made.items():
            reasons.setdefault(why, []).append(name)
        said = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
        yield Note(f"This target does not allow all checks. Not made: {said}.")


def warning_note(warning: Mapping[str, Any], where: str = "") -> Note:
    """A check that fired: its name, what it found, and where the page on checks says what to do."""
    name = str(warning["name"])
    place = f", {where}" if where else ""
    said = f"*UNRELIABLE{place} ({name}): {warning['message']}"
    link = str(warning.get("see", f"docs/checks.md#{name}"))
    return Note(f"{said.rstrip('.')}. What it means and what to do: {link}", "bad", link)


def _numbers(saved: Saved, hint: str) -> Iterator[Part]:
    told = saved.told
    if not told:
        yield from old_tables(saved.run)
        if not any(saved.run.commits("numbers")) and len(saved.right):
            yield _so_far(saved)
        return
    static = told.get("static")
    star = "*" if told["unreliable"] else ""
    heads = [f"{told['access']}{star}", *([f"static, made on {static['from']}"] if static else [])]
    rows: list[tuple[str | Cell, ...]] = [("clean", *[accuracy_cell(told["clean"], hint)] * len(heads), "", "")]
    left = "left after " if told["protocol"]["cascade"] else ""
    for name, attack in told["attacks"].items():
        other = [accuracy_cell(static["attacks"][name], hint)] if static else []
        rows.append((f"{left}{name}", accuracy_cell(attack, hint), *other, str(attack["tried"]), str(attack["broken"])))
    gap = [""] * (1 if static else 0)
    for name, share in told.get("parts", {}).items():
        rows.append((f"worst case, {name}", accuracy_cell(share, hint), *gap, "", ""))
    if told.get("mean") is not None and len(told["attacks"]) > 1:
        rows.append(("mean of the attacks", f"{100 * told['mean']:.1f} %", *gap, "", ""))
    worst = [accuracy_cell(told["worst"], hint), *([accuracy_cell(static["worst"], hint)] if static else [])]
    rows.append(("worst case", *worst, "", ""))
    meaning = "What is left after the attacks so far" if told["protocol"]["cascade"] else "Each attack on every input"
    apart = " Static examples were made on another model: what they no longer break, a fresh one may." if static else ""
    note = f"{meaning}; 95 % Wilson intervals.{apart}" + (" *UNRELIABLE, see above." if star else "")
    yield Table(("accuracy", *heads, "tried", "broken"), tuple(rows), _title(saved.protocol), note)


def _so_far(saved: Saved) -> Table:
    left = "left after " if saved.cascade else ""
    shares = {"clean": Share(int(saved.right.sum()), len(saved.right))}
    shares |= {f"{left}{name}": share for name, share in saved.shares().items()}
    shares["worst case"] = Share(int(saved.standing().sum()), len(saved.right))
    rows = tuple((name, accuracy_cell(share.to_json())) for name, share in shares.items())
    title = f"Of the first {len(saved.right)} inputs"
    return Table(("accuracy", "so far"), rows, title, "Of the inputs that are done; no check of trust was made.")


def old_tables(run: Store) -> Iterator[Table]:
    """Tables that a run was given as such: of older versions, and of ``assay demo``."""
    for line in run.commits("numbers"):
        for name in line.files:
            yield numbers_part(json.loads(run.file(name)))


def numbers_part(table: Mapping[str, Any], hint: str = "") -> Table:
    """A table of shares, a column a model."""
    rows = tuple((row["name"], *(accuracy_cell(cell, hint) for cell in row["cells"])) for row in table["rows"])
    return Table(("accuracy", *table["models"]), rows, table["title"], table["note"])


def numbers_chart(table: Mapping[str, Any]) -> Chart:
    """The same as bars, without the rows that not every model has."""
    full = [row for row in table["rows"] if len(row["cells"]) == len(table["models"])]
    series = {
        model: [Bar(row["cells"][place]["accuracy"], *row["cells"][place]["ci95"]) for row in full]
        for place, model in enumerate(table["models"])
    }
    return Chart(bars(table["title"], [r["name"] for r in full], series), table["title"], numbers_part(table))


def _curve(told: Mapping[str, Any], hint: str) -> Iterator[Part]:
    points = told.get("curve")
    if not points:
        return
    norm = told["protocol"]["norm"]
    eps = [0.0, *(float(point["eps"]) for point in points)]
    shares = [told["clean"], *points]
    series = Series(
        "worst case",
        eps,
        [share["accuracy"] for share in shares],
        [share["ci95"][0] for share in shares],
        [share["ci95"][1] for share in shares],
    )
    title = f"Worst-case accuracy over eps ({norm})"
    rows = tuple((number(at), accuracy_cell(share, hint)) for at, share in zip(eps, shares, strict=True))
    note = "At eps 0 the inputs are as they are. The band is the 95 % Wilson interval at each point."
    table = Table((f"eps ({norm})", "accuracy"), rows)
    yield Chart(lines(title, [series], f"eps ({norm})", "accuracy", percent=True, at_points=True), title, table, note)


def _sizes(saved: Saved) -> Iterator[Part]:
    told = saved.told
    sizes = {name: o["size"] for name, o in told.get("attacks", {}).items() if o.get("size")}
    if sizes:
        sizes |= {"smallest of all": told["minimal"]} if len(sizes) > 1 and told.get("minimal") else {}
        keys = ("mean", "p10", "median", "p90")
        rows = tuple((name, str(s["n"]), *(f"{s[key]:.4g}" for key in keys)) for name, s in sizes.items())
        note = f"Smallest perturbations found ({told['protocol']['norm']}), over the inputs that broke."
        yield Table(("attack", "n", "mean", "10 %", "median", "90 %"), rows, note=note)
    if not saved.attacks():
        return
    smallest = torch.stack([saved.size(key) for key in saved.attacks()]).amin(0)
    if not bool(smallest.isfinite().any()):
        return
    norm = saved.protocol.get("norm") or "norm of the attack"
    found = smallest[smallest.isfinite()]
    if float(found.max() - found.min()) <= 1e-3 * float(found.max()):  # one bar says nothing that a line does not
        size = number(float(found.max()))
        yield Note(f"Each of the {len(found)} changes that broke an input has the size {size} ({norm}).")
        return
    edges, counts = histogram(smallest)
    title = f"Size of the smallest change that broke each input ({norm})"
    rows = tuple(
        (f"{number(low)} to {number(high)}", str(count))
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    )
    eps = saved.protocol.get("eps")
    held = "" if eps is None else f" Attacks may use all of eps {number(eps)}, so sizes gather there."
    svg = columns(title, edges, counts, f"size ({norm})", "inputs")
    yield Chart(svg, title, Table(("size", "inputs"), rows), f"Of {len(found)} inputs that an attack broke.{held}")


def _confusion(saved: Saved) -> Iterator[Part]:
    if not len(saved.y):
        return
    pairs = worst_pairs(saved)
    note = "Under the attacks: of an input that withstands all, its own class; of one that broke, that of the first "
    note += "example that did."
    if saved.pred is None:
        note += " This run is of a version that did not keep the classes of inputs that are wrong without an attack; "
        note += "they are left out."
    yield from confusion(pairs, saved.classes, "True class and given class in the worst case", note)


def _cost(saved: Saved) -> Iterator[Part]:
    rows = []
    for key in (*saved.attacks(), *saved.attacks(static=True)):
        spent = saved.effort(key)
        asked = ["–" if spent[k] is None else f"{spent[k]:.0f}" for k in ("forward", "gradient")]
        each = [
            "–" if (count := spent[k]) is None else f"{count / max(spent['tried'] or 0, 1):.1f}"
            for k in ("forward", "gradient")
        ]
        name = key.partition("/")[2] + (" (static)" if key.startswith("static/") else "")
        rows.append((name, f"{spent['tried']:.0f}", f"{spent['broken']:.0f}", *asked, *each, f"{spent['seconds']:.2f}"))
    if rows:
        heads = (
            "attack",
            "tried",
            "broken",
            "answers",
            "gradients",
            "answers an input",
            "gradients an input",
            "seconds",
        )
        note = "Answers and gradients are counted by input; – where an object asks a model of its own."
        yield Table(heads, tuple(rows), note=note)
    asked_of = saved.run.stats().get("queries")
    if asked_of:
        yield Facts({"inputs asked": str(asked_of.get("asked")), "at most": str(asked_of.get("limit") or "no limit")})
