"""Run folders hold real files and real folders: nothing in one leads out of it, or never ends."""

import os
from pathlib import Path

from assay.core.errors import UsageError


def check_real(folder: Path) -> None:
    """Refuse a run folder with a link, a pipe or a device in it, however deep: reading, writing or setting aside what
    lies there would reach elsewhere, or never come back.
    """
    left = [str(folder)]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                        what = "a symbolic link" if entry.is_symlink() else "no regular file"
                        raise UsageError(
                            f"{entry.path} is {what}; a run folder holds real files only, or it could lead elsewhere: "
                            "remove it, or put a copy in its place"
                        )
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile: a run may be at work
            continue
        except OSError as error:  # no right to, a path too long, a disk that fails
            raise UsageError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
