"""Surprise on a bench: what is fitted once to the data the target was trained with, and asked for cases."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.subjects.bench import Bench
from assay.subjects.observer import Observer

HELD_OUT = 10  # one of so many training cases tells how surprising the usual is

Surprise = Callable[[Tensor, Tensor], Tensor]  # traces (N, W) and groups (N,) to surprise (N,)


def surprise(
    bench: Bench,
    cases: Cases,
    name: str,
    fit: Callable[[Tensor, Tensor, int], Surprise],
    *,
    layers: str,
    per_class: bool = True,
) -> Tensor:
    """The surprise at the cases, (N,): ``fit`` to training traces, their groups and the number of groups, once.

    ``name`` tells apart what is fitted: the measure with all its parameters. Groups are the predicted classes, with
    ``per_class=False`` there is one. The result has the type of the traces; what is finite stays so.
    """

    def grouped(labels: Tensor) -> Tensor:
        return labels if per_class else torch.zeros_like(labels)

    def fitted() -> Surprise:
        traces, logits = training_traces(bench, name, layers)
        return fit(traces, grouped(logits.argmax(1)), logits.shape[1] if per_class else 1)

    measure = bench.once(f"surprise {name} {layers} {per_class}", fitted)
    traces, logits = looked_at(bench, cases, layers)
    values = measure(traces, grouped(logits.argmax(1)))
    largest = torch.finfo(traces.dtype).max
    return torch.where(values.isinf(), values, values.clamp(-largest, largest)).to(traces.dtype)


def looked_at(bench: Bench, cases: Cases, layers: str) -> tuple[Tensor, Tensor]:
    """Traces (N, W) and logits (N, K) of the cases, from their columns or by one pass; with a graph where x has one."""
    observer = observer_of(bench, layers)
    climbing = torch.is_grad_enabled() and cases.x.requires_grad
    if "logits" in cases.info and not (climbing and "neurons" not in cases.info):
        traces = bench.traces(cases, layers)
        if not climbing or traces.requires_grad:
            return traces, cases.info["logits"]
    seen = observer(cases.x.to(bench.target.device)) if climbing else observer.all(cases.x, bench.chunks)
    return seen.neurons, seen.logits


def training_traces(bench: Bench, name: str, layers: str) -> tuple[Tensor, Tensor]:
    """Traces and logits of the training data, looked at once for all measures."""
    data = bench.training
    if data is None or not len(data):
        raise UsageError(
            f"{name.partition('(')[0]} compares with the data the target was trained on, and these are not known here; "
            "give --training, such as mnist/train"
        )
    traces, logits = bench.once(_looked_at(layers), lambda: looked_at(bench, data.cases, layers))
    broken = int((~traces.isfinite()).any(1).sum())
    if broken:
        raise UsageError(f"the target answers {broken} cases of {data.name} with neurons that are not finite numbers")
    return traces, logits


def held_out(bench: Bench, name: str, layers: str) -> tuple[Bench, Cases]:
    """Every tenth training case, with columns of what was seen of it, and a bench that knows the other nine tenths.

    Nothing is looked at twice: both have their traces from those of all training cases.
    """
    traces, logits = training_traces(bench, name, layers)
    assert bench.training is not None  # it has just been looked at
    cases = bench.training.cases
    out = torch.arange(len(cases)) % HELD_OUT == HELD_OUT - 1
    here = out.to(traces.device)
    observer = observer_of(bench, layers)
    rest = replace(
        bench,
        observer=observer,
        training=replace(bench.training, cases=cases[~out]),
        kept={_observer(layers): observer, _looked_at(layers): (traces[~here], logits[~here])},
    )
    return rest, cases[out].note(logits=logits[here], neurons=traces[here])


def observer_of(bench: Bench, layers: str) -> Observer:
    """What looks at these layers of the target, as ``bench.traces`` keeps it."""
    return bench.once(_observer(layers), lambda: Observer.of([bench.target], layers))


def _observer(layers: str) -> str:
    return f"layers {layers}"


def _looked_at(layers: str) -> str:
    return f"training {layers}"


def check_jitter(who: str, jitter: float) -> None:
    if not 0 <= jitter < torch.inf:
        raise UsageError(f"{who}: jitter is a share of the mean variance and must not be negative, got {jitter}")


def check_count(who: str, what: str, value: int, least: int = 1) -> None:
    if value < least:
        raise UsageError(f"{who}: {what} must be at least {least}, got {value}")
