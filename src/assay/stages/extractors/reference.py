"""A reference net: one of the user's, or a small one trained here once for all targets of the data."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import UsageError
from assay.core.files import canonical_json, sha256
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.core.specs import python_file, step
from assay.stages.extractors import Features, digest_of, place_of
from assay.stages.trainers.loop import accuracy
from assay.stages.trainers.plain import plain
from assay.stages.trainers.watch import Watch
from assay.stages.workshop import Columns, Shown, made
from assay.subjects.bench import VALIDATION_SHARE, Bench, Data, Splits, cut
from assay.subjects.observer import Observer
from assay.subjects.sources.load import load_target, new_net, user_net
from assay.subjects.sources.module import normalised, probed
from assay.subjects.target import Target, require

log = logging.getLogger("assay")

BATCH, RATE = 64, 2e-3
INSTEAD = "name a net that is trained: reference(model=NET@weights.safetensors), or use vgg19 or efficientnet_lite"


@register("extractor")
def reference(
    bench: Bench, *, model: str = "lenet5", layer: str = "last", epochs: int = 3, steps: int = 1000, seed: int = 0
) -> Features:
    """The penultimate layer of a net: one with weights (``model=NET@FILE``), or one trained here on the training data.

    ``layer`` is ``last``, ``auto`` for all, or patterns of names; of maps the mean over space is taken. A net without
    weights is trained for ``epochs``, and for ``steps`` batches of 64 at least: three epochs of 1200 digits would leave
    it little above chance. It is kept in the run and the cache, so that one net serves all targets.
    """
    if epochs < 1 or steps < 0:
        raise UsageError(f"reference: epochs from 1 up, steps not negative; got {epochs}, {steps}")
    if _is_bare(model):
        how = _training(bench, model, epochs, steps, seed)
        Observer.of([how.untrained(bench)], layer)  # a layer that is not there is refused before the training
        net, name = how.net(bench)
    else:
        net, name = _loaded(bench, model), model
    observer = Observer.of([net], layer)
    if not observer.neurons:
        raise UsageError(f"reference: layer {layer!r} has no numbers; use last or name layers")
    which = "penultimate layer" if layer == "last" else f"layers {layer}"
    digest = digest_of(f"{net.fingerprint()} {observer.layers[0].fingerprint()}")
    return Features(f"{which} of {name}", digest, _work(bench, net, observer))


def _work(bench: Bench, net: Target, observer: Observer) -> Callable[[Tensor], Tensor]:
    (low, high), (own_low, own_high) = bench.target.spec.bounds, net.spec.bounds

    def work(x: Tensor) -> Tensor:
        x = x.to(net.device)
        if (low, high) != (own_low, own_high):
            x = (x - low) / (high - low) * (own_high - own_low) + own_low
        return observer(x).neurons

    return work


def _is_bare(model: str) -> bool:
    """Whether it names a net without weights: of the zoo, or of a user's file."""
    return "@" not in model and (python_file(model) is not None or not set(step(model)[0]) & set(".:/"))


def _loaded(bench: Bench, model: str) -> Target:
    spec = bench.target.spec
    like = bench.training or Data("the target's inputs", Cases.of(torch.full((2, *spec.shape), spec.bounds[0])), spec)
    net = load_target(model, data=like, device=str(place_of(bench)))
    require(net, ("activation",), f"features of {model}")
    if net.spec.shape != spec.shape:
        raise UsageError(
            f"the reference net {model} takes inputs of shape {net.spec.shape}, the target of shape {spec.shape}; "
            "name one trained on the same data"
        )
    return net


def _training(bench: Bench, model: str, epochs: int, steps: int, seed: int) -> "_Training":
    """How the net is trained; refused where there is nothing to train it on."""
    data = bench.training
    if data is None:
        raise UsageError(f"a reference net is trained on the training data, and none are known here; {INSTEAD}")
    labelled = data.cases.y != UNLABELLED
    if len(data.cases.y[labelled].unique()) < 2:
        raise UsageError(f"a reference net is trained on labelled cases, and {data.name} has none; {INSTEAD}")
    if not bool(labelled.all()):
        data = Data(data.name, Cases.of(data.cases.x[labelled], data.cases.y[labelled]), data.spec)
    count = round(len(data) * VALIDATION_SHARE)
    if not count:
        raise UsageError(f"{data.name} has {len(data)} cases, too few to train a reference net; {INSTEAD}")
    train, val = cut(data, (f"{data.name}, learned from", f"{data.name}, kept back"), count)
    splits = Splits(data.name, train=train, val=val)
    return _Training(
        model, splits, data, max(epochs, math.ceil(steps / math.ceil(len(splits.part("train")) / BATCH))), seed
    )


@dataclass(frozen=True, slots=True)
class _Training:
    """A net and what it is trained on."""

    model: str
    splits: Splits
    data: Data
    epochs: int
    seed: int

    def untrained(self, bench: Bench) -> Target:
        """The net before its training."""
        place = place_of(bench)
        return probed(self._fresh().to(place).eval(), self.data.spec, place)

    def net(self, bench: Bench) -> tuple[Target, str]:
        """The trained net and what to call it."""
        fresh = self._fresh()
        file = python_file(self.model)
        start = digest_of(repr(fresh), fresh, file[0].read_bytes() if file else b"")
        told = [start, repr(self.data.spec), self.data.fingerprint(), self.epochs, self.seed, BATCH, RATE]
        key = sha256(canonical_json(told).encode())[:16]
        place = place_of(bench)
        columns = made(
            bench, "reference", key, lambda watch: self._trained(place, watch), lambda c: _fits(fresh, c), self._shown
        )
        fresh.load_state_dict({name: columns[name] for name in fresh.state_dict()})
        share = 100 * float(columns["val_accuracy"])
        name = f"{self.model} trained {self.epochs} epochs on {self.data.name} (val {share:.1f} %)"
        return probed(fresh.to(place).eval(), self.data.spec, place), name

    def _fresh(self) -> nn.Module:
        """The net before training, behind a normalisation; its weights depend on nothing but the seed."""
        place = python_file(self.model)
        with torch.random.fork_rng([]):
            torch.manual_seed(Stream(self.seed, ("reference", "weights")).generator().initial_seed())
            try:
                net = user_net(*place) if place else new_net(self.model, self.data.spec, {})
            except UsageError as error:
                raise UsageError(f"the reference net: {error}; or {INSTEAD}") from error
        x = self.data.cases.x
        mean, std = float(x.mean()), max(float(x.std()), 1e-3)
        return normalised(net, self.data.spec, [round(mean, 6)], [round(std, 6)])

    def _trained(self, place: torch.device, watch: Watch) -> Columns:
        log.info("training the reference net %s for %d epochs on %s", self.model, self.epochs, self.data.name)
        net = plain(
            self._fresh().to(place),
            self.splits,
            None,
            rng=Stream(self.seed, ("reference",)),
            watch=watch,
            epochs=self.epochs,
            batch=BATCH,
            lr=RATE,
        ).eval()
        share = accuracy(net, self.splits.part("val").cases.to(place))["val_accuracy"]
        weights = {name: tensor.cpu() for name, tensor in net.state_dict().items()}
        return weights | {"val_accuracy": torch.tensor([share], dtype=torch.float64)}

    def _shown(self, columns: Columns) -> Shown:
        facts = {"net": self.model, "epochs": self.epochs, "seed": self.seed, "trained_on": self.data.name}
        return Shown(facts | {"val_accuracy": round(float(columns["val_accuracy"]), 6)})


def _fits(net: nn.Module, columns: Columns) -> bool:
    own = {name: tensor.shape for name, tensor in net.state_dict().items()}
    return "val_accuracy" in columns and own == {n: t.shape for n, t in columns.items() if n != "val_accuracy"}
