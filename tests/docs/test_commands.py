"""Every command that the documentation shows exists as it is written: verbs, options, arguments."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import doc_blocks
from assay.cli import _command
from assay.cli.ray_flag import with_ray

VERBS: dict[str, Any] = _command().commands
BAD_USAGE: type[Exception] = typer.BadParameter.__mro__[1]


def names_of(page: Path) -> str:
    return str(page.relative_to(doc_blocks.ROOT))


@pytest.mark.parametrize("page", doc_blocks.every_page(), ids=names_of)
def test_every_command_parses(page: Path) -> None:
    wrong = []
    for block in doc_blocks.blocks(page):
        for number, line in doc_blocks.commands(block):
            wrong += [f"{names_of(page)}:{number}: {line}\n  {fault}" for fault in faults(line)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", doc_blocks.every_page(), ids=names_of)
def test_every_inline_mention_names_verbs_and_options_that_exist(page: Path) -> None:
    wrong = []
    for number, text in doc_blocks.spans(page):
        verb = text.split()[1].rstrip(".,;:")
        if verb not in VERBS:
            wrong.append(f"{names_of(page)}:{number}: {text}: no verb {verb}")
            continue
        missing = [flag for flag in doc_blocks.flags(text) if flag not in options(verb)]
        wrong += [f"{names_of(page)}:{number}: {text}: no {flag}" for flag in missing]
    assert not wrong, "\n".join(wrong)


def options(verb: str) -> set[str]:
    return {name for p in VERBS[verb].params for name in (*p.opts, *p.secondary_opts)} | {"--help"}


def faults(line: str) -> list[str]:
    """What the command line says to each ``assay`` command of a line; several may be joined by a pipe."""
    found = []
    for part in re.split(r"\s(?:\||&&|;)\s", re.sub(r"\s#\s.*$", "", line)):
        words = doc_blocks.words(re.sub(r"\s(?:>+\s*\S+|&)\s*$", "", part))
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if len(words) < 2 or words[0] != "assay" or words[1].startswith("-"):
            continue
        if words[1] not in VERBS:
            found.append(f"no verb {words[1]!r}")
            continue
        if "--config" in words:  # what else must be given stands in that file
            found += [f"no {flag}" for flag in doc_blocks.flags(" ".join(words)) if flag not in options(words[1])]
            continue
        try:
            VERBS[words[1]].make_context(words[1], with_ray(words[2:])).close()
        except typer.Exit:
            continue  # --help
        except BAD_USAGE as error:
            found.append(str(error))
    return found


def test_a_wrong_command_is_found() -> None:
    assert not faults("assay eval MODEL --data D --eps 0.1   # a comment with --nonsense")
    assert not faults("assay export first --to npz && assay status first | head")
    assert faults("assay eval MODEL --data D --nonsense 1")
    assert faults("assay evaluate MODEL")
    assert faults("ASSAY_RUNS=here assay status first | assay nothing")


def test_blocks_and_what_is_said_of_them_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n\n<!-- notest: hours -->\n```bash\nassay status a \\\n  --json  # x\n```\n\n```\n$ assay env\nout\n```\n"
        '<!-- python:\nimport os\n-->\n```python\n"""mine.py: a file."""\n```\n'
        '```bash notest="why"\nassay nothing\n```\n'
        "Inline `assay list attack` and `--json`.\n"
    )
    found = doc_blocks.blocks(page)
    assert [b.language for b in found] == ["bash", "console", "python", "python", "bash"]
    assert [b.why for b in found] == ["hours", "", "", "", "why"]
    assert [b.file for b in found] == ["", "", "", "mine.py", ""]
    typed = [line for block in found for _, line in doc_blocks.commands(block)]
    assert typed == ["assay status a   --json  # x", "assay env", "assay nothing"]
    assert [text for _, text in doc_blocks.spans(page)] == ["assay list attack"]
