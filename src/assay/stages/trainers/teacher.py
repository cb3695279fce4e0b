"""Self-distillation: a net that learns from its own running average, beside the labels."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.core import passes
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.ranks import Ranks


class Teacher:
    """The running average of a net, which says how sure to be of each class of a clean input.

    Formula: t = (1 − distil) · label + distil · softmax(average(x) / temperature), in the place of the label.
    """

    def __init__(self, net: nn.Module, plan: Plan, ranks: Ranks) -> None:
        if ranks.count > 1 and any(True for _ in net.buffers()):
            raise UsageError(  # each rank's average has statistics of its own rows
                "several workers would each learn from another teacher, since the net has statistics of batches; give "
                "--workers 1, or leave distil out"
            )
        self.net, self.distil, self.temperature = net, plan.distil, plan.temperature
        self.chunks = Chunks(plan.batch, alone=True)

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
