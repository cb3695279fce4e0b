"""The failures that a report shows, read from any kind of run; what cannot be read is named, not passed over."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.core import norms, store
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.images import ssim, unit_range
from assay.core.norms import Norm
from assay.core.shards import decode
from assay.core.store import Store
from assay.engines.found import as_cases
from assay.engines.kinds import kinds_of
from assay.engines.shrinkings import kept, shrinkings
from assay.engines.stored import class_names, identity_of, keeps_all, kind_of, round_folders

UNIT = (0.0, 1.0)
_NORM = re.compile(r"\bnorm=(linf|l2|l1|l0)\b")
_CLASSES = 10_000_000  # more than any model has: names for all of them would fill the memory
_CHUNK = 2048  # rows that are compared with their seeds at a time


@dataclass(frozen=True, slots=True)
class Shown:
    """Failing cases with the columns ``pred``, ``seed_x``, ``seeded`` (false where the seed is not known, and the case
    stands for it), ``maker``, ``round``, ``kind_of_failure``, ``size`` (in ``norm``), ``linf``, ``l2``, ``ssim`` and
    ``confidence``, NaN where one is not known.

    ``makers`` are the recipe, or the attacks of an evaluation; ``missing`` says what could not be read; ``smaller`` are
    the shrunk forms of some, with the row of each.
    """

    cases: Cases
    classes: tuple[str, ...]
    bounds: tuple[float, float]
    norm: Norm
    makers: tuple[str, ...]
    missing: tuple[str, ...] = ()
    smaller: Cases | None = None
    kinds: bool = True  # whether kinds could be told
    every: bool = False  # whether it is a pool of cases, failing or not

    def __len__(self) -> int:
        return len(self.cases)


@dataclass(slots=True)
class _Read:
    """What was read so far."""

    parts: list[Cases] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, run: Store, files: Sequence[str], made: Any) -> None:
        """The cases of a shard; one that is damaged is named."""
        for name in files:
            if name.startswith("cases/"):
                try:
                    self.parts.append(made(run, name))
                except UsageError as error:
                    self.missing.append(str(error))


def shown(run: Store) -> Shown | None:
    """The failures of a run, None where it holds none and nothing is amiss."""
    kind, read = kind_of(run), _Read()
    makers: tuple[str, ...] = (str(identity_of(run).get("recipe", {}).get("name", "?")),)
    if any(run.commits("eval")):
        order = identity_of(run).get("run", {}).get("order", [])
        makers = _attacks(order)
        for line in run.commits("eval"):
            read.add(run, list(line.files), _Block(run, line.files, makers, order))
    elif kind == "harden":
        for number, path in round_folders(run.path):
            _fuzzed(store.read(path), read, number)
    else:
        _fuzzed(run, read, 0)
    read.missing += run.damage
    parts = [part for part in map(_whole, read.parts) if len(part)]
    if not parts:
        return None
    cases = Cases.cat(parts)
    # Rows of shrunk cases count all failures: with a shard gone they would name others.
    smaller = None if read.missing or kind != "fuzz" else _smaller(run, cases)
    bounds = _bounds(run, cases)
    cases, known = _with_kinds(cases)
    cases = _measured(cases, bounds, norm := _norm(run))
    every = kind == "fuzz" and keeps_all(run)
    return Shown(cases, _classes(run, cases), bounds, norm, makers, tuple(read.missing), smaller, known, every)


def _fuzzed(run: Store, read: _Read, number: int) -> None:
    def made(run: Store, name: str) -> Cases:
        cases = as_cases(run, name)
        zero = torch.zeros(len(cases), dtype=torch.int64)
        return cases.note(seeded=zero == 0, maker=zero, round=zero + number)

    for line in run.commits("fuzz"):
        read.add(run, list(line.files), made)


class _Block:
    """The examples of a block of an evaluation that fool its target, with the clean inputs where they were kept."""

    def __init__(self, run: Store, files: Any, makers: tuple[str, ...], order: Sequence[str]) -> None:
        self.state = next((name for name in files if name.startswith("state/")), "")
        self.makers, self.static = makers, [i for i, key in enumerate(order) if key.startswith("static/")]
        self.white = [i for i, key in enumerate(order) if not key.startswith("static/")]

    def __call__(self, run: Store, name: str) -> Cases:
        columns = decode(run.file(name))
        x, y, origin = (columns.pop(key) for key in ("x", "y", "origin"))
        cases = Cases(x, y, origin, columns)[columns["success"].bool()]
        clean = decode(run.file(self.state)) if self.state else {}
        seeds, seeded = cases.x, torch.zeros(len(cases), dtype=torch.bool)
        if "x" in clean and len(clean["x"]):
            known, place = clean["origin"].sort()
            at = torch.searchsorted(known, cases.origin).clamp_max(len(known) - 1)
            seeds, seeded = clean["x"][place[at]], known[at] == cases.origin
        zero = torch.zeros(len(cases), dtype=torch.int64)
        return cases.note(seed_x=seeds, seeded=seeded, maker=self._maker(cases), round=zero)

    def _maker(self, cases: Cases) -> Tensor:
        """The place of each one's attack among the makers: its own column has its place in the suite."""
        attack, static = cases.info["attack"], cases.info["static"].bool()
        white, other = (torch.tensor(part or [0]) for part in (self.white, self.static))
        chosen = torch.where(static, other[attack.clamp_max(len(other) - 1)], white[attack.clamp_max(len(white) - 1)])
        return chosen.clamp_max(len(self.makers) - 1)


def _attacks(order: Sequence[str]) -> tuple[str, ...]:
    """The attacks of an evaluation as people call them; those of a static column were made on another model."""
    parts = [str(key).partition("/")[::2] for key in order]
    names = [f"{label} (made on another model)" if column == "static" else label for column, label in parts]
    return tuple(names) or ("?",)


def _whole(cases: Cases) -> Cases:
    """The cases with what older runs did not keep, as not known."""
    blank = torch.full((len(cases),), torch.nan)
    return cases.note(**{name: blank for name in ("confidence", "linf", "l2", "ssim") if name not in cases.info})


def _smaller(run: Store, cases: Cases) -> Cases | None:
    """The last shrunk form that still fails of each failure that has one."""
    forms = [kept(run, told["number"], cases).cases for told in shrinkings(run)]
    last: dict[int, tuple[int, int]] = {}
    for number, form in enumerate(forms):
        last |= {row: (number, place) for place, row in enumerate(form.info["row"].tolist())}
    picked = [
        form[torch.tensor([place for number, place in last.values() if number == own])]
        for own, form in enumerate(forms)
        if any(number == own for number, _ in last.values())
    ]
    return Cases.cat(picked) if picked else None


def _bounds(run: Store, cases: Cases) -> tuple[float, float]:
    """The range of inputs, where the run tells it; else [0, 1], or as far as its values go where they go beyond."""
    folders = [run, *(store.read(path) for _, path in round_folders(run.path))]
    for line in (line for folder in folders for kind in ("seeds", "eval") for line in folder.commits(kind)):
        told = line.meta.get("bounds")
        if isinstance(told, list) and len(told) == 2 and all(isinstance(end, int | float) for end in told):
            return (float(told[0]), float(told[1])) if told[0] < told[1] else UNIT
    low, high = (float(end) for end in cases.info["seed_x"].nan_to_num().aminmax())
    return UNIT if (low >= 0 and high <= 1) or low == high else (low, high)


def _norm(run: Store) -> Norm:
    """The norm that the run's changes were bounded in, L∞ where none is told."""
    told = identity_of(run)
    ball = told.get("ball", {}).get("norm")
    if ball in norms.NORMS:
        return norms.check(ball)
    texts = [told.get("recipe", {}).get("mutate", ""), *told.get("suite", {}).values()]
    found = next((match for match in map(_NORM.search, map(str, texts)) if match), None)
    return norms.check(found[1]) if found else "linf"


def _classes(run: Store, cases: Cases) -> tuple[str, ...]:
    """The names of the classes; an evaluation tells them with its first block."""
    line = next(run.commits("eval"), None)
    told = line.meta.get("classes") if line is not None else None
    most = max(int(cases.y.max()), int(cases.info["pred"].max()))
    if most >= _CLASSES:
        raise UsageError(f"run {run.name} tells of a class number {most}: no model has so many classes")
    names = tuple(map(str, told)) if isinstance(told, list) and told else class_names(run, cases)
    return (*names, *(str(number) for number in range(len(names), most + 1)))


def _with_kinds(cases: Cases) -> tuple[Cases, bool]:
    """The kind of each failure, where the seeds tell what was changed."""
    if bool(cases.info["seeded"].all()):
        return cases.note(kind_of_failure=kinds_of(cases)), True
    return cases.note(kind_of_failure=torch.zeros(len(cases), dtype=torch.int64)), False


def _measured(cases: Cases, bounds: tuple[float, float], norm: Norm) -> Cases:
    """The sizes of the changes, as far as the run does not tell them."""
    columns: dict[str, list[Tensor]] = {"linf": [], "l2": [], "ssim": [], "size": []}
    for part in _chunks(cases):
        delta = part.x - part.info["seed_x"]
        image = delta.dim() == 4
        told = {"linf": norms.size(delta, "linf"), "l2": norms.size(delta, "l2"), "size": norms.size(delta, norm)}
        likeness = part.info["ssim"]
        if image and bool(likeness.isnan().any()):
            likeness = ssim(unit_range(part.x, bounds), unit_range(part.info["seed_x"], bounds))
        told["ssim"] = likeness if image else torch.full_like(told["l2"], torch.nan)
        for name, column in told.items():
            columns[name].append(torch.where(part.info["seeded"], column, torch.nan))
    made = {name: torch.cat(parts) for name, parts in columns.items()}
    return cases.note(**made)


def _chunks(cases: Cases) -> Iterator[Cases]:
    for start in range(0, len(cases), _CHUNK):
        yield cases[slice(start, start + _CHUNK)]
