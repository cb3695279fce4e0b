"""``assay arena``."""

from typing import Annotated

import typer

from assay.cli import options


def arena(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|ARENA", help="The model all rows start from; or an arena, to show it.")
    ],
    data: Annotated[str, typer.Option("--data", help="A whole data set: digits, mnist, dir:images, file.npz.")] = "",
    eps: options.Eps = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1 or l0; linf where not given.")] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(help="A recipe or trainer to run: 'trades(beta=6)'; repeatable. The usual ones where none is."),
    ] = None,
    time: Annotated[str | None, typer.Option(help="How long each row may fuzz and train (60s).")] = None,
    passes: Annotated[
        int | None, typer.Option(min=1, help="Or how many inputs its nets may answer and take gradients of.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Do every row with the seeds 0, 1, …: so many.")] = 1,
    columns: Annotated[
        str, typer.Option(help="What is measured: 'clean, pgd, l2(eps=1), autoattack[:200]'; usual ones if not given.")
    ] = "",
    cases: Annotated[int, typer.Option(min=1, help="Inputs that all are measured on.")] = 1000,
    part: Annotated[
        str, typer.Option(help="The part they are of: test; or val, to choose by before the test part is looked at.")
    ] = "test",
    val_cases: Annotated[int, typer.Option(min=1, help="Validation inputs that choose among a row's rounds.")] = 1000,
    trainers: Annotated[
        str, typer.Option(help="What every trainer has unless its row says otherwise: 'batch=128, lr=5e-3'.")
    ] = "",
    out: Annotated[str, typer.Option(help="The folder of the arena; rows that are there stay.")] = "arena",
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    amp: Annotated[bool, typer.Option("--amp", help="Train in bfloat16; all is measured in float32.")] = False,
    deterministic: options.Deterministic = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Harden one model by every recipe and trainer for the same time, and measure all of them alike.

    Without --data: show the arena in a folder, or in a file that --json made.
    """
    from assay.core.errors import UsageError
    from assay.engines.arena import arena as work
    from assay.outputs.arena_tables import arena_line, arena_markdown, arena_table, not_run
    from assay.outputs.screen import Screen, show_notices
    from assay.outputs.show import show

    if not data and (eps is not None or row):
        raise UsageError("to run rows give the data they are hardened with and measured on: --data mnist")
    show_notices(quiet=quiet or json)
    with Screen("arena", arena_line, quiet=quiet, json_lines=json_lines) as screen:
        told = work(
            model,
            data,
            out=out,
            eps=eps,
            norm=norm,
            time=time,
            passes=passes,
            rows=tuple(row or ()),
            seeds=seeds,
            columns=columns,
            cases=cases,
            part=part,
            val_cases=val_cases,
            trainers=trainers,
            size=size,
            mean=options.channels(mean),
            std=options.channels(std),
            device=device,
            amp=amp,
            deterministic=deterministic,
            progress=screen,
        )
    if json:
        options.print_json(told.to_json())
    elif markdown:
        typer.echo(arena_markdown(told), nl=False)
    else:
        show(arena_table(told))
        missing = [name + (f" ({why})" if why else "") for name, why in not_run(told).items()]
        options.say(f"not run: {', '.join(missing)}" if missing else "no recipe and no trainer is left out")
        options.say(f"as a page: assay report {told.place}")
