"""How data of the hub are written: ``hf:owner/name@revision/split``, ``hf:owner/name/config/split``, ``hf:./d/split``.

Columns that cannot be guessed are named in brackets: ``hf:owner/name(label=fine_label)/test``.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.core.errors import UsageError
from assay.core.specs import Params, step, written
from assay.subjects.sources.hub_specs import is_revision

SCHEME = "hf:"
EXAMPLE = "hf:owner/name/test, hf:owner/name@revision/test or hf:./folder/test"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = re.compile(r"[\w.-]+")
_DICT = "dataset_dict.json"  # what datasets leaves in the folder of a set with parts


@dataclass(frozen=True, slots=True)
class HubData:
    """A data set of the hub, or a folder of one, as it was written; ``params`` name its columns."""

    name: str
    folder: Path | None = None
    revision: str = ""
    config: str = ""
    split: str = ""
    params: Params = field(default_factory=dict)

    @property
    def is_pinned(self) -> bool:
        """Whether it can only ever mean one thing."""
        return self.folder is not None or _COMMIT.fullmatch(self.revision) is not None

    @property
    def whole(self) -> "HubData":
        """The set that this is a part of."""
        return replace(self, split="")

    @property
    def title(self) -> str:
        """The name for people."""
        return "/".join(part for part in (self.name, self.config, self.split) if part)

    def __str__(self) -> str:
        inner = ", ".join(f"{key}={written(value)}" for key, value in self.params.items())
        at = f"@{self.revision}" if self.revision else ""
        behind = "".join(f"/{part}" for part in (self.config, self.split) if part)
        return f"{SCHEME}{self.name}{at}{f'({inner})' if inner else ''}{behind}"


def parse(text: str) -> HubData:
    """The parts of such a text.

    >>> parse("hf:owner/name@main/test").split, parse("hf:owner/name/plain/test").config
    ('test', 'plain')
    """
    match = re.fullmatch(r"hf:([^()@]+)(?:@([^()/]*))?(\(.*?\))?((?:/[^()@]*)?)", text)
    if match is None:
        raise UsageError(f"cannot read {text!r}; write {EXAMPLE}")
    name, revision, inner, rest = match[1], match[2], match[3], match[4]
    _, params = step(f"hf{inner}") if inner else ("", {})
    strange = sorted(params.keys() - {"image", "label"})
    if strange:
        raise UsageError(f"{text!r} has no parameter {strange[0]!r}; there are image=COLUMN and label=COLUMN")
    if revision == "":
        raise UsageError(f"no revision stands behind the @ of {text!r}")
    if name.startswith(("./", "../", "/", "~")) or name in (".", ".."):
        if revision is not None:
            raise UsageError(f"a folder has no revisions; leave @{revision} out of {text!r}")
        return _in_folder(name + rest, params)
    parts = [part for part in (name + ("" if revision is None else "\0") + rest).split("/") if part]
    parts = [part.removesuffix("\0") for part in parts]
    if not 2 <= len(parts) <= 4 or not all(map(_PART.fullmatch, parts)):
        raise UsageError(f"{text!r} is no data set of the hub; write {EXAMPLE}")
    if revision and not is_revision(revision):
        raise UsageError(f"{revision!r} in {text!r} is no revision: a branch, a tag or a commit")
    behind = parts[2:]
    config, split = ("", *behind) if len(behind) == 1 else (behind or ("", ""))
    return HubData("/".join(parts[:2]), None, revision or "", config, split, params)


def _in_folder(text: str, params: Params) -> HubData:
    """A folder, or a part of the set in it; a part may be a folder too."""
    path = Path(text).expanduser()
    is_part = not path.is_dir() or (path.parent / _DICT).is_file()
    if not is_part:
        return HubData(text.rstrip("/"), path, params=params)
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {path}")
    return HubData(text.rstrip("/").rpartition("/")[0], path.parent, split=path.name, params=params)
