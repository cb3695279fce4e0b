"""The tools that are compared: each makes candidates of images, one mutator called once a candidate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound, bind
from assay.core.specs import step
from assay.stages.extractors import features_of
from assay.stages.extractors.similarity import cosine
from assay.stages.objective import Look
from assay.stages.strategies import PUSHED
from assay.subjects.bench import Bench, Data
from assay.subjects.observer import Observer
from assay.subjects.target import Target
from papers.cagfuzz_choice import NONE, Counter, chosen
from papers.cagfuzz_subject import REFERENCE, Ground, Params

CAGFUZZ, NOISE, FGSM, FIXED, HUNTER, XPLORE = "cagfuzz", "noise", "fgsm", "fgsm-eps", "deephunter", "deepxplore"
TOOLS = (CAGFUZZ, NOISE, FGSM, FIXED, HUNTER, XPLORE)
TITLES = {
    CAGFUZZ: "CAGFuzz",
    NOISE: "noise, as long",
    FGSM: "FGSM, as long",
    FIXED: "FGSM, fixed eps",
    HUNTER: "DeepHunter",
    XPLORE: "DeepXplore, light",
}
LIGHT = "constrained(kind=light, step=10)"
OBJECTIVE = {"disagreement": 1.0, "neurons": 0.1}
OWN_STEPS = 20  # of DeepXplore on its own terms


def generator(ground: Ground) -> str:
    return f"cyclegan({ground.aeg})"


def mutator(ground: Ground, tool: str) -> str:
    """The mutator of a tool, as it is written."""
    made = generator(ground)
    texts = {
        CAGFUZZ: made,
        NOISE: f'noise_as(of="{made}")',
        FGSM: f'fgsm_as(of="{made}")',
        FIXED: f'attacked(attack="fgsm(early_stop=false)", eps={ground.eps:.6g})',
        HUNTER: "transform",
        XPLORE: LIGHT,
    }
    return texts[tool]


def bound_to(text: str) -> Bound:
    name, params = step(text)
    return bind("mutator", name, params)


@dataclass(frozen=True, slots=True)
class Tests:
    """Tests ``cases`` with their images as column ``seed_x``, the place ``which`` of each among the candidates, its
    ``cosine`` and whether it activates ``more`` neurons; ``origin`` is the image's row among those given.
    """

    cases: Cases
    of: int  # images given

    def __len__(self) -> int:
        return len(self.cases)


class Bank:
    """Makes the tests of one target: tools, features, neuron counts."""

    def __init__(
        self, ground: Ground, target: Target, siblings: Sequence[Target] = (), training: Data | None = None
    ) -> None:
        self.ground, self.target, self.siblings = ground, target, tuple(siblings)
        self.bench = ground.bench(target, training)
        self.features = features_of(self.bench, ground.features)
        self.counter = Counter.of(target)

    # ---- candidates ----

    def candidates(self, tool: str, cases: Cases, rng: Stream, count: int = 0) -> Iterator[Tensor]:
        """The candidates of all images, one batch (n, *shape) after the other. FGSM with a fixed eps has but one."""
        count = count or self.ground.scale.candidates
        keys = rng.at(tool).rows(cases.origin)
        if tool == XPLORE:
            yield from self._lit(cases, keys, count)
            return
        for i in range(1 if tool == FIXED else count):
            yield self.mutated(tool, cases, torch.full_like(cases.origin, i), keys.at(i))

    def mutated(self, tool: str, cases: Cases, numbers: Tensor, keys: Rows) -> Tensor:
        """Candidate ``numbers`` (n,) of the images."""
        run = bound_to(mutator(self.ground, tool))
        given = cases.note(seed_x=cases.x, candidate=numbers)
        with self.target.ready():
            made = run(self.bench, given, rng=keys)
        if self.bench.training is self.ground.splits.part("train"):
            self.ground.shared |= {name: thing for name, thing in self.bench.kept.items() if name.startswith("aeg ")}
        x: Tensor = made.x if isinstance(made, Cases) else made
        return x.detach().to(cases.x.device)

    def _lit(self, cases: Cases, keys: Rows, count: int) -> Iterator[Tensor]:
        """DeepXplore: light that drives the models apart, one step a candidate; a neuron of each net is pushed, drawn
        from those that no image has covered, from all where there is none.
        """
        observer = Observer.of([self.target, *self.siblings], "auto")
        roles = {f"with {i}": net for i, net in enumerate(self.siblings)}
        bench = Bench(self.target, roles, chunks=self.ground.chunks, observer=observer)
        scores = {name: bind("score", name, {}) for name in OBJECTIVE}
        look, run = Look(scores, OBJECTIVE), bound_to(LIGHT)
        pushed = self._uncovered(observer, cases, keys)
        now = cases.note(seed_x=cases.x, **dict(zip(PUSHED, (pushed, torch.ones_like(pushed)), strict=True)))
        for i in range(count):
            seen = look(bench, now)
            now = now.with_x(run(bench, seen, rng=keys.at(i)).detach())
            yield now.x

    def _uncovered(self, observer: Observer, cases: Cases, keys: Rows) -> Tensor:
        """A neuron of each net for each image, (n, nets)."""
        high = observer.all(cases.x, self.ground.chunks).neurons.amax(0)
        starts = torch.tensor([0, *(layers.neurons for layers in observer.layers)]).cumsum(0).tolist()
        drawn = []
        for i, (first, last) in enumerate(pairwise(starts)):
            free = (high[first:last] <= 0).nonzero().flatten()
            pool = free if len(free) else torch.arange(last - first, device=high.device)
            drawn.append(first + pool[keys.at(100 + i).integers((), len(pool))])
        return torch.stack(drawn, 1)

    # ---- tests ----

    def tests(self, tool: str, cases: Cases, rng: Stream, *, must: bool = False) -> Tests:
        """One test an image on equal terms: see ``chosen``."""
        here, base = self.near(cases.x), self.counter(cases.x, self.ground.chunks)
        every = list(self.candidates(tool, cases, rng))
        like = torch.stack([cosine(self.near(x), here) for x in every], 1)
        more = torch.stack([self.counter(x, self.ground.chunks) for x in every], 1)
        changed = torch.stack([(x != cases.x).flatten(1).any(1) for x in every], 1)
        which = chosen(like, more, base, changed, must=must)
        rows = (which != NONE).nonzero().flatten()
        places = which[rows]
        x = torch.stack(every)[places, rows]
        made = Cases(x, cases.y[rows], rows, {"seed_x": cases.x[rows], "which": places})
        return Tests(made.note(cosine=like[rows, places], more=more[rows, places] > base[rows]), len(cases))

    def own(self, tool: str, cases: Cases, rng: Stream) -> Tests:
        """One test an image as the tool itself makes it: its first candidate; of DeepXplore the first step at which
        the models differ, else the last of 20. Images that come back unchanged have none.
        """
        if tool == XPLORE:
            x = self._first_apart(cases, rng)
        else:
            x = next(iter(self.candidates(tool, cases, rng, 1)))
        rows = (x != cases.x).flatten(1).any(1).nonzero().flatten()
        some, clean = x[rows], cases.x[rows]
        like = cosine(self.near(some), self.near(clean))
        chunks = self.ground.chunks
        more = self.counter(some, chunks) > self.counter(clean, chunks)
        made = Cases(some, cases.y[rows], rows, {"seed_x": clean, "cosine": like, "more": more})
        return Tests(made, len(cases))

    def _first_apart(self, cases: Cases, rng: Stream) -> Tensor:
        x, done = cases.x.clone(), torch.zeros(len(cases), dtype=torch.bool, device=cases.x.device)
        for now in self.candidates(XPLORE, cases, rng, OWN_STEPS):
            x[~done] = now[~done]
            said = [self.ground.right(net, now, cases.y) for net in (self.target, *self.siblings)]
            done |= ~torch.stack(said).all(0)
        return x

    def near(self, x: Tensor) -> Tensor:
        """Features, (n, D)."""
        return self.ground.chunks.map(self.features, x)


def told(ground: Ground, tools: Sequence[str] = TOOLS) -> Params:
    """What of this is part of a row."""
    name, seed = REFERENCE[ground.kind]
    return {
        "features": f"penultimate layer of {name}, seed {seed}",
        "candidates": ground.scale.candidates,
        "tools": {tool: mutator(ground, tool) for tool in tools},
    }
