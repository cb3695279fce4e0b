"""A target that counts what it is asked."""

from torch import Tensor

from assay.subjects.passed_on import PassedOn
from assay.subjects.target import Target


class Counted(PassedOn):
    """Another target, counting inputs answered (``forward``) and inputs whose gradient was taken (``gradient``)."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.forward = self.gradient = 0

    def __call__(self, x: Tensor) -> Tensor:
        out = self.target(x)
        self.forward += len(x)
        if out.requires_grad:
            out.register_hook(self._back)
        return out

    def _back(self, grad: Tensor) -> None:
        self.gradient += len(grad)
