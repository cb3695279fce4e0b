"""Self-distillation: a net that learns from its own running average, beside the labels."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.core import passes
from assay.core.chunks import Chunks
from assay.core.modes import eval_mode


class Teacher:
    """The running average of a net, which says how sure to be of each class of a clean input.

    Formula: t = (1 − distil) · label + distil · softmax(average(x) / temperature), in the place of the label.
    """

    def __init__(self, net: nn.Module, distil: float, temperature: float, batch: int) -> None:
        self.net, self.distil, self.temperature = net, distil, temperature
        self.chunks = Chunks(batch, alone=True)

    def soft(self, x: Tensor, y: Tensor, average: dict[str, Tensor]) -> Tensor:
        """The probabilities to answer with, (N, K), where the net's averaged weights are these."""

        def ask(x: Tensor) -> Tensor:
            with torch.no_grad():
                logits: Tensor = functional_call(self.net, average, (x,), tie_weights=False)
            return (logits.float() / self.temperature).softmax(1)

        passes.note(forward=len(x))
        with eval_mode(self.net):
            answers = self.chunks.map(ask, x)
        label = nn.functional.one_hot(y, answers.shape[1]).to(answers.dtype)
        return torch.lerp(label, answers, self.distil)
