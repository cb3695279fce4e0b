"""``assay coverage``."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from assay.engines.coverage import Covered


def coverage(
    model: options.Model,
    data: options.DataSpec,
    by: Annotated[str, typer.Option(help="Criteria: nc,kmnc(k=1000) …; see assay list criterion.")] = (
        "nc,kmnc,nbc,tknc"
    ),
    layers: Annotated[
        str, typer.Option(help="Layers whose neurons count: auto, last, or names such as conv*,logits.")
    ] = "auto",
    training: Annotated[
        str | None, typer.Option(help="What the model was trained with; the training part of --data unless given.")
    ] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="Another model whose neurons count, too; repeatable.")
    ] = None,
    per_layer: Annotated[bool, typer.Option("--per-layer", help="Also a table of the layers.")] = False,
    batch: Annotated[str, typer.Option(help="Cases a pass: auto or a number; halved where memory runs out.")] = "auto",
    white_box: options.WhiteBox = False,
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
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
    """What a test set reaches in a net: neurons, sections of their range, patterns."""
    from assay.engines.coverage import coverage as work
    from assay.outputs.screen import Screen, eval_line, show_notices
    from assay.outputs.show import show

    show_notices(quiet=quiet or json)
    with Screen("coverage", eval_line, quiet=quiet) as screen:
        result = work(
            model,
            data,
            by=by,
            layers=layers,
            training=training,
            siblings=tuple(with_ or ()),
            batch=options.batch_size(batch),
            white_box=white_box,
            size=size,
            device=device,
            deterministic=deterministic,
            mean=options.channels(mean),
            std=options.channels(std),
            call_timeout=call_timeout,
            ray=ray,
            workers=workers,
            gpu_share=gpu_share,
            progress=screen,
        )
    if json:
        options.print_json(result.to_json())
        return
    show(_table(result))
    if per_layer:
        show(_layers_table(result))


def _table(result: "Covered") -> "Table":
    from rich.table import Table

    from assay.outputs.screen import plain

    protocol = result.protocol
    fitted = "" if protocol["training"] is None else f"; ranges from {protocol['training']}"
    table = Table(
        title=plain(f"{protocol['model']} on {protocol['data']}, n={protocol['n']}"),
        caption=plain(f"layers {result.layers}{fitted}"),
    )
    for name in ("criterion", "covered", "of", "share"):
        table.add_column(name, justify="left" if name == "criterion" else "right")
    for text, reached in result.criteria.items():
        share = "" if reached.share is None else f"{reached.share:.2%}"
        total = str(reached.total) if reached.total else "no upper end"
        table.add_row(plain(text), f"{reached.covered:.6g}" if share == "" else str(reached.covered), total, share)
    return table


def _layers_table(result: "Covered") -> "Table":
    from rich.table import Table

    from assay.outputs.screen import plain

    counted = {text: reached.layers for text, reached in result.criteria.items() if reached.layers}
    table = Table("layer", title="share covered of each layer", caption=plain(f"layers {result.layers}"))
    for text in counted:
        table.add_column(plain(text), justify="right")
    for rows in zip(*counted.values(), strict=True):
        shares = (f"{covered / total:.2%}" if total else "none to cover" for _, covered, total in rows)
        table.add_row(plain(rows[0][0]), *shares)
    return table
