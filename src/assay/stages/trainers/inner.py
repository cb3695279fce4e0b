"""Whom the search inside a training asks: the net as it is now, faster where batch normalisations can be folded."""

import logging

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound
from assay.stages.trainers.recorded import Recorded
from assay.subjects.replayed import Replayed, replayable
from assay.subjects.sources.folded import Folding, alike, folding_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

log = logging.getLogger("assay")


class Inner:
    """Targets for the searches of one training.

    A search takes many passes of each step; 40 % of their time, in bfloat16 on a GPU, is batch normalisation. So they
    are made by a copy without, which follows the net; and a GPU replays them. The copy is compared with the net now and
    then, ever more rarely, because a net just made has statistics that would hide a fold gone wrong.
    """

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self.folding: Folding | None = None
        self.asked, self.trusted = 0, True
        self._net: nn.Module | None = None
        self._here: Stream | None = None
        self._itself: ModuleTarget | None = None
        self._faster: ModuleTarget | None = None
        self._recorded = Recorded()

    def of(self, net: nn.Module, x: Tensor, here: Stream) -> ModuleTarget:
        """The net as a target, for inputs like these; ``here`` is where in the training it is asked.

        Comparisons count from where that begins, an epoch say, and so does what comes of them: a training that goes on
        from there does the same.
        """
        if net is not self._net or self._itself is None:
            self._net, self.folding, self._recorded = net, folding_of(net), Recorded()
            self._itself = self._target(net)
            self._faster = None if self.folding is None else self._target(self.folding.module)
        if self.folding is None or self._faster is None:
            return self._itself
        self.asked, self.trusted = (self.asked + 1, self.trusted) if here == self._here else (1, True)
        self._here = here
        if not self.trusted:
            return self._itself
        self.folding.follow()
        now = self.asked & (self.asked - 1) == 0  # the first, second, fourth, … time
        if now and not alike(ModuleTarget(net, self.spec), self._faster, x):
            log.debug("the net without its batch normalisations answers otherwise; it is searched as it is")
            self.trusted = False
            return self._itself
        return self._faster

    def made(self, search: Bound, target: Target, x: Tensor, aims: Tensor, rng: Rows) -> Tensor:
        """What a search makes of a batch against a target that ``of`` gave."""
        assert isinstance(target, ModuleTarget)
        return self._recorded(search, target, x, aims, rng.key)

    def _target(self, net: nn.Module) -> ModuleTarget:
        device = next((p.device for p in net.parameters()), torch.device("cpu"))
        again = device.type == "cuda" and replayable(net)
        return ModuleTarget(Replayed(net) if again else net, self.spec, device)
