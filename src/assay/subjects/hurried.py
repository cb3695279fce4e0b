"""A target that answers faster and less exactly, for searching: what is found is judged by the target itself."""

import copy
from contextlib import AbstractContextManager, ExitStack

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from assay.core.modes import eval_mode
from assay.core.precision import half_precision
from assay.subjects.passed_on import PassedOn
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

SHARES = (1, 4, 16)  # of the largest batch: a batch is filled up to the smallest of these that holds it


class Hurried(PassedOn):
    """Another target, whose answers without gradients come in bfloat16 (``amp``), and all by a compiled net
    (``compiled``) that sees batches of few sizes only, filled up with copies of their last input.

    Gradients stay in float32: those of bfloat16 are so coarse that a model may look as if it hid them.
    """

    def __init__(
        self, target: ModuleTarget, *, amp: bool, compiled: bool, rows: int, backend: str = "inductor"
    ) -> None:
        super().__init__(target)
        self.amp, self.compiled, self.rows, self.backend = amp, compiled, rows, backend
        module = copy.deepcopy(target.module)
        # The order of numbers that a GPU's bfloat16 convolutions work in; in float32 it is no faster.
        with eval_mode(module):
            still = module.to(memory_format=torch.channels_last) if amp and _has_images(target) else module  # type: ignore[call-overload]  # torch's stubs
        if compiled:
            still.compile(dynamic=False, backend=backend)
        self._fast = ModuleTarget(still, target.spec, target.device)
        self._fast.answers = target.answers

    def __reduce__(self) -> tuple[object, ...]:
        """To another process as what it is made of: a compiled net cannot travel."""
        return _again, (self.target, self.amp, self.compiled, self.rows, self.backend)

    def ready(self) -> AbstractContextManager[object]:
        both = ExitStack()
        both.enter_context(self.target.ready())
        both.enter_context(self._fast.ready())
        return both

    def __call__(self, x: Tensor) -> Tensor:
        bent = forward_ad.unpack_dual(x).tangent is not None
        sloped = torch.is_grad_enabled() and x.requires_grad
        if bent or (sloped and not self.compiled) or not len(x):
            return self.target(x)
        with half_precision(self.device, asked=self.amp and not sloped):
            return (self._filled(x) if self.compiled else self._fast(x)).float()

    def _filled(self, x: Tensor) -> Tensor:
        """The answers of the compiled net: each size of batch it has not met costs it minutes."""
        n = len(x)
        size = next((self.rows // share for share in reversed(SHARES) if self.rows // share >= n), n)
        more = x.detach()[-1:].expand(size - n, *x.shape[1:])
        return self._fast(torch.cat([x, more]) if len(more) else x)[:n]


def _again(target: ModuleTarget, amp: bool, compiled: bool, rows: int, backend: str) -> Hurried:
    return Hurried(target, amp=amp, compiled=compiled, rows=rows, backend=backend)


def _has_images(target: Target) -> bool:
    return target.spec.kind == "image"


def hurried(target: Target, *, amp: bool, compiled: bool, rows: int) -> Target:
    """The faster target where something makes it so; a model that is no torch module is what it is."""
    if not (amp or compiled) or not isinstance(target, ModuleTarget):
        return target
    return Hurried(target, amp=amp, compiled=compiled, rows=rows)
