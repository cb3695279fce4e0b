"""A gate as GitHub-flavoured Markdown: the summary of a job, a comment on a change."""

import re
from collections.abc import Iterable, Sequence

from assay.engines.gate_result import Gate, GateFailure, GateRow
from assay.outputs.gate.words import WORST_FIRST, clean, decided, facts, interval, number, replay_line, value, verdict

ROWS, EXAMPLES = 100, 10  # of the tables; the rest is counted
SIGNS = {"met": "✅", "not met": "❌", "undecided": "❔", "unreliable": "⚠️"}
MEANS = {
    "met": "Everything that was required holds.",
    "not met": "A requirement does not hold.",
    "undecided": "A requirement cannot be decided with so few inputs, and a gate that is undecided does not pass.",
    "unreliable": "A number cannot be trusted, and one that cannot passes no gate.",
}
# Signs that Markdown, HTML or a host reads something from; an underscore inside a word and a colon before a space are
# only themselves.
_SIGNS = re.compile(r"[\\`*\[\]<>&|~$!#@{}]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?! )")
_BREAKS = re.compile(r"@(?=\w)|#(?=\d)|(?<=www)(?=\.)|(?<=:)(?=//)")
_NO_WIDTH = "\u200b"


def markdown(gate: Gate) -> str:
    """The summary: verdict, requirements, attacks, warnings, some failing inputs, what it was measured with."""
    said = verdict(gate)
    baseline = "" if gate.baseline is None else f", against {code(gate.baseline)}"
    parts = [f"## {SIGNS[said]} Robustness gate: {said}", f"{MEANS[said]} Model: {code(gate.subject)}{baseline}."]
    if not gate.complete:
        parts.append("The time ended first: the numbers are of the inputs looked at before.")
    parts += _rows(gate.rows)
    if gate.warnings:
        parts.append("**Why numbers may not be trusted**")
        parts.append("\n".join(f"- {code(w.get('name', ''))}: {text(w.get('message', ''))}" for w in gate.warnings))
    parts += _attacks(gate)
    parts += _examples(gate)
    lines = _table(("", ""), [(text(name), code(told)) for name, told in facts(gate)])
    parts.append(f"<details><summary>What it was measured with</summary>\n\n{lines}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def text(raw: object) -> str:
    """Text from anywhere as text: every sign that could be read as more is written by its number.

    >>> text("<b>a|b: clean_drop")
    '&#60;b&#62;a&#124;b: clean_drop'
    """
    # Hosts look for people to call, issues and addresses to link in what comes out, where the numbers are signs again:
    # a space without width parts those.
    parted = _BREAKS.sub(lambda found: found[0] + _NO_WIDTH, clean(raw))
    return _SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", parted)


def code(raw: object) -> str:
    """The same in the letters of code; ``–`` where there is none.

    >>> code("lenet5@w"), code("a|b")
    ('`lenet5@w`', '<code>a&#124;b</code>')
    """
    shown = clean(raw)
    if not shown.strip():
        return "–"
    # A span of code is read by nobody, but a table reads its bars first, and a span with a tick in it ends early.
    return f"`{shown}`" if not set("`|") & set(shown) else f"<code>{text(shown)}</code>"


def _rows(rows: Sequence[GateRow]) -> list[str]:
    order = sorted(rows, key=lambda row: WORST_FIRST.index(row.status))
    cells = [
        (code(row.clause), _status(row), value(row), interval(row.ci95), _n(row), _words(row)) for row in order[:ROWS]
    ]
    table = _table(("requirement", "", "value", "95 % interval", "n", "in words"), cells)
    left = order[ROWS:]
    more = [f"{len(left)} more are not shown, {sum(row.met for row in left)} of them met."] if left else []
    return [table, *more]


def _status(row: GateRow) -> str:
    return f"{SIGNS[row.status]} {row.status}"


def _words(row: GateRow) -> str:
    """What there is to say; of a row that holds the numbers say it."""
    return "" if row.met else text(decided(row))


def _n(row: GateRow) -> str:
    needed = f" (of {row.needed} needed)" if row.needed is not None else ""
    return f"{'–' if row.n is None else row.n}{needed}"


def _attacks(gate: Gate) -> list[str]:
    if not gate.attacks:
        return []
    rows = []
    for name, told in gate.attacks.items():
        ci95, seconds = told.get("ci95"), told.get("seconds")
        bounds = interval(None if ci95 is None else (ci95[0], ci95[1]))
        took = "–" if seconds is None else f"{seconds:.1f}"
        rows.append((code(name), number(told.get("accuracy")), bounds, str(told.get("n") or "–"), took))
    return [_table(("attack", "accuracy", "95 % interval", "n", "seconds"), rows)]


def _examples(gate: Gate) -> list[str]:
    """Some failing inputs, of every kind and as many true classes as go in, and how to ask them anew."""
    if not gate.failures:
        return []
    some = _spread(gate.failures, EXAMPLES)
    shown = [
        (
            code(f.id[:12]),
            code(f.kind),
            f"{code(f.true)} → {code(f.predicted)}",
            code(f.attack),
            "–" if f.row is None else str(f.row),
            number(f.size) if f.size else "–",
        )
        for f in some
    ]
    count = max(gate.failed, len(gate.failures))
    parts = [f"**Failing inputs** ({len(some)} of {count})"]
    parts.append(_table(("id", "kind", "true → predicted", "attack", "row", "change"), shown))
    commands = [line for line in (clean(replay_line(gate, failure)) for failure in some) if line][:3]
    if commands:
        fence = "`" * (3 + max((len(run) for line in commands for run in re.findall("`+", line)), default=0))
        parts.append("\n".join([f"{fence}bash", *commands, fence]))
    return parts


def _spread(failures: Sequence[GateFailure], most: int) -> list[GateFailure]:
    """So many of them, one of each kind and true class before a second."""
    turns: dict[tuple[str, str], int] = {}
    ranked = []
    for place, failure in enumerate(failures):
        group = failure.kind, failure.true
        turns[group] = turns.get(group, 0) + 1
        ranked.append((turns[group], place))
    return [failures[place] for _, place in sorted(ranked)[:most]]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
