"""Which outputs of a net are its neurons."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.subjects.layers import Layer, Layers, layers_of
from assay.subjects.observer import Observer
from assay.subjects.sources.module import ModuleTarget, Normalised

IMAGE = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))


def target(net: nn.Module, spec: InputSpec = IMAGE) -> ModuleTarget:
    return ModuleTarget(net, spec)


def told(net: nn.Module, asked: str = "auto", spec: InputSpec = IMAGE) -> list[tuple[str, str, int]]:
    return [(layer.label, layer.kind, layer.width) for layer in layers_of(target(net, spec), asked).each]


@pytest.mark.parametrize(("name", "neurons"), [("lenet1", 52), ("lenet4", 148), ("lenet5", 268)])
def test_lenets_have_the_neurons_of_the_papers(name: str, neurons: int) -> None:
    spec = InputSpec((1, 28, 28), (0.0, 1.0), tuple(map(str, range(10))))
    net = bind("model", name, {}, {"shape": spec.shape, "classes": 10})()
    found = layers_of(target(net, spec), "auto")
    assert found.neurons == neurons
    assert found.text() == f"auto: {neurons} neurons in {len(found.each)} layers"
    assert [(s.start, s.stop) for s in found.slices][-1] == (neurons - 10, neurons)


def test_resnet_joins_are_layers() -> None:
    spec = InputSpec((3, 32, 32), (0.0, 1.0), tuple(map(str, range(10))))
    net = bind("model", "resnet20", {}, {"shape": spec.shape, "classes": 10})()
    kinds = [kind for _, kind, _ in told(net, spec=spec)]
    assert kinds.count("merge") == 9
    assert kinds[-2:] == ["dense", "softmax"]


def test_a_weight_with_its_norm_and_activation_is_one_layer() -> None:
    first, last = nn.Conv2d(1, 4, 3), nn.Linear(36, 3)
    net = nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), last)
    assert told(net) == [("2", "conv", 4), ("3", "pool", 4), ("logits", "dense", 3), ("softmax", "softmax", 3)]
    conv, _, logits, softmax = layers_of(target(net), "auto").each
    assert conv.weight is not None
    assert torch.allclose(conv.weight, first.weight.detach().flatten(1).mean(1))
    assert logits.weight is not None
    assert torch.allclose(logits.weight, last.weight.detach().mean(1))
    assert softmax.weight is None


class Reused(nn.Module):
    """One activation and one dense layer, each called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.act, self.out = nn.Linear(64, 5), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x.flatten(1)))
        x = self.act(self.again(x))
        out: Tensor = self.out(self.again(x))
        return out


def test_a_module_called_again_is_a_layer_of_its_own() -> None:
    assert told(Reused()) == [
        ("act", "dense", 5),
        ("act#2", "dense", 5),
        ("again#2", "dense", 5),
        ("logits", "dense", 3),
        ("softmax", "softmax", 3),
    ]
    assert [label for label, _, _ in told(Reused(), "again")] == ["again", "again#2"]
    assert [label for label, _, _ in told(Reused(), "last")] == ["again#2"]


class Functional(nn.Module):
    """Activation and pool are functions, which no module shows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(F.adaptive_avg_pool2d(F.relu(self.conv(x)), 1).flatten(1))
        return out


def test_functions_leave_the_modules_they_follow() -> None:
    assert told(Functional()) == [("conv", "conv", 4), ("logits", "dense", 3), ("softmax", "softmax", 3)]


class Tokens(nn.Module):
    """Outputs with three axes, (N, tokens, width), as transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.mix, self.out = nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.mix(self.norm(self.embed(x[:, 0])))).mean(1))
        return out


def test_the_last_of_three_axes_are_the_neurons() -> None:
    assert told(Tokens()) == [
        ("norm", "dense", 6),
        ("mix", "dense", 7),
        ("logits", "dense", 3),
        ("softmax", "softmax", 3),
    ]


def test_names_are_those_behind_the_normalisation() -> None:
    bare = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3))
    assert told(Normalised(bare, (0.5,), (0.5,))) == told(bare)
    assert told(Normalised(bare, (0.5,), (0.5,)), "1") == [("1", "dense", 5)]


def test_patterns_name_modules_in_the_order_they_are_run() -> None:
    net = bind("model", "lenet5", {}, {"shape": (1, 8, 8), "classes": 3})()
    assert [label for label, _, _ in told(net, "logits, conv*")] == ["conv1", "conv2", "logits"]
    assert [label for label, _, _ in told(net, "act[34],softmax")] == ["act3", "act4", "softmax"]
    assert told(net, "dense1") == [("dense1", "dense", 120)]
    assert told(net, "last") == told(net, "act4")
    assert told(net, "none") == []


@pytest.mark.parametrize(("asked", "hint"), [("conv3", "did you mean 'conv2'"), ("conv*, nothing*", "nothing")])
def test_an_unknown_layer_is_refused(asked: str, hint: str) -> None:
    net = bind("model", "lenet5", {}, {"shape": (1, 8, 8), "classes": 3})()
    with pytest.raises(UsageError, match=hint):
        layers_of(target(net), asked)


def test_a_net_of_one_layer_has_no_last_hidden_one() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    assert told(net) == [("logits", "dense", 3), ("softmax", "softmax", 3)]
    with pytest.raises(UsageError, match="no layer before its logits"):
        told(net, "last")


def test_who_only_answers_has_no_neurons() -> None:
    class Black:
        gives = frozenset({"label", "logit"})

    black: Any = Black()
    with pytest.raises(UsageError, match="looking at neurons needs activation"):
        layers_of(black, "auto")


def test_fingerprints_tell_layers_apart() -> None:
    net = bind("model", "lenet5", {}, {"shape": (1, 8, 8), "classes": 3})()
    auto, convs = (layers_of(target(net), asked) for asked in ("auto", "conv*"))
    assert auto.fingerprint() == layers_of(target(net), "auto").fingerprint()
    assert auto.fingerprint() != convs.fingerprint()


def test_signals_have_their_channels_first_and_tokens_last() -> None:
    body = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(16, 3))
    target = ModuleTarget(body, InputSpec((1, 8), (0.0, 1.0), ("a", "b", "c")))
    assert [layer.width for layer in layers_of(target, "auto").each] == [4, 4, 3, 3]
    assert [layer.width for layer in layers_of(target, "0, 1, 2").each] == [4, 4, 4]
    tokens = nn.Sequential(nn.Linear(8, 5), nn.LayerNorm(5), nn.Flatten(), nn.Linear(15, 3))
    target = ModuleTarget(tokens, InputSpec((3, 8), (0.0, 1.0), ("a", "b", "c")))
    assert [layer.width for layer in layers_of(target, "auto").each] == [5, 3, 3]


def test_no_name_at_all_is_refused() -> None:
    target = ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), InputSpec((1, 2, 2), (0.0, 1.0), ("a", "b")))
    with pytest.raises(UsageError, match="no layer is called"):
        layers_of(target, ",")


class Headed(nn.Module):
    """26 neurons in a hidden layer of 20 and a head of 3, whose answer is not the very tensor that a module gave."""

    def __init__(self, how: str, width: int = 20) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.hidden, self.act = how, nn.Conv2d(1, width, 8), nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head: nn.Module = nn.Linear(width, 3) if how in ("softmax", "log_softmax") else nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.hidden(x))
        if self.how == "averaged":
            return F.log_softmax(self.pool(self.head(x.expand(-1, -1, 2, 2))).flatten(1), 1)
        if self.how == "flatten":
            return torch.flatten(self.head(x), 1)
        out: Tensor = getattr(torch, self.how)(self.head(x.flatten(1)), 1)
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", ["flatten", "log_softmax", "softmax", "averaged"])
def test_the_head_counts_once_whatever_is_done_to_its_output(how: str, dtype: torch.dtype) -> None:
    net = Headed(how).to(dtype)
    assert told(net) == [("act", "conv", 20), ("logits", "dense", 3), ("softmax", "softmax", 3)]
    assert told(net, "last") == [("act", "conv", 20)]
    logits = layers_of(target(net), "auto").each[1]
    assert logits.weight is not None
    assert torch.allclose(logits.weight, net.head.weight.detach().flatten(1).mean(1).float())  # type: ignore[operator]
    assert told(net, "head") == [("head", "conv" if how in ("flatten", "averaged") else "dense", 3)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_the_layers_of_single(dtype: torch.dtype) -> None:
    net = bind("model", "lenet5", {}, {"shape": (1, 8, 8), "classes": 3})()
    assert told(bind("model", "lenet5", {}, {"shape": (1, 8, 8), "classes": 3})().to(dtype)) == told(net)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hidden_layer_as_wide_as_the_answer_stays_one(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.ReLU(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    assert [label for label, _, _ in told(net.to(dtype))] == ["2", "4", "logits", "softmax"]


def axes(net: nn.Module, asked: str = "auto", spec: InputSpec = IMAGE) -> list[tuple[str, int, bool, bool]]:
    """Label, width, whether channels are last, whether weights are known."""
    each = layers_of(target(net, spec), asked).each
    return [(layer.label, layer.width, layer.channels_last, layer.weight is not None) for layer in each]


SIGNAL = InputSpec((1, 8), (0.0, 1.0), ("a", "b", "c"))
ANSWER = [("logits", 3, False, True), ("softmax", 3, False, False)]


class Signal(nn.Module):
    """A pool with an activation of its own, then a join of branches; positions are as many as no channels are."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.pool, self.act = nn.Conv1d(1, 5, 3, padding=1), nn.MaxPool1d(2), nn.ReLU()
        self.b, self.norm, self.join = nn.Conv1d(5, 5, 3, padding=1), nn.BatchNorm1d(5), nn.ReLU()
        self.out = nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.pool(self.a(x)))
        out: Tensor = self.out(self.join(self.norm(self.b(x)) + x).flatten(1))
        return out


def test_activations_have_the_axes_of_what_they_follow() -> None:
    assert axes(Signal(), spec=SIGNAL) == [
        ("a", 5, False, True),
        ("pool", 5, False, False),
        ("act", 5, False, False),
        ("norm", 5, False, True),
        ("join", 5, False, False),
        *ANSWER,
    ]
    assert axes(Signal(), "act, join", SIGNAL) == [("act", 5, False, False), ("join", 5, False, False)]


class Moved(nn.LayerNorm):
    """Over channels that are first."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Next(nn.Module):
    """A block of ConvNeXt: (N, C, H, W) into the convolution, (N, H, W, C) from there to the join."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.stem, self.over, self.whole = nn.Conv2d(1, 5, 2, 2), Moved(5), nn.LayerNorm([5, 4, 4])
        self.depth, self.norm = nn.Conv2d(5, 5, 3, padding=1, groups=5), norm
        self.up, self.act, self.down, self.join = nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 5), nn.ReLU()
        self.tail, self.out = nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.whole(self.over(self.stem(x)))
        y = self.down(self.act(self.up(self.norm(self.depth(x).permute(0, 2, 3, 1)))))
        y = self.join(y + x.permute(0, 2, 3, 1))
        out: Tensor = self.out(self.tail(y.permute(0, 3, 1, 2) + x).mean((2, 3)))
        return out


@pytest.mark.parametrize("norm", [nn.LayerNorm(5), nn.RMSNorm(5)])
def test_dense_layers_and_norms_of_images_have_their_channels_last(norm: nn.Module) -> None:
    assert axes(Next(norm)) == [
        ("whole", 5, False, True),
        ("depth", 5, False, True),
        ("norm", 5, True, False),
        ("act", 7, True, True),
        ("down", 5, True, True),
        ("join", 5, True, False),
        ("tail", 5, False, False),
        *ANSWER,
    ]


def test_axes_of_volumes_and_of_modules_that_nobody_knows() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.by

    volume = InputSpec((2, 4, 5, 6), (0.0, 1.0), ("a", "b", "c"))
    dense = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), Scale(), nn.Flatten(), nn.Linear(280, 3))
    assert axes(dense, spec=volume) == [("1", 7, True, True), ("2", 7, True, False), *ANSWER]
    bare = nn.Sequential(Scale(), nn.Flatten(), nn.Linear(240, 3))
    assert axes(bare, spec=volume) == [("0", 2, False, False), *ANSWER]
    tokens = InputSpec((4, 5), (0.0, 1.0), ("a", "b", "c"))
    bare = nn.Sequential(Scale(), nn.Flatten(), nn.Linear(20, 3))
    assert axes(bare, spec=tokens) == [("0", 5, True, False), *ANSWER]


class Block(nn.Module):
    """A residual block, its sum new or written over the output of the norm."""

    def __init__(self, sum_in_place: bool, relu_in_place: bool) -> None:
        super().__init__()
        self.sum_in_place = sum_in_place
        self.a, self.norm1, self.act = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(relu_in_place)
        self.b, self.norm2, self.join = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(relu_in_place)
        self.pool, self.last, self.out = nn.AdaptiveAvgPool2d(1), nn.ReLU(relu_in_place), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm1(self.a(x)))
        y = self.norm2(self.b(x))
        if self.sum_in_place:
            y += x
        else:
            y = y + x
        out: Tensor = self.out(self.last(self.pool(self.join(y))).flatten(1))
        return out


@pytest.mark.parametrize("sum_in_place", [False, True])
@pytest.mark.parametrize("relu_in_place", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_joins_in_place_are_joins(sum_in_place: bool, relu_in_place: bool, inference: bool) -> None:
    net = target(Block(sum_in_place, relu_in_place))
    with torch.inference_mode(inference):
        found = [(layer.label, layer.kind) for layer in layers_of(net, "auto").each]
    assert found == [
        ("act", "conv"),
        ("norm2", "conv"),
        ("join", "merge"),
        ("pool", "pool"),
        ("last", "merge"),
        ("logits", "dense"),
        ("softmax", "softmax"),
    ]


def test_fingerprints_tell_axes_apart() -> None:
    first, last = (Layers("auto", (Layer("a", "conv", 4, channels_last=last),)) for last in (False, True))
    assert first.fingerprint() != last.fingerprint()


def test_a_module_with_one_number_a_row_is_no_layer() -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1).mean(1)

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.a, self.out = Gate(), nn.Linear(64, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.a(x.flatten(1)) * self.gate(x)[:, None])
            return out

    assert told(Gated(), "a") == [("a", "dense", 5)]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0].mean(1))
        return out


def test_of_a_module_that_gives_several_things_the_first_counts() -> None:
    target = ModuleTarget(Recurrent(), InputSpec((5, 4), (0.0, 1.0), ("a", "b", "c")))
    assert [(layer.name, layer.width) for layer in layers_of(target, "auto").each][:1] == [("lstm", 6)]
    x = torch.rand(3, 5, 4)
    assert torch.allclose(Observer.of([target], "lstm")(x).neurons, target.module.lstm(x)[0].mean(1))  # type: ignore[operator]
