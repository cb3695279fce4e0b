"""The code blocks of the documentation: found, checked against the command line, and run as a reader would.

What a page can say about a block:

- ``<!-- notest: why -->`` right above it, or ``notest="why"`` behind its language: it is not run (hours, a GPU, another
  machine); its commands are still checked.
- ``<!-- python: … -->`` anywhere: Python that the tests run at that place and readers do not see.

Fences without a language that hold ``assay`` lines are commands too. A block that begins with a docstring or a comment
naming a file (``\"\"\"mine.py…``, ``# mine.py``) is written there, and not run.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELL = ("bash", "console", "sh", "shell")
PLACEHOLDERS = {
    "MODEL": "lenet5@digits.safetensors",
    "D": "digits/test",
    "D2": "digits/train",
    "OTHER": "lenet5@fine.safetensors",
}
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
_NOTEST = re.compile(r"<!--\s*notest:\s*(?P<why>.*?)\s*-->")
_HIDDEN = re.compile(r"<!--\s*python:\s*\n(?P<code>.*?)-->", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(assay [a-z][^`]*)`(?!`)")
_FILE = re.compile(r'^(?:"""|# ?)(?P<name>[\w/.-]+\.(?:py|toml|yml))\b')


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it stands, in which language, and why it is not run, if it is not."""

    page: Path
    line: int
    language: str
    text: str
    why: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str:
        """The file that the block is the content of, empty where it is none."""
        first = self.text.lstrip().split("\n", 1)[0]
        found = _FILE.match(first) if self.language in ("python", "toml", "yaml") else None
        return found["name"] if found else ""


def pages() -> list[Path]:
    """Every page whose blocks are run, README first; the reference is made from the code, the papers' from rows."""
    docs = ROOT / "docs"
    made = (docs / "reference", docs / "papers")
    found = [path for path in sorted(docs.rglob("*.md")) if not any(path.is_relative_to(folder) for folder in made)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *found]


def every_page() -> list[Path]:
    """All of them, those made by programs too."""
    return sorted({*pages(), *(ROOT / "docs").rglob("*.md"), ROOT / "SECURITY.md"})


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order, hidden Python among them."""
    text = page.read_text("utf-8")
    lines = text.split("\n")
    found = [Block(page, text[: m.start()].count("\n") + 1, "python", m["code"]) for m in _HIDDEN.finditer(text)]
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        at += 1
        if opening is None:
            continue
        first = at
        while at < len(lines) and not re.match(r"^ *```\s*$", lines[at]):
            at += 1
        content = "\n".join(line.removeprefix(opening["indent"]) for line in lines[first:at])
        at += 1
        noted = _NOTEST.search(lines[first - 2]) if first > 1 else None
        noted = noted or re.search(r'notest="(?P<why>[^"]*)"', opening["info"])
        found.append(Block(page, first, _language(opening["info"], content), content, noted["why"] if noted else ""))
    return sorted(found, key=lambda block: block.line)


def _language(info: str, content: str) -> str:
    told = (info.split() or [""])[0]
    if told:
        return told
    if re.search(r"^\$ ", content, re.MULTILINE):
        return "console"
    return "bash" if re.search(r"^(assay|make|pip) ", content, re.MULTILINE) else "text"


def commands(block: Block) -> Iterator[tuple[int, str]]:
    """The command lines of a block with the numbers of their lines; continued ones are joined."""
    if block.language not in SHELL:
        return
    held, start = "", 0
    for number, line in enumerate(block.text.split("\n"), block.line + 1):
        if block.language == "console" and not held:
            if not line.startswith("$ "):
                continue
            line = line[2:]
        held, start = (held + line, start) if held else (line, number)
        if held.endswith("\\"):
            held = held[:-1]
            continue
        if held.strip() and not held.lstrip().startswith("#"):
            yield start, held.strip()
        held = ""


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Inline code that begins with a verb of assay."""
    text = re.sub(r"```.*?```", lambda m: "\n" * m[0].count("\n"), page.read_text("utf-8"), flags=re.DOTALL)
    for found in _SPAN.finditer(text):
        yield text[: found.start()].count("\n") + 1, " ".join(found[1].split())


def words(line: str) -> list[str]:
    """The words of a command without its comment, placeholders filled in."""
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)]


def flags(line: str) -> list[str]:
    """The long options that a command or an inline mention of one names."""
    return re.findall(r"(?<![\w'\"-])--[a-z][a-z-]*", line.split("#", 1)[0])
