"""``assay demo``."""

from typing import Annotated

import typer

from assay.cli import options


def demo(
    run: Annotated[str, typer.Option(help="Name of the run folder; NAME-2 where it exists.")] = "demo",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """The whole way on the embedded digits, offline and on the CPU: train, attack, fuzz, fine-tune, report."""
    from assay.demo import demo as work
    from assay.demo import next_commands
    from assay.outputs.screen import show_notices
    from assay.outputs.show import show
    from assay.outputs.tables import before_after_table

    show_notices(quiet=True)
    result = work(run=run, seed=seed, say=(lambda _: None) if quiet else (lambda text: typer.echo(text, err=True)))
    if json:
        options.print_json(result.to_json())
        return
    show(before_after_table(result.table, f"digits/test, linf eps {result.eps:g}, before and after"))
    typer.echo(f"report: {result.report}")
    typer.echo("next:")
    for command in next_commands(result):
        typer.echo(f"  {command}")
