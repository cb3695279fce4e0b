"""A target that answers faster and less exactly, for searching: what is found is judged by the target itself."""

import copy
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from assay.core.modes import eval_mode
from assay.core.precision import half_precision
from assay.core.randomness import Rows
from assay.subjects.ordered import can_be_reordered, gains_on_cpu, reorder
from assay.subjects.passed_on import PassedOn
from assay.subjects.replayed import Replayed, replayable
from assay.subjects.sources.folded import SHOWN, folded, normalised_by_batch
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

SHARES = (1, 4, 16)  # of the largest batch: a batch is filled up to the smallest of these that holds it


class Hurried(PassedOn):
    """Another target, by a copy of its net whose batch normalisations are folded into the layers before them, and
    whose weights lie in the order that convolutions are fast in.

    Answers without gradients come in bfloat16 (``amp``), and all by a compiled net (``compiled``) that sees batches of
    few sizes only, filled up with copies of their last input. With ``replay`` a GPU replays the passes of small
    batches. Gradients stay in float32: those of bfloat16 are so coarse that a model may look as if it hid them.
    """

    def __init__(
        self,
        target: ModuleTarget,
        *,
        amp: bool,
        compiled: bool,
        rows: int,
        fold: bool = True,
        replay: bool = False,
        backend: str = "inductor",
    ) -> None:
        super().__init__(target)
        self.amp, self.compiled, self.rows, self.fold, self.backend = amp, compiled, rows, fold, backend
        self._fast = folded(target, _sample(target)) if fold else target
        self.folds = self._fast is not target
        graphs = replay and not compiled and target.device.type == "cuda"
        self.replays = graphs and replayable(self._fast.module)
        self.orders = fold and _gains_by_order(target, amp, compiled)
        if not (amp or compiled or self.folds or self.orders or self.replays):
            return  # nothing is gained, and not every net can be copied
        if not self.folds:
            try:
                self._fast = ModuleTarget(copy.deepcopy(target.module), target.spec, target.device)
            except Exception:  # what it holds besides weights may say no: a lock, a file
                if amp or compiled or self.replays:
                    raise  # this was asked for; another order was not
                self.orders = False
                return
            self._fast.answers = target.answers
        with eval_mode(self._fast.module) as module:
            # The order of numbers that a GPU's shorter convolutions, bfloat16 and TF32, work in.
            if self.orders or ((amp or target.device.type == "cuda") and can_be_reordered(target.module)):
                reorder(module)
        if self.replays:
            self._fast.module = Replayed(self._fast.module)
        if compiled:
            self._fast.module.compile(dynamic=False, backend=backend)

    @property
    def gains(self) -> bool:
        """Whether it is any faster than the target."""
        return self._fast is not self.target

    def for_gradients(self) -> "Hurried":
        """The same for a search that takes gradients: in between, it believes what it is told, so in whole numbers."""
        whole = Hurried.__new__(Hurried)  # not by copy.copy, which would make the net anew as for a journey
        whole.__dict__ |= self.__dict__ | {"amp": False}
        return whole

    def __reduce__(self) -> tuple[object, ...]:
        """To another process as what it is made of: a compiled net cannot travel."""
        how = {"amp": self.amp, "compiled": self.compiled, "rows": self.rows, "backend": self.backend}
        return _again, (self.target, {**how, "fold": self.fold, "replay": self.replays})

    def ready(self) -> AbstractContextManager[object]:
        both = ExitStack()
        both.enter_context(self.target.ready())
        both.enter_context(self._fast.ready())
        return both

    def __call__(self, x: Tensor) -> Tensor:
        bent = forward_ad.unpack_dual(x).tangent is not None
        sloped = torch.is_grad_enabled() and x.requires_grad
        if bent or not len(x) or (sloped and not (self.compiled or self.folds or self.orders or self.replays)):
            return self.target(x)
        with half_precision(self.device, asked=self.amp and not sloped):
            return self._filled(x) if self.compiled else self._fast(x)

    def _filled(self, x: Tensor) -> Tensor:
        """The answers of the compiled net: each size of batch it has not met costs it minutes."""
        n = len(x)
        size = next((self.rows // share for share in reversed(SHARES) if self.rows // share >= n), n)
        more = x.detach()[-1:].expand(size - n, *x.shape[1:])
        return self._fast(torch.cat([x, more]) if len(more) else x)[:n]


def _again(target: ModuleTarget, how: dict[str, Any]) -> Hurried:
    return Hurried(target, **how)


def _sample(target: Target) -> Tensor:
    """Inputs to compare two nets on, anywhere in the bounds."""
    return Rows(torch.arange(SHOWN)).uniform(target.spec.shape, *target.spec.bounds)


def _gains_by_order(target: ModuleTarget, amp: bool, compiled: bool) -> bool:
    """Whether another order alone is worth a copy: to convolutions of a CPU in float32 it is."""
    return target.device.type == "cpu" and not (amp or compiled) and gains_on_cpu(target.module)


def hurried(target: Target, *, amp: bool, compiled: bool, rows: int, fold: bool = True, replay: bool = False) -> Target:
    """The faster target where something makes it so; a model that is no torch module is what it is.

    Without ``fold`` its net is taken as it is; ``replay`` is for those who take no second derivatives.
    """
    if not isinstance(target, ModuleTarget):
        return target
    graphs = replay and target.device.type == "cuda"
    other = fold and (normalised_by_batch(target.module) or _gains_by_order(target, amp, compiled))
    if not (amp or compiled or graphs or other):
        return target
    made = Hurried(target, amp=amp, compiled=compiled, rows=rows, fold=fold, replay=graphs)
    return made if made.gains else target
