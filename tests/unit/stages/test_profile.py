"""The range of neurons over training data: exact, fitted once, never trusted when damaged."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core.cache import cache_folder
from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest
from assay.core.registry import bind
from assay.core.specs import step
from assay.stages.coverage import Criterion
from assay.stages.coverage.profile import Profile, profile_of
from assay.subjects.bench import Data
from assay.subjects.observer import Observer
from assay.subjects.sources.module import ModuleTarget

NAN, INF = float("nan"), float("inf")
SPEC = InputSpec((6,), (0.0, 1.0), ("a", "b", "c"))


class Shifted(nn.Module):
    """A layer far from zero, where a naive variance has no digits left, and a neuron of one value."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.out = nn.Linear(6, 4), nn.Linear(4, 3)
        with torch.no_grad():
            self.a.bias.add_(3000)
            self.a.weight[2] = 0

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.a(x) - 3000)
        return out


def observer(net: nn.Module | None = None, asked: str = "auto") -> Observer:
    return Observer.of([ModuleTarget(net or Shifted(), SPEC)], asked)


def data(n: int = 100, seed: int = 0) -> Data:
    x = torch.rand(n, 6, generator=torch.Generator().manual_seed(seed))
    return Data("some", Cases.of(x, torch.zeros(n, dtype=torch.int64)), SPEC)


def files() -> list[Path]:
    return sorted((cache_folder() / "profiles").glob("*"))


def same(one: Profile, other: Profile) -> bool:
    columns = ("low", "high", "mean", "std")
    return one.count == other.count and all(torch.equal(getattr(one, c), getattr(other, c)) for c in columns)


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_it_is_that_of_all_inputs_at_once_however_they_are_cut(size: int) -> None:
    watched, given = observer(), data()
    found = profile_of(watched, given, Chunks(size))
    values = watched.all(given.cases.x, Chunks(size)).neurons.double()  # the same cuts: other ones round otherwise
    assert torch.equal(found.low, values.amin(0).float())
    assert torch.equal(found.high, values.amax(0).float())
    assert torch.allclose(found.mean.double(), values.mean(0), rtol=1e-6)
    assert torch.allclose(found.std.double(), values.std(0, correction=0), rtol=1e-5, atol=1e-9)
    assert found.std[2] == 0
    assert found.low[2] == found.high[2]
    assert found.count == 100


def test_more_rows_than_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = profile_of(observer(), data(), Chunks(10))
    for file in files():
        file.unlink()
    monkeypatch.setattr("assay.stages.coverage.profile._ROWS", 30)
    parts = profile_of(observer(), data(), Chunks(10))
    assert torch.allclose(parts.std, whole.std, rtol=1e-6)
    assert torch.equal(parts.high, whole.high)


def test_it_is_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = profile_of(observer(), data(), Chunks())
    assert len(files()) == 1
    assert files()[0].is_relative_to(cache_folder())

    def refuse(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr("assay.stages.coverage.profile._fitted", refuse)
    assert same(profile_of(observer(), data(), Chunks(3)), first)


def test_other_nets_layers_or_data_are_another_profile() -> None:
    changed = Shifted()
    with torch.no_grad():
        changed.out.bias.add_(1)
    for watched, given in (
        (observer(), data()),
        (observer(changed), data()),
        (observer(asked="a"), data()),
        (observer(), data(seed=1)),
    ):
        profile_of(watched, given, Chunks())
    assert len(files()) == 4


class Gained(nn.Module):
    """What no weight and no name of a module shows: a plain attribute, and code."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gain, self.a, self.out = gain, nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.a(x * self.gain))
        return out


def test_nets_that_differ_in_what_no_weight_shows_have_profiles_of_their_own() -> None:
    one, five = observer(Gained()), observer(Gained(5.0))
    assert one.targets[0].fingerprint() == five.targets[0].fingerprint()
    first, second = (profile_of(watched, data(), Chunks()) for watched in (one, five))
    assert torch.equal(second.high, five(data().cases.x).neurons.amax(0))
    assert not torch.equal(first.high, second.high)
    assert len(files()) == 2
    profile_of(observer(Gained(1.01)), data(), Chunks())
    assert len(files()) == 3, "a small change shows as well"


def test_the_size_of_chunks_and_the_number_of_inputs_are_no_other_net() -> None:
    asked: list[int] = []
    watched = observer()
    watched.targets[0].module.register_forward_pre_hook(lambda _, given: asked.append(len(given[0])))  # type: ignore[attr-defined]
    profile_of(watched, data(), Chunks(3))
    assert asked[0] == 16
    asked.clear()
    profile_of(watched, data(), Chunks(5))
    assert asked == [16], "nothing but the inputs that tell nets apart"
    assert profile_of(watched, data(3), Chunks()).count == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_fitted_again(damage: str) -> None:
    first = profile_of(observer(), data(), Chunks())
    (file,) = files()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 1  # a digit of a number, which the format itself does not notice
    file.write_bytes({"cut": whole[:-10], "flipped": bytes(flipped), "empty": b"", "other": b"x" * 200}[damage])
    assert same(profile_of(observer(), data(), Chunks()), first)
    assert files() == [file]
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("ASSAY_CACHE", str(blocked))
    assert profile_of(observer(), data(), Chunks()).count == 100


def test_several_nets_are_profiled_one_after_the_other() -> None:
    nets = [ModuleTarget(net, SPEC) for net in (Shifted(), nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)))]
    both = profile_of(Observer.of(nets, "auto"), data(), Chunks())
    apart = [profile_of(Observer.of([net], "auto"), data(), Chunks()) for net in nets]
    assert len(both.low) == 10 + 11
    assert torch.equal(both.high, torch.cat([one.high for one in apart]))


def test_nothing_to_fit_to_is_refused() -> None:
    with pytest.raises(NothingToTest, match="no case to fit"):
        profile_of(observer(), data(0), Chunks())


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("ASSAY_CACHE")
    assert cache_folder().name.lower() == "assay"


@pytest.mark.parametrize("text", ["kmnc(k=5)", "nbc", "nbc(std=1)", "nbc(buckets=4)", "snac", "snac(buckets=4)"])
@pytest.mark.parametrize("odd", [(NAN, NAN), (0.0, INF), (-INF, 1.0), (NAN, 1.0)])
def test_neurons_without_a_finite_range_have_no_cells(text: str, odd: tuple[float, float]) -> None:
    watched = observer()
    criterion: Criterion = bind("criterion", *step(text))()
    low, high = torch.zeros(10), torch.ones(10)
    whole = criterion.begin(watched, Profile(low.clone(), high.clone(), high / 2, high / 4, 100))
    low[3], high[3] = odd
    part = criterion.begin(watched, Profile(low, high, (low + high) / 2, (high - low) / 4, 100))
    assert part.total * 10 == whole.total * 9
    values = torch.tensor([-INF, -9.0, 0.5, 9.0, INF, NAN])
    seen = watched(torch.rand(6, 6)).detach()
    seen.neurons.fill_(NAN)[:, 3] = values
    assert whole.add(seen).any()
    assert not part.add(seen).any()
    assert part.covered() == 0
