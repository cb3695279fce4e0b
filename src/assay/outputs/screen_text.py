"""Text from users, files and servers on its way to a terminal: never markup, never steering."""

from collections.abc import Iterable


def plain(text: str) -> str:
    """Text from users or files on one line and without control characters: it can neither steer a terminal nor pass
    for a line of ours.
    """
    return "".join(c if c.isprintable() or c == "\t" else _written(c) for c in text)


class Lines(str):
    """Text of several lines that are ours to break; each is plain."""

    @classmethod
    def of(cls, parts: Iterable[str]) -> "Lines":
        return cls("\n".join(map(plain, parts)))


def lines(text: str) -> str:
    """The same for messages of several lines: those after the first are indented, as none that we begin is."""
    return "\n  ".join(plain(line).lstrip() if i else plain(line) for i, line in enumerate(text.split("\n")))


def _written(c: str) -> str:
    return "\\n" if c == "\n" else "\\x" + format(ord(c), "02x")
