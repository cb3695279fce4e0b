"""Text from users, files and servers on its way to a terminal: never markup, never steering."""

from collections.abc import Iterable, Mapping


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


def workers_line(state: Mapping[str, int]) -> str:
    """How many workers there are on Ray, and how many are gone.

    >>> workers_line({"workers": 3, "wanted": 4, "lost": 1})
    '3 of 4 workers, 1 lost'
    """
    here = f"{state['workers']} of {state['wanted']} workers"
    return f"{here}, {state['lost']} lost" if state["lost"] else here
