"""Folding batch normalisation away: the same answers, or the same target."""

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.subjects.sources.folded import Folding, alike, folded
from assay.subjects.sources.module import ModuleTarget, normalised

SPEC = InputSpec((3, 6, 6), (0.0, 1.0), ("a", "b"))


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    made(torch.rand(32, 3, 6, 6))  # statistics that are not the initial ones
    return made.eval()


def count(target: object) -> int:
    assert isinstance(target, ModuleTarget)
    return sum(isinstance(m, nn.BatchNorm2d) for m in target.module.modules())


def test_the_answers_are_the_same_and_the_layer_is_gone() -> None:
    target, x = ModuleTarget(normalised(net(), SPEC, (0.5,), (0.2,)), SPEC), torch.rand(16, 3, 6, 6)
    faster = folded(target, x)
    assert count(faster) == 0
    assert count(target) == 1
    assert torch.allclose(faster(x), target(x), atol=1e-5)


def test_a_net_without_it_stays_itself() -> None:
    plain = ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(108, 2)), SPEC)
    assert folded(plain, torch.rand(4, 3, 6, 6)) is plain


def test_a_net_that_cannot_be_traced_stays_itself() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x if x.mean() > 0 else -x)
            return out

    target = ModuleTarget(Branching(), SPEC)
    assert folded(target, torch.rand(4, 3, 6, 6)) is target


def test_what_is_folded_follows_the_net_as_it_learns() -> None:
    learning = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(64, 5),
        nn.BatchNorm1d(5, affine=False),
    )
    fold, x = Folding(learning), torch.rand(16, 3, 6, 6)
    assert not any(isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)) for m in fold.module.modules())
    optimiser = torch.optim.SGD(learning.parameters(), 0.5)
    for _ in range(3):
        learning(x).square().sum().backward()
        optimiser.step()
    learning.eval()
    assert not torch.allclose(fold.module(x), learning(x), atol=1e-3)
    places = [weight.data_ptr() for weight in fold.module.parameters()]
    fold.follow()
    torch.testing.assert_close(fold.module(x), learning(x))
    assert [weight.data_ptr() for weight in fold.module.parameters()] == places, "written, not replaced"
    assert not any(weight.requires_grad for weight in fold.module.parameters())


def test_a_shared_weight_is_followed_whatever_its_name() -> None:
    class Tied(nn.Module):
        """The second layer by name is the first by use."""

        def __init__(self) -> None:
            super().__init__()
            self.late, self.early = nn.Linear(108, 108), nn.Linear(108, 108)
            self.norm, self.end = nn.BatchNorm1d(2), nn.Linear(108, 2)
            self.early.weight = self.late.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.norm(self.end(self.late(self.early(x.flatten(1)))))
            return out

    tied, x = Tied().eval(), torch.rand(8, 3, 6, 6)
    fold = Folding(tied)
    with torch.no_grad():
        tied.late.weight.mul_(0.5)
    fold.follow()
    torch.testing.assert_close(fold.module(x), tied(x))


def test_a_fold_that_climbs_otherwise_is_not_used() -> None:
    class Hiding(nn.Module):
        """Has no slope, which tracing does not see."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                out: Tensor = self.inner(x)
            return out

    target = ModuleTarget(Hiding().eval(), SPEC)
    assert folded(target, torch.rand(8, 3, 6, 6)) is target


def test_small_scores_are_compared_by_their_own_size() -> None:
    x = torch.rand(8, 3, 6, 6)
    small, none = net(), net()
    with torch.no_grad():
        for weight in (small[4].weight, small[4].bias):
            weight.mul_(1e-6)  # type: ignore[operator]  # a Linear
        for weight in (none[4].weight, none[4].bias):
            weight.zero_()  # type: ignore[operator]
    assert alike(ModuleTarget(small, SPEC), ModuleTarget(small, SPEC), x)
    assert not alike(ModuleTarget(small, SPEC), ModuleTarget(none, SPEC), x)


def test_the_net_itself_does_not_notice() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()
            self.last: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.last = x
            out: Tensor = self.inner(x)
            return out

    remembering = Remembering().train()
    Folding(remembering)
    assert remembering.last is None, "what traces a net hands it no tensors"
    assert all(m.training for m in remembering.modules())
    assert all(weight.requires_grad for weight in remembering.parameters())


def test_a_layer_used_twice_is_left_alone() -> None:
    class Twice(nn.Module):
        """Uses its convolution twice, once with the normalisation behind it: folding it in changes both."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.end = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Linear(108, 2)
            self.norm.load_state_dict(self.norm.state_dict() | {"running_mean": torch.ones(3)})

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.end((self.norm(self.conv(x)) + self.conv(x.flip(1))).flatten(1))
            return out

    target = ModuleTarget(Twice().eval(), SPEC)
    assert folded(target, torch.rand(8, 3, 6, 6)) is target


def test_a_fold_that_answers_otherwise_is_not_used() -> None:
    class Changing(nn.Module):
        """Answers otherwise from its second call on, which tracing cannot know."""

        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = net(), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            out: Tensor = self.inner(x) * (1.0 if self.calls == 1 else 2.0)
            return out

    changing = Changing()
    fold = Folding(changing)
    changing.calls = 1
    mine, other = ModuleTarget(changing, SPEC), ModuleTarget(fold.module, SPEC)
    assert not alike(mine, other, torch.rand(8, 3, 6, 6))
