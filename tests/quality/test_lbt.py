"""LBT puts faults of a black box first that it has only answers of: far from chance, on digits, over seeds."""

import statistics

import pytest
import torch

import assay
from assay.core.cases import Cases
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target

SEEDS = (0, 1)
BY = "lbt(start=60, check=300, epochs=10, tau=0.95, mutants=45)"
CONTROL = BY.replace("mutants=45", "mutants=45, order=gini")


@pytest.fixture(scope="module")
def pool(digits_model: str) -> Data:
    """Test digits under FGSM, each change times a share drawn: some fail, some do not."""
    data = assay.load_data("digits/test")
    target = load_target(digits_model)
    x = data.cases.x.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(target(x), data.cases.y, reduction="sum")
    share = torch.rand(len(x), 1, 1, 1, generator=torch.Generator().manual_seed(0))
    moved = x.detach() + 0.3 * share * torch.autograd.grad(loss, x)[0].sign()
    return Data("attacked", Cases.of(moved.clamp(0, 1), data.cases.y), data.spec)


def test_faults_come_first_by_answers_alone(digits_model: str, pool: Data) -> None:
    reached: dict[str, list[float]] = {BY: [], CONTROL: []}
    for seed in SEEDS:
        result = assay.prioritise(
            digits_model, pool, by=[BY, CONTROL], training="digits/train", ask="labels=true", seed=seed
        )
        assert 0.2 < result.faults / len(pool) < 0.8  # else there is nothing to put in order
        for by, values in reached.items():
            measures = result[by].measures
            assert measures is not None
            assert measures.apfd_norm is not None
            values.append(measures.apfd_norm)
    assert min(reached[BY]) > 0.6  # 0.5 is chance, with a spread of 0.03
    # The control is as good: who claims more for mutants has to show it.
    assert abs(statistics.fmean(reached[BY]) - statistics.fmean(reached[CONTROL])) < 0.1
