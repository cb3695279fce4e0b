"""The report of a run: one page with pictures beside it, readable from a file, asking the network for nothing."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest
from assay.core.files import write_atomic
from assay.core.ids import case_ids
from assay.core.images import png
from assay.core.store import Store
from assay.core.units import clock
from assay.engines.final_look import last_look, last_result
from assay.engines.found import Found, load_failures, summary
from assay.engines.hardened import Round
from assay.engines.hardening_words import looked, no_control
from assay.engines.quality import medians_of
from assay.engines.rounds import rounds_of
from assay.engines.stored import class_names, identity_of
from assay.outputs.models import Models, models_of
from assay.outputs.seeding import labelled_by, opinion_facts, seeding_facts
from assay.outputs.tables import coverage_facts, percent, quality_facts
from assay.outputs.verdicts import COLUMNS, MEANING, outcome, verdict_cells

GALLERY = 60  # failures shown; the shards hold all of them
SIDE = 112  # pixels of a picture on the page


@dataclass(frozen=True, slots=True)
class Card:
    """A failure on the page."""

    id: str
    true: str
    predicted: str
    vulnerable: str  # what the vulnerable model of a pair says
    others: str  # what other models say, where the recipe compares models
    linf: str
    l2: str
    ssim: str
    pictures: dict[str, str]


def report(run: str | Path) -> Path:
    """Write ``report/index.html`` for a run and return its path."""
    from jinja2 import Environment, StrictUndefined

    folder = store.read(store.find_run(run))
    out = folder.path / "report"
    (out / "images").mkdir(parents=True, exist_ok=True)
    here = files(__package__)
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        here.joinpath("page.html").read_text(encoding="utf-8")
    )
    begin, found, failures = identity_of(folder), summary(folder), _failures(folder)
    rounds, models = rounds_of(folder), models_of(begin)
    page = template.render(
        run=folder.name,
        style=here.joinpath("style.css").read_text(encoding="utf-8"),
        begin=begin,
        models=models,
        unlabelled=_unlabelled(found, models),
        facts=_facts(folder, found, failures, models),
        numbers=_numbers(folder, rounds),
        requirement=_requirement(folder),
        rounds=_rounds(rounds),
        spoiled=_spoiled(rounds),
        cards=_cards(folder, failures, models, out),
        total=found.failures,
        wrong=0 if failures is None else int((failures.info["pred"] != failures.y).sum()),
        damage=folder.damage,
        campaign=_campaign_text(folder),
    )
    path = out / "index.html"
    write_atomic(path, page.encode("utf-8", "backslashreplace"))
    return path


def _failures(folder: Store) -> Cases | None:
    try:
        return load_failures(folder)
    except NothingToTest:
        return None


def _unlabelled(found: Found, models: Models) -> dict[str, str]:
    """How many of the seeds have no label, and whose word stands for it; nothing where all have one."""
    count = found.seeding.get("unlabelled", 0)
    if not count:
        return {}
    return {"seeds": f"{count} of {found.seeding['seeds']}", "by": labelled_by(found.seeding, models)}


def _facts(folder: Store, found: Found, failures: Cases | None, models: Models) -> dict[str, str]:
    if not found.seeding:
        return {}
    rate = found.cases / found.seconds if found.seconds else 0.0
    return {
        "failures": f"{found.failures}",
        "distinct by seed and wrong class": f"{found.distinct}",
        "seeds broken": f"{found.broken}",
        "flaky (did not fail again)": f"{found.flaky}",
        "cases tried": f"{found.cases}",
        **opinion_facts(found.opinions, found.seeding, models),
        **seeding_facts(found.seeding, found.seeds, models),
        **({} if failures is None else quality_facts(medians_of(folder, failures))),
        **({} if (coverage := folder.stats().get("coverage")) is None else coverage_facts(coverage)),
        "time": clock(found.seconds),
        "cases per second": f"{rate:.0f}",
    }


def _numbers(folder: Store, rounds: list[Round]) -> list[dict[str, Any]]:
    """Evaluations committed to the run, as tables: one column a model."""
    tables = []
    for line in folder.commits("numbers"):
        tables += [json.loads(folder.file(name)) for name in line.files]
    look = last_look(folder)
    if look is None:
        return tables
    without = no_control(rounds, look.meta["best"], met=bool(last_result(folder).get("met")))
    said = [looked(len(list(folder.commits("final")))), *([without] if without else [])]
    for name in look.meta["tables"]:
        table = json.loads(folder.file(name))
        tables.append(table | {"note": " ".join([table["note"], *(f"{line.capitalize()}." for line in said)])})
    return tables


def _requirement(folder: Store) -> dict[str, Any] | None:
    """What was asked last of a hardening run and the verdict on its result; None where the journal does not tell."""
    told = last_result(folder)
    if "until" not in told:
        return None
    rows = told["verdicts"]
    star = "; * unreliable, see below: meets nothing" if any(row["unreliable"] for row in rows) else ""
    return {
        "until": told["until"],
        "best": told["best"],
        "outcome": outcome(rows, met=told["met"]),
        "columns": COLUMNS,
        "rows": [verdict_cells(row) for row in rows],
        "note": f"{MEANING[0].upper()}{MEANING[1:]}{star}.",
    }


def _rounds(rounds: list[Round]) -> list[dict[str, str]]:
    """The rounds of a hardening run, as text; a star where a check spoils the numbers."""
    rows = []
    twins = any(done.made == "resistant" for done in rounds)
    for done in rounds:
        now, made = done.measured, {"model": done.made} if twins else {}
        shares = {name: percent(share) for name, share in now.shares().items()}
        fol = {"FOL": "–" if now.fol is None else f"{now.fol:.3g}"}
        counts = {"found": f"{done.found}", "selected": f"{done.selected}"}
        counts |= {"fixed": f"{done.fixed} of {done.checked}", "broken": f"{done.broken}"}
        rows.append({"round": f"{done.number}{'*' * now.unreliable}", **made, **shares, **fol, **counts})
    return rows


def _spoiled(rounds: list[Round]) -> list[str]:
    """What the stars of the rounds stand for."""
    return [f"*UNRELIABLE, round {r.number} ({w['name']}): {w['message']}" for r in rounds for w in r.measured.warnings]


def _campaign_text(folder: Store) -> str:
    try:
        return (folder.path / "campaign.toml").read_text(encoding="utf-8")
    except OSError:
        return ""


def _cards(folder: Store, failures: Cases | None, models: Models, out: Path) -> list[Card]:
    if failures is None or failures.x.dim() != 4:
        return []
    classes = class_names(folder, failures)
    shown = failures[_spread(failures)]
    return [_card(shown[slice(i, i + 1)], classes, models, out) for i in range(len(shown))]


def _spread(failures: Cases) -> Tensor:
    """Rows for the gallery: in turn over the pairs (true, predicted), smallest change first."""
    pair = failures.y * (int(failures.info["pred"].max()) + 1) + failures.info["pred"]
    by_size = failures.info["l2"].argsort(stable=True)
    grouped = by_size[pair[by_size].argsort(stable=True)]
    _, counts = pair[grouped].unique_consecutive(return_counts=True)
    turn = torch.cat([torch.arange(int(c)) for c in counts])
    return grouped[turn.argsort(stable=True)][:GALLERY]


def _card(case: Cases, classes: tuple[str, ...], models: Models, out: Path) -> Card:
    x, seed = case.x[0], case.info["seed_x"][0]
    name = case_ids(case.x)[0]
    scale = max(1, SIDE // x.shape[-1])
    change = x - seed
    reach = float(change.abs().max()) or 1.0
    pictures = {}
    for what, picture in (("seed", seed), ("case", x), ("difference", 0.5 + change / (2 * reach))):
        file = out / "images" / f"{name}-{what}.png"
        if not file.exists():
            write_atomic(file, png(picture, scale))
        pictures[what] = f"images/{file.name}"
    linf, l2 = float(case.info["linf"][0]), float(case.info["l2"][0])
    others = [classes[p] for p in case.info["others_pred"][0].tolist()] if "others_pred" in case.info else []
    vulnerable = others.pop() if others and models.vulnerable is not None else ""  # it comes behind siblings
    return Card(
        name,
        classes[int(case.y[0])],
        classes[int(case.info["pred"][0])],
        vulnerable,
        ", ".join(others),
        f"{linf:.3f} = {255 * linf:.0f}/255",
        f"{l2:.2f}",
        f"{float(case.info['ssim'][0]):.2f}",
        pictures,
    )
