"""Which weights may move."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.masks import Slice, of_weight
from assay.stages.slicing import best, drawn, slice_of
from assay.subjects.cut import Cut, Regression, cut_of
from assay.subjects.sources.module import ModuleTarget, Normalised

IMAGE = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))
PAIR = InputSpec((2,), (0.0, 1.0), ("a", "b"))
TINY = InputSpec((1, 2, 2), (0.0, 1.0), ("a", "b"))
TOKENS = InputSpec((4, 5), (-1.0, 1.0), ("a", "b", "c"))


def zoo(name: str, **params: Any) -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = bind("model", name, params, {"shape": IMAGE.shape, "classes": 3})()
    return net


def inputs(spec: InputSpec, n: int = 30, labelled: bool = True) -> Cases:
    low, high = spec.bounds
    x = torch.rand(n, *spec.shape, generator=torch.Generator().manual_seed(1)) * (high - low) + low
    return Cases.of(x, torch.arange(n) % len(spec.classes) if labelled else None)


def cut(net: nn.Module, layer: str = "auto", spec: InputSpec = IMAGE) -> Cut:
    return cut_of(ModuleTarget(net, spec), layer)


def sliced(kind: str, net: nn.Module, layer: str = "auto", spec: InputSpec = IMAGE, **how: Any) -> Slice:
    cases = how.pop("cases", inputs(spec))
    how = {"share": 0.1, "rng": Stream(0), "chunks": Chunks(), **how}
    return slice_of(kind, net, cut(net, layer, spec), cases, spec, **how)


def places(mask: Tensor) -> list[list[int]]:
    found: list[list[int]] = mask.nonzero().tolist()
    return found


def known_net() -> nn.Sequential:
    """Of ten units noise moves number 3 most, of ten behind it number 7; which come second changes with the input."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2))
    with torch.no_grad():
        net.get_parameter("0.weight").normal_(0, 0.1)
        net.get_parameter("0.weight")[3] = torch.tensor([5.0, 2.0])
        net.get_parameter("2.weight").normal_(0, 0.1)
        net.get_parameter("2.weight")[:, 3] = 0.01
        net.get_parameter("2.weight")[7, 3] = 1.0
        net.get_parameter("0.bias").fill_(1.0)
        net.get_parameter("2.bias").fill_(1.0)
    return net


def test_the_slice_of_units_by_hand() -> None:
    found = sliced("units", known_net(), "3", PAIR)
    assert places(found.moves["0.weight"]) == [[3, 0], [3, 1]]  # from all inputs
    assert places(found.moves["2.weight"]) == [[7, 3]]
    assert bool(found.moves["0.bias"].all())
    assert bool(found.moves["2.bias"].all())
    assert places(found.units) == [[7]]
    assert set(found.moves) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert found.counts() == {"weights": 2 + 10 + 1 + 10, "of": 20 + 10 + 100 + 10, "units": 1, "of_units": 10}


def test_the_cut_may_lie_in_the_middle_of_a_block() -> None:
    before, behind = (sliced("units", known_net(), layer, PAIR) for layer in ("2", "3"))
    assert before.moves.keys() == behind.moves.keys()
    assert all(torch.equal(mask, behind.moves[name]) for name, mask in before.moves.items())
    assert torch.equal(before.units, behind.units)


def test_a_flattened_channel_is_its_places() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 2))
    with torch.no_grad():
        net.get_parameter("0.weight").copy_(torch.tensor([0.0, 5.0]).view(2, 1, 1, 1))
        net.get_parameter("3.weight").normal_(0, 1e-3)
        net.get_parameter("3.weight")[4] = torch.arange(1.0, 9.0)
        net.get_parameter("3.bias").fill_(1.0)
    found = sliced("units", net, "4", TINY, share=0.5)
    assert places(found.moves["0.weight"]) == [[1, 0, 0, 0]]
    kept = found.moves["3.weight"]
    assert kept.any(0).tolist() == [False] * 4 + [True] * 4
    assert int(kept.any(1).sum()) == 5
    assert bool(kept[4, 4:].all())
    found = sliced("units", net, "4", TINY, share=0.1)
    assert len(places(found.moves["3.weight"])) == 1
    assert places(found.moves["3.weight"])[0][0] == 4
    assert places(found.moves["3.weight"])[0][1] >= 4


def obvious(net: nn.Sequential, cases: Cases, ends: dict[str, int], share: float) -> dict[str, list[int]]:
    """The kept units of tensors of a chain, one input and one unit at a time; ``ends`` are modules by their place."""
    x = cases.x
    away = Stream(0).at("noise").rows(torch.arange(len(x))).uniform(tuple(x.shape[1:]), -0.1, 0.1)
    kept = {}
    for name, end in ends.items():
        counts: dict[int, int] = {}
        for clean, step in zip(x, away, strict=True):
            one, other = (net[: end + 1](each[None])[0] for each in (clean, (clean + step).clamp(0, 1)))
            change = [abs(float(one[u].mean() - other[u].mean())) for u in range(len(one))]
            order = sorted(range(len(change)), key=lambda u: (-change[u], u))
            for unit in order[: max(1, round(0.2 * len(change)))]:
                counts[unit] = counts.get(unit, 0) + (change[unit] > 0)
        width = len(change)
        order = sorted(range(width), key=lambda u: (-counts.get(u, 0), u))
        kept[name] = sorted(order[: max(1, round(share * width))])
    return kept


def test_units_are_those_of_a_slow_loop() -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    net.extend([nn.Conv2d(8, 12, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)]).double().eval()
    net.get_buffer("1.running_mean").normal_()
    net.get_parameter("1.weight").data.uniform_(0.5, 2)
    cases = Cases.of(torch.rand(20, *IMAGE.shape))
    for share in (0.1, 0.3):
        with torch.no_grad():
            kept = obvious(net, Cases.of(cases.x.double()), {"act": 2, "pool": 3, "end": 5}, share)
        found = sliced("units", net.train(), "5", cases=cases, share=share)  # measured in evaluation mode all the same
        net.eval()
        kernel = found.moves["4.weight"].any((2, 3))
        assert kernel.any(1).nonzero().flatten().tolist() == kept["end"]
        assert kernel.any(0).nonzero().flatten().tolist() == kept["pool"]
        assert found.moves["0.weight"].all((1, 2, 3)).nonzero().flatten().tolist() == kept["act"]
        assert found.moves["1.weight"].nonzero().flatten().tolist() == kept["act"]
        assert found.moves["1.bias"].nonzero().flatten().tolist() == kept["act"]
        assert found.units.nonzero().flatten().tolist() == kept["end"]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_links_become_weights_of_grouped_convolutions(groups: int, transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    net = kind(4, 8, 3, groups=groups)
    links = torch.rand(8, 4) < 0.5
    mask = of_weight(net, links)
    assert mask.shape == net.weight.shape
    for out in range(8):
        for into in range(4):
            if out // (8 // groups) != into // (4 // groups):
                continue  # of different groups: there is no such weight
            own = mask[into, out % (8 // groups)] if transposed else mask[out, into % (4 // groups)]
            assert bool((own == links[out, into]).all())
    assert int(mask.sum()) == 9 * sum(
        int(links[out, into]) for out in range(8) for into in range(4) if out // (8 // groups) == into // (4 // groups)
    )


def test_depthwise_weights_move_where_their_channel_is_kept_on_both_sides() -> None:
    net = nn.Sequential(nn.Conv2d(1, 10, 1), nn.ReLU(), nn.Conv2d(10, 10, 1, groups=10), nn.ReLU(), nn.Flatten())
    net.append(nn.Linear(40, 2))
    with torch.no_grad():
        # Number 9 always comes second: of equals the first is kept.
        net.get_parameter("0.weight").copy_(torch.linspace(0.01, 0.1, 10).view(10, 1, 1, 1))
        net.get_parameter("0.weight")[6] = 9.0
        net.get_parameter("0.bias").fill_(1.0)
        net.get_parameter("2.weight").fill_(1.0)
        net.get_parameter("2.bias").fill_(1.0)
    found = sliced("units", net, "3", TINY)
    assert places(found.moves["2.weight"]) == [[6, 0, 0, 0]]
    assert places(found.units) == [[6]]


class Join(nn.Module):
    """A residual sum, a concatenation, an embedding of places, and a norm that stands before its layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.place = nn.Parameter(torch.zeros(1, 10, 1, 1))
        self.stem, self.side = nn.Conv2d(1, 10, 3, padding=1), nn.Conv2d(1, 10, 3, padding=1)
        self.pre, self.act, self.mix = nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1)
        self.join, self.out = nn.ReLU(), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.stem(x) + self.place, self.side(x)
        y = self.mix(self.act(self.pre(torch.cat([a, b], 1))))
        out: Tensor = self.out(self.join(y + a).mean((2, 3)))
        return out


def test_joins_need_no_graph() -> None:
    net = Join()
    with torch.no_grad():
        net.side.weight[4] *= 100  # channel 14 of the concatenation
        net.get_buffer("pre.running_mean")[14] = -1000.0  # its activation never sleeps
    found = sliced("units", net)
    assert cut(net).layer == "join"
    assert places(found.moves["side.weight"].any((1, 2, 3))) == [[4]]
    assert int(found.moves["stem.weight"].any((1, 2, 3)).sum()) == 1  # as first as the other: of all inputs
    assert found.moves["pre.weight"].nonzero().flatten().tolist()[-1] == 14
    assert int(found.moves["pre.weight"].sum()) == 2
    columns = found.moves["mix.weight"].any((0, 2, 3))
    assert torch.equal(columns, found.moves["pre.weight"])
    assert not found.moves["place"].any()  # of another kind
    assert set(found.moves) == set(cut(net).prefix)


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm = nn.Linear(5, 10), nn.LayerNorm(10)
        self.attend, self.up, self.act = nn.MultiheadAttention(10, 2, batch_first=True), nn.Linear(10, 20), nn.GELU()
        self.down, self.out = nn.Linear(20, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.embed(x))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        out: Tensor = self.out((x + self.down(self.act(self.up(x)))).mean(1))
        return out


def test_tokens_have_units_and_attention_stays() -> None:
    net = Attended()
    found = sliced("units", net, "down", TOKENS, share=0.2)
    sizes = {name: int(mask.sum()) for name, mask in found.moves.items()}
    assert sizes["embed.weight"] == 2 * 5
    assert sizes["norm.weight"] == sizes["norm.bias"] == 2
    assert torch.equal(found.moves["norm.weight"], found.moves["embed.weight"].all(1))
    assert sizes["up.weight"] == 4 * 2
    assert sizes["down.weight"] == 2 * 4
    assert sizes["attend.in_proj_weight"] == sizes["attend.out_proj.weight"] == 0
    assert torch.equal(found.moves["down.weight"].any(0), found.moves["up.weight"].any(1))


def test_a_module_that_runs_twice_has_the_units_of_both_runs() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.again = nn.Linear(2, 5), nn.Linear(5, 5)  # of five units one counts
            self.act, self.out = nn.ReLU(), nn.Linear(5, 2)
            with torch.no_grad():
                for layer in (self.first, self.again):
                    layer.weight.normal_(0, 0.001)
                    layer.bias.fill_(1.0)
                self.first.weight[2] = torch.tensor([9.0, 5.0])
                self.again.weight[4, 2] = 9.0  # the first run moves 4, and the second 1
                self.again.weight[1, 4] = 9.0

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.first(x))
            out: Tensor = self.out(self.act(self.again(self.act(self.again(x)))))
            return out

    found = sliced("units", Twice(), "act#3", PAIR, share=0.4)
    assert places(found.moves["again.weight"]) == [[1, 2], [1, 4], [4, 2], [4, 4]]
    once = sliced("units", Twice(), "act#2", PAIR, share=0.2)
    assert places(once.moves["again.weight"]) == [[4, 2]]
    assert places(sliced("units", Twice(), "act#3", PAIR, share=0.2).units) == [[1]]


@pytest.mark.parametrize("layer", ["logits", "softmax"])
def test_at_the_answer_no_class_is_left_out(layer: str) -> None:
    net = zoo("lenet5")
    found = sliced("units", net, layer)
    assert bool(found.units.all())
    assert bool(found.moves["out.weight"].any(1).all())
    assert not bool(found.moves["out.weight"].all())  # from the kept units of the layer before it alone
    assert int(found.moves["dense2.weight"].sum()) == 8 * 12
    for seed in range(8):
        found = sliced("random", net, layer, rng=Stream(seed))
        assert torch.equal(found.moves["out.weight"].any(1), found.units)


def test_units_are_looked_at_before_anything_writes_over_them() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(2, 5), nn.Linear(5, 5), nn.Linear(5, 2)
            with torch.no_grad():
                self.a.weight[2] = torch.tensor([9.0, 5.0])
                self.a.bias.fill_(-100.0)

        def forward(self, x: Tensor) -> Tensor:
            a = self.a(x)
            out: Tensor = self.out(self.b(a + 1 + a.relu_()))  # what a gave is 0 from here on
            return out

    found = sliced("units", Writes(), "b", PAIR, share=0.2)
    assert found.moves["a.weight"].all(1).nonzero().flatten().tolist() == [2]


NETS: list[tuple[str, dict[str, Any]]] = [
    ("lenet1", {}),
    ("lenet4", {}),
    ("lenet5", {}),
    ("alexnet", {"dense": 32}),
    ("resnet20", {"width": 8}),
    ("resnet18", {"width": 8}),
    ("mlp", {}),
]


@pytest.mark.parametrize(("name", "params"), NETS)
@pytest.mark.parametrize("kind", ["units", "random", "all", "links"])
def test_weights_outside_the_slice_are_bit_identical_after_steps(kind: str, name: str, params: dict[str, Any]) -> None:
    net = Normalised(zoo(name, **params), (0.5,), (0.5,)).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    if kind == "links" and name.startswith("resnet"):
        with pytest.raises(UsageError, match="slice=links needs a chain"):
            sliced(kind, net)
        return
    place = cut(net)
    found = sliced(kind, net, cases=inputs(IMAGE, 6))
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert net.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert set(found.moves) == set(place.prefix)
    model = Regression(net, place).train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=0.1)
    x = inputs(IMAGE, 4).x
    for _ in range(2):
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
        found.put_back(net, before)
    moved = 0
    for full, tensor in net.state_dict().items():
        mask = found.moves.get(full, torch.zeros_like(tensor, dtype=torch.bool))
        assert torch.equal(tensor[~mask], before[full][~mask])
        moved += int((tensor[mask] != before[full][mask]).sum())
    counts = found.counts()
    assert 0.5 * counts["weights"] < moved <= counts["weights"]
    assert (counts["weights"] == counts["of"]) == (kind == "all" or (kind == "links" and name.startswith("lenet")))
    assert 1 <= counts["units"] <= counts["of_units"] == place.units


def test_vgg_has_a_tenth_of_its_units() -> None:
    found = sliced("units", zoo("vgg16"), cases=inputs(IMAGE, 3))
    assert found.counts()["units"] == 51
    assert int(found.moves["norm5_3.weight"].sum()) == 51
    assert torch.equal(found.moves["norm5_3.weight"], found.units)
    assert int(found.moves["conv5_3.weight"].sum()) == 51 * 51 * 9


def test_what_stays_stays_even_where_a_step_broke_it() -> None:
    net = zoo("mlp")
    found = sliced("units", net)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        for weight in net.parameters():
            weight.fill_(torch.nan)
    found.put_back(net, before)
    for name, weight in net.named_parameters():
        mask = found.moves.get(name, torch.zeros_like(weight, dtype=torch.bool))
        assert torch.equal(weight[~mask], before[name][~mask])
        assert bool(weight[mask].isnan().all())
        assert weight.requires_grad


def test_random_slices_are_as_large_and_drawn() -> None:
    net = zoo("alexnet", dense=32)
    units, one, same, other = (
        sliced(kind, net, rng=Stream(seed), cases=inputs(IMAGE, 6))
        for kind, seed in (("units", 0), ("random", 0), ("random", 0), ("random", 1))
    )
    sizes = [{name: int(mask.sum()) for name, mask in found.moves.items()} for found in (units, one, other)]
    assert sizes[0] == sizes[1] == sizes[2]
    assert all(torch.equal(mask, same.moves[name]) for name, mask in one.moves.items())
    assert not torch.equal(one.units, other.units)
    assert not torch.equal(one.units, units.units)
    assert torch.equal(one.moves["conv5.weight"].any((1, 2, 3)), one.units)
    assert torch.equal(one.moves["conv4.weight"].any((1, 2, 3)), one.moves["conv5.weight"].any((0, 2, 3)))


def test_all_of_the_weights_before_the_cut() -> None:
    net = Join()
    found = sliced("all", net, cases=inputs(IMAGE, 0))
    assert all(bool(mask.all()) for mask in found.moves.values())
    assert bool(found.moves["place"].all())
    assert found.counts()["units"] == 10
    assert "out.weight" not in found.moves


def test_neither_chunks_nor_the_other_inputs_matter() -> None:
    net = zoo("lenet5")
    one, other = (sliced("units", net, chunks=Chunks(size)) for size in (512, 7))
    assert all(torch.equal(mask, other.moves[name]) for name, mask in one.moves.items())
    assert torch.equal(one.units, other.units)


class Spy(nn.Module):
    """Keeps what it is asked."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.flat, self.a, self.out = nn.Flatten(), nn.Linear(int(torch.Size(shape).numel()), 10), nn.Linear(10, 2)
        self.asked: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.asked.append(x.clone())
        out: Tensor = self.out(self.a(self.flat(x)))
        return out


@pytest.mark.parametrize(
    ("shape", "bounds", "noise", "most"),
    [
        ((1, 8, 8), (0.0, 1.0), None, 0.1),
        ((3, 8, 8), (0.0, 1.0), None, 8 / 255),
        ((3, 8, 8), (-1.0, 1.0), None, 16 / 255),
        ((40,), (0.0, 1.0), None, 8 / 255),
        ((1, 8, 8), (0.0, 255.0), 0.5, 127.5),
    ],
)
def test_noise_is_uniform_within_the_range(
    shape: tuple[int, ...], bounds: tuple[float, float], noise: float | None, most: float
) -> None:
    spec, net = InputSpec(shape, bounds, ("a", "b")), Spy(shape)
    place, cases = cut(net, "a", spec), inputs(spec, 20)
    net.asked.clear()
    slice_of("units", net, place, cases, spec, share=0.1, rng=Stream(0), noise=noise, chunks=Chunks())
    clean, noisy = net.asked[-2:]
    assert torch.equal(clean, cases.x)
    assert bounds[0] <= float(noisy.min()) <= float(noisy.max()) <= bounds[1]
    away = noisy - clean
    assert 0.97 * most < float(away.abs().max()) <= most * 1.0001
    inner = away[(clean > bounds[0] + most) & (clean < bounds[1] - most)]
    if len(inner) > 500:
        assert abs(float(inner.mean())) < 0.1 * most
        assert abs(float(inner.std()) - most / 3**0.5) < 0.05 * most


def test_inputs_are_drawn_by_class() -> None:
    y = torch.tensor([0] * 10 + [1] * 3 + [UNLABELLED] * 5 + [3] * 10)
    rows = drawn(y, 4, 4, Stream(0))
    assert y[rows].tolist() == [0] * 4 + [1] * 3 + [3] * 4
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert rows.tolist() != drawn(y, 4, 4, Stream(1)).tolist()
    bare = torch.full((30,), UNLABELLED)
    assert len(drawn(bare, 3, 4, Stream(0))) == 12
    assert len(drawn(bare, 3, 100, Stream(0))) == 30
    assert len(drawn(bare[:0], 3, 100, Stream(0))) == 0


def test_only_so_many_inputs_are_looked_at() -> None:
    spec, net = InputSpec((40,), (0.0, 1.0), ("a", "b")), Spy((40,))
    place = cut(net, "a", spec)
    for labelled in (True, False):
        net.asked.clear()
        cases = inputs(spec, 50, labelled)
        slice_of("units", net, place, cases, spec, share=0.1, rng=Stream(0), per_class=3, chunks=Chunks())
        assert [len(asked) for asked in net.asked[-2:]] == [6, 6]


def test_the_best_are_a_share_and_of_equals_the_first() -> None:
    assert places(best(torch.tensor([1, 5, 5, 0, 5]), 0.4)) == [[1], [2]]
    assert places(best(torch.zeros(7), 0.01)) == [[0]]
    assert bool(best(torch.zeros(7), 1.0).all())


def test_units_that_do_not_react_do_not_count() -> None:
    net = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 2))
    with torch.no_grad():
        net.get_parameter("0.weight").zero_()
        net.get_parameter("0.weight")[8] = 1.0
    found = sliced("units", net, "1", PAIR)
    assert places(found.units) == [[8]]


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ({"kind": "unit"}, "unknown slice 'unit'; did you mean 'units'"),
        ({"share": 0}, "share of units must be above 0 and at most 1, got 0"),
        ({"share": 1.5}, "at most 1, got 1.5"),
        ({"noise": 0.0}, "noise must be above 0"),
        ({"noise": 2.0}, "noise must be above 0 and at most 1"),
        ({"per_class": 0}, "per_class must be at least 1"),
        ({"cases": inputs(IMAGE, 0)}, "slice=units needs inputs to look at.*slice=all does without"),
        ({"kind": "links", "cases": inputs(IMAGE, 0)}, "slice=links needs inputs"),
        ({"kind": "links", "cases": inputs(IMAGE, 9, labelled=False)}, "no input has a label; slice=units needs none"),
    ],
)
def test_nonsense_is_refused(how: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        sliced(how.get("kind", "units"), zoo("lenet5"), **{k: v for k, v in how.items() if k != "kind"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["units", "random", "links"])
def test_other_precisions_have_slices(kind: str, dtype: torch.dtype) -> None:
    net = zoo("lenet5").to(dtype)
    counts = sliced(kind, net).counts()
    assert counts == sliced(kind, zoo("lenet5")).counts()
    assert {p.dtype for p in net.parameters()} == {dtype}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["units", "random", "all", "links"])
def test_a_net_on_a_device_has_its_slice_there(kind: str) -> None:
    found = sliced(kind, zoo("lenet5").cuda())  # the inputs lie on the CPU
    assert {mask.device.type for mask in (*found.moves.values(), found.units)} == {"cuda"}
    assert found.counts() == sliced(kind, zoo("lenet5")).counts()
    net = zoo("lenet5").cuda()
    found.put_back(net, {name: tensor.cpu() for name, tensor in net.state_dict().items()})
