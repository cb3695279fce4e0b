"""``assay harden``."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.engines.hardened import Hardened


def harden(
    context: typer.Context,
    model: options.Model,
    data: Annotated[str, typer.Option("--data", help="A whole data set: digits, mnist, dir:images, file.npz.")],
    eps: Annotated[str, typer.Option(help="Perturbation size in the input's own range: 0.1 or 8/255.")],
    recipe: Annotated[str, typer.Option(help="The system to run; see assay list recipe.")] = "assay",
    until: Annotated[
        str, typer.Option(help="What must hold: 'pgd>=0.6, clean_drop<=0.01'; also clean, robust, fol, any attack.")
    ] = "",
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1 or l0; measured in linf where not given.")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run folder; one that exists is continued.")] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Stop after this many fuzzing rounds in all.")] = 5,
    time: Annotated[
        str | None, typer.Option(help="Begin no round that would not end in this time (20m); or train for it.")
    ] = None,
    per_round: Annotated[
        str | None, typer.Option(help="Cases picked a round: 600, or a share of the training part (10%).")
    ] = None,
    fuzz_time: Annotated[str | None, typer.Option(help="How long each round fuzzes (30s).")] = None,
    fuzz_cases: Annotated[int | None, typer.Option(min=1, help="Or how many cases each round tries.")] = None,
    suite: Annotated[str, typer.Option(help="Attacks that measure; the recipe's own where not given.")] = "",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a stage or a parameter: train.epochs=5.")
    ] = None,
    val_cases: Annotated[int, typer.Option(min=1, help="Validation cases the requirement is held against.")] = 1000,
    test_cases: Annotated[int | None, typer.Option(min=1, help="Test cases looked at in the end (all).")] = None,
    resistant: Annotated[
        str | None, typer.Option(help="For twinfuzz: the resistant model, instead of one built from MODEL.")
    ] = None,
    history: Annotated[
        str | None, typer.Option(help="For dare: the epochs of MODEL's training, where not beside its weights.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A trust check not to make; repeatable. See assay list check.")
    ] = None,
    no_control: Annotated[
        bool, typer.Option("--no-control", help="Make no models to compare with: as long trained without cases, noise.")
    ] = False,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Train again without each part of the recipe, as long; tell what it adds.")
    ] = False,
    amp: Annotated[
        bool, typer.Option("--amp", help="Trainings make their passes in bfloat16; everything is measured in float32.")
    ] = False,
    out: Annotated[str | None, typer.Option(help="Also write the best model here: NAME.safetensors.")] = None,
    seed: options.Seed = 0,
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    fresh: options.Fresh = False,
    deterministic: options.Deterministic = False,
    call_timeout: options.CallTimeout = None,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    log: options.Log = "",
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a model more robust, until a requirement holds on the validation part. Exit 1 where it does not.

    The recipe assay trains for --time (10m). Others fuzz, select, train and measure, round by round.
    """
    from assay.cli.campaign import changes
    from assay.core.errors import INTERRUPTED, NOT_MET
    from assay.engines.harden import harden as work
    from assay.outputs.harden_tables import harden_line
    from assay.outputs.screen import Screen, show_notices
    from assay.outputs.track.stream import tracked

    show_notices(quiet=quiet or json)
    with tracked(log, "harden") as tell, Screen("harden", harden_line, quiet=quiet, json_lines=json_lines) as screen:
        told = work(
            recipe,
            model,
            data,
            until=until,
            eps=eps,
            norm=norm,
            run=run,
            rounds=rounds,
            time=time,
            per_round=per_round,
            fuzz_time=fuzz_time,
            fuzz_cases=fuzz_cases,
            suite=suite,
            changes=changes(context.obj, change or [], {"eps": eps, "norm": norm}),
            val_cases=val_cases,
            test_cases=test_cases,
            seed=seed,
            control=not no_control,
            ablate=ablate,
            amp=amp,
            resistant=resistant,
            history=history,
            ignore=tuple(ignore or ()),
            out=out,
            size=size,
            mean=options.channels(mean),
            std=options.channels(std),
            device=device,
            fresh=fresh,
            deterministic=deterministic,
            call_timeout=call_timeout,
            ray=ray,
            workers=workers,
            gpu_share=gpu_share,
            progress=tell.on(screen),
        )
        tell.result(told.to_json())
    if json:
        options.print_json(told.to_json())
    else:
        _show(told, out)
    if told.interrupted:
        options.say("interrupted; what is done is kept, the same command continues", err=True)
        raise typer.Exit(INTERRUPTED)
    if told.requirement.clauses and not told.met:
        raise typer.Exit(NOT_MET)


def _show(told: "Hardened", out: str | None) -> None:
    from assay.engines.hardening_words import noise_line
    from assay.outputs import harden_tables as tables
    from assay.outputs.show import show

    show(tables.rounds_table(told))
    for notes in tables.notes_tables(told):
        show(notes)
    if told.ablations:
        show(tables.ablation_table(told))
    for table in tables.test_tables(told, told.test) if told.test is not None else []:
        show(table)
    for line in filter(None, (tables.comparison_line(told), "" if told.test is None else noise_line(told.test))):
        options.say(line)
    if told.requirement.clauses:
        show(tables.verdict_table(told))
    for line in (*tables.warning_lines(told), *filter(None, [tables.eps_line(told)]), *tables.closing_lines(told)):
        options.say(line)
    named = {"original": " (the original)", "resistant": " (the resistant model, before fuzzing)"}
    options.say(f"best model: {out or told.model}{named.get(told.rounds[told.best].made, '')}")
    if told.check and told.test is not None:
        options.say(f"check it: {told.check}")
