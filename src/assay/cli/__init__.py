"""The command line. Nothing heavy is imported before a verb needs it: ``assay --help`` knows no torch."""

import logging
import os
import signal
import sys
import threading
import traceback
from types import FrameType
from typing import Any

import typer

from assay.cli import (
    aeg,
    arena,
    check,
    coverage,
    demo,
    evaluate,
    export,
    fuzz,
    harden,
    look,
    prioritise,
    replay,
    select,
    serve,
    shrink,
    train,
    transfer,
)
from assay.cli.configured import configure, file_at_fault
from assay.cli.ray_flag import with_ray
from assay.core.errors import INTERNAL, INTERRUPTED, PASSED, USAGE, AssayError, is_out_of_memory, memory_wanted
from assay.core.room import one_room

app = typer.Typer(
    name="assay",
    help="Find the inputs on which a classifier fails, harden it, and measure the result honestly.",
    add_completion=False,
    context_settings={"auto_envvar_prefix": "ASSAY", "help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from assay import __version__

        typer.echo(f"assay {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None: ...


app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("transfer")(transfer.transfer)
app.command("fuzz")(fuzz.fuzz)
app.command("aeg")(aeg.aeg)
app.command("coverage")(coverage.coverage)
app.command("harden")(harden.harden)
app.command("arena")(arena.arena)
app.command("check")(check.check)
app.command("select")(select.select)
app.command("shrink")(shrink.shrink)
app.command("replay")(replay.replay)
app.command("prioritise")(prioritise.prioritise)
app.command("serve")(serve.serve)
app.command("export")(export.export)
app.command("status")(look.status)
app.command("report")(look.report)
app.command("list")(look.list_)
app.command("env")(look.env)

_KEPT = "what was committed is kept, the same command goes on from there"
_STOPPED = f"stopped; {_KEPT}"
_TYPER_INTERRUPTED = 130  # what typer makes of Ctrl-C: the shell's code for it
# typer carries its own copy of click from some release on; its exceptions are found through one it exports.
_BadUsage: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with the exit code of the contract."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run a command; returns its exit code. A user's mistake is one message, never a traceback."""
    log = logging.getLogger("assay")
    before = (log.handlers, log.level, log.propagate)
    presses = _Presses()
    try:
        with one_room():
            code = _command().main(with_ray(arguments) or ["--help"], standalone_mode=False, prog_name="assay")
        if code == _TYPER_INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else PASSED
    except AssayError as error:
        return _say(str(error), error.exit_code)
    except typer.Exit as left:
        return left.exit_code
    except _BadUsage as error:
        context = getattr(error, "ctx", None)
        hint = f"; see: {context.command_path} --help" if context is not None else ""
        said = error.format_message().rstrip(".")  # type: ignore[attr-defined]  # click's own method
        return _say(f"{file_at_fault(error)}{said}{hint}", USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return _say(_STOPPED, INTERRUPTED)
    except (BrokenPipeError, SystemExit) as left:
        # typer turns a broken pipe into SystemExit and leaves by no other; one of a user's code is no result of ours.
        if isinstance(left, SystemExit) and not isinstance(left.__context__, BrokenPipeError):
            return _say(f"code that the command ran called exit({_code(left)}); {_KEPT}", INTERNAL)
        # The reader of our output left, as `| head` does; a second flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PASSED
    except Exception as error:  # noqa: BLE001  the last place that can turn a fault of ours into an exit code
        if is_out_of_memory(error):  # where nothing can be made smaller: data, weights, the lanes of a campaign
            return _say(
                f"memory ran out: {memory_wanted(error)}; free memory, or take fewer cases (data[:1000]), fewer "
                "--lanes in fuzzing, another --device or a smaller model; what was committed is kept",
                INTERNAL,
            )
        traceback.print_exc()
        return _say("this is a fault of Assay's, not of yours; please report it with the lines above", INTERNAL)
    except BaseException as error:  # noqa: BLE001  raised by a user's code past everything that catches errors
        return _say(f"code that the command ran raised {type(error).__name__}; {_KEPT}", INTERNAL)
    finally:
        presses.leave()
        log.handlers, log.level, log.propagate = before


class _Presses:
    """Ctrl-C, and what means the same: a polite kill, a terminal that closes. Work that finishes its step first takes
    the first of them for itself.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # only there can signals be caught
            usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            usual |= {signal.SIGHUP: signal.SIG_DFL} if hasattr(signal, "SIGHUP") else {}
            mine = [number for number, handler in usual.items() if signal.getsignal(number) == handler]
            # What is ignored stays so, as under nohup and in the background.
            self._before = {number: signal.signal(number, self._press) for number in mine}

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        raise KeyboardInterrupt

    def leave(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _code(left: SystemExit) -> str:
    """What exit was called with, in one line; it may be anything."""
    return str(left.code) if isinstance(left.code, int | str | None) else type(left.code).__name__


def _command() -> Any:
    """The command with its environment variables left out of the help, and none for ``--version``."""
    command: Any = typer.main.get_command(app)
    configure(command.commands.values())
    for verb in (command, *command.commands.values()):
        for parameter in verb.params:
            parameter.show_envvar = False
            parameter.allow_from_autoenv = parameter.name != "version"
    return command


def _say(message: str, code: int) -> int:
    from assay.outputs.screen import lines

    print(f"error: {lines(message)}", file=sys.stderr)  # noqa: T201  the way out for errors
    return code
