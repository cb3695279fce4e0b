"""Options that several verbs share, so that they read the same everywhere."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay.core.errors import BudgetSpent

Model = Annotated[
    str,
    typer.Argument(
        help="lenet5@weights.safetensors, file.py:function@weights, timm:name, torchvision:name, hf:owner/name, "
        "model.onnx, http://…, cmd:…, call:…"
    ),
]
DataSpec = Annotated[
    str, typer.Option("--data", help="digits/test, mnist/test[:500], dir:images, file.npz, hf:owner/name/test …")
]
Eps = Annotated[str | None, typer.Option(help="Perturbation size in the input's own range: 0.1 or 8/255.")]
Norm = Annotated[str, typer.Option(help="linf, l2, l1 or l0.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
JsonLines = Annotated[
    bool, typer.Option("--json-lines", help="Progress as one JSON object a line on stderr, for machines.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no notes; warnings stay.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="A new run, NAME-2, where NAME exists.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="One thread and strict algorithms: the same results every time.")
]
Mean = Annotated[str, typer.Option(help="Mean of each channel, for a bare net: 0.485,0.456,0.406.")]
Std = Annotated[str, typer.Option(help="Standard deviation of each channel, for a bare net.")]
Size = Annotated[str, typer.Option(help="Resize the images of a folder or of hf: data: 32 or 32x48.")]
Queries = Annotated[
    int | None, typer.Option(min=1, help="Most inputs the model may be sent, repeats and retries counted.")
]
Ask = Annotated[
    str,
    typer.Option(help='How to ask a black box: "rate=50, timeout=10, retries=5, batch=64, repeats=3, labels=true".'),
]


def _trust(context: typer.Context, given: bool) -> bool:
    """Until the command ends; no verb has to pass it on."""
    if given:
        from assay.core.trust import trusting

        context.with_resource(trusting())
    return given


TrustRun = Annotated[
    bool,
    typer.Option("--trust-run", callback=_trust, help="Run code and ask addresses that only the run folder names."),
]


def _trust_code(context: typer.Context, given: bool) -> bool:
    """Until the command ends, like the one above."""
    if given:
        from assay.core.trust import trusting_code

        context.with_resource(trusting_code())
    return given


TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", callback=_trust_code, help="Run code of the hub repository of a model that needs it."
    ),
]
WhiteBox = Annotated[bool, typer.Option("--white-box", help="Turn model.onnx into a torch module, with gradients.")]

Ray = Annotated[
    str,
    typer.Option("--ray", help="Work on Ray: alone, on this machine's cores; or auto, HOST:PORT, ray://HOST:PORT."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Workers on Ray; what is free where not given.")]
GpuShare = Annotated[float | None, typer.Option(help="The part of a GPU that each worker on Ray takes: 0.25.")]

Amp = Annotated[
    bool, typer.Option("--amp", help="bfloat16 in searches that take no gradient; what counts is judged in float32.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the net: minutes at first, faster passes then.")]

CallTimeout = Annotated[
    str | None, typer.Option(help="Longest that one call of the model may take, such as 30s; none where not given.")
]


def _trackers(given: str) -> str:
    """A server of MLflow that does not answer is asked three times, not for the ten minutes that its package takes."""
    if given:
        import os

        usual = {"MAX_RETRIES": "2", "BACKOFF_FACTOR": "1", "TIMEOUT": "20"}
        for name, value in usual.items():
            os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
    return given


Log = Annotated[
    str,
    typer.Option(
        callback=_trackers,
        help="Also tell trackers: jsonl, tensorboard, mlflow, any of them with :PLACE, or file.py:function.",
    ),
]


def channels(text: str) -> tuple[float, ...]:
    """Numbers of a comma list."""
    from assay.core.units import number

    return tuple(number(part, "mean and std") for part in text.split(",")) if text else ()


def batch_size(text: str) -> int:
    """Cases a block; ``auto`` starts at a size that suits most nets and halves where memory runs out."""
    size = whole(text, "--batch")
    return 256 if size == "auto" else int(size)


def whole(text: str, option: str) -> int | str:
    """``auto`` or a number from 1 up."""
    from assay.core.errors import UsageError

    if text == "auto":
        return text
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"{option} is auto or a number from 1 up, got {text!r}")
    return int(text)


GO_ON = "the same command with more --queries goes on"


def show_spent(
    spent: "BudgetSpent", run: str | None, more: str = GO_ON, *, json: bool, yet: str = "no number yet"
) -> None:
    """The budget of queries ended before there was a result: no failure; ``more`` says how it goes on."""
    if json:
        asked = {"limit": spent.limit, "asked": spent.asked, "wanted": spent.wanted}
        print_json({"complete": False, "queries": asked, "run": run})
        return
    say(f"{yet}: {spent.asked} of {spent.limit} queries are spent; {more}")


def say(text: str, *, err: bool = False) -> None:
    """One line for people. What stands in it may come from files and servers: it cannot steer a terminal."""
    from assay.outputs.screen import plain

    typer.echo(plain(text), err=err)


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout; NaN never gets out."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False))


def settings(sets: Sequence[str], example: str) -> dict[str, Any]:
    """The values of every ``--set key=value``."""
    from assay.core.errors import UsageError
    from assay.core.specs import value

    found: dict[str, Any] = {}
    for text in sets:
        key, sign, content = text.partition("=")
        if not sign:
            raise UsageError(f"--set takes key=value, such as {example}, got {text!r}")
        found[key.strip()] = value(content)
    return found
