"""Which outputs of a net are its neurons."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.subjects.layers import layers_of
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
