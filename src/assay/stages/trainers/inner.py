"""Whom the search inside a training asks: the net as it is now, faster where batch normalisations can be folded."""

import logging

import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.subjects.replayed import Replayed, replayable
from assay.subjects.sources.folded import Folding, alike, folding_of
from assay.subjects.sources.module import ModuleTarget

log = logging.getLogger("assay")


class Inner:
    """Targets for the searches of one training.

    A search takes many passes of each step; half of their time, in bfloat16 on a GPU, is batch normalisation. So they
    are made by a copy without, which follows the net; and a GPU replays them. The copy is compared with the net now and
    then, ever more rarely, because a net just made has statistics that would hide a fold gone wrong.
    """

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self.net: nn.Module | None = None
        self.folding: Folding | None = None
        self.asked = 0
        self._searched: ModuleTarget | None = None

    def of(self, net: nn.Module, x: Tensor) -> ModuleTarget:
        """The net as a target, for inputs like these."""
        if net is not self.net or self._searched is None:
            self.net, self.folding = net, folding_of(net)
            self._searched = self._target(net if self.folding is None else self.folding.module)
        if self.folding is None:
            return self._searched
        self.folding.follow()
        self.asked += 1
        now = self.asked & (self.asked - 1) == 0  # the first, second, fourth, … time
        if now and not alike(ModuleTarget(net, self.spec), self._searched, x):
            log.debug("the net without its batch normalisations answers otherwise; it is searched as it is")
            self.folding, self._searched = None, self._target(net)
        return self._searched

    def _target(self, net: nn.Module) -> ModuleTarget:
        device = next((p.device for p in net.parameters()), torch.device("cpu"))
        again = device.type == "cuda" and replayable(net)
        return ModuleTarget(Replayed(net) if again else net, self.spec, device)
