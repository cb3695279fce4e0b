"""ADAPT: learn while testing which neurons to push."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import register
from assay.stages.coverage import Coverage
from assay.stages.strategies import Push
from assay.stages.strategies.activity import SEED_COVERED, active
from assay.stages.strategies.drawing import check_k
from assay.stages.strategies.evolution import best_cover, bred
from assay.stages.strategies.features import FEATURES, changing, fixed
from assay.subjects.observer import Observer, Seen

TIES = 1e-4  # the most that chance adds to a score: neurons with the same features tie, and no others do in practice


@register("strategy", paper="ADAPT 2020", needs=("activation",))
def adapt(
    *,
    k: int = 10,
    population: int = 100,
    records: int = 300,
    parents: float = 0.5,
    bound: float = 5.0,
    noise: float = 1.0,
) -> "Adapt":
    """The k neurons whose 29 features score highest by a vector; vectors that cover much breed the next ones.

    Each of ``population`` vectors, at first uniform in ±``bound``, serves one seed from its first case to its last.
    When they are spent, the share ``parents`` of their number is chosen from the last ``records`` seeds by greedy cover
    and bred: crossover, normal noise of that deviation, clipped. A neuron is active in a case that covers it, by the
    recipe's criterion.
    """
    if population < 1 or records < 1 or not 0 < parents <= 1 or round(parents * population) < 1:
        raise UsageError(
            "adapt: population, records and the parents chosen must be at least 1; "
            f"got {population}, {records} and {parents:g} of {population}"
        )
    if bound <= 0 or noise < 0:
        raise UsageError(f"adapt: bound must be above 0 and noise not negative, got {bound} and {noise}")
    return Adapt(k, population, records, round(parents * population), bound, noise)


@dataclass(slots=True)
class Adapt:
    k: int
    population: int
    records: int
    parents: int
    bound: float
    noise: float
    ends: bool = False

    def begin(self, observer: Observer, rng: Stream) -> "Adapting":
        return Adapting(self, observer, rng)


class Adapting:
    """The strategy at work. A lane carries its vector and what its seed has covered so far."""

    # Paper: one seed at a time, and each vector serves one pass over it. Here: many seeds at a time, so the vectors of
    # a generation are handed out in turn, again from the first where there are more lanes, and the generation is spent
    # when as many seeds have ended as it has vectors.

    def __init__(self, strategy: Adapt, observer: Observer, rng: Stream) -> None:
        check_k(strategy.k, observer.neurons)
        self.strategy, self.rng, self.k = strategy, rng, strategy.k
        self.device = observer.targets[0].device
        self.counts = torch.zeros(observer.neurons, dtype=torch.int64, device=self.device)  # how often each was active
        self.failing = torch.zeros_like(self.counts, dtype=torch.bool)  # active in a failure
        self.fixed = fixed(observer).to(self.device)
        uniform = torch.rand(strategy.population, FEATURES, generator=rng.at("generation", 0).generator())
        self.vectors = (strategy.bound * (2 * uniform - 1)).to(self.device)
        self.generation = self.handed = self.spent = 0
        self.used = self.vectors[:0]  # the vectors of the last seeds that ended, the oldest first
        self.covered = self.failing.new_zeros(0, observer.neurons)  # and what each of them covered
        self._coverage: Coverage | None = None  # the campaign's, known once something was chosen
        self._begin()

    def _begin(self) -> None:
        """What is learnt from now on is news."""
        self._before = self.counts.clone()
        self._started = self._ended = 0
        self._used, self._covered = self.used[:0], self.covered[:0]  # of seeds that ended since

    def start(self, lanes: Cases) -> Cases:
        places = (self.handed + torch.arange(len(lanes), device=self.device)) % len(self.vectors)
        self.handed += len(lanes)
        self._started += len(lanes)
        # Code: the first vector of a new generation inherits what the last of the old one covered. Here none does.
        nothing = self.failing.new_zeros(len(lanes), len(self.failing))
        return lanes.note(vector=self.vectors[places], pass_covered=nothing, **{SEED_COVERED: nothing.clone()})

    def choose(self, lanes: Cases, seen: Seen, coverage: Coverage, rng: Rows) -> Push:
        self._coverage = coverage
        features = torch.cat([self.fixed, changing(self.counts, self.failing)], 1)
        score = lanes.info["vector"] @ features.T + TIES * rng.uniform((len(features),))
        highest = score.topk(self.k, 1).indices
        return Push(highest, torch.ones_like(highest, dtype=torch.float32))

    def learn(self, lanes: Cases, seen: Seen, failing: Tensor, counted: Tensor) -> Cases:
        seeds = lanes.info["opening"] & (lanes.info["step"] == 0) & ~lanes.info["ended"]
        now = active(self._coverage, seen) & (counted | seeds)[:, None]
        self.counts += now.sum(0)
        self.failing |= (now & failing[:, None]).any(0)
        passed = lanes.info["pass_covered"] | (now & counted[:, None])
        return lanes.note(pass_covered=passed, **{SEED_COVERED: lanes.info[SEED_COVERED] | now})

    def end(self, lanes: Cases) -> None:
        vectors, covered = lanes.info["vector"], lanes.info["pass_covered"]
        self._used, self._covered = self._last(self._used, vectors), self._last(self._covered, covered)
        self._ended += len(lanes)
        self._record(vectors, covered, len(lanes))

    def _last(self, before: Tensor, now: Tensor) -> Tensor:
        return torch.cat([before, now])[-self.strategy.records :]

    def _record(self, vectors: Tensor, covered: Tensor, seeds: int) -> None:
        """So many seeds ended, the last of them with these vectors."""
        self.used, self.covered = self._last(self.used, vectors), self._last(self.covered, covered)
        self.spent += seeds
        if self.spent >= len(self.vectors):
            self._breed()

    def _breed(self) -> None:
        self.generation, self.handed, self.spent = self.generation + 1, 0, 0
        rows = best_cover(self.covered, self.strategy.parents)
        draw = self.rng.at("generation", self.generation).generator()
        count = self.strategy.population
        self.vectors = bred(self.used[rows], count, self.strategy.bound, self.strategy.noise, draw)

    def state(self) -> dict[str, Tensor]:
        return {
            "counts": self.counts.cpu(),
            "failing": self.failing.cpu(),
            "vectors": self.vectors.cpu(),
            "used": self.used.cpu(),
            "covered": self.covered.cpu(),
            "places": torch.tensor([self.generation, self.handed, self.spent]),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.counts.copy_(state["counts"])
        self.failing.copy_(state["failing"])
        self.vectors, self.used, self.covered = (state[n].to(self.device) for n in ("vectors", "used", "covered"))
        self.generation, self.handed, self.spent = state["places"].tolist()
        self._begin()

    def news(self) -> dict[str, Tensor]:
        return {
            "counts": (self.counts - self._before).cpu(),
            "failing": self.failing.cpu(),
            "used": self._used.cpu(),
            "covered": self._covered.cpu(),
            "seeds": torch.tensor([self._started, self._ended]),
        }

    def merge(self, news: Mapping[str, Tensor]) -> None:
        # What was bred elsewhere serves there alone; its vectors are among those of the seeds that ended, and breed on.
        self.counts += news["counts"].to(self.device)
        self.failing |= news["failing"].to(self.device)
        started, ended = news["seeds"].tolist()
        self.handed += started
        self._record(news["used"].to(self.device), news["covered"].to(self.device), ended)
