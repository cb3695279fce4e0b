"""The transfer matrix: examples made on one model, judged by the others."""

import logging
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from assay.core import deadline
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.units import budget
from assay.engines.blocks import BLOCK, Progress
from assay.engines.cascade import Block, Column, run_suite
from assay.engines.cluster import Cluster, cluster_of
from assay.engines.columns import suites_told
from assay.engines.evaluation import Share
from assay.engines.jobs import InTurn, Raised, Rows, refuse_black_box
from assay.engines.jobs import done as finished
from assay.engines.pool import Pool, check_travels, pool
from assay.engines.protocol import portable, protocol_of, to_the_end
from assay.engines.session import session
from assay.engines.subject import load_subject
from assay.recipes.suite import attacks_of, possible
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.black_box import is_black_box, is_onnx
from assay.subjects.target import Target, answer, require

log = logging.getLogger("assay")


@dataclass(frozen=True, slots=True)
class Transfer:
    """``fooled[a][b]``: of the inputs that a and b both get right, those that b gets wrong as attacked on a.

    Where a and b are one model the number is white-box and stands in ``white_box``, not in the matrix. A share counts
    an input as fooled where any attack of the suite fooled it; ``Share.right`` is their number.
    """

    models: tuple[str, ...]
    fooled: dict[str, dict[str, Share]]
    white_box: dict[str, Share]
    protocol: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        def told(share: Share) -> dict[str, Any]:
            rate = share.to_json()
            return {"rate": rate.pop("accuracy"), **rate} if share.n else {"rate": None, "n": 0}

        return {
            "models": list(self.models),
            "fooled": {a: {b: told(share) for b, share in row.items()} for a, row in self.fooled.items()},
            "white_box": {a: told(share) for a, share in self.white_box.items()},
            "protocol": self.protocol,
        }


@deadline.limited
def transfer(
    models: Sequence[Any],
    data: str | Data,
    *,
    suite: Any = "pgd",
    eps: str | float | None = None,
    norm: str = "linf",
    names: Sequence[str] = (),
    ask: str = "",
    white_box: bool = False,
    seed: int = 0,
    batch: int = BLOCK,
    device: str = "auto",
    deterministic: bool = False,
    call_timeout: str | float | None = None,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    progress: Progress | None = None,
) -> Transfer:
    """Attack every model and judge what comes out by every other; gradient attacks go on after their first success.

    ``ask`` says how those are asked that only answer; ``white_box`` opens those of them that are ONNX files.
    One that takes longer than ``call_timeout`` for one call ends it. With ``ray`` (local, auto or an address) blocks
    are worked by ``workers`` of a Ray cluster, each with a ``gpu_share`` of a GPU where the models are on one.
    """
    cluster = cluster_of(ray, workers, gpu_share)
    labels = tuple(names) or tuple(m if isinstance(m, str) else f"model {i}" for i, m in enumerate(models, 1))
    if len(models) < 2 or len(set(labels)) != len(models):
        raise UsageError("a transfer matrix needs two or more models, each with a name of its own")
    given = load_data(data, part="test", like=models[0])
    targets: dict[str, Target] = {}
    for label, model in zip(labels, models, strict=True):
        closed = is_black_box(model)
        opened = white_box and is_onnx(model)
        how = ask if closed and not opened else ""
        if cluster is not None:
            refuse_black_box(model, None, how, white_box=opened)
        targets[label], own, cases = load_subject(model, given, device=device, ask=how, white_box=opened)
        if own is not given:
            raise UsageError(f"{label} orders its classes otherwise than the data; retrain it on these data")
    first = next(iter(targets.values()))
    offered = {"eps": None if eps is None else budget(eps), "norm": norm}
    allowed, limited = possible(attacks_of(suite, offered), len(first.spec.classes))
    for label, why in limited.items():
        log.warning("attack %s is %s", label, why)
    attacks = {label: to_the_end(a) for label, a in allowed.items()}
    text = None if eps is None else str(eps)
    protocol = protocol_of("", first, given, attacks, text, seed=seed, each=True, curve=False)
    protocol |= {"model": list(labels), "model_fingerprint": [t.fingerprint() for t in targets.values()]}
    protocol |= {"limited": limited} if limited else {}
    for target in targets.values():
        for label, attack in attacks.items():
            require(target, attack.entry.needs, f"attack {label!r}", suites_told)
            portable(label, attack)
    if cluster is not None:
        check_travels(*targets.values())
    work = _Work(targets, attacks, Stream(seed, ("transfer",)), Chunks(batch))
    rates, total = _Rates(tuple(targets)), len(targets) * len(cases)
    jobs = [_Job(name, slice(i, min(i + batch, len(cases)))) for name in targets for i in range(0, len(cases), batch)]
    with ExitStack() as stack:
        stack.enter_context(session(deterministic=deterministic))
        for target in targets.values():
            stack.enter_context(target.ready())
        done = 0
        with closing(_all(work, cases, jobs, cluster, deterministic=deterministic)) as counted:
            for job, counts, state in counted:
                rates.add(job.maker, counts)
                done += job.rows.stop - job.rows.start
                if progress is not None:
                    progress({"done": done, "of": total, **({"workers": state} if state else {})})
    return rates.result(protocol)


Counts = dict[str, tuple[int, int]]  # by the judge: inputs that maker and judge both get right, fooled and all


class _Job(NamedTuple):
    """Attack these rows on that model."""

    maker: str
    rows: slice


@dataclass(frozen=True, slots=True)
class _Work:
    """All that the counts of a block depend on besides its rows and where it is attacked."""

    targets: dict[str, Target]
    attacks: dict[str, Bound]
    rng: Stream
    chunks: Chunks

    def __call__(self, name: str, cases: Cases) -> Counts:
        maker = self.targets[name]
        cases = cases.to(maker.device)
        right = {b: answer(t, cases.x, self.chunks).argmax(1) == cases.y for b, t in self.targets.items()}
        outcome, column = Block(cases.y.cpu(), right[name].cpu()), Column(maker, maker, self.attacks)
        made = Cases.cat(run_suite(column, cases, right[name], self.rng, self.chunks, outcome, "made", each=True))
        rows = right[name].nonzero().flatten().cpu().repeat(len(self.attacks))  # attack by attack, as they were made
        counts: Counts = {}
        for b, judge in self.targets.items():
            if name == b:
                wrong = made.info["success"]
            else:
                scores = answer(judge, made.x, self.chunks).cpu()
                wrong = ((scores.argmax(1) != made.y) | ~scores.isfinite().all(1)) & made.info["allowed"]
            fooled = torch.zeros(len(cases), dtype=torch.bool)
            fooled[rows[wrong]] = True
            both = (right[name] & right[b]).cpu()
            counts[b] = int((fooled & both).sum()), int(both.sum())
        return counts


def _made(work: _Work, cases: Rows) -> InTurn[_Job, Counts]:
    opened = ExitStack()  # for as long as the process lasts
    for target in work.targets.values():
        opened.enter_context(target.ready())
    return InTurn(lambda job: work(job.maker, cases[job.rows]), opened)


def _all(
    work: _Work, cases: Cases, jobs: list[_Job], cluster: Cluster | None, *, deterministic: bool
) -> Generator[tuple[_Job, Counts, dict[str, int]], None, None]:
    """Every job with its counts, in order, and how the workers are where there are some."""
    if cluster is None:
        for job in jobs:
            yield job, work(job.maker, cases[job.rows]), {}
        return
    make, device = partial(_made, work, Rows.of(cases)), str(next(iter(work.targets.values())).device)
    workers: Pool[_Job, Counts | Raised]
    with pool(cluster, make, device=device, deterministic=deterministic) as workers:
        for job, result in workers.map(jobs, lambda: False):
            where = f"in cases {job.rows.start} to {job.rows.stop - 1} on {job.maker}"
            yield job, finished(result, where), workers.state()


class _Rates:
    """Counts of all blocks, added up."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self.models = models
        self.counts = {a: {b: [0, 0] for b in models} for a in models}

    def add(self, name: str, counts: Counts) -> None:
        for b, (fooled, both) in counts.items():
            self.counts[name][b][0] += fooled
            self.counts[name][b][1] += both

    def result(self, protocol: dict[str, Any]) -> Transfer:
        shares = {a: {b: Share(*count) for b, count in row.items()} for a, row in self.counts.items()}
        white = {a: row.pop(a) for a, row in shares.items()}
        return Transfer(self.models, shares, white, protocol)
