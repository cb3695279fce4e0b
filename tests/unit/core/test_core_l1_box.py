"""The projection on the l1 ball within a box, against a general solver and by hand."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from assay.core import norms


def test_by_hand() -> None:
    delta, low, high = torch.tensor([[3.0, 1.0, -1.0]]), torch.full((1, 3), -5.0), torch.tensor([[1.5, 5.0, 5.0]])
    # The first entry stops at 1.5; the level 0.25 leaves 0.75 for each of the others: 1.5 + 0.75 + 0.75 = 3.
    made = norms.project_l1_box(delta, 3.0, low, high)
    assert torch.allclose(made, torch.tensor([[1.5, 0.75, -0.75]]))


@pytest.mark.parametrize("seed", range(8))
def test_is_the_nearest_point(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    delta = 2 * torch.randn(1, 6, generator=rng, dtype=torch.float64)
    low, high = -torch.rand(1, 6, generator=rng).double(), torch.rand(1, 6, generator=rng).double()
    made = norms.project_l1_box(delta, 1.2, low, high)
    # Split in positive and negative parts, the ball is a linear constraint and the solver finds the nearest point.
    both = minimize(
        lambda v: float(((v[:6] - v[6:] - delta[0].numpy()) ** 2).sum()),
        np.zeros(12),
        bounds=[(0, float(h)) for h in high[0]] + [(0, float(-b)) for b in low[0]],
        constraints={"type": "ineq", "fun": lambda v: 1.2 - v.sum()},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert np.allclose(made[0].numpy(), both.x[:6] - both.x[6:], atol=1e-4)


def test_stays_inside_and_keeps_what_is_inside() -> None:
    rng = torch.Generator().manual_seed(0)
    delta = torch.randn(50, 3, 4, 4, generator=rng)
    low, high = -torch.rand(delta.shape, generator=rng), torch.rand(delta.shape, generator=rng)
    made = norms.project_l1_box(delta, 2.0, low, high)
    assert (norms.size(made, "l1") <= 2.0 + 1e-5).all()
    assert ((made >= low) & (made <= high)).all()
    assert torch.equal(norms.project_l1_box(made * 0.5, 2.0, low, high), made * 0.5)


def test_agrees_with_the_ball_alone_where_the_box_is_wide() -> None:
    delta = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
    wide = torch.full_like(delta, 100.0)
    assert torch.allclose(norms.project_l1_box(delta, 1.5, -wide, wide), norms.project(delta, 1.5, "l1"), atol=1e-6)


def test_sparse_takes_the_largest_entries() -> None:
    grad = torch.tensor([[0.1, -3.0, 2.0, 0.0]])
    assert torch.equal(norms.sparse(grad, 0.5), torch.tensor([[0.0, -0.5, 0.5, 0.0]]))
    assert torch.equal(norms.sparse(grad, 0.01), torch.tensor([[0.0, -1.0, 0.0, 0.0]]))
