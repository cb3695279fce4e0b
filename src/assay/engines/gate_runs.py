"""Runs as sides of a gate: a saved evaluation with all its inputs, a hardening with its look at the test part."""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from assay.core import store
from assay.core.errors import UsageError
from assay.core.registry import bind, names
from assay.core.requirement import Requirement
from assay.core.specs import canonical, python_file, step
from assay.core.store import Store
from assay.engines.final_look import last_look, last_result
from assay.engines.gate_sides import Side, side_of_blocks, unchecked
from assay.engines.hardened import Tested
from assay.engines.protocol import differences
from assay.engines.round_book import rounds_of
from assay.engines.saved import Saved, saved_evaluation
from assay.engines.stored import identity_of, kind_of, named_by_run


def run_named(text: object) -> Store | None:
    """The run of that name or folder, None where there is none; what is damaged in it is no ground for a gate."""
    if not isinstance(text, str):
        return None
    path = None
    with suppress(UsageError):
        path = store.find_run(text)
    if path is None:
        return None
    run = store.read(path)
    if run.damage:
        raise UsageError(f"run {run.name} is damaged: {run.damage[0]}; the command that made it repairs it")
    return run


def saved_in(run: Store) -> Saved:
    """The saved evaluation of a run, which has ended."""
    saved = saved_evaluation(run)
    if saved is None:
        raise UsageError(f"run {run.name} is of kind {kind_of(run) or 'unknown'}, not a saved evaluation")
    if not saved.blocks or not saved.complete:
        raise UsageError(f"the evaluation in run {run.name} has not ended; the command that made it goes on")
    return saved


def side_of_saved(saved: Saved, requirement: Requirement) -> Side:
    """A saved evaluation, with the attacks under the names that the requirement has for them."""
    run = saved.run
    order = saved.labels()
    side = side_of_blocks(f"run {run.name}", saved.blocks, saved.classes, order, cascade=saved.cascade)
    texts: Mapping[str, str] = saved.protocol.get("attacks", {})
    offered = {"eps": saved.protocol.get("eps"), "norm": saved.protocol.get("norm")}
    labels = {name: label for name in requirement.attacks if (label := _label(name, texts, offered)) is not None}
    attacks = {label: dict(told) for label, told in saved.told["attacks"].items()}
    known = [label for label in labels.values() if label in texts and label not in side.shares]
    hint = (
        f"it ran {known[0]} on what others left (a cascade); save it with --each"
        if known
        else f"measure it: {_command(run, 'MODEL' if identity_of(run)['target']['model'] == 'module' else '')}"
    )
    warnings = tuple(saved.told.get("warnings", ()))
    left = unchecked(saved.told.get("ignored_checks", ()), saved.told.get("checks_not_made", {}))
    called = replace(side.called(labels), unchecked=left)
    return replace(called, protocol=dict(saved.protocol), attacks=attacks, warnings=warnings, hint=hint)


def sides_of_hardening(run: Store, requirement: Requirement) -> tuple[Side, Side]:
    """The result of a hardening and the original, on the test part, where nothing was chosen."""
    look = last_look(run)
    if look is None:
        raise UsageError(f"the hardening in run {run.name} has not ended; the command that made it goes on")
    name = next(file for file in look.files if file.count("-") == 1)
    tested = Tested.of_json(json.loads(run.file(name)))
    best = int(last_result(run).get("best", look.meta["best"]))
    model = shlex.quote(f"{_net(run)}@{run.path}/models/round-{best:03d}.safetensors")
    hint = f"measure the model itself: assay check {model} --data {shlex.quote(_data(run))} --eps … --require …"
    eps = identity_of(run).get("ball", {})
    labels = {n: label for n in requirement.attacks if (label := _plain(n, tested.after.attacks)) is not None}
    fol = rounds_of(run)[best].measured.fol
    protocol = {"data": _data(run), "part": "test", "round": best, "eps": eps.get("eps"), "norm": eps.get("norm")}
    protocol |= {"n": tested.after.clean.n, "model": _net(run)}
    attacks = {label: share.to_json() for label, share in tested.after.attacks.items()}
    warnings = tuple(tested.after.warnings)
    after = Side(f"run {run.name}", tested.after.shares(), fol=fol, warnings=warnings, hint=hint)
    after = replace(after, protocol=protocol, attacks=attacks)
    before = Side("the original", tested.before.shares(), warnings=tuple(tested.before.warnings), hint=hint)
    return after.called(labels), before.as_baseline().called(labels)


def refuse_unlike(side: Side, other: Side) -> None:
    """Two sides are compared only where both were measured alike, on the same inputs."""
    one, two = dict(side.protocol), dict(other.protocol)
    if "attacks" not in one or "attacks" not in two:  # of one of them clean numbers are all there is
        keys = ("data_fingerprint", "n")
        one, two = ({key: told.get(key) for key in keys} for told in (one, two))
    unlike = differences(one, two)
    if unlike:
        raise UsageError(f"{other.name} cannot be the baseline, it was measured otherwise: {'; '.join(unlike)}")


def data_of(saved: Saved) -> Any:
    """The data of a saved evaluation, loaded again; what only the run names is used where the run is the user's own."""
    from assay.subjects.data.load import load_data

    with named_by_run(saved.run):
        return load_data(saved.protocol["data"], part="test")


def _label(name: str, texts: Mapping[str, str], offered: Mapping[str, Any]) -> str | None:
    """What the attack of that name is called in a run; with brackets, the one with the same parameters."""
    plain = _plain(name, texts)
    if plain is not None:
        return plain
    attack, params = step(name)
    if python_file(attack) is None and canonical(attack) not in map(canonical, names("attack")):
        return None
    text = bind("attack", attack, params, {k: v for k, v in offered.items() if v is not None}).text
    return next((label for label, told in texts.items() if told == text), None)


def _plain(name: str, labels: Mapping[str, Any]) -> str | None:
    return next((label for label in labels if canonical(label) == canonical(name)), None)


def _net(run: Store) -> str:
    return str(identity_of(run).get("target", {}).get("model", "MODEL")).partition("@")[0]


def _data(run: Store) -> str:
    return str(identity_of(run).get("data", {}).get("spec", "DATA"))


def _command(run: Store, model: str) -> str:
    named = model or str(identity_of(run)["target"]["model"])
    return f"assay check {shlex.quote(named)} --data {shlex.quote(_data(run))} --eps … --require …"
