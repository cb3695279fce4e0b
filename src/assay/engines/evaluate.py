"""Evaluation: accuracy on clean inputs and under a suite of attacks, with intervals and the whole protocol.

Cases are worked in blocks, each a pure function of its rows: results do not depend on the block size, and a saved
evaluation resumes after its last block.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from assay.core import environment, store
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.specs import steps
from assay.engines.blocks import BLOCK, Blocks, Progress
from assay.engines.cascade import Column
from assay.engines.checks import ignored, warnings_of
from assay.engines.columns import Eps, columns_of, looks_for_the_smallest, sizes_of, white_box
from assay.engines.cost import estimate
from assay.engines.evaluation import Evaluation, numbers_table
from assay.engines.protocol import protocol_of
from assay.engines.session import session
from assay.engines.subject import load_subject
from assay.engines.tally import tally
from assay.recipes.suite import wants_each
from assay.subjects.bench import Data, fitted
from assay.subjects.sources.load import load_target, trained_with
from assay.subjects.target import Target

log = logging.getLogger("assay")

LONG = 30.0  # seconds from which on an estimate is worth a line

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
    skipped = sorted(ignored(ignore))
    target, given, labelled = load_subject(model, data, device=device, mean=mean, std=std)
    source = None
    if static_from is not None:
        source = load_target(static_from, data=given, device=device, mean=mean, std=std)
        if fitted(source, given) is not given:
            raise UsageError("the model of --static-from orders its classes otherwise; retrain one of them")
    sizes, text = sizes_of(eps)
    trained = tuple(steps(seen)) if seen is not None else trained_with(model) if isinstance(model, str) else None
    columns = columns_of(target, source, suite, sizes, norm, trained)
    attacks = white_box(columns)
    each = each or wants_each(suite) or looks_for_the_smallest(attacks)
    protocol = protocol_of(_name(model), target, given, attacks, text, seed=seed, each=each, curve=len(sizes) > 1)
    protocol |= {"parts": {name: list(c.attacks) for name, c in columns.items()}} if "attacks" not in columns else {}
    with ExitStack() as open_for_run:
        open_for_run.enter_context(session(deterministic=deterministic))
        for column in columns.values():
            open_for_run.enter_context(column.maker.ready())
            open_for_run.enter_context(column.judge.ready())
        cost = estimate(target, labelled, (a for c in columns.values() for a in c.attacks.values()))
        if cost.at_most > LONG:
            hint = "; --save NAME makes it resumable" if save is None and isinstance(model, str) else ""
            log.info("this takes %s%s", cost, hint)
        keep = None
        if save is not None:
            config = _config(model, target, given, columns, protocol, batch, skipped)
            keep = open_for_run.enter_context(store.opened(save, config, environment.describe(), fresh=fresh))
        rng = Stream(seed, ("eval",))
        work = Blocks(target, labelled, columns, rng, batch, each, keep, progress or (lambda _: None))
        static = None if static_from is None else _name(static_from)
        result = tally(work.all(), columns, target.spec.classes, protocol, static=static)
        result.warnings = warnings_of(target, labelled, result, attacks, rng.at("checks"), skipped)
        result.ignored = tuple(skipped)
        if keep is not None:
            result.run = str(keep.path)
            if next(keep.commits("numbers"), None) is None:
                keep.commit({"state/numbers.json": json.dumps(numbers_table(result)).encode()}, kind="numbers")
            keep.write_stats({"seconds": work.seconds, **result.to_json()})
    return result


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
    skipped: list[str],
) -> dict[str, dict[str, Any]]:
    """What makes two evaluations the same: the order of the attacks too, which decides what each of them sees."""
    order = [f"{name}/{label}" for name, column in columns.items() for label in column.attacks]
    static = {"static": columns["static"].maker.fingerprint()} if "static" in columns else {}
    return {
        "run": {
            "kind": "eval",
            "seed": protocol["seed"],
            "block": batch,
            "cascade": protocol["cascade"],
            "order": order,
            "ignore": skipped,
        },
        "target": {"model": _name(model), "fingerprint": target.fingerprint(), **static},
        "data": {"spec": data.name, "fingerprint": data.fingerprint()},
        "suite": dict(protocol["attacks"]),
    }
