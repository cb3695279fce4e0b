"""Whether the generator does what it is for: test cases near their images, that an independent net calls the same."""

import pytest
import torch

import assay
from assay.core.cases import Cases
from assay.core.images import ssim
from assay.stages.aeg import Aeg, Making, trained
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Bench


@pytest.fixture(scope="module")
def made() -> Aeg:
    how = Making(images=1000, epochs=6, lr=1e-3, width=16)
    return trained(assay.load_data("digits/train"), how, torch.device("cpu"), Unwatched())


def test_reconstructions_keep_deep_features_and_labels(made: Aeg, digits_model: str) -> None:
    """Of unseen images: cosine above 0.9 for most, a label that holds for nearly all, and yet a change in all."""
    test = assay.load_data("digits/test")
    x, bench = test.cases.x, Bench(assay.load_target(digits_model))
    before = bench.traces(Cases.of(x), "last")
    right = bench.target(x).argmax(1) == test.cases.y
    for way in (0, 1):
        there = made.made(x, torch.full((len(x),), way))
        alike = torch.cosine_similarity(bench.traces(Cases.of(there), "last"), before)
        assert (alike > 0.9).float().mean() > 0.8
        held = bench.target(there).argmax(1)[right] == test.cases.y[right]
        assert held.float().mean() > 0.85
        assert ssim(there, x).mean() > 0.85
        assert (there != x).flatten(1).any(1).all()


def test_training_improves_on_the_first_epoch(made: Aeg) -> None:
    errors = [row["val_loss"] for row in made.facts["log"]]
    assert errors[-1] < 0.8 * errors[0]
    assert errors[-1] == min(errors[-1], *errors[:3])


def test_candidates_differ(made: Aeg) -> None:
    """The ten first ways give ten images, no two of which are nearer than a tenth of their distance to the input."""
    x = assay.load_data("digits/test[:20]").cases.x
    ways = torch.stack([made.made(x, torch.full((20,), way)) for way in range(10)], 1).flatten(2)
    apart = torch.cdist(ways, ways) + 1e9 * torch.eye(10)
    far = (ways - x.flatten(1)[:, None]).norm(dim=2)
    assert (apart.amin((1, 2)) > 0.1 * far.amin(1)).all()
