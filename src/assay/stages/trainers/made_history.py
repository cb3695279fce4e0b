"""A history for a model that has none: snapshots of a short training that goes on from it (ours, not the paper's)."""

from collections.abc import Mapping

from torch import Tensor, nn

from assay.core.randomness import Stream
from assay.stages.trainers.loop import fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.bench import Splits
from assay.subjects.history import Snapshots

# Steps long enough that the snapshots differ from each other, few enough that none has forgotten what it knew.
PLAN = Plan(epochs=10, batch=128, lr=0.01, optimiser="sgd", schedule="constant")


def made_history(module: nn.Module, data: Splits, rng: Stream, plan: Plan = PLAN) -> Snapshots:
    """The weights after each epoch of a short training on the training part."""
    keeper = _Keeper()
    fit(module, data.part("train").cases, data.part("val").cases, plan, rng=rng.at("history"), watch=keeper)
    told = f"{plan.epochs} epochs of {plan.optimiser} with lr {plan.lr:g} from the model itself"
    return Snapshots.of_weights(keeper.weights, told, made=True)


class _Keeper(Unwatched):
    """Looks on and keeps the weights of every epoch."""

    def __init__(self) -> None:
        self.weights: dict[int, Mapping[str, Tensor]] = {}

    def epoch(self, state: State, net: nn.Module) -> None:
        self.weights[state.epoch] = state.weights
