"""VGG-19 with the weights of ImageNet: the extractor of the CAGFuzz paper."""

from pathlib import Path

from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.extractors import Features
from assay.stages.extractors.pretrained import RANDOM, seen_by, with_weights
from assay.subjects.bench import Bench
from assay.subjects.data.archive import cache_folder

URL = "https://download.pytorch.org/models/vgg19-dcbb9e9d.pth"
SHA256 = "dcbb9e9dad569fff7a846263a77324fc34978fea2bfb039c012d710e1776ae44"
IMAGENET = "imagenet"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WIDTHS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
ENDS = {
    "fc1": 2,
    "fc2": 5,
    "fc3": 7,
}  # how much of the classifier is run: each dense layer with its ReLU, the last has none


@register("extractor", paper="Simonyan and Zisserman 2015")
def vgg19(bench: Bench, *, layer: str = "fc2", weights: str = "imagenet") -> Features:
    """A dense layer of VGG-19 (fc1, fc2, fc3): 4096 numbers of an image of 224×224; ImageNet weights are fetched.

    ``weights`` is a file with the names of torchvision, ``imagenet`` for those of torchvision themselves, or ``random``
    for measuring the rate. The paper names Fc7, which is fc2, and once Fc8, which is fc3 and has 1000 numbers.
    """
    if layer not in ENDS:
        raise UsageError(f"vgg19: layer is one of {', '.join(ENDS)}; got {layer!r}")
    if not weights:
        raise UsageError(f"vgg19 needs weights: a file, {IMAGENET} or {RANDOM}")
    net = with_weights(lambda: Vgg19(layer), fetched() if weights == IMAGENET else weights)
    told = {IMAGENET: "ImageNet weights", RANDOM: "random weights"}.get(weights, f"weights {Path(weights).name}")
    return seen_by(bench, net, f"{layer} of VGG-19 ({told})", MEAN, STD, layer)


class Vgg19(nn.Module):
    """VGG-19 as far as a layer; all weights are there, under the names of torchvision."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        depth = 3
        for width, times in WIDTHS:
            for _ in range(times):
                parts += [nn.Conv2d(depth, width, 3, padding=1), nn.ReLU(inplace=True)]
                depth = width
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts)
        dense = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
        self.classifier = nn.Sequential(*dense, nn.Linear(4096, 1000))
        self.end = ENDS[layer]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier[: self.end](self.features(x).flatten(1))
        return out


def fetched() -> Path:
    """The file of torchvision's weights, 575 MB, fetched once."""
    import pooch

    try:
        file = pooch.retrieve(URL, known_hash=f"sha256:{SHA256}", path=cache_folder() / "downloads", progressbar=False)
    except Exception as error:
        raise UsageError(
            f"cannot fetch {URL} ({type(error).__name__}); without network give the file, vgg19(weights=FILE), or use "
            "the extractor reference or efficientnet_lite"
        ) from error
    # pooch puts a digest before the name, and keeps the ending.
    return Path(file)
