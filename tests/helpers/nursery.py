"""The home of ``commands.Nursery``: imports once, then forks for every command it is sent."""

import importlib
import json
import os
import pkgutil
import sys
from typing import Any

import torch
from sklearn import datasets

import assay
from assay.cli import run

PACKAGES = ("core", "subjects", "stages", "recipes", "engines", "outputs", "cli")


def warm() -> None:
    """Import what commands import; nothing is computed, for a fork must not inherit threads."""
    torch.set_num_threads(1)
    datasets.load_digits()
    for name in PACKAGES:
        package = importlib.import_module(f"{assay.__name__}.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an extra that is not installed
                continue


def child(asked: dict[str, Any]) -> int:
    """The command, as in an interpreter of its own."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    for place, name in ((1, "out"), (2, "err")):
        handle = os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, place)
        os.close(handle)
    exec(compile(asked["before"], "<before>", "exec"), {})  # a test's own words
    return run(asked["arguments"])


def main() -> None:
    warm()
    told = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 70
            try:
                told.close()
                code = child(json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        told.write(json.dumps({"pid": pid}) + "\n")
        told.flush()
        status = os.waitpid(pid, 0)[1]
        told.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
        told.flush()


if __name__ == "__main__":
    main()
