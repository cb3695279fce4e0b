"""Stages of TwinFuzz, all but its filters: LIB and its slope, attacked seeds, agreement mining, oracles, by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import MINED, UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.losses import entropy
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind, lookup
from assay.stages.objective import CURVATURES, Look
from assay.stages.scores.fol import fol
from assay.stages.scores.lib import lib
from assay.stages.scores.zol import zol
from assay.stages.seeds import attacked as attacked_seeds
from assay.stages.twins import Together
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

LN2 = math.log(2)
THREE = InputSpec((2,), (-1.0, 1.0), ("a", "b", "c"))


# LIB.


def halves() -> tuple[Bench, Cases]:
    """A net whose first two logits are its inputs; at (ln 2, 0) it answers 1/2, 1/4, 1/4, of entropy 1.5 ln 2."""
    net = nn.Linear(2, 3, bias=False).double()
    net.weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64))
    x = torch.tensor([[LN2, 0.0]] * 3, dtype=torch.float64)
    return Bench(ModuleTarget(net, THREE)), Cases.of(x, torch.tensor([0, 1, 2]))


def attached(bench: Bench, cases: Cases) -> Cases:
    x = cases.x.detach().clone().requires_grad_()
    return cases.with_x(x).note(logits=bench.target(x))


@pytest.mark.parametrize("beta", [0.0, 10.0, 1.0])
@pytest.mark.parametrize("mined", [None, [1, 2, 0]])
def test_lib_and_its_gradient_by_hand(beta: float, mined: list[int] | None) -> None:
    """Slope of the cross-entropy of c in the logits: p - 1 at c, p elsewhere; of the entropy: -p·(ln p + H)."""
    bench, cases = halves()
    if mined is not None:
        cases = cases.note(**{MINED: torch.tensor(mined)})
    value = {0: LN2 + beta * 1.5 * LN2, 1: 2 * LN2 + beta * 1.5 * LN2, 2: 2 * LN2 + beta * 1.5 * LN2}
    bend = (-beta * LN2 / 4, beta * LN2 / 8)
    slope = {0: (-0.5, 0.25), 1: (0.5, -0.75), 2: (0.5, 0.25)}
    wanted = mined or [0, 1, 2]
    assert lib(bench, cases, beta=beta).tolist() == pytest.approx([value[c] for c in wanted], rel=1e-12)
    assert not lib(bench, cases, beta=beta).requires_grad
    graph = attached(bench, cases)
    (way,) = torch.autograd.grad(lib(bench, graph, beta=beta).sum(), graph.x)
    expected = torch.tensor([[s + b for s, b in zip(slope[c], bend, strict=True)] for c in wanted])
    assert torch.allclose(way, expected.double(), rtol=1e-6)


def test_lib_weighs_entropy_by_ten_and_refuses_less_than_nothing() -> None:
    bench, cases = halves()
    assert bind("score", "lib", {})(bench, cases).tolist() == pytest.approx([16 * LN2, 17 * LN2, 17 * LN2])
    with pytest.raises(UsageError, match="beta weighs the entropy and must not be negative, got -1"):
        lib(bench, cases, beta=-1.0)


def test_entropy_and_its_slope_are_finite_where_a_probability_is_nothing() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, -math.inf], [-math.inf, 3.0, -math.inf]], requires_grad=True)
    values = entropy(logits)
    assert values.tolist() == pytest.approx([0.0, LN2, 0.0])
    (slope,) = torch.autograd.grad(values.sum(), logits)
    assert torch.allclose(slope, torch.zeros(3, 3), atol=1e-6)
    bench, cases = halves()
    sure = cases.note(logits=torch.tensor([[1e4, -1e4, 0.0]] * 3, requires_grad=True))
    assert lib(bench, sure).tolist() == pytest.approx([0.0, 2e4, 1e4])


def smooth(middle: nn.Module) -> tuple[Bench, Cases]:
    """A curved net, and cases whose mined class is never their label."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), middle, nn.Linear(8, 3)).double()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(2.0)
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(3, (9,), generator=rng)
    other = (y + torch.randint(1, 3, (9,), generator=rng)) % 3
    x = torch.rand(9, 2, generator=rng, dtype=torch.float64) * 2 - 1
    return Bench(ModuleTarget(net, THREE)), Cases.of(x, y).note(**{MINED: other})


def objective(**params: object) -> dict[str, Bound]:
    return {"fol": bind("score", "fol", params), "lib": bind("score", "lib", {})}


@pytest.mark.parametrize(
    ("middle", "curvature"),
    [(nn.Tanh(), "double"), (nn.Tanh(), "forward"), (nn.Softplus(), "double")]
    + [(nn.ReLU(), curvature) for curvature in CURVATURES],
)
@pytest.mark.parametrize("safe", [True, False])
def test_the_slope_of_both_together_is_that_of_finite_differences(
    middle: nn.Module, curvature: str, safe: bool
) -> None:
    bench, cases = smooth(middle)
    parts = objective(safe=safe)
    look = Look(parts, dict.fromkeys(parts, 1.0), {**parts, "zol": bind("score", "zol", {})}, curvature)
    seen = look(bench, cases)

    def value(x: Tensor) -> Tensor:
        logits = bench.target(x.requires_grad_())
        loss = nn.functional.cross_entropy(logits, cases.info[MINED], reduction="none")
        slope = torch.autograd.grad(loss.sum(), x)[0]
        p = logits.softmax(1)
        span = THREE.bounds[1] - THREE.bounds[0]
        total: Tensor = span * slope.norm(dim=1) + loss - 10 * (p * p.log()).sum(1)
        return total.detach()

    step = 1e-6 * torch.eye(2, dtype=torch.float64)
    differences = torch.stack([(value(cases.x + d) - value(cases.x - d)) / 2e-6 for d in step], 1)
    assert differences.abs().max() > 0.1
    assert torch.allclose(seen.info["slope"], differences, rtol=1e-5, atol=1e-6)
    assert torch.allclose(seen.info["fol"] + seen.info["lib"], value(cases.x.clone()), rtol=1e-9)
    own = Look(parts, dict.fromkeys(parts, 1.0), parts, curvature)(bench, cases.drop(MINED))
    assert not torch.allclose(own.info["slope"], seen.info["slope"], rtol=0.1), "the label is another class"


def test_what_is_climbed_is_the_loss_of_the_mined_class() -> None:
    bench, cases = smooth(nn.Tanh())
    plain = Cases.of(cases.x, cases.info[MINED])
    assert torch.equal(cases.reference, plain.y)
    assert torch.equal(bench.gradient(cases), bench.gradient(plain))
    assert torch.equal(zol(bench, cases), zol(bench, plain))
    assert torch.equal(fol(bench, cases), fol(bench, plain))
    assert torch.equal(lib(bench, cases), lib(bench, plain))
    assert not torch.allclose(zol(bench, cases), zol(bench, cases.drop(MINED)))


def test_fol_of_the_public_code_adds_to_every_entry() -> None:
    bench, cases = halves()
    slope = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-9, 4e-9]], dtype=torch.float64, requires_grad=True)
    given = cases.note(gradient=slope)
    values = fol(bench, given, safe=False, eps=1.0)
    assert values.tolist() == pytest.approx([5.0, 1e-20 * math.sqrt(2), 5e-9], rel=1e-9, abs=0.0)
    (way,) = torch.autograd.grad(values.sum(), slope)
    root = math.sqrt(0.5)
    assert torch.allclose(way, torch.tensor([[0.6, 0.8], [root, root], [0.6, 0.8]]).double(), rtol=1e-6)
    (damped,) = torch.autograd.grad(fol(bench, given, eps=1.0).sum(), slope)
    assert damped[1:].abs().max() < 0.01, "the safe one has no slope where there is no gradient"
    assert torch.equal(fol(bench, given, safe=False, eps=2.0), 2 * values)
    for params in ({"norm": "linf", "eps": 0.1}, {"exact": True, "eps": 0.1}):
        with pytest.raises(UsageError, match=r"fol\(safe=false\) is defined for norm=l2 and exact=false"):
            bind("score", "fol", {"safe": False, **params})(bench, cases)


# Two models of two classes: class 1 where the two inputs sum to more than a threshold.

TWO = InputSpec((2,), (0.0, 1.0), ("low", "high"))


class Threshold(nn.Module):
    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        level = self.scale * (x.sum(1, keepdim=True) - self.at)
        return torch.cat([-level, level], 1)


def twins(resistant: float = 0.9, vulnerable: float = 1.0, chunk: int = 512, **others: float) -> Bench:
    target = ModuleTarget(Threshold(resistant), TWO)
    roles = {"vulnerable": vulnerable, **others}
    return Bench(target, {k: ModuleTarget(Threshold(at), TWO) for k, at in roles.items()}, chunks=Chunks(chunk))


def at(*sums: float) -> Tensor:
    """Inputs of two equal numbers with these sums."""
    return torch.tensor([[s / 2, s / 2] for s in sums], dtype=torch.float64)


def sown(bench: Bench, cases: Cases, seed: int = 0, **params: Any) -> Cases:
    made: Cases = bind("seeder", "attacked", params, {"eps": 0.1})(bench, cases, rng=Stream(seed))
    return made


def by_origin(cases: Cases) -> Cases:
    return cases[cases.origin.argsort()]


def test_attacked_seeds_fool_the_vulnerable_model_from_where_it_is_right() -> None:
    """A ball of 0.1 moves the sum by 0.2: it crosses 1 from 0.85 and 1.15, not from 0.75, and 1.1 is wrong already."""
    x = at(0.85, 0.75, 1.15, 1.1, 0.95, 1.05)
    cases = Cases.of(x, torch.tensor([0, 0, 1, 0, UNLABELLED, UNLABELLED])).note(place=torch.arange(10, 16))
    made = by_origin(sown(twins(resistant=5.0), cases))
    assert made.origin.tolist() == [0, 2, 4, 5]
    assert made.y.tolist() == [0, 1, 0, 1], "the unlabelled ones are what the vulnerable model says"
    assert made.info["place"].tolist() == [10, 12, 14, 15]
    assert torch.equal(made.parent, x[made.origin])
    assert torch.allclose(made.x, at(1.05, 0.95, 1.15, 0.85)), "at the edge of the ball, after all steps"
    assert "mined" not in made.info
    assert torch.equal(cases.x, at(0.85, 0.75, 1.15, 1.1, 0.95, 1.05))
    alone = Bench(ModuleTarget(Threshold(0.9), TWO))
    assert by_origin(sown(alone, cases)).origin.tolist() == [0, 1, 4, 5], "the target where there is no other"


def test_the_usual_attack_is_the_papers() -> None:
    """A fifth of eps a step, 20 steps, no random start: 0.06 after three of them where eps is 0.1."""
    entry, function = lookup("seeder", "attacked")
    usual = next(p.default for p in entry.parameters if p.name == "attack")
    assert usual == "'bim(steps=20, step=0.2, early_stop=false)'"
    cases = Cases.of(at(0.95), torch.tensor([0]))
    made = function(twins(), cases, rng=Stream(0), eps=0.1, attack="bim(steps=3, step=0.2, early_stop=false)")
    assert torch.allclose(made.x, at(0.95 + 2 * 0.06))
    assert torch.equal(made.x, sown(twins(), cases, attack="bim(steps=3, step=0.2, early_stop=false)").x)


def many(n: int = 40) -> Cases:
    rng = torch.Generator().manual_seed(3)
    x = torch.rand(n, 2, generator=rng, dtype=torch.float64)
    return Cases.of(x, (x.sum(1) > 1).long())


@pytest.mark.parametrize("attack", ["bim(steps=20, step=0.2, early_stop=false)", "pgd(steps=3, early_stop=false)"])
@pytest.mark.parametrize("count", [1, 6, None])
def test_attacked_seeds_do_not_depend_on_blocks(
    attack: str, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sown(twins(), many(), attack=attack, count=count)
    assert len(whole) == count or (count is None and len(whole) > 7)
    for block, chunk in ((512, 3), (1, 512), (7, 512), (7, 2), (13, 4)):
        monkeypatch.setattr(attacked_seeds, "BLOCK", block)
        parts = sown(twins(chunk=chunk), many(), attack=attack, count=count)
        assert parts.origin.tolist() == whole.origin.tolist()
        assert torch.equal(parts.x, whole.x)
        assert torch.equal(parts.parent, whole.parent)


def test_attacked_seeds_come_in_a_random_order_that_repeats() -> None:
    few, all_ = sown(twins(), many(), count=6), sown(twins(), many(), count=None)
    assert few.origin.tolist() == all_.origin.tolist()[:6], "the first ones found"
    assert all_.origin.tolist() != sorted(all_.origin.tolist())
    assert sown(twins(), many(), count=None).origin.tolist() == all_.origin.tolist()
    other = sown(twins(), many(), seed=1, count=None)
    assert other.origin.tolist() != all_.origin.tolist()
    assert torch.equal(by_origin(other).x, by_origin(all_).x)


def test_the_attack_ends_when_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacked_seeds, "BLOCK", 10)
    bench = twins()
    tried = []
    net = bench.roles["vulnerable"].module  # type: ignore[attr-defined]  # a ModuleTarget
    net.register_forward_hook(lambda _, given, __: tried.append(len(given[0])))
    sown(bench, many(), count=1, attack="bim(steps=1, step=1)")
    assert max(tried) <= 10
    once = sum(tried)
    tried.clear()
    sown(bench, many(), count=None, attack="bim(steps=1, step=1)")
    assert sum(tried) > 3 * once


def test_no_success_is_no_seed_and_no_error() -> None:
    for cases in (Cases.of(at(0.1, 1.9), torch.tensor([0, 1])), Cases.of(at(0.9), torch.tensor([1])), many()[:0]):
        made = sown(twins(), cases.note(place=cases.origin))
        assert len(made) == 0
        assert made.parent.shape == made.x.shape == (0, 2)
        assert set(made.info) == {"place", "seed_x"}


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"count": 0}, "count is a number of seeds from 1 up, or null for all; got 0"),
        ({"attack": "bim(targeted=true)"}, "is targeted, and a seeder has no classes to aim at"),
        ({"attack": "bim(stride=1)"}, "has no parameter 'stride'"),
        ({"attack": "bimm"}, "did you mean 'bim'"),
        ({"model": "resistant"}, "model is one of vulnerable, both; got 'resistant'"),
    ],
)
def test_attacked_refuses_what_it_cannot_do(params: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        sown(twins(), many(), **params)


class OnePixel(nn.Module):
    """Tells two classes apart by one pixel: class 1 where it is above a half."""

    def __init__(self, pixel: int) -> None:
        super().__init__()
        self.pixel = pixel

    def forward(self, x: Tensor) -> Tensor:
        score = 10 * (x.flatten(1)[:, self.pixel] - 0.5)
        return torch.stack([-score, score], 1)


def test_an_attack_on_both_models_moves_what_either_looks_at() -> None:
    spec = InputSpec((1, 1, 3), (0.0, 1.0), ("a", "b"))
    resistant, vulnerable = (ModuleTarget(OnePixel(pixel), spec) for pixel in (1, 0))
    bench = Bench(resistant, {"vulnerable": vulnerable})
    clean = Cases.of(torch.tensor([[0.4, 0.4, 0.4]]).reshape(1, 1, 1, 3), torch.tensor([0]))
    made = {m: sown(bench, clean, eps=0.3, model=m) for m in ("vulnerable", "both")}
    assert made["vulnerable"].x.flatten().tolist() == pytest.approx([0.7, 0.4, 0.4])
    assert made["both"].x.flatten().tolist() == pytest.approx([0.7, 0.7, 0.4])
    assert [len(mined(bench, some, on="error")) for some in made.values()] == [0, 1]
    pair = Together((vulnerable, resistant))
    x = torch.rand(5, 1, 1, 3)
    assert torch.allclose(pair(x), (vulnerable(x).log_softmax(1) + resistant(x).log_softmax(1)) / 2)
    assert pair.gives == vulnerable.gives


def test_the_mutator_refuses_it_too() -> None:
    mutator = bind("mutator", "attacked", {"attack": "pgd(targeted=true)", "eps": 0.1})
    with pytest.raises(UsageError, match="is targeted, and a mutator has no classes to aim at"):
        mutator(twins(), many(), rng=Stream(0).rows(torch.arange(40)))


# Agreement mining: the target is high from 0.9, the vulnerable model from 1.


def mined(bench: Bench, cases: Cases, **params: object) -> Cases:
    made: Cases = bind("seeder", "agreed", params)(bench, cases, rng=Stream(0))
    return made


def five() -> Cases:
    """Answers (target, vulnerable): low low, low low, high low, high high, high high; then two without a label."""
    y = torch.tensor([0, 1, 0, 0, 1, UNLABELLED, UNLABELLED])
    some = Cases.of(at(0.5, 0.5, 0.95, 1.5, 1.5, 1.5, 1.5), y)
    return some.note(seed_x=at(0.4, 1.2, 0.8, 0.8, 1.6, 0.97, 1.2), place=some.origin + 10)


def test_errors_that_carried_over_are_mined() -> None:
    found = mined(twins(), five(), on="error")
    assert found.origin.tolist() == [1, 3, 5]
    assert found.y.tolist() == [1, 0, 0], "without a label: what the vulnerable model says of the clean parent, not R"
    assert found.info[MINED].tolist() == [0, 1, 1]
    assert found.info[MINED].dtype == torch.int64
    assert found.info["place"].tolist() == [11, 13, 15]
    assert torch.equal(found.parent, five().parent[found.origin])
    assert found.reference.tolist() == [0, 1, 1]
    plain = mined(twins(), five(), on="error", reference="label")
    assert plain.origin.tolist() == [1, 3, 5]
    assert MINED not in plain.info
    assert plain.reference.tolist() == [1, 0, 0]


def test_every_model_has_to_agree() -> None:
    assert mined(twins(sibling1=2.0), five(), on="error").origin.tolist() == [1]
    assert mined(twins(sibling1=0.2), five(), on="error").origin.tolist() == [3, 5]
    with pytest.raises(UsageError, match="there is none beside the target"):
        mined(Bench(ModuleTarget(Threshold(0.9), TWO)), five(), on="error")


def test_without_mining_nothing_is_dropped() -> None:
    every = mined(twins(), five(), on="any")
    assert every.origin.tolist() == list(range(7))
    assert every.y.tolist() == [0, 1, 0, 0, 1, 0, 1]
    assert every.info[MINED].tolist() == [0, 0, 1, 1, 1, 1, 1]
    label = mined(twins(), five(), on="any", reference="label")
    assert label.y.tolist() == every.y.tolist()
    assert MINED not in label.info
    own = mined(twins(), five().drop("seed_x"), on="any")
    assert own.y.tolist() == [0, 1, 0, 0, 1, 1, 1], "a case without a parent is its own"


def test_agreement_on_the_label_is_as_it_was() -> None:
    found = mined(twins(), five())
    assert found.origin.tolist() == [0, 4, 5, 6]
    assert found.y.tolist() == [0, 1, 1, 1], "the class that both give to the case itself"
    assert MINED not in found.info


@pytest.mark.parametrize("params", [{"on": "class"}, {"reference": "mined"}])
def test_agreed_refuses_other_words(params: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="on is one of label, error, any and reference one of answer, label"):
        mined(twins(), five(), **params)


def test_nothing_to_mine() -> None:
    for on in ("error", "any"):
        none = mined(twins(), five()[:0], on=on)
        assert none.info[MINED].shape == (0,)


def test_attacked_seeds_are_mined_without_a_label() -> None:
    """Attacked, a parent of 0.95 is at 1.15, high for both; one of 1.05 is at 0.85, low for both; 1.15 for V alone."""
    cases = Cases.of(at(0.95, 1.05, 1.15, 0.2))
    found = by_origin(mined(twins(), sown(twins(), cases), on="error"))
    assert found.origin.tolist() == [0, 1]
    assert found.y.tolist() == [0, 1]
    assert found.info[MINED].tolist() == [1, 0]


# Oracles.


def judged(name: str, own: list[int], **columns: Tensor) -> list[bool]:
    """Verdicts over labels 0 for cases to which the target gives these classes."""
    n = len(own)
    some = Cases.of(torch.zeros(n, 2), torch.zeros(n, dtype=torch.int64)).note(logits=torch.eye(3)[own], **columns)
    told: list[bool] = bind("oracle", name, {})(Bench(ModuleTarget(nn.Linear(2, 3), THREE)), some).tolist()
    return told


def test_leaving_the_mined_class_may_mean_becoming_right() -> None:
    one = torch.tensor([1, 1, 1])
    assert judged("leaves", [0, 1, 2], mined=one) == [True, False, True]
    assert judged("leaves_wrong", [0, 1, 2], mined=one) == [False, False, True]
    for name in ("leaves", "leaves_wrong", "wrong_label"):
        assert judged(name, [0, 1, 2]) == [False, True, True], "without a mined class the label is the reference"
    assert judged("wrong_label", [0, 1, 2], mined=one) == [False, True, True], "and that oracle keeps to it"


def test_models_that_err_alike() -> None:
    others = torch.eye(3)[torch.tensor([[0, 0], [1, 1], [1, 2], [2, 2], [1, 1], [2, 1]])]
    assert judged("agreed", [0, 1, 1, 1, 0, 1], others=others) == [False, True, False, False, False, False]
    mined_class = torch.ones(6, dtype=torch.int64)
    told = judged("agreed", [0, 1, 1, 1, 0, 1], others=others, mined=mined_class)
    assert told == [False, True, False, False, False, False], "the label counts, whatever was mined"
    assert bind("oracle", "agreed", {})(twins(), five()[:5]).tolist() == [False, True, False, True, False]


def test_all_other_models_are_asked() -> None:
    bench = twins(sibling1=0.2)
    asked = bench.others(five())
    assert asked.shape == (7, 2, 2)
    nets = [bench.roles[role](five().x) for role in ("vulnerable", "sibling1")]
    assert torch.equal(asked, torch.stack(nets, 1))
    short = five().note(others=torch.zeros(7, 1, 2))  # an observer's, who sees one of the two
    assert torch.equal(bench.others(short), asked)
    full = torch.rand(7, 2, 2)
    assert torch.equal(bench.others(five().note(others=full)), full)
    with pytest.raises(UsageError, match="give one: --with MODEL"):
        Bench(bench.target).others(five())
