"""``assay fuzz``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.core.errors import BudgetSpent
    from assay.engines.found import Found
    from assay.engines.shrinkings import Shrunk

SHRUNK = 256  # failures that --shrink takes: one of each kind, the first kinds


def fuzz(
    context: typer.Context,
    model: options.Model,
    data: Annotated[str, typer.Option("--data", help="Where seeds come from; mnist means mnist/train.")],
    recipe: Annotated[str, typer.Option(help="The system to run; see assay list recipe.")] = "noise",
    run: Annotated[str | None, typer.Option(help="Name of the run folder; one that exists is continued.")] = None,
    time: Annotated[str | None, typer.Option(help="Stop after this much work in all: 30s, 10m, 2h.")] = None,
    cases: Annotated[
        int | None, typer.Option(min=1, help="Stop once at least this many cases were tried in all.")
    ] = None,
    eps: options.Eps = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1 or l0.")] = None,
    siblings: Annotated[
        list[str] | None, typer.Option("--with", help="Another model of the same task, to compare with; repeatable.")
    ] = None,
    resistant: Annotated[
        str | None, typer.Option(help="The hardened model that twinfuzz tests; built from MODEL where not given.")
    ] = None,
    training: Annotated[
        str | None, typer.Option(help="What the model was trained with, where --data does not tell: mnist/train.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a stage or a parameter: schedule.steps=100.")
    ] = None,
    seed: options.Seed = 0,
    unit: Annotated[str, typer.Option(help="Seeds that are committed together: auto or a number.")] = "auto",
    lanes: Annotated[str, typer.Option(help="Seeds worked at a time: auto or a number.")] = "auto",
    curvature: Annotated[
        str, typer.Option(help="Second derivatives by double, forward or linear differentiation; auto times them.")
    ] = "auto",
    witness: Annotated[
        str | None, typer.Option(help="An independent model: how many failures does it still give their label?")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help=f"Then shrink one failure of each kind, {SHRUNK} at most.")
    ] = False,
    queries: options.Queries = None,
    ask: options.Ask = "",
    white_box: options.WhiteBox = False,
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    fresh: options.Fresh = False,
    deterministic: options.Deterministic = False,
    amp: options.Amp = False,
    compiled: options.Compile = False,
    confirm: Annotated[
        str, typer.Option(help="Store a failure that fails in K of N repeats: 4/5 (that, where answers change).")
    ] = "",
    ignore: Annotated[
        list[str] | None, typer.Option(help="Leave out a sign of trouble, such as no_finds_yet; repeatable.")
    ] = None,
    call_timeout: options.CallTimeout = None,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    wave: Annotated[
        str, typer.Option(help="Units that begin with the same knowledge, in recipes that learn: auto or a number.")
    ] = "auto",
    log: options.Log = "",
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Look for failing cases and keep them in a run folder. The same command goes on where it stopped."""
    from assay.cli.campaign import changes
    from assay.core import store
    from assay.core.errors import INTERRUPTED, BudgetSpent
    from assay.core.places import known_as
    from assay.engines.fuzz import fuzz as work
    from assay.engines.kinds import kinds_in
    from assay.engines.quality import quality_of, witness_of
    from assay.engines.stored import identity_of, keeps_all
    from assay.outputs.fitted import fitted_facts
    from assay.outputs.models import built_facts, built_numbers, models_of
    from assay.outputs.readings import operator_facts, warning_facts
    from assay.outputs.report.reproduce import name_of
    from assay.outputs.screen import Screen, fuzz_line, show_notices
    from assay.outputs.seeding import opinion_facts, seeding_facts
    from assay.outputs.show import facts_table, show
    from assay.outputs.shrunk import kinds_facts, shrunk_numbers
    from assay.outputs.tables import asked_line, coverage_facts, quality_facts
    from assay.outputs.track.stream import tracked
    from assay.outputs.trouble import skipped_facts, stability_facts
    from assay.subjects.data.load import load_data

    show_notices(quiet=quiet or json)
    judge, named = None, tuple[str, ...]()
    if witness is not None:  # before the work: a wrong name costs nothing
        seeds = load_data(data, part="train", size=size, like=model)
        judge, named = witness_of(witness, seeds, device), seeds.spec.classes
    try:
        with tracked(log, "fuzz") as tell, Screen("fuzz", fuzz_line, quiet=quiet, json_lines=json_lines) as screen:
            found = work(
                recipe,
                model,
                data,
                run=run,
                time=time,
                cases=cases,
                seed=seed,
                eps=eps,
                norm=norm,
                changes=changes(context.obj, change or [], {"eps": eps, "norm": norm}),
                siblings=tuple(siblings or ()),
                resistant=resistant,
                training=training,
                unit=options.whole(unit, "--unit"),
                lanes=options.whole(lanes, "--lanes"),
                curvature=curvature,
                device=device,
                size=size,
                mean=options.channels(mean),
                std=options.channels(std),
                queries=queries,
                ask=ask,
                white_box=white_box,
                fresh=fresh,
                deterministic=deterministic,
                amp=amp,
                compiled=compiled,
                confirm=confirm,
                ignore=tuple(ignore or ()),
                call_timeout=call_timeout,
                ray=ray,
                workers=workers,
                gpu_share=gpu_share,
                wave=options.whole(wave, "--wave"),
                progress=tell.on(screen),
            )
            tell.result(found.to_json())
    except BudgetSpent as spent:  # at the question to see
        options.show_spent(spent, run, json=json)
        return
    made = _shrunk(found, device, quiet=quiet or json) if shrink and found.failures and not found.interrupted else None
    kept = store.read(found.run)
    kinds = None if (told_kinds := kinds_in(kept)) is None else told_kinds.to_json()
    quality = quality_of(kept, judge, named) if found.failures else None
    protocol = identity_of(kept)
    if json:
        told: dict[str, Any] = {"quality": None if quality is None else quality.to_json(), "protocol": protocol}
        told |= {"kinds": kinds}
        if isinstance(made, BudgetSpent):
            told |= {"shrunk": {"complete": False, "reason": str(made)}}
        elif shrink:
            told |= {"shrunk": None if made is None else shrunk_numbers(made)}
        told |= {"resistant": built_numbers(kept)} if any(kept.commits("resistant")) else {}
        told |= {"fitted": fitted} if (fitted := fitted_facts(kept)) else {}
        options.print_json(found.to_json() | told)
    else:
        models, every = models_of(protocol), keeps_all(kept)
        facts = {
            "run": known_as(found.run),
            "recipe": found.recipe,
            **models.facts(),
            **built_facts(kept),
            **fitted_facts(kept),
            **seeding_facts(found.seeding, found.seeds, models),
            "cases tried": found.cases,
            **_counts(found, models.role, every=every),
            **kinds_facts(kinds),
            **{f"kept because {rule}": count for rule, count in found.kept.items()},
            **operator_facts(found.operators),
            **opinion_facts(found.opinions, found.seeding, models, every=every),
            **({} if found.coverage is None else coverage_facts(found.coverage)),
            **({} if quality is None else quality_facts(quality)),
            **({"nonfinite": found.nonfinite} if found.nonfinite else {}),
            "flaky": found.flaky,
            **skipped_facts(found.skipped, found.skipped_because),
            **stability_facts(found.stability),
            **({} if found.queries is None else {"asked": asked_line(found.queries).removeprefix("asked: ")}),
            "seconds": f"{found.seconds:.1f}",
            **warning_facts(found.warnings),
        }
        show(facts_table(facts))
        if made is not None:
            _show_shrunk(made, found.run.name)
        if not found.complete and not found.interrupted:
            options.say(f"the budget of queries ended first; {options.GO_ON}")
        options.say(f"next: assay report {name_of(kept)}")
    if found.interrupted:
        options.say("interrupted; what is done is kept, the same command continues", err=True)
        raise typer.Exit(INTERRUPTED)


def _shrunk(found: "Found", device: str, *, quiet: bool) -> "Shrunk | BudgetSpent":
    """One failure of each kind made smaller, or why there are none: the budget of queries was spent."""
    from assay.core.errors import BudgetSpent
    from assay.outputs.screen import Screen
    from assay.outputs.shrunk import shrink_line

    try:
        with Screen("shrink", shrink_line, quiet=quiet) as screen:
            return found.shrink(k=SHRUNK, device=device, progress=screen)
    except BudgetSpent as spent:
        return spent


def _show_shrunk(made: "Shrunk | BudgetSpent", name: str) -> None:
    """The table of a shrinking, and what it left out."""
    import shlex

    from assay.core.errors import BudgetSpent
    from assay.outputs.show import facts_table, show
    from assay.outputs.shrunk import shrunk_facts

    if isinstance(made, BudgetSpent):
        options.show_spent(made, name, json=False, yet="nothing is shrunk yet")
        return
    show(facts_table(shrunk_facts(made), f"shrunk by {made.by}"))
    if not made.complete:
        options.say(f"the budget ended after {made.of} cases; {options.GO_ON}")
    if "beyond_k" in made.left_out:
        options.say(f"for the kinds that are left out: assay shrink {shlex.quote(name)} --distinct")


def _counts(found: "Found", role: str, *, every: bool) -> dict[str, Any]:
    """How many cases were kept: failures, or a pool of which some fail."""
    wrong = {f"of these the {role} is wrong on": found.wrong}
    if every:
        return {"cases kept, failing or not": found.failures, **wrong}
    return {
        "failures": f"{found.failures} ({found.distinct} distinct by seed and class)",
        **(wrong if found.wrong != found.failures else {}),
        "seeds broken": found.broken,
    }
