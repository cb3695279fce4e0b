"""Batches into several coverages at once: the same as one after the other, on a GPU as a graph, too."""

import pytest
import torch
from torch import nn

from assay.core.cases import InputSpec
from assay.core.chunks import Chunks
from assay.core.registry import bind
from assay.core.specs import split, step
from assay.stages.coverage import Coverage
from assay.stages.coverage.passes import Pass
from assay.stages.coverage.profile import Profile
from assay.subjects.observer import Observer
from assay.subjects.sources.module import ModuleTarget

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHAPE = (1, 8, 8)
ALL = "nc, nc(scaled=false), kmnc(k=50), nbc(buckets=10), snac, tknc, tknc(k=20), bknc, tknp, nlc, cc(distance=0.5)"


def target(device: str = "cpu", net: nn.Module | None = None) -> ModuleTarget:
    torch.manual_seed(0)
    made = net or bind("model", "lenet5", {}, {"shape": SHAPE, "classes": 3})()
    return ModuleTarget(made.to(device), InputSpec(SHAPE, (0.0, 1.0), ("a", "b", "c")))


def begun(observer: Observer, x: torch.Tensor) -> list[Coverage]:
    values = observer(x).neurons.detach()
    ranges = Profile(values.amin(0), values.amax(0), values.mean(0), values.std(0), len(x))
    return [bind("criterion", *step(text))().begin(observer, ranges) for text in split(ALL)]


def batches(device: str, sizes: tuple[int, ...]) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return [torch.rand(n, *SHAPE, generator=rng).mul_(0.5 + i / 4).to(device) for i, n in enumerate(sizes)]


def test_a_pass_adds_to_every_coverage() -> None:
    observer = Observer.of([target()], "auto", ends=True)
    first, *rest = batches("cpu", (40, 32, 32, 32, 32, 7, 32))
    together, apart = begun(observer, first), begun(observer, first)
    work = Pass(observer, together, Chunks(32))
    for x in rest:
        seen = work(x)
        assert not seen.neurons.requires_grad
        for coverage in apart:
            coverage.add(observer(x).detach())
    assert [c.covered() for c in together] == pytest.approx([c.covered() for c in apart])
    assert work.graph is None


@cuda
def test_a_graph_adds_what_single_steps_add() -> None:
    observer = Observer.of([target("cuda")], "auto", ends=True)
    first, *rest = batches("cuda", (40, 32, 32, 32, 32, 7, 32, 32))
    together, apart = begun(observer, first), begun(observer, first)
    work = Pass(observer, together, Chunks(32))
    for x in rest:
        seen = work(x)
        assert torch.allclose(seen.neurons, observer(x).neurons, rtol=1e-2, atol=1e-3)
        for coverage in apart:
            coverage.add(seen)
    assert work.graph is not None
    assert len(work.inside) == 9, "all but nlc and cc"
    assert [c.covered() for c in together] == pytest.approx([c.covered() for c in apart])


@cuda
def test_criteria_are_the_same_on_a_gpu() -> None:
    near = Observer.of([target()], "auto", ends=True)
    far = Observer.of([target("cuda")], "auto", ends=True)
    first, *rest = batches("cpu", (40, 300, 20, 1))
    here, there = begun(near, first), begun(near, first)
    for text, coverage in zip(split(ALL), here, strict=True):
        values = near(first).neurons.detach().cuda()
        ranges = Profile(values.amin(0), values.amax(0), values.mean(0), values.std(0), len(first))
        other = bind("criterion", *step(text))().begin(far, ranges)
        for x in rest:
            seen = near(x).detach()
            moved = type(seen)(*(getattr(seen, name).cuda() for name in ("logits", "others", "neurons", "low", "high")))
            for ask in ("active", "gain", "add"):
                one, two = getattr(coverage, ask)(seen), getattr(other, ask)(moved).cpu()
                assert torch.allclose(one.double(), two.double(), rtol=1e-6, atol=1e-9), (text, ask)
    for coverage, again in zip(here, there, strict=True):
        again.load(coverage.state())
        assert again.covered() == pytest.approx(coverage.covered())


@cuda
def test_a_net_of_ones_own_is_never_recorded() -> None:
    class Own(nn.Sequential):
        pass

    net = Own(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3))
    work = Pass(Observer.of([target("cuda", net)], "auto"), [], Chunks(4))
    for x in batches("cuda", (4, 4, 4, 4)):
        work(x)
    assert work.graph is None
