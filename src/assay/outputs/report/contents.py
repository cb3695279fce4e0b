"""What the report of a run says, in reading order: the verdict, what to trust, the numbers, what to type."""

from collections.abc import Iterator, Mapping
from typing import Any

from assay.core.store import Store
from assay.engines.regress import verdicts_in
from assay.engines.saved import saved_evaluation
from assay.engines.stored import identity_of, kind_of
from assay.outputs.models import Models, models_of
from assay.outputs.replayed import regress_lines
from assay.outputs.report.evaluated import eval_sections, eval_verdict
from assay.outputs.report.fuzzed import fuzz_sections, fuzz_verdict
from assay.outputs.report.hardening import given_tables, harden_sections, harden_verdict
from assay.outputs.report.ordered import order_sections, order_verdict, orders_of
from assay.outputs.report.parts import Note, Page, Section
from assay.outputs.report.reproduce import again_section, environment_section
from assay.outputs.report.shown import Shown
from assay.outputs.report.shown import shown as failures_of


def page_of(run: Store, shown: Shown | None = None) -> Page:
    """Everything the report of this run says besides the gallery of its failures.

    ``shown`` are those failures, where whoever asks has read them already.
    """
    shown = failures_of(run) if shown is None else shown
    verdict, own = _own(run, shown)
    missing = () if shown is None else tuple(line for line in shown.missing if line not in run.damage)
    sections = (
        Section("damage", "Damage", tuple(Note(f"Damaged: {line}", "bad") for line in (*run.damage, *missing))),
        _old_failures(run),
        *own,
        again_section(run, shown),
        environment_section(run),
    )
    return Page(run.name, verdict, tuple(section for section in sections if section.parts), _facts(run))


def _own(run: Store, shown: Shown | None) -> tuple[Note, Iterator[Section]]:
    """The verdict and the sections that runs of its kind have."""
    saved = saved_evaluation(run)
    if saved is not None:
        return eval_verdict(saved), eval_sections(saved)
    kind = kind_of(run)
    if kind == "harden":
        return harden_verdict(run), harden_sections(run, shown)
    if kind == "prioritise":
        told = orders_of(run)
        return order_verdict(told), order_sections(run, told)
    return fuzz_verdict(run, shown), iter((*given_tables(run), *fuzz_sections(run, shown)))


def _old_failures(run: Store) -> Section:
    lines = regress_lines(verdicts_in(run))
    said = "No number counts them; assay replay tells of each."
    return Section("old", "Old failures, asked first", (*map(Note, lines), *([Note(said)] if lines else [])))


def _facts(run: Store) -> dict[str, str]:
    """What stands under the title."""
    begin = identity_of(run)
    models = models_of(begin)
    return {
        "run": run.name,
        "kind": kind_of(run) or "?",
        **_models(models),
        "data": str(begin.get("data", {}).get("spec", "?")),
        **_how(begin),
        "seed": str(begin.get("run", {}).get("seed", "?")),
        **_hashes(begin),
    }


def _models(models: Models) -> dict[str, str]:
    if models.vulnerable is None:
        told = {"target": models.tested}
    else:
        told = {"tested": models.tested, "vulnerable model": models.vulnerable}
    return told | ({"beside it": ", ".join(models.siblings)} if models.siblings else {})


def _how(begin: Mapping[str, Any]) -> dict[str, str]:
    recipe, suite, by = begin.get("recipe", {}), begin.get("suite", {}), begin.get("run", {}).get("by", ())
    ball = begin.get("ball", {})
    told = {"recipe": str(recipe["name"])} if "name" in recipe else {}
    keys = map(str, begin.get("run", {}).get("order", ()))
    order = [key.partition("/")[2] for key in keys if not key.startswith("static/")]
    told |= {"suite": ", ".join(order or suite)} if suite else {}
    told |= {"by": ", ".join(map(str, by))} if by else {}
    return told | ({"ball": f"{ball.get('norm')} eps {ball['eps']}"} if ball.get("eps") is not None else {})


def _hashes(begin: Mapping[str, Any]) -> dict[str, str]:
    model = begin.get("target", {}).get("fingerprint")
    data = begin.get("data", {})
    hashes = data.get("fingerprint") or ", ".join(f"{k} {data[k]}" for k in ("train", "val", "test") if k in data)
    return ({"model hash": str(model)} if model else {}) | ({"data hash": str(hashes)} if hashes else {})
