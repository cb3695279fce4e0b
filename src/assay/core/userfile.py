"""Python files that users name: loaded once, their errors told as theirs."""

import functools
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.core import trust
from assay.core.errors import UsageError
from assay.core.files import sha256
from assay.core.specs import did_you_mean


def load_object(path: Path, name: str) -> Any:
    """Something of a Python file the user named; running that file is what they asked for."""
    trust.check(f"{path}:{name}")
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    module = _load_file(str(path.resolve()))
    if not hasattr(module, name):
        public = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
        raise UsageError(f"{path.resolve()} has no {name!r}; {did_you_mean(name, public)}")
    return getattr(module, name)


@functools.cache
def _load_file(path: str) -> ModuleType:
    name = f"_assay_user_{sha256(os.fsencode(path))[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # a .py suffix always has a spec and a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.append(folder)  # files of a user import their neighbours; at the end, where it shadows nothing
    sys.modules[name] = module  # dataclasses look their module up while it is being made
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises is theirs to see
        del sys.modules[name]
        raise UsageError(f"{path} does not load: {type(error).__name__}: {error}") from error
    return module
