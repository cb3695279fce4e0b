"""MAITE both ways, with the real maite: its protocols, and its own evaluation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from maite.protocols import image_classification as ic
from maite.tasks import evaluate as maite_evaluate

import assay
from assay.maite import Accuracy, Attacked, Dataset, Model


def linear() -> tuple[Any, Any]:
    """Weights and bias of a net over 3 × 4 × 4 that tells dark images from bright ones."""
    weight = np.stack([-np.ones(48), np.ones(48)]).astype(np.float32) / 12
    return weight, np.array([2.0, -2.0], np.float32)


class Theirs:
    """A MAITE model of somebody else: takes uint8 pixels, and nothing else."""

    def __init__(self) -> None:
        self.metadata: Any = {"id": "their model", "index2label": {0: "dark", 1: "bright"}}
        self.asked: list[Any] = []

    def __call__(self, input_batch: Sequence[Any]) -> list[Any]:
        weight, bias = linear()
        self.asked += [np.asarray(image).dtype for image in input_batch]
        scores = [weight @ (np.asarray(image).astype(np.float32).ravel() / 255) + bias for image in input_batch]
        return [np.exp(s) / np.exp(s).sum() for s in scores]


class TheirData:
    """A MAITE data set of eight uint8 images."""

    def __init__(self) -> None:
        self.metadata: Any = {"id": "their data", "index2label": {0: "dark", 1: "bright"}}

    def __len__(self) -> int:
        return 8

    def __getitem__(self, ind: int) -> tuple[Any, Any, Any]:
        if ind >= 8:
            raise IndexError(ind)
        image = np.full((3, 4, 4), 60 + 20 * ind, np.uint8)
        return image, np.eye(2, dtype=np.float32)[int(image[0, 0, 0] > 127)], {"id": ind}


def net() -> torch.nn.Module:
    weight, bias = linear()
    made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))
    with torch.no_grad():
        made[1].weight.copy_(torch.from_numpy(weight))  # type: ignore[operator]
        made[1].bias.copy_(torch.from_numpy(bias))  # type: ignore[operator]
    return made.eval()


def test_ours_follow_the_protocols() -> None:
    data = Dataset(TheirData())
    model: ic.Model = Model(net(), data=data.data, id="net")
    augmentation: ic.Augmentation = Attacked(model, "fgsm", eps=0.1)
    metric: ic.Metric = Accuracy()
    for thing, protocol in (
        (model, ic.Model),
        (augmentation, ic.Augmentation),
        (metric, ic.Metric),
        (data, ic.Dataset),
    ):
        assert isinstance(thing, protocol)


def test_maite_evaluates_a_model_of_ours_under_an_attack_of_ours() -> None:
    data = Dataset(TheirData())
    assert data[0][0].dtype == np.uint8  # as the data were given
    model = Model(net(), data=data.data)
    assert [prediction.shape for prediction in model([data[0][0]])] == [(2,)]
    clean, _, _ = maite_evaluate(model=model, dataset=data, metric=Accuracy(), batch_size=3)
    assert clean["accuracy"] == 1
    assert clean["n"] == 8
    attacked, _, _ = maite_evaluate(
        model=model, dataset=data, metric=Accuracy(), augmentation=Attacked(model, "fgsm", eps=20 / 255), batch_size=3
    )
    # A grey image changes its class within 20 of the threshold at 127.5: 120 and 140 of 60, 80, …, 200 do.
    assert attacked["right"] == 6
    assert attacked["low"] < attacked["accuracy"] < attacked["high"]


def test_their_model_on_their_data_is_evaluated_as_a_black_box() -> None:
    model = Theirs()
    told = assay.evaluate(model, TheirData(), suite="square(queries=300)", eps="20/255", seed=1)  # type: ignore[arg-type]
    assert told.clean.n == 8
    assert told.accuracy("clean") == 1
    assert told.accuracy("worst") == 6 / 8
    assert told.access == "black box"
    assert set(model.asked) == {np.dtype(np.uint8)}  # what it was made for


def test_their_model_in_their_evaluation_under_an_attack_of_ours() -> None:
    attacked, _, made = maite_evaluate(
        model=Theirs(), dataset=TheirData(), metric=Accuracy(), batch_size=4, return_augmented_data=True,
        augmentation=Attacked(Theirs(), "square(queries=300)", eps="20/255"),
    )  # fmt: skip
    assert attacked["right"] == 6
    images, _, metadata = made[0]
    assert images[0].dtype == np.uint8
    assert [each["assay_success"] for each in metadata] == [False, False, False, True]
    largest = max(int(np.abs(np.asarray(i).astype(int) - (60 + 20 * n)).max()) for n, i in enumerate(images))
    assert 0 < largest <= 20


def test_a_live_target_of_theirs_serves_every_verb() -> None:
    from assay.maite import as_target

    target = as_target(Theirs(), TheirData())
    assert target.spec.classes == ("dark", "bright")
    found = assay.fuzz("noise", target, assay.load_data(TheirData()), run="r", eps="30/255", cases=60, device="cpu")
    assert found.cases >= 60


@pytest.mark.parametrize("bad", ["shape", "labels"])
def test_what_does_not_follow_the_protocol_is_told(bad: str) -> None:
    data = TheirData()
    if bad == "labels":
        data.metadata["index2label"] = {1: "dark", 2: "bright"}
        with pytest.raises(assay.UsageError, match=r"must name the classes 0\.\.1"):
            assay.load_data(data)
        return
    data.__class__ = type("Flat", (TheirData,), {"__getitem__": lambda self, i: (np.zeros(3), np.eye(2)[0], {"id": i})})
    with pytest.raises(assay.UsageError, match=r"\(C, H, W\)"):
        assay.load_data(data)
