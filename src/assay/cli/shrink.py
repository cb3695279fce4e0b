"""``assay shrink``."""

import shlex
from typing import Annotated

import typer

from assay.cli import options


def shrink(
    run: Annotated[str, typer.Argument(help="Name or folder of a fuzzing run, or of a round of a hardening.")],
    by: Annotated[
        str,
        typer.Option(
            help="What is done, in this order: blocks(side=4), pixels, channels, entries take parts of the change "
            "back, line(steps=10) makes all of it smaller, eight_bit lays it on 8-bit levels; auto is "
            "eight_bit,blocks,pixels,line,eight_bit, or entries,line where inputs are no images."
        ),
    ] = "auto",
    k: Annotated[str | None, typer.Option("-k", "--k", help="Only the first failures: 100, or 10% of them.")] = None,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="One failure of each kind, the one with the smallest change.")
    ] = False,
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
    trust_remote_code: options.TrustRemoteCode = False,
    queries: options.Queries = None,
    ask: options.Ask = "",
    call_timeout: options.CallTimeout = None,
    trust_run: options.TrustRun = False,
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Take back all of a failure's change that it can fail without. The same command goes on, or adds nothing."""
    from assay.core.errors import BudgetSpent
    from assay.engines.shrink import shrink as work
    from assay.outputs.screen import Screen, show_notices
    from assay.outputs.show import facts_table, show
    from assay.outputs.shrunk import shrink_line, shrunk_facts, shrunk_numbers

    show_notices(quiet=quiet or json)
    try:
        with Screen("shrink", shrink_line, quiet=quiet or json, json_lines=json_lines) as screen:
            made = work(
                run,
                by=by,
                k=k,
                distinct=distinct,
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
                call_timeout=call_timeout,
                progress=screen,
            )
    except BudgetSpent as spent:
        options.show_spent(spent, run, json=json, yet="nothing is shrunk yet")
        return
    if json:
        options.print_json(shrunk_numbers(made))
        return
    show(facts_table(shrunk_facts(made), f"run {made.run.name}, by {made.by}"))
    if not made.complete:
        options.say(f"the budget ended after {made.of} cases; {options.GO_ON}")
    if len(made):
        options.say(f"next: assay export {shlex.quote(run)} --to npz --shrunk {made.number}")
