"""Cases: inputs with their labels, origins and columns, as a struct of tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.transfers import moved

UNLABELLED = -1
MINED = "mined"  # the column with the class that agreement mining found


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What a target takes: shape of one input, its range, and the names of the classes."""

    shape: tuple[int, ...]
    bounds: tuple[float, float]
    classes: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``image`` for (channels, height, width), else ``vector``."""
        return "image" if len(self.shape) == 3 else "vector"

    def __str__(self) -> str:
        low, high = self.bounds
        return f"{'×'.join(map(str, self.shape))} in [{low:g}, {high:g}], {len(self.classes)} classes"


def check_made(made: object, x: Tensor, who: str) -> Tensor:
    """What a stage made of inputs ``x``, if it has the form it must have."""
    if not isinstance(made, Tensor) or made.shape != x.shape or made.dtype != x.dtype:
        form = f"{tuple(made.shape)} {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
        raise UsageError(f"{who} must return a tensor like its inputs, {tuple(x.shape)} {x.dtype}; it gave {form}")
    return made.detach()


def inside(x: Tensor, bounds: tuple[float, float], tolerance: float = 1e-5) -> Tensor:
    """Which rows are finite and within the bounds, (N,)."""
    low, high = bounds
    return ((x >= low - tolerance) & (x <= high + tolerance)).flatten(1).all(1)


@dataclass(frozen=True, slots=True)
class Cases:
    """N inputs ``x`` (N, *shape), labels ``y`` (N,), row of the root seed ``origin`` (N,), and columns.

    >>> some = Cases.of(torch.zeros(3, 2), torch.tensor([0, 1, 1])).note(fol=torch.arange(3.0))
    >>> len(some), some[some.y == 1].info["fol"].tolist()
    (3, [1.0, 2.0])
    """

    x: Tensor
    y: Tensor
    origin: Tensor
    info: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = self.x.shape[0]
        for name, column in (("y", self.y), ("origin", self.origin), *self.info.items()):
            if column.shape[:1] != (n,):
                raise UsageError(f"column {name!r} has shape {tuple(column.shape)}, expected {n} rows")

    @staticmethod
    def of(x: Tensor, y: Tensor | None = None) -> "Cases":
        """Fresh cases that are their own seeds; unlabelled where no ``y`` is given."""
        rows = torch.arange(len(x), device=x.device)
        return Cases(x, torch.full_like(rows, UNLABELLED) if y is None else y, rows)

    @staticmethod
    def cat(parts: Sequence["Cases"]) -> "Cases":
        """All rows in order; only the columns that every part has."""
        if not parts:
            raise UsageError("Cases.cat needs at least one part")
        shared = set.intersection(*(set(part.info) for part in parts))
        return Cases(
            torch.cat([part.x for part in parts]),
            torch.cat([part.y for part in parts]),
            torch.cat([part.origin for part in parts]),
            {name: torch.cat([part.info[name] for part in parts]) for name in parts[0].info if name in shared},
        )

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def reference(self) -> Tensor:
        """The class whose loss is climbed, (N,): the one that was mined where there is such a column, else ``y``."""
        return self.info.get(MINED, self.y)

    @property
    def parent(self) -> Tensor:
        """The clean input that each case was made from, (N, *shape): the column ``seed_x``, else the case itself."""
        return self.info.get("seed_x", self.x)

    def __getitem__(self, rows: slice | Tensor) -> "Cases":
        """The chosen rows: a slice, a boolean mask or an index tensor."""
        if isinstance(rows, Tensor) and rows.dtype == torch.bool:
            rows = rows.nonzero().squeeze(1)  # once: each column would look for itself, and wait for a GPU to tell
        return Cases(
            self.x[rows],
            self.y[rows],
            self.origin[rows],
            {name: column[rows] for name, column in self.info.items()},
        )

    def note(self, **columns: Tensor) -> "Cases":
        """The same cases with these columns added or replaced."""
        return replace(self, info={**self.info, **columns})

    def drop(self, *names: str) -> "Cases":
        """The same cases without these columns."""
        return replace(self, info={name: column for name, column in self.info.items() if name not in names})

    def with_x(self, x: Tensor) -> "Cases":
        """The same rows with other inputs."""
        return replace(self, x=x)

    def put(self, rows: Tensor, new: "Cases") -> None:
        """Write these rows over, in place, with all columns that the new ones have."""
        if not len(rows):
            return
        pairs = ((self.x, new.x), (self.y, new.y), (self.origin, new.origin))
        for old, fresh in (*pairs, *((self.info[name], column) for name, column in new.info.items())):
            old[rows] = fresh

    def to(self, device: torch.device | str) -> "Cases":
        """The same cases on another device."""
        x, y, origin, *columns = moved([self.x, self.y, self.origin, *self.info.values()], device)
        return Cases(x, y, origin, dict(zip(self.info, columns, strict=True)))
