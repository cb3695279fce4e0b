"""What attacks do on a GPU so as to wait for it less changes no result: the same here, where nobody waits."""

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.norms import Norm
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.attacks import hyperplane, square
from assay.stages.attacks.rivals import FULL, FULL_GPU, at_once, full
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((3, 8, 8), (0.0, 1.0), tuple("abcd"))


@pytest.fixture
def target() -> ModuleTarget:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    return ModuleTarget(net, SPEC)


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.03), ("l2", 0.4)])
def test_square_that_looks_rarely_makes_the_same(
    target: ModuleTarget, norm: str, eps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = target(x).argmax(1)
    attack = bind("attack", "square", {"eps": eps, "norm": norm, "queries": 60, "restarts": 2})
    made: list[Tensor] = []
    for looks in (1, 16):
        monkeypatch.setattr(square, "_looks", lambda *_, often=looks: often)
        made.append(attack(target, x, y, rng=Stream(0).rows(torch.arange(24))))
    assert torch.equal(*made)
    with torch.no_grad():
        fooled = (target(made[0]).argmax(1) != y).float().mean()
    assert 0.1 < float(fooled) < 0.95, "rows that end early and rows that do not"


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_turns_too_many_move_nothing(norm: Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    at, slope, gap = (
        torch.rand(50, 12, generator=rng),
        torch.randn(50, 12, generator=rng),
        torch.randn(50, generator=rng),
    )
    made = []
    for turns in (1, 4):
        monkeypatch.setattr(hyperplane, "_turns", lambda _, often=turns: often)
        made.append(hyperplane.onto(at.clone(), slope.clone(), gap.clone(), (0.0, 1.0), norm))
    assert torch.equal(*made)


def test_rivals_are_tried_together_until_a_batch_is_full() -> None:
    assert full(torch.device("cpu")) == FULL
    assert full(torch.device("cuda:1")) == FULL_GPU
    assert at_once(0, 9, 10, FULL_GPU) == range(1), "the likeliest alone"
    assert at_once(1, 9, 10, FULL_GPU) == range(1, 9)
    assert at_once(1, 9, 400, FULL_GPU) == range(1, 3)
    assert at_once(3, 9, 5000, FULL_GPU) == range(3, 4)
