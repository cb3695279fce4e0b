"""What a run stood on: versions, machine, device."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("assay", "torch", "numpy", "scipy", "scikit-learn", "kornia", "safetensors", "pillow")

_OF_MODELS = ("timm", "torchvision", "transformers", "datasets")  # told where a model or data of theirs was loaded


def describe() -> dict[str, Any]:
    """Versions and machine, for ``environment.json`` and ``assay env``; names no user, no path, no host."""
    told: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: version_of(name) for name in _PACKAGES},
    }
    told["packages"] |= {name: version_of(name) for name in _OF_MODELS if name in sys.modules}
    torch = sys.modules.get("torch")
    if torch is not None:  # asking costs seconds where torch is not loaded yet
        told["threads"] = torch.get_num_threads()
        told["cuda"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return told


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
