"""What is known of registered names without importing them: our own files are listed by reading them."""

import ast
import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

# Where the files of each kind lie. Strings, not imports: this layer may not see those above it.
FOLDERS = {
    "attack": "assay.stages.attacks",
    "mutator": "assay.stages.mutators",
    "oracle": "assay.stages.oracles",
    "schedule": "assay.stages.schedules",
    "score": "assay.stages.scores",
    "filter": "assay.stages.filters",
    "criterion": "assay.stages.coverage",
    "strategy": "assay.stages.strategies",
    "seeder": "assay.stages.seeds",
    "selector": "assay.stages.selectors",
    "trainer": "assay.stages.trainers",
    "extractor": "assay.stages.extractors",
    "recipe": "assay.recipes",
    "suite": "assay.recipes",
    "model": "assay.subjects.zoo",
    "data": "assay.subjects.data",
    "check": "assay.engines.checks",
    "sink": "assay.outputs.track",
}
DATA_KINDS = {"Recipe": "recipe", "Suite": "suite"}  # registered by assignment, being data


class Parameter(NamedTuple):
    """A keyword parameter as the signature spells it; ``default`` is None where it must be given."""

    name: str
    type: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a registered name without importing it.

    ``facts`` are set for an object of another library only: how it was made, for its name alone does not say.
    """

    kind: str
    name: str
    summary: str
    module: str
    attribute: str
    parameters: tuple[Parameter, ...] = ()
    paper: str = ""
    needs: tuple[str, ...] = ()
    gradients: int = 0
    facts: Mapping[str, Any] | None = None
    own_model: bool = False  # such an object attacks the model it was made with, whatever target it is given


@functools.cache
def read_folder(kind: str) -> tuple[Entry, ...]:
    folder = Path(__file__).parents[1].joinpath(*FOLDERS[kind].split(".")[1:])
    return tuple(e for path in sorted(folder.glob("*.py")) for e in _read_file(path, FOLDERS[kind]) if e.kind == kind)


@functools.cache
def _read_file(path: Path, package: str) -> tuple[Entry, ...]:
    module = f"{package}.{path.stem}"
    return tuple(
        found
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if (found := _read_function(node, module) or _read_data(node, module)) is not None
    )


def _read_function(node: ast.stmt, module: str) -> Entry | None:
    if not isinstance(node, ast.FunctionDef):
        return None
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register":
            told = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
            parameters = tuple(
                Parameter(
                    arg.arg,
                    ast.unparse(arg.annotation) if arg.annotation else "",
                    ast.unparse(default) if default else None,
                )
                for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            )
            kind = ast.literal_eval(call.args[0])
            summary = first_line(ast.get_docstring(node))
            name = told.pop("name", "") or node.name
            return Entry(kind, name, summary, module, node.name, parameters, **told)
    return None


def _read_data(node: ast.stmt, module: str) -> Entry | None:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    kind = DATA_KINDS.get(getattr(node.value.func, "id", ""))
    if kind is None or not isinstance(node.targets[0], ast.Name):
        return None
    keywords = ("name", "summary", "paper")
    told = {k.arg: ast.literal_eval(k.value) for k in node.value.keywords if k.arg in keywords}
    return Entry(kind, told["name"], told.get("summary", ""), module, node.targets[0].id, paper=told.get("paper", ""))


def first_line(text: str | None) -> str:
    return inspect.cleandoc(text or "").split("\n", 1)[0]
