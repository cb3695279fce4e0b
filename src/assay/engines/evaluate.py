"""Evaluation: accuracy on clean inputs and under a suite of attacks, with intervals and the whole protocol.

Cases are worked in blocks, each a pure function of its rows: results do not depend on the block size, and a saved
evaluation resumes after its last block.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from assay.core import environment, store
from assay.core.cases import Cases
from assay.core.deadline import limited
from assay.core.errors import BudgetSpent, UsageError
from assay.core.places import known_as
from assay.core.randomness import Stream
from assay.core.registry import Bound, names
from assay.core.specs import steps
from assay.core.store import Store
from assay.core.units import seconds
from assay.engines.asking import answers_in, asked_of, how_to_ask, keep_answers
from assay.engines.block_size import AUTO, size_for
from assay.engines.blocks import Blocks, Progress
from assay.engines.cascade import Column
from assay.engines.checks import ignored, not_made, warnings_of
from assay.engines.cluster import Cluster, cluster_of
from assay.engines.columns import Eps, adaptive, columns_of, looks_for_the_smallest, sizes_of
from assay.engines.cost import estimate, most_asked
from assay.engines.evaluation import Evaluation, numbers_table
from assay.engines.jobs import refuse_black_box
from assay.engines.once_more import once_more
from assay.engines.pool import check_travels
from assay.engines.protocol import protocol_of
from assay.engines.regress import Regress
from assay.engines.saved import keep_evaluation
from assay.engines.session import session
from assay.engines.subject import load_subject
from assay.engines.tally import tally
from assay.recipes.suite import wants_each
from assay.subjects.asked import Asked
from assay.subjects.bench import Data, fitted
from assay.subjects.hurried import hurried
from assay.subjects.sources.black_box import is_black_box, is_onnx
from assay.subjects.sources.hub import pinned
from assay.subjects.sources.load import load_target, trained_with
from assay.subjects.target import Target

log = logging.getLogger("assay")

LONG = 30.0  # seconds from which on an estimate is worth a line

Model = str | nn.Module | Target | Callable[..., Any]


@limited
def evaluate(
    model: Model,
    data: str | Data,
    *,
    suite: Any = "fast",
    eps: Eps = None,
    norm: str = "linf",
    seen: Any = None,
    static_from: Model | None = None,
    regress: Sequence[str | Path] = (),
    save: str | None = None,
    each: bool = False,
    ignore: Sequence[str] = (),
    seed: int = 0,
    batch: int | str = AUTO,
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    amp: bool = False,
    compiled: bool = False,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    call_timeout: str | float | None = None,
    time: str | float | None = None,
    examples: int = 0,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Accuracy of a model, clean and under attack.

    The suite is a cascade: an attack sees only inputs that survived those before it, and its accuracy is what is left
    after it. With ``each``, every attack sees every rightly classified input. Several ``eps`` ("0.1,0.2,0.3") give a
    curve. ``seen`` names the attacks the model was trained with where its checkpoint does not. ``static_from`` adds a
    column of its own: examples made on that other model and judged here. ``save`` keeps every example made in a run of
    that name. ``ignore`` names trust checks that are not to be made. ``regress`` names earlier runs whose failures are
    asked first, each alone three times (see ``assay.replay``); they are told apart and no number counts them.

    A model that only answers is sent at most ``queries`` inputs, asked as ``ask`` says. Where the budget ends first,
    the numbers are of the blocks before and ``complete`` is False; with ``save`` every answer is kept, and the same
    call with a larger budget goes on. A budget that is spent before the first block raises ``BudgetSpent``.

    With ``time`` no block is begun that would not end in it, going by the longest so far; the trust checks come after.
    ``examples`` is how many inputs that fool the model are handed back, for those who save none.

    ``batch`` are the cases of a block; "auto" is what fits in the memory of a GPU, 256 on a CPU. With ``ray`` (local,
    auto or an address) blocks are worked by ``workers`` of a Ray cluster, each with a ``gpu_share`` of a GPU where the
    model is on one; the numbers are the same. Seconds of attacks are then summed over the workers.

    With ``amp`` attacks that take no gradients ask the model in bfloat16, with ``compiled`` all ask a compiled one;
    their examples are judged by the model as it is, in float32.

    Where the model raises, or takes longer than ``call_timeout`` for one call, its block is done once more; a second
    time ends the evaluation, for a number over the inputs that it can take would be another one.
    """
    cluster = cluster_of(ray, workers, gpu_share)
    if cluster is not None:
        refuse_black_box(model, queries, ask, white_box=white_box)
    model, static_from = pinned(model), pinned(static_from)
    skipped = sorted(ignored(ignore))
    old = Regress.of(regress, save, fresh=fresh, device=device, mean=mean, std=std)
    target, given, labelled = load_subject(
        model,
        data,
        device=device,
        mean=mean,
        std=std,
        queries=queries,
        ask=ask,
        white_box=white_box,
        answers=answers_in(save, fresh=fresh),
    )
    source = None
    if static_from is not None:
        opened = white_box and is_onnx(static_from)
        source = load_target(static_from, data=given, device=device, mean=mean, std=std, white_box=opened)
        if fitted(source, given) is not given:
            raise UsageError("the model of --static-from orders its classes otherwise; retrain one of them")
    sizes, text = sizes_of(eps)
    told = isinstance(model, str) and not is_black_box(model)
    trained = tuple(steps(seen)) if seen is not None else trained_with(str(model)) if told else None
    columns = columns_of(target, source, suite, sizes, norm, trained)
    attacks = adaptive(columns)
    each = each or wants_each(suite) or looks_for_the_smallest(attacks)
    protocol = protocol_of(_name(model), target, given, attacks, text, seed=seed, each=each, curve=len(sizes) > 1)
    protocol |= {"parts": {name: list(c.attacks) for name, c in columns.items()}} if "attacks" not in columns else {}
    if cluster is not None:
        check_travels(*(side for column in columns.values() for side in (column.maker, column.judge)))
    limited = next(iter(columns.values())).limited
    protocol |= {"limited": dict(limited)} if limited else {}
    protocol |= {"amp": True} if amp else {}
    with ExitStack() as open_for_run:
        open_for_run.enter_context(session(deterministic=deterministic))
        for column in columns.values():
            open_for_run.enter_context(column.maker.ready())
            open_for_run.enter_context(column.judge.ready())
        _foretell(target, labelled, columns, "" if save is not None or not isinstance(model, str) else "--save NAME")
        size = size_for(
            batch,
            target,
            labelled,
            save=save,
            fresh=fresh,
            fixed=deterministic,
            timed=time is not None,
            cluster=cluster,
        )
        columns = {name: open_for_run.enter_context(_in_a_hurry(c, amp, compiled, size)) for name, c in columns.items()}
        keep = None
        if save is not None:
            config = _config(model, target, given, columns, protocol, size, skipped) | how_to_ask(ask, queries)
            config |= old.config()
            config["run"] |= {"amp": True} if amp else {}
            keep = open_for_run.enter_context(store.opened(save, config, environment.describe(), fresh=fresh))
            keep_answers(target, keep.path)
        rng, tell = Stream(seed, ("eval",)), progress or (lambda _: None)
        regressed = old.all(target, _name(model), keep, tell)
        left = None if time is None else seconds(time)
        work = Blocks(
            target,
            labelled,
            columns,
            rng,
            size,
            each,
            keep,
            tell,
            time_left=left,
            examples=examples,
            cluster=cluster,
            deterministic=deterministic,
        )
        static = None if static_from is None else _name(static_from)
        blocks = work.all()
        if work.spent is not None and not blocks:
            raise work.spent
        result = tally(blocks, columns, target.spec.classes, protocol, static=static)
        result.complete, result.protocol["n"] = work.spent is None and not work.late, result.clean.n
        result.blocks, result.examples = tuple(blocks), Cases.cat(work.examples) if work.examples else None
        result.classes = target.spec.classes
        result.access = "white box" if "grad" in target.gives else "black box"
        result.ignored, result.regress = tuple(skipped), regressed
        measured = labelled[: result.clean.n] if work.late else labelled
        _check(result, target, measured, attacks, rng.at("checks"), spent=work.spent is not None)
        result.queries = asked_of(target)
        if keep is not None:
            _keep(keep, result, work)
    return result


@contextmanager
def _in_a_hurry(column: Column, amp: bool, compiled: bool, rows: int) -> Iterator[Column]:
    """The column with a faster maker of examples, where one is asked for; who judges stays."""
    maker = hurried(column.maker, amp=amp, compiled=compiled, rows=rows, replay=True)
    with maker.ready():
        yield replace(column, maker=maker)


def _foretell(target: Target, cases: Cases, columns: Mapping[str, Column], resumable: str) -> None:
    """Tell what is coming where it is much: seconds, or questions of a black box, which is not timed for nothing."""
    attacks = [attack for column in columns.values() for attack in column.attacks.values()]
    if isinstance(target, Asked):
        limit = "" if target.queries.limit is None else f"; the budget is {target.queries.limit}"
        log.info(
            "this asks up to about %d inputs, if each withstands every attack%s", most_asked(cases, attacks), limit
        )
        return
    cost = estimate(target, cases, attacks)
    if cost.at_most > LONG:
        log.info("this takes %s%s", cost, f"; {resumable} makes it resumable" if resumable else "")


def _check(
    result: Evaluation, target: Target, cases: Cases, attacks: Mapping[str, Bound], rng: Stream, *, spent: bool
) -> None:
    """The trust checks, as far as target and budget allow them."""
    result.not_made = {name: why for name, why in not_made(target).items() if name not in result.ignored}
    try:
        if not spent:
            result.warnings = once_more(
                lambda: warnings_of(target, cases, result, attacks, rng, result.ignored), "in the trust checks"
            )
            return
    except BudgetSpent:
        log.warning("the budget of queries is spent before the trust checks are made")
    left = set(names("check")) - set(result.ignored) - set(result.not_made)
    result.not_made |= dict.fromkeys(sorted(left), "the budget of queries is spent")


def _keep(keep: Store, result: Evaluation, work: Blocks) -> None:
    """The numbers in the run; those of a part of the inputs are for people to look at only."""
    result.run = known_as(keep.path)
    if result.complete and next(keep.commits("numbers"), None) is None:
        keep.commit({"state/numbers.json": json.dumps(numbers_table(result)).encode()}, kind="numbers")
    if result.complete:
        keep_evaluation(keep, result)
    keep.write_stats(
        {"seconds": work.seconds, **({"workers": work.workers} if work.workers else {}), **result.to_json()}
    )


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
