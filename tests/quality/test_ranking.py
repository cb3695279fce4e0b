"""Does a score find the wrong answers among many right ones? Each beats picking at random."""

import pytest
import torch

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import bind, names
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target

SMALL_IS_BAD = {"true_prob", "true_logit"}  # what recipes climb down
# These ask for what is not here: a criterion, dropout layers, neurons that a strategy chose, other models.
ELSEWHERE = {"active", "mc_dropout", "neurons", "disagreement", "regressing"}


@pytest.fixture(scope="module")
def pool() -> Cases:
    """Digits nobody trained on, a little noisy, so that some are got wrong."""
    cases = load_data("digits/test").cases
    noise = torch.randn(cases.x.shape, generator=torch.Generator().manual_seed(0))
    return cases.with_x((cases.x + 0.1 * noise).clamp(0, 1))


@pytest.mark.parametrize("score", sorted({*names("score")} - ELSEWHERE))
def test_a_score_finds_wrong_answers(score: str, pool: Cases, digits_model: str) -> None:
    target = load_target(digits_model)
    wrong = target(pool.x).argmax(1) != pool.y
    share = float(wrong.float().mean())
    assert 0.02 < share < 0.3, "neither too easy nor too hard"
    pick = bind("selector", "top", {"score": score, "largest": score not in SMALL_IS_BAD})
    rows = pick(Bench(target, training=load_data("digits/train")), pool, 30, rng=Stream(0))
    control = bind("selector", "random", {})
    chance = max(float(wrong[control(Bench(target), pool, 30, rng=Stream(seed))].float().mean()) for seed in range(20))
    assert float(wrong[rows].float().mean()) > max(2 * share, chance)
