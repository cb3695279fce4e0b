"""Cases on their way to a device: in order, all of them, and where there is no GPU nothing is done ahead."""

from collections.abc import Iterator

import pytest
import torch

from assay.core.cases import Cases
from assay.engines.ahead import ahead

CPU = torch.device("cpu")


def _parts(n: int, drawn: list[int]) -> Iterator[Cases]:
    for i in range(n):
        drawn.append(i)
        yield Cases.of(torch.full((3, 2), float(i)), torch.full((3,), i)).note(seed_x=torch.full((3, 2), -float(i)))


def test_on_a_cpu_parts_pass_one_by_one() -> None:
    drawn: list[int] = []
    parts = ahead(_parts(3, drawn), CPU)
    assert drawn == []
    first = next(parts)
    assert drawn == [0]
    assert first.x.tolist() == [[0.0, 0.0]] * 3
    assert [int(part.y[0]) for part in parts] == [1, 2]
    assert list(ahead(iter(()), CPU)) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_next_is_sent_before_one_is_worked() -> None:
    drawn: list[int] = []
    device = torch.device("cuda")
    for i, part in enumerate(ahead(_parts(4, drawn), device)):
        assert drawn == list(range(min(i + 2, 4)))
        assert part.x.is_cuda
        assert part.y.is_cuda
        assert part.origin.is_cuda
        assert part.x.cpu().tolist() == [[float(i)] * 2] * 3
        assert part.info["seed_x"].cpu().tolist() == [[-float(i)] * 2] * 3
