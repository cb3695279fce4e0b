"""What a step of the lanes brought, before anybody has looked at it: on a GPU it may still be under way."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.transfers import going_down


@dataclass(frozen=True, slots=True)
class Noted:
    """The cases made, whose answers are no numbers among them, the lanes as they go on, and masks over their rows."""

    made: Cases
    broken: Tensor
    lanes: Cases
    _masks: Tensor  # (masks, N), on the CPU once the GPU has come so far
    _ready: torch.cuda.Event | None

    @staticmethod
    def of(made: Cases, broken: Tensor, lanes: Cases, masks: Sequence[Tensor]) -> "Noted":
        """Send for the masks; nothing is waited for."""
        told, ready = going_down(torch.stack(list(masks))), None
        if broken.is_cuda:
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(broken.device))
        return Noted(made, broken, lanes, told, ready)

    def rows(self) -> list[Tensor]:
        """The rows of each mask, on the CPU; here a GPU is waited for, and nowhere else in a step."""
        if self._ready is not None:
            self._ready.synchronize()
        return [mask.nonzero().squeeze(1) for mask in self._masks]
