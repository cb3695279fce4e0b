"""A target: anything that answers a batch of inputs with a row of class scores each."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from assay.core.cases import InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.subjects.instead import would_work

Need = Literal["label", "prob", "logit", "grad", "activation", "train"]
NEEDS: tuple[Need, ...] = get_args(Need)

START = "start"  # no need of the target: unlabelled inputs to begin with, which engines give as `bench.training`


@runtime_checkable
class Target(Protocol):
    """The model under test, white box or black box; ``gives`` says which."""

    @property
    def spec(self) -> InputSpec: ...

    @property
    def gives(self) -> frozenset[Need]: ...

    @property
    def device(self) -> torch.device: ...

    def __call__(self, x: Tensor) -> Tensor:
        """Scores (N, K) of inputs (N, *shape) in the target's bounds."""
        ...

    def ready(self) -> AbstractContextManager[object]:
        """Set up once for many calls; single calls outside it are right too, only slower."""
        ...

    def fingerprint(self) -> str:
        """A digest of what it computes, so that a run knows its target again."""
        ...


def require(
    target: Target, needs: Iterable[str], what: str, also: Callable[[frozenset[Need]], str] = lambda _: ""
) -> None:
    """Refuse a stage before the run when the target cannot give what it needs, and name what would work.

    ``what`` begins with its kind: ``attack 'pgd'``. ``also`` tells of more than stages: suites, recipes.
    """
    missing = sorted(set(needs) - set(target.gives))
    if not missing:
        return
    works = would_work(what.partition(" ")[0], {*target.gives, START})
    hints = [f"would work: {', '.join(works)}" if works else "", also(target.gives)]
    inner = getattr(target, "target", target)
    if str(getattr(inner, "name", "")).lower().endswith(".onnx"):
        hints.append("--white-box turns the file into a torch module, which gives all")
    raise UsageError(
        "; ".join(
            [
                f"{what} needs {', '.join(missing)}, this target gives {', '.join(sorted(target.gives))} only",
                *(hint for hint in hints if hint),
            ]
        )
    )


def require_gradients(target: Target, x: Tensor, what: str) -> None:
    """Refuse before the run what climbs gradients on a model whose answers carry none."""
    with torch.enable_grad():
        out = target(x[:1].detach().to(target.device).requires_grad_())
    if not out.requires_grad:
        raise UsageError(
            f"{what} needs gradients, and this model's answers carry none (is it under torch.no_grad, or detached?); "
            "recipe noise and black-box attacks do without"
        )


def answer(target: Target, x: Tensor, chunks: Chunks) -> Tensor:
    """Scores of all rows without gradients, in chunks that fit; inputs may lie on another device."""

    def ask(block: Tensor) -> Tensor:
        with torch.no_grad():
            return target(block.to(target.device))

    return chunks.map(ask, x)


def confidence(target: Target, scores: Tensor) -> Tensor:
    """The probability of the class with the highest score to a thousandth, (N,); NaN where none is told.

    Finer digits would depend on the batch that a case was asked in, and stored cases must not.
    """
    if not {"prob", "logit"} & target.gives or not scores.shape[1]:
        return scores.new_full((len(scores),), torch.nan)
    # Some nets end in a softmax: what are probabilities already is taken as such.
    sums = ((scores.sum(1) - 1).abs() < 1e-4) & (scores >= 0).all(1)
    best = torch.where(sums, scores.amax(1), scores.softmax(1).amax(1))
    return torch.where(scores.isfinite().all(1), (best * 1000).round() / 1000, torch.nan)
