"""MC-dropout against torch's own dropout, and what it must leave alone."""

import math

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import ModelFailed, UsageError
from assay.core.randomness import Stream
from assay.stages.scores.mc_dropout import _dropped, mc_dropout
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget


def bench_of(net: nn.Module, shape: tuple[int, ...], classes: int, rows: int = 512) -> Bench:
    spec = InputSpec(shape, (0.0, 1.0), tuple(map(str, range(classes))))
    return Bench(ModuleTarget(net, spec), chunks=Chunks(rows))


def conv_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout2d(0.4),
        nn.Flatten(),
        nn.Linear(6 * 16, 12),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(12, 4),
    )


def some_cases(n: int = 40) -> Cases:
    return Cases.of(torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(n)))


def coin(p: float) -> nn.Module:
    """Class 0 where its one unit is kept, else class 1."""
    net = nn.Sequential(nn.Dropout(p), nn.Linear(1, 2))
    net[1].weight = nn.Parameter(torch.tensor([[1.0], [0.0]]))
    net[1].bias = nn.Parameter(torch.tensor([0.0, 0.5]))
    return net


@pytest.mark.parametrize(("p", "ratio"), [(0.3, 0.3), (0.8, 0.2), (1.0, 0.0)])
def test_a_coin(p: float, ratio: float) -> None:
    found = mc_dropout(bench_of(coin(p), (1,), 2), Cases.of(torch.ones(1, 1)), passes=4000)
    assert found.item() == pytest.approx(ratio, abs=4 * math.sqrt(0.25 / 4000))
    assert mc_dropout(bench_of(coin(p), (1,), 2), Cases.of(torch.zeros(1, 1)), passes=50).item() == 0.0


def test_the_distribution_is_that_of_dropout_in_training() -> None:
    net, cases, passes = conv_net(), some_cases(), 1500
    found = mc_dropout(bench_of(net, (1, 6, 6), 4), cases, passes=passes)
    net.eval()
    for layer in net:
        layer.training = isinstance(layer, nn.Dropout | nn.Dropout2d)
    votes = torch.zeros(len(cases), 4)
    for _ in range(passes):
        votes[torch.arange(len(cases)), net(cases.x).argmax(1)] += 1
    reference = 1 - votes.amax(1) / passes
    assert reference.max() > 0.2, "some must be unsure"
    assert (found - reference).abs().max() < 5 * math.sqrt(2 * 0.25 / passes)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_score_depends_on_its_case_alone(rows: int) -> None:
    net, cases = conv_net(), some_cases()
    whole = mc_dropout(bench_of(net, (1, 6, 6), 4), cases, passes=30)
    assert whole.unique().numel() > 3
    assert torch.equal(whole, mc_dropout(bench_of(net, (1, 6, 6), 4, rows), cases, passes=30))
    turned = torch.randperm(len(cases))
    assert torch.equal(whole[turned], mc_dropout(bench_of(net, (1, 6, 6), 4), cases[turned], passes=30))


def test_the_seed_decides() -> None:
    bench, cases = bench_of(conv_net(), (1, 6, 6), 4), some_cases()
    first = mc_dropout(bench, cases, passes=30)
    assert torch.equal(first, mc_dropout(bench, cases, passes=30, seed=0))
    assert not torch.equal(first, mc_dropout(bench, cases, passes=30, seed=1))


class Failing(nn.Module):
    """Answers three times."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 3:
            raise ValueError("no more")
        return x


@pytest.mark.parametrize("failing", [False, True])
def test_nothing_of_the_net_is_changed(failing: bool) -> None:
    inner = conv_net()
    net = nn.Sequential(inner, *([Failing()] if failing else []))
    net.train()
    inner[1].eval()  # a mixture of modes, as found
    modes = [m.training for m in net.modules()]
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    numbers = torch.get_rng_state()
    bench = bench_of(net, (1, 6, 6), 4)
    if failing:
        with pytest.raises(ModelFailed, match="raised ValueError: no more"):
            mc_dropout(bench, some_cases(), passes=10)
    else:
        mc_dropout(bench, some_cases(), passes=10)
    assert [m.training for m in net.modules()] == modes
    assert not any(m._forward_hooks for m in net.modules())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)


def test_channels_are_dropped_whole_and_one_mask_serves_all_rows() -> None:
    x = torch.rand(3, 8, 2, 5) + 1
    made = _dropped(nn.Dropout2d(0.5), x, Stream(0))
    kept = made != 0
    assert torch.equal(kept, kept[:1, :, :1, :1].expand_as(kept))
    assert 0 < int(kept[0, :, 0, 0].sum()) < 8
    assert torch.allclose(made[kept], 2 * x[kept])
    single = _dropped(nn.Dropout(0.25), x, Stream(0)) != 0
    assert torch.equal(single, single[:1].expand_as(single))
    assert not torch.equal(single[:, :, :1, :1].expand_as(single), single)


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_makes_the_values_that_torch_makes(kind: type[nn.AlphaDropout]) -> None:
    x = torch.full((1, 4000, 2), 0.7)
    torch.manual_seed(0)
    theirs, ours = kind(0.3)(x), _dropped(kind(0.3), x, Stream(0))
    assert torch.allclose(ours.unique(), theirs.unique(), atol=1e-5)
    assert len(ours.unique()) == 2
    assert float((ours == ours.max()).float().mean()) == pytest.approx(0.7, abs=0.05)


def test_nets_without_dropout_are_refused() -> None:
    cases = Cases.of(torch.rand(2, 3))
    with pytest.raises(UsageError, match="net with dropout layers"):
        mc_dropout(bench_of(nn.Linear(3, 2), (3,), 2), cases)
    never = nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 2))
    with pytest.raises(UsageError, match="net with dropout layers"):
        mc_dropout(bench_of(never, (3,), 2), cases)
    with pytest.raises(UsageError, match="at least 1, got 0"):
        mc_dropout(bench_of(coin(0.5), (1,), 2), cases, passes=0)
