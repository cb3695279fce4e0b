"""Searches that a GPU replays whole: which can be, and the same cases, passes and trainings as without."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from assay.core import passes
from assay.core.cases import Cases, InputSpec
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound, bind
from assay.core.specs import step
from assay.stages.trainers import recorded
from assay.stages.trainers.recorded import Recorded, fixed
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.time_box import TIMED
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Data, Splits
from assay.subjects.sources.module import ModuleTarget

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PARTS = {"train": slice(0, 500), "val": slice(500, 550), "test": slice(550, 600)}
SPEC = InputSpec((1, 6, 6), (0.0, 1.0), ("a", "b", "c"))


def attack(text: str) -> Bound:
    name, params = step(text)
    return bind("attack", name, params, {"eps": 0.1, "norm": "linf"})


def net(device: str = "cpu") -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).to(device)


def batch(turn: int, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(turn)
    x, y = torch.rand(32, 1, 6, 6, generator=rng), torch.randint(3, (32,), generator=rng)
    return x.to(device), y.to(device), Stream(turn).rows(torch.arange(32)).key.to(device)


@pytest.mark.parametrize(
    ("text", "is_fixed"),
    [
        ("pgd(steps=3, early_stop=false)", True),
        ("pgd(steps=3, early_stop=false, norm=l2)", True),
        ("fgsm(early_stop=false)", True),
        ("pgd(steps=3)", False),
        ("pgd(steps=3, early_stop=false, restarts=2)", False),
        ("pgd(steps=3, early_stop=false, converged=0.1)", False),
        ("corrupt", False),
        ("apgd_ce(early_stop=false)", False),
    ],
)
def test_which_searches_are_the_same_work_for_every_batch(text: str, is_fixed: bool) -> None:
    assert fixed(attack(text)) == is_fixed


def test_elsewhere_than_on_a_gpu_they_are_made_as_ever() -> None:
    search, target, again = attack("pgd(steps=3, early_stop=false)"), ModuleTarget(net(), SPEC), Recorded()
    for turn in range(2 * recorded.SEEN):
        x, y, key = batch(turn)
        assert torch.equal(again(search, target, x, y, key), search(target, x, y, rng=Rows(key)))
    assert not again.records


def test_trainings_make_their_searches_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = Recorded.__call__

    def seen(self: Recorded, search: Bound, *rest: Any) -> Tensor:
        asked.append(search.entry.name)
        return real(self, search, *rest)

    monkeypatch.setattr(Recorded, "__call__", seen)
    searches = Searches("pgd(steps=2, early_stop=false), fgsm", net(), SPEC, eps=0.1, norm="linf", batch=32)
    x, y, _ = batch(0)
    searches.made(net(), x, y, torch.arange(32), Stream(0))
    assert asked == ["pgd", "fgsm"]


def test_recording_is_over_when_a_training_times_its_steps() -> None:
    assert TIMED[0] > recorded.SEEN


@cuda
@pytest.mark.parametrize("text", ["pgd(steps=5, step=0.5, early_stop=false)", "pgd(norm=l2, eps=1, early_stop=false)"])
def test_a_replay_makes_the_same_of_a_net_that_changed(text: str) -> None:
    search, module = attack(text), net("cuda")
    target, again = ModuleTarget(module, SPEC), Recorded()
    for turn in range(2 * recorded.SEEN):
        x, y, key = batch(turn, "cuda")
        with passes.counted() as asked:
            made = again(search, target, x, y, key)
        with passes.counted() as usual:
            right = search(target, x, y, rng=Rows(key))
        assert (asked.forward, asked.gradient) == (usual.forward, usual.gradient)
        assert (made - right).abs().le(1e-5).float().mean() > 0.99
        with torch.no_grad():
            for weight in module.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
    assert [record is not None for record in again.records.values()] == [True]


class _HostAsked(TorchDispatchMode):
    """Fails where work waits for the host or copies a number from it, which no graph can hold."""

    REFUSED = ("lift_fresh", "_local_scalar_dense", "nonzero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not func.__name__.startswith(self.REFUSED), f"{func.__name__} needs the host"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", recorded.FIXED)
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_fixed_search_never_asks_the_host(name: str, norm: str) -> None:
    search, target = attack(f"{name}(norm={norm}, early_stop=false)"), ModuleTarget(net(), SPEC)
    x, y, key = batch(0)
    with _HostAsked():  # type: ignore[no-untyped-call]  # torch's stubs
        search(target, x, y, rng=Rows(key))
    with _HostAsked(), pytest.raises(AssertionError, match="needs the host"):  # type: ignore[no-untyped-call]
        attack(f"{name}(norm={norm}, early_stop=true)")(target, x, y, rng=Rows(key))


@cuda
def test_searches_met_seldom_are_not_recorded_and_other_sizes_are_others() -> None:
    target, again = ModuleTarget(net("cuda"), SPEC), Recorded()
    x, y, key = batch(0, "cuda")
    for turn in range(2 * recorded.SEEN):
        again(attack(f"pgd(steps=2, eps={0.1 + turn / 100}, early_stop=false)"), target, x, y, key)
    assert not again.records
    search = attack("pgd(steps=2, early_stop=false)")
    for rows in (32, 20):
        for _ in range(recorded.SEEN + 1):
            made = again(search, target, x[:rows], y[:rows], key[:rows])
        assert torch.allclose(made, search(target, x[:rows], y[:rows], rng=Rows(key[:rows])), atol=1e-5)
    assert len(again.records) == 2


def test_room_is_made_only_where_there_are_enough() -> None:
    again = Recorded()
    for kind in range(recorded.KEPT + 2):
        again._make_room()
        again.records[kind] = object()  # type: ignore[assignment]
        again.records["no record"] = None
    assert [kind for kind in again.records if kind != "no record"] == list(range(2, recorded.KEPT + 2))


@cuda
def test_of_many_kinds_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "KEPT", 2)
    target, again = ModuleTarget(net("cuda"), SPEC), Recorded()
    x, y, key = batch(0, "cuda")
    for size in (0.1, 0.2, 0.3):
        search = attack(f"pgd(steps=2, eps={size}, early_stop=false)")
        for _ in range(recorded.SEEN + 2):
            made = again(search, target, x, y, key)
        assert torch.allclose(made, search(target, x, y, rng=Rows(key)), atol=1e-5)
    assert len(again.records) == 2


@cuda
@pytest.mark.parametrize("trainer", ["adversarial", "trades"])
def test_trainings_end_alike(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(600, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    y = (x[:, 0, 0, 0] * 3).long().clamp_max(2)
    data = Splits("d", *(Data(name, Cases.of(x[rows], y[rows]), SPEC) for name, rows in PARTS.items()))
    how = {"epochs": 3, "batch": 32, "lr": 0.01, "eps": 0.05, "attack": "pgd(steps=3, step=0.5, early_stop=false)"}

    def trained() -> nn.Module:
        module: nn.Module = bind("trainer", trainer, how)(net("cuda"), data, None, rng=Stream(0), watch=Unwatched())
        return module

    kept: list[Recorded] = []
    real = Recorded.__init__

    def seen(self: Recorded) -> None:
        real(self)
        kept.append(self)

    monkeypatch.setattr(Recorded, "__init__", seen)
    one = trained()
    assert any(record is not None for all_ in kept for record in all_.records.values())
    monkeypatch.setattr(recorded, "SEEN", 10**9)
    kept.clear()
    other = trained()
    assert not any(all_.records for all_ in kept)
    for mine, same in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, same, rtol=0.05, atol=0.02)
