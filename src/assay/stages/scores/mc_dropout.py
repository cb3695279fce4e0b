"""Monte Carlo dropout: how often a net with parts of it left out changes its mind."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench
from assay.subjects.sources.load import module_of

_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.FeatureAlphaDropout)  # they drop whole channels
_ALPHA = (nn.AlphaDropout, nn.FeatureAlphaDropout)
_FLOOR = -1.7580993408473766  # what SELU tends to: what alpha dropout puts in place of what it drops


@register("score", paper="Gal and Ghahramani 2016", needs=("activation",))
def mc_dropout(bench: Bench, cases: Cases, *, passes: int = 200, seed: int = 0) -> Tensor:
    """The variation ratio over passes with dropout: one minus the share of the class that most of them answer.

    Only the dropout layers are random; the rest of the net, batch normalisation too, is as in any evaluation.

    Formula: 1 − (most frequent class's votes) / passes.
    """
    if passes < 1:
        raise UsageError(f"mc_dropout: passes must be at least 1, got {passes}")
    net = module_of(bench.target)
    layers = {name: m for name, m in net.named_modules() if isinstance(m, _DropoutNd) and m.p > 0}
    if not layers:
        raise UsageError("mc_dropout needs a net with dropout layers (torch.nn.Dropout and its kin), this one has none")
    stream = Stream(seed, ("mc_dropout",))

    def ratio(x: Tensor) -> Tensor:
        x = x.detach().to(bench.target.device)
        votes = x.new_zeros(len(x), len(bench.target.spec.classes))
        for number in range(passes):
            with torch.no_grad(), _dropping(layers, stream.at(number)):
                answers = bench.target(x).argmax(1, keepdim=True)
            votes.scatter_add_(1, answers, votes.new_ones(answers.shape))
        return 1 - votes.amax(1) / passes

    with bench.target.ready():
        return bench.chunks.map(ratio, cases.x)


@contextmanager
def _dropping(layers: dict[str, _DropoutNd], stream: Stream) -> Iterator[None]:
    """Dropout in these layers of a net in evaluation mode, by hooks, so that nothing of the net is changed."""
    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_hook(_hook(layer, stream.at(name))).remove)
        yield


def _hook(layer: _DropoutNd, stream: Stream) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    calls = 0

    def drop(_module: nn.Module, _given: tuple[Tensor, ...], taken: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return _dropped(layer, taken, stream.at(calls))

    return drop


def _dropped(layer: _DropoutNd, x: Tensor, stream: Stream) -> Tensor:
    """What the layer would make of ``x`` (N, …) in training.

    Paper: every input of every pass has a mask of its own. Here: all inputs of a pass share one, as if one thinned net
    answered them, because a score must depend neither on how cases are put into chunks nor on their neighbours. For
    each input alone the distribution is the same.
    """
    p = layer.p
    wide = isinstance(layer, _CHANNELS)
    shape = (1, *x.shape[1:2], *([1] * (x.dim() - 2))) if wide else (1, *x.shape[1:])
    kept = (torch.rand(shape, generator=stream.generator()) >= p).to(x.device, x.dtype)
    if isinstance(layer, _ALPHA):
        scale = 1 / math.sqrt((1 - p) * (1 + p * _FLOOR**2)) if p < 1 else 0.0
        return scale * (x * kept + _FLOOR * (1 - kept)) - scale * p * _FLOOR
    return x * kept / (1 - p) if p < 1 else torch.zeros_like(x)
