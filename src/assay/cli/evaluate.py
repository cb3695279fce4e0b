"""``assay eval``."""

from typing import Annotated

import typer

from assay.cli import options


def evaluate(
    model: options.Model,
    data: options.DataSpec,
    suite: Annotated[
        str, typer.Option(help="A suite, or attacks: fgsm,pgd(steps=40). See assay list attack.")
    ] = "fast",
    eps: options.Eps = None,
    norm: options.Norm = "linf",
    static_from: Annotated[
        str | None, typer.Option(help="Also judge examples made on this other model, in a column of its own.")
    ] = None,
    save: Annotated[str | None, typer.Option(help="Keep every example made in a run of this name.")] = None,
    each: Annotated[bool, typer.Option("--each", help="Every attack on every input, not as a cascade.")] = False,
    per_class: Annotated[bool, typer.Option("--per-class", help="Also a table of the classes.")] = False,
    seed: options.Seed = 0,
    batch: Annotated[str, typer.Option(help="Cases a block: auto or a number; halved where memory runs out.")] = "auto",
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    fresh: options.Fresh = False,
    deterministic: options.Deterministic = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Accuracy on clean inputs and under attack, with 95 % intervals."""
    from assay.engines.evaluate import evaluate as work
    from assay.outputs.screen import Screen, eval_line, show_notices
    from assay.outputs.show import show
    from assay.outputs.tables import evaluation_table, per_class_table
    from assay.subjects.data.load import load_data

    show_notices(quiet=quiet or json)
    with Screen("eval", eval_line, quiet=quiet) as screen:
        result = work(
            model,
            load_data(data, size=size),
            suite=suite,
            eps=eps,
            norm=norm,
            static_from=static_from,
            save=save,
            each=each,
            seed=seed,
            batch=options.batch_size(batch),
            device=device,
            fresh=fresh,
            deterministic=deterministic,
            mean=options.channels(mean),
            std=options.channels(std),
            progress=screen,
        )
    if json:
        options.print_json(result.to_json())
        return
    show(evaluation_table(result))
    if per_class:
        show(per_class_table(result))
    for warning in result.warnings:
        typer.echo(f"UNRELIABLE ({warning['name']}): {warning['message']}")
    if result.run is not None:
        typer.echo(f"examples kept in {result.run}")
