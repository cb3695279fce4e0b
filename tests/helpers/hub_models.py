"""Small models and data as the libraries of the hubs write them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

ANIMALS = ("cat", "dog", "owl")


def vit(folder: Path, *, classes: tuple[str, ...] = ANIMALS, seed: int = 0, processor: Any = None) -> Path:
    """A ViT of two blocks for images of 16 × 16, with its image processor."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(seed)
    config = ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        id2label=dict(enumerate(classes)), label2id={name: i for i, name in enumerate(classes)},
    )  # fmt: skip
    net = ViTForImageClassification(config)
    with torch.no_grad():
        net.classifier.weight.mul_(20)  # so that inputs are told apart
    net.save_pretrained(folder)
    (processor or ViTImageProcessor(size={"height": 16, "width": 16})).save_pretrained(folder)
    return folder


def lively(net: Any) -> Any:
    """The net in evaluation mode with statistics of batches it has seen: else random weights answer all the same."""
    torch.manual_seed(1)
    with torch.no_grad():
        net.train()(torch.stack([torch.randn(3, 64, 64) * i for i in range(1, 9)]))
        for _ in range(30):
            net(torch.stack([torch.randn(3, 64, 64) * i for i in range(1, 9)]))
    return net.eval()


def picture(seed: int, height: int = 20, width: int = 30, mode: str = "RGB") -> Image.Image:
    """A smooth image with some noise, different for every seed."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    large = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    noisy = np.clip(large + rng.integers(-8, 9, large.shape), 0, 255).astype(np.uint8)
    return Image.fromarray(noisy).convert(mode)


def animals(count: int = 12, *, first: int = 0, even: bool = False) -> Any:
    """A data set of images of several sizes with three classes."""
    import datasets

    images = [picture(i, 20 if even else 20 + i % 3) for i in range(first, first + count)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(ANIMALS))})
    return datasets.Dataset.from_dict({"image": images, "label": [i % 3 for i in range(count)]}, features=features)


def parquet(table: Any, path: Path) -> bytes:
    """The set as the bytes of a parquet file."""
    table.to_parquet(path)
    return path.read_bytes()
