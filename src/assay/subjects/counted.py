"""A target that counts what it is asked."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from assay.core.cases import InputSpec
from assay.subjects.target import Need, Target


class Counted:
    """Another target, counting inputs answered (``forward``) and inputs whose gradient was taken (``gradient``)."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.forward = self.gradient = 0

    @property
    def spec(self) -> InputSpec:
        return self.target.spec

    @property
    def gives(self) -> frozenset[Need]:
        return self.target.gives

    @property
    def device(self) -> torch.device:
        return self.target.device

    def __call__(self, x: Tensor) -> Tensor:
        out = self.target(x)
        self.forward += len(x)
        if out.requires_grad:
            out.register_hook(self._back)
        return out

    def _back(self, grad: Tensor) -> None:
        self.gradient += len(grad)

    def ready(self) -> AbstractContextManager[object]:
        return self.target.ready()

    def fingerprint(self) -> str:
        return self.target.fingerprint()
