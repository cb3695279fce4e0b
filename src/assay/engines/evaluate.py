"""Evaluation: accuracy on clean inputs and under a suite of attacks, with intervals and the whole protocol.

Cases are worked in blocks, each a pure function of its rows: results do not depend on the block size, and a saved
evaluation resumes after its last block.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from assay.core import environment, norms, store
from assay.core.cases import UNLABELLED
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.specs import split, steps
from assay.core.units import budget
from assay.engines.blocks import BLOCK, Blocks, Progress
from assay.engines.cascade import Column
from assay.engines.checks import ignored, warnings_of
from assay.engines.cost import estimate
from assay.engines.evaluation import Evaluation, numbers_table
from assay.engines.protocol import protocol_of, to_the_end
from assay.engines.session import session
from assay.engines.tally import tally
from assay.recipes.recipe import parts_of, wants_each
from assay.subjects.bench import Data, fitted
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, trained_with
from assay.subjects.target import Target, require

log = logging.getLogger("assay")

LONG = 30.0  # seconds from which on an estimate is worth a line

Eps = str | float | Sequence[float] | None
Model = str | nn.Module | Target


def evaluate(
    model: Model,
    data: str | Data,
    *,
    suite: Any = "fast",
    eps: Eps = None,
    norm: str = "linf",
    seen: Any = None,
    static_from: Model | None = None,
    save: str | None = None,
    each: bool = False,
    ignore: Sequence[str] = (),
    seed: int = 0,
    batch: int = BLOCK,
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    progress: Progress | None = None,
) -> Evaluation:
    """Accuracy of a model, clean and under attack.

    The suite is a cascade: an attack sees only inputs that survived those before it, and its accuracy is what is left
    after it. With ``each``, every attack sees every rightly classified input. Several ``eps`` ("0.1,0.2,0.3") give a
    curve. ``seen`` names the attacks the model was trained with where its checkpoint does not. ``static_from`` adds a
    column of its own: examples made on that other model and judged here. ``save`` keeps every example made in a run of
    that name. ``ignore`` names trust checks that are not to be made.
    """
    ignored(ignore)
    given = load_data(data, part="test")
    target = load_target(model, data=given, device=device, mean=mean, std=std)
    given = fitted(target, given)
    labelled = given.cases[given.cases.y != UNLABELLED]
    if not len(labelled):
        raise NothingToTest(f"{given.name} has no labels, so there is no accuracy to measure")
    source = None
    if static_from is not None:
        source = load_target(static_from, data=given, device=device, mean=mean, std=std)
        if fitted(source, given) is not given:
            raise UsageError(
                "the model of --static-from orders its classes otherwise than the target; retrain one of them"
            )
    sizes, text = _sizes(eps)
    trained = None if seen is None else tuple(steps(seen))
    columns = _columns(model, target, source, suite, sizes, norm, trained)
    attacks = {label: attack for column in columns.values() for label, attack in column.attacks.items()}
    each = each or wants_each(suite)
    protocol = protocol_of(_name(model), target, given, attacks, text, seed=seed, each=each, curve=len(sizes) > 1)
    for column in columns.values():
        _try_out(column)
    with ExitStack() as open_for_run:
        open_for_run.enter_context(session(deterministic=deterministic))
        for column in columns.values():
            open_for_run.enter_context(column.maker.ready())
            open_for_run.enter_context(column.judge.ready())
        cost = estimate(target, labelled, (a for c in columns.values() for a in c.attacks.values()))
        if cost.at_most > LONG:
            log.info("this takes %s%s", cost, "" if save else "; --save NAME makes it resumable")
        keep = None
        if save is not None:
            config = _config(model, target, given, columns, protocol, batch)
            keep = open_for_run.enter_context(store.opened(save, config, environment.describe(), fresh=fresh))
        rng = Stream(seed, ("eval",))
        work = Blocks(target, labelled, columns, rng, batch, each, keep, progress or (lambda _: None))
        static = None if static_from is None else _name(static_from)
        result = tally(work.all(), columns, target.spec.classes, protocol, static=static)
        result.warnings = warnings_of(target, labelled, result, attacks, rng.at("checks"), ignore)
        if keep is not None:
            result.run = str(keep.path)
            if next(keep.commits("numbers"), None) is None:
                keep.commit({"state/numbers.json": json.dumps(numbers_table(result)).encode()}, kind="numbers")
            keep.write_stats({"seconds": work.seconds, **result.to_json()})
    return result


def _sizes(eps: Eps) -> tuple[list[float | None], str | None]:
    """The sizes of the ball, growing, and how they were written."""
    if eps is None:
        return [None], None
    parts: Sequence[str | float]
    if isinstance(eps, str):
        parts = split(eps)
    elif isinstance(eps, (int, float)):
        parts = [eps]
    else:
        parts = list(eps)
    sizes = sorted({budget(part) for part in parts})
    if not sizes:
        raise UsageError("eps is empty; give a size such as 0.1 or 8/255, or several for a curve: 0.1,0.2,0.3")
    if len(sizes) > 1 and sizes[0] == 0:
        raise UsageError(f"eps {eps!r} is a list that begins with 0; decimals are written with a point: 0.1")
    return [*sizes], ",".join(map(str, parts))


def _columns(
    model: Model,
    target: Target,
    source: Target | None,
    suite: Any,
    sizes: list[float | None],
    norm: str,
    trained: tuple[Any, ...] | None,
) -> dict[str, Column]:
    """The columns of the evaluation: one a part of the suite, and ``static``."""
    norms.check(norm)
    if trained is None and isinstance(model, str):
        trained = trained_with(model)
    parts: dict[str, dict[str, Bound]] = {}
    for eps in sizes:
        for part, attacks in parts_of(suite, {"eps": eps, "norm": norm}, trained).items():
            named = attacks if len(sizes) == 1 else {f"{label} eps={eps:g}": a for label, a in attacks.items()}
            parts.setdefault(part, {}).update(named)
    columns = {part: Column(target, target, attacks) for part, attacks in parts.items()}
    if source is not None:
        ends = {label: to_the_end(a) for attacks in parts.values() for label, a in attacks.items()}
        columns["static"] = Column(source, target, ends)
    return columns


def _try_out(column: Column) -> None:
    """Refuse attacks and parameters that cannot work before a run folder is made: once on no inputs at all."""
    for label, attack in column.attacks.items():
        require(column.maker, attack.entry.needs, f"attack {label!r}")
        if not attack.from_file:
            none = torch.zeros(0, dtype=torch.int64, device=column.maker.device)
            x = torch.zeros(0, *column.maker.spec.shape, device=column.maker.device)
            attack(column.maker, x, none, rng=Stream(0).rows(none))


def _name(model: object) -> str:
    """A model as text; a live one has no name of its own."""
    return model if isinstance(model, str) else "module"


def _config(
    model: object,
    target: Target,
    data: Data,
    columns: Mapping[str, Column],
    protocol: Mapping[str, Any],
    batch: int,
) -> dict[str, dict[str, Any]]:
    static = {"static": columns["static"].maker.fingerprint()} if "static" in columns else {}
    return {
        "run": {"kind": "eval", "seed": protocol["seed"], "block": batch, "cascade": protocol["cascade"]},
        "target": {"model": _name(model), "fingerprint": target.fingerprint(), **static},
        "data": {"spec": data.name, "fingerprint": data.fingerprint()},
        "suite": dict(protocol["attacks"]),
    }
