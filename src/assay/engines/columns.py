"""The columns of an evaluation: which attacks make examples on which model, and who judges them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.specs import split
from assay.core.units import budget
from assay.engines.cascade import Column
from assay.engines.protocol import portable, to_the_end
from assay.recipes.fitting import suites_for
from assay.recipes.suite import parts_of, possible
from assay.subjects.target import Need, Target, require

log = logging.getLogger("assay")

Eps = str | float | Sequence[float] | None


def sizes_of(eps: Eps) -> tuple[list[float | None], str | None]:
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


def columns_of(
    target: Target,
    source: Target | None,
    suite: Any,
    sizes: list[float | None],
    norm: str,
    trained: tuple[Any, ...] | None,
) -> dict[str, Column]:
    """One column a part of the suite, and ``static`` where there is a ``source``; each tried out on no inputs."""
    norms.check(norm)
    parts: dict[str, dict[str, Bound]] = {}
    streams: dict[str, str] = {}
    limited: dict[str, str] = {}
    for eps in sizes:
        for part, attacks in parts_of(suite, {"eps": eps, "norm": norm}, trained).items():
            allowed, why = possible(attacks, len(target.spec.classes))
            limited |= why
            for label, attack in allowed.items():
                if len(sizes) > 1 and attack.params.get("eps") != eps:
                    raise UsageError(f"attack {label!r} has an eps of its own or none, and no curve over eps")
                shown = label if len(sizes) == 1 else f"{label} eps={eps:g}"
                parts.setdefault(part, {})[shown], streams[shown] = attack, label
    for label, why_not in limited.items():
        log.warning("attack %s is %s", label, why_not)
    columns = {part: Column(target, target, attacks, streams, limited) for part, attacks in parts.items()}
    if source is not None:
        if set(parts) != {"attacks"}:
            raise UsageError("--static-from and --suite seen,unseen are two tables; evaluate them one after the other")
        for label, attack in parts["attacks"].items():
            portable(label, attack)
        ends = {label: to_the_end(attack) for label, attack in parts["attacks"].items()}
        columns["static"] = Column(source, target, ends, streams)
    for column in columns.values():
        _try_out(column)
    return columns


def adaptive(columns: Mapping[str, Column]) -> dict[str, Bound]:
    """The attacks of all columns but ``static``, in order."""
    return {label: a for name, c in columns.items() if name != "static" for label, a in c.attacks.items()}


def looks_for_the_smallest(attacks: Mapping[str, Bound]) -> bool:
    """Whether every attack looks for the smallest change: in a cascade only the first would find any."""
    return all("eps" in attack.params and attack.params["eps"] is None for attack in attacks.values())


def suites_told(gives: frozenset[Need]) -> str:
    """The suites for a target that gives no more, as a refusal names them."""
    return f"suites: {', '.join(suites_for(gives))}"


def _try_out(column: Column) -> None:
    """Refuse attacks and parameters that cannot work before a run folder is made: once on no inputs at all."""
    for label, attack in column.attacks.items():
        require(column.maker, attack.entry.needs, f"attack {label!r}", suites_told)
        if not attack.from_file:
            none = torch.zeros(0, dtype=torch.int64, device=column.maker.device)
            x = torch.zeros(0, *column.maker.spec.shape, device=column.maker.device)
            attack(column.maker, x, none, rng=Stream(0).rows(none))
