"""RQ2: for how many tests of correctly classified images does a tool get a wrong label, and are they tests at all?"""

import time

import torch

from assay.core.cases import Cases
from papers.cagfuzz_choice import LEAST, distances
from papers.cagfuzz_subject import Ground, Params, share
from papers.cagfuzz_tools import Bank, Tests, told

EQUAL, OWN = "equal", "own"
TERMS = (EQUAL, OWN)


def protocol(ground: Ground, model: str, tool: str, terms: str, seed: int) -> Params:
    """What makes a row of RQ2."""
    return {
        "experiment": "rq2",
        "data": ground.data,
        "model": model,
        "tool": tool,
        "terms": terms,
        "seed": seed,
        "images": ground.scale.images,
        "train": ground.scale.train,
        "epochs": ground.scale.colour if ground.kind == "colour" else ground.scale.grey,
        **({"least": LEAST} if terms == EQUAL else {}),
        **told(ground, (tool,)),
    }


class Errors:
    """The images of one model and seed. The seed is that of the model, of the images and of the tools."""

    def __init__(self, ground: Ground, model: str, seed: int) -> None:
        self.ground, self.model, self.seed = ground, model, seed
        self.target = ground.net(model, seed)
        siblings = [ground.net(other, seed) for other in ground.models if other != model]
        self.bank = Bank(ground, self.target, siblings)
        self.accuracy = ground.accuracy(self.target, ground.part("test"))
        self.images = self._correct()
        self.clean_witness = ground.accuracy(ground.witness, self.images)

    def _correct(self) -> Cases:
        """Test images that the model gets right, drawn."""
        test = self.ground.part("test")
        right = self.ground.right(self.target, test.x, test.y).nonzero().flatten().cpu()
        order = torch.randperm(len(right), generator=self.ground.rng("rq2", self.seed).generator())
        rows = right[order[: self.ground.scale.images]].sort().values.to(test.x.device)
        return Cases.of(test.x[rows], test.y[rows])

    def numbers(self, tool: str, terms: str) -> Params:
        began, rng = time.perf_counter(), self.ground.rng("rq2", self.seed, "made")
        make = self.bank.tests if terms == EQUAL else self.bank.own
        tests = make(tool, self.images, rng)
        return judged(self.ground, self.bank, tests) | {
            "clean_witness": self.clean_witness,
            "model_accuracy": self.accuracy,
            "witness_accuracy": self.ground.witness_accuracy,
            "fingerprint": self.target.fingerprint(),
            "features": getattr(self.bank.features, "name", ""),
            "seconds": round(time.perf_counter() - began, 2),
            "machine": self.ground.machine,
        }


def judged(ground: Ground, bank: Bank, tests: Tests) -> Params:
    """What there is to say of tests: errors are those the model gives another label than their image has; ``held`` are
    the errors whose image's label the witness still gives.
    """
    cases = tests.cases
    wrong = ~ground.right(bank.target, cases.x, cases.y)
    holds = ground.right(ground.witness, cases.x, cases.y)
    return {
        "images": tests.of,
        "tests": len(tests),
        "errors": int(wrong.sum()),
        "held": int((wrong & holds).sum()),
        "witness": share(holds),
        "more": share(cases.info["more"]),
        "cosine": round(float(cases.info["cosine"].double().mean()), 5) if len(tests) else None,
        **distances(cases.x, cases.info["seed_x"], ground.spec.bounds, ground.chunks),
    }
