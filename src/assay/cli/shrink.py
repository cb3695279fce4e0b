"""``assay shrink``."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.engines.shrink import Shrunk


def shrink(
    run: Annotated[str, typer.Argument(help="Name or folder of a fuzzing run, or of a round of a hardening.")],
    by: Annotated[
        str,
        typer.Option(
            help="What is taken back, in this order: blocks(side=4), pixels, channels, entries; "
            "auto is blocks,pixels, or entries where inputs are no images."
        ),
    ] = "auto",
    k: Annotated[str | None, typer.Option("-k", "--k", help="Only the first failures: 100, or 10% of them.")] = None,
    selected: Annotated[
        int | None, typer.Option(min=1, help="Only this selection of the run's, made by assay select.")
    ] = None,
    any_failure: Annotated[
        bool, typer.Option("--any-failure", help="The wrong class may become another wrong one.")
    ] = False,
    budget: Annotated[int | None, typer.Option(min=1, help="The most questions asked of the model for a case.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask, where it is not to be the run's own.")] = None,
    siblings: Annotated[
        list[str] | None, typer.Option("--with", help="Another model, where a run that compares them does not find it.")
    ] = None,
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    queries: options.Queries = None,
    ask: options.Ask = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take back all of a failure's change that it can fail without. The same command goes on, or adds nothing."""
    from assay.core.errors import BudgetSpent
    from assay.engines.shrink import shrink as work
    from assay.outputs.screen import Screen, show_notices
    from assay.outputs.show import facts_table, show

    show_notices(quiet=quiet or json)
    try:
        with Screen("shrink", _line, quiet=quiet or json) as screen:
            made = work(
                run,
                by=by,
                k=k,
                selected=selected,
                any_failure=any_failure,
                budget=budget,
                model=model,
                siblings=siblings or (),
                mean=options.channels(mean),
                std=options.channels(std),
                device=device,
                queries=queries,
                ask=ask,
                progress=screen,
            )
    except BudgetSpent as spent:
        options.show_spent(spent, run, json=json, yet="nothing is shrunk yet")
        return
    if json:
        options.print_json(_told(made))
        return
    show(facts_table(_readable(made), f"run {made.run.name}, by {made.by}"))
    if not made.complete:
        typer.echo(f"the budget ended after {made.of} cases; {options.GO_ON}")
    if len(made):
        typer.echo(f"next: assay export {shlex.quote(run)} --to npz --shrunk {made.number}")


def _line(numbers: Any) -> tuple[str, float | None]:
    rate = numbers["questions"] / max(numbers["seconds"], 1e-9)
    text = f"{numbers['done']} of {numbers['of']} cases, {numbers['questions']} questions ({rate:.0f}/s)"
    return text, numbers["done"] / max(numbers["of"], 1)


def _told(made: "Shrunk") -> dict[str, Any]:
    minimal = int(made.cases.info["minimal"].sum())
    unchanged = int((made.cases.info["changed"] == 0).sum())
    return {
        "run": str(made.run),
        "by": made.by,
        "cases": made.of,
        "failing": made.failing,
        "minimal": minimal,
        "seed_fails": unchanged,
        "median": made.medians(),
        "questions": made.questions,
        "seconds": None if made.seconds is None else round(made.seconds, 3),
        "shrunk": made.number,
        "files": list(made.files),
        "new": made.new,
        "complete": made.complete,
        "queries": None if made.queries is None else dict(made.queries),
    }


def _readable(made: "Shrunk") -> dict[str, str]:
    told = _told(made)
    median, what = told["median"], "pixels" if made.cases.x.dim() == 4 else "entries"

    def pair(name: str, form: str) -> str:
        before, after = median[f"{name}_before"], median[name]
        return "–" if after is None else f"{before:{form}} → {after:{form}}"

    fixed = f", {made.of - made.failing} of {made.of} do not fail" if made.failing < made.of else ""
    short = f", {made.failing - told['minimal']} not shown to be minimal" if told["minimal"] < made.failing else ""
    facts = {
        "cases": f"{made.failing}{fixed}{short}",
        f"changed {what} (median)": pair("changed", ".0f"),
        "l2 (median)": pair("l2", ".3g"),
        "linf (median)": pair("linf", ".3g"),
        "questions a case": "–" if not len(made) else f"{made.questions / made.failing:.0f}",
        **({} if made.seconds is None else {"seconds": f"{made.seconds:.1f}"}),
    }
    if told["seed_fails"]:
        facts["nothing left"] = f"{told['seed_fails']}: their seed itself fails in the same way"
    rest = f" and {len(made.files) - 1} more" if len(made.files) > 1 else ""
    facts[f"shrinking {made.number}"] = f"{made.files[0]}{rest}" + ("" if made.new else ", made before")
    return facts
