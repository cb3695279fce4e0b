"""Does the first-order loss tell converged attacks from others?"""

import pytest
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.stages.attacks.fgsm import fgsm
from assay.stages.attacks.pgd import pgd
from assay.stages.scores.fol import fol
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target


def left(model: str, grey: float, eps: float, box: bool) -> tuple[Tensor, Tensor]:
    """The median linf FOL of PGD-50 and of FGSM examples of the same digits, drawn towards grey by a share."""
    target, seeds = load_target(model), load_data("digits/test").cases
    x, y, rng = grey * 0.5 + (1 - grey) * seeds.x, seeds.y, Stream(0).rows(seeds.origin)
    often = pgd(target, x, y, rng=rng, eps=eps, steps=50, early_stop=False)
    once = fgsm(target, x, y, rng=rng, eps=eps, early_stop=False)
    scores = [
        fol(Bench(target), Cases.of(made, y).note(seed_x=x), eps=eps, norm="linf", box=box) for made in (often, once)
    ]
    return scores[0].median(), scores[1].median()


def test_fol_of_pgd_examples_is_below_that_of_fgsm_examples(digits_model: str) -> None:
    converged, other = left(digits_model, 0.0, 0.3, box=False)
    assert converged < other


@pytest.mark.parametrize(("grey", "box"), [(0.0, True), (0.6, False)])
def test_it_is_far_below_where_the_bounds_do_not_count(digits_model: str, grey: float, box: bool) -> None:
    """Over half of the pixels of a digit are 0 or 1, and the closed form counts their gradients out of the box.

    At eps 0.1 these are nearly all of it, in PGD's examples as in FGSM's: the two differ when the box is kept, and on
    grey digits, where the ball lies inside the box.
    """
    converged, other = left(digits_model, grey, 0.1, box)
    assert 0 <= converged < other / 3
