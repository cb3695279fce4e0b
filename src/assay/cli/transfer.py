"""``assay transfer``."""

from typing import Annotated

import typer

from assay.cli import options


def transfer(
    models: Annotated[list[str], typer.Argument(help="Two or more models, as for assay eval.")],
    data: options.DataSpec,
    suite: Annotated[str, typer.Option(help="The attacks examples are made with.")] = "pgd",
    eps: options.Eps = None,
    norm: options.Norm = "linf",
    ask: options.Ask = "",
    white_box: options.WhiteBox = False,
    seed: options.Seed = 0,
    batch: Annotated[str, typer.Option(help="Cases a block: auto or a number.")] = "auto",
    size: options.Size = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    call_timeout: options.CallTimeout = None,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    deterministic: options.Deterministic = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Which examples carry over: made on one model, judged by the others."""
    from assay.engines.transfer import transfer as work
    from assay.outputs.screen import Screen, eval_line, show_notices
    from assay.outputs.show import show
    from assay.outputs.tables import transfer_table
    from assay.subjects.data.load import load_data

    show_notices(quiet=quiet or json)
    with Screen("transfer", eval_line, quiet=quiet) as screen:
        result = work(
            models,
            load_data(data, size=size, like=models[0]),
            suite=suite,
            eps=eps,
            norm=norm,
            ask=ask,
            white_box=white_box,
            seed=seed,
            batch=options.batch_size(batch),
            device=device,
            deterministic=deterministic,
            call_timeout=call_timeout,
            ray=ray,
            workers=workers,
            gpu_share=gpu_share,
            progress=screen,
        )
    if json:
        options.print_json(result.to_json())
    else:
        show(transfer_table(result))
