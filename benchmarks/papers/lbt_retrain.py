"""What retraining with the first cases of an order is worth."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from papers.lbt_measure import FIRST, size_of
from papers.lbt_orders import Orders, first_of, setting
from papers.lbt_subject import POOLS, RETRAIN, Making, Params, Pool, Subject

NONE, BEFORE = "none", "before"  # trained on without extra cases, and the model as it was
ARMS = (BEFORE, NONE, "random", "lbt", "control", "gini")


def protocol(subject: Subject, attack: str, arm: str, seed: int, how: Mapping[str, Any]) -> Params:
    """What makes a row of retraining."""
    return {
        "experiment": "retrain",
        "data": subject.data,
        "mut": subject.mut,
        "attack": attack,
        "arm": arm,
        "seed": seed,
        "how": dict(how),
        "retrain": {**RETRAIN, "epochs": subject.scale.retrain_epochs, "extra": f"{FIRST} %"},
        "measured_on": {"held": subject.scale.held, "fresh": subject.scale.fresh},
        **setting(subject, attack),
    }


class Retraining:
    """The nets that come of one subject; the one without extra cases serves all pools of a seed."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.subject = orders, orders.subject
        self._plain: dict[int, nn.Module] = {}

    def numbers(self, attack: str, arm: str, seed: int) -> Params:
        """Accuracy on images that are in no other pool and that nothing learns from: as they are (``clean_held``), in a
        pool that was made on the model as it was (static), and attacked anew on the net that came out (fresh).

        Extra cases are attacked test images with their true labels, so that test images are held back from ``clean``
        where some were learned. Rows that were made before ``clean_held`` was have ``clean`` there all the same.
        """
        began, subject = time.perf_counter(), self.subject
        pool, held = subject.pool(attack), subject.pool(attack, "held")
        net, extra = self._net(pool, arm, seed)
        trained = time.perf_counter()
        target = subject.target if net is None else subject.target_of(net)
        test, whole = subject.splits.part("test").cases, subject.images("held")
        images = whole[: subject.scale.fresh]
        fresh = subject.attacked(target, images, Making(POOLS[attack].attack))
        return {
            "extra": extra,
            **({} if extra else {"clean": _share(subject.predicted(target, test.x) == test.y)}),
            "clean_held": _share(subject.predicted(target, whole.x) == whole.y),
            "static": _share(subject.predicted(target, held.x) == held.y),
            "fresh": _share(subject.predicted(target, fresh) == images.y),
            "static_images": len(held),
            "fresh_images": len(images),
            "held_faults": held.faults,
            "train_seconds": round(trained - began, 2),
            "measure_seconds": round(time.perf_counter() - trained, 2),
            "fingerprint": subject.fingerprint,
            "machine": subject.machine,
        }

    def _net(self, pool: Pool, arm: str, seed: int) -> tuple[nn.Module | None, int]:
        if arm == BEFORE:
            return None, 0
        if arm == NONE:
            if seed not in self._plain:
                self._plain = {seed: self.subject.retrained(None, seed)}
            return self._plain[seed], 0
        rows = first_of(self.orders, pool, arm, seed)
        assert len(rows) == size_of(FIRST, len(pool))
        return self.subject.retrained(self.subject.extra(pool, rows), seed), len(rows)


def _share(right: torch.Tensor) -> float:
    return round(float(right.double().mean()), 6)
