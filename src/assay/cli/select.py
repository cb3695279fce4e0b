"""``assay select``."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.engines.select import Selection


def select(
    run: Annotated[str, typer.Argument(help="Name or folder of a fuzzing run, a hardening or a saved evaluation.")],
    by: Annotated[str, typer.Option(help="How to pick: bi_end, top(score=gini) …; see assay list selector.")],
    k: Annotated[str, typer.Option("-k", help="How many cases to pick: 600, or 10% of those there are.")],
    every: Annotated[bool, typer.Option("--all", help="Of an evaluation: examples that fool nobody, too.")] = False,
    static: Annotated[
        bool, typer.Option("--static", help="Of an evaluation: only examples made on another model.")
    ] = False,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Pick from one case of each kind of failure, the least changed one.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="The model to ask, where it is not to be the run's own.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="The data of a saved evaluation, where not found again.")
    ] = None,
    training: Annotated[
        str | None, typer.Option(help="What the model was trained with; that of the run's data set unless given.")
    ] = None,
    eps: options.Eps = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1 or l0.")] = None,
    seed: options.Seed = 0,
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    queries: options.Queries = None,
    ask: options.Ask = "",
    white_box: options.WhiteBox = False,
    call_timeout: options.CallTimeout = None,
    out: Annotated[str | None, typer.Option(help="Also write the cases to this .npz or .parquet file.")] = None,
    trust_run: options.TrustRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Pick the cases of a run worth most and keep the choice in the run. The same command adds nothing."""
    from assay.core import store
    from assay.core.errors import BudgetSpent
    from assay.engines.select import select as work
    from assay.outputs.export import check_place, export, format_of
    from assay.outputs.screen import show_notices
    from assay.outputs.show import facts_table, show

    show_notices(quiet=quiet or json)
    if out is not None:  # before the work, not after it
        check_place(out, format_of(out), store.find_run(run))
    moments = {"mean": options.channels(mean), "std": options.channels(std)}
    try:
        picked = work(
            run,
            by=by,
            k=k,
            every=every,
            static=static,
            distinct=distinct,
            model=model,
            data=data,
            training=training,
            eps=eps,
            norm=norm,
            seed=seed,
            device=device,
            queries=queries,
            ask=ask,
            white_box=white_box,
            call_timeout=call_timeout,
            **moments,
        )
    except BudgetSpent as spent:
        options.show_spent(spent, run, json=json, yet="nothing is picked yet")
        return
    if out is not None:
        export(picked.run, to=format_of(out), out=out, selected=picked.number)
    told = _told(picked, seed, out) | {"distinct": distinct}
    if json:
        options.print_json(told)
        return
    show(facts_table(_readable(told)))
    if out is None:
        options.say(f"next: assay export {shlex.quote(run)} --to npz --selected {picked.number}")


def _told(picked: "Selection", seed: int, out: str | None) -> dict[str, Any]:
    from assay.core.places import known_as
    from assay.engines.stored import per_class

    score = None
    if picked.score:
        values = picked.cases.info[picked.score].double()
        values = values[values.isfinite()].sort().values  # JSON knows no infinity
        ends = (
            {"smallest": values[0], "median": values[(len(values) - 1) // 2], "largest": values[-1]}
            if len(values)
            else {}
        )
        score = {"name": picked.score, **{name: float(value) for name, value in ends.items()}}
    return {
        "run": known_as(picked.run),
        "by": picked.by,
        "k": picked.k,
        "seed": seed,
        "picked": len(picked.cases),
        "of": picked.of,
        "dropped": picked.dropped,
        "classes": per_class(picked.cases, picked.classes),
        "score": score,
        **({"said": picked.said} if picked.said else {}),
        "selection": picked.number,
        "file": picked.file,
        "new": picked.new,
        "out": out,
    }


def _readable(told: dict[str, Any]) -> dict[str, str]:
    from assay.outputs.notes import note_facts

    facts = {
        "by": told["by"],
        "picked": f"{told['picked']} of {told['of']}",
        **({"left out": _left_out(told)} if told["dropped"] else {}),
        "of each class": ", ".join(f"{name}: {count}" for name, count in told["classes"].items()),
    }
    if told["score"] is not None:
        numbers = (
            f"{name} {told['score'][name]:.4g}" for name in ("smallest", "median", "largest") if name in told["score"]
        )
        facts[told["score"]["name"]] = ", ".join(numbers) or "no finite value"
    facts |= note_facts({"selection": told["said"]}) if "said" in told else {}
    facts[f"selection {told['selection']}"] = told["file"] + ("" if told["new"] else ", made before")
    if told["out"] is not None:
        facts["written to"] = told["out"]
    return facts


def _left_out(told: dict[str, Any]) -> str:
    from assay.outputs.shrunk import left_out

    count = sum(told["dropped"].values())
    every = count + told["of"]
    return f"{left_out(told['dropped'])} ({count / every:.0%} of {every})"
