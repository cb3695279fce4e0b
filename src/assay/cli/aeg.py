"""``assay aeg``."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from assay.cli import options


def aeg(
    data: Annotated[str, typer.Argument(help="What to learn from: mnist, mnist/train[:5000], dir:images, file.npz.")],
    out: Annotated[str, typer.Option(help="Where the generator goes: NAME.safetensors; NAME.png shows samples.")],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter: epochs=8, loss=log, split=class_pair(3,8)."),
    ] = None,
    seed: options.Seed = 0,
    size: options.Size = "",
    device: options.Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out where it exists.")] = False,
    deterministic: options.Deterministic = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train the generator of recipe cagfuzz alone: a CycleGAN. A stopped training goes on with the same command."""
    from assay.engines.aeg import make_aeg, making_of
    from assay.outputs.screen import Screen, show_notices
    from assay.outputs.show import facts_table, show
    from assay.stages.aeg.sheet import CAPTION

    show_notices(quiet=quiet or json)
    params = options.settings(sets or [], "epochs=8")
    epochs = making_of(params, seed).epochs
    with Screen("aeg", lambda numbers: _line(numbers, epochs), quiet=quiet) as screen:
        done = make_aeg(
            data,
            out,
            params=params,
            seed=seed,
            size=size,
            device=device,
            overwrite=overwrite,
            deterministic=deterministic,
            progress=screen,
        )
    if json:
        options.print_json(done.to_json())
        return
    facts, measured = done.aeg.facts, done.aeg.facts["measured"]
    show(
        facts_table(
            {
                "generator": done.out,
                "samples": f"{done.sheet}: {CAPTION}",
                "made of": f"{facts['data']}: domains of {facts['domains'][0]} and {facts['domains'][1]} images",
                "ways to reconstruct": f"{done.aeg.variety} of {done.aeg.snapshots} snapshots",
                f"on {measured['images']} images kept back": f"cycle error {measured['cycle_error']:.4f} of the range, "
                f"L2 {measured['l2']:.3f}, SSIM {measured['ssim']:.3f}",
                "seconds of training": f"none, it is in the {done.found}" if done.found else f"{done.seconds:.1f}",
            }
        )
    )
    options.say(f"next: assay fuzz MODEL --data {data} --recipe cagfuzz --time 60s --set mutate.of.aeg={done.out}")


def _line(numbers: Mapping[str, Any], epochs: int) -> tuple[str, float]:
    """How far the training is, and the last cycle error."""
    error = f", cycle error {numbers['val_loss']:.4f}" if "val_loss" in numbers else ""
    return f"epoch {numbers['epoch']:.1f} of {epochs}{error}", numbers["epoch"] / epochs
