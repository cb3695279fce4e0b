"""A page of the reference for each kind of name: what it does, formula, parameters, cost, deviations, calls."""

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.docs import costs
from tools.docs.calls import calls
from tools.docs.sources import SRC, deviations, doc_of, path_of

from assay.core.entries import Entry, Parameter
from assay.core.registry import ENGINE_ARGUMENTS, entries, lookup
from assay.core.specs import Step
from assay.core.specs import step as parsed
from assay.recipes.recipe import Recipe
from assay.recipes.suite import Suite

MEANINGS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text("utf-8"))

# The pages in the order of the menu: kind, title, what a reader must know of all of them.
PAGES = {
    "attack": (
        "Attacks",
        "A bounded search around one input. Norms, balls, smallest changes and attacks of other libraries: "
        "[Attacks](../attacks.md), which also says where they differ from their papers.",
    ),
    "suite": ("Suites", "Attacks that `assay eval --suite NAME` runs together."),
    "recipe": (
        "Recipes",
        "A system as data: what `assay fuzz --recipe NAME` and `assay harden --recipe NAME` run. `--set FIELD=…` "
        "changes any of it. [Which recipe for my model?](../explanation/which-recipe.md)",
    ),
    "mutator": ("Mutators", "How a recipe makes a case of another one."),
    "oracle": ("Oracles", "When is a case a failure?"),
    "filter": ("Filters", "Which cases are valid, and which are worth going on from."),
    "schedule": ("Schedules", "In which order a recipe works its seeds and cases."),
    "seeder": ("Seeders", "What a recipe begins with."),
    "score": ("Scores", "A number for each case: to climb, to note, to select and to prioritise by."),
    "criterion": (
        "Coverage criteria",
        "What a test set reaches inside a net. Each takes the values of neurons from the pass that answers: one "
        "forward pass a case serves all criteria together, and none needs a gradient. See [Coverage](../coverage.md).",
    ),
    "strategy": ("Neuron strategies", "Which neurons the score `neurons` pushes."),
    "selector": (
        "Selectors",
        "Which cases are worth most: `assay select`, hardening, and orders of `assay prioritise`. What a selector asks "
        "of the model is what its score or criterion asks; `lbt` and `metasel` ask what their `start`, `rounds` and "
        "`cap` say.",
    ),
    "trainer": (
        "Trainers",
        "How weights are changed. An epoch is a forward and a backward pass of every training case; trainers that "
        "attack add what their attack costs.",
    ),
    "extractor": ("Feature extractors", "What `cagfuzz` calls alike. One forward pass of the extractor an image."),
    "model": ("Models of the zoo", "Nets by name: `lenet5` untrained, `lenet5@weights.safetensors` with weights."),
    "data": ("Data sets", "Data by name; your own: [data of your own](../how-to/your-data.md)."),
    "sink": (
        "Trackers",
        "Where `--log` sends a run's numbers, of any verb that works. See [Tracking](../tracking.md).",
    ),
    "check": ("Trust checks", "What makes a number unreliable. Each is explained in [Trust checks](../checks.md)."),
}

# What a stage needs, where the registry's word alone says too little.
WORDS = {
    "start": "inputs to begin with (`--training`)",
    "grad": "gradients",
    "prob": "probabilities",
    "siblings": "another model (`--with`)",
}


def page(kind: str, *, count: bool = True) -> str:
    """The whole page of a kind, as Markdown; without ``count`` it says that passes were not counted."""
    title, about = PAGES[kind]
    ours = [entry for entry in entries(kind) if entry.module.startswith("assay.")]
    lines = [f"# {title}", "", about, "", f"`assay list {kind}` prints the same names. Made from the code.", ""]
    if kind in costs.COUNTED:
        lines += [_counting(kind), ""]
    lines += ["| name | what it does |", "|---|---|"]
    lines += [f"| [`{e.name}`](#{_anchor(e.name)}) | {_cell(_plain(e.summary))} |" for e in ours]
    for entry in ours:
        lines += ["", *_section(kind, entry, count)]
    return "\n".join(lines) + "\n"


def _counting(kind: str) -> str:
    if kind == "attack":
        return (
            "*Passes counted* were counted while this page was made, on a linear target of ten classes with 8×8 "
            "inputs, for each input: one that withstands, and one that falls. A pass that gives a gradient counts as "
            "both. Rows leave as soon as they are done, so a suite costs less than its sum."
        )
    return (
        "*Passes counted* were counted while this page was made, for each case, by the stage alone. In a campaign one "
        "pass of the model serves the oracle, every score and the slope of the objective together."
    )


def _section(kind: str, entry: Entry, count: bool) -> Iterator[str]:
    known, thing = lookup(kind, entry.name)
    told = doc_of(entry.summary if isinstance(thing, Recipe | Suite) else thing.__doc__)
    yield f"## {entry.name}"
    yield ""
    for part in (told.summary, *told.body):
        yield _plain(part)
        yield ""
    if told.formula:
        yield from ("```text", *_wrapped(told.formula), "```", "")
    if isinstance(thing, Recipe):
        yield from _recipe(thing)
    elif isinstance(thing, Suite):
        yield from _suite(thing)
    yield from _parameters(kind, entry)
    yield from _facts(kind, dataclasses.replace(known, name=entry.name), count)
    noted = deviations(entry)
    if noted:
        yield from ("Where it differs from its paper or its public code:", "")
        yield from (f"- {_plain(note)}" for note in noted)
        yield ""
    yield from calls(kind, entry)


def _facts(kind: str, entry: Entry, count: bool) -> Iterator[str]:
    if entry.paper:
        yield f"- *Paper*: {entry.paper}"
    if entry.needs:
        yield f"- *Needs*: {', '.join(WORDS.get(need, need) for need in entry.needs)}"
    if kind in costs.COUNTED:
        yield f"- *Passes counted*: {_cost(kind, entry.name) if count else 'no'}"
    yield f"- *Source*: `{path_of(entry.module).relative_to(SRC.parent)}`"
    yield ""


def _cost(kind: str, name: str) -> str:
    if kind == "attack":
        budget = costs.measured(name).params.get("queries")
        with_ = f" with `queries={budget}`" if budget else ""
        far, near = (costs.of_attack(name, brightness) for brightness in (costs.FAR, costs.NEAR))
        return f"{far} for an input that withstands, {near} for one that falls{with_}"
    counted = costs.of_stage(kind, name)
    return "those of what it is made of or fits first" if counted is None else str(counted)


def shown(entry: Entry) -> list[Parameter]:
    """The parameters that users set."""
    return [p for p in entry.parameters if p.name not in ENGINE_ARGUMENTS]


def meaning(kind: str, name: str, parameter: str) -> str:
    """What a parameter means; a missing meaning is an error of ours."""
    for key in (f"{kind}/{name}", kind):
        if parameter in MEANINGS.get(key, {}):
            return MEANINGS[key][parameter]
    raise KeyError(f"tools/docs/parameters.toml does not say what {parameter!r} of {kind} {name!r} means")


def _parameters(kind: str, entry: Entry) -> Iterator[str]:
    given = shown(entry)
    if not given:
        return
    yield from ("| parameter | type | default | meaning |", "|---|---|---|---|")
    for p in given:
        default = "must be given" if p.default is None else f"`{_default(p.default)}`"
        kinds = p.type.replace("str | Criterion", "str").replace("str | Loss", "str").strip("'\"")
        yield f"| `{p.name}` | {_cell(kinds)} | {_cell(default)} | {_cell(meaning(kind, entry.name, p.name))} |"
    yield ""


def _default(text: str) -> str:
    """As it is typed on the command line: true, false, null."""
    return {"True": "true", "False": "false", "None": "null"}.get(text, text.replace("'", ""))


def _recipe(recipe: Recipe) -> Iterator[str]:
    yield from ("| field (`--set`) | value |", "|---|---|")
    for field in dataclasses.fields(recipe):
        if field.name in ("name", "summary", "paper", "parts"):
            continue
        value = getattr(recipe, field.name)
        if not value:
            continue
        parts = value if isinstance(value, tuple) and not _is_step(value) else (value,)
        yield f"| `{field.name}` | {_cell(', '.join(f'`{_step(part)}`' for part in parts))} |"
    yield ""
    if recipe.parts:
        yield "Parts that `--ablate` leaves out: " + ", ".join(f"{name} (`{out}`)" for name, out in recipe.parts) + "."
        yield ""


def _suite(suite: Suite) -> Iterator[str]:
    if suite.attacks:
        yield "Attacks: " + ", ".join(f"`{_step(attack)}`" for attack in suite.attacks) + "."
        yield ""
    if suite.each:
        yield from ("Each attack sees every input.", "")


def _is_step(value: tuple[object, ...]) -> bool:
    return len(value) == 2 and isinstance(value[1], dict)


def _step(value: Step) -> str:
    if isinstance(value, str):
        return value
    name, params = parsed(value)
    return f"{name}({', '.join(f'{k}={_default(str(v))}' for k, v in params.items())})" if params else name


def _plain(text: str) -> str:
    """Markdown of a docstring: double backquotes become single ones, and nothing else is markup."""
    parts = re.split(r"(``.+?``)", text)
    return "".join(f"`{p.strip('`')}`" if p.startswith("``") else _escaped(p) for p in parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*_<\[\]])", r"\\\1", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    return name.lower()


def _wrapped(text: str, width: int = 78) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
