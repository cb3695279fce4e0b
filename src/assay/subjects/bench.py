"""A bench: the target with the cases it is tested on, and data sets in their fixed parts."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.specs import did_you_mean
from assay.subjects.target import Target, answer

PARTS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Data:
    """Cases of one part of a data set, with what is known of them."""

    name: str
    cases: Cases
    spec: InputSpec

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, rows: slice) -> "Data":
        """A run of rows; ``origin`` keeps their place in the whole part."""
        return replace(self, cases=self.cases[rows])

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} cases, {self.spec}>"

    def fingerprint(self) -> str:
        """A digest of inputs and labels."""
        digest = hashlib.sha256(repr(tuple(self.cases.x.shape)).encode())
        digest.update(self.cases.x.contiguous().numpy().tobytes())
        digest.update(self.cases.y.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Splits:
    """A data set in its parts; a part that does not exist is None."""

    name: str
    train: Data | None = None
    val: Data | None = None
    test: Data | None = None

    def part(self, part: str) -> Data:
        """The part of that name."""
        if part not in PARTS:
            raise UsageError(f"unknown part {part!r} of {self.name}; {did_you_mean(part, PARTS)}")
        found: Data | None = getattr(self, part)
        if found is None:
            have = [p for p in PARTS if getattr(self, p) is not None]
            raise UsageError(f"{self.name} has no part {part!r}; it has {', '.join(have)}")
        return found


def cut(data: Data, names: tuple[str, str], share: int, seed: int = 0) -> tuple[Data, Data]:
    """Two parts of one, the second with ``share`` cases drawn with a fixed seed."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    first, second = order[share:].sort().values, order[:share].sort().values
    return tuple(  # type: ignore[return-value]  # two names give two parts
        Data(name, Cases.of(data.cases.x[rows], data.cases.y[rows]), data.spec)
        for name, rows in zip(names, (first, second), strict=True)
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """What stages work on: the target, other models by role, the size of a chunk."""

    target: Target
    roles: Mapping[str, Target] = field(default_factory=dict)
    chunks: Chunks = field(default_factory=Chunks)

    def logits(self, cases: Cases) -> Tensor:
        """The target's scores of the cases: the ``logits`` column where a step has filled it, else asked for."""
        return cases.info["logits"] if "logits" in cases.info else answer(self.target, cases.x, self.chunks)


def check_fit(target: Target, data: Data) -> None:
    """Refuse data the target cannot mean."""
    if len(data) == 0:
        raise NothingToTest(f"{data.name} holds no case")
    if data.spec.shape != target.spec.shape:
        raise UsageError(
            f"the target takes inputs of shape {target.spec.shape}, {data.name} has {data.spec.shape}; "
            "use the data the model was trained for, or --size for image folders"
        )
    k = len(target.spec.classes)
    wrong = (data.cases.y >= k).nonzero().flatten()
    if len(wrong):
        rows = ", ".join(str(int(r)) for r in wrong[:5])
        raise UsageError(
            f"labels must be in 0..{k - 1}, the target's classes; {data.name} has {int(data.cases.y.max())} "
            f"(rows {rows}{', …' if len(wrong) > 5 else ''})"
        )
