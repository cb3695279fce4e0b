"""What stages ask of the vulnerable one of two models."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.subjects.bench import Bench
from assay.subjects.target import Need, Target, answer

VULNERABLE = "vulnerable"  # its role on the bench, where the target is the resistant one


def vulnerable(bench: Bench) -> Target:
    """The vulnerable model; the target where there are no two."""
    return bench.roles.get(VULNERABLE, bench.target)


def labelled(bench: Bench, cases: Cases) -> Cases:
    """The cases, where they have no label with the class that the vulnerable model gives to their clean parent."""
    rows = (cases.y == UNLABELLED).nonzero().squeeze(1)
    if not len(rows):
        return cases
    said = answer(vulnerable(bench), cases.parent[rows], bench.chunks).argmax(1)
    return replace(cases, y=cases.y.index_copy(0, rows, said.to(cases.y)))


@dataclass(frozen=True, slots=True)
class Together:
    """Several models as one target, which gives the mean of their log-probabilities: an attack on all of them."""

    models: tuple[Target, ...]

    @property
    def spec(self) -> InputSpec:
        return self.models[0].spec

    @property
    def gives(self) -> frozenset[Need]:
        return frozenset.intersection(*(model.gives for model in self.models))

    @property
    def device(self) -> torch.device:
        return self.models[0].device

    def __call__(self, x: Tensor) -> Tensor:
        return torch.stack([model(x.to(model.device)).log_softmax(1).to(x.device) for model in self.models]).mean(0)

    @contextmanager
    def ready(self) -> Iterator[None]:
        with ExitStack() as stack:
            for model in self.models:
                stack.enter_context(model.ready())
            yield

    def fingerprint(self) -> str:
        return "+".join(model.fingerprint() for model in self.models)
