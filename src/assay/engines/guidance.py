"""What a campaign learns as it goes: what is covered, and which neurons to push."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.files import make_folder, sha256, write_atomic
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.repair import GUIDANCE
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.recipes.recipe import Stages
from assay.stages.coverage import Coverage
from assay.stages.coverage.profile import Profile, profile_of
from assay.stages.strategies import Chooser
from assay.subjects.bench import Bench, Data
from assay.subjects.observer import Observer
from assay.subjects.target import Target

log = logging.getLogger("assay")

FOLDER = GUIDANCE  # of a run: two files, written in turn, so that one is whole whenever a write is cut off
FILES = ("0.safetensors", "1.safetensors")

Known = dict[str, dict[str, Tensor]]  # state by part: coverage, strategy


def observer_of(stages: Stages, target: Target, siblings: tuple[Target, ...]) -> Observer | None:
    """What looks at the nets of a campaign, None where their answers are enough."""
    if stages.coverage is None:
        return Observer.of((target, *siblings), "none") if siblings else None
    criterion = _made(stages.coverage)
    strategy = None if stages.strategy is None else _made(stages.strategy)
    ends = bool(criterion.ends or (strategy is not None and strategy.ends))
    return Observer.of((target, *siblings), stages.layers, ends=ends)


def _made(bound: Bound) -> Any:
    """The criterion or strategy of a function, if what it returns is one."""
    made = bound()
    if not callable(getattr(made, "begin", None)):
        raise UsageError(
            f"{bound.entry.kind} {bound.entry.name!r} must return an object with begin(observer, …), see "
            f"docs/fuzzing.md; it gave {type(made).__name__}"
        )
    return made


def profile_for(stages: Stages, observer: Observer | None, training: Data | None, chunks: Chunks) -> Profile | None:
    """The profile that the criterion asks for, if it does."""
    if stages.coverage is None or observer is None or not stages.coverage().profiled:
        return None
    if training is None:
        raise UsageError(
            f"criterion {stages.coverage.entry.name!r} knows neurons by their range over the training data, and "
            "nothing says which they are; name them: --training mnist/train, or training=… in Python"
        )
    return profile_of(observer, training, chunks)


@dataclass(slots=True)
class Guidance:
    """Coverage and chooser of one campaign; both None where its recipe has none.

    In a wave of several units ``base`` is what its units begin with, and ``added`` counts what the unit under way adds
    to that, where the criterion cannot merge the whole twice; ``blank`` is its state with nothing in it.
    """

    coverage: Coverage | None = None
    chooser: Chooser | None = None
    from_seeds: float | None = None  # what the seeds cover before any case was made
    training: str | None = None  # the data that the criterion's ranges come from
    base: Known | None = None
    added: Coverage | None = None
    blank: dict[str, Tensor] | None = None

    @staticmethod
    def of(stages: Stages, observer: Observer | None, profile: Profile | None, rng: Stream) -> "Guidance":
        if stages.coverage is None or observer is None:
            return Guidance()
        coverage = stages.coverage().begin(observer, profile)
        chooser = None if stages.strategy is None else stages.strategy().begin(observer, rng.at("strategy"))
        known = None if profile is None or profile.training is None else profile.training.name
        return Guidance(coverage, chooser, training=known)

    def cover_seeds(self, bench: Bench, seeds: Cases) -> None:
        """Count what all seeds cover, as a campaign with one pool for all of them begins."""
        assert self.coverage is not None
        for start in range(0, len(seeds), bench.chunks.size):
            self.coverage.add(bench.seen(Cases.of(seeds.x[start : start + bench.chunks.size])))
        self.from_seeds = self.coverage.covered()

    def gains(self, bench: Bench, made: Cases, counted: Tensor) -> Tensor:
        """What each case adds to the coverage, 0 for those that do not count, (N,)."""
        gain = torch.zeros(len(made), device=counted.device)
        if self.coverage is None:
            return gain
        rows = counted.nonzero().squeeze(1)
        seen = bench.seen(made)[rows]
        gain[rows] = self.coverage.add(seen).to(gain.dtype)
        if self.added is not None:
            self.added.add(seen)
        return gain

    def begin_unit(self, base: Known) -> None:
        """Work a unit from this state."""
        self.back_to(base)
        if self.added is not None and self.blank is not None:
            self.added.load({name: tensor.clone() for name, tensor in self.blank.items()})

    def news(self) -> Known:
        """What was learnt since the unit began, for ``merge``."""
        parts: Known = {}
        if self.coverage is not None:
            parts["coverage"] = (self.added or self.coverage).state()
        if self.chooser is not None:
            parts["strategy"] = self.chooser.news()
        return _cloned(parts)

    def merge(self, news: Known) -> None:
        """Learn what a unit has learnt elsewhere."""
        if self.coverage is not None:
            self.coverage.merge(news["coverage"])
        if self.chooser is not None:
            self.chooser.merge(news["strategy"])

    def facts(self, stages: Stages, observer: Observer | None) -> dict[str, Any] | None:
        """Coverage as a report tells it, with the layers it is of and the data that its ranges come from."""
        if self.coverage is None or stages.coverage is None or observer is None:
            return None
        covered, total = self.coverage.covered(), self.coverage.total
        return {
            "criterion": stages.coverage.text,
            "layers": observer.text(),
            "covered": covered,
            "total": total or None,
            "share": covered / total if total else None,
            "seeds": self.from_seeds,
            "training": self.training,
        }

    def save(self, run: Store) -> dict[str, str]:
        """Write what is known now, beside what the last commit knew; what the journal must say of it."""
        if self.coverage is None:
            return {}
        parts = {"coverage": self.coverage.state(), "strategy": {} if self.chooser is None else self.chooser.state()}
        parts |= {f"base.{part}": state for part, state in (self.base or {}).items()}
        flat = {f"{part}.{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
        if self.from_seeds is not None:
            flat["seeds"] = torch.tensor(self.from_seeds, dtype=torch.float64)
        name, content = FILES[_last(run).get("file") == FILES[0]], encode(flat)
        make_folder(run.path / FOLDER)
        write_atomic(run.path / FOLDER / name, content)
        return {"file": name, "sha256": sha256(content)}

    def known(self) -> Known:
        """What is known now, to go back to."""
        parts = {} if self.coverage is None else {"coverage": self.coverage.state()}
        parts |= {} if self.chooser is None else {"strategy": self.chooser.state()}
        return _cloned(parts)

    def back_to(self, known: Known) -> None:
        """Forget what was learnt since."""
        for part, keeper in (("coverage", self.coverage), ("strategy", self.chooser)):
            if keeper is not None:
                keeper.load({name: tensor.clone() for name, tensor in known[part].items()})

    def load(self, run: Store) -> bool:
        """Go back to what the last commit knew; False where there is none."""
        told = _last(run)
        if self.coverage is None or not told:
            return False
        path = run.path / FOLDER / told["file"]
        content = path.read_bytes() if path.is_file() else b""
        if sha256(content) != told["sha256"]:
            log.warning("what run %s had covered is lost (%s is damaged); it is counted anew from here", run.name, path)
            return False
        flat = decode(content)
        seeds = flat.pop("seeds", None)
        self.from_seeds = None if seeds is None else float(seeds)
        base = {part: _part(flat, f"base.{part}") for part in ("coverage", "strategy")}
        self.base = base if any(base.values()) else None
        self.coverage.load(_part(flat, "coverage"))
        if self.chooser is not None:
            self.chooser.load(_part(flat, "strategy"))
        return True


def last_unit(run: Store) -> int | None:
    """The unit of the last commit that says what is known."""
    unit = _last_commit(run).get("unit")
    return None if unit is None else int(unit)


def _last(run: Store) -> dict[str, str]:
    return dict(_last_commit(run).get("guidance") or {})


def _last_commit(run: Store) -> Mapping[str, Any]:
    """What the last commit of cases says; one that skips a unit says nothing of the guidance."""
    fuzzed = (line.meta for line in reversed(run.lines) if line.meta.get("kind") == "fuzz")
    return next((meta for meta in fuzzed if "skipped" not in meta.get("counts", {})), {})


def _cloned(parts: Known) -> Known:
    return {part: {name: tensor.clone() for name, tensor in state.items()} for part, state in parts.items()}


def _part(flat: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): tensor for name, tensor in flat.items() if name.startswith(f"{part}.")}
