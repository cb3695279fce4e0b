"""The two domains of a data set."""

import pytest
import torch

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.stages.aeg.domains import domains
from assay.stages.aeg.making import Making
from assay.subjects.bench import Data


def data(labels: list[int], classes: tuple[str, ...] = ("cat", "dog", "7")) -> Data:
    y = torch.tensor(labels)
    return Data("made/train", Cases.of(torch.zeros(len(y), 1, 8, 8), y), InputSpec((1, 8, 8), (0.0, 1.0), classes))


def test_random_halves_are_even_in_every_class_and_leave_nobody_out() -> None:
    given = data([0] * 100 + [1] * 50 + [2] * 31)
    parts = domains(given, Making())
    assert sorted(torch.cat(parts).tolist()) == list(range(181))
    assert len(parts.held) == 18
    for label, size in enumerate((100, 50, 31)):
        x, y, held = (int((given.cases.y[part] == label).sum()) for part in parts)
        assert abs(x - y) <= 1
        assert held == pytest.approx(size / 10, abs=1)


def test_the_seed_decides() -> None:
    given = data([0, 1] * 50)
    first, again, other = (domains(given, Making(seed=seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert set(first.x.tolist()) != set(other.x.tolist())


def test_images_without_labels_are_halved_at_random() -> None:
    parts = domains(data([UNLABELLED] * 40), Making())
    assert sorted(torch.cat(parts).tolist()) == list(range(40))
    assert (len(parts.x), len(parts.y), len(parts.held)) == (18, 18, 4)
    assert parts.x.sort().values.tolist() != list(range(0, 36, 2))


def test_at_most_five_hundred_are_kept_back() -> None:
    assert len(domains(data([0, 1] * 4000), Making()).held) == 500


@pytest.mark.parametrize("split", ["class_pair(cat,7)", "class_pair( 0 , 2 )", "class_pair(cat, 2)"])
def test_pairs_of_classes_by_name_or_number(split: str) -> None:
    given = data([0, 1, 2] * 30)
    parts = domains(given, Making(split=split))
    assert given.cases.y[parts.x].unique().tolist() == [0]
    assert given.cases.y[parts.y].unique().tolist() == [2]  # a class called 7 is that one, not the eighth
    assert not set(parts.held.tolist()) & {*parts.x.tolist(), *parts.y.tolist()}


@pytest.mark.parametrize(
    ("labels", "split", "said"),
    [
        ([0, 1] * 20, "class_pair(cat,cow)", "has no class 'cow'; its classes are cat, dog, 7"),
        ([UNLABELLED] * 20, "class_pair(cat,dog)", "has no labels; use split=random_half"),
        ([0] * 20, "class_pair(cat,dog)", "gives 18 and 0"),
        ([0, 1], "random_half", "gives 1 and 0"),
    ],
)
def test_domains_that_cannot_be_are_refused(labels: list[int], split: str, said: str) -> None:
    with pytest.raises((UsageError, NothingToTest), match=said):
        domains(data(labels), Making(split=split))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"split": "halves"}, "split is random_half or class_pair"),
        ({"split": "class_pair(a,a)"}, "split is random_half or class_pair"),
        ({"split": "class_pair(a)"}, "split is random_half or class_pair"),
        ({"loss": "wgan"}, "loss is one of lsgan, log; got 'wgan'"),
        ({"images": 0}, "images must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"snapshots": 0}, "snapshots must be at least 1"),
        ({"buffer": -1}, "buffer must be at least 0"),
        ({"cycle": -1.0}, "cycle is a weight of 0 or more"),
        ({"identity": float("nan")}, "identity is a weight of 0 or more"),
        ({"lr": 0.0}, "lr must be in"),
        ({"beta": 1.0}, r"beta must be in \[0, 1\)"),
        ({"schedule": "linear"}, "schedule must be cosine, step or constant"),
    ],
)
def test_a_making_that_makes_no_sense_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Making(**given).check()  # type: ignore[arg-type]  # as users give them
