"""Orders of pools with their measures."""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.prioritise import prioritise
from assay.engines.session import session
from assay.stages.stand_in import StandIn
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench
from papers.lbt_measure import FIRST, Diversity, features_of, found, size_of, within
from papers.lbt_methods import METHODS, PROBABILITIES, Method, params_of
from papers.lbt_subject import POOLS, Params, Pool, Subject, plan_of
from papers.rows import key

STAND_INS = {"cuda": 20_000, "cpu": 512}  # rows of the small nets at once


@dataclass(frozen=True, slots=True)
class Ordered:
    """A pool in the order of one method, and what there is to tell of it."""

    name: str
    order: Tensor
    facts: Mapping[str, Any]


class Ground:
    """One pool of a subject with what all its orders are measured by."""

    def __init__(self, subject: Subject, attack: str) -> None:
        self.subject, self.attack = subject, attack
        self.pool: Pool = subject.pool(attack)

    @cached_property
    def diversity(self) -> Diversity:
        witness = self.subject.witness
        features = features_of(witness, self.pool.x, self.subject.chunks).cpu()
        return Diversity.of(self.pool, features, Stream(0, ("lbt", "clusters")))

    def numbers(self, made: Ordered) -> Params:
        """All numbers of an order."""
        wrong, subject = self.pool.wrong, self.subject
        told = dict(made.facts)
        agree = told.pop("agree", None)
        parts = {}
        if agree is not None:
            told["agreement_pool"] = round(float(agree.double().mean()), 6)
            parts = {
                "agree": within(made.order, agree, wrong),
                "disagree": within(made.order, ~agree, wrong),
            }
        return {
            "n": len(self.pool),
            "faults": self.pool.faults,
            **found(wrong[made.order]),
            **parts,
            "diversity": self.diversity(made.order),
            "diversity_whole": self.diversity.whole(),
            **told,
            "fingerprint": subject.fingerprint,
            "device": subject.device.type,
            "machine": subject.machine,
        }


def protocol(subject: Subject, attack: str, name: str, method: Method, seed: int, how: Mapping[str, Any]) -> Params:
    """What makes a row of an order."""
    return {
        "experiment": "orders",
        "data": subject.data,
        "mut": subject.mut,
        "attack": attack,
        "method": name,
        "seed": seed,
        "by": method.text,
        "how": dict(how),
        **setting(subject, attack),
    }


def setting(subject: Subject, attack: str) -> Params:
    """What rows of one pool share."""
    return {
        "pool": POOLS[attack].to_json(subject.data),
        "base": plan_of(subject.mut, subject.scale),
        "scale": {name: getattr(subject.scale, name) for name in ("train", "pool", "epochs")},
    }


# ---- orders ----


class Orders:
    """Orders of one subject; with one seed a stand-in and its mutants serve all pools and all variants."""

    def __init__(self, subject: Subject, small: bool) -> None:
        self.subject, self.small = subject, small
        self._benches: dict[tuple[str, int, str], Bench] = {}

    def how(self, method: Method) -> Params:
        return params_of(method, self.subject.data, self.small)

    def black(self, name: str, pool: Pool, seed: int, how: Mapping[str, Any], tag: str = "") -> Ordered:
        """The order of a selector that asks the model nothing but labels, or labels with probabilities; mutants of the
        model itself see all of it. Orders of another ``tag`` share no stand-in, and no count of queries.
        """
        method, began = METHODS[name], time.perf_counter()
        bench = self._bench(method, seed, tag)
        pick = bind("selector", method.text, dict(how))
        cases = Cases.of(pool.x)
        with session():
            order: Tensor = pick(bench, cases, len(cases), rng=Stream(seed, ("lbt", "orders")))
        return Ordered(name, order.cpu(), self._facts(bench, pool) | {"seconds": round(time.perf_counter() - began, 2)})

    def _bench(self, method: Method, seed: int, tag: str) -> Bench:
        """The same for all that may see the same."""
        key, subject = (method.group, seed, tag), self.subject
        if key not in self._benches:
            if method.group == "bound":
                target, rows = subject.target, subject.chunks
            else:
                target = Asked(subject.target, labels=method.sees != PROBABILITIES)
                rows = Chunks(STAND_INS[subject.device.type])
            known = subject.labelled if method.group == "rival" else subject.splits.part("train")
            self._benches = {key: Bench(target, chunks=rows, training=known)}  # no others: memory
        return self._benches[key]

    def _facts(self, bench: Bench, pool: Pool) -> Params:
        told: Params = bench.told()
        if isinstance(bench.target, Asked):
            told["queries"] = bench.target.queries.asked
        made = next((kept for kept in bench.kept.values() if isinstance(kept, StandIn)), None)
        if made is not None and isinstance(bench.target, Asked):
            told["agreement"] = round(made.agreement, 6)
            told["agree"] = self.subject.predicted(made.target, pool.x) == pool.pred
        return told

    def white(self, pool: Pool, names: Sequence[str]) -> Iterator[Ordered]:
        """Orders of methods that see probabilities or all of the model, in one call that shares the forward pass."""
        texts = [METHODS[name].text for name in names]
        subject = self.subject
        known, where = subject.splits.part("train"), str(subject.device)
        made = prioritise(subject.target, subject.data_of(pool), by=texts, training=known, device=where)
        for name, one in zip(names, made.methods, strict=True):
            if one.order is None:
                print(f"{subject.title} {pool.name} {name}: no row, {one.why_not}", flush=True)
            else:
                yield Ordered(name, one.order, {"seconds": round(one.seconds, 2)})

    def random(self, pool: Pool, seed: int) -> Ordered:
        order = torch.randperm(len(pool), generator=Stream(seed, ("lbt", "random", pool.name)).generator())
        return Ordered("random", order, {})

    def one(self, name: str, pool: Pool, seed: int) -> Ordered:
        """The order of a method by name."""
        method = METHODS[name]
        if method.group == "random":
            return self.random(pool, seed)
        if method.group == "white":
            return next(self.white(pool, [name]))
        # A rival asks about the pool too, and its queries are to be those of one pool.
        return self.black(name, pool, seed, self.how(method), "" if method.group == "lbt" else pool.name)


# ---- the first of an order, kept for retraining ----


def first_of(orders: Orders, pool: Pool, name: str, seed: int) -> Tensor:
    """The first tenth of an order, as it was kept, or computed."""
    path = _first(orders, pool, name, seed)
    if path.exists():
        return torch.from_numpy(np.load(path, allow_pickle=False))
    made = orders.one(name, pool, seed)
    return keep_first(orders, pool, made, seed)


def keep_first(orders: Orders, pool: Pool, made: Ordered, seed: int) -> Tensor:
    rows = made.order[: size_of(FIRST, len(pool))]
    path = _first(orders, pool, made.name, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, rows.numpy())
    return rows


def _first(orders: Orders, pool: Pool, name: str, seed: int) -> Path:
    """Another file for another pool, and for the same method with other parameters."""
    subject, how = orders.subject, orders.how(METHODS[name])
    told = key({"by": METHODS[name].text, "how": how, "pool": POOLS[pool.name].to_json(subject.data)})
    made_so = hashlib.sha256(told.encode()).hexdigest()[:12]
    parts = (subject.data, subject.mut, subject.fingerprint, pool.name, len(pool), name, made_so, seed)
    return subject.work / "first" / f"{'-'.join(map(str, parts))}.npy"
