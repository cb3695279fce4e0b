"""The arms: what cases the resistant net is retrained with, where they come from, and who picks among them."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.core import store
from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import NothingToTest
from assay.core.registry import bind
from assay.core.shards import decode
from assay.core.specs import step
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.engines.seeding import FILE
from assay.recipes.recipe import ball_of, resolve
from papers.twinfuzz_measure import described
from papers.twinfuzz_subject import Twins, drawn, share

BIM = "bim(steps=20, step=0.2, early_stop=false)"  # the recipe's seed attack, of which cases are a control
BLOCK = 2000  # images attacked at a time until there are enough successes


@dataclass(frozen=True, slots=True)
class Arm:
    """Where cases come from (``make``), with which recipe and changes to it, and who picks (``select``).

    ``twins``: the recipe tests the resistant net beside the plain one; ``sibling``: the plain net is the other model.
    """

    make: str
    recipe: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    select: str = "random"
    twins: bool = False
    sibling: bool = False
    labels: bool = True
    bound: bool = True  # whether eps is given to the recipe

    def config(self, eps: float) -> dict[str, Any]:
        """What makes the arm, all parameters of its recipe set."""
        told: dict[str, Any] = {"make": self.make}
        if self.make == "fuzz":
            told["recipe"] = resolve(self.recipe, self.changes, ball_of(eps if self.bound else None, None)).config()
        if self.make not in ("none", "adversarial"):
            told["select"] = self.select
        if self.make == "bim":
            told["attack"] = BIM
        return told if self.labels else told | {"labels": False}


# FOL as both papers' code has it, the length of the gradient: an eps that is given would make it the linf form.
FOL = "fol(norm=l2, eps=null)"
ROBOT = {"objective": f"rivals(k=5), -true_prob, {FOL}", "score": f"{FOL}, zol"}
TWIN = {
    "objective": f"{FOL}, lib(beta=10)",
    "score": f"{FOL}, zol, entropy, lib(beta=10)",
    "opinions": "leaves, leaves_wrong",
}
# The paper's seeds: attacks on the plain net alone, of which few carry over to the resistant one.
PAPER = {"seeds.attacked.model": "vulnerable", "seeds.attacked.count": 20000}
# Chains without a quality filter, of our seeds and the paper's.
_NO_FILTER = {"seeds": "attacked(model=both, count=5000), agreed(on=error)", "valid": "within(relative=1.0)"}
_PAPER_NO_FILTER = {"seeds": "attacked(count=20000), agreed(on=error)", "valid": "within(relative=1.0)"}


def _twin(changes: Mapping[str, Any] | None = None, select: str = "bi_end", *, labels: bool = True) -> Arm:
    return Arm("fuzz", "twinfuzz", TWIN | dict(changes or {}), select, twins=True, labels=labels)


# In the order they are computed, so that a run that is cut short has what the verdict asks for first.
ARMS: dict[str, Arm] = {
    "fine-tuning": Arm("none"),
    "TwinFuzz": _twin(),
    "RobOT": Arm("fuzz", "robot", ROBOT, select="bi_end"),
    "paper's seeds": _twin(PAPER),
    "noise": Arm("noise"),
    "BIM cases": Arm("bim"),
    "mined seeds": Arm("mined"),
    "DLFuzz": Arm("fuzz", "dlfuzz"),
    "DeepXplore": Arm("fuzz", "deepxplore", sibling=True),
    "FOL only": _twin(PAPER | {"objective": FOL}),
    "entropy only": _twin(PAPER | {"objective": "entropy"}),
    "no mining": _twin(PAPER | {"seeds.agreed.on": "any"}),
    "no filter": _twin(_PAPER_NO_FILTER),
    "true class": _twin(PAPER | {"seeds.agreed.reference": "label"}),
    "agreed oracle": _twin(PAPER | {"oracle": "agreed"}, labels=False),
    "random pick": _twin(select="random"),
    "top LIB": _twin(select="top(score=lib)"),
    "adversarial": Arm("adversarial"),
}
# What was tried on the way to our seeds, and left: twenty thousand attacked, one case a seed, and so on.
_BOTH = {"seeds.attacked.model": "both", "seeds.attacked.count": 20000}
_ONE = _BOTH | {"schedule.cases": 1}
TRIED: dict[str, Arm] = {
    "20 000 attacked": _twin(_BOTH),
    "20 000, one a seed": _twin(_ONE),
    "20 000, one a seed, true class": _twin(_ONE | {"seeds.agreed.reference": "label"}),
    "20 000, one a seed, early stop": _twin(_ONE | {"seeds.attacked.attack": "bim(steps=20, step=0.1)"}),
}
# What the quality filter is varied over, without training: the level that keeps 60 %, fixed levels, none.
FILTERS: dict[str, Arm] = {
    "keep 60 %": ARMS["TwinFuzz"],
    **{
        f"SSIM ≥ {tau:g}": _twin({"seeds.quality.least": tau, "valid.quality.least": tau})
        for tau in (0.3, 0.5, 0.7, 0.9)
    },
    "none": _twin(_NO_FILTER),
}


class Maker:
    """Cases for the arms of one pair of nets; fuzzing runs are kept in a folder and serve all arms that share them."""

    def __init__(self, twins: Twins, count: int, pool: int, slice_s: float, most_s: float) -> None:
        self.twins, self.count, self.pool, self.slice_s, self.most_s = twins, count, pool, slice_s, most_s

    def cases(self, arm: Arm) -> tuple[Cases | None, dict[str, Any]]:
        """The cases an arm trains on, on the nets' device, and what there is to tell of them."""
        if arm.make in ("none", "adversarial"):
            return None, {}
        started = time.perf_counter()
        some, told = getattr(self, f"_{arm.make}")(arm)
        if arm.make != "fuzz":
            told["made_seconds"] = round(time.perf_counter() - started, 2)
        picked = self._picked(arm, some)
        told |= {"cases": len(picked), "picked": described(picked), "share_wrong": self._wrong(picked)}
        return (picked if len(picked) else None), told

    def _noise(self, arm: Arm) -> tuple[Cases, dict[str, Any]]:
        """Uniform noise of size eps on random training images; whether it fools anybody does not matter."""
        twins = self.twins
        some = drawn(twins.seeds_from.cases, self.count, twins.rng.at("noise")).to(twins.device)
        noise = bind("mutator", "noise", {}, {"eps": twins.eps, "norm": "linf"})
        made = noise(twins.bench(twins.resistant), some, rng=twins.rng.at("noise").rows(some.origin))
        return Cases(made, some.y, some.origin, {"seed_x": some.x}), {}

    def _bim(self, arm: Arm) -> tuple[Cases, dict[str, Any]]:
        """BIM examples that fool the plain net, as TwinFuzz's seeds do before anything is mined or mutated."""
        twins = self.twins
        order = drawn(twins.seeds_from.cases, len(twins.seeds_from), twins.rng.at("bim"))
        parts, tried = list[Cases](), 0
        while tried < len(order) and sum(map(len, parts)) < self.count:
            some = order[tried : tried + BLOCK].to(twins.device)
            some = some[twins.predicted(twins.vulnerable, some.x) == some.y]
            made = twins.attacked(twins.vulnerable, some, BIM, {"eps": twins.eps, "norm": "linf"}, twins.rng.at("bim"))
            parts.append(made[twins.predicted(twins.vulnerable, made.x) != made.y])
            tried += BLOCK
        return Cases.cat(parts), {"tried": min(tried, len(order))}

    def _mined(self, arm: Arm) -> tuple[Cases, dict[str, Any]]:
        """TwinFuzz's seeds as they are, attacked, filtered and mined, but not mutated."""
        try:
            kept = decode(store.read(self._found(ARMS["paper's seeds"]).run).file(FILE))
        except NothingToTest as error:
            return self._none(), {"why": str(error)}
        clean = self.twins.seeds_from.cases[kept["place"]]
        return Cases(kept["x"], kept["y"], clean.origin, {"seed_x": clean.x}), {}

    def _fuzz(self, arm: Arm) -> tuple[Cases, dict[str, Any]]:
        try:
            found = self._found(arm)
        except NothingToTest as error:  # no seed passes the chain: an arm without cases
            return self._none(), {"found": 0, "why": str(error)}
        return found.load() if found.failures else self._none(), self._told(arm, found)

    def fuzzed(self, arm: Arm) -> dict[str, Any]:
        """What fuzzing alone has to tell, over all it found."""
        cases, told = self._fuzz(arm)
        return told | {"picked": described(cases.to(self.twins.device))}

    def _none(self) -> Cases:
        none = self.twins.seeds_from.cases[:0]
        return none.note(seed_x=none.x, **dict.fromkeys(("fol", "lib"), torch.zeros(0)))

    def _found(self, arm: Arm) -> Found:
        """A run of the fuzzer, in slices of time until it has enough or its time is over."""
        twins, seconds = self.twins, self.slice_s
        config = json.dumps([arm.config(twins.eps)["recipe"], twins.eps, arm.labels], sort_keys=True)
        digest = hashlib.sha256(f"{config}{twins.resistant.fingerprint()}".encode()).hexdigest()[:12]
        folder = twins.work / "runs" / f"{arm.recipe}-{digest}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        data = twins.seeds_from
        if not arm.labels:
            data = replace(data, cases=replace(data.cases, y=torch.full_like(data.cases.y, UNLABELLED)))
        while True:
            found = fuzz(
                arm.recipe,
                twins.vulnerable if arm.twins else twins.resistant,
                data,
                folder=folder,
                time=seconds,
                seed=twins.seed,
                eps=twins.eps if arm.bound else None,
                changes=arm.changes,
                siblings=(twins.vulnerable,) if arm.sibling else (),
                resistant=twins.resistant if arm.twins else None,
            )
            if found.failures >= self.pool or seconds >= self.most_s:
                return found
            seconds = min(2 * seconds, self.most_s)

    def _told(self, arm: Arm, found: Found) -> dict[str, Any]:
        """Counts and speed of a run."""
        seconds = max(found.seconds, 1e-9)
        told: dict[str, Any] = {
            "found": found.failures,
            "wrong": found.wrong,
            "distinct": found.distinct,
            "broken": found.broken,
            "tried": found.cases,
            "fuzz_seconds": round(found.seconds, 2),
            "per_minute": round(60 * found.failures / seconds, 1),
            "steps_per_second": round(found.gradient_steps / seconds, 1),
            "opinions": dict(found.opinions),
            "seeding": dict(found.seeding),
            "seed_list": found.stats.get("seed_list"),
        }
        cases = found.load() if found.failures else None
        if cases is not None and "others_pred" in cases.info:
            both = cases.info["others_pred"][:, 0] == cases.info["pred"]
            told["both_fooled"] = share(both & (cases.info["pred"] != cases.y))
        if cases is not None and not arm.labels:
            told |= self._by_truth(cases)
        return told

    def _by_truth(self, cases: Cases) -> dict[str, Any]:
        """How right the label-free oracle is: failures that are wrong by the true label too, and labels that hold."""
        truth = self.twins.host.part("train").cases
        place = torch.searchsorted(truth.origin, cases.origin)
        y = truth.y[place]
        return {"precision": share(cases.info["pred"] != y), "labels_right": share(cases.y == y)}

    def _picked(self, arm: Arm, cases: Cases) -> Cases:
        twins = self.twins
        name, params = step(arm.select)
        pick = bind("selector", name, params)
        rng = twins.rng.at("select", arm.make, arm.recipe)
        rows = pick(twins.bench(twins.resistant), cases, min(self.count, len(cases)), rng=rng)
        return cases[rows.to(cases.x.device)].to(twins.device)

    def _wrong(self, cases: Cases) -> dict[str, float | None]:
        """Which share of the cases each net gets wrong, by the label they are learned with."""
        twins = self.twins
        nets = (("vulnerable", twins.vulnerable), ("resistant", twins.resistant))
        return {name: share(twins.predicted(net, cases.x) != cases.y) for name, net in nets}
