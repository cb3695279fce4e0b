"""Disagreement with the same net in low precision."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench
from assay.subjects.sources.rounded import rounded


@register("oracle", paper="TensorFuzz 2019", needs=("logit", "train"))
def quantised(bench: Bench, cases: Cases, *, dtype: str = "float16") -> Tensor:
    """Whether the class differs from that of the same net in ``dtype``: float16, bfloat16 or int8 (weights alone).

    An answer in low precision that is not finite, where the net's own is, differs too.
    """
    lower = bench.once(f"in {dtype}", lambda: rounded(bench.target, dtype))
    own = bench.logits(cases)
    other = bench.chunks.map(lambda x: lower(x.to(bench.target.device)), cases.x).to(own.device)
    differ = (own.argmax(1) != other.argmax(1)) | ~other.isfinite().all(1)
    return differ & own.isfinite().all(1)
