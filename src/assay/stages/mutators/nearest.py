"""CAGFuzz's choice among candidates: of several mutants of a case those whose deep features are most like its own."""

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.core.cases import Cases, check_made
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import Bound, bind, register
from assay.core.specs import step
from assay.stages.extractors import Features, extractor_of, features_of
from assay.stages.extractors.similarity import cosine
from assay.stages.workshop import REHEARSAL, NotYet
from assay.subjects.bench import Bench
from assay.subjects.target import START, require

CONTROLS = {"": "", "noise": "noise_as", "fgsm": "fgsm_as"}
SAME = -1.0  # the similarity noted of a candidate that is the case itself, or another candidate once more
LANE, LINE = "lane_", "line_"


@register("mutator", paper="CAGFuzz 2022", needs=("start",))
def nearest(
    bench: Bench,
    cases: Cases,
    *,
    rng: Rows,
    of: str = "cyclegan",
    candidates: int = 10,
    top: int = 5,
    features: str = "reference",
    control: str = "",
) -> Cases:
    """One after the other the ``top`` of ``candidates`` mutants by ``of`` whose features are most like the case's own.

    Candidates are made when a lane begins with a case, and again whenever all of the ``top`` were handed out; the
    mutator is told which candidate it makes in the column ``candidate``, which grows when a case is taken again.
    A candidate that changes nothing, or that an earlier one is equal to, comes last. With a ``control`` each candidate
    is replaced by one as far from the case: ``noise`` in a random direction, ``fgsm`` up the target's loss.

    Columns: ``line_cosine`` the similarity (cosine) to the case it was made of, ``line_root`` that to the root of the
    line; ``lane_x``, ``lane_cosine`` and ``lane_root`` what is still to be handed out.

    Formula: of candidates x'ᵢ = of(x) the top by cos(f(x'ᵢ), f(x)), f the features.
    """
    if not 1 <= top <= candidates:
        raise UsageError(f"nearest: top from 1 up to candidates; got top={top}, candidates={candidates}")
    make = _inner(bench, of, control)
    # Before anything is made: what cannot work is refused in the rehearsal, and else before a generator is trained.
    found = _extractor(bench, features, some=bool(len(cases)))
    done = cases.info.get("step", torch.zeros_like(cases.origin))
    rows = _to_make(cases, done, top)
    lanes = {name: values for name, values in cases.info.items() if name.startswith(LANE)}
    if len(rows) or not len(cases):
        chosen = cases.drop(*lanes)[rows]
        number = (_sets_before(cases, top) + done // top)[rows] * candidates
        columns = _candidates(bench, make, chosen, number, rng[rows], candidates)
        lanes = _laid(lanes, len(cases), rows, _best(bench, found, chosen, columns, top))
    at = torch.arange(len(cases), device=cases.x.device), done % top
    handed = {name.removeprefix(LANE): values[at] for name, values in lanes.items()}
    x = handed.pop("x")
    lines = {name if name.startswith(LINE) else f"{LINE}{name}": values for name, values in handed.items()}
    return cases.with_x(x).note(**lanes, **lines)


def _sets_before(cases: Cases, top: int) -> Tensor:
    """How many sets of candidates were made of each case when it was taken before, (N,)."""
    taken = cases.info.get("taken", torch.zeros_like(cases.origin))
    each = cases.info.get("tried", taken * top) // taken.clamp_min(1)  # cases made every time
    return taken * ((each + top - 1) // top)  # a set that was begun is done with


def _extractor(bench: Bench, features: str, *, some: bool) -> Features | None:
    """The features; None where there are no cases and they would have to be trained first."""
    extractor_of(features)
    if not some and REHEARSAL not in bench.kept:
        return None
    try:
        return features_of(bench, features)
    except NotYet:
        return None


def _inner(bench: Bench, of: str, control: str) -> Bound:
    """The mutator that makes candidates; refused where it cannot work on this target."""
    if control not in CONTROLS:
        raise UsageError(f"nearest: control is {' or '.join(filter(None, CONTROLS))}, or nothing; got {control!r}")
    name, params = step(of)
    bind("mutator", name, params)
    if control:
        name, params = CONTROLS[control], {"of": of}
    make = bind("mutator", name, params)
    require(bench.target, set(make.entry.needs) - {START}, f"mutator {make.entry.name!r}")
    return make


def _to_make(cases: Cases, done: Tensor, top: int) -> Tensor:
    """The rows whose lanes have nothing left to hand out, or hold nothing yet."""
    due = done % top == 0
    if f"{LANE}x" not in cases.info:
        return torch.arange(len(cases), device=cases.x.device)
    held = [cases.info[f"{LANE}{name}"] != 0 for name in ("cosine", "root")]
    return (due | ~(held[0] | held[1]).any(1)).nonzero().squeeze(1)


def _candidates(
    bench: Bench, make: Bound, cases: Cases, number: Tensor, rng: Rows, candidates: int
) -> dict[str, Tensor]:
    """What the mutator makes of each case, ``x`` (N, candidates, *shape), and the columns it hands down, likewise."""
    parts: list[dict[str, Tensor]] = []
    for i in range(candidates):
        made = make(bench, cases.note(candidate=number + i), rng=rng.at(i))
        x = check_made(made.x if isinstance(made, Cases) else made, cases.x, f"mutator {make.entry.name!r}")
        down = made.info if isinstance(made, Cases) else {}
        parts.append({"x": x, **{name: values for name, values in down.items() if name.startswith(LINE)}})
    # Of the lines that the cases came with, only what this mutator hands on: similarities are measured anew.
    own = parts[0].keys() - {"line_cosine", "line_root"}
    return {name: torch.stack([part[name] for part in parts], 1) for name in parts[0] if name in own}


def _best(
    bench: Bench, features: Features | None, cases: Cases, columns: Mapping[str, Tensor], top: int
) -> dict[str, Tensor]:
    """The ``top`` candidates of each case with their similarities, the most similar first; ties as they were made."""
    x = columns["x"]
    if features is None:
        to_parent = to_root = x.new_zeros(x.shape[:2], dtype=torch.float32)
    else:
        to_parent, to_root = _similarities(bench, features, cases, x)
    again = _repeated(cases.x, x)
    # Below all similarities there are, so that what repeats comes after what is merely unlike.
    order = to_parent.masked_fill(again, 2 * SAME).argsort(dim=1, descending=True, stable=True)[:, :top]
    to_parent, to_root = (values.masked_fill(again, SAME) for values in (to_parent, to_root))
    at = torch.arange(len(x), device=x.device)[:, None], order
    return {name: values[at] for name, values in {**columns, "cosine": to_parent, "root": to_root}.items()}


def _similarities(bench: Bench, features: Features, cases: Cases, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of each candidate to its parent and to the root of its line, (N, candidates) each."""
    of_made = bench.chunks.map(features, x.flatten(0, 1)).unflatten(0, x.shape[:2])
    of_parent = bench.chunks.map(features, cases.x)
    moved = (cases.x != cases.parent).flatten(1).any(1).nonzero().squeeze(1)
    of_root = of_parent.clone()  # a parent that is the root itself needs no second look
    if len(moved):
        of_root[moved] = bench.chunks.map(features, cases.parent[moved])
    return cosine(of_made, of_parent[:, None]), cosine(of_made, of_root[:, None])


def _repeated(parent: Tensor, x: Tensor) -> Tensor:
    """Which candidates are their parent to the bit, or an earlier candidate, (N, candidates)."""
    each = (parent, *x.unbind(1))
    # Pair by pair: all at once would take as much memory again as large images do.
    pairs = [[(one == each[i]).flatten(1).all(1) for one in each[:i]] for i in range(1, len(each))]
    return torch.stack([torch.stack(known).any(0) for known in pairs], 1)


def _laid(lanes: Mapping[str, Tensor], n: int, rows: Tensor, best: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What lanes hold, with these rows written over; of lanes that held nothing, all rows are there."""
    if len(rows) == n:
        return {f"{LANE}{name}": values for name, values in best.items()}
    laid = {}
    for name, values in best.items():
        laid[f"{LANE}{name}"] = lanes[f"{LANE}{name}"].clone()
        laid[f"{LANE}{name}"][rows] = values
    return laid
