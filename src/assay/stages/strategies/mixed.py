"""Several strategies at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind, register
from assay.core.specs import split, step
from assay.stages.coverage import Coverage
from assay.stages.strategies import Chooser, Push, Strategy
from assay.stages.strategies.drawing import joined
from assay.subjects.observer import Observer, Seen


@register("strategy", paper="DLFuzz 2018", needs=("activation",))
def mixed(*, of: str = "often, heavy", m: int = 10) -> "Mixed":
    """The neurons of several strategies, of m in all an equal share each; the first ones take what is left over.

    ``of`` names them as they are named alone: ``"often, near(above=0.3)"``. A neuron that two of them choose is pushed
    twice as hard.
    """
    parts = split(of)
    if not parts or m < len(parts):
        raise UsageError(f"mixed: {of!r} names {len(parts)} strategies, and each needs at least one of m={m} neurons")
    strategies = []
    for place, part in enumerate(parts):
        name, params = step(part)
        if "k" in params:
            raise UsageError(f"mixed: m says how many neurons there are in all; leave k out of {part!r}")
        share = m // len(parts) + (place < m % len(parts))
        strategies.append(bind("strategy", name, {**params, "k": share})())
    return Mixed(tuple(strategies))


@dataclass(slots=True)
class Mixed:
    parts: tuple[Strategy, ...]
    ends: bool = field(init=False)

    def __post_init__(self) -> None:
        self.ends = any(part.ends for part in self.parts)

    def begin(self, observer: Observer, rng: Stream) -> "Mixing":
        return Mixing([part.begin(observer, rng.at("mixed", place)) for place, part in enumerate(self.parts)])


class Mixing:
    """The parts at work, side by side."""

    def __init__(self, parts: list[Chooser]) -> None:
        self.parts = parts
        self.k = sum(part.k for part in parts)

    def start(self, lanes: Cases) -> Cases:
        for part in self.parts:
            lanes = part.start(lanes)
        return lanes

    def choose(self, lanes: Cases, seen: Seen, coverage: Coverage, rng: Rows) -> Push:
        draws = (rng.at(100 + place) for place in range(len(self.parts)))
        return joined([part.choose(lanes, seen, coverage, r) for part, r in zip(self.parts, draws, strict=True)])

    def learn(self, lanes: Cases, seen: Seen, failing: Tensor, counted: Tensor) -> Cases:
        for part in self.parts:
            lanes = part.learn(lanes, seen, failing, counted)
        return lanes

    def end(self, lanes: Cases) -> None:
        for part in self.parts:
            part.end(lanes)

    def state(self) -> dict[str, Tensor]:
        return _marked(part.state() for part in self.parts)

    def load(self, state: Mapping[str, Tensor]) -> None:
        for place, part in enumerate(self.parts):
            part.load(_of_part(state, place))

    def news(self) -> dict[str, Tensor]:
        return _marked(part.news() for part in self.parts)

    def merge(self, news: Mapping[str, Tensor]) -> None:
        for place, part in enumerate(self.parts):
            part.merge(_of_part(news, place))


def _marked(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of all parts, each under the number of its own."""
    return {f"{place}.{name}": t for place, part in enumerate(parts) for name, t in part.items()}


def _of_part(every: Mapping[str, Tensor], place: int) -> dict[str, Tensor]:
    mark = f"{place}."
    return {name.removeprefix(mark): t for name, t in every.items() if name.startswith(mark)}
