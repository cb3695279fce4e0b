"""EfficientNet-Lite0 with the weights of ImageNet, which takes far less work than VGG-19."""

from functools import partial
from pathlib import Path

from torch import nn

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.extractors import Features
from assay.stages.extractors.pretrained import RANDOM, SIDE, seen_by, with_weights
from assay.subjects.bench import Bench
from assay.subjects.zoo.efficientnet import efficientnet_lite0

MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3  # (x - 127) / 128 of values from 0 to 255
CLASSES = 1000


@register("extractor", paper="Tan and Le 2019")
def efficientnet_lite(bench: Bench, *, weights: str = "efficientnet_lite0.npz") -> Features:
    """What EfficientNet-Lite0 pools before its classifier: 1280 numbers of an image of 224×224.

    ``weights`` is a file (.npz, .safetensors, .pth), looked for in $ASSAY_DATA as well, or ``random`` for measuring the
    rate.
    """
    if not weights:
        raise UsageError(f"efficientnet_lite needs weights: a file or {RANDOM}")
    whole = with_weights(partial(efficientnet_lite0, shape=(3, SIDE, SIDE), classes=CLASSES), weights)
    assert isinstance(whole, nn.Sequential)
    told = "random weights" if weights == RANDOM else f"weights {Path(weights).name}"
    return seen_by(bench, whole[:-1], f"pooled features of EfficientNet-Lite0 ({told})", MEAN, STD, "pool")
