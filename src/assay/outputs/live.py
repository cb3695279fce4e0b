"""One frame of the status screen: what a verb tells of itself, laid out for a terminal of any size.

A frame is a pure function of the numbers and the size; ``screen`` paints it twice a second, ``watch`` from a run's
``stats.json``. Each verb shows the facts that it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from assay.core.memory import size
from assay.core.units import clock
from assay.outputs.screen_text import plain, workers_line

WIDEST = 96  # columns: a frame does not grow with the terminal, so that making that narrower seldom breaks lines
TWO_COLUMNS = 72  # from so many on
_LABEL = 14
_KEYS = "Ctrl-C finishes this step and keeps what is done; pressed again, it stops at once"


@dataclass(frozen=True, slots=True)
class Moment:
    """What there is to show: ``text`` says in words what is done, ``share`` how much of it, ``elapsed`` since when."""

    title: str
    text: str
    share: float | None
    numbers: Mapping[str, Any]
    elapsed: float
    left: float | None = None  # seconds, by what is done so far


def frame(moment: Moment, width: int, height: int, *, ascii_only: bool = False) -> list[Text]:
    """The lines of a frame, none wider than ``width`` and no more than fit; what matters most comes first."""
    width, height = max(1, min(width - 1, WIDEST)), max(1, height - 1)
    lines = [_head(moment)]
    if moment.share is not None:
        lines.append(_bar(moment, width, ascii_only=ascii_only))
    warnings = [line for sign in moment.numbers.get("warnings", ()) for line in _warning(sign, width)]
    facts = _grid(list(facts_of(moment)), width)
    rest = [*_tallies(moment.numbers)]
    room = height - len(lines)
    warnings = warnings[: max(0, room - min(4, len(facts)))]
    facts = facts[: room - len(warnings)]
    lines += [*facts, *rest[: max(0, room - len(warnings) - len(facts))], *warnings]
    if len(lines) < height and "tried" in moment.numbers:
        lines.append(Text(_KEYS, style="dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        if ascii_only:  # no terminal shows what its encoding has not
            line.plain = line.plain.replace("…", "~").encode("ascii", "replace").decode()
    return lines[:height]


def facts_of(moment: Moment) -> Iterable[tuple[str, str]]:
    """What is known, by name, the most telling first."""
    numbers = moment.numbers
    yield "run time", _time(moment)
    if "tried" in numbers:
        yield from _fuzzing(numbers)
    elif "queries" in numbers:
        yield "asked", _asked(numbers["queries"])
    if workers := numbers.get("workers"):
        yield "workers", workers_line(workers)
    if memory := numbers.get("memory"):
        yield "memory", ", ".join(f"{'GPU ' if name == 'gpu' else ''}{size(n)}" for name, n in memory.items())


def _fuzzing(numbers: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    kept = numbers.get("kept", "failures")  # a recipe may keep what does not fail
    yield "cases", f"{numbers['tried']} ({numbers['rate']:.0f}/s now, {numbers['rate_mean']:.0f}/s)"
    yield "last new", "none yet" if numbers["since_new"] is None else f"{clock(numbers['since_new'])} ago"
    yield kept, f"{numbers['failures'] - numbers['waiting']} ({_kinds(numbers)}{numbers['distinct']} distinct)"
    yield "seeds done", f"{numbers['seeds']} (list of {numbers['seed_list']})"
    yield "seeds broken", str(numbers["broken"])
    if numbers.get("coverage") is not None:
        yield "coverage", f"{numbers['coverage']:.2%}"
    if numbers["valid"] is not None:
        yield "valid", f"{numbers['valid']:.1%} of cases"
    if numbers["stability"] is not None:
        yield "stability", f"{numbers['stability']:.1%}"
    if "queries" in numbers:
        yield "asked", _asked(numbers["queries"])
    bad = [f"{numbers[name]} {name}" for name in ("flaky", "skipped", "nonfinite") if numbers[name]]
    yield "trouble", ", ".join(bad) or "none"
    when = "" if numbers["next_commit"] is None else f"in about {clock(numbers['next_commit'])}"
    waiting = f"{numbers['waiting']} {kept} wait" if numbers["waiting"] else ""
    if when or waiting:
        yield "next commit", ", ".join(filter(None, (when, waiting)))


def _kinds(numbers: Mapping[str, Any]) -> str:
    return f"{numbers['kinds']} kinds, " if numbers.get("kinds") is not None else ""


def _asked(queries: Mapping[str, Any]) -> str:
    limit = f" of {queries['limit']}" if queries.get("limit") is not None else ""
    return f"{queries.get('asked', 0)}{limit} inputs"


def _time(moment: Moment) -> str:
    limit = moment.numbers.get("time_limit")
    told = clock(moment.elapsed) if limit is None else f"{clock(moment.elapsed)} of {clock(limit)}"
    return told if moment.left is None else f"{told}, {clock(moment.left)} left"


def _head(moment: Moment) -> Text:
    head = Text.assemble((f"assay {plain(moment.title)}", "bold"), no_wrap=True)
    text = moment.text
    if "tried" in moment.numbers:  # the facts below say the rest
        text = ", ".join(str(moment.numbers[name]) for name in ("place", "phase") if name in moment.numbers)
    return head.append(f"  {plain(text)}" if text else "")


def _bar(moment: Moment, width: int, *, ascii_only: bool) -> Text:
    share = min(1.0, max(0.0, moment.share or 0.0))
    cells = max(4, min(48, width - 8))
    full, empty = ("#", ".") if ascii_only else ("━", "─")
    done = round(share * cells)
    return Text.assemble((full * done, "green"), (empty * (cells - done), "dim"), f" {share:5.1%}", no_wrap=True)


def _grid(facts: list[tuple[str, str]], width: int) -> list[Text]:
    """Names and values, in two columns where there is room."""
    each = 2 if width >= TWO_COLUMNS else 1
    room = width // each - _LABEL - 1
    lines = []
    for start in range(0, len(facts), each):
        line = Text(no_wrap=True)
        for name, value in facts[start : start + each]:
            shown = Text(plain(value))
            shown.truncate(max(1, room), overflow="ellipsis", pad=each == 2)
            line.append(f" {plain(name):<{_LABEL - 1}}", "dim").append_text(shown).append(" ")
        line.rstrip()
        lines.append(line)
    return lines


def _tallies(numbers: Mapping[str, Any]) -> Iterable[Text]:
    """How often each rule kept a case, and what each operator has brought: lists as long as they are."""
    if rules := numbers.get("rules"):
        told = ", ".join(f"{plain(name)} {count}" for name, count in rules.items())
        yield Text.assemble((f" {'kept because':<{_LABEL - 1}}", "dim"), told, no_wrap=True)
    if operators := numbers.get("operators"):
        told = ", ".join(
            f"{plain(name)} {count['failures']}/{count['cases']}" for name, count in _best(operators) if count["cases"]
        )
        yield Text.assemble((f" {'yield of':<{_LABEL - 1}}", "dim"), told, no_wrap=True)


def _best(operators: Mapping[str, Mapping[str, int]]) -> list[tuple[str, Mapping[str, int]]]:
    """Operators by failures a case, the best first."""
    return sorted(operators.items(), key=lambda one: -one[1]["failures"] / max(one[1]["cases"], 1))


def _warning(sign: Mapping[str, str], width: int) -> list[Text]:
    """A sign that something is wrong, in two lines at most, and where to read on."""
    told = plain(sign["message"])
    first = max(8, width - len(sign["name"]) - 3)
    parts = [told] if len(told) <= first else [*_broken(told, first)]
    lines = [Text.assemble((f"! {plain(sign['name'])} ", "bold red"), (parts[0], "red"), no_wrap=True)]
    rest = f"{parts[1]} " if len(parts) > 1 else ""
    room = max(0, width - 2 - len(sign["more"]) - 1)
    rest = rest if len(rest) <= room else f"{rest[: max(0, room - 2)]}… "
    return [*lines, Text.assemble(("  " + rest, "red"), (plain(sign["more"]), "underline"), no_wrap=True)]


def _broken(text: str, width: int) -> tuple[str, str]:
    at = text.rfind(" ", 0, width + 1)
    at = width if at <= 0 else at
    return text[:at], text[at:].lstrip()
