"""What the benchmarks of scale and of cost work on: as many images as they want, and nets of every size."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.engines.train import train
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import new_net

SETTLING = 64  # images that batch normalisations of a random net are fitted to
CHUNK = 256


def images(name: str, count: int) -> Data:
    """So many images: those of ``digits`` over and over, or random ones, ``random(3x32x32)`` or ``random(…, 1000)``.

    A seed draws by its place, so that the same image is worked otherwise each time. Random images and random labels
    serve where only the cost is looked at, which does not depend on what they show.
    """
    if not name.startswith("random("):
        data = load_data(name, part="train")
        rows = torch.arange(count) % len(data)
        return replace(data, cases=Cases.of(data.cases.x[rows], data.cases.y[rows]), source="")
    size, _, classes = name.removeprefix("random(").removesuffix(")").partition(",")
    shape, k = tuple(int(n) for n in size.split("x")), int(classes or 10)
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(count, *shape, generator=rng), torch.randint(k, (count,), generator=rng)
    return Data(name, Cases.of(x, y), InputSpec(shape, (0.0, 1.0), tuple(map(str, range(k)))))


def trained_lenet(folder: Path, seed: int = 0) -> str:
    """A LeNet-5 that knows its digits."""
    out = folder / f"lenet5-{seed}.safetensors"
    train("lenet5", "digits", out, params={"epochs": 20, "batch": 32}, seed=seed, device="cpu")
    return f"lenet5@{out}"


def untrained(name: str, data: Data, device: str) -> nn.Module:
    """A net with random weights whose layers answer on the scale they have in a trained one."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = resnet50(data.spec) if name == "resnet50" else new_net(name, data.spec, {})
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # the plain mean of what it sees
    with torch.no_grad():
        net.train()(data.cases.x[:SETTLING])
    return net.eval().to(device)


def labelled_by(net: nn.Module, data: Data) -> Data:
    """The data with the net's own answers as labels: to it every image is one that it gets right."""
    device = next(net.parameters()).device
    with torch.no_grad():
        y = torch.cat([net(part.to(device)).argmax(1).cpu() for part in data.cases.x.split(CHUNK)])
    return replace(data, name=f"{data.name}, labelled by the net", cases=Cases.of(data.cases.x, y))


class Bottleneck(nn.Module):
    """Convolutions of 1×1, 3×3 and 1×1 about a shortcut; the middle one is a quarter as wide as what comes out."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        wide = 4 * width
        sizes = ((before, width, 1, 1), (width, width, 3, stride), (width, wide, 1, 1))
        parts = [layer for size in sizes for layer in (*_normal(*size), nn.ReLU())][:-1]
        self.body = nn.Sequential(*parts)
        alike = stride == 1 and before == wide
        self.shortcut = nn.Identity() if alike else nn.Sequential(*_normal(before, wide, 1, stride))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.body(x) + self.shortcut(x))
        return out


def resnet50(spec: InputSpec) -> nn.Module:
    """ResNet-50 as for ImageNet, with the stride in the 3×3 convolutions (He et al. 2016): 25.6 million weights."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["stem"] = nn.Sequential(*_normal(spec.shape[0], 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    parts["blocks"] = nn.Sequential(*_blocks())
    parts["out"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, len(spec.classes)))
    return nn.Sequential(parts)


def _blocks() -> Iterator[nn.Module]:
    before = 64
    for stage, times in enumerate((3, 4, 6, 3)):
        for i in range(times):
            yield Bottleneck(before, 64 << stage, 2 if stage and not i else 1)
            before = 256 << stage


def _normal(before: int, after: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after)
