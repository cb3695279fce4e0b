"""Imported before torchvision where its build is not torch's own, as PyPI's is not beside a CPU build of torch.

It then asks for two operators of its own that are not there. Nothing here calls them.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
