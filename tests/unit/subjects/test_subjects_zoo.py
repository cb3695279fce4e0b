"""Every registered net, over the shapes data come in."""

import pytest
import torch
from torch import nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.registry import names
from assay.subjects.sources.load import new_net
from assay.subjects.zoo.parts import ACTIVATIONS, PadTo

NETS = names("model")
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 7, 9)]


def build(text: str, shape: tuple[int, ...], classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return new_net(text, InputSpec(shape, (0.0, 1.0), tuple(map(str, range(classes)))), {})


def outline(text: str, shape: tuple[int, ...]) -> nn.Module:
    """A net without numbers in its weights, which is all that counting takes."""
    with torch.device("meta"):
        return build(text, shape)


def count(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def widths(net: nn.Module) -> tuple[list[int], list[int]]:
    """Filters of each convolution and units of each dense layer."""
    convolutions = [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)]
    return convolutions, [m.out_features for m in net.modules() if isinstance(m, nn.Linear)]


def test_the_zoo_is_complete() -> None:
    wanted = {"alexnet", "lenet1", "lenet4", "lenet5", "mlp", "resnet18", "resnet20", "vgg16", "vgg19"}
    assert wanted <= set(NETS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NETS)
def test_every_net_answers_and_learns(name: str, shape: tuple[int, ...]) -> None:
    net = build(name, shape, classes=7)
    x = torch.rand(2, *shape, requires_grad=True)
    logits = net(x)
    assert logits.shape == (2, 7)
    assert bool(logits.isfinite().all())
    logits.logsumexp(1).sum().backward()
    assert x.grad is not None
    assert all(weight.grad is not None and bool(weight.grad.isfinite().all()) for weight in net.parameters())
    net.eval()
    with torch.no_grad():  # in evaluation mode a row's answer does not depend on its neighbours
        assert torch.allclose(net(x)[1:], net(x[1:]), atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_a_new_net_comes_in_training_mode(name: str) -> None:
    assert all(module.training for module in outline(name, (1, 8, 8)).modules())


@pytest.mark.parametrize("name", [name for name in NETS if name != "mlp"])
@pytest.mark.parametrize("shape", [(20,), (8, 8), (1, 1, 8, 8)])
def test_nets_of_convolutions_take_images_only(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        UsageError, match=r"takes images \(channels, height, width\), got shape .*; try the model 'mlp'"
    ):
        build(name, shape)


def test_mlp_takes_any_shape() -> None:
    net = build("mlp(hidden=[5, 4])", (20,), classes=3)
    assert net(torch.rand(2, 20)).shape == (2, 3)
    assert widths(net) == ([], [5, 4, 3])
    assert widths(outline("mlp", (3, 7, 9)))[1] == [128, 64, 10]
    assert count(outline("mlp", (20,))) == 20 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10


@pytest.mark.parametrize(
    ("name", "convolutions", "dense"),
    [("lenet1", [4, 12], [10]), ("lenet4", [6, 16], [84, 10]), ("lenet5", [6, 16], [120, 84, 10])],
)
def test_lenets_have_the_widths_of_the_papers(name: str, convolutions: list[int], dense: list[int]) -> None:
    net = build(name, (1, 28, 28))
    assert widths(net) == (convolutions, dense)
    assert {m.kernel_size for m in net.modules() if isinstance(m, nn.Conv2d)} == {(5, 5)}


def test_lenet_padding_sets_the_size_of_the_maps() -> None:
    same, valid = build("lenet5(padding=same)", (1, 28, 28)), build("lenet5(padding=valid)", (1, 28, 28))
    assert next(m.in_features for m in same.modules() if isinstance(m, nn.Linear)) == 16 * 7 * 7
    assert next(m.in_features for m in valid.modules() if isinstance(m, nn.Linear)) == 16 * 4 * 4
    with pytest.raises(UsageError, match="padding must be 'same' or 'valid', got 'full'"):
        build("lenet5(padding=full)", (1, 28, 28))


@pytest.mark.parametrize(
    ("name", "convolutions"),
    [
        ("vgg16", [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6),
        ("vgg19", [64] * 2 + [128] * 2 + [256] * 4 + [512] * 8),
        ("alexnet", [64, 192, 384, 256, 256]),
    ],
)
def test_deep_nets_have_their_layers(name: str, convolutions: list[int]) -> None:
    assert widths(outline(name, (3, 32, 32)))[0] == convolutions


def test_residual_nets_have_their_published_sizes() -> None:
    assert 0.265e6 < count(outline("resnet20", (3, 32, 32))) < 0.28e6
    assert 11.1e6 < count(outline("resnet18", (3, 32, 32))) < 11.25e6
    assert len(widths(outline("resnet20", (3, 32, 32)))[0]) == 19 + 2  # and the two 1×1 shortcuts


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_activations_by_name(activation: str) -> None:
    net = build(f"lenet1(activation={activation})", (1, 8, 8))
    assert sum(isinstance(m, type(ACTIVATIONS[activation]())) for m in net.modules()) == 2


def test_unknown_activation_and_parameter_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown activation 'rely'; did you mean 'relu'\?"):
        build("lenet5(activation=rely)", (1, 8, 8))
    with pytest.raises(UsageError, match=r"model 'lenet5' has no parameter 'activaton'; did you mean 'activation'\?"):
        build("lenet5(activaton=relu)", (1, 8, 8))
    with pytest.raises(UsageError, match=r"unknown model 'lenet6'; did you mean 'lenet5'\?"):
        build("lenet6", (1, 8, 8))


def test_padding_centres_small_images_and_leaves_large_ones() -> None:
    pad = PadTo(4)
    small = torch.ones(1, 1, 2, 3)
    assert pad(small).shape == (1, 1, 4, 4)
    assert float(pad(small).sum()) == 6
    assert torch.equal(pad(small)[:, :, 1:3, :3], small)
    large = torch.rand(1, 1, 5, 4)
    assert pad(large) is large
