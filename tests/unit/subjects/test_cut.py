"""A net cut after a layer."""

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.subjects.cut import Cut, Regression, cut_of
from assay.subjects.layers import layers_of
from assay.subjects.sources.module import ModuleTarget, Normalised

IMAGE = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b", "c"))
TOKENS = InputSpec((4, 5), (-1.0, 1.0), ("a", "b", "c"))


def zoo(name: str, **params: Any) -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = bind("model", name, params, {"shape": IMAGE.shape, "classes": 3})()
    return net


def cut(net: nn.Module, layer: str = "auto", spec: InputSpec = IMAGE) -> Cut:
    return cut_of(ModuleTarget(net, spec), layer)


ZOO: list[tuple[str, dict[str, Any], str, int]] = [
    ("lenet1", {}, "act2", 12),
    ("lenet4", {}, "act2", 16),
    ("lenet5", {}, "act2", 16),
    ("alexnet", {"dense": 32}, "act5", 256),
    ("vgg16", {}, "act5_3", 512),
    ("resnet20", {"width": 4}, "block3_3.act2", 16),
    ("resnet18", {"width": 4}, "block4_2.act2", 32),
    ("mlp", {}, "act1", 128),
    ("mlp", {"hidden": (9,)}, "act1", 9),
    ("mlp", {"hidden": (64, 32, 16, 8, 4)}, "act4", 8),  # FMT's net: its fourth hidden layer
]


def hooked(net: nn.Module, layer: str, x: Tensor) -> Tensor:
    """The same by a run of the whole net, copied before a later module may write over it."""
    kept: list[Tensor] = []
    hook = net.get_submodule(layer).register_forward_hook(lambda _m, _a, out: kept.append(out.clone()))
    net(x)
    hook.remove()
    return kept[0]


@pytest.mark.parametrize(("name", "params", "layer", "units"), ZOO)
@pytest.mark.parametrize("train", [False, True])
def test_auto_is_the_last_block_of_a_net_of_the_zoo(
    name: str, params: dict[str, Any], layer: str, units: int, train: bool
) -> None:
    net = zoo(name, **params)
    found = cut(net)
    assert (found.layer, found.units, found.channels_last) == (layer, units, False)
    x = torch.rand(3, *IMAGE.shape)
    net.train(train)
    same = copy.deepcopy(net)  # a run in training mode changes statistics
    assert torch.equal(found.output(net, x), hooked(same, layer, x))
    # All these nets name their weights in the order they are used.
    names = [name for name, _ in net.named_parameters()]
    assert list(found.prefix) == names[: len(found.prefix)]
    behind = {"lenet1": 2, "lenet4": 4, "lenet5": 6, "alexnet": 6, "vgg16": 4, "resnet20": 2, "resnet18": 2}
    assert len(names) - len(found.prefix) == behind.get(name, 2 * min(2, len(params.get("hidden", "12"))))


@pytest.mark.parametrize(("name", "params"), [each[:2] for each in ZOO if each[0] != "vgg16"])
def test_at_the_answer_every_weight_counts(name: str, params: dict[str, Any]) -> None:
    net = zoo(name, **params).eval()
    x = torch.rand(3, *IMAGE.shape)
    for answer, expected in (("logits", net(x)), ("softmax", net(x).softmax(1))):
        found = cut(net, answer)
        assert found == Cut(answer, 3, False, tuple(name for name, _ in net.named_parameters()))
        assert torch.equal(found.output(net, x), expected)


def test_no_later_layer_is_run() -> None:
    net, ran = zoo("lenet5"), []
    for name, module in net.named_children():
        module.register_forward_hook(lambda _m, _a, _out, name=name: ran.append(name))
    found = cut(net, "conv2")
    ran.clear()
    found.output(net, torch.rand(2, *IMAGE.shape))
    assert ran == ["pad", "conv1", "act1", "pool1", "conv2"]


def test_gradients_are_those_of_the_whole_net() -> None:
    net = zoo("lenet5")
    x = torch.rand(2, *IMAGE.shape, requires_grad=True)
    weights = (net.get_parameter("conv1.weight"), x)
    mine = torch.autograd.grad(cut(net).output(net, x).square().sum(), weights)
    whole = torch.autograd.grad(hooked(net, "act2", x).square().sum(), weights)
    assert all(torch.equal(a, b) for a, b in zip(mine, whole, strict=True))
    with torch.no_grad():
        assert not cut(net).output(net, x).requires_grad


def test_an_activation_in_place_does_not_change_what_was_taken() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3))
    x = torch.rand(2, *IMAGE.shape)
    plain = cut(net, "0").output(net, x)
    assert bool((plain < 0).any())
    assert torch.equal(plain, net[0](x))
    assert torch.equal(cut(net, "1").output(net, x), net[0](x).relu())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.act = nn.Linear(64, 5), nn.Linear(5, 5), nn.ReLU()
        self.more, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.again(self.act(self.first(x.flatten(1)))))
        out: Tensor = self.out(self.act(self.more(self.again(x))))
        return out


def test_a_run_is_named_by_its_number() -> None:
    net, x = Twice(), torch.rand(2, *IMAGE.shape)
    one, two, three = (cut(net, f"act#{i}") for i in (1, 2, 3))
    inner = net.first(x.flatten(1)).relu()
    assert torch.equal(one.output(net, x), inner)
    assert torch.equal(two.output(net, x), net.again(inner).relu())
    assert [len(each.prefix) for each in (one, two, three)] == [2, 4, 6]
    assert cut(net).layer == "again#2"  # dense layers: act#1, act#2, again#2, act#3, the answer
    with pytest.raises(UsageError, match="act runs 3 times; say which: act#1 to act#3"):
        cut(net, "act")
    with pytest.raises(UsageError, match="act runs 3 times, there is no act#4"):
        cut(net, "act#4")
    with pytest.raises(UsageError, match="there is no act#0"):
        cut(net, "act#0")
    assert cut(net, "first#1").layer == "first"


class Functional(nn.Module):
    """Activations are functions and a weight is used without its module."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.a, self.b, self.aside = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(1, 4, 3)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.b(F.conv2d(x * self.scale, self.a.weight)))
        out: Tensor = self.out(x.mean((2, 3)))
        return out


def test_weights_are_found_by_gradients_not_by_modules() -> None:
    found = cut(Functional())
    assert (found.layer, found.prefix) == ("b", ("scale", "a.weight", "b.weight", "b.bias"))


class Dense(nn.Module):
    """Each layer is given all before it, as in a DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1), nn.Conv2d(7, 5, 1)
        self.norm, self.act, self.out = nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, self.a(x)], 1)
        x = torch.cat([x, self.b(x)], 1)
        out: Tensor = self.out(self.act(self.norm(self.c(x))).mean((2, 3)))
        return out


def test_concatenations_are_cut_like_anything_else() -> None:
    found = cut(Dense())
    assert (found.layer, found.units) == ("act", 5)
    assert set(found.prefix) == {f"{m}.{w}" for m in ("a", "b", "c", "norm") for w in ("weight", "bias")}
    assert set(cut(Dense(), "b").prefix) == {f"{m}.{w}" for m in ("a", "b") for w in ("weight", "bias")}


class Tokens(nn.Module):
    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(5, 6), nn.LayerNorm(6)
        self.mix, self.out = nn.ModuleList(nn.Linear(6, 6) for _ in range(depth)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.embed(x))
        for mix in self.mix:
            x = x + F.gelu(mix(x))
        out: Tensor = self.out(x.mean(1))
        return out


def test_tokens_have_their_channels_last() -> None:
    net = Tokens()
    found = cut(net, spec=TOKENS)
    assert (found.layer, found.units, found.channels_last) == ("mix.2", 6, True)
    assert found.output(net, torch.rand(2, 4, 5)).shape == (2, 4, 6)
    assert cut(net, "norm", TOKENS).prefix == ("embed.weight", "embed.bias", "norm.weight", "norm.bias")


def test_a_transformer_behind_a_convolution_is_cut_among_its_dense_layers() -> None:
    class Vision(nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.patch, self.body = nn.Conv2d(1, 5, 4, 4), Tokens(depth)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.body(self.patch(x).flatten(2).transpose(1, 2))
            return out

    assert cut(Vision(4)).layer == "body.mix.2"
    assert cut(Vision(1)).layer == "patch"  # three dense layers behind it: those of a head


def test_grouped_convolutions_are_convolutions() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3, groups=2), nn.Conv2d(8, 8, 3, groups=8), nn.GELU())
    net.extend([nn.Flatten(), nn.Linear(32, 3)])
    assert (cut(net).layer, cut(net).units) == ("3", 8)


def test_names_of_layers_are_those_behind_the_normalisation_and_weights_those_of_the_whole() -> None:
    net = Normalised(zoo("lenet5"), (0.5,), (0.25,))
    found = cut(net)
    assert (found.layer, found.prefix[0]) == ("act2", "net.conv1.weight")
    x = torch.rand(2, *IMAGE.shape)
    assert torch.equal(found.output(net, x), cut(net.net).output(net.net, (x - 0.5) / 0.25))


def test_of_several_things_the_first_is_taken() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.lstm(x)[0].mean(1))
            return out

    net = Recurrent()
    found = cut(net, spec=TOKENS)
    assert (found.layer, found.units, found.channels_last) == ("lstm", 6, True)
    assert found.output(net, torch.rand(2, 4, 5)).shape == (2, 4, 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_stay(dtype: torch.dtype) -> None:
    net = zoo("lenet5").to(dtype)
    found = cut(net)
    assert found.layer == "act2"
    out = found.output(net, torch.rand(2, *IMAGE.shape))
    assert out.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert cut(net, "softmax").output(net, torch.rand(2, *IMAGE.shape)).dtype == out.dtype
    assert {p.dtype for p in net.parameters()} == {dtype}


def test_a_net_is_left_as_it_was_found() -> None:
    net = zoo("resnet20", width=4).train()
    net.get_submodule("norm").eval()
    net.get_parameter("conv.weight").requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    flags = [module.training for module in net.modules()]
    found = cut(net)
    assert found.prefix[0] == "conv.weight"  # frozen weights count
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert [module.training for module in net.modules()] == flags
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["conv.weight"]
    assert all(p.grad is None for p in net.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


class Guarded(nn.Module):
    """A net that catches what goes wrong inside of it."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.a, self.out, self.fails = nn.Linear(64, 5), nn.Linear(5, 3), fails

    def forward(self, x: Tensor) -> Tensor:
        if self.fails:
            raise ZeroDivisionError("of its own")
        try:
            x = self.a(x.flatten(1))
        except Exception as error:
            raise AssertionError("caught") from error
        out: Tensor = self.out(x)
        return out


def test_nothing_is_caught_but_the_stop_and_the_stop_by_nobody_else() -> None:
    net, x = Guarded(), torch.rand(2, *IMAGE.shape)
    found = cut(net, "a")
    assert torch.equal(found.output(net, x), net.a(x.flatten(1)))
    net.fails = True
    with pytest.raises(ZeroDivisionError, match="of its own"):
        found.output(net, x)
    assert not net.a._forward_hooks


def test_a_cut_inside_of_a_cut_stops_itself_alone() -> None:
    inner = Guarded()
    inside = cut(inner, "a")

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.a, self.out = inner, nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.a(inside.output(self.teacher, x)))
            return out

    net, x = Outer(), torch.rand(2, *IMAGE.shape)
    assert torch.equal(cut(net, "a").output(net, x), net.a(inner.a(x.flatten(1))))
    assert torch.equal(cut(net, "teacher.a").output(net, x), inner.a(x.flatten(1)))  # stops inside of the other


def test_a_run_leaves_nothing_in_memory() -> None:
    net, seen = zoo("lenet5"), []
    found = cut(net)
    net.get_submodule("conv1").register_forward_hook(lambda _m, _a, out: seen.append(weakref.ref(out)))
    gc.disable()
    try:
        with torch.no_grad():
            found.output(net, torch.rand(2, *IMAGE.shape))
        assert seen[-1]() is None
    finally:
        gc.enable()


def test_an_empty_batch_has_an_empty_output() -> None:
    net = zoo("lenet5")
    assert cut(net).output(net, torch.rand(0, *IMAGE.shape)).shape == (0, 16, 4, 4)


class Odd(nn.Module):
    """Layers that give nothing to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.idle, self.out = nn.Linear(64, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.pick, self.gate, self.free = Made(lambda x: x.argmax(1)), Made(lambda x: x.mean(1)), Made(Tensor.detach)
        self.table, self.whole = Made(lambda x: {"x": x}), Made(lambda x: x.long())

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x.flatten(1))
        for module in (self.pick, self.gate, self.table, self.whole):
            module(x)
        out: Tensor = self.out(x + self.free(x))
        return out


class Made(nn.Module):
    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


@pytest.mark.parametrize(
    ("layer", "hint"),
    [
        ("outt", "no layer is called 'outt'; did you mean 'out'"),
        ("softmx", "did you mean 'softmax'"),
        ("idle", "layer idle never ran"),
        ("pick", "pick gives torch.int64 \\(2,\\) for 2 inputs; a cut needs a row of floating-point numbers"),
        ("gate", "gate gives torch.float32 \\(2,\\)"),
        ("table", "table gives dict"),
        ("whole", "whole gives torch.int64 \\(2, 5\\)"),
        ("free", "no weight leads to layer free.*torch.no_grad, or detached"),
    ],
)
def test_a_layer_that_cannot_be_cut_after_is_refused(layer: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        cut(Odd(), layer)


def test_a_net_without_weights_or_gradients_before_the_layer_is_refused() -> None:
    class Closed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.out = nn.Linear(64, 5), nn.Linear(5, 3)

        @torch.no_grad()
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.a(x.flatten(1)))
            return out

    for layer in ("auto", "a", "logits"):
        with pytest.raises(UsageError, match="no weight leads to layer"):
            cut(Closed(), layer)
    with pytest.raises(UsageError, match="no weight leads to layer pad"):
        cut(zoo("lenet5"), "pad")


def test_a_net_with_no_hidden_layer_can_be_cut_at_its_answer_alone() -> None:
    net = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(UsageError, match="no hidden layer to cut after; layer=logits works"):
        cut(net)
    assert cut(net, "logits").prefix == ("2.weight", "2.bias")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_and_compiled_nets_are_refused() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3))
    for net in (torch.jit.trace(plain, torch.rand(2, *IMAGE.shape)), nn.Sequential(torch.jit.script(plain))):
        with pytest.raises(UsageError, match=r"from torch\.jit cannot be cut"):
            cut(net)
    compiled: Any = torch.compile(plain, backend="eager")
    with pytest.raises(UsageError, match=r"from torch\.compile cannot be cut.*_orig_mod"):
        cut(compiled)


def test_a_layer_that_does_not_always_run_is_told() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(64, 5), nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x.flatten(1))
            out: Tensor = self.out(self.b(x) if len(x) == 2 else x)
            return out

    net = Sometimes()
    with pytest.raises(UsageError, match="did not run its layer b this time"):
        cut(net, "b").output(net, torch.rand(3, *IMAGE.shape))


@pytest.mark.parametrize(("name", "params"), [("resnet20", {"width": 4}), ("alexnet", {"dense": 32})])
def test_what_is_cut_off_does_not_move(name: str, params: dict[str, Any]) -> None:
    net = Normalised(zoo(name, **params), (0.5,), (0.5,))
    found = cut(net)
    model = Regression(net, found).train()
    names = [name.removeprefix("net.") for name, _ in model.named_parameters()]
    assert tuple(names) == found.prefix
    for weight in net.parameters():
        weight.grad = torch.ones_like(weight)  # as another training may have left them
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=0.1, nesterov=True)
    x = torch.rand(4, *IMAGE.shape)
    target = torch.rand_like(model(x))
    for _ in range(3):
        optimiser.zero_grad(set_to_none=False)
        (model(x) - target).square().mean().backward()
        optimiser.step()
    after = net.state_dict()
    prefix = set(found.prefix)
    assert all(torch.equal(after[name], before[name]) for name in before if name not in prefix)
    assert all(not torch.equal(after[name], before[name]) for name in prefix)


def test_in_training_norms_use_their_statistics_and_dropout_drops() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU(), nn.Flatten())
    net.append(nn.Linear(144, 3))
    model = Regression(net, cut(net, "1")).train()
    x = torch.rand(4, *IMAGE.shape)
    trained = model(x)
    assert net.training
    assert net[2].training
    assert not net[1].training
    assert torch.equal(trained, model.eval()(x))
    dropped = Regression(net, cut(net, "2")).train()
    assert bool((dropped(x) == 0).any())


def test_what_is_tuned_is_tuned_in_the_net() -> None:
    net = zoo("mlp", hidden=(9,))
    model = Regression(net, cut(net))
    assert [name for name, _ in model.named_parameters("all")] == ["all.net.dense1.weight", "all.net.dense1.bias"]
    assert list(model.named_parameters(recurse=False)) == []
    with torch.no_grad():
        next(model.parameters()).zero_()
    assert not net.get_parameter("dense1.weight").any()
    assert set(model.state_dict()) == {f"net.{name}" for name in net.state_dict()}


def test_layers_know_their_parts() -> None:
    layers = layers_of(ModuleTarget(zoo("resnet20", width=4), IMAGE), "auto").each
    assert layers[0].parts == ("conv", "norm", "act")
    assert layers[2].parts == ("block1_1.conv2", "block1_1.norm2")
    assert layers[-2].parts == ("out",)
    assert [layer.parts for layer in layers_of(ModuleTarget(Twice(), IMAGE), "auto").each][:3] == [
        ("first", "act"),
        ("again", "act#2"),
        ("again#2",),
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_net_on_a_device_is_cut_there() -> None:
    net = zoo("resnet20", width=4).cuda()
    found = cut(net)
    out = found.output(net, torch.rand(2, *IMAGE.shape, device="cuda"))
    assert (out.device.type, out.requires_grad) == ("cuda", True)
    assert found == cut(zoo("resnet20", width=4))


def test_last_is_the_layer_before_the_logits() -> None:
    made = cut(
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), "last", InputSpec((4,), (0.0, 1.0), ("a", "b", "c"))
    )
    assert (made.layer, made.units) == ("1", 5)
