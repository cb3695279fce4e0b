"""``--ray`` stands alone or before an address; the argument parser knows no option with and without a value."""

import re
from collections.abc import Sequence

_ADDRESS = re.compile(r"auto|local|ray://\S+|[A-Za-z0-9._-]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}")


def with_ray(arguments: Sequence[str]) -> list[str]:
    """The arguments, with ``local`` after a ``--ray`` that no address follows.

    >>> with_ray(["fuzz", "--ray", "m.onnx"]), with_ray(["fuzz", "--ray", "10.0.0.1:6379"])
    (['fuzz', '--ray', 'local', 'm.onnx'], ['fuzz', '--ray', '10.0.0.1:6379'])
    """
    made: list[str] = []
    for place, argument in enumerate(arguments):
        made.append(argument)
        if argument == "--":
            return [*made, *arguments[place + 1 :]]
        if argument == "--ray" and (place + 1 == len(arguments) or not _ADDRESS.fullmatch(arguments[place + 1])):
            made.append("local")
    return made
