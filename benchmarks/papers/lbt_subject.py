"""What LBT's experiments are made on: a model under test, nets beside it, and pools of attacked images, all kept."""

import functools
import io
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.files import write_atomic
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.shapes import column
from assay.core.specs import step
from assay.engines.session import session
from assay.engines.train import train
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Data, Splits
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target, module_of, pick_device
from assay.subjects.target import Target, answer

Params = dict[str, Any]

DATA = ("mnist", "fashion-mnist")
NETS = ("resnet20", "vgg16")
EPS = {"mnist": 0.3, "fashion-mnist": 0.1, "digits": 0.2}
# Failed attacks are kept. FGSM moves every image; an image that JSMA cannot get over comes back as it was.
ATTACKS = {"fgsm": "fgsm(early_stop=false)", "jsma": "jsma(theta=1, gamma=0.12)"}


@dataclass(frozen=True, slots=True)
class Making:
    """How a pool is made: by which attack, on the ``other`` model, with each change shortened by a ``drawn`` share."""

    attack: str
    other: bool = False
    drawn: bool = False

    def to_json(self, data: str) -> Params:
        eps = {"eps": EPS[data]} if self.attack == "fgsm" else {}
        told = {"attack": ATTACKS[self.attack], **eps, "on": "the other model" if self.other else "the model"}
        return told | ({"change": "times a uniform draw from [0, 1)"} if self.drawn else {})


# The paper's two, and two with more images that are no faults, because with few of these every order finds faults.
POOLS = {
    "fgsm": Making("fgsm"),
    "jsma": Making("jsma"),
    "fgsm-drawn": Making("fgsm", drawn=True),
    "jsma-transfer": Making("jsma", other=True),
}
# For each model the one that pools of the other model are made on.
OTHER = {"resnet20": "vgg16", "vgg16": "resnet20", "lenet5": "lenet4", "lenet4": "lenet5"}
WITNESS = "lenet5"  # the net whose features tell inputs apart; trained apart from all others
WITNESS_SEED = 1000
CHOOSE = 0.2  # of the validation part chooses epochs; the rest is attacked and only measured on
CHUNK = {"vgg16": 2500, "resnet20": 5000}  # rows at once on a GPU

_SGD: Params = {"batch": 128, "optimiser": "sgd", "weight_decay": 5e-4, "schedule": "cosine"}
_ADAM: Params = {"batch": 64, "optimiser": "adam", "lr": 1e-3, "schedule": "cosine"}
_PLANS: dict[str, Params] = {"resnet20": _SGD | {"lr": 0.1}, "vgg16": _SGD | {"lr": 0.05}}
RETRAIN: Params = {"batch": 64, "optimiser": "sgd", "lr": 0.01, "weight_decay": 5e-4, "schedule": "cosine"}


@dataclass(frozen=True, slots=True)
class Scale:
    """How large all of it is: images (0 means all), epochs from scratch and of retraining, images attacked anew."""

    train: int = 0
    pool: int = 0
    held: int = 0
    epochs: int = 10
    retrain_epochs: int = 10
    fresh: int = 1000


SMALL = Scale(train=2000, pool=300, held=100, epochs=2, retrain_epochs=1, fresh=50)


def plan_of(net: str, scale: Scale) -> Params:
    return _PLANS.get(net, _ADAM) | {"epochs": scale.epochs}


@dataclass(frozen=True, slots=True)
class Pool:
    """Attacked images ``x`` with the labels ``y`` of their parents and the model's answers ``pred``, on the CPU."""

    name: str
    x: Tensor
    y: Tensor
    pred: Tensor

    def __len__(self) -> int:
        return len(self.y)

    @property
    def wrong(self) -> Tensor:
        """The faults, (n,)."""
        return self.pred != self.y

    @property
    def faults(self) -> int:
        return int(self.wrong.sum())


class Subject:
    """A model under test of one data set. Nets and pools are made once and kept in the folder ``work``."""

    def __init__(self, data: str, mut: str, *, device: str, work: Path, scale: Scale, seed: int = 0) -> None:
        self.data, self.mut, self.seed, self.scale, self.work = data, mut, seed, scale, work
        self.device = pick_device(device)
        self.chunks = Chunks(CHUNK.get(mut, 10000) if self.device.type == "cuda" else 256)
        self.rng = Stream(seed, ("lbt", data, mut))

    @property
    def title(self) -> str:
        return f"{self.data} {self.mut}"

    @property
    def machine(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"

    @functools.cached_property
    def _given(self) -> Splits:
        return load_splits(self.data)

    @functools.cached_property
    def splits(self) -> Splits:
        """The data; its validation part is the fifth that chooses epochs."""
        given = self._given
        learn, val = given.part("train"), given.part("val")
        learn = learn[: self.scale.train] if self.scale.train else learn
        return Splits(self.data, train=learn, val=val[: round(CHOOSE * len(val))], test=given.part("test"))

    def images(self, part: str) -> Cases:
        """The clean images that pools are made of: ``test``, or ``held``, the validation images that choose nothing."""
        if part == "test":
            return self.splits.part("test").cases[: self.scale.pool or None]
        val = self._given.part("val")
        return val.cases[round(CHOOSE * len(val)) :][: self.scale.held or None]

    @functools.cached_property
    def labelled(self) -> Data:
        """What MetaSel begins with and learns from: validation images that the model has not seen in training, because
        of those it has seen it gets too few wrong, and as many that it has seen.
        """
        val, learn = self._given.part("val"), self.splits.part("train")
        unseen = val.cases[round(CHOOSE * len(val)) :]
        both = Cases.cat([unseen, learn.cases[: len(unseen)]])
        return Data(f"{self.data}/labelled", Cases.of(both.x, both.y), learn.spec)

    # ---- nets ----

    def net(self, name: str, seed: int) -> Target:
        """A net trained plainly; the one that is kept where there is one."""
        kept = f"{self.data}-{name}-{seed}-{self.scale.train or 'all'}-{self.scale.epochs}.safetensors"
        place = self.work / kept
        with self.quick():
            train(name, self.splits, place, params=plan_of(name, self.scale), seed=seed, device=str(self.device))
        return load_target(f"{name}@{place}", device=str(self.device))

    @functools.cached_property
    def target(self) -> Target:
        """The model under test."""
        return self.net(self.mut, self.seed)

    @functools.cached_property
    def other(self) -> Target:
        return self.net(OTHER[self.mut], self.seed)

    @functools.cached_property
    def witness(self) -> Target:
        return self.net(WITNESS, WITNESS_SEED)

    @functools.cached_property
    def fingerprint(self) -> str:
        return self.target.fingerprint()

    def target_of(self, net: nn.Module) -> Target:
        return load_target(net, data=self.splits.part("train")[:64])

    def quick(self) -> AbstractContextManager[object]:
        """Half precision for training on a GPU; all that is measured is in single."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False)

    def retrained(self, extra: Cases | None, seed: int) -> nn.Module:
        """The model trained further, on the training part and the extra cases, after its last epoch."""
        last = _Last()
        fit = bind("trainer", "plain", RETRAIN | {"epochs": self.scale.retrain_epochs})
        with session(), self.quick():
            rng = self.rng.at("retrain", seed)  # the same for all arms of a seed
            made: nn.Module = fit(module_of(self.target), self.splits, extra, rng=rng, watch=last)
        made.load_state_dict(last.weights)
        return made.eval()

    def predicted(self, target: Target, x: Tensor) -> Tensor:
        with target.ready():
            return answer(target, x, self.chunks).argmax(1).cpu()

    # ---- pools ----

    def attacked(self, target: Target, cases: Cases, how: Making) -> Tensor:
        """What the attack makes of every image on that target, failed attempts too, (n, *shape) on the CPU."""
        name, params = step(ATTACKS[how.attack])
        ball = {"eps": EPS[self.data], "norm": "linf"} if how.attack == "fgsm" else {}
        bound = bind("attack", name, params | ball)
        keys = Stream(self.seed, ("lbt", "pool", how.attack))

        def make(x: Tensor, y: Tensor, origin: Tensor) -> Tensor:
            clean, rng = x.to(target.device), keys.rows(origin.to(target.device))
            made: Tensor = bound(target, clean, y.to(target.device), rng=rng)
            if how.drawn:
                made = clean + column(rng.at(0).uniform(()), clean) * (made - clean)
            return made.detach().cpu()

        with session(), target.ready():
            return self.chunks.map(make, cases.x, cases.y, cases.origin)

    def pool(self, name: str, part: str = "test") -> Pool:
        """The pool of that name; the kept one where it was made on the same nets."""
        how, clean = POOLS[name], self.images(part)
        maker = self.other if how.other else self.target
        facts = how.to_json(self.data) | {
            "maker": maker.fingerprint(),
            "model": self.fingerprint,
            "images": len(clean),
        }
        path = self.work / f"{self.data}-{self.mut}-{name}-{part}-{len(clean)}.npz"
        return _kept(path, name, facts) or self._made(path, name, facts, self.attacked(maker, clean, how), clean.y)

    def _made(self, path: Path, name: str, facts: Mapping[str, Any], x: Tensor, y: Tensor) -> Pool:
        made = Pool(name, x, y, self.predicted(self.target, x))
        out = io.BytesIO()
        columns = {key: getattr(made, key).numpy() for key in ("x", "y", "pred")}
        np.savez(out, facts=np.array(json.dumps(facts, sort_keys=True)), **columns)
        own = path.with_name(f"{path.stem}-{os.getpid()}.npz")  # processes side by side may make the same
        write_atomic(own, out.getvalue())
        own.replace(path)
        return made

    def data_of(self, pool: Pool) -> Data:
        """The pool as data, with labels that nobody but the measures may see."""
        return Data(f"{self.data}/{pool.name}", Cases.of(pool.x, pool.y), self.splits.part("train").spec)

    def extra(self, pool: Pool, rows: Tensor) -> Cases:
        """Rows of a pool with their true labels, to learn from."""
        some = Cases.of(pool.x[rows], pool.y[rows])
        return replace(some, origin=some.origin + len(self.splits.part("train")))


class _Last(Unwatched):
    """Keeps the weights of the last epoch: the best one by clean images need not have learned the others."""

    def __init__(self) -> None:
        self.weights: Mapping[str, Tensor] = {}

    def epoch(self, state: Any, net: nn.Module) -> None:
        self.weights = state.weights


def _kept(path: Path, name: str, facts: Mapping[str, Any]) -> Pool | None:
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        if str(file["facts"]) != json.dumps(facts, sort_keys=True):
            return None
        return Pool(name, *(torch.from_numpy(file[key]) for key in ("x", "y", "pred")))
