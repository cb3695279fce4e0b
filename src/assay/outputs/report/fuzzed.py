"""What the report says of a fuzzing run."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from assay.core.store import Store
from assay.core.units import clock
from assay.engines.evaluation import Share
from assay.engines.found import Found, summary
from assay.engines.kinds import Kinds, kinds_in
from assay.engines.quality import medians_of
from assay.engines.shrinkings import shrinkings
from assay.engines.stored import identity_of, keeps_all
from assay.outputs.fitted import fitted_facts, sheets_of
from assay.outputs.models import Models, built_facts, models_of
from assay.outputs.report.charts import columns, number
from assay.outputs.report.classes import confusion, failures_chart, histogram, left_out
from assay.outputs.report.over_time import over_time
from assay.outputs.report.parts import Chart, Facts, Note, Part, Picture, Section, Table
from assay.outputs.report.shown import Shown
from assay.outputs.seeding import labelled_by, opinion_facts, seeding_facts
from assay.outputs.shrunk import kinds_count, shrinkings_facts
from assay.outputs.tables import asked_line, coverage_facts, percent, quality_facts
from assay.outputs.trouble import skipped_facts, stability_facts

PAIRS = 12  # of classes in the table of kinds


def fuzz_verdict(run: Store, shown: Shown | None) -> Note:
    """What a reader takes away."""
    begin, found = identity_of(run), summary(run)
    models, recipe = models_of(begin), begin.get("recipe", {})
    if not found.seeding:
        return Note("The run has only begun: its seeds are not chosen yet.", "warning")
    said, tone = _found_words(found, models, recipe, shown, every=keeps_all(run))
    stable = found.stability or {}
    if stable.get("warnings"):
        said = f"UNRELIABLE ({', '.join(stable['warnings'])}): {said}"
    if unlabelled := found.seeding.get("unlabelled", 0):
        said += (
            f" Without labels: {unlabelled} of {found.seeding['seeds']} seeds have none, and what "
            f"{labelled_by(found.seeding, models)} of the clean input stands for it; whether that is right needs "
            "labels."
        )
    return Note(said, "warning" if stable.get("warnings") else tone)


def _found_words(
    found: Found, models: Models, recipe: Mapping[str, Any], shown: Shown | None, *, every: bool
) -> tuple[str, Any]:
    name, total, role = recipe.get("name", "?"), found.failures, models.role
    s = "s" if total != 1 else ""
    worked = f"{found.cases} cases tried in {clock(found.seconds)}"
    if not total:
        said = f"No failure was found by recipe {name}: {worked}. That does not show that there is none."
        return said, "warning" if not found.cases else ""
    wrong = found.wrong if shown is None else int((shown.cases.info["pred"] != shown.cases.y).sum())
    if every:
        said = f"Recipe {name} made and kept {total} case{s}, failing or not; the {role} is wrong on {wrong} of them."
        return f"{said} {worked.capitalize()}.", "bad" if wrong else ""
    # A seed may be worked on more than once.
    broken = Share(found.broken, max(found.broken, min(found.seeds, found.seeding["seeds"])))
    seeds = f"They grew from {found.broken} of {broken.n} seeds worked on, {percent(broken)}"
    if wrong == total or wrong + found.nonfinite >= total:
        said = f"The {role} fails on {total} case{s} found by recipe {name}."
    else:
        said = (
            f"Recipe {name} found {total} case{s} for which {recipe.get('oracle', '?')} holds; on {wrong} of them the "
            f"{role} itself is wrong."
        )
    return f"{said} {seeds}; {worked}.{_far(shown)}", "bad"


def _far(shown: Shown | None) -> str:
    """How large the changes are: failures say little to those who do not know."""
    size = shown.cases.info["size"] if shown is not None else torch.empty(0)
    finite = size[size.isfinite()]
    return f" The median change is {float(finite.median()):.3g} ({shown.norm})." if shown and len(finite) else ""


def fuzz_sections(run: Store, shown: Shown | None) -> Iterator[Section]:
    """The parts of the page, in reading order."""
    found, models = summary(run), models_of(identity_of(run))
    if not found.seeding:
        return
    yield Section("trust", "Is it working, and can it be trusted?", tuple(trouble(run, found)))
    every = keeps_all(run)
    kinds = None if every else kinds_in(run)  # what is in a pool is not called failures
    yield Section("found", "What was found", (Facts(_facts(run, found, models, kinds, shown)), *_kinds(kinds)))
    yield Section("time", "How it went", tuple(over_time(run.path, every=every)))
    yield from failing_sections(shown, every=every)
    yield Section("cost", "What it took", (Facts(_cost(run, found)),))
    pictures = tuple(Picture(f"images/{name}", text) for name, (_, text) in sheets_of(run).items())
    yield Section("sheets", "What the generator makes", pictures)


def trouble(run: Store, found: Found) -> Iterator[Part]:
    """The signs that something is wrong, as the run itself told them last, and how steady the answers are."""
    told = [sign for sign in run.stats().get("warnings") or () if isinstance(sign, Mapping) and "message" in sign]
    for sign in told:
        yield sign_note(sign)
    if found.stability is not None:
        yield Facts(stability_facts(found.stability))
    if not told:
        yield Note("No sign of trouble was met.")


def sign_note(sign: Mapping[str, Any]) -> Note:
    """A named sign that a run is not working."""
    link = str(sign.get("more") or sign.get("see") or f"docs/status.md#{sign.get('name', '')}")
    message = str(sign["message"]).rstrip(".")
    return Note(f"{sign.get('name', '')}: {message}. What it means and what to do: {link}", "warning", link)


def failing_sections(shown: Shown | None, *, every: bool) -> Iterator[Section]:
    """Which classes fail, what they are taken for, and by how much the cases were changed."""
    if shown is None or not len(shown):
        return
    wrong = shown.cases[shown.cases.info["pred"] != shown.cases.y]
    parts: list[Part] = [failures_chart(wrong.y, shown.classes)] if len(wrong) else []
    pairs = torch.stack([wrong.y, wrong.info["pred"]], 1)
    note = "Of the cases that were found, how often each class was given which other one."
    parts += confusion(pairs, shown.classes, "True class and given class of the failures", note)
    yield Section("classes", "Which classes fail, and as what", tuple(parts))
    yield Section("sizes", "How much was changed", tuple(sizes(shown, every=every)))


def sizes(shown: Shown, *, every: bool) -> Iterator[Part]:
    """A histogram of the changes in the run's norm."""
    size = shown.cases.info["size"]
    if not bool(size.isfinite().any()):
        return
    what = "cases" if every else "failures"
    edges, counts = histogram(size)
    title = f"Size of the change ({shown.norm}) of the {what}"
    bins = zip(edges, edges[1:], counts, strict=False)
    rows = tuple((f"{number(low)} to {number(high)}", str(count)) for low, high, count in bins)
    finite = size[size.isfinite()].double()
    low, middle, high = finite.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
    note = f"Of {len(finite)} {what}: median {middle:.4g}, first tenth below {low:.4g}, last above {high:.4g}."
    yield Chart(columns(title, edges, counts, f"size ({shown.norm})", what), title, Table(("size", what), rows), note)


def _facts(run: Store, found: Found, models: Models, kinds: Kinds | None, shown: Shown | None) -> dict[str, str]:
    every = keeps_all(run)
    return {
        **_counts(found, every=every, role=models.role),
        **({} if kinds is None else {"kinds of failures": kinds_count(kinds.to_json())}),
        **({"of these NaN or infinite": f"{found.nonfinite}"} if found.nonfinite else {}),
        "flaky (did not fail again)": f"{found.flaky}",
        **skipped_facts(found.skipped, found.skipped_because),
        **opinion_facts(found.opinions, found.seeding, models, every=every),
        **seeding_facts(found.seeding, found.seeds, models),
        **fitted_facts(run),
        **built_facts(run),
        **({} if shown is None or not len(shown) else quality_facts(medians_of(run, shown.cases))),
        **({} if (coverage := run.stats().get("coverage")) is None else coverage_facts(coverage)),
        **shrinkings_facts(shrinkings(run)),
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


def _kinds(kinds: Kinds | None) -> Iterator[Part]:
    if kinds is None:
        return
    pairs = kinds.to_json()["pairs"]
    rows = tuple(
        (f"{p['from']} → {p['to']}", str(p["failures"]), f"{p['kinds']}{' or more' if p['capped'] else ''}")
        for p in pairs[:PAIRS]
    )
    note = "Failures are of one kind where classes and changed places are alike."
    rest = left_out(len(rows), len(pairs), "pairs of classes, those with most failures")
    yield Table(("classes", "failures", "kinds"), rows, "Kinds of failures", f"{note} {rest}".strip())


def _cost(run: Store, found: Found) -> dict[str, str]:
    rate = found.cases / found.seconds if found.seconds else 0.0
    asked = run.stats().get("queries")
    return {
        "time": clock(found.seconds),
        "cases tried": f"{found.cases}",
        "cases per second": f"{rate:.0f}",
        "gradient steps": f"{found.gradient_steps}",
        **({"questions": asked_line(asked)} if asked else {}),
    }
