"""The generator's nets: forms, and steps that are computed in another way than they are written."""

import pytest
import torch
from torch.nn import functional

from assay.core.errors import UsageError
from assay.stages.aeg.generator import scaled
from assay.stages.aeg.nets import Critic, Doubled, Generator, depth_of, margins


@pytest.mark.parametrize(("side", "depth"), [(8, 1), (11, 1), (12, 2), (16, 2), (28, 3), (32, 3), (64, 4), (224, 4)])
def test_images_are_halved_down_to_about_four_pixels(side: int, depth: int) -> None:
    assert depth_of((1, side, side)) == depth
    assert depth_of((3, side, side + 40)) == depth


@pytest.mark.parametrize("shape", [(64,), (1, 7, 28), (1, 28, 7), (28, 28)])
def test_vectors_and_small_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        UsageError, match=r"sides of 8 pixels or more, and inputs are (vectors of )?" + "×".join(map(str, shape))
    ):
        depth_of(shape)


def test_margins_make_every_halving_whole() -> None:
    assert margins((1, 28, 28)) == (2, 2, 2, 2)
    assert margins((1, 8, 8)) == (0, 0, 0, 0)
    assert margins((3, 9, 12)) == (0, 0, 0, 1)
    for side in range(8, 70):
        left, right, above, below = margins((1, side, side + 3))
        step = 2 ** depth_of((1, side, side + 3))
        assert (side + 3 + left + right) % step == (side + above + below) % step == 0
        assert max(left, right, above, below) < step


def test_borders_are_repeated_and_values_scaled() -> None:
    x = torch.arange(81.0).view(1, 1, 9, 9) / 80 * 255
    made = scaled(x, (1, 9, 9), (0.0, 255.0))
    assert made.shape == (1, 1, 10, 10)
    assert made[0, 0, 0, 0] == -1
    assert made[0, 0, 8, 8] == pytest.approx(1)
    assert torch.equal(made[:, :, 9], made[:, :, 8])
    assert torch.equal(made[:, :, :, 9], made[:, :, :, 8])


def test_doubling_and_convolution_in_one_step_are_the_two_steps() -> None:
    torch.manual_seed(0)
    step = Doubled(3, 5).double()
    torch.nn.init.normal_(step.conv.bias)  # type: ignore[arg-type]  # it has one
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    # A 4×4 convolution that keeps the size adds one pixel before and two behind, as the public code's library does.
    slow = functional.conv2d(
        functional.pad(functional.interpolate(x, scale_factor=2, mode="nearest"), (1, 2, 1, 2)),
        step.conv.weight,
        step.conv.bias,
    )
    assert torch.allclose(step(x), slow, atol=1e-12)


@pytest.mark.parametrize(("channels", "depth", "side"), [(1, 1, 8), (3, 3, 32), (4, 4, 64)])
def test_forms_of_the_nets(channels: int, depth: int, side: int) -> None:
    x = torch.rand(2, channels, side, side)
    made = Generator(channels, depth, 4)(x)
    assert made.shape == x.shape
    assert made.abs().max() <= 1
    assert Critic(channels, depth, 8)(x).shape == (2, 1, side // 2**depth, side // 2**depth)


def test_filters_as_in_the_public_code() -> None:
    """Of 128×128 pixels: 32, 64, 128, 256 down and 128, 64, 32 up; the critic's 64, 128, 256, 512 and 8×8 scores."""
    maker, critic = Generator(3, depth_of((3, 128, 128)), 32), Critic(3, depth_of((3, 128, 128)), 64)
    shapes = {name: tuple(weight.shape) for name, weight in maker.named_parameters() if weight.dim() == 4}
    assert [shape[:2] for name, shape in shapes.items() if name.startswith("down")] == [
        (32, 3),
        (64, 32),
        (128, 64),
        (256, 128),
    ]
    assert [shape[:2] for name, shape in shapes.items() if name.startswith("up")] == [(128, 256), (64, 256), (32, 128)]
    assert shapes["last.conv.weight"] == (3, 64, 4, 4)
    kernels = [tuple(weight.shape) for weight in critic.parameters() if weight.dim() == 4]
    assert kernels == [(64, 3, 4, 4), (128, 64, 4, 4), (256, 128, 4, 4), (512, 256, 4, 4), (1, 512, 4, 4)]
    assert critic(torch.zeros(1, 3, 128, 128)).shape == (1, 1, 8, 8)


def test_rows_do_not_see_each_other() -> None:
    torch.manual_seed(1)
    x, maker, critic = torch.rand(5, 1, 16, 16), Generator(1, 2, 4), Critic(1, 2, 4)
    assert torch.allclose(maker(x)[2:3], maker(x[2:3]), atol=1e-5)
    assert torch.allclose(critic(x)[2:3], critic(x[2:3]), atol=1e-5)


def test_without_the_first_norm_brightness_and_contrast_come_through() -> None:
    """A norm of each image forgets how bright it is and how contrasted: an image and its half are one to the net."""
    x = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    torch.manual_seed(0)
    normed, plain = Generator(1, 2, 4), Generator(1, 2, 4, first_norm=False)
    with torch.no_grad():
        for net in (normed, plain):
            net.down[0][0].bias.zero_()  # type: ignore[index]
        assert torch.allclose(normed(x), normed(x / 2), atol=1e-3)
        assert (plain(x) - plain(x / 2)).abs().max() > 0.05
