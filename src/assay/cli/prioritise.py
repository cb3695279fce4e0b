"""``assay prioritise``."""

from typing import Annotated

import typer

from assay.cli import options


def prioritise(
    model: options.Model,
    pool: Annotated[str, typer.Option(help="The tests: mnist/test, file.npz, dir:images, or a run.")],
    by: Annotated[
        str, typer.Option(help='How to order them: gini, dsa, "cam(criterion=nbc)", several with commas, or all.')
    ] = "gini",
    k: Annotated[str, typer.Option("-k", help="How many there is time to look at: 1000, or a share.")] = "10%",
    training: Annotated[
        str | None, typer.Option(help="What the model was trained with, where it is not the pool's own set.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Where neurons are looked at: auto, last, or names of layers.")
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Of a saved evaluation: only examples made on another model.")
    ] = False,
    measure: Annotated[
        bool, typer.Option(help="Ask a model that only answers about the pool too, to measure the orders.")
    ] = True,
    queries: options.Queries = None,
    ask: options.Ask = "",
    white_box: options.WhiteBox = False,
    run: Annotated[
        str | None, typer.Option(help="Name of the run folder that keeps the answers; one that exists is continued.")
    ] = None,
    fresh: options.Fresh = False,
    seed: options.Seed = 0,
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    call_timeout: options.CallTimeout = None,
    deterministic: options.Deterministic = False,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    trust_run: options.TrustRun = False,
    out: Annotated[
        str | None, typer.Option(help="Write the order to this .csv file, or its first k cases to this .npz.")
    ] = None,
    log: options.Log = "",
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Order tests so that those the model gets wrong come early, and measure the order where labels are known."""
    from assay.core.errors import BudgetSpent
    from assay.engines.prioritise import prioritise as work
    from assay.engines.prioritisers import methods_of
    from assay.outputs.priority import (
        asked_lines,
        check_out,
        one_order,
        priority_line,
        priority_table,
        reasons,
        write_order,
    )
    from assay.outputs.screen import Screen, show_notices
    from assay.outputs.show import show
    from assay.outputs.track.stream import tracked

    show_notices(quiet=quiet or json)
    if out is not None:  # before the work, not after it
        check_out(out)
        one_order(len(methods_of(by, layers, seed)))
    try:
        with (
            tracked(log, "prioritise", run=run is not None) as tell,
            Screen("prioritise", priority_line, quiet=quiet, json_lines=json_lines) as screen,
        ):
            result = work(
                model,
                pool,
                by=by,
                k=k,
                training=training,
                layers=layers,
                static=static,
                measure=measure,
                queries=queries,
                ask=ask,
                white_box=white_box,
                run=run,
                fresh=fresh,
                seed=seed,
                size=size,
                mean=options.channels(mean),
                std=options.channels(std),
                device=device,
                call_timeout=call_timeout,
                deterministic=deterministic,
                ray=ray,
                workers=workers,
                gpu_share=gpu_share,
                progress=tell.on(screen),
            )
            tell.result(result.to_json())
    except BudgetSpent as spent:  # at the question to see
        options.show_spent(spent, run, json=json)
        return
    if out is not None:
        write_order(result, out)
    if json:
        options.print_json(result.to_json() | {"out": out})
    else:
        show(priority_table(result))
        for line in (*reasons(result), *asked_lines(result)):
            options.say(line)
        if out is not None:
            options.say(f"written to {out}")
