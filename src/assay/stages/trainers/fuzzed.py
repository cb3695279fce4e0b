"""Fuzzing inside a training: cases that a mutator makes of inputs, against the net as it is now."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec, check_made, inside
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind
from assay.core.specs import Params, split, step, weighted
from assay.stages.objective import Look
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import START, Target, require

BLOCK = 2048  # inputs under way together: each has a seed, a slope and a case beside it


@dataclass(frozen=True, slots=True)
class Fuzzing:
    """A mutator at work on inputs that the target gets right, until it gets them wrong.

    With an objective, which a mutator climbs, every step goes on from where the last one led; without one every try
    begins at the input itself.
    """

    mutate: Bound
    look: Look
    steps: int
    spec: InputSpec

    @staticmethod
    def parse(mutate: str, objective: str, steps: int, target: Target, *, eps: float, norm: str) -> "Fuzzing":
        """The mutator and the scores of the texts, with this ball unless they name their own; refused what cannot be.

        An objective is written as in recipes: ``rivals(k=5), -true_prob, 2 * fol``.
        """
        if steps < 1:
            raise UsageError(f"fuzzing takes one step or more of each input, got {steps}")
        ball = {"eps": eps, "norm": norm}
        make = _bound("mutator", mutate, ball)
        if START in make.entry.needs:
            raise UsageError(
                f"mutator {make.entry.name!r} has something to fit before it makes a case, which is too much inside of "
                "a training; take another, such as ascend, noise, transform or attacked"
            )
        require(target, make.entry.needs, f"mutator {make.entry.name!r}")
        parts = [weighted(part) for part in split(objective)]
        scores = {text: _bound("score", text, ball) for _, text in parts}
        for score in scores.values():
            require(target, score.entry.needs, f"score {score.entry.name!r}")
        return Fuzzing(make, Look(scores, {text: weight for weight, text in parts}), steps, target.spec)

    def found(self, net: nn.Module, cases: Cases, which: Tensor, rng: Stream) -> Cases:
        """The first case of each of these rows that is of another class, where there is one; ``origin`` is its row."""
        target = ModuleTarget(net, self.spec)
        with target.ready():
            parts = [Cases(cases.x[rows], cases.y[rows], rows) for rows in which.split(BLOCK)]
            return Cases.cat([self._found(Bench(target), part, rng) for part in parts])

    def _found(self, bench: Bench, seeds: Cases, rng: Stream) -> Cases:
        lanes = self._begun(bench, seeds)
        found = [_plain(lanes[:0])]
        for turn in range(self.steps):
            if not len(lanes):
                break
            made = self._stepped(bench, lanes, turn, rng)
            wrong = (made.info["logits"].argmax(1) != made.y) & inside(made.x, bench.target.spec.bounds)
            found.append(_plain(made[wrong]))
            lanes = (made if self.look.objective else lanes)[~wrong]
        return Cases.cat(found)

    def _begun(self, bench: Bench, seeds: Cases) -> Cases:
        """The inputs that the target gets right, looked at."""
        rows = torch.zeros_like(seeds.origin)
        columns = {
            "seed_x": seeds.x,
            "step": rows,
            "opening": torch.ones_like(rows, dtype=torch.bool),
            "seed_logits": seeds.x.new_zeros(len(seeds), 1),  # of each class, once it is asked
        }
        seen = self.look(bench, seeds.note(**columns))
        seen = seen.note(seed_logits=seen.info["logits"], opening=torch.zeros_like(seen.info["opening"]))
        return seen[seen.info["logits"].argmax(1) == seen.y]

    def _stepped(self, bench: Bench, lanes: Cases, turn: int, rng: Stream) -> Cases:
        rows = rng.rows(torch.stack([lanes.origin, torch.full_like(lanes.origin, turn)], 1))
        made = self.mutate(bench, lanes, rng=rows)
        who = f"mutator {self.mutate.entry.name!r}"
        x = check_made(made.x if isinstance(made, Cases) else made, lanes.x, who)
        return self.look(bench, lanes.with_x(x).note(step=lanes.info["step"] + 1))


def _bound(kind: str, text: str, ball: Params) -> Bound:
    name, params = step(text)
    return bind(kind, name, params, ball)


def _plain(cases: Cases) -> Cases:
    return Cases(cases.x.detach(), cases.y, cases.origin)
