"""``assay train``."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.subjects.bench import Splits


def train(
    model: Annotated[
        str, typer.Argument(help="A net of the zoo (assay list model), NET@weights, or file.py:function.")
    ],
    out: Annotated[str, typer.Option(help="Where the weights go: NAME.safetensors.")],
    trainer: Annotated[str, typer.Option(help="plain, or adversarial(eps=0.1, …); see assay list trainer.")] = "plain",
    data: Annotated[
        str | None, typer.Option("--data", help="A whole data set: digits, mnist, dir:images, file.npz.")
    ] = None,
    train_on: Annotated[str | None, typer.Option("--train", help="Instead of --data: what to train on.")] = None,
    val: Annotated[str | None, typer.Option("--val", help="With --train: what chooses the epoch.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training part.")] = None,
    time: Annotated[str | None, typer.Option(help="Instead of --epochs: as many as fit in this time (10m).")] = None,
    batch: Annotated[int | None, typer.Option(help="Cases a step.")] = None,
    lr: Annotated[float | None, typer.Option(help="First learning rate.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="adam or sgd.")] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine, step or constant.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    smoothing: Annotated[float | None, typer.Option(help="Label smoothing.")] = None,
    augment: Annotated[str | None, typer.Option(help="flip, shift=0.1, rotate=10, scale=0.1: any of them.")] = None,
    ema: Annotated[float | None, typer.Option(help="Keep a running average of the weights, e.g. 0.999.")] = None,
    eps: options.Eps = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1 or l0, for trainers that attack.")] = None,
    seed: options.Seed = 0,
    hold_out: Annotated[float, typer.Option(help="Share of the training part kept away from training.")] = 0.0,
    history: Annotated[str, typer.Option(help="Keep the epochs: FOLDER, or all or last:N beside --out.")] = "",
    keep: Annotated[str, typer.Option(help="Epochs the history keeps: all or last:N.")] = "all",
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out where it exists.")] = False,
    deterministic: options.Deterministic = False,
    amp: Annotated[
        bool, typer.Option("--amp", help="Passes in bfloat16, forward and back; epochs are judged in float32.")
    ] = False,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    log: options.Log = "",
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a net and keep its best epoch on the validation part. A stopped training goes on with the same command."""
    from assay.core.errors import UsageError
    from assay.core.places import beside, known_as
    from assay.core.units import seconds
    from assay.engines.train import train as work
    from assay.outputs.notes import note_facts
    from assay.outputs.screen import Screen, show_notices, train_line
    from assay.outputs.show import facts_table, show
    from assay.outputs.track.stream import tracked

    if epochs is not None and time is not None:
        raise UsageError("--epochs and --time both say when to end; give one of them")
    show_notices(quiet=quiet or json)
    given = {
        "epochs": epochs,
        "time": None if time is None else seconds(time),
        "batch": batch,
        "lr": lr,
        "optimiser": optimiser,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "smoothing": smoothing,
        "augment": augment,
        "ema": ema,
    }
    splits = _splits(data, train_on, val, size)
    with (
        tracked(log, "train", beside=beside(out)) as tell,
        Screen("train", train_line(epochs), quiet=quiet, json_lines=json_lines) as screen,
    ):
        done = work(
            model,
            splits,
            out,
            trainer=trainer,
            params={name: value for name, value in given.items() if value is not None},
            eps=eps,
            norm=norm,
            seed=seed,
            hold_out=hold_out,
            history=history,
            keep=keep,
            mean=options.channels(mean),
            std=options.channels(std),
            device=device,
            overwrite=overwrite,
            deterministic=deterministic,
            amp=amp,
            ray=ray,
            workers=workers,
            gpu_share=gpu_share,
            progress=tell.on(screen),
        )
        tell.result(done.to_json())
    if json:
        options.print_json(done.to_json())
        return
    test = f"{data}/test" if splits.test is not None and data is not None else "TEST-DATA"
    chosen = f"accuracy under attack, {done.score:.4f}" if done.score >= 0 else "no epoch kept the clean accuracy"
    facts = {
        "weights": known_as(done.out),
        "best epoch": f"{done.best_epoch} of {done.epochs}",
        "accuracy on inputs kept back" if done.notes else "validation accuracy": f"{done.val_accuracy:.4f}",
        **({"learning rate": f"{done.rate:g}, of those tried"} if done.rate else {}),
        **({"chosen by": chosen} if done.score != done.val_accuracy else {}),
        "seconds": f"{done.seconds:.1f}",
        **note_facts(done.notes),
    }
    show(facts_table(facts))
    options.say(f"next: assay eval {model.partition('@')[0]}@{known_as(done.out)} --data {test} --eps 0.1")


def _splits(data: str | None, train: str | None, val: str | None, size: str) -> "Splits":
    """The data set of ``--data``, or one put together from ``--train`` and ``--val``."""
    from assay.core.errors import UsageError
    from assay.subjects.bench import Splits
    from assay.subjects.data.load import load_data, load_splits

    if (data is None) == (train is None) or (val is not None and train is None):
        raise UsageError("give --data NAME, or --train SPEC (and --val SPEC)")
    if data is not None:
        return load_splits(data, size=size)
    parts = {"train": load_data(train, part="train", size=size)}
    if val is not None:
        parts["val"] = load_data(val, part="val", size=size)
        if parts["val"].spec != parts["train"].spec:
            raise UsageError(f"{parts['train']} and {parts['val']} differ in shape or classes")
    return Splits(str(train), **parts)
