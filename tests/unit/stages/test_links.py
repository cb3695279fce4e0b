"""The slice of links, against a slow loop."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.stages.masks import Slice
from assay.stages.slicing import slice_of
from assay.subjects.cut import cut_of
from assay.subjects.sources.module import ModuleTarget

IMAGE = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))
PAIR = InputSpec((2,), (0.0, 1.0), ("a", "b"))
TOKENS = InputSpec((4, 5), (-1.0, 1.0), ("a", "b", "c"))


def inputs(spec: InputSpec, n: int, classes: int = 0) -> Cases:
    x = torch.rand(n, *spec.shape, generator=torch.Generator().manual_seed(1))
    return Cases.of(x, torch.arange(n) % (classes or len(spec.classes)))


def sliced(net: nn.Module, layer: str, cases: Cases, spec: InputSpec = IMAGE, size: int = 512) -> Slice:
    how: dict[str, Any] = {"share": 0.1, "rng": Stream(0), "chunks": Chunks(size)}
    return slice_of("links", net, cut_of(ModuleTarget(net, spec), layer), cases, spec, **how)


Layers = list[tuple[int, int, int]]  # places of a weighted module, of what it is given, and of the end of its block


class Slow:
    """The kept links of a chain, one input, unit and link at a time; place -1 is the input."""

    def __init__(self, net: nn.Sequential, x: Tensor, y: Tensor, layers: Layers) -> None:
        self.net, self.y, self.layers, self.n = net, y.tolist(), layers, len(x)
        self.away: dict[int, list[list[float]]] = {}
        for end in {end for layer in layers for end in layer[1:]}:
            with torch.no_grad():
                out = net[: end + 1](x) if end >= 0 else x
            values = [[float(unit.mean()) for unit in row] for row in out]
            means = [sum(column) / self.n for column in zip(*values, strict=True)]
            self.away[end] = [[v - m for v, m in zip(row, means, strict=True)] for row in values]

    def all(self) -> list[set[tuple[int, int]]]:
        joined: list[set[tuple[int, int]]] = [set() for _ in self.layers]
        for group in sorted(set(self.y)):
            for mine, found in zip(joined, self.of_class(group), strict=True):
                mine |= found
        return joined

    def of_class(self, group: int) -> list[set[tuple[int, int]]]:
        rows = [r for r in range(self.n) if self.y[r] == group]
        carried = {r: {group: 1.0} for r in rows}
        visited = {group}
        kept: list[set[tuple[int, int]]] = []
        for index in reversed(range(len(self.layers))):
            place, into, out = self.layers[index]
            weight = self.net.get_parameter(f"{place}.weight").detach()
            weight = weight.flatten(2).sum(2) if weight.dim() > 2 else weight
            width = len(self.away[into][0])
            before = len(self.away[self.layers[index - 1][2]][0]) if index else width
            values = {
                (r, i, j): carried[r].get(i, 0.0) * self.away[out][r][i] * float(weight[i, j]) * self.away[into][r][j]
                for r in rows
                for i in visited
                for j in range(width)
            }
            own = set()
            for i in visited:
                mean = [sum(values[r, i, j] for r in rows) / len(rows) for j in range(width)]
                own |= {(i, j) for _, j in sorted((mean[j], j) for j in range(width))[int(0.05 * width) :]}
            carried = {r: {} for r in rows}
            for r in rows:
                for i, j in sorted(own):
                    part = values[r, i, j]
                    if index < len(self.layers) - 1:
                        part = float(part > 0) - float(part < 0)
                    unit = j // (width // before)  # channels may have been flattened
                    carried[r][unit] = carried[r].get(unit, 0.0) + part
            visited = {j // (width // before) for _, j in own}
            kept.insert(0, own)
        return kept


def links(mask: Tensor) -> set[tuple[int, int]]:
    flat = mask.flatten(2).all(2) if mask.dim() > 2 else mask
    return {(i, j) for i, j in flat.nonzero().tolist()}


def test_links_of_dense_layers() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 25), nn.ReLU(), nn.Linear(25, 41), nn.Tanh(), nn.Linear(41, 3)).double()
    spec = InputSpec((20,), (0.0, 1.0), ("a", "b", "c"))
    cases = inputs(spec, 12)
    slow = Slow(net, cases.x.double(), cases.y, [(0, -1, 1), (2, 1, 3), (4, 3, 4)])
    whole = sliced(net, "logits", cases, spec, size=5)
    for place, expected in zip((0, 2, 4), slow.all(), strict=True):
        assert links(whole.moves[f"{place}.weight"]) == expected
        assert bool(whole.moves[f"{place}.bias"].all())
    assert int(whole.moves["4.weight"].sum()) == 3 * 39  # two of 41 are cut for each class
    assert 0 < int((~whole.moves["0.weight"]).sum()) < 25  # of the one of 20 that each class cuts
    assert bool(whole.units.all())
    part = sliced(net, "1", cases, spec)
    assert set(part.moves) == {"0.weight", "0.bias"}
    assert torch.equal(part.moves["0.weight"], whole.moves["0.weight"])


def test_one_class_cuts_more_than_several() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 25), nn.ReLU(), nn.Linear(25, 41), nn.Tanh(), nn.Linear(41, 3)).double()
    spec = InputSpec((20,), (0.0, 1.0), ("a", "b", "c"))
    cases = inputs(spec, 8, classes=1)
    slow = Slow(net, cases.x.double(), cases.y, [(0, -1, 1), (2, 1, 3), (4, 3, 4)])
    found = sliced(net, "3", cases, spec)
    first, second, top = slow.all()
    assert links(found.moves["0.weight"]) == first
    assert links(found.moves["2.weight"]) == second
    # A unit of which no link leads on is no part of the slice, and neither are the links that lead to it.
    assert found.units.nonzero().flatten().tolist() == sorted(j for _, j in top)
    assert len(second) == 39 * 24


def test_links_of_channels_and_flattened_places() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 20, 3, padding=1), nn.BatchNorm2d(20), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    net.extend([nn.Conv2d(20, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)]).double().eval()
    cases = inputs(IMAGE, 9)
    slow = Slow(net, cases.x.double(), cases.y, [(0, -1, 2), (4, 3, 5), (7, 6, 7)])
    found = sliced(net.train(), "logits", cases)  # measured in evaluation mode all the same
    for place, expected in zip((0, 4, 7), slow.all(), strict=True):
        assert links(found.moves[f"{place}.weight"]) == expected
    assert int((~found.moves["4.weight"]).sum()) > 0
    part, flat = sliced(net, "5", cases), sliced(net, "6", cases)
    assert torch.equal(part.moves["4.weight"], found.moves["4.weight"])
    assert torch.equal(flat.units, part.units.repeat_interleave(16))


def test_links_of_tokens() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 20), nn.LayerNorm(20), nn.GELU(), nn.Linear(20, 6), nn.Flatten(), nn.Linear(24, 3))
    found = sliced(net, "3", inputs(TOKENS, 9, classes=1), TOKENS)
    assert found.counts() == {"weights": 100 + 60 + 6 * 19 + 6, "of": 100 + 60 + 120 + 6, "units": 6, "of_units": 6}


def test_tokens_have_the_links_of_channels_that_come_first() -> None:
    torch.manual_seed(0)
    tokens = nn.Sequential(nn.Linear(5, 20), nn.GELU(), nn.Linear(20, 24), nn.Tanh(), nn.Flatten(), nn.Linear(96, 3))
    first = nn.Sequential(nn.Conv1d(5, 20, 1), nn.GELU(), nn.Conv1d(20, 24, 1), nn.Tanh(), nn.Flatten())
    first.append(nn.Linear(96, 3))
    with torch.no_grad():
        for mine, same in zip(first.parameters(), tokens.parameters(), strict=True):
            mine.copy_(same.view_as(mine))
        head = tokens.get_parameter("5.weight").view(3, 4, 24).transpose(1, 2)
        first.get_parameter("5.weight").copy_(head.reshape(3, 96))
    cases = inputs(TOKENS, 12, classes=1)
    turned = cases.with_x(cases.x.transpose(1, 2).contiguous())
    one = sliced(tokens.double(), "logits", cases, TOKENS)
    other = sliced(first.double(), "logits", turned, InputSpec((5, 4), (-1.0, 1.0), TOKENS.classes))
    for place in (0, 2):
        assert links(one.moves[f"{place}.weight"]) == links(other.moves[f"{place}.weight"])
    assert int((~one.moves["2.weight"]).sum()) > 0
    mixed = one.moves["5.weight"].view(3, 4, 24).transpose(1, 2).reshape(3, 96)
    assert torch.equal(mixed, other.moves["5.weight"])


def test_norms_move_where_a_link_leads() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 2)).eval()
    found = sliced(net, "2", inputs(PAIR, 20, classes=1), PAIR)
    assert int(found.units.sum()) == 38
    for name in ("1.weight", "1.bias"):
        assert torch.equal(found.moves[name], found.units)
    assert torch.equal(found.moves["0.weight"], found.units[:, None].expand(40, 2))
    assert bool(found.moves["0.bias"].all())


@pytest.mark.parametrize("transposed", [False, True])
def test_links_of_grouped_convolutions_are_those_of_their_group(transposed: bool) -> None:
    torch.manual_seed(0)
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    net = nn.Sequential(nn.Conv2d(1, 40, 1), nn.ReLU(), kind(40, 8, 1, groups=2), nn.ReLU(), nn.Flatten())
    net.append(nn.Linear(512, 3))
    mask = sliced(net, "3", inputs(IMAGE, 9, classes=1)).moves["2.weight"]
    assert mask.shape == net.get_parameter("2.weight").shape
    assert int(mask.sum()) == 8 * 19  # of the twenty of its own group one is cut


class Other(nn.Module):
    """Two convolutions with something else than a chain about them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.a, self.b, self.c = how, nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)
        self.scale, self.out = nn.Parameter(torch.ones(1)), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(a.roll(1, 1) if self.how == "roll" else a.softmax(1) if self.how == "softmax" else a)
        if self.how == "sum":
            b = b + a[:, :, 1:-1, 1:-1]
        elif self.how == "input":
            b = b + x[:, :, 2:-2, 2:-2]
        elif self.how == "gate":
            b = b * a.mean((2, 3), keepdim=True)
        elif self.how == "twice":
            b = self.c(b)
        elif self.how == "scale":
            b = b * self.scale
        elif self.how == "parts":
            b = self.c(b.reshape(-1, 4, 2, 2)).reshape(b.shape)
        out: Tensor = self.out(self.c(b).flatten(1) if self.how != "parts" else b.flatten(1))
        return out + a.mean((2, 3))[:, :3] if self.how == "answer" else out


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ("roll", "layer b is given mixes the units"),
        ("softmax", "layer b is given mixes the units"),
        ("sum", "layer c is not made of what the layer before it gives alone"),
        ("input", "layer c is not made of what the layer before it gives alone"),
        ("gate", "layer c is not made of what the layer before it gives alone"),
        ("answer", "the answer is not made of what the layer before it gives alone"),
        ("twice", "a layer of it runs several times"),
        ("scale", "weight scale is of another kind"),
        ("parts", "layer c is not given one row for each input"),
    ],
)
def test_what_is_no_chain_is_refused(how: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"slice=links needs a chain.*{hint}.*; slice=units works"):
        sliced(Other(how), "b", inputs(IMAGE, 6))


def test_a_plain_chain_of_modules_and_functions_is_one() -> None:
    assert sliced(Other("plain"), "b", inputs(IMAGE, 6)).counts()["units"] == 4
