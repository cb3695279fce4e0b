"""Packages that the core does without: imported where used, and absent in one clear sentence."""

import importlib
from typing import Any

from assay.core.errors import UsageError


def needed(module: str, extra: str, what: str) -> Any:
    """The module, or a message that says which extra brings it.

    >>> needed("json", "hub", "this").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a package may raise anything while it is imported
        package = module.split(".", maxsplit=1)[0]
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == package:
            raise UsageError(f"{what} needs {package}: pip install 'assay[{extra}]'") from error
        # It is there and does not import, as a torchvision of another torch does not: the user has to know why.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "; torch and torchvision must be of one build (see pytorch.org)" if "torchvision" in reason else ""
        raise UsageError(f"{what} needs {package}, which is installed and does not import: {reason}{hint}") from error
