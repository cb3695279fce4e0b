"""How a net is measured: examples made once on the plain net (static), attacks on the net itself (white box), noise."""

import functools
import time
from collections.abc import Mapping
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.registry import lookup
from assay.core.specs import step
from papers.twinfuzz_subject import RADIUS, Params, Twins, share

SEEN = ("fgsm", "pgd")  # what the resistant net was trained with: training-specific
NEW = ("mim", "deepfool", "cw", "square")  # what no net has seen; BIM apart, because TwinFuzz's seeds are BIM examples
SEED_ATTACK = "bim"

# Static: FGSM and PGD as they made the heap, DeepFool as in the paper's code (l2, no bound), nothing stops early.
STATIC = {
    "fgsm": "fgsm(random_start=true, early_stop=false)",
    "pgd": "pgd(steps=10, step=0.125, early_stop=false)",
    "bim": "bim(steps=20, step=0.2, early_stop=false)",
    "mim": "mim(steps=20, step=0.2, early_stop=false)",
    "deepfool": "deepfool(norm=l2)",
    "cw": "cw(norm=l2)",
    "square": "square(queries=500)",
}
WHITE = {
    "fgsm": "fgsm",
    "pgd": "pgd(steps=40, restarts=2)",
    "bim": "bim(steps=20)",
    "mim": "mim(steps=20)",
    "deepfool": "deepfool(norm=linf)",
    "cw": "cw(norm=l2)",
    "square": "square(queries=500)",
}
# AutoAttack's four, Square with fewer queries (5000 in the original), because of device time.
AUTO = ("apgd_ce", "apgd_t", "fab_t", "square(queries=1000, rescale=false)")
NEARER = 3  # the second, smaller ball is eps divided by this
IMAGES = 1000  # first test images under attack, half of them under AutoAttack; clean accuracy is that of all
SEVERITIES = (1, 3, 5)


def protocol(images: int) -> dict[str, Any]:
    """What of this is part of a row."""
    return {
        "static": STATIC,
        "white": WHITE,
        "auto": list(AUTO),
        "nearer": NEARER,
        "images": [images, images // 2],
        "severities": list(SEVERITIES),
    }


class Measure:
    """The test images of two nets, as they are, attacked on the plain one, and corrupted."""

    def __init__(self, twins: Twins, images: int = IMAGES) -> None:
        self.twins, self.auto_images = twins, images // 2
        self.test = twins.part("test")[:images]

    @functools.cached_property
    def static(self) -> dict[str, Cases]:
        """Examples of the images that the plain net gets right, by attack; ``fooling`` says which fool it."""
        twins = self.twins
        right = self.test[twins.predicted(twins.vulnerable, self.test.x) == self.test.y]
        made = {}
        for name, attack in STATIC.items():
            ball: Params = {} if name in ("deepfool", "cw") else {"eps": twins.eps, "norm": "linf"}
            some = twins.attacked(twins.vulnerable, right, attack, ball, twins.rng.at("static"))
            made[name] = some.note(fooling=twins.predicted(twins.vulnerable, some.x) != some.y)
        return made

    @functools.cached_property
    def corrupted(self) -> dict[str, list[Tensor]]:
        """The images after every corruption, by kind, in the order of severities."""
        found: dict[str, list[Tensor]] = {}
        twins = self.twins
        for member in lookup("suite", "corruptions")[1].attacks:
            _, params = step(member)
            if params["severity"] in SEVERITIES:
                text = f"corrupt(kind={params['kind']}, severity={params['severity']})"
                made = twins.attacked(twins.vulnerable, self.test, text, {}, twins.rng.at(text)).x
                found.setdefault(params["kind"], []).append(made)
        return found

    def __call__(self, net: nn.Module) -> dict[str, Any]:
        """All numbers of a net; ``near`` and ``auto_near`` are those of the smaller ball."""
        started = time.perf_counter()
        twins, target = self.twins, self.twins.target(net)
        whole = twins.part("test")
        numbers: dict[str, Any] = {"clean": share(twins.predicted(target, whole.x) == whole.y)}
        judged = {name: twins.predicted(target, some.x) == some.y for name, some in self.static.items()}
        numbers["static"] = {name: share(right) for name, right in judged.items()}
        numbers["fooling"] = {name: share(right[self.static[name].info["fooling"]]) for name, right in judged.items()}
        at = self.test[twins.predicted(target, self.test.x) == self.test.y]
        for key, part in (("white", 1.0), ("near", 1 / NEARER)):
            numbers[key] = {name: self._standing(target, at, text, part) for name, text in WHITE.items()}
        few = self.test[: self.auto_images]
        numbers["auto"], numbers["auto_near"] = (self._cascade(target, few, part) for part in (1.0, 1 / NEARER))
        kinds = {
            kind: round(mean(share(twins.predicted(target, x) == self.test.y) or 0.0 for x in some), 5)
            for kind, some in self.corrupted.items()
        }
        numbers |= {"corruptions": round(mean(kinds.values()), 5), "corruption_kinds": kinds}
        numbers |= summaries(numbers)
        return numbers | {"measure_seconds": round(time.perf_counter() - started, 2), "device": twins.device.type}

    def ball(self, name: str, part: float) -> Params:
        """The ball of an attack, or that part of it: linf, but l2 for C&W, which knows no other."""
        if name == "cw":
            return {"eps": RADIUS[self.twins.data] * part}
        return {"eps": self.twins.eps * part, "norm": "linf"}

    def _standing(self, target: Any, right: Cases, attack: str, part: float) -> float:
        """The share of all images that are right and stay so; only those that are right are attacked."""
        made = self._made(target, right, attack, part)
        return round(int((self.twins.predicted(target, made) == right.y).sum()) / max(1, len(self.test)), 5)

    def _made(self, target: Any, cases: Cases, attack: str, part: float) -> Tensor:
        ball = self.ball(step(attack)[0], part)
        return self.twins.attacked(target, cases, attack, ball, self.twins.rng.at("white")).x

    def _cascade(self, target: Any, cases: Cases, part: float) -> float:
        """AutoAttack: each attack sees what the ones before it left."""
        total = max(1, len(cases))
        cases = cases[self.twins.predicted(target, cases.x) == cases.y]
        for attack in AUTO:
            if len(cases):
                made = self._made(target, cases, attack, part)
                cases = cases[self.twins.predicted(target, made) == cases.y]
        return round(len(cases) / total, 5)


def summaries(numbers: Mapping[str, Any]) -> dict[str, float | None]:
    """Training-specific and generalised means of each column; the columns are never mixed."""
    told: dict[str, float | None] = {}
    for column in ("static", "fooling", "white", "near"):
        found = numbers[column]
        for key, names in (("seen", SEEN), ("new", NEW), ("new_bim", (SEED_ATTACK, *NEW))):
            values = [found[name] for name in names if found[name] is not None]
            told[f"{column}_{key}"] = round(mean(values), 5) if values else None
    return told


def described(cases: Cases) -> dict[str, float]:
    """Means over cases: how far from their clean parents, how alike, and the terms of what was climbed, where known."""
    from assay.core.images import ssim

    if not len(cases):
        return {}
    parents = cases.info["seed_x"].to(cases.x.device)
    delta = (cases.x - parents).flatten(1)
    told = {"linf": delta.abs().amax(1), "l2": delta.norm(dim=1)}
    if cases.x.dim() == 4:
        told["ssim"] = ssim(cases.x, parents)
    told |= {name: cases.info[name] for name in ("fol", "zol", "entropy", "lib") if name in cases.info}
    means = {name: float(values.double().nanmean()) for name, values in told.items()}
    return {**{k: float(f"{v:.5g}") for k, v in means.items()}, "parents": len(torch.unique(cases.origin))}
