"""``assay serve``."""

from typing import Annotated

import typer

from assay.cli import options


def serve(
    model: options.Model,
    data: Annotated[
        str | None, typer.Option("--data", help="Data that tell shape and classes, where the model does not.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    labels: Annotated[bool, typer.Option("--labels", help="Answer with labels, not with probabilities.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Most inputs a request.")] = 256,
    token: Annotated[
        str, typer.Option(envvar="ASSAY_TOKEN", help="What clients must send as Bearer token; or ASSAY_TOKEN.")
    ] = "",
    mean: options.Mean = "",
    std: options.Std = "",
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer questions about a model over HTTP until Ctrl-C: the reference server for http:// targets."""
    import signal

    from assay.engines.serve import serving
    from assay.outputs.screen import show_notices
    from assay.subjects.data.load import load_data
    from assay.subjects.sources.load import load_target

    show_notices(quiet=quiet or json)
    known = None if data is None else load_data(data, like=model)
    target = load_target(model, data=known, device=device, mean=options.channels(mean), std=options.channels(std))
    with serving(target, host=host, port=port, token=token, labels=labels, batch=batch) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager ends it like Ctrl-C
        asked = server.questions
        gives = "labels" if asked.labels else "probabilities"
        if json:
            options.print_json({"url": server.url, "gives": gives, "batch": asked.batch, "token": bool(token)})
        elif not quiet:
            needed = ", with ASSAY_TOKEN set to the token" if token else ""
            options.say(f"{server.url} answers with {gives}: {target.spec}")
            options.say(f"try: assay prioritise {server.url} --pool POOL --by lbt --queries 20000{needed}")
            options.say("Ctrl-C ends it")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            if not (json or quiet):
                options.say(f"ended after {asked.answered} answers")
