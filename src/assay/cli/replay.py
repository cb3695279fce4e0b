"""``assay replay``."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import options
from assay.core.errors import NOT_MET

if TYPE_CHECKING:
    from assay.engines.replay import Replayed


class Required(StrEnum):
    """What every failure must be."""

    fixed = "fixed"
    failing = "failing"


def replay(
    run: Annotated[
        str, typer.Argument(help="Name or folder of a fuzzing run, a saved evaluation, a hardening or a round of it.")
    ],
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Failures by id, or its beginning; all without any.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model to ask, where it is not to be the run's own (of a hardening the result)."),
    ] = None,
    siblings: Annotated[
        list[str] | None, typer.Option("--with", help="Another model, where a run that compares them does not find it.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each failure is asked.")] = 3,
    flaky: Annotated[bool, typer.Option("--flaky", help="Also what did not fail again when it was found.")] = False,
    shrunk: Annotated[
        int | None, typer.Option(min=1, help="The cases of this shrinking, made by assay shrink, instead.")
    ] = None,
    selected: Annotated[
        int | None, typer.Option(min=1, help="Only this selection of the run's, made by assay select.")
    ] = None,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="One failure of each kind, the one with the smallest change.")
    ] = False,
    k: Annotated[str | None, typer.Option("-k", "--k", help="Only the first failures: 100, or 10% of them.")] = None,
    require: Annotated[
        Required | None, typer.Option(help="Exit 1 unless every failure is fixed, or unless each still fails.")
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
    quiet: options.Quiet = False,
) -> None:
    """Ask failures anew: do they still fail? Each alone, several times; nothing is written to the run."""
    from assay.core.errors import BudgetSpent
    from assay.engines.replay import replay as work
    from assay.outputs.screen import Screen, show_notices

    show_notices(quiet=quiet or json)
    try:
        with Screen("replay", _line, quiet=quiet or json) as screen:
            told = work(
                run,
                ids or (),
                model=model,
                siblings=siblings or (),
                repeats=repeats,
                k=k,
                flaky=flaky,
                shrunk=shrunk,
                selected=selected,
                distinct=distinct,
                mean=options.channels(mean),
                std=options.channels(std),
                device=device,
                queries=queries,
                ask=ask,
                call_timeout=call_timeout,
                progress=screen,
            )
    except BudgetSpent as spent:
        options.show_spent(spent, run, "give more --queries", json=json, yet="nothing is replayed yet")
        raise typer.Exit(NOT_MET if require else 0) from None
    if json:
        options.print_json(told.to_json())
    else:
        _show(told)
    if require and not _holds(told, require):
        if not json:
            options.say(f"--require {require} does not hold")
        raise typer.Exit(NOT_MET)


def _show(told: "Replayed") -> None:
    from assay.outputs.replayed import replay_table
    from assay.outputs.screen import plain
    from assay.outputs.show import show
    from assay.outputs.tables import asked_line

    show(replay_table(told))
    options.say(plain(f"model asked: {told.model}" + (f", {told.role}" if told.role else "")))
    if told.queries is not None:
        options.say(asked_line(told.queries))
    if not told.complete:
        options.say(f"the budget ended after {len(told)} of {told.of} failures; give more --queries")


def _holds(told: "Replayed", require: Required) -> bool:
    """Whether every failure that there was to ask is as required."""
    counts = told.counts()
    return counts["fixed" if require is Required.fixed else "still_failing"] == told.of


def _line(numbers: Any) -> tuple[str, float | None]:
    return f"{numbers['done']} of {numbers['of']} failures, {numbers['still']} still fail", numbers["done"] / numbers[
        "of"
    ]
