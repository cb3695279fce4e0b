"""The reference of the command line, from the commands themselves."""

import inspect
from typing import Any

from tools.docs.sources import escaped

from assay.cli import _command

EXIT = (
    ("0", "passed"),
    ("1", "a requirement is not met, or a check fired"),
    ("2", "interrupted; the same command goes on"),
    ("3", "a fault inside, or a model or service that does not answer"),
    ("4", "bad usage or input"),
    ("5", "nothing to test"),
)


def page() -> str:
    """Every verb with its arguments and options."""
    verbs = _command().commands
    lines = ["# Command line", "", "`assay VERB --help` prints the same. Made from the code.", ""]
    lines += ["Every option is also an environment variable: `ASSAY_EVAL_EPS=0.1` is `assay eval --eps 0.1`.", ""]
    lines += ["| exit code | means |", "|---|---|", *(f"| {code} | {word} |" for code, word in EXIT), ""]
    lines += ["| verb | what it does |", "|---|---|"]
    for name, verb in verbs.items():
        lines += [f"| [`assay {name}`](#{name}) | {_cell(_text(verb.help).splitlines()[0])} |"]
    for name, verb in verbs.items():
        lines += ["", *_verb(name, verb)]
    return "\n".join(lines) + "\n"


def _verb(name: str, verb: Any) -> list[str]:
    given = [p for p in verb.params if not p.hidden]
    arguments = [p for p in given if p.param_type_name == "argument"]
    options = [p for p in given if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([name, *(_placed(p) for p in arguments), *([] if not options else ["[OPTIONS]"])])
    lines = [f"## {name}", "", "```text", f"assay {usage}", "```", "", _text(verb.help), ""]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{p.name.upper()}` | {_cell(_text(p.help))} |" for p in arguments]
        lines += [""]
    if options:
        lines += ["| option | default | meaning |", "|---|---|---|", *map(_option, options), ""]
    return lines


def _placed(argument: Any) -> str:
    name = argument.name.upper() + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    spelled = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
    default = "required" if option.required else _default(option)
    more = " May be given several times." if option.multiple and "repeatable" not in (option.help or "") else ""
    return f"| {_cell(spelled)} | {default} | {_cell(_text(option.help))}{more} |"


def _default(option: Any) -> str:
    value = option.default
    if value in (None, "", False, (), []) or option.multiple:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _text(text: str | None) -> str:
    return escaped(inspect.cleandoc(text or ""))


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
