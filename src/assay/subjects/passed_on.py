"""A target that stands before another one."""

from contextlib import AbstractContextManager

import torch

from assay.core.cases import InputSpec
from assay.subjects.target import Need, Target


class PassedOn:
    """All that is known of another target; who stands before it says how it is called."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @property
    def spec(self) -> InputSpec:
        return self.target.spec

    @property
    def gives(self) -> frozenset[Need]:
        return self.target.gives

    @property
    def device(self) -> torch.device:
        return self.target.device

    def ready(self) -> AbstractContextManager[object]:
        return self.target.ready()

    def fingerprint(self) -> str:
        return self.target.fingerprint()
