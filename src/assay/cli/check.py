"""``assay check``: the gate."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import options

if TYPE_CHECKING:
    from assay.engines.gate_result import Gate


def check(
    subject: Annotated[
        str,
        typer.Argument(metavar="MODEL|RUN", help="A model, with --data; or a run of eval --save or harden, without."),
    ],
    require: Annotated[
        str,
        typer.Option(help="What must hold: 'robust>=0.4, robust[*]>=0.2, clean_drop<=0.02, pgd>=0.5'."),
    ] = "",
    data: Annotated[str | None, typer.Option("--data", help="digits/test, mnist/test[:500], dir:images …")] = None,
    suite: Annotated[
        str | None, typer.Option(help="A suite, or attacks: fgsm,pgd(steps=40); fast where not given.")
    ] = None,
    eps: options.Eps = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1 or l0; linf where not given.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="An older model, or its saved evaluation, compared on the same inputs.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Level of the intervals that decide: from 0.5 up and below 1.")
    ] = 0.95,
    decide: Annotated[
        str, typer.Option(help="By interval (undecided where the bound lies in it), or by point: the bare number.")
    ] = "interval",
    time: Annotated[
        str | None, typer.Option(help="Measure as many inputs, in a shuffled order, as this allows: 60s.")
    ] = None,
    regressions: Annotated[
        list[str] | None, typer.Option(help="A run whose failures must not fail any more; repeatable.")
    ] = None,
    fuzz_regressions: Annotated[
        str | None, typer.Option(help="So long, look for inputs that --baseline gets right and the model wrong: 20s.")
    ] = None,
    allow_regressions: Annotated[int, typer.Option(min=0, help="How many such inputs may be found.")] = 0,
    junit: Annotated[str | None, typer.Option(help="Write JUnit XML here.")] = None,
    sarif: Annotated[str | None, typer.Option(help="Write SARIF here.")] = None,
    markdown: Annotated[
        str | None, typer.Option(help="Write a summary in Markdown here; on GitHub it also goes to the job's summary.")
    ] = None,
    save: Annotated[str | None, typer.Option(help="Keep every example made in a run of this name.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A trust check not to make; repeatable. See assay list check.")
    ] = None,
    queries: options.Queries = None,
    ask: options.Ask = "",
    white_box: options.WhiteBox = False,
    seed: options.Seed = 0,
    size: options.Size = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    fresh: options.Fresh = False,
    deterministic: options.Deterministic = False,
    trust_run: options.TrustRun = False,
    call_timeout: options.CallTimeout = None,
    ray: options.Ray = "",
    workers: options.Workers = None,
    gpu_share: options.GpuShare = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Hold a model, or what a run has measured, against a requirement: exit 0 where all of it is met, else 1.

    Undecided and unreliable are not met; the lines printed say what would decide.
    """
    from assay.core.errors import NOT_MET
    from assay.engines.gate import check as work
    from assay.outputs.screen import Screen, show_notices

    show_notices(quiet=quiet or json)
    _writable(junit, sarif, markdown)
    with Screen("check", _line, quiet=quiet) as screen:
        gate = work(
            subject,
            data,
            require=require,
            baseline=baseline,
            suite=suite,
            eps=eps,
            norm=norm,
            confidence=confidence,
            decide=decide,
            time=time,
            regressions=tuple(regressions or ()),
            fuzz_regressions=fuzz_regressions,
            allow_regressions=allow_regressions,
            save=save,
            fresh=fresh,
            ignore=tuple(ignore or ()),
            seed=seed,
            size=size,
            mean=options.channels(mean),
            std=options.channels(std),
            device=device,
            queries=queries,
            ask=ask,
            white_box=white_box,
            deterministic=deterministic,
            call_timeout=call_timeout,
            ray=ray,
            workers=workers,
            gpu_share=gpu_share,
            progress=screen,
        )
    _write(gate, junit, sarif, markdown)
    if json:
        options.print_json(gate.to_json())
    else:
        _show(gate)
    if not gate.met:
        raise typer.Exit(NOT_MET)


def _line(numbers: Any) -> tuple[str, float | None]:
    """How far it is: an evaluation, old failures, or fuzzing."""
    from assay.outputs.screen import eval_line, fuzz_line

    return eval_line(numbers) if "done" in numbers else fuzz_line(numbers)


def _show(gate: "Gate") -> None:
    from assay.outputs.gate.table import compared_table, gate_lines, gate_table
    from assay.outputs.show import show

    show(gate_table(gate))
    if gate.compared:
        show(compared_table(gate))
    for line in gate_lines(gate):
        options.say(line)


def _writable(*files: str | None) -> None:
    """Refuse a place that cannot be written before the work is done, not after."""
    from assay.core.errors import UsageError

    for file in filter(None, files):
        folder = Path(file).parent
        if Path(file).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise UsageError(f"{file} cannot be written: give a file in a folder that is there")


def _write(gate: "Gate", junit: str | None, sarif: str | None, markdown: str | None) -> None:
    """The files that were asked for; those of a run folder where there is one; the summary of a GitHub job."""
    from assay.core.files import make_folder, write_atomic
    from assay.core.places import find_run, push

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    wanted = {"junit": [junit], "sarif": [sarif]}
    if gate.run is not None:
        folder = find_run(gate.run) / "gate"
        make_folder(folder)
        wanted["junit"].append(str(folder / "junit.xml"))
        wanted["sarif"].append(str(folder / "sarif.json"))
    for form, files in wanted.items():
        for file in filter(None, files):
            write_atomic(Path(file), _written(form, gate))
    if gate.run is not None:
        push(folder.parent, "gate/")
    if markdown is not None:
        write_atomic(Path(markdown), _written("markdown", gate))
    if summary:
        try:
            with Path(summary).open("ab") as out:  # other steps write there too
                out.write(_written("markdown", gate) + b"\n")
        except OSError as error:
            options.say(f"warning: no summary in {summary}: {error.strerror}", err=True)


def _written(form: str, gate: "Gate") -> bytes:
    if form == "junit":
        from assay.outputs.gate.junit import junit

        return junit(gate)
    if form == "sarif":
        from assay.outputs.gate.sarif import sarif

        return sarif(gate)
    from assay.outputs.gate.markdown import markdown

    return markdown(gate).encode()
