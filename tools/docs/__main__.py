"""``python -m tools.docs`` writes docs/reference/ and the tables of docs/arena.md.

With ``--check`` it only says whether they are up to date.
"""

import functools
import re
import sys
from pathlib import Path

import torch
from tools.docs import arena, commands, python_api, stages

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_COUNTED = re.compile(r"^- \*Passes counted\*.*$", re.MULTILINE)  # may differ in the last digit on another processor


@functools.cache
def pages(*, count: bool = True) -> dict[str, str]:
    """Every page of the reference by the name of its file; without ``count`` passes are left uncounted."""
    torch.set_num_threads(1)  # counting is made of tiny steps
    made = {f"{_file(kind)}.md": stages.page(kind, count=count) for kind in stages.PAGES}
    made |= {"commands.md": commands.page(), "python.md": python_api.page()}
    made["index.md"] = _index()
    return {name: re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n" for name, text in made.items()}


def stale(folder: Path = FOLDER) -> list[str]:
    """The pages that are not what the code says now; counted passes may differ from machine to machine."""
    made = pages(count=False)
    found = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    differs = {name for name, text in made.items() if _COUNTED.sub("", text) != _COUNTED.sub("", found.get(name, ""))}
    return sorted(differs | (found.keys() - made.keys()))


def _file(kind: str) -> str:
    return stages.PAGES[kind][0].lower().replace(" ", "-")


def _index() -> str:
    lines = ["# Reference", "", "Made from the code by `python -m tools.docs`, so it says what this version does.", ""]
    lines += ["- [Command line](commands.md)", "- [Python](python.md)"]
    lines += [f"- [{title}]({_file(kind)}.md): {_sentence(about)}" for kind, (title, about) in stages.PAGES.items()]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    first = text.split(". ")[0]
    return first if first.endswith((".", "?")) else f"{first}."


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        old = [*stale(), *arena.stale()]
        said = f"old, run python -m tools.docs: {', '.join(old)}" if old else "reference and arena are up to date"
        print(said)
        return 1 if old else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    arena.PAGE.write_text(arena.written(), encoding="utf-8")
    print(f"{len(made)} pages in {FOLDER}, and the tables of {arena.PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
