"""What the report says of a hardening run."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from assay.core.store import Store
from assay.core.units import clock
from assay.engines.ablation import ablations_of
from assay.engines.final_look import last_look, last_result
from assay.engines.hardened import TRAINED, Round
from assay.engines.hardening_words import OUTDONE, looked, no_control
from assay.engines.measured import Measured
from assay.engines.round_book import rounds_of
from assay.engines.stored import identity_of, only_trains
from assay.outputs.harden_tables import POOL, adds, picked
from assay.outputs.notes import note_facts, note_title
from assay.outputs.report.charts import Series, lines
from assay.outputs.report.classes import accuracy_cell
from assay.outputs.report.evaluated import numbers_chart, numbers_part, old_tables, warning_note
from assay.outputs.report.fuzzed import failing_sections
from assay.outputs.report.parts import Cell, Chart, Facts, Note, Part, Section, Table, Tone
from assay.outputs.report.shown import Shown
from assay.outputs.tables import percent
from assay.outputs.verdicts import COLUMNS, MEANING, outcome, verdict_cells


def harden_verdict(run: Store) -> Note:
    """What a reader takes away."""
    rounds, told = rounds_of(run), last_result(run)
    if not rounds:
        return Note("The hardening has only begun: the original model is not measured yet.", "warning")
    look = last_look(run)
    gain = "" if look is None else _gain(run, look.meta["tables"])
    if not told.get("until"):
        ended = "" if told else "The hardening has not ended; the same command goes on. "
        best = rounds[int(told.get("best", len(rounds) - 1))].measured
        said = f"{ended}Round {told.get('best', len(rounds) - 1)} withstands the attacks on {percent(best.worst)} of "
        tone: Tone = "" if told and not best.warnings else "warning"
        return Note(f"{_doubt(best)}{said}{best.worst.n} validation inputs. {gain}".strip(), tone)
    best = rounds[told["best"]].measured
    said = outcome(told["verdicts"], met=told["met"])
    doubt = _doubt(best)
    tone = "warning" if best.warnings or "undecided" in said else "good" if told["met"] else "bad"
    return Note(
        f"{doubt}The requirement {told['until']} is {said} by round {told['best']} on {best.clean.n} validation "
        f"inputs. {gain}".strip(),
        tone,
    )


def _doubt(best: Measured) -> str:
    return f"UNRELIABLE ({', '.join(w['name'] for w in best.warnings)}): " if best.warnings else ""


def _gain(run: Store, tables: list[str]) -> str:
    """The worst cases of the test part, before and after, white box."""
    table = next((json.loads(run.file(name)) for name in tables if "white-box" in name), None)
    if table is None:
        return ""
    models = [str(model) for model in table["models"]]
    worst: list[Any] = next((row["cells"] for row in table["rows"] if row["name"] == "worst case"), [])
    said = [
        f"{model} {_share(cell)}" for model, cell in zip(models, worst, strict=True) if model[:5] in ("befor", "after")
    ]
    n = f" (n={worst[0]['n']}, 95 % intervals)" if worst else ""
    return f"On the test part, under the worst of the attacks made anew on each model: {', '.join(said)}{n}."


def _share(cell: Mapping[str, Any]) -> str:
    low, high = cell["ci95"]
    return f"{100 * cell['accuracy']:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def harden_sections(run: Store, shown: Shown | None) -> Iterator[Section]:
    """The parts of the page, in reading order."""
    rounds, alone = rounds_of(run), only_trains(run)
    if not rounds:
        return
    yield Section("trust", "Can these numbers be trusted?", tuple(_trust(rounds)))
    yield from _requirement(run)
    for place, table in enumerate(_test_tables(run, rounds, alone=alone), 1):
        word = "static" if "static" in str(table["title"]).rpartition(": ")[2] else "white box"
        yield Section(f"numbers-{place}", f"Test part, {word}", (numbers_part(table, _hint(run)), numbers_chart(table)))
    pool = any(done.failing is not None for done in rounds)
    note = _meaning(alone=alone, pool=pool)
    parts_of_rounds: tuple[Part, ...] = (_rounds(run, rounds, alone=alone, note=note),)
    if len(rounds) > 1:
        parts_of_rounds += (_rounds_chart(rounds),)
    yield Section("rounds", "Rounds, on the validation part, white box", parts_of_rounds)
    for done in rounds:
        if done.notes:
            yield Section(
                f"notes-{done.number}", f"{_title(done)} of round {done.number}", (Facts(note_facts(done.notes)),)
            )
    yield from _ablations(run, rounds)
    yield from failing_sections(shown, every=False)
    yield Section("cost", "What it took", (_cost(run, rounds),))


def _ablations(run: Store, rounds: list[Round]) -> Iterator[Section]:
    """What each part of the training adds, where that was asked."""
    done = ablations_of(run)
    whole = next((r for r in rounds if r.made == TRAINED), None)
    if not done or whole is None:
        return
    hint, columns = _hint(run), ("without", "clean", "worst case", "adds, points", "epochs")
    named = [("nothing", whole.measured, "", whole.epochs)]
    named += [(a.part, a.measured, adds(a, whole.measured), a.epochs) for a in done]
    cells = [[accuracy_cell(share.to_json(), hint) for share in (m.clean, m.worst)] for _, m, _, _ in named]
    rows: tuple[tuple[Cell | str, ...], ...] = tuple(
        (part, *two, added, str(epochs)) for (part, _, added, epochs), two in zip(named, cells, strict=True)
    )
    note = (
        "Each row was trained as long, from the same start, without that part. What it adds to the worst case, with "
        "the 95 % interval of shares counted apart: one training each, so that chance between trainings is not in it."
    )
    title = "Parts of the training, on the validation part, white box"
    yield Section("parts", title, (Table(columns, rows, note=note),))


def _trust(rounds: list[Round]) -> Iterator[Part]:
    fired = [(done.number, warning) for done in rounds for warning in done.measured.warnings]
    for number, warning in fired:
        yield warning_note(warning, f"round {number}")
    if not fired:
        yield Note(
            "No check found anything that spoils the numbers of a round. docs/checks.md tells what they look for."
        )


def _test_tables(run: Store, rounds: list[Round], *, alone: bool) -> Iterator[dict[str, Any]]:
    """The look at the test part that belongs to the result: white box and static in tables of their own."""
    look = last_look(run)
    if look is None:
        return
    result = last_result(run)
    without = no_control(rounds, look.meta["best"], met=bool(result.get("met")), alone=alone)
    outdone = OUTDONE if alone and look.meta["best"] != result.get("best") else ""
    said = [looked(len(list(run.commits("final")))), *filter(None, (without, outdone))]
    for name in look.meta["tables"]:
        table = json.loads(run.file(name))
        yield table | {"note": " ".join([table["note"], *(f"{line.capitalize()}." for line in said)])}


def _hint(run: Store) -> str:
    """What the numbers were measured with."""
    told = identity_of(run)
    ball, data = told.get("ball", {}), told.get("data", {})
    suite = told.get("recipe", {}).get("suite", "?")
    seed = told.get("run", {}).get("seed")
    return f"{ball.get('norm')} eps {ball.get('eps')}; suite {suite}; seed {seed}; data hash {data.get('test')}"


def _requirement(run: Store) -> Iterator[Section]:
    """What was asked last and the verdict on the result; nothing where the journal does not tell."""
    told = last_result(run)
    if not told.get("until"):
        return
    rows = told["verdicts"]
    star = "; * unreliable, see above: meets nothing" if any(row["unreliable"] for row in rows) else ""
    said = outcome(rows, met=told["met"])
    cells = tuple(_verdict_row(row) for row in rows)
    note = f"{MEANING[0].upper()}{MEANING[1:]}{star}."
    yield Section(
        "requirement",
        f"Requirement, on the validation part, round {told['best']}",
        (
            Note(f"{told['until']}: {said}", "good" if said == "met" else "bad"),
            Table((*COLUMNS[:-1], "verdict"), cells, note=note),
        ),
    )


def _verdict_row(row: Mapping[str, Any]) -> tuple[Cell | str, ...]:
    *cells, said = verdict_cells(row)
    plainly = row["met"] and not row["undecided"] and not row["unreliable"]
    return (*cells, Cell(said, tone="good" if plainly else "warning" if row["met"] else "bad"))


def _rounds(run: Store, rounds: list[Round], *, alone: bool, note: str) -> Table:
    """The rounds of a hardening run; a star where a check spoils the numbers."""
    pool = any(done.failing is not None for done in rounds)
    named, hint = alone or any(done.made == "resistant" for done in rounds), _hint(run)
    rows: list[dict[str, Cell | str]] = []
    for done in rounds:
        now = done.measured
        row: dict[str, Cell | str] = {"round": f"{done.number}{'*' * now.unreliable}"}
        row |= {"model": done.made} if named else {}
        row |= {name: accuracy_cell(share.to_json(), hint) for name, share in now.shares().items()}
        row["FOL"] = "–" if now.fol is None else f"{now.fol:.3g}"
        if not alone:
            row |= _pool(done) if pool else {"found": f"{done.found}"}
            row |= {"selected": picked(done), "fixed": f"{done.fixed} of {done.checked}"}
        rows.append(row | {"broken": f"{done.broken}", "time": clock(done.seconds)})
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), note=note)


def _rounds_chart(rounds: list[Round]) -> Chart:
    """Clean and worst-case accuracy over the rounds."""
    at = [float(done.number) for done in rounds]
    both = {"clean": [d.measured.clean for d in rounds], "worst case": [d.measured.worst for d in rounds]}
    series = [
        Series(name, at, [s.accuracy for s in shares], [s.ci95[0] for s in shares], [s.ci95[1] for s in shares])
        for name, shares in both.items()
    ]
    rows = tuple((str(done.number), percent(done.measured.clean), percent(done.measured.worst)) for done in rounds)
    title = "Accuracy over the rounds, validation part, white box"
    svg = lines(title, series, "round", "accuracy", percent=True, at_points=True)
    return Chart(svg, title, Table(("round", "clean", "worst case"), rows), "Bands are 95 % Wilson intervals.")


def _pool(done: Round) -> dict[str, Cell | str]:
    """How many cases were made, and how many of them fail; of what is no round of cases nothing is told."""
    return {"cases": f"{done.found}", "failing": "–" if done.failing is None else f"{done.failing}"}


def _title(done: Round) -> str:
    said = note_title(done.notes)
    return f"{said[0].upper()}{said[1:]}"


def _meaning(*, alone: bool, pool: bool) -> str:
    """What the columns of the rounds are."""
    first = "Round 0 is the original model; where there are two, round 1 is the resistant one."
    said = [
        "Round 0 is the original model, round 1 what was trained of it." if alone else first,
        "FOL: median of fresh PGD examples, near 0 where attacks converge.",
        *([f"{POOL[0].upper()}{POOL[1:]}."] if pool else []),
        *([] if alone else ["Fixed: failures never trained on that are right now."]),
        "Broken: clean inputs that were right for the original and are wrong now.",
        "95 % Wilson intervals.",
    ]
    return " ".join(said)


def _cost(run: Store, rounds: list[Round]) -> Facts:
    seconds = run.stats().get("seconds")
    told = {} if seconds is None else {"time": clock(float(seconds))}
    told |= {"epochs trained": f"{sum(done.epochs for done in rounds)}"}
    return Facts(told | {f"time of round {done.number}": clock(done.seconds) for done in rounds if done.seconds})


def given_tables(run: Store) -> Iterator[Section]:
    """Tables that a run of another kind was given, as ``assay demo`` does: before and after."""
    for place, table in enumerate(old_tables(run), 1):
        yield Section(f"given-{place}", table.title, (Table(table.columns, table.rows, "", table.note),))
