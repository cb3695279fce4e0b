"""Nets that change when they are asked are not asked on two streams of a GPU at once: how that is decided."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.modes import changed_by, eval_mode
from assay.engines import campaign, failures
from assay.engines.campaign import Campaign
from assay.engines.judged import Judge
from assay.engines.stability import Confirm, keeps_still
from assay.subjects.passed_on import PassedOn
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((4,), (0.0, 1.0), ("a", "b", "c"))
X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Does something to itself in every forward pass, also in evaluation mode."""

    calls: Tensor

    def __init__(self, act: Callable[["Net", Tensor], None]) -> None:
        super().__init__()
        self.act, self.norm, self.last = act, nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.plain = torch.zeros(3)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.act(self, x)
        out: Tensor = self.last(self.norm(x))
        return out


class Before(PassedOn):
    """Stands before another target."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.target(x)


def count(net: Net, x: Tensor) -> None:
    net.calls += 1


def count_unseen(net: Net, x: Tensor) -> None:
    net.calls.data.add_(1)  # without a new version


def replace(net: Net, x: Tensor) -> None:
    net.calls = net.calls + 1


def add(net: Net, x: Tensor) -> None:
    net.register_buffer("late", x.mean())


def write_plain(net: Net, x: Tensor) -> None:
    net.plain.add_(x.mean())


def write_weight(net: Net, x: Tensor) -> None:
    with torch.no_grad():
        net.last.bias.add_(1)


def learn(net: Net, x: Tensor) -> None:
    net.norm.train()


def nothing(net: Net, x: Tensor) -> None:
    """As almost all nets do."""


WRITE = [count, count_unseen, replace, add, write_plain, write_weight, learn]


@pytest.mark.parametrize("act", WRITE)
def test_a_net_that_changes_is_found_out(act: Callable[[Net, Tensor], None]) -> None:
    target = ModuleTarget(Net(act), SPEC)
    assert not keeps_still([target], X)
    assert not keeps_still([ModuleTarget(Net(nothing), SPEC), Before(target)], X)


def test_a_net_that_does_not_is_left_alone() -> None:
    net = Net(nothing).train()
    assert changed_by(net, lambda: net(X)), "batch normalisation that learns"
    with eval_mode(net):
        assert not changed_by(net, lambda: net(X))
    assert keeps_still([ModuleTarget(net, SPEC)], X)


def test_of_one_that_fails_nothing_is_known() -> None:
    def fail(net: Net, x: Tensor) -> None:
        raise ValueError("no")

    assert not keeps_still([ModuleTarget(Net(fail), SPEC)], X)


@pytest.mark.parametrize("still", [True, False])
def test_failures_of_a_net_that_changes_are_checked_where_the_search_is(
    still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Any] = []

    def beside(work: Any) -> Any:
        moved.append(work)
        return work

    monkeypatch.setattr(failures, "beside", beside)
    monkeypatch.setattr(failures, "_checked", lambda bench, stages, found, confirm: (found, found[:0]))
    found = Cases.of(X, torch.zeros(2, dtype=torch.int64))
    unit: Any = SimpleNamespace(failures=lambda _: found)
    judge = Judge(SimpleNamespace(roles={}), SimpleNamespace(), Confirm(), still=still)  # type: ignore[arg-type]
    ((failing, _),) = judge([(unit, torch.arange(2))])
    assert failing is not None
    assert len(failing) == 2
    assert len(moved) == still


@pytest.mark.parametrize(
    ("target", "sibling", "seeds", "asked", "still"),
    [
        ("cpu", "cpu", 5, None, True),  # no net is asked once more for nothing
        ("cuda", "cpu", 5, 2, False),
        ("cpu", "cuda", 5, 2, False),
        ("cuda", "cuda", 0, None, True),
    ],
)
def test_a_campaign_asks_where_there_are_streams(
    target: str, sibling: str, seeds: int, asked: int | None, still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    def moves(nets: Any, x: Tensor) -> bool:
        assert len(nets) == 2
        rows.append(len(x))
        return False

    monkeypatch.setattr(campaign, "keeps_still", moves)
    first, second = (SimpleNamespace(device=torch.device(kind)) for kind in (target, sibling))
    some = Cases.of(torch.zeros(seeds, 4), torch.zeros(seeds, dtype=torch.int64))
    given: Any = SimpleNamespace(bench=SimpleNamespace(target=first, roles={"sibling1": second}), seeds=some)
    assert Campaign._still(given) is still
    assert rows == ([] if asked is None else [asked])
