"""Do mutants find? Inputs on which they change their mind are those that the net gets wrong."""

import sys

import pytest
import torch
from torch import Tensor, nn

import mutants as benchmark
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.sprt import SENSITIVE, STABLE, Sprt, three_tiers, upper_mean
from assay.stages.mutant_scores import MutantScores, scored
from assay.stages.mutants import Mutants, made
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of


@pytest.fixture(scope="module")
def net(digits_model: str) -> nn.Module:
    return module_of(load_target(digits_model)).eval()


@pytest.fixture(scope="module")
def family(net: nn.Module) -> Mutants:
    """100 mutants nearly as right as the net on digits that it has learned."""
    cases = load_data("digits/train").cases[:500]
    with torch.no_grad():
        own = net(cases.x).argmax(1)
        least = 0.9 * float((own == cases.y).float().mean())

        def valid(mutant: nn.Module) -> bool:
            label = mutant(cases.x).argmax(1)
            return bool((label != own).any()) and float((label == cases.y).float().mean()) >= least

        return made(net, valid, count=100, rng=Stream(0))


@pytest.fixture(scope="module")
def pool(net: nn.Module) -> tuple[Tensor, Tensor]:
    """Digits nobody trained on, a little noisy, and which of them the net gets wrong."""
    cases = load_data("digits/test").cases
    x = (cases.x + 0.1 * torch.randn(cases.x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    with torch.no_grad():
        wrong = net(x).argmax(1) != cases.y
    assert 0.02 < float(wrong.float().mean()) < 0.3, "neither too easy nor too hard"
    return x, wrong


def decided(net: nn.Module, family: Mutants, x: Tensor) -> MutantScores:
    clean = load_data("digits/train").cases[500:900]
    with torch.no_grad():
        right = net(clean.x).argmax(1) == clean.y
    test = Sprt.around(upper_mean(scored(net, family, clean.x[right], chunks=Chunks()).lcr), 0.5)
    return scored(net, family, x, sprt=test, chunks=Chunks())


def test_every_order_finds_wrong_answers(net: nn.Module, family: Mutants, pool: tuple[Tensor, Tensor]) -> None:
    x, wrong = pool
    share = float(wrong.float().mean())
    whole = scored(net, family, x, chunks=Chunks())
    early = decided(net, family, x)
    orders = {
        "distance": whole.distance.argsort(descending=True),
        "changes": whole.lcr.argsort(descending=True),
        "three tiers": three_tiers(early.decision, early.at, early.llr / early.asked, early.distance),
    }
    found = {name: float(wrong[order[:30]].float().mean()) for name, order in orders.items()}
    assert min(found.values()) > 2.5 * share, found


def test_the_tiers_are_apart_and_the_early_stop_saves(
    net: nn.Module, family: Mutants, pool: tuple[Tensor, Tensor]
) -> None:
    x, wrong = pool
    found = decided(net, family, x)
    sensitive, stable = (found.decision == tier for tier in (SENSITIVE, STABLE))
    assert int(sensitive.sum()) > 20
    assert int(stable.sum()) > 100
    assert float(wrong[sensitive].float().mean()) > 4 * float(wrong[stable].float().mean())
    assert float(found.asked.double().mean()) < 0.8 * len(family)


def test_the_benchmark_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, digits_model: str
) -> None:
    told = ["mutants.py", digits_model, "--small", "--device", "cpu", "--stacked", "6"]
    monkeypatch.setattr(sys, "argv", told)
    assert benchmark.main() == 0
    said = capsys.readouterr().out
    assert "decisions with and without early stop: the same" in said
    assert "with and without shortcuts: the same" in said
    assert "100 inputs: changes differ in 0" in said
    assert "groups of   6, batches of    85" in said
