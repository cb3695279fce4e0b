"""Several runs beside each other: numbers only where they may stand there, and a rank only where it means something.

Two numbers of unlike protocols are not compared: the page says in what the protocols differ instead. Where they agree,
a run ranks behind those that are surely better, so that runs which the intervals do not tell apart share a rank.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import UsageError
from assay.core.files import make_folder, write_atomic
from assay.core.places import known_as, push
from assay.core.store import Store
from assay.engines.stored import identity_of, kind_of
from assay.outputs.models import models_of
from assay.outputs.report.compare_evals import compared_evals
from assay.outputs.report.compare_fuzz import compared_fuzz
from assay.outputs.report.compare_harden import compared_hardenings
from assay.outputs.report.compare_orders import compared_orders
from assay.outputs.report.comparing import Compared, Run
from assay.outputs.report.parts import Commands, Note, Page, Section, Table
from assay.outputs.report.place import page_path
from assay.outputs.report.render import rendered
from assay.outputs.report.reproduce import command, name_of

WAYS = {
    "eval": ("Evaluations", compared_evals),
    "harden": ("Hardenings", compared_hardenings),
    "fuzz": ("Fuzzing runs", compared_fuzz),
    "prioritise": ("Prioritisations", compared_orders),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs beside each other: the page, the sentence that sums it up, and all of it for JSON."""

    path: Path
    verdict: str
    told: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"report": known_as(self.path), **self.told}

    def __repr__(self) -> str:
        return f"<{self.verdict} {self.path}>"


def compare(*runs: str | Path, out: str | Path | None = None) -> Comparison:
    """Write a page that compares the runs, given by name or folder.

    Without ``out`` it is ``report/compare-….html`` of the first run, the same name for the same runs.
    """
    folders = _folders(runs)
    page, told = comparison(folders)
    if out is None:
        key = hashlib.sha256("\n".join(str(run.path.resolve()) for run in folders).encode()).hexdigest()[:8]
        path = folders[0].path / "report" / f"compare-{key}.html"
    else:
        path = page_path(out)
    make_folder(path.parent)
    write_atomic(path, rendered(page))
    push(folders[0].path, "report/")
    return Comparison(path, page.verdict.text, told)


def _folders(runs: Sequence[str | Path]) -> list[Store]:
    folders = [store.read(store.find_run(run)) for run in runs]
    places = [folder.path.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise UsageError(f"run {folder.name} is given more than once; name runs that differ")
    if len(folders) < 2:
        raise UsageError("comparing needs two runs or more, such as: assay report before after")
    return folders


def comparison(folders: Sequence[Store]) -> tuple[Page, dict[str, Any]]:
    """The page and the same as JSON."""
    named = _named(folders)
    parts: list[Compared] = []
    sections: list[Section] = [Section("runs", "The runs", (_table(named),))]
    for kind, (title, way) in WAYS.items():
        some = [run for run in named if kind_of(run.store) == kind]
        if len(some) == 1:
            said = f"{some[0].name} is the only run of its kind; nothing here stands beside it."
            sections.append(Section(f"{kind}-one", title, (Note(said),)))
        elif some:
            parts.append(way(some))
            sections += parts[-1].sections
    verdict = Note(*_verdict(named, parts))
    sections.append(_again(named))
    told = {
        "runs": [_facts(run) for run in named],
        "verdict": verdict.text,
        "groups": [group for part in parts for group in part.groups],
        "differences": [line for part in parts for line in part.unlike],
    }
    title = " · ".join(run.name for run in named)
    return Page(title, verdict, tuple(s for s in sections if s.parts), {"compared": f"{len(named)} runs"}), told


def _named(folders: Sequence[Store]) -> list[Run]:
    """The runs with names that tell them apart."""
    names = [folder.name for folder in folders]
    return [Run(f.name if names.count(f.name) == 1 else str(f.path), f) for f in folders]


def _verdict(runs: Sequence[Run], parts: Sequence[Compared]) -> tuple[str, Any]:
    kinds = sorted({kind_of(run.store) for run in runs})
    said = [part.verdict for part in parts if part.verdict]
    if len(kinds) > 1:
        said.append(f"The runs are of different kinds ({', '.join(kinds)}), which share no number.")
    tones = {part.tone for part in parts} | ({"warning"} if len(kinds) > 1 else set())
    return " ".join(said), "warning" if "warning" in tones else ""


def _facts(run: Run) -> dict[str, Any]:
    begin = identity_of(run.store)
    return {
        "run": run.name,
        "path": str(run.store.path),
        "kind": kind_of(run.store),
        "model": models_of(begin).tested,
        "model_fingerprint": begin.get("target", {}).get("fingerprint"),
        "data": begin.get("data", {}).get("spec"),
        "recipe": begin.get("recipe", {}).get("name"),
        "seed": begin.get("run", {}).get("seed"),
        "damage": run.store.damage,
    }


def _table(runs: Sequence[Run]) -> Table:
    keys = ("run", "kind", "model", "model_fingerprint", "data", "recipe", "seed")
    rows = tuple(tuple("–" if (v := _facts(run)[key]) is None else str(v) for key in keys) for run in runs)
    damaged = [f"{run.name} is damaged: {'; '.join(run.store.damage)}." for run in runs if run.store.damage]
    return Table(("run", "kind", "model", "model hash", "data", "recipe", "seed"), rows, note=" ".join(damaged))


def _again(runs: Sequence[Run]) -> Section:
    names = [name_of(run.store) for run in runs]
    rows = [("this comparison again", command("assay", "report", *names))]
    rows += [(f"the report of {name}", command("assay", "report", name)) for name in names]
    return Section("again", "Reproduce this", (Commands(tuple(rows)),))
