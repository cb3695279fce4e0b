"""The CycleGAN in training: generators, critics, the fakes that are shown again, and snapshots of the generators."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils import parameters_to_vector

from assay.stages.aeg.making import Making
from assay.stages.aeg.nets import Critic, Generator, depth_of


class CycleGan(nn.Module):
    """Generators ``there`` (P, from X to Y) and ``back`` (Q), critics of both domains.

    Its state is all that the next step depends on: fakes and snapshots are buffers, so that a training that was stopped
    goes on where it was. ``size`` is height and width of the padded images.
    """

    kept_there: Tensor
    kept_back: Tensor
    filled: Tensor
    epochs: Tensor

    def __init__(self, shape: tuple[int, ...], size: tuple[int, int], making: Making) -> None:
        super().__init__()
        self.making = making
        channels, depth = shape[0], depth_of(shape)
        self.there, self.back = (Generator(channels, depth, making.width, making.first_norm) for _ in range(2))
        self.of_x, self.of_y = (Critic(channels, depth, 2 * making.width) for _ in range(2))
        count = parameters_to_vector(self.there.parameters()).numel()
        for name in ("kept_there", "kept_back"):
            self.register_buffer(name, torch.zeros(making.snapshots, count))
        for name in ("fakes_x", "fakes_y"):
            self.register_buffer(name, torch.zeros(making.buffer, channels, *size))
        for name in ("filled", "epochs"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def take_snapshot(self) -> None:
        """Keep the generators as they are now; the newest comes first, the oldest goes."""
        for name, net in (("kept_there", self.there), ("kept_back", self.back)):
            kept, now = getattr(self, name), parameters_to_vector(net.parameters()).detach()
            kept.copy_(torch.cat((now[None], kept[:-1])))
        self.epochs.add_(1)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The losses of all four nets for images (N, C, H, W) in [-1, 1] of either domain, their sum.

        Public code: a step of each critic, then one of both generators. Here: one step of all, because each loss below
        reaches the weights of its own nets only, so that one pass back gives every weight its own gradient; critics
        judge fakes that are cut off from the generators, generators see critics whose weights are cut off.
        """
        how, n = self.making, len(x)
        # Instance normalisation keeps rows apart, so that two passes in one are the same two passes.
        from_x = self.there(torch.cat((x, y)) if how.identity else x)
        from_y = self.back(torch.cat((y, x)) if how.identity else y)
        fake_y, fake_x = from_x[:n], from_y[:n]
        total: Tensor = how.cycle * ((self.back(fake_y) - x).abs().mean() + (self.there(fake_x) - y).abs().mean())
        if how.identity:
            total = total + how.identity * ((from_x[n:] - y).abs().mean() + (from_y[n:] - x).abs().mean())
        shown = self._shown_again(fake_x.detach(), fake_y.detach())
        for critic, real, fake, old in ((self.of_x, x, fake_x, shown[0]), (self.of_y, y, fake_y, shown[1])):
            total = total + self._far(_frozen(critic, fake), 1.0)
            scores = critic(torch.cat((real, old)))
            total = total + 0.5 * (self._far(scores[:n], 1.0) + self._far(scores[n:], 0.0))
        return total

    def _far(self, scores: Tensor, wanted: float) -> Tensor:
        """How far scores of patches are from what is wanted: 1 for real, 0 for fake.

        With ``log`` it is the paper's loss for critics. Paper: generators make log(1 − D) small. Here: they make log D
        large, which has the same fixed point and a gradient where the critic is sure (Goodfellow et al. 2014).
        """
        if self.making.loss == "log":
            return binary_cross_entropy_with_logits(scores, torch.full_like(scores, wanted))
        return (scores - wanted).square().mean()

    @torch.no_grad()
    def _shown_again(self, fake_x: Tensor, fake_y: Tensor) -> tuple[Tensor, Tensor]:
        """Fakes for the critics: half of them older ones, for which the new ones are kept (Shrivastava et al. 2017)."""
        most, filled = self.making.buffer, int(self.filled)
        n = len(fake_x)
        new = min(n, most - filled)
        places = torch.randperm(filled)[: n - new].to(fake_x.device)
        old = torch.arange(new, new + len(places), device=fake_x.device)
        swapped = (torch.rand(len(places)) < 0.5).to(fake_x.device)
        places, old = places[swapped], old[swapped]
        shown = []
        for name, fake in (("fakes_x", fake_x), ("fakes_y", fake_y)):
            kept, mixed = getattr(self, name), fake.clone()
            mixed[old] = kept[places]
            kept[places] = fake[old]
            kept[filled : filled + new] = fake[:new]
            shown.append(mixed)
        self.filled.add_(new)
        return shown[0], shown[1]


def _frozen(critic: Critic, images: Tensor) -> Tensor:
    """The critic's scores, through which images learn and its weights do not."""
    weights = {name: weight.detach() for name, weight in critic.named_parameters()}
    return cast(Tensor, functional_call(critic, weights, (images,)))
