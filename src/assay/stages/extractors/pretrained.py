"""Nets trained on ImageNet: where their weights are, and how any image becomes an input of theirs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.errors import UsageError
from assay.core.images import unit_range
from assay.core.randomness import Stream
from assay.stages.extractors import Features, digest_of, place_of
from assay.subjects.bench import Bench
from assay.subjects.data.archive import cache_folder, read_npz
from assay.subjects.sources import checkpoint

SIDE = 224
RANDOM = "random"  # weights for measuring how fast a net is, which is all they are good for
# Images in the net at once; VGG-19 holds 26 MB for each after its first convolutions.
ROWS = {"cuda": 256}
FEW_ROWS = 16


def with_weights(build: Callable[[], nn.Module], weights: Path | str) -> nn.Module:
    """The net with the weights of a file, or with random ones of a fixed seed; to be looked at only."""
    if weights == RANDOM:
        with torch.random.fork_rng([]):
            torch.manual_seed(Stream(0, ("pretrained", RANDOM)).generator().initial_seed())
            return _drawn(build()).eval().requires_grad_(False)
    path = found(str(weights))
    with torch.device("meta"):  # no time is spent on numbers that the file replaces
        net = build()
    net.load_state_dict(checkpoint.fitted(net, _read(path), path), assign=True)
    return net.eval().requires_grad_(False)


def _drawn(net: nn.Module) -> nn.Module:
    """The net with weights as large as lets a signal through: by torch's own a deep net gives the same for all."""
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            nn.init.kaiming_normal_(weight)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
    return net


def found(name: str) -> Path:
    """The file of that path, or of that name among the data."""
    given = os.environ.get("ASSAY_DATA")
    folders = [Path(), *([Path(given)] if given else []), cache_folder()]
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        places = ", ".join(str(folder) for folder in folders[1:])
        raise UsageError(f"no weights {name} here or in {places}; give their path: weights=FILE")
    return path


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".npz":
        return checkpoint.read(path)[0]
    return {name: torch.as_tensor(array) for name, array in read_npz(path).items()}


def seen_by(
    bench: Bench, net: nn.Module, name: str, mean: Sequence[float], std: Sequence[float], layer: str
) -> Features:
    """What the net gives for the target's inputs as images of 224×224, grey ones repeated over the channels."""
    shape, bounds, place = bench.target.spec.shape, bench.target.spec.bounds, place_of(bench)
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UsageError(f"{name} takes grey or colour images, and these inputs have the shape {shape}; use reference")
    # Channels last: of EfficientNet-Lite0 on a CPU 36 images a second, else 11.
    net.to(place).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # which torch's stub lacks
    shift, scale = (torch.tensor(values, device=place).view(1, 3, 1, 1) for values in (mean, std))
    rows = ROWS.get(place.type, FEW_ROWS)

    def work(x: Tensor) -> Tensor:
        images = (image(part.to(place), bounds) for part in x.split(rows))
        parts = [net(((i - shift) / scale).contiguous(memory_format=torch.channels_last)) for i in images]
        return torch.cat(parts)

    return Features(name, digest_of(f"{name} {layer} {mean} {std}", net), work)


def image(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Inputs as colour images of 224×224 in [0, 1], resized bilinearly."""
    x = unit_range(x, bounds).expand(-1, 3, -1, -1)
    if x.shape[-2:] == (SIDE, SIDE):
        return x
    # Antialiased only where an image shrinks: where it grows the result is the same, and takes longer.
    return F.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=max(x.shape[-2:]) > SIDE)
