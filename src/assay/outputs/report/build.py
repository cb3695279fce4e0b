"""The report of a run: one page with pictures beside it, readable from a file, asking the network for nothing."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest
from assay.core.files import make_folder, write_atomic
from assay.core.ids import case_ids, input_ids
from assay.core.images import png
from assay.core.store import Store
from assay.core.units import clock
from assay.engines.found import Found, load_failures, summary
from assay.engines.kinds import kinds_in, kinds_of
from assay.engines.quality import medians_of
from assay.engines.regress import verdicts_in
from assay.engines.shrinkings import shrunk_of
from assay.engines.stored import class_names, identity_of, keeps_all
from assay.outputs.fitted import fitted_facts, sheets_of
from assay.outputs.models import Models, models_of
from assay.outputs.replayed import regress_lines
from assay.outputs.report.hardening import hardening_parts
from assay.outputs.seeding import labelled_by, opinion_facts, seeding_facts
from assay.outputs.shrunk import kinds_count
from assay.outputs.tables import coverage_facts, quality_facts
from assay.outputs.trouble import skipped_facts, stability_facts

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
    shrunk: str  # what is left of the change, where it was shrunk
    again: str  # the command that asks about it once more
    pictures: dict[str, str]


def report(run: str | Path) -> Path:
    """Write ``report/index.html`` for a run and return its path."""
    from jinja2 import Environment, StrictUndefined

    folder = store.read(store.find_run(run))
    out = folder.path / "report"
    make_folder(out / "images")
    here = files(__package__)
    template = Environment(autoescape=True, undefined=StrictUndefined, finalize=_shown).from_string(
        here.joinpath("page.html").read_text(encoding="utf-8")
    )
    begin, found, failures = identity_of(folder), summary(folder), _failures(folder)
    models = models_of(begin)
    found_kinds = None if keeps_all(folder) else kinds_in(folder)  # what is in a pool is not called failures
    kinds = None if found_kinds is None else found_kinds.to_json()
    page = template.render(
        run=folder.name,
        style=here.joinpath("style.css").read_text(encoding="utf-8"),
        begin=begin,
        models=models,
        unlabelled=_unlabelled(found, models),
        facts=_facts(folder, found, failures, models, kinds),
        **hardening_parts(folder),
        cards=_cards(folder, failures, models, out),
        kinds=kinds,
        old=regress_lines(verdicts_in(folder)),
        sheets=_sheets(folder, out),
        total=found.failures,
        every=keeps_all(folder),
        wrong=0 if failures is None else int((failures.info["pred"] != failures.y).sum()),
        damage=folder.damage,
        campaign=_campaign_text(folder),
    )
    path = out / "index.html"
    write_atomic(path, page.encode("utf-8", "backslashreplace"))
    return path


def _shown(value: object) -> object:
    """Text from users and files without characters that steer whatever shows the page, or that XML does not know."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "\\x" + format(ord(c), "02x") for c in value)


def _failures(folder: Store) -> Cases | None:
    try:
        return load_failures(folder)
    except NothingToTest:
        return None


def _sheets(folder: Store, out: Path) -> dict[str, str]:
    """Pictures of what the run fitted, laid beside the page, and what they show."""
    sheets = sheets_of(folder)
    for name, (content, _) in sheets.items():
        write_atomic(out / "images" / name, content)
    return {f"images/{name}": text for name, (_, text) in sheets.items()}


def _unlabelled(found: Found, models: Models) -> dict[str, str]:
    """How many of the seeds have no label, and whose word stands for it; nothing where all have one."""
    count = found.seeding.get("unlabelled", 0)
    if not count:
        return {}
    return {"seeds": f"{count} of {found.seeding['seeds']}", "by": labelled_by(found.seeding, models)}


def _facts(
    folder: Store, found: Found, failures: Cases | None, models: Models, kinds: Mapping[str, Any] | None
) -> dict[str, str]:
    if not found.seeding:
        return {}
    rate = found.cases / found.seconds if found.seconds else 0.0
    return {
        **_counts(found, every=keeps_all(folder), role=models.role),
        **({} if kinds is None else {"kinds of failures": kinds_count(kinds)}),
        **({"of these NaN or infinite": f"{found.nonfinite}"} if found.nonfinite else {}),
        "flaky (did not fail again)": f"{found.flaky}",
        **skipped_facts(found.skipped, found.skipped_because),
        **stability_facts(found.stability),
        "cases tried": f"{found.cases}",
        **opinion_facts(found.opinions, found.seeding, models, every=keeps_all(folder)),
        **seeding_facts(found.seeding, found.seeds, models),
        **fitted_facts(folder),
        **({} if failures is None else quality_facts(medians_of(folder, failures))),
        **({} if (coverage := folder.stats().get("coverage")) is None else coverage_facts(coverage)),
        "time": clock(found.seconds),
        "cases per second": f"{rate:.0f}",
    }


def _counts(found: Found, *, every: bool, role: str) -> dict[str, str]:
    """How many cases were kept: failures, or a pool of which some fail."""
    if every:
        return {"cases kept, failing or not": f"{found.failures}", f"of these the {role} is wrong on": f"{found.wrong}"}
    return {
        "failures": f"{found.failures}",
        "distinct by seed and wrong class": f"{found.distinct}",
        "seeds broken": f"{found.broken}",
    }


def _campaign_text(folder: Store) -> str:
    try:
        return (folder.path / "campaign.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cards(folder: Store, failures: Cases | None, models: Models, out: Path) -> list[Card]:
    if failures is None or failures.x.dim() != 4:
        return []
    classes = class_names(folder, failures)
    rows = _spread(failures)
    smaller = shrunk_of(folder, failures, rows)
    name = folder.name if (store.runs_root() / folder.name).resolve() == folder.path.resolve() else str(folder.path)
    return [
        _card(failures[slice(row, row + 1)], smaller.get(row), classes, models, out, shlex.quote(name))
        for row in rows.tolist()
    ]


def _spread(failures: Cases) -> Tensor:
    """Rows for the gallery: in turn over the pairs (true, predicted), one of each kind before a second of any, smallest
    change first.
    """
    pair = failures.y * (int(failures.info["pred"].max()) + 1) + failures.info["pred"]
    by_size = failures.info["l2"].argsort(stable=True)
    kind = kinds_of(failures)
    second = _turn(kind, by_size)  # of its kind
    # The kinds of a pair come in the order of their smallest cases.
    first = by_size[second[by_size] == 0]
    place = torch.empty(int(kind.max()) + 1, dtype=torch.int64)
    place[kind[first]] = _turn(pair, first)[first]
    order = by_size[pair[by_size].argsort(stable=True)]
    order = order[place[kind[order]].argsort(stable=True)]
    return order[second[order].argsort(stable=True)][:GALLERY]


def _turn(group: Tensor, order: Tensor) -> Tensor:
    """For the rows in this order, how many of the same group come before each; by row, 0 for all others."""
    grouped = order[group[order].argsort(stable=True)]
    _, counts = group[grouped].unique_consecutive(return_counts=True)
    turn = torch.zeros_like(group)
    turn[grouped] = torch.cat([torch.arange(int(count)) for count in counts])
    return turn


def _card(case: Cases, smaller: Cases | None, classes: tuple[str, ...], models: Models, out: Path, run: str) -> Card:
    x, seed = case.x[0], case.info["seed_x"][0]
    name = case_ids(case)[0]
    scale = max(1, SIDE // x.shape[-1])
    left = x if smaller is None else smaller.x[0]
    reach = float((left - seed).abs().max()) or 1.0
    shown = {"seed": seed, "case": x, **({} if smaller is None else {"shrunk": left})}
    pictures = {}
    for what, picture in (shown | {"difference": 0.5 + (left - seed) / (2 * reach)}).items():
        # A shrunk form is one of several: its pictures have its own name.
        own = name if smaller is None or what in ("seed", "case") else f"{name}-{input_ids(smaller.x)[0][:8]}"
        file = out / "images" / f"{own}-{what}.png"
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
        "" if smaller is None else _left(smaller),
        f"assay replay {run} {name}",
        pictures,
    )


def _left(smaller: Cases) -> str:
    """How much a shrunk case changes of its seed."""
    info = {name: column[0] for name, column in smaller.info.items()}
    image = ", fails as an 8-bit image" if "eight_bit" in info and bool(info["eight_bit"]) else ""
    was = f"{int(info['changed'])} of {int(info['changed_before'])} changed pixels"
    return f"{was}, L∞ {float(info['linf']):.3f}, L2 {float(info['l2']):.2f}{image}"
