"""What to type to get the same again, and to go on: commands that a shell takes as they stand."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from assay.core import store
from assay.core.command import TABLE
from assay.core.ids import case_ids
from assay.core.places import known_as
from assay.core.sealed import json_of
from assay.core.store import Store
from assay.core.toml import dumps
from assay.engines.final_look import last_result
from assay.engines.round_book import round_name
from assay.engines.stored import identity_of, kind_of, only_trains
from assay.outputs.report.parts import Commands, Facts, Note, Part, Section
from assay.outputs.report.shown import Shown

LIVE = "module"  # what a run calls a model that was given as an object
Row = tuple[str, str]


def command(*words: str) -> str:
    """A command line, each word quoted where a shell needs it.

    >>> command("assay", "replay", "my run", "ab12")
    "assay replay 'my run' ab12"
    """
    return shlex.join(words)


def name_of(run: Store) -> str:
    """How a command names the run: by its name where it lies in the folder of runs, else by its path."""
    near = (store.runs_root() / run.name).resolve() == run.path.resolve()
    return run.name if near else known_as(run.path)


def again_section(run: Store, shown: Shown | None) -> Section:
    """The commands, and the configuration they stand on."""
    return Section("again", "Reproduce this", tuple(_parts(run, shown)))


def _parts(run: Store, shown: Shown | None) -> Iterator[Part]:
    begin = identity_of(run)
    if begin.get("target", {}).get("model") == LIVE:
        yield Note("This run was made in Python with a live model: give it again where a command needs a model.")
    rows = {"fuzz": _fuzz, "eval": _eval, "harden": _harden, "prioritise": _prioritise}.get(kind_of(run))
    told = [] if rows is None else list(rows(run, begin))
    if shown is not None and len(shown):
        told += list(_cases(run, shown))
    told.append(("this report again", command("assay", "report", name_of(run))))
    yield Commands(tuple(told))
    text = campaign(run)
    if text:
        yield Commands((("the whole configuration, campaign.toml", text),), "Configuration")


def campaign(run: Store) -> str:
    """The resolved configuration as text; from the journal where the file is lost."""
    try:
        return (run.path / "campaign.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        begin = identity_of(run)
        return dumps(begin) if begin else ""


def _made_by(run: Store) -> Mapping[str, Any]:
    """The command that made the run, as its configuration tells; {} for one made in Python or by an older version."""
    try:
        told = run.config.get(TABLE, {})
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, Mapping) else {}


def _file(run: Store) -> str:
    return str(run.path / "campaign.toml")


def _fuzz(run: Store, begin: Mapping[str, Any]) -> Iterator[Row]:
    if begin.get("target", {}).get("model") != LIVE:
        config = ("assay", "fuzz", "--config", _file(run))
        yield "the same run anew, under another name", command(*config, "--run", f"{run.name}-again")
        yield "go on with this run for ten more minutes", command(*config, "--run", run.name, "--time", "10m")


def _eval(run: Store, begin: Mapping[str, Any]) -> Iterator[Row]:
    model, data = begin.get("target", {}).get("model", LIVE), begin.get("data", {}).get("spec", "")
    if model == LIVE:
        return
    if _made_by(run).get("verb") == "eval":
        yield (
            "the same evaluation anew",
            command("assay", "eval", "--config", _file(run), "--save", f"{run.name}-again"),
        )
    elif not begin.get("target", {}).get("static"):
        suite = ",".join(_in_order(begin))
        each = () if begin.get("run", {}).get("cascade", True) else ("--each",)
        seed = str(begin.get("run", {}).get("seed", 0))
        yield (
            "the same evaluation anew",
            command("assay", "eval", model, "--data", data, "--suite", suite, "--seed", seed, *each),
        )


def _in_order(begin: Mapping[str, Any]) -> list[str]:
    """The attacks as they ran, which decides what each of a cascade saw: the journal spells tables by the alphabet."""
    suite: Mapping[str, Any] = begin.get("suite", {})
    keys = (str(key) for key in begin.get("run", {}).get("order", ()))
    order = [label for key in keys if (label := key.partition("/")[2]) in suite and not key.startswith("static/")]
    return [str(suite[label]) for label in (*order, *(label for label in suite if label not in order))]


def _harden(run: Store, begin: Mapping[str, Any]) -> Iterator[Row]:
    target, data = begin.get("target", {}), begin.get("data", {})
    if target.get("model") == LIVE:
        return
    if _made_by(run).get("verb") == "harden":
        config = ("assay", "harden", "--config", _file(run))
        yield "the same hardening anew, under another name", command(*config, "--run", f"{run.name}-again")
        if not only_trains(run):
            yield "go on with more rounds", command(*config, "--run", run.name, "--rounds", "8")
    best = last_result(run).get("best")
    if best is not None:
        weights = run.path / "models" / f"{round_name(int(best))}.safetensors"
        model = f"{str(target.get('model', '')).partition('@')[0]}@{weights}"
        ball = begin.get("ball", {})
        size = ("--eps", str(ball["eps"]), "--norm", str(ball["norm"])) if ball.get("eps") is not None else ()
        part = f"{data.get('spec', '')}/test"
        suite = begin.get("recipe", {}).get("suite")
        how = (*size, *(("--suite", str(suite)) if suite else ()))
        yield "measure the best model once more", command("assay", "eval", model, "--data", part, "--each", *how)


def _prioritise(run: Store, begin: Mapping[str, Any]) -> Iterator[Row]:
    if begin.get("target", {}).get("model") != LIVE and _made_by(run).get("verb") == "prioritise":
        config = ("assay", "prioritise", "--config", _file(run))
        yield "the same orders anew", command(*config, "--run", f"{run.name}-again")


def _cases(run: Store, shown: Shown) -> Iterator[Row]:
    name, kind = name_of(run), kind_of(run)
    first = case_ids(shown.cases[:1])[0]
    yield "ask all failures once more", command("assay", "replay", name)
    yield "ask one of them once more", command("assay", "replay", name, first)
    if kind == "fuzz":
        yield "make them as small as they still fail", command("assay", "shrink", name)
    yield "take them elsewhere, as arrays", command("assay", "export", name, "--to", "npz", "--out", f"{run.name}.npz")
    yield "as image files", command("assay", "export", name, "--to", "images", "--out", f"{run.name}-images")
    yield (
        "does another model still fail on them? Put it in for MODEL",
        command("assay", "replay", name, "--model", "MODEL"),
    )


def environment_section(run: Store) -> Section:
    """What the run stood on."""
    try:
        told = json_of((run.path / "environment.json").read_bytes(), sealed=run.sealed)
    except OSError:
        told = None
    if told is None:
        return Section("environment", "Environment", (Note("environment.json is lost or damaged.", "warning"),))
    packages = told.pop("packages", {})
    every = {**told, **(packages if isinstance(packages, dict) else {})}
    facts = {str(k): v if isinstance(v, str) else json.dumps(v) for k, v in every.items() if v is not None}
    return Section("environment", "Environment", (Facts(facts),))
