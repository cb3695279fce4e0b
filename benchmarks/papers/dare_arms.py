"""The arms: what is done to the original net before it is measured. DARE, controls, baselines, and DARE's ablations."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from assay.core.cases import Cases
from assay.stages.trainers.dare import Dare, tuned
from assay.stages.trainers.loop import Task, fit
from assay.stages.trainers.made_history import made_history
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.shaken import shaken
from assay.subjects.layers import layers_of
from assay.subjects.target import answer
from papers.dare_attacks import ATTACKS
from papers.dare_measure import Measure, averaged, moved, with_means
from papers.dare_subject import HELD_OUT, TEMPERATURE, Kept, Params, Subject

CHECKED = 0.1  # of D choose the epoch of the cross-entropy control, as they choose DARE's
FEWEST = 10  # examples without which a net is not trained on an attack
PENULTIMATE = "penultimate"  # stands for the name of the last layer before the logits
# The paper's code: ten batches of 128. Here they share no input, there each is drawn from all.
CODE = Dare(count=1280, epochs=1, batch=128, lr=1e-5, patience=0)


@dataclass(frozen=True, slots=True)
class Arm:
    """What is done (``make``: the maker's method) and with which settings, which are part of the row."""

    make: str
    how: Mapping[str, Any] = field(default_factory=dict)


def _dare(how: Dare, *, made: bool = False) -> Arm:
    return Arm("dare", asdict(how) | {"history": "made" if made else "own"})


def arms(epochs: int, distil_epochs: int) -> dict[str, Arm]:
    """All arms in the order they are computed: a run that is cut short has what the verdict asks for first."""
    adam: Params = {"optimiser": "adam", "schedule": "constant", "batch": 128}
    seen: Params = adam | {"lr": 1e-4, "epochs": 20, "kept": 0.2}
    return {
        "original": Arm("original"),
        "dare": _dare(Dare()),
        "noise": Arm("noise", {"of": "dare"}),
        **{f"at-{name}": Arm("seen", seen | {"attack": name}) for name in ATTACKS},
        "ce": Arm("ce", adam | {"lr": 1e-5, "epochs": Dare().epochs, "kept": CHECKED}),
        "dare-noslice": _dare(Dare(slice="all")),
        "noise-noslice": Arm("noise", {"of": "dare-noslice"}),
        "distilled": Arm("distilled", {"temperature": TEMPERATURE, "epochs": distil_epochs}),
        "whole": Arm("whole", {"epochs": max(1, round(epochs * (1 - HELD_OUT)))}),
        "code": _dare(CODE),
        "dare-last": _dare(Dare(layer="softmax")),
        "dare-notransform": _dare(Dare(transform=False, lr=1e-4)),
        "slice=random": _dare(Dare(slice="random")),
        "slice=links": _dare(Dare(slice="links")),
        "layer=penultimate": _dare(Dare(layer=PENULTIMATE)),
        "made-history": _dare(Dare(), made=True),
    }


MAIN = (
    "original",
    "dare",
    "noise",
    *(f"at-{name}" for name in ATTACKS),
    "ce",
    "dare-noslice",
    "noise-noslice",
    "distilled",
    "whole",
)
ABLATIONS = tuple(name for name in arms(1, 1) if name not in MAIN)
SHAKEN = ("dare", "dare-noslice")  # arms with a control of noise as large
Made = tuple[nn.Module, Params]


class Maker:
    """Nets and numbers of the arms of one subject."""

    def __init__(self, subject: Subject, measure: Measure) -> None:
        self.subject, self.measure = subject, measure
        self._tuned: dict[str, Made] = {}  # that noise is held against

    def __call__(self, arm: Arm) -> Params:
        """The numbers of an arm."""
        if arm.make == "noise":
            return self._noise(arm.how["of"])
        started = time.perf_counter()
        made: Made | None = getattr(self, f"_{arm.make}")(arm.how)
        if made is None:
            return {"why": f"fewer than {FEWEST} examples to learn from"}
        net, told = made
        seconds = {"seconds": round(time.perf_counter() - started, 2)}
        return self.measure(net) | {"moved": moved(self.subject.original, net), "trained": told} | seconds

    def _original(self, how: Mapping[str, Any]) -> Made:
        return self.subject.original, self.subject.watch.told() | {"examples": self.measure.examples.told}

    def _dare(self, how: Mapping[str, Any]) -> Made:
        name = next((name for name in SHAKEN if arms(1, 1)[name].how == how), "")
        if name in self._tuned:
            return self._tuned[name]
        subject, rng, watch = self.subject, self.subject.rng.at("dare"), Kept()
        settings = {k: v for k, v in how.items() if k != "history"}
        if settings["layer"] == PENULTIMATE:
            settings["layer"] = layers_of(subject.target, "last").each[0].label
        past = made_history(subject.original, subject.splits, rng) if how["history"] == "made" else subject.snapshots
        net = tuned(subject.original, subject.splits, past, Dare(**settings), rng=rng, watch=watch)
        made = net.eval(), watch.told()
        if name:
            self._tuned[name] = made
        return made

    def _noise(self, of: str) -> Params:
        """Noise on the weights that DARE moved, as far in each tensor: the mean of several draws."""
        started, sizes = time.perf_counter(), self.measure.sizes
        after, _ = self._dare(arms(1, 1)[of].how)
        told = []
        for draw in range(sizes.draws):
            net = shaken(self.subject.original, after, self.subject.rng.at("noise", draw)).eval()
            told.append(
                self.measure(net, fresh=draw < sizes.fresh_draws) | {"moved": moved(self.subject.original, net)}
            )
        return with_means(averaged(told)) | {"seconds": round(time.perf_counter() - started, 2)}

    def _ce(self, how: Mapping[str, Any]) -> Made:
        return self._more(self.subject.held.cases, how)

    def _seen(self, how: Mapping[str, Any]) -> Made | None:
        """The baseline: trained on the examples of one attack."""
        cases = self.measure.examples.learn[how["attack"]]
        return self._more(cases, how) if len(cases) >= FEWEST else None

    def _more(self, cases: Cases, how: Mapping[str, Any]) -> Made:
        """The original net trained on these, a share of them kept back."""
        params = {k: v for k, v in how.items() if k not in ("kept", "attack")}
        watch, parts = Kept(), self.subject.parted(cases.drop("seed_x", "fooling"), how["kept"])
        net = self.subject.fitted(self.subject.original, parts, params, watch)
        return net, watch.told() | {"cases": len(parts.part("train"))}

    def _distilled(self, how: Mapping[str, Any]) -> Made:
        """A net trained anew on what the original says of its own training images, softened."""
        subject, heat, watch = self.subject, float(how["temperature"]), Kept()
        train, val = subject.part("train"), subject.part("val")
        soft = (answer(subject.target, train.x, subject.chunks) / heat).softmax(1)
        # Augmentation moves the images, and the labels stay those of the image as it is.
        plan = Plan(**subject.plan | {"epochs": how["epochs"]})
        task, rng = _softened(soft, heat), subject.rng.at("train")
        with subject.quick():
            net = fit(subject.start(), train, val, plan, rng=rng, watch=watch, task=task)
        return net.eval(), watch.told()

    def _whole(self, how: Mapping[str, Any]) -> Made:
        watch = Kept()
        return self.subject.trained(self.subject.whole, how["epochs"], watch), watch.told()


def _softened(soft: Tensor, heat: float) -> Task:
    """Cross-entropy to soft labels, both sides at one temperature."""

    def loss(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        out: Tensor = net(x)
        # Times the temperature, so that gradients are as large as those of plain cross-entropy.
        return -(soft[rows] * (out.float() / heat).log_softmax(1)).sum(1).mean() * heat

    return Task(loss)
