"""What hardening gave, as tables for people, and how far it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from assay.core.units import clock
from assay.engines.evaluation import Share
from assay.engines.hardened import TRAINED, Ablated, Hardened, Round, Tested
from assay.engines.hardening_words import NOISE, OUTDONE, looked, no_control, title_of
from assay.engines.measured import Measured
from assay.outputs.notes import note_facts, note_title
from assay.outputs.screen import eval_line, fuzz_line, learning, plain
from assay.outputs.show import facts_table
from assay.outputs.tables import before_after_table, percent
from assay.outputs.verdicts import COLUMNS, MEANING, verdict_cells

FIXED = "fixed: failures never trained on that are right now; "
POOL = "cases: all that were made, whether they fail or not; failing: those that the model before the round got wrong"
MEANING_OF_ROUNDS = (
    "broken: clean inputs that were right for the original and are wrong now; fol: median of fresh PGD examples; "
    "* unreliable, see below"
)


def rounds_table(told: Hardened) -> Table:
    """A row a round, on the validation part; the best one in bold."""
    attacks = [plain(name) for name in told.rounds[0].measured.attacks]
    table = Table(
        title=f"rounds, on the validation part, n={told.rounds[0].measured.clean.n}, white box",
        caption=FIXED * (not told.alone) + MEANING_OF_ROUNDS,
    )
    if any(done.made == "resistant" for done in told.rounds):
        table.caption = (
            f"{table.caption}\nresistant: found and selected are its heap of attack examples on the original; the "
            "files models/round-00N are numbered from the original = 0, so resistant is round-001, round 1 round-002"
        )
    counted = ("broken",) if told.alone else ("found", "selected", "fixed", "broken")
    if any(done.failing is not None for done in told.rounds):
        counted, table.caption = ("cases", "failing", *counted[1:]), f"{POOL}\n{table.caption}"
    for column in ("round", "clean", *attacks, "worst case", "fol", *counted, "time"):
        table.add_column(column, justify="right")
    for done, name in zip(told.rounds, round_names(told.rounds), strict=True):
        table.add_row(*_cells(done, name, counted), style="bold" if done.number == told.best else None)
    return table


def round_names(rounds: Sequence[Round]) -> list[str]:
    """The rounds as people count them: original, resistant, trained, and those that fuzz from 1 on."""
    before = sum(done.made != "cases" for done in rounds)
    return [str(done.number - before + 1) if done.made == "cases" else done.made for done in rounds]


def _place(told: Hardened, number: int) -> str:
    name = round_names(told.rounds)[number]
    return f"round {name}" if name.isdigit() else name


def _cells(done: Round, name: str, counted: Sequence[str]) -> list[str]:
    now = done.measured
    shares = (now.clean, *now.attacks.values(), now.worst)
    counts = {"found": done.found, "cases": done.found, "broken": done.broken}
    texts = {"fixed": f"{done.fixed} of {done.checked}", "selected": picked(done)}
    texts |= {column: str(count) for column, count in counts.items()}
    texts["failing"] = "" if done.failing is None else str(done.failing)
    return [
        f"{name}{'*' * now.unreliable}",
        *(f"{100 * share.accuracy:.1f} %" for share in shares),
        "–" if now.fol is None else f"{now.fol:.3g}",
        *(texts[column] if done.number else "" for column in counted),
        clock(done.seconds),
    ]


def picked(done: Round) -> str:
    """How many cases were selected, and where not all fail, how many of them do."""
    return f"{done.selected}" + ("" if done.selected_failing is None else f" ({done.selected_failing} failing)")


def notes_tables(told: Hardened) -> list[Table]:
    """What trainers and selectors say of their work, a table a round."""
    return [
        facts_table(note_facts(done.notes), title=f"{note_title(done.notes)}, {_place(told, done.number)}")
        for done in told.rounds
        if done.notes
    ]


def ablation_table(told: Hardened) -> Table:
    """What the trained model loses without each part of its training."""
    whole = told.rounds[told.compared].measured
    table = Table(
        title=f"parts of the training, on the validation part, n={whole.clean.n}, white box",
        caption="each row was trained as long without that part; adds: points of the worst case that are gone with it",
    )
    for column in ("without", "clean", "worst case", "adds", "epochs"):
        table.add_column(column, justify="left" if column == "without" else "right")
    table.add_row("nothing", percent(whole.clean), percent(whole.worst), "", str(told.rounds[told.compared].epochs))
    for done in told.ablations:
        cells = (percent(done.measured.clean), percent(done.measured.worst), adds(done, whole), str(done.epochs))
        table.add_row(f"{plain(done.part)}{'*' * done.measured.unreliable}", *cells)
    return table


def adds(done: Ablated, whole: Measured) -> str:
    """What a part adds to the worst case, in points with the 95 % interval."""
    points, low, high = (round(100 * v, 1) + 0.0 for v in done.missed(whole))  # no -0.0
    return f"{points:+.1f} ({low:+.1f} to {high:+.1f})"


def verdict_table(told: Hardened) -> Table:
    """Each clause with its number, and the interval of that where it is an accuracy."""
    star = "*" * told.unreliable
    table = Table(
        title=f"requirement, on the validation part, {_place(told, told.best)}{star}",
        caption=MEANING + ("; * unreliable, see below: meets nothing" if star else ""),
    )
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("clause", "") else "right")
    for row in told.verdict_rows():
        table.add_row(*verdict_cells(row))
    return table


def test_tables(told: Hardened, test: Tested) -> list[Table]:
    """The models side by side on the test part: white box and static in tables of their own."""
    title = title_of(told.protocol)
    white = before_after_table(_starred(test, test.white_box()), f"white box: {title}")
    white.caption = f"every attack on every input, made anew on each model; 95 % intervals; {looked(test.looks)}"
    if said := no_control(told.rounds, told.compared, met=told.met, alone=told.alone):
        white.caption += f"\n{said}"
    if told.compared != told.best:
        white.caption += f"\n{OUTDONE}"
    if test.noise is not None:
        white.caption += f"\n{NOISE}"
    static = before_after_table(_starred(test, test.static()), f"static: {title}")
    static.caption = "examples made on the original model; what they no longer break, a fresh one may; 95 % intervals"
    return [white, static]


def comparison_line(told: Hardened) -> str:
    """What the training is worth on the test part, "" where the best model learned nothing or stands alone."""
    if told.test is None or told.rounds[told.compared].made not in ("cases", TRAINED):
        return ""
    models = told.test.columns()
    after = models["after"]
    said = [
        f"after{'*' * after.unreliable} − {name}{'*' * other.unreliable} {_difference(after.worst, other.worst)}"
        for name in ("control", "resistant", "noise")
        if (other := models.get(name)) is not None
    ]
    return f"worst case on the test part, white box: {', '.join(said)}" if said else ""


def _difference(now: Share, then: Share) -> str:
    """In points, and whether the 95 % intervals overlap."""
    overlap = now.ci95[0] <= then.ci95[1] and then.ci95[0] <= now.ci95[1]
    points = round(100 * (now.accuracy - then.accuracy), 1) + 0.0  # no -0.0
    return f"{points:+.1f} points{' (within the intervals)' * overlap}"


def closing_lines(told: Hardened) -> list[str]:
    """What the model that is compared mended and broke, and whether the requirement is met."""
    now, lines = told.rounds[told.compared], list[str]()
    if told.compared:
        fixed = "" if told.alone else f"fixed {now.fixed} of {now.checked} failures never trained on; "
        of = f"of {now.measured.clean.n} clean validation inputs"
        lines = [f"{fixed}broke {now.broken} and mended {now.mended} {of}"]
    count = told.fuzzed
    after = f"{count} round{'s' * (count != 1)}"
    if told.alone:
        after = "training" if told.rounds[1:] else "no training"
    verdict = ("MET" if told.met else "NOT MET") if told.requirement.clauses else "done"
    return [*lines, f"{verdict} after {after} ({told.stopped})"]


def eps_line(told: Hardened) -> str:
    """What to do where the worst case tells no model from another, "" where it does."""
    if len(told.rounds) < 2 or any(100 * done.measured.worst.accuracy >= 0.05 for done in told.rounds):
        return ""
    return "every model has worst-case accuracy 0.0 % at this eps; a smaller --eps tells them apart"


def _starred(test: Tested, rows: Mapping[str, Mapping[str, Share]]) -> dict[str, dict[str, Share]]:
    """The rows with a star at each model whose numbers a check spoils."""
    stars = {name: "*" * measured.unreliable for name, measured in test.columns().items()}
    return {number: {name + stars[name]: share for name, share in row.items()} for number, row in rows.items()}


def warning_lines(told: Hardened) -> list[str]:
    """What spoils the numbers shown: of each round, and of the models on the test part."""
    columns = {} if told.test is None else told.test.columns()
    places = {f"{_place(told, done.number)}, validation": done.measured for done in told.rounds}
    places |= {f"{name}, test": measured for name, measured in columns.items()}
    return [
        f"UNRELIABLE ({warning['name']}; {place}): {plain(warning['message'])}"
        for place, measured in places.items()
        for warning in measured.warnings
    ]


def harden_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """The round, what is being done in it, and how far that is."""
    phase = numbers["phase"]
    if phase == "test":
        text, share = eval_line(numbers)
        return f"test part, {numbers['model']}: {text}", share
    place = f"{numbers['place']}, {phase}"
    if phase == "fuzz":
        text, share = fuzz_line(numbers)
    elif phase == "measure":
        text, share = eval_line(numbers)
    else:
        place = f"without {plain(numbers['part'])}" if phase == "ablate" else place
        text, share = f"epoch {numbers['epoch']:.1f}{learning(numbers)}", None
    return f"{place}: {text}", share
