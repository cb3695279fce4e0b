"""What every registered extractor must keep, run over the registry."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.core.registry import names
from assay.stages.extractors import Features, features_of
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))
# Of those that fetch or want a file, weights that are always there; of those that train, a short training.
SHORT = {
    "reference": "reference(epochs=1, steps=0)",
    "vgg19": "vgg19(weights=random)",
    "efficientnet_lite": "efficientnet_lite(weights=random)",
}


def ground() -> Bench:
    rng = torch.Generator().manual_seed(0)
    cases = Cases.of(torch.rand(60, 1, 8, 8, generator=rng), torch.arange(60) % 3)
    torch.manual_seed(0)
    target = ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), SPEC)
    return Bench(target, training=Data("made/train", cases, SPEC))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Features]:
    """The extractor of that name, made once: a hundred million random numbers take their time."""
    bench = ground()

    def make(name: str) -> Features:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ASSAY_CACHE", str(tmp_path_factory.getbasetemp() / "extractors"))
            return features_of(bench, SHORT.get(name, name))

    return make


@pytest.mark.parametrize("name", names("extractor"))
def test_features_are_rows_of_numbers_that_depend_on_their_input_alone(
    name: str, made: Callable[[str], Features]
) -> None:
    found = made(name)
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    before = x.clone()
    taken = found(x)
    assert taken.dim() == 2
    assert len(taken) == 3
    assert taken.shape[1] > 3
    assert taken.dtype == torch.float32
    assert taken.isfinite().all()
    assert not taken.requires_grad
    assert torch.equal(x, before)
    size = float(taken.abs().max())  # random weights make tiny features
    assert torch.allclose(taken[1:2], found(x[1:2]), rtol=0, atol=1e-3 * size)
    assert float((taken[0] - taken[1]).abs().max()) > 1e-2 * size


@pytest.mark.parametrize("name", names("extractor"))
def test_extractors_say_whose_features_they_are(name: str, made: Callable[[str], Features]) -> None:
    found = made(name)
    assert len(found.name) > 10
    assert len(found.fingerprint) == 16
    if "random" in SHORT.get(name, ""):
        assert "random weights" in found.name
