"""Coverage-additional: each case is the one that adds most to those before it."""

import heapq

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.coverage import Coverage
from assay.stages.selectors.covering import begun, seen_by
from assay.stages.selectors.ctm import alone
from assay.stages.selectors.ranking import ranked
from assay.subjects.bench import Bench
from assay.subjects.observer import Seen

_MOST = 256  # cases whose gain is asked again together


@register("selector", needs=("activation",))
def cam(bench: Bench, cases: Cases, k: int, *, rng: Stream, criterion: str = "nbc", layers: str = "auto") -> Tensor:
    """k cases, each the one that adds most to the coverage of those before it; the rest by what each covers alone.

    Equal cases come in the order of rows. For criteria whose gains only fall as more is covered, which are all but nlc.

    Formula: repeat: take argmax over cases of |cells(case) − covered|, add its cells; when none adds, the rest by
    |cells|.
    """
    if not len(cases):
        return torch.empty(0, dtype=torch.int64)
    coverage, observer = begun(bench, criterion, layers)
    seen = seen_by(bench, observer, cases)
    rest = ranked(alone(bench, coverage, seen), largest=True)
    chosen = _greedy(bench, coverage, seen, min(k, len(cases)))
    left = torch.ones(len(cases), dtype=torch.bool)
    left[chosen] = False
    return torch.cat((chosen, rest[left[rest]]))[:k]


def _greedy(bench: Bench, coverage: Coverage, seen: Seen, k: int) -> Tensor:
    """Rows in the order in which they add most, until nothing more is to be gained; ``coverage`` has them after it.

    A gain once asked for is a bound on what it is now, so that most cases are never looked at again: the best bound is
    asked again until it belongs to the present. Rows of one bound lie in their order, hence equal gains do, too.
    """
    first = bench.chunks.map(lambda rows: coverage.gain(seen[rows]).cpu().double(), torch.arange(len(seen)))
    heap = [(-gain, row, 0) for row, gain in enumerate(first.tolist()) if gain > 0]
    heapq.heapify(heap)
    chosen: list[int] = []
    batch = 1
    while heap and len(chosen) < k:
        if heap[0][2] == len(chosen):
            row = heapq.heappop(heap)[1]
            coverage.add(seen[torch.tensor([row])])
            chosen.append(row)
            batch = max(1, batch // 2)
            continue
        stale = [heapq.heappop(heap)[1] for _ in range(min(batch, len(heap))) if heap[0][2] != len(chosen)]
        gains = coverage.gain(seen[torch.tensor(stale)]).tolist()
        for gain, row in zip(gains, stale, strict=True):
            if gain > 0:
                heapq.heappush(heap, (-gain, row, len(chosen)))
        batch = min(2 * batch, _MOST)
    return torch.tensor(chosen, dtype=torch.int64)
