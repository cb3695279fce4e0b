"""Verbs that only look: ``status``, ``report``, ``list``, ``env``."""

from typing import Annotated

import typer

from assay.cli import options


def status(run: Annotated[str, typer.Argument(help="Name or folder of a run.")], json: options.Json = False) -> None:
    """Where a run stands, alive or dead, from its journal. Never blocks it."""
    from assay.core import store
    from assay.outputs.show import facts_table, show
    from assay.outputs.status import readable, run_status

    told = run_status(store.read(store.find_run(run)))
    if json:
        options.print_json(told)
    else:
        show(facts_table(readable(told), f"run {told['run']}"))


def report(
    run: Annotated[str, typer.Argument(help="Name or folder of a run.")],
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: options.Json = False,
) -> None:
    """Write report/index.html into the run folder and print its path."""
    from assay.outputs.report.build import report as work

    path = work(run)
    if json:
        options.print_json({"report": str(path)})
    else:
        options.say(str(path))
    if open_:
        typer.launch(path.resolve().as_uri())


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="attack, recipe, model, data, suite, trainer …; all if left out.")
    ] = None,
    json: options.Json = False,
) -> None:
    """What there is, with parameters and their defaults."""
    from dataclasses import asdict

    from assay.core.entries import FOLDERS
    from assay.core.registry import entries
    from assay.outputs.listing import listing
    from assay.outputs.show import show

    chosen = {name: entries(name) for name in ([_singular(kind)] if kind else FOLDERS)}
    if json:
        told = {
            name: [asdict(e) | {"parameters": [p._asdict() for p in e.parameters]} for e in found]
            for name, found in chosen.items()
        }
        options.print_json(told)
    else:
        for name, found in chosen.items():
            show(listing(name, found))


def _singular(kind: str) -> str:
    """``attacks`` is as good as ``attack``."""
    from assay.core.entries import FOLDERS

    return kind.removesuffix("s") if kind not in FOLDERS and kind.removesuffix("s") in FOLDERS else kind


def env(json: options.Json = False) -> None:
    """Versions and machine, for a bug report."""
    import torch  # noqa: F401  so that its threads and GPU are told

    from assay.core.environment import describe
    from assay.outputs.show import facts_table, show

    told = describe()
    if json:
        options.print_json(told)
    else:
        packages = told.pop("packages")
        show(facts_table({**told, **packages}))
