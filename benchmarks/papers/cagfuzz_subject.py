"""What CAGFuzz's experiments are made on: families of nets, a witness and an extractor for each data set, all kept."""

import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.session import session
from assay.engines.train import train
from assay.stages.trainers.watch import State, Unwatched
from assay.stages.workshop import WORKSHOP, Columns, Shown
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target, new_net, pick_device
from assay.subjects.sources.module import normalised
from assay.subjects.target import Target, answer

Params = dict[str, Any]

DATA = ("mnist", "fashion-mnist", "cifar10")
FAMILY = {"grey": ("lenet1", "lenet4", "lenet5"), "colour": ("vgg16", "vgg19", "resnet20")}
# Both are trained apart from every model under test, with seeds of their own.
REFERENCE = {"grey": ("lenet5", 1000), "colour": ("resnet20", 1000)}  # whose features say what is similar
WITNESS = {"grey": ("resnet20", 2000), "colour": ("resnet18", 2000)}  # who says whether a label still holds
EPS = {"mnist": 0.1, "fashion-mnist": 0.1, "cifar10": 8 / 255}  # of FGSM, linf
FRESH_EPS = {"mnist": 0.1, "fashion-mnist": 0.02, "cifar10": 1 / 255}  # of PGD on retrained nets, linf
AEG = {"grey": "", "colour": "images=5000"}  # how generators are made, where nobody says: longer for colour
CHUNK = {"grey": 8192, "colour": 512}  # rows at once on a GPU

_ADAM: Params = {"batch": 128, "optimiser": "adam", "lr": 1e-3, "schedule": "cosine"}
_SGD: Params = {"batch": 128, "optimiser": "sgd", "weight_decay": 5e-4, "schedule": "cosine"}
_RATES = {"vgg16": 0.05, "vgg19": 0.05, "resnet20": 0.1, "resnet18": 0.1}
MOVED: Params = {"augment": "flip,shift=0.125"}


@dataclass(frozen=True, slots=True)
class Scale:
    """How large all of it is: training and test images (0 means all), epochs of grey and of coloured nets, images of
    RQ2 and RQ3, epochs of RQ1 and RQ3, images attacked anew, candidates an image; ``aeg`` is how the generator is made.
    """

    train: int = 0
    test: int = 0
    grey: int = 10
    colour: int = 15
    images: int = 2000
    sample: int = 5000
    small_epochs: int = 50
    retrain_epochs: int = 5
    fresh: int = 1000
    candidates: int = 10
    aeg: str = ""


SMALL = Scale(
    train=600, test=300, grey=6, colour=1, images=40, sample=60, small_epochs=3, retrain_epochs=1, fresh=20,
    candidates=3, aeg="epochs=2, images=300, width=8, snapshots=2, lr=0.005, identity=5",
)  # fmt: skip


def kind_of(data: str, shape: tuple[int, ...]) -> str:
    return "colour" if data == "cifar10" or shape[0] > 1 else "grey"


def plan_of(net: str, kind: str, scale: Scale) -> Params:
    """How a net of the whole training part is trained."""
    epochs = {"epochs": scale.colour if kind == "colour" else scale.grey}
    if net not in _RATES:
        return _ADAM | epochs
    return _SGD | {"lr": _RATES[net]} | epochs | (MOVED if kind == "colour" else {})


def retrain_of(kind: str, scale: Scale) -> Params:
    """How one is trained further."""
    base = _SGD | {"lr": 0.01} | MOVED if kind == "colour" else _ADAM
    return base | {"epochs": scale.retrain_epochs}


class Ground:
    """A data set with its nets. What is trained on all of it is kept in the folder ``work``."""

    def __init__(self, data: str, *, device: str, work: Path, scale: Scale) -> None:
        self.data, self.scale, self.work = data, scale, work
        self.device = pick_device(device)
        self.kind = kind_of(data, self.spec.shape)
        self.chunks = Chunks(CHUNK[self.kind] if self.device.type == "cuda" else 256)
        self.models = FAMILY[self.kind]
        self.aeg = scale.aeg or AEG[self.kind]
        self.eps = EPS.get(data, EPS["cifar10" if self.kind == "colour" else "mnist"])
        self.fresh_eps = FRESH_EPS.get(data, FRESH_EPS["cifar10" if self.kind == "colour" else "mnist"])
        self._nets: dict[tuple[str, int], Target] = {}
        self._parts: dict[str, Cases] = {}
        self.shared: dict[str, Any] = {}  # the generator of the data set, for all benches

    @property
    def machine(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"

    @functools.cached_property
    def splits(self) -> Splits:
        given = load_splits(self.data)
        learn, test = given.part("train")[: self.scale.train or None], given.part("test")[: self.scale.test or None]
        return replace(given, train=learn if self.scale.train else given.train, test=test)

    @functools.cached_property
    def spec(self) -> Any:
        return self.splits.part("train").spec

    @functools.cached_property
    def digest(self) -> str:
        return self.splits.part("train").fingerprint()

    def part(self, name: str) -> Cases:
        """The cases of a part, on the device."""
        if name not in self._parts:
            self._parts[name] = self.splits.part(name).cases.to(self.device)
        return self._parts[name]

    def rng(self, *path: int | str) -> Stream:
        return Stream(0, ("cagfuzz", self.data, *path))

    # ---- nets ----

    def file(self, name: str, seed: int) -> Path:
        epochs = plan_of(name, self.kind, self.scale)["epochs"]
        stem = Path(self.data).stem
        return self.work / f"{stem}-{name}-{seed}-{self.scale.train or 'all'}-{epochs}.safetensors"

    def net(self, name: str, seed: int) -> Target:
        """A net trained plainly on the training part; the one that is kept where there is one."""
        if (name, seed) not in self._nets:
            place, plan = self.file(name, seed), plan_of(name, self.kind, self.scale)
            with self.quick():
                train(name, self.splits, place, params=plan, seed=seed, device=str(self.device))
            self._nets[name, seed] = load_target(f"{name}@{place}", device=str(self.device))
        return self._nets[name, seed]

    @property
    def witness(self) -> Target:
        return self.net(*WITNESS[self.kind])

    @property
    def features(self) -> str:
        """The extractor, as it is written."""
        name, seed = REFERENCE[self.kind]
        self.net(name, seed)
        return f"reference(model={name}@{self.file(name, seed)})"

    def quick(self) -> AbstractContextManager[object]:
        """Half precision for training on a GPU; all that is measured is in single."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False)

    def fresh(self, name: str, seed: int) -> nn.Module:
        """A net with its first weights, behind the normalisation of the training part."""
        x = self.splits.part("train").cases.x[:5000].transpose(0, 1).flatten(1)
        mean, std = x.mean(1).tolist(), x.std(1).clamp_min(1e-3).tolist()
        with torch.random.fork_rng([]):
            torch.manual_seed(Stream(seed, ("cagfuzz", "weights", name)).generator().initial_seed())
            net = new_net(name, self.spec, {})
        return normalised(net, self.spec, mean, std).eval().to(self.device)

    def fitted(
        self, net: nn.Module, plan: Params, learn: Cases, val: Cases, rng: Stream, extra: Cases | None = None
    ) -> tuple[nn.Module, "Last"]:
        """A net trained on these cases, with the weights of its best epoch on ``val``; who looked on has the last."""
        last = Last()
        data = replace(self.splits, train=self._as(learn), val=self._as(val))
        with session(), self.quick():
            made: nn.Module = bind("trainer", "plain", plan)(net, data, extra, rng=rng, watch=last)
        return made.eval(), last

    def _as(self, cases: Cases) -> Data:
        return Data(self.data, Cases.of(cases.x, cases.y), self.spec)

    def target_of(self, net: nn.Module) -> Target:
        return load_target(net, data=self.splits.part("train")[:64])

    def bench(self, target: Target, training: Data | None = None) -> Bench:
        kept: dict[str, Any] = {WORKSHOP: Keeper(self.work / "sheets", Path(self.data).stem, training is None)}
        kept |= self.shared if training is None else {}
        return Bench(target, chunks=self.chunks, training=training or self.splits.part("train"), kept=kept)

    def right(self, target: Target, x: Tensor, y: Tensor) -> Tensor:
        """Which of them the target gets right, (n,)."""
        with target.ready():
            return answer(target, x, self.chunks).argmax(1) == y.to(target.device)

    @functools.cached_property
    def witness_accuracy(self) -> float | None:
        """On the test part."""
        return self.accuracy(self.witness, self.part("test"))

    def accuracy(self, target: Target, cases: Cases) -> float | None:
        return share(self.right(target, cases.x, cases.y))


def share(right: Tensor) -> float | None:
    return round(float(right.double().mean()), 5) if len(right) else None


class Last(Unwatched):
    """Keeps the weights of the last epoch and the numbers of all."""

    def __init__(self) -> None:
        self.weights: Mapping[str, Tensor] = {}
        self.log: list[dict[str, float]] = []

    def epoch(self, state: State, net: nn.Module) -> None:
        self.weights, self.log = state.weights, state.log


class Keeper:
    """A workshop that keeps nothing but the pictures of the generator of a data set: the cache has the rest."""

    def __init__(self, folder: Path, data: str, shown: bool) -> None:
        self.folder, self.data, self.shown = folder, data, shown

    def find(self, what: str, key: str) -> Columns | None:
        return None

    def watch(self, what: str, key: str) -> Unwatched:
        return Unwatched()

    def keep(self, what: str, key: str, columns: Columns, shown: Shown) -> None:
        if self.shown:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, picture in shown.pictures.items():
                (self.folder / f"{self.data}-{name}").write_bytes(picture)
            print(f"{self.data} {what} {key}: {shown.facts}", flush=True)
