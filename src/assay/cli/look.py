"""Verbs that only look: ``status``, ``report``, ``list``, ``env``."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.core.entries import Entry


def status(
    run: Annotated[str, typer.Argument(help="Name or folder of a run.")],
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again while it works.")] = False,
    json: options.Json = False,
) -> None:
    """Where a run stands, alive or dead, from its journal. Never blocks it."""
    from assay.core import store
    from assay.outputs.show import facts_table, show
    from assay.outputs.status import readable, run_status

    if watch:
        from assay.outputs.watch import watch as show_live

        show_live(store.find_run(run), as_json=json)
        if json:
            return
    told = run_status(store.read(store.find_run(run)))
    if json:
        options.print_json(told)
    else:
        show(facts_table(readable(told), f"run {told['run']}"))


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="A run by name or folder; several are compared.")],
    single_file: Annotated[
        bool, typer.Option("--single-file", help="One file of at most 10 MB, to send: pictures inside, as many as fit.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Write the page to this .html file instead of into the run folder.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: options.Json = False,
) -> None:
    """Write report/index.html into the run folder and print its path; of several runs, a page that compares them."""
    from assay.core.places import known_as
    from assay.outputs.report.place import page_path

    place = None if out is None else page_path(out)
    if len(runs) > 1:
        from assay.outputs.report.compare import compare

        made = compare(*runs, out=place)  # without pictures, it is one file anyway
        page, told = made.path, made.to_json()
    else:
        from assay.outputs.report.build import report as work

        page = work(runs[0], single_file=single_file, out=place)
        told = {"report": known_as(page)}
    if json:
        options.print_json(told)
    else:
        if len(runs) > 1:
            options.say(told["verdict"])
        options.say(told["report"])
    if open_:
        typer.launch(page.resolve().as_uri())


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="attack, recipe, model, data, suite, trainer …; all if left out.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these of the kind: attack pgd cw.")
    ] = None,
    json: options.Json = False,
) -> None:
    """What there is, with parameters and their defaults."""
    from dataclasses import asdict

    from assay.core.entries import FOLDERS
    from assay.core.registry import entries
    from assay.outputs.listing import listing
    from assay.outputs.show import show

    chosen = {name: _named(entries(name), names, name) for name in ([_singular(kind)] if kind else FOLDERS)}
    if json:
        told = {
            name: [asdict(e) | {"parameters": [p._asdict() for p in e.parameters]} for e in found]
            for name, found in chosen.items()
        }
        options.print_json(told)
    else:
        for name, found in chosen.items():
            show(listing(name, found))


def _named(found: list["Entry"], names: list[str] | None, kind: str) -> list["Entry"]:
    """Those with the names, in the order asked; all where none is named."""
    from assay.core.errors import UsageError
    from assay.core.specs import canonical, did_you_mean

    known = {canonical(entry.name): entry for entry in found}
    for name in names or ():
        if canonical(name) not in known:
            raise UsageError(f"no {kind} {name!r}; {did_you_mean(name, (entry.name for entry in found))}")
    return [known[canonical(name)] for name in names] if names else found


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
