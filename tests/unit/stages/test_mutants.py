"""Mutation operators by hand on tiny nets, families of valid mutants, and a net that comes back as it was."""

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from assay.core.errors import AssayError, UsageError
from assay.core.randomness import Stream
from assay.stages import mutants as module
from assay.stages.mutants import Mutant, Mutants, made
from assay.stages.mutation_operators import OPERATORS, Difference, gf, nai, ns, weighted, ws
from assay.subjects.sources.module import Normalised

RNG = Stream(3, ("here",))


def small(seed: int = 0) -> nn.Sequential:
    """A convolution of 12 filters, dense 20, a dense head of 3, with a normalisation between."""
    torch.manual_seed(seed)
    body = [nn.Conv2d(2, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(12 * 4, 20), nn.Tanh(), nn.Linear(20, 3)).eval()


def bits(net: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def same(net: nn.Module, before: dict[str, Tensor]) -> bool:
    now = net.state_dict()
    # Signs too, for 0 and -0 are equal.
    return all(torch.equal(now[n], t) and torch.equal(now[n].signbit(), t.signbit()) for n, t in before.items())


def written(net: nn.Module, difference: Difference) -> dict[str, Tensor]:
    """The parameters of a copy with the difference written into it the slow way."""
    weights = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    for name, (index, values) in difference.items():
        flat = weights[name].flatten()
        for place, value in zip(index.tolist(), values, strict=True):
            flat[place] = value
        weights[name] = flat.view_as(weights[name])
    return weights


def drawn(net: nn.Module, name: str, rate: float, seed: int = 1) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return written(net, OPERATORS[name].draw(weighted(net), rate, rng))


def always(_net: nn.Module) -> bool:
    return True


def test_gaussian_fuzzing_moves_a_share_of_all_weights_and_nothing_else() -> None:
    net, mutant = small(), drawn(small(), "gf", 0.1)
    total = moved = 0
    for name, weight in net.named_parameters():
        differs = mutant[name] != weight
        if name in ("0.weight", "4.weight", "6.weight"):
            total, moved = total + weight.numel(), moved + int(differs.sum())
        else:
            assert not differs.any(), name  # neither biases nor the normalisation
    assert moved == round(0.1 * total)


def test_gaussian_fuzzing_is_centred_on_the_weight_and_as_spread_as_its_layer() -> None:
    first, last = nn.Linear(100, 50), nn.Linear(50, 2)
    nn.init.normal_(first.weight, 5.0, 2.0)
    nn.init.normal_(last.weight, 0.0, 0.01)
    net = nn.Sequential(first, last)
    difference = gf(weighted(net), 1.0, torch.Generator().manual_seed(0))
    for name, layer in (("0.weight", first), ("1.weight", last)):
        moves = difference[name][1] - layer.weight.detach().flatten()[difference[name][0]]
        spread = float(layer.weight.detach().std(correction=0))
        n = layer.weight.numel()
        assert float(moves.mean()) == pytest.approx(0, abs=4 * spread / math.sqrt(n))
        assert float(moves.std()) == pytest.approx(spread, rel=4 / math.sqrt(2 * n))


def test_inverse_negates_the_weights_and_bias_of_a_share_of_the_neurons() -> None:
    net, mutant = small(), drawn(small(), "nai", 0.25)
    negated = 0
    for name in ("0", "4"):
        weight, bias = net.get_parameter(f"{name}.weight").flatten(1), net.get_parameter(f"{name}.bias")
        now = mutant[f"{name}.weight"].flatten(1)
        inverse = (now == -weight).all(1)
        assert ((now == weight).all(1) | inverse).all()
        assert torch.equal(mutant[f"{name}.bias"], torch.where(inverse, -bias, bias))
        negated += int(inverse.sum())
    assert negated == round(0.25 * 32)
    assert torch.equal(mutant["6.weight"], net.get_parameter("6.weight"))  # the last layer is left alone


def test_shuffling_keeps_the_weights_of_each_neuron_and_moves_them() -> None:
    net, mutant = small(), drawn(small(), "ws", 0.25)
    shuffled = 0
    for name in ("0.weight", "4.weight"):
        weight, now = net.get_parameter(name).flatten(1), mutant[name].flatten(1)
        assert torch.equal(now.sort(1).values, weight.sort(1).values)
        shuffled += int((now != weight).any(1).sum())
    assert shuffled == round(0.25 * 32)
    assert all(torch.equal(mutant[n], w) for n, w in net.named_parameters() if n not in ("0.weight", "4.weight"))


def test_a_switch_gives_neurons_the_weights_and_bias_of_one_another() -> None:
    net, mutant = small(), drawn(small(), "ns", 0.3)
    for name, count in (("0", 3), ("4", 6)):  # 3.6 and 6 rounded down
        weight, bias = net.get_parameter(f"{name}.weight").flatten(1), net.get_parameter(f"{name}.bias")
        whole, now = torch.cat([weight, bias[:, None]], 1), mutant[f"{name}.weight"].flatten(1)
        now = torch.cat([now, mutant[f"{name}.bias"][:, None]], 1)
        other = (now[:, None] == whole).all(2).long().argmax(1)  # whose weights each neuron has
        assert torch.equal(whole[other], now)
        assert sorted(other.tolist()) == list(range(len(whole)))
        assert int((other != torch.arange(len(whole))).sum()) == count
    assert torch.equal(mutant["6.weight"], net.get_parameter("6.weight"))


@pytest.mark.parametrize(
    ("neurons", "rate", "count"),
    [(9, 0.5, 0), (10, 0.05, 2), (40, 0.05, 2), (50, 0.05, 2), (84, 0.05, 4), (120, 0.05, 6)],
)
def test_how_many_neurons_switch(neurons: int, rate: float, count: int) -> None:
    net = nn.Sequential(nn.Linear(3, neurons), nn.Linear(neurons, 2))
    difference = ns(weighted(net), rate, torch.Generator().manual_seed(0))
    assert len(difference["0.bias"][0] if difference else ()) == count == OPERATORS["ns"].size(weighted(net), rate)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_neuron_is_what_makes_one_channel(transposed: bool, groups: int) -> None:
    """Negated weights and bias of a neuron negate its channel of what the layer gives, and no other."""
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    torch.manual_seed(0)
    layer = kind(4, 6, 3, groups=groups)
    net, x = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(2)), torch.rand(2, 4, 5, 5)
    net(x)
    before = layer(x)
    family = made(net, always, count=1, operators=["nai"], rate=1 / 3, rng=RNG)
    neurons = family.difference(0)["0.bias"][0]
    sign = torch.ones(6).index_fill_(0, neurons, -1.0)
    assert len(neurons) == 2
    with family.applied(0):
        assert torch.allclose(layer(x), before * sign[:, None, None], atol=1e-6)


def test_shared_and_computed_weights() -> None:
    shared = nn.Linear(12, 12)
    net = nn.Sequential(
        shared, nn.ReLU(), shared, nn.utils.parametrizations.weight_norm(nn.Linear(12, 12)), nn.Linear(12, 2)
    )
    assert [layer.name for layer in weighted(net)] == ["0.weight", "4.weight"]


def test_a_layer_without_bias_and_one_that_is_the_net() -> None:
    net = nn.Sequential(nn.Linear(4, 10, bias=False), nn.Linear(10, 2))
    for operator in (nai, ns, ws):
        assert list(operator(weighted(net), 0.2, torch.Generator().manual_seed(0))) == ["0.weight"]
    assert [layer.name for layer in weighted(nn.Linear(3, 2))] == ["weight"]


@pytest.mark.parametrize("operator", sorted(OPERATORS))
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_net_is_the_mutant_and_then_as_it_was(operator: str, layout: torch.memory_format) -> None:
    net = small().to(memory_format=layout)  # type: ignore[call-overload]
    before = bits(net)
    family = made(net, always, count=3, operators=[operator], rate=0.2, rng=RNG)
    for i in range(len(family)):
        expected = written(net, family.difference(i))
        with family.applied(i) as mutant:
            assert mutant is net
            assert all(torch.equal(weight, expected[name]) for name, weight in net.named_parameters())
            assert not same(net, before)
        assert same(net, before)
        assert family.touched(i) == set(family.difference(i))


def test_a_net_comes_back_after_an_error() -> None:
    net = small()
    before = bits(net)
    family = made(net, always, count=4, rng=RNG)
    with pytest.raises(ZeroDivisionError), family.applied(0):
        raise ZeroDivisionError
    assert same(net, before)
    with family.applied(0), pytest.raises(AssayError, match="leave that block"), family.applied(1):
        pass  # pragma: no cover
    assert same(net, before)

    def breaks(_net: nn.Module) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made(net, breaks, rng=RNG)
    assert same(net, before)


def test_a_family_is_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stream gives the same mutants, kept or drawn anew, whatever normalisation is in front."""
    plain = small()
    first = made(plain, always, count=10, rng=RNG)
    monkeypatch.setattr(module, "KEPT", 0)
    again = made(Normalised(copy.deepcopy(plain), [0.0, 0.0], [1.0, 1.0]), always, count=10, rng=RNG)
    assert not again._kept
    assert first._kept
    assert first.each == again.each
    for i in range(10):
        one, other = first.difference(i), again.difference(i)
        assert [f"net.{name}" for name in one] == list(other)
        assert all(torch.equal(a, b) for name in one for a, b in zip(one[name], other[f"net.{name}"], strict=True))
    others = made(plain, always, count=10, rng=Stream(4))
    assert others.difference(0).keys() != first.difference(0).keys() or any(
        not torch.equal(first.difference(0)[n][1], v) for n, (_, v) in others.difference(0).items()
    )


def test_operators_share_the_number_and_are_mixed() -> None:
    family = made(small(), always, count=32, rng=RNG)
    counts = {name: sum(m.operator == name for m in family.each) for name in ("gf", "nai", "ns")}
    assert counts == {"gf": 11, "nai": 11, "ns": 10}
    assert len(set(family.each)) == 32
    assert sum(a.operator != b.operator for a, b in zip(family.each, family.each[1:], strict=False)) > 10
    assert family.rejected == {"gf": 0, "nai": 0, "ns": 0}
    assert family.rates == {"gf": 0.05, "nai": 0.05, "ns": 0.05}


def judged(net: nn.Module, verdicts: Sequence[bool], **told: object) -> Mutants:
    """A family whose tries are valid as told, and none after that."""
    rest = iter(verdicts)
    return made(net, lambda _: next(rest, False), rng=RNG, **told)  # type: ignore[arg-type]


def test_the_rate_is_halved_after_twenty_rejections_in_a_row() -> None:
    verdicts = [True, *[False] * 19, True, *[False] * 20, True, *[False] * 40, True]
    family = judged(small(), verdicts, count=4, operators=["gf"], rate=0.2)
    assert set(family.each) == {
        Mutant("gf", 0.2, 0),
        Mutant("gf", 0.2, 20),
        Mutant("gf", 0.1, 41),
        Mutant("gf", 0.025, 82),
    }
    assert family.rejected == {"gf": 79}
    assert family.rates == {"gf": 0.025}


@pytest.mark.parametrize(("operator", "tried"), [("nai", 20 * 4), ("ns", 20 * 2)])
def test_it_gives_up_where_halving_changes_nothing(operator: str, tried: int) -> None:
    """Of 32 neurons 0.2 draws 6, 3, 2, 1; switches of layers with 12 and 20 neurons 2+4, 2+2."""
    net = small()
    before = bits(net)
    rates = [0.2 / 2**n for n in range(8)]
    sizes = [OPERATORS[operator].size(weighted(net), rate) for rate in rates]
    steps = next(n for n in range(7) if sizes[n] == sizes[n + 1]) + 1
    assert steps * 20 == tried
    with pytest.raises(UsageError, match=rf"{tried} mutants by {operator} were tried and 0 of the 5 wanted"):
        judged(net, [], count=5, operators=[operator], rate=0.2)
    assert same(net, before)


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"count": 0}, "number of mutants"),
        ({"rate": 0.0}, "rate"),
        ({"rate": 1.5}, "rate"),
        ({"operators": []}, "once"),
        ({"operators": ["gf", "gf"]}, "once"),
        ({"operators": ["gg"]}, "did you mean 'gf'"),
    ],
)
def test_nonsense_is_refused(told: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        judged(small(), [], **told)


@pytest.mark.parametrize(
    ("net", "operator"),
    [
        (nn.Sequential(nn.Linear(3, 2)), "nai"),
        (nn.Sequential(nn.Linear(3, 9), nn.Linear(9, 2)), "ns"),
        (nn.Sequential(nn.BatchNorm1d(3)), "gf"),
    ],
)
def test_a_net_that_an_operator_cannot_change_is_refused(net: nn.Module, operator: str) -> None:
    with pytest.raises(UsageError, match=f"operator {operator} needs"):
        made(net, always, operators=[operator], rng=RNG)


@pytest.mark.parametrize("name", ["nai", "ns", "ws"])
def test_the_last_layer_is_never_drawn(name: str) -> None:
    net = small()
    layers = weighted(net)
    for seed in range(40):
        touched = OPERATORS[name].draw(layers, 0.3, torch.Generator().manual_seed(seed))
        assert not {"6.weight", "6.bias"} & set(touched)


def test_layers_switch_by_lot_where_the_rate_asks_for_less_than_half_a_neuron() -> None:
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(10)), nn.Linear(16, 3))
    layers = weighted(net)
    counts = [
        sum(name.endswith("weight") for name in ns(layers, 0.005, torch.Generator().manual_seed(seed)))
        for seed in range(300)
    ]
    # Each of ten with odds of 0.16, and one at least: 1 - 0.84^10 = 0.825 of the draws have one by themselves.
    assert min(counts) == 1
    assert sum(counts) / 300 == pytest.approx(1.6 + 0.84**10, abs=0.25)
    every = ns(layers, 0.05, torch.Generator().manual_seed(0))
    assert sum(name.endswith("weight") for name in every) == 10


def test_a_bias_of_two_layers_comes_back() -> None:
    net = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12), nn.Linear(12, 2))
    net[2].bias = net[0].bias
    before = bits(net)
    family = made(net, always, count=20, operators=("nai", "ns"), rate=0.5, rng=RNG)
    for i in range(20):
        with family.applied(i):
            pass
    assert same(net, before)
