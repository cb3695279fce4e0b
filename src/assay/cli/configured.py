"""``--config`` and ``--show-config`` for every verb, and the command as its runs tell it."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Annotated, Any

import typer

from assay.core.command import under_way

# Where a run is kept and how its command talks is no part of what it does.
# A token is a secret: it is neither kept nor shown.
NOT_TOLD = ("run", "save", "fresh", "json", "quiet", "open", "log", "json-lines", "token")
# Whom one trusts is said at the command line: a file may come from somebody else.
NEVER = ("trust-run", "trust-remote-code", "config", "show-config", "help", "version")
_SHOW = "assay.show_config"
_ORIGIN = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}


def _options() -> list[Any]:
    """The two options as typer makes them."""
    app = typer.Typer()

    @app.command()
    def verb(
        config: Annotated[
            str | None,
            typer.Option(
                is_eager=True, expose_value=False, callback=_read, help="A campaign.toml; flags come over it."
            ),
        ] = None,
        show_config: Annotated[
            bool,
            typer.Option(
                "--show-config",
                expose_value=False,
                callback=_show_instead,
                help="Print the resolved configuration and stop.",
            ),
        ] = False,
    ) -> None: ...

    command: Any = typer.main.get_command(app)
    return [parameter for parameter in command.params if parameter.name in ("config", "show_config")]


def _read(context: typer.Context, given: str | None) -> str | None:
    """The values of the file as defaults of the verb's options; only reads once, however often it is called."""
    if given is None or context.obj is not None:
        return given
    from assay.cli.campaign import read

    group: Any = context.parent.command if context.parent is not None else None
    verb: Any = context.command
    flags = flags_of(verb)
    file = read(given, verb.name, group.commands.keys())
    values = {
        flag: value_of(flags[flag], value, flag, given) for flag, value in file.defaults(verb.name, flags).items()
    }
    context.default_map = {flags[flag].name: value for flag, value in values.items()}
    context.obj = file
    return given


def _show_instead(context: typer.Context, given: bool) -> bool:
    context.meta[_SHOW] = given
    return given


def flags_of(verb: Any) -> dict[str, Any]:
    """The parameters of a verb by the names of their flags, without dashes; arguments by their own name."""
    flags: dict[str, Any] = {}
    for parameter in verb.params:
        longest = [flag.lstrip("-") for flag in parameter.opts if flag.startswith("--")]
        short = [flag.lstrip("-") for flag in parameter.opts]
        flags[(longest or short)[0].replace("_", "-")] = parameter
    return flags


def value_of(parameter: Any, value: Any, flag: str, file: str) -> Any:
    """A value of the file as the option takes it from the command line."""
    from assay.core.errors import UsageError
    from assay.core.specs import written

    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise UsageError(f"{file}: {flag} is true or false, got {value!r}")
        return value
    if parameter.multiple or parameter.nargs == -1:
        if isinstance(value, Mapping):  # [fuzz.set]: stages and parameters with their values
            return [f"{key}={written(given)}" for key, given in value.items()]
        many = value if isinstance(value, list) else [value]
        return [_text(one, flag, file) for one in many]
    if isinstance(value, list):
        return ",".join(_text(one, flag, file) for one in value)
    return _text(value, flag, file)


def _text(value: Any, flag: str, file: str) -> str:
    from assay.core.errors import UsageError

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{file}: {flag} cannot be {value!r}")
    return str(value)


def configure(verbs: Iterable[Any]) -> None:
    """Add the options to the verbs, and let the runs of each tell with what it was called."""
    ours = _options()
    for verb in verbs:
        verb.params = [*verb.params, *ours]
        _telling(verb)


def _telling(verb: Any) -> None:
    inner = verb.invoke

    def invoke(context: Any) -> Any:
        if context.meta.get(_SHOW):
            typer.echo(_shown(verb, context), nl=False)
            return None
        with under_way(verb.name, told(verb, context)):
            return inner(context)

    verb.invoke = invoke


def file_at_fault(error: Any) -> str:
    """The file and the value of it that an option did not take; nothing where a flag is to blame."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or context.obj is None:
        return ""
    if _origin(context, parameter.name) != "file":
        return ""
    return f"{context.obj.path}: got {context.default_map[parameter.name]!r}: "


def told(verb: Any, context: Any) -> dict[str, Any]:
    """What the verb was called with, by flag, as a campaign file writes it."""
    given = {flag: context.params.get(parameter.name) for flag, parameter in flags_of(verb).items()}
    return {
        flag: list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value
        for flag, value in given.items()
        if flag not in (*NOT_TOLD, *NEVER) and value not in (None, "", (), [])
    }


def _shown(verb: Any, context: Any) -> str:
    """The resolved configuration as a campaign file, each value with where it comes from."""
    from assay.core.toml import dumps

    flags, values = flags_of(verb), told(verb, context)
    lines = dumps({verb.name: values}).splitlines()
    origins = [_origin(context, flags[flag].name) for flag in values]
    shown = [lines[0], *(f"{line}  # {origin}" for line, origin in zip(lines[1:], origins, strict=True))]
    return "\n".join(shown) + "\n" + _stages_text(context)


def _stages_text(context: Any) -> str:
    """The stages of the recipe with all their parameters, where the verb has one."""
    if "recipe" not in context.params:
        return ""
    from assay.cli.campaign import changes
    from assay.core.toml import dumps
    from assay.engines.siblings import for_siblings
    from assay.recipes.recipe import ball_of, resolve

    given = context.params
    ball = {"eps": given["eps"], "norm": given["norm"]}
    recipe = for_siblings(given["recipe"], given.get("siblings") or ())
    stages = resolve(recipe, changes(context.obj, given["change"] or [], ball), ball_of(**ball)).config()
    return "\n" + dumps({"recipe": stages})


def _origin(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return _ORIGIN.get(getattr(source, "name", ""), "default")
