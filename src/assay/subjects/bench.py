"""A bench: the target with the cases it is tested on, and data sets in their fixed parts."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.losses import cross_entropy
from assay.core.specs import did_you_mean
from assay.subjects.data.view import View
from assay.subjects.observer import COLUMNS, Observer, Seen
from assay.subjects.target import Target, answer

log = logging.getLogger("assay")

PARTS = ("train", "val", "test")
Made = TypeVar("Made")

_TOLD = "told"  # where a bench keeps what stages tell
VALIDATION_SHARE = 0.1  # of the training part, where a data set has no validation part of its own


@dataclass(frozen=True, slots=True)
class Data:
    """Cases of one part of a data set, with what is known of them."""

    name: str
    cases: Cases
    spec: InputSpec
    source: str = ""  # the text that loads it again, where there is one
    given_as: str = "float32"  # the type of its values before they were numbers in [0, 1]: uint8 or float32
    # How its images were brought to their size, for other parts of the same set.
    view: View | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, rows: slice) -> "Data":
        """A run of rows, which says so in its name; ``origin`` keeps their place in the whole part."""
        bounds = (rows.start, rows.stop, rows.step)[: 2 + (rows.step is not None)]
        label = ":".join("" if bound is None else str(bound) for bound in bounds)
        again = "" if not self.source or self.source.endswith("]") else f"{self.source}[{label}]"
        return replace(self, name=f"{self.name}[{label}]", cases=self.cases[rows], source=again)

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
    """A data set in its parts; a part that does not exist is None.

    ``held_out`` are training cases that the model at hand was not trained on, where that is known and of use.
    """

    name: str
    train: Data | None = None
    val: Data | None = None
    test: Data | None = None
    whole: Data | None = None  # a set that comes without parts
    held_out: Data | None = None

    def part(self, part: str) -> Data:
        """The part of that name."""
        if part not in PARTS:
            raise UsageError(f"unknown part {part!r} of {self.name}; {did_you_mean(part, PARTS)}")
        found: Data | None = getattr(self, part)
        if found is None:
            have = ", ".join(p for p in PARTS if getattr(self, p) is not None) or "none: it is one set without parts"
            raise UsageError(f"{self.name} has no part {part!r}; it has {have}")
        return found


def with_validation(splits: Splits) -> Splits:
    """The same data with training and validation parts, cut with a fixed seed where there is no validation part."""
    if splits.val is not None:
        return splits
    whole = splits.whole or splits.part("train")
    count = round(len(whole) * VALIDATION_SHARE)
    if not count or count == len(whole):
        raise NothingToTest(f"{whole.name} has {len(whole)} cases, too few to keep some for validation")
    train, val = cut(whole, (f"{splits.name}/train", f"{splits.name}/val"), count)
    log.info("%s: %d cases to train on, %d cut from them to validate", splits.name, len(train), len(val))
    return replace(splits, train=train, val=val, whole=None)


def held_out(splits: Splits, share: float) -> tuple[Splits, Data]:
    """The data with only part of the training cases, and the part that was held out."""
    if not 0 < share < 1:
        raise UsageError(f"the share to hold out must be between 0 and 1, got {share}")
    splits = with_validation(splits)
    whole = splits.part("train")
    kept, out = cut(whole, (whole.name, f"{splits.name}/held-out({share:g})"), round(len(whole) * share), seed=2)
    return replace(splits, train=kept), out


def cut(data: Data, names: tuple[str, str], share: int, seed: int = 0) -> tuple[Data, Data]:
    """Two parts of one, the second with ``share`` cases drawn with a fixed seed."""
    # Not one of our streams, and never to change: every published number stands on these splits.
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    first, second = order[share:].sort().values, order[:share].sort().values
    return tuple(  # type: ignore[return-value]  # two names give two parts
        Data(name, Cases.of(data.cases.x[rows], data.cases.y[rows]), data.spec, view=data.view)
        for name, rows in zip(names, (first, second), strict=True)
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """What stages work on: the target, other models by role, the size of a chunk.

    ``training`` are the cases the target was trained with, for what is fitted to them; ``observer`` looks at neurons
    where the work at hand needs them. ``kept`` remembers what stages fitted, so that it is done once.
    """

    target: Target
    roles: Mapping[str, Target] = field(default_factory=dict)
    chunks: Chunks = field(default_factory=Chunks)
    observer: Observer | None = None
    training: "Data | None" = None
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def logits(self, cases: Cases) -> Tensor:
        """The target's scores of the cases: the ``logits`` column where a step has filled it, else asked for."""
        return cases.info["logits"] if "logits" in cases.info else answer(self.target, cases.x, self.chunks)

    def gradient(self, cases: Cases) -> Tensor:
        """The gradient of the reference's cross-entropy: the ``gradient`` column, else asked for, (N, *shape)."""
        if "gradient" in cases.info:
            return cases.info["gradient"]

        def ask(x: Tensor, y: Tensor) -> Tensor:
            here = x.detach().to(self.target.device).requires_grad_()
            with torch.enable_grad():
                loss = cross_entropy(self.target(here), y.to(self.target.device))
            return torch.autograd.grad(loss.sum(), here)[0]

        return self.chunks.map(ask, cases.x, cases.reference)

    def others(self, cases: Cases) -> Tensor:
        """The scores of the other models, (N, models, K): the column ``others`` where it has them all, else asked."""
        told = cases.info.get("others")
        if told is not None and len(self.roles) in (0, told.shape[1]) and told.shape[1]:
            return told
        if not self.roles:
            raise UsageError("models are compared here, and there is none beside the target; give one: --with MODEL")
        return torch.stack([answer(model, cases.x, self.chunks) for model in self.roles.values()], 1)

    def seen(self, cases: Cases) -> Seen:
        """What the observer sees of the cases: their columns where a step has filled them, else asked for."""
        if self.observer is None:
            raise UsageError("nothing looks at neurons here")
        if all(name in cases.info for name in COLUMNS):
            return Seen(*(cases.info[name] for name in COLUMNS))
        return self.observer.all(cases.x, self.chunks)

    def observed(self, cases: Cases) -> Cases:
        """The cases with the columns of what the observer sees, so that no stage has to ask for it again."""
        seen = self.seen(cases)
        return cases.note(**{name: getattr(seen, name) for name in COLUMNS})

    def traces(self, cases: Cases, layers: str) -> Tensor:
        """The values of the target's neurons in ``layers`` (auto, last, or patterns of names), (N, W).

        They are cut from the columns of what the observer saw where these hold them, else asked for.
        """
        asked = self.once(f"layers {layers}", lambda: Observer.of([self.target], layers))
        if self.observer is not None and "neurons" in cases.info:
            have = {
                layer.label: s for layer, s in zip(self.observer.layers[0].each, self.observer.slices, strict=False)
            }
            if all(layer.label in have for layer in asked.each):
                return torch.cat([cases.info["neurons"][:, have[layer.label]] for layer in asked.each], 1)
        return asked.all(cases.x, self.chunks).neurons

    def tell(self, facts: Mapping[str, Any]) -> None:
        """What a stage has to say of its work besides its result; JSON values. Who asked for the work takes them."""
        self.kept.setdefault(_TOLD, {}).update(facts)

    def told(self) -> dict[str, Any]:
        """What stages told since the last time."""
        facts: dict[str, Any] = self.kept.pop(_TOLD, {})
        return facts

    def once(self, name: str, make: Callable[[], "Made"]) -> "Made":
        """What ``make`` gives, made the first time only."""
        if name not in self.kept:
            self.kept[name] = make()
        made: Made = self.kept[name]
        return made


def fitted(target: Target, data: Data) -> Data:
    """The data with labels that mean the target's classes; refused where they cannot."""
    _check_fit(target, data)
    places = class_places(data.spec.classes, target.spec.classes, data.name)
    if places is None:
        return data
    log.warning("%s lists its classes in another order than the target; labels are matched by name", data.name)
    place = torch.tensor([*places, UNLABELLED])
    return replace(data, cases=replace(data.cases, y=place[data.cases.y]), spec=target.spec)


def class_places(have: tuple[str, ...], want: tuple[str, ...], name: str) -> list[int] | None:
    """Where the classes of the data called ``name`` are among the target's; None where labels mean them as they are."""
    numbers = [int(c) for c in have] if all(c.isdecimal() for c in have) else None
    unnamed = all(c.isdigit() for c in want) if numbers is None else numbers == list(range(len(have)))
    if have == want[: len(have)] or unnamed:  # numbers are what we call classes nobody has named
        return None
    if numbers is not None and not set(have) & set(want):  # of a folder that lacks some class, such as an export
        beyond = [c for c, number in zip(have, numbers, strict=True) if number >= len(want)]
        if beyond:
            raise UsageError(f"{name} has the class {beyond[0]!r}, the target's are 0..{len(want) - 1}")
        return numbers
    if not set(have) <= set(want) or len(set(want)) < len(want):
        only = ", ".join(repr(c) for c in have if c not in want) or "names that occur twice"
        raise UsageError(f"the classes of {name} are not the target's: it does not know {only}")
    return [want.index(c) for c in have]


def _check_fit(target: Target, data: Data) -> None:
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
