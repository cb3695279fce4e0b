"""``assay export``."""

from typing import Annotated

import typer

from assay.cli import options


def export(
    run: Annotated[str, typer.Argument(help="Name or folder of a fuzzing run, a hardening or a saved evaluation.")],
    to: Annotated[str, typer.Option(help="npz, parquet or images.")],
    out: Annotated[str | None, typer.Option(help="A new file or folder; one named for the run if left out.")] = None,
    selected: Annotated[
        int | None, typer.Option(min=1, help="Only this selection of the run's, made by assay select.")
    ] = None,
    shrunk: Annotated[
        int | None, typer.Option(min=1, help="Only this shrinking of the run's, made by assay shrink.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a run's failures for other programs. Nothing is overwritten; an .npz loads again with --data."""
    from assay.outputs.export import export as work
    from assay.outputs.screen import plain, show_notices

    show_notices(quiet=quiet or json)
    path, cases = work(run, to=to, out=out, selected=selected, shrunk=shrunk)
    if json:
        told = {"run": run, "to": to, "out": str(path), "cases": cases, "selected": selected, "shrunk": shrunk}
        options.print_json(told)
    else:
        typer.echo(f"{cases} cases in {plain(str(path))}")
