"""What the source says beside its signature: whole docstrings, formulas, and where it deviates from papers."""

import ast
import functools
import inspect
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

from assay.core.entries import Entry

SRC = Path(__file__).parents[2] / "src"
MARKS = ("Paper", "Public code", "Code", "Papernot")  # how a note of a deviation begins
_NOTE = re.compile(rf"(?:{'|'.join(MARKS)})[^:.]{{0,40}}:")


@dataclass(frozen=True, slots=True)
class Doc:
    """A docstring in its parts."""

    summary: str
    body: tuple[str, ...]  # paragraphs
    formula: str


@dataclass(frozen=True, slots=True)
class _Note:
    first: int
    last: int
    text: str


def doc_of(text: str | None) -> Doc:
    """The first sentence, the paragraphs after it, and what stands behind ``Formula:``."""
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", inspect.cleandoc(text or ""))]
    formula = next((part.removeprefix("Formula:").strip() for part in parts if part.startswith("Formula:")), "")
    body = [part for part in parts[1:] if part and not part.startswith("Formula:")]
    return Doc(parts[0], tuple(body), formula)


def escaped(text: str) -> str:
    """Text in which no ``<`` begins a tag; what stands in backquotes is none anyway."""
    return "".join(p if p.startswith("`") else p.replace("<", "\\<") for p in re.split(r"(`[^`]*`)", text))


def path_of(module: str) -> Path:
    """The file of a module of ours."""
    plain = SRC.joinpath(*module.split("."))
    return plain / "__init__.py" if plain.is_dir() else plain.with_suffix(".py")


def deviations(entry: Entry) -> list[str]:
    """Every ``Paper: … Here: …`` of the entry's own code and of the helpers that only it and its like use."""
    own = path_of(entry.module)
    found = _of_node(own, entry.attribute)
    for helper in _helpers(own):
        found += [note.text for note in _notes(helper)]
    return list(dict.fromkeys(found))


def _of_node(path: Path, name: str) -> list[str]:
    """Notes inside the definition of that name or right above it, and those of no definition that is registered."""
    spans = _registered(path)
    mine = spans.get(name)
    kept = []
    for note in _notes(path):
        inside = [span for span in spans.values() if span[0] <= note.first <= span[1]]
        above = [span for span in spans.values() if span[0] == note.last + 1]
        if (mine in inside or mine in above) if inside or above else True:
            kept.append(note.text)
    return kept


@functools.cache
def _registered(path: Path) -> dict[str, tuple[int, int]]:
    """First and last line of everything in a file that has a name in the registry."""
    found = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(_registers(call) for call in node.decorator_list):
            found[node.name] = (node.decorator_list[0].lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = getattr(node.value.func, "id", "")
            if made in ("Recipe", "Suite") and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = (node.lineno, node.end_lineno or node.lineno)
    return found


def _registers(call: ast.expr) -> bool:
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register"


@functools.cache
def _notes(path: Path) -> tuple[_Note, ...]:
    """Comments that begin with a mark, each with the lines that continue it, and such paragraphs of docstrings."""
    source = path.read_text("utf-8")
    blocks: list[list[tuple[int, str]]] = []
    last = (-2, -1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.line[: token.start[1]].strip():
            continue
        line, text = token.start[0], token.string.lstrip("#").strip()
        if (line - 1, token.start[1]) != last or _NOTE.match(text):
            blocks.append([])
        blocks[-1].append((line, text))
        last = (line, token.start[1])
    told = [_Note(b[0][0], b[-1][0], " ".join(text for _, text in b)) for b in blocks if _NOTE.match(b[0][1])]
    return (*told, *_in_docstrings(source))


def _in_docstrings(source: str) -> list[_Note]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            for part in doc_of(ast.get_docstring(node)).body:
                if _NOTE.match(part):
                    found.append(_Note(node.lineno, node.lineno, part))
    return found


@functools.cache
def _helpers(path: Path) -> tuple[Path, ...]:
    """Files that this one is made with and that register nothing themselves: what it imports, and what that imports,
    where no other stage imports it as its own.
    """
    found = dict.fromkeys(_imported(path))
    todo = list(found)
    while todo:
        for helper in _imported(todo.pop()):
            if helper not in found and helper not in _direct():
                found[helper] = None
                todo.append(helper)
    return tuple(found)


@functools.cache
def _imported(path: Path) -> tuple[Path, ...]:
    """The files of helpers that a file imports."""
    found: dict[Path, None] = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for module in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                if module.startswith(_OF_STAGES) and path_of(module).is_file() and not _registered(path_of(module)):
                    found[path_of(module)] = None
    return tuple(found)


@functools.cache
def _direct() -> frozenset[Path]:
    """Every helper that some stage imports itself."""
    stages = [path for path in (SRC / "assay" / "stages").rglob("*.py") if _registered(path)]
    return frozenset(helper for path in stages for helper in _imported(path))


_OF_STAGES = ("assay.stages.", "assay.core.corruptions", "assay.core.blurs")
