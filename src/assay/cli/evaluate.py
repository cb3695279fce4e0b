"""``assay eval``."""

from typing import Annotated, Any

import typer

from assay.cli import options


def evaluate(
    model: options.Model,
    data: options.DataSpec,
    suite: Annotated[
        str, typer.Option(help="A suite, or attacks: fgsm,pgd(steps=40). See assay list attack.")
    ] = "fast",
    eps: Annotated[
        str | None, typer.Option(help="Perturbation size in the input's own range: 0.1 or 8/255; several give a curve.")
    ] = None,
    norm: options.Norm = "linf",
    seen: Annotated[
        str | None,
        typer.Option(help="Attacks the model was trained with, for --suite seen,unseen, where it does not say so."),
    ] = None,
    static_from: Annotated[
        str | None, typer.Option(help="Also judge examples made on this other model, in a column of its own.")
    ] = None,
    regress: Annotated[
        list[str] | None,
        typer.Option(help="Ask the failures of this earlier run first, told apart from the numbers; repeatable."),
    ] = None,
    save: Annotated[str | None, typer.Option(help="Keep every example made in a run of this name.")] = None,
    each: Annotated[bool, typer.Option("--each", help="Every attack on every input, not as a cascade.")] = False,
    per_class: Annotated[bool, typer.Option("--per-class", help="Also a table of the classes.")] = False,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A trust check not to make; repeatable. See assay list check.")
    ] = None,
    checks_only: Annotated[
        bool, typer.Option("--checks-only", help="Only the trust checks, without a suite; exit 1 where one fires.")
    ] = False,
    queries: options.Queries = None,
    ask: options.Ask = "",
    white_box: options.WhiteBox = False,
    seed: options.Seed = 0,
    batch: Annotated[
        str,
        typer.Option(help="Cases a block: auto (what a GPU holds) or a number; halved where memory runs out."),
    ] = "auto",
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    fresh: options.Fresh = False,
    deterministic: options.Deterministic = False,
    amp: options.Amp = False,
    compiled: options.Compile = False,
    trust_run: options.TrustRun = False,
    call_timeout: options.CallTimeout = None,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    log: options.Log = "",
    json: options.Json = False,
    json_lines: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Accuracy on clean inputs and under attack, with 95 % intervals, and whether it can be trusted."""
    from assay.core.errors import BudgetSpent
    from assay.engines.evaluate import evaluate as work
    from assay.outputs.replayed import regress_table
    from assay.outputs.screen import Screen, eval_line, show_notices
    from assay.outputs.show import show
    from assay.outputs.tables import asked_line, curve_table, evaluation_table, per_class_table, sizes_table
    from assay.outputs.track.stream import tracked
    from assay.subjects.data.load import load_data

    show_notices(quiet=quiet or json)
    if checks_only:
        from assay.engines.health import check_trust

        if regress:
            raise typer.BadParameter("--checks-only asks no old failures; leave --regress out, or see assay replay")
        if eps is None:
            raise typer.BadParameter("--checks-only needs --eps: what an attack can do depends on it")
        try:
            told = check_trust(
                model,
                load_data(data, size=size, like=model),
                eps=eps,
                norm=norm,
                ignore=ignore or (),
                seed=seed,
                device=device,
                mean=options.channels(mean),
                std=options.channels(std),
                queries=queries,
                ask=ask,
                white_box=white_box,
            )
        except BudgetSpent as spent:
            options.show_spent(spent, None, "give more --queries", json=json)
            return
        _show_checks(told, json=json)
        raise typer.Exit(int(told["unreliable"]))
    try:
        with (
            tracked(log, "eval", run=save is not None, named_by="--save NAME") as tell,
            Screen("eval", eval_line, quiet=quiet, json_lines=json_lines) as screen,
        ):
            result = work(
                model,
                load_data(data, size=size, like=model),
                suite=suite,
                eps=eps,
                norm=norm,
                seen=seen,
                ignore=tuple(ignore or ()),
                static_from=static_from,
                regress=regress or (),
                save=save,
                each=each,
                seed=seed,
                batch=options.whole(batch, "--batch"),
                device=device,
                fresh=fresh,
                deterministic=deterministic,
                amp=amp,
                compiled=compiled,
                mean=options.channels(mean),
                std=options.channels(std),
                queries=queries,
                ask=ask,
                white_box=white_box,
                call_timeout=call_timeout,
                ray=ray,
                workers=workers,
                gpu_share=gpu_share,
                progress=tell.on(screen),
            )
            tell.result(result.to_json())
    except BudgetSpent as spent:
        options.show_spent(spent, save, _more(save), json=json)
        return
    if json:
        options.print_json(result.to_json())
        return
    if result.regress is not None:
        show(regress_table(result.regress))
    show(evaluation_table(result))
    if result.curve:
        show(curve_table(result))
    if result.minimal is not None:
        show(sizes_table(result))
    if per_class:
        show(per_class_table(result))
    _show_warnings(result.warnings)
    if result.not_made and result.complete:
        options.say(f"checks not made: {_by_reason(result.not_made)}")
    if result.queries is not None:
        options.say(asked_line(result.queries))
    if not result.complete:
        options.say(f"the budget ended after {result.clean.n} inputs; {_more(save)}")
    if result.run is not None:
        options.say(f"examples kept in {result.run}")


def _show_warnings(warnings: list[dict[str, str]]) -> None:
    for warning in warnings:
        options.say(f"UNRELIABLE ({warning['name']}): {warning['message']}")


def _more(save: str | None) -> str:
    if save is None:
        return "give more --queries, and --save NAME to keep the answers"
    return options.GO_ON


def _by_reason(not_made: dict[str, str]) -> str:
    """``zero_gradient, full_range (needs grad); randomised (…)``."""
    reasons: dict[str, list[str]] = {}
    for name, reason in not_made.items():
        reasons.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())


def _show_checks(told: dict[str, Any], *, json: bool) -> None:
    if json:
        options.print_json(told)
        return
    fired = {warning["name"] for warning in told["warnings"]}
    for name in told["checks"]:
        options.say(f"{'FIRED' if name in fired else 'ok':8}{name}")
    for name, reason in told["not_applicable"].items():
        options.say(f"{'skipped':8}{name} ({reason})")
    for name in told["ignored"]:
        options.say(f"{'skipped':8}{name}")
    _show_warnings(told["warnings"])
