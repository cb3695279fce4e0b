"""A target that counts what it is asked."""

from torch import Tensor

from assay.subjects.hurried import Hurried
from assay.subjects.passed_on import PassedOn
from assay.subjects.target import Target


class Counted(PassedOn):
    """Another target, counting inputs answered (``forward``) and inputs whose gradient was taken (``gradient``).

    What it counts, ``also`` counts too.
    """

    def __init__(self, target: Target, also: "Counted | None" = None) -> None:
        super().__init__(target)
        self.also = also
        self.forward = self.gradient = 0

    def __call__(self, x: Tensor) -> Tensor:
        out = self.target(x)
        self.forward += len(x)
        if self.also is not None:
            self.also.forward += len(x)
        if out.requires_grad:
            out.register_hook(self._back)
        return out

    def without_hurry(self) -> "Counted | None":
        """The target as it is, counted here too; None where it is in no hurry."""
        return Counted(self.target.target, self) if isinstance(self.target, Hurried) else None

    def _back(self, grad: Tensor) -> None:
        self.gradient += len(grad)
        if self.also is not None:
            self.also.gradient += len(grad)
