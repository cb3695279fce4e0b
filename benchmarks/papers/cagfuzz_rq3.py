"""RQ3: what is learning from tests worth, on clean images, on the tests of every tool, and under a new attack?"""

import time
from dataclasses import replace

import torch
from torch import nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.engines.attack import attack
from assay.subjects.sources.load import module_of
from assay.subjects.target import Target
from papers.cagfuzz_choice import LEAST
from papers.cagfuzz_subject import Ground, Params, retrain_of, share
from papers.cagfuzz_tools import CAGFUZZ, FGSM, HUNTER, NOISE, XPLORE, Bank, told

BEFORE, PLAIN, TWICE = "before", "plain", "twice"
LEARNED = (CAGFUZZ, NOISE, FGSM, HUNTER, XPLORE)  # tools whose tests are learned from
ARMS = (BEFORE, PLAIN, TWICE, *LEARNED)
JOIN = 0.65  # of the tests join the training part, the rest the validation part: the paper's
PGD = "pgd(steps=20)"


def protocol(ground: Ground, model: str, arm: str, seed: int) -> Params:
    """What makes a row of RQ3."""
    scale = ground.scale
    return {
        "experiment": "rq3",
        "data": ground.data,
        "model": model,
        "arm": arm,
        "seed": seed,
        "sample": scale.sample,
        "images": scale.images,
        "fresh": scale.fresh,
        "pgd": {"attack": PGD, "eps": round(ground.fresh_eps, 6)},
        "retrain": retrain_of(ground.kind, scale),
        "train": scale.train,
        "epochs": scale.colour if ground.kind == "colour" else scale.grey,
        "least": LEAST,
        **told(ground, LEARNED),
    }


class Retraining:
    """One model with the tests of every tool: of training images to learn from, of test images to measure with."""

    def __init__(self, ground: Ground, model: str, seed: int) -> None:
        self.ground, self.model, self.seed = ground, model, seed
        self.target = ground.net(model, seed)
        siblings = [ground.net(other, seed) for other in ground.models if other != model]
        bank, rng = Bank(ground, self.target, siblings), ground.rng("rq3", seed)
        learn, measure = self._some("train", ground.scale.sample), self._some("test", ground.scale.images)
        self.learn = {tool: bank.tests(tool, learn, rng.at("learn")).cases for tool in LEARNED}
        self.measure = {tool: bank.tests(tool, measure, rng.at("measure")).cases for tool in LEARNED}
        self.extra = max(1, len(self.learn[CAGFUZZ]))  # as many for every arm: CAGFuzz's number

    def _some(self, part: str, count: int) -> Cases:
        """Images drawn from a part, as fresh cases."""
        cases = self.ground.part(part)
        order = torch.randperm(len(cases), generator=self.ground.rng("rq3", self.seed, part).generator())[:count]
        rows = order.sort().values.to(cases.x.device)
        return Cases.of(cases.x[rows], cases.y[rows])

    def numbers(self, arm: str) -> Params:
        began, ground = time.perf_counter(), self.ground
        target, trained = (self.target, {}) if arm == BEFORE else self._retrained(arm)
        done = time.perf_counter()
        test, mine = ground.part("test"), self.measure[CAGFUZZ]
        both = Cases.cat([Cases.of(test.x, test.y), Cases.of(mine.x, mine.y)])
        return {
            "clean": ground.accuracy(target, test),
            "mixed": ground.accuracy(target, both),
            "static": {tool: ground.accuracy(target, cases) for tool, cases in self.measure.items()},
            "fresh": self._fresh(target, test[: ground.scale.fresh]),
            **trained,
            "measured_tests": {tool: len(cases) for tool, cases in self.measure.items()},
            "fingerprint": self.target.fingerprint(),
            "train_seconds": round(done - began, 2),
            "measure_seconds": round(time.perf_counter() - done, 2),
            "machine": ground.machine,
        }

    def _retrained(self, arm: str) -> tuple[Target, Params]:
        """The model trained further on the training part and the arm's tests; the epoch is chosen on the validation
        part and the tests that joined it.
        """
        ground = self.ground
        own = self._tests(arm)
        count = round(JOIN * len(own))
        order = torch.randperm(len(own), generator=ground.rng("rq3", self.seed, "part").generator()).to(own.x.device)
        learn, check = own[order[:count]], own[order[count:]]
        if len(learn):  # fewer tests are shown more often, so that every arm takes as many steps
            wanted = round(JOIN * self.extra)
            learn = learn[torch.arange(wanted, device=learn.x.device) % len(learn)]
        val = Cases.cat([_bare(ground.part("val")), _bare(check)])
        extra = replace(_bare(learn), origin=torch.arange(len(learn)) + len(ground.splits.part("train")))
        net: nn.Module = module_of(self.target)
        plan, rng = retrain_of(ground.kind, ground.scale), Stream(self.seed, ("rq3", "train"))
        made, last = ground.fitted(net, plan, ground.splits.part("train").cases, val, rng, extra)
        best = max(last.log, key=lambda row: (row["score"], -row["val_loss"]))
        before = ground.accuracy(self.target, val)
        told = {"distinct": count, "extra": len(learn), "epoch": int(best["epoch"]), "val_before": before}
        return ground.target_of(made), told | {"val_after": round(best["val_accuracy"], 5)}

    def _tests(self, arm: str) -> Cases:
        mine = self.learn[CAGFUZZ]
        if arm == PLAIN:
            return mine[:0]
        return mine.with_x(mine.info["seed_x"]) if arm == TWICE else self.learn[arm]

    def _fresh(self, target: Target, cases: Cases) -> float | None:
        """Accuracy under PGD made on this very net."""
        ground = self.ground
        made = attack(
            PGD, target, cases.x, cases.y, eps=ground.fresh_eps, norm="linf", seed=self.seed, batch=ground.chunks.size
        )
        return share(~made.info["success"])


def _bare(cases: Cases) -> Cases:
    return Cases.of(cases.x.cpu(), cases.y.cpu())
