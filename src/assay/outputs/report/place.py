"""Where a page may be written that is not to lie in a run folder."""

from pathlib import Path

from assay.core.errors import UsageError

MARK = b'<meta name="generator" content="Assay'
_LOOKED = 16_384  # bytes of a file in which the mark of ours stands


def page_path(out: str | Path) -> Path:
    """The path, if it ends in ``.html`` and what lies there, if anything, is an earlier page of ours."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out takes a file ending in .html, got {str(out)!r}")
    if path.is_dir() or path.is_symlink():
        raise UsageError(f"{path} is a folder or a symbolic link; give another --out")
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {path.parent}")
    if path.exists():
        with path.open("rb") as file:
            if MARK not in file.read(_LOOKED):
                raise UsageError(
                    f"{path} exists and is no report of Assay's; it is not overwritten, give another --out"
                )
    return path
