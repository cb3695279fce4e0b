"""The generator: ways to reconstruct, training and resuming, files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.stages.aeg import Aeg, Making, aeg_of, trained
from assay.stages.aeg.generator import _ways, scaled
from assay.stages.aeg.sheet import GAP, samples, sheet
from assay.stages.aeg.training import key_of
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.module import ModuleTarget

SMALL = Making(images=24, epochs=3, batch=8, width=4, snapshots=2, buffer=6)
CPU = torch.device("cpu")


def data(shape: tuple[int, ...] = (1, 9, 10), bounds: tuple[float, float] = (0.0, 1.0), n: int = 60) -> Data:
    rng = torch.Generator().manual_seed(n)
    x = torch.rand(n, *shape, generator=rng) * (bounds[1] - bounds[0]) + bounds[0]
    spec = InputSpec(shape, bounds, ("a", "b", "c"))
    return Data("made/train", Cases.of(x, torch.arange(n) % 3), spec)


@pytest.fixture(scope="module")
def small() -> Aeg:
    return trained(data(), SMALL, CPU, Unwatched())


def test_ways_begin_with_one_snapshot_in_both_directions() -> None:
    assert _ways(2).tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [0, 1, 1],
        [1, 1, 1],
        [0, 0, 1],
        [1, 0, 1],
        [0, 1, 0],
        [1, 1, 0],
    ]
    ways = _ways(5).tolist()
    assert [way[1:] for way in ways[:10]] == [[i, i] for i in range(5) for _ in range(2)]
    assert len({tuple(way) for way in ways}) == len(ways) == 50
    apart = [abs(first - second) for _, first, second in ways]
    assert apart == sorted(apart)


def test_numbers_say_which_nets_in_which_order(small: Aeg) -> None:
    x = data().cases.x[:4]
    assert small.variety == 8
    unit = nn.functional.pad(x * 2 - 1, (0, 0, 0, 1), mode="replicate")
    for number, (side, first, second) in enumerate(_ways(2).tolist()):
        nets = [small._net(side, first), small._net(1 - side, second)]
        slow = (nets[1](nets[0](unit))[:, :, :9, :10] + 1) / 2
        assert torch.allclose(small.made(x, torch.full((4,), number)), slow, atol=1e-5)


def test_mixed_numbers_are_each_as_alone_and_count_around(small: Aeg) -> None:
    x, numbers = data().cases.x[:20], torch.arange(20) * 3
    together = small.made(x, numbers)
    for row in range(20):
        alone = small.made(x[row : row + 1], numbers[row : row + 1] % 8)
        assert torch.allclose(together[row : row + 1], alone, atol=1e-5)
    assert torch.equal(together, small.made(x, numbers + 8 * 5))
    assert (
        len({tuple(row) for row in small.made(x[:1].expand(8, -1, -1, -1), torch.arange(8)).flatten(1).tolist()}) == 8
    )
    assert small.made(x[:0], numbers[:0]).shape == (0, 1, 9, 10)
    assert scaled(torch.zeros(0, 1, 28, 28), (1, 28, 28), (0.0, 1.0)).shape == (0, 1, 32, 32)


def test_the_first_half_of_the_way_and_the_whole(small: Aeg) -> None:
    x = data().cases.x[:5]
    halfway, whole = small.steps(x, 1)
    assert halfway.shape == whole.shape == x.shape
    assert torch.equal(whole, small.made(x, torch.full((5,), 2)))


def test_it_stays_in_bounds_and_in_form() -> None:
    given = data((3, 8, 8), (-1.0, 255.0))
    made = trained(given, replace(SMALL, epochs=1), CPU, Unwatched())
    assert made.snapshots == 1, "no snapshot of an epoch that was not"
    out = made.made(given.cases.x, torch.arange(60))
    assert out.shape == given.cases.x.shape
    assert out.min() >= -1
    assert out.max() <= 255
    assert out.max() > 50
    with pytest.raises(UsageError, match="made for images of 3×8×8, and inputs are 1×8×8"):
        made.made(torch.zeros(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64))


def test_the_cycle_error_falls_and_is_measured() -> None:
    given = assay.load_data("digits/train")
    seen: list[dict[str, float]] = []

    class Looking(Unwatched):
        def epoch(self, state: State, net: nn.Module) -> None:
            seen[:] = [dict(row) for row in state.log]

    made = trained(given, Making(images=240, epochs=3, lr=1e-3, width=8), CPU, Looking())
    errors = [row["val_loss"] for row in seen]
    assert errors[0] > errors[1] > errors[2]
    timeless = [{name: value for name, value in row.items() if name != "seconds"} for row in seen]
    assert made.facts["log"] == timeless  # without a clock: the same training, the same bytes
    told = made.facts["measured"]
    held = told["images"]
    assert held == made.facts["kept_back"] == 120
    # Both directions of the last epoch, as the loop has measured them: digits need no margins.
    assert told["cycle_error"] == pytest.approx(errors[-1], rel=1e-3)
    assert 0 < told["ssim"] < 1


class Stopped(Exception):
    pass


class StopsAfter(Unwatched):
    """Keeps the state of each epoch, and stops after one."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch
        self.kept: State | None = None

    def resume(self) -> State | None:
        return self.kept

    def epoch(self, state: State, net: nn.Module) -> None:
        self.kept = replace(state, log=list(state.log))
        if state.epoch == self.last:
            raise Stopped


def test_a_stopped_training_ends_the_same(small: Aeg) -> None:
    watch = StopsAfter(2)
    with pytest.raises(Stopped):
        trained(data(), SMALL, CPU, watch)
    assert watch.kept is not None
    assert watch.kept.epoch == 2
    watch.last = 0
    again = trained(data(), SMALL, CPU, watch)
    assert small.fingerprint() == again.fingerprint()
    assert small.facts["measured"] == again.facts["measured"]
    assert len(again.facts["log"]) == 3


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"loss": "log"}, {"flip": True}, {"split": "class_pair(a,b)"}, {"batch": 1, "images": 4}]
)
def test_every_way_of_making_trains(small: Aeg, change: dict[str, object]) -> None:
    other = trained(data(), replace(SMALL, **change), CPU, Unwatched())  # type: ignore[arg-type]  # as users give them
    assert other.fingerprint() != small.fingerprint()
    assert other.there.isfinite().all()


def test_what_it_depends_on_is_in_its_key() -> None:
    given, making = data(), SMALL
    keys = {
        key_of(given, making),
        key_of(data(n=61), making),
        key_of(replace(given, spec=replace(given.spec, bounds=(0.0, 2.0))), making),
        *(key_of(given, replace(making, **change)) for change in ({"seed": 1}, {"width": 8}, {"epochs": 4})),  # type: ignore[arg-type]
    }
    assert len(keys) == 6
    assert key_of(data(), making) == key_of(given, Making(**making.to_json()))


def test_it_comes_back_from_columns_and_files(small: Aeg, tmp_path: Path) -> None:
    small.save(tmp_path / "aeg.safetensors")
    x, numbers = data().cases.x, torch.arange(60)
    for again in (Aeg.of(small.columns()), Aeg.load(tmp_path / "aeg.safetensors")):
        assert again.fingerprint() == small.fingerprint()
        assert again.facts == small.facts
        assert torch.equal(again.made(x, numbers), small.made(x, numbers))


def test_files_that_are_no_generators_are_refused(small: Aeg, tmp_path: Path, digits_weights: Path) -> None:
    with pytest.raises(UsageError, match="holds no generator"):
        Aeg.load(digits_weights)
    for name, wrong in (
        ("narrow", replace(small, there=small.there[:, :-1])),
        ("one", replace(small, there=small.there[:1])),
        ("nan", replace(small, there=small.there * torch.nan)),
    ):
        wrong.save(tmp_path / f"{name}.safetensors")
        with pytest.raises(UsageError, match="holds a damaged generator"):
            Aeg.load(tmp_path / f"{name}.safetensors")
    lacking = replace(small, facts={key: fact for key, fact in small.facts.items() if key != "making"})
    lacking.save(tmp_path / "lacking.safetensors")
    with pytest.raises(UsageError, match="its facts lack or misstate 'making'"):
        Aeg.load(tmp_path / "lacking.safetensors")


def test_a_sheet_has_a_row_for_each_class(small: Aeg) -> None:
    import io

    from PIL import Image

    given = data()
    assert samples(given, 10)[:3].tolist() == [0, 1, 2]
    assert samples(given, 10).tolist() == list(range(10))
    image = Image.open(io.BytesIO(sheet(small, given, rows=4)))
    across, down = 7 * (10 + 2 * GAP), 4 * (9 + 2 * GAP)
    assert image.width % across == 0
    assert image.height / down == image.width / across


def bench(given: Data, training: Data | None) -> Bench:
    net = nn.Sequential(nn.Flatten(), nn.Linear(int(torch.Size(given.spec.shape).numel()), 3))
    return Bench(ModuleTarget(net, given.spec), training=training)


TEXT = {"images": 24, "epochs": 3, "batch": 8, "width": 4, "snapshots": 2, "buffer": 6}


def test_one_generator_serves_many_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    given = data()
    first = aeg_of(bench(given, given), SMALL)
    monkeypatch.setattr("assay.stages.aeg.training.trained", _never)
    again = aeg_of(bench(given, given), SMALL)
    assert again.fingerprint() == first.fingerprint()


def _never(*_: object) -> Aeg:
    raise AssertionError("trained, and nothing should be")


@pytest.fixture
def mutate(small: Aeg, tmp_path: Path) -> Callable[[Cases], Tensor]:
    """The mutator with the generator of a file."""
    small.save(tmp_path / "aeg.safetensors")
    stage = bind("mutator", "cyclegan", {"aeg": str(tmp_path / "aeg.safetensors")})
    given = data()
    here = bench(given, None)
    return lambda cases: stage(here, cases, rng=Stream(0).rows(cases.origin))


@pytest.mark.parametrize("n", [0, 1, 10])
def test_the_mutator_keeps_what_every_mutator_must(mutate: Callable[[Cases], Tensor], n: int) -> None:
    cases = data().cases[slice(0, n)]
    before = cases.x.clone()
    made = mutate(cases)
    assert made.shape == cases.x.shape
    assert torch.equal(cases.x, before)
    assert torch.equal(made, mutate(cases))
    if n:
        assert made.min() >= 0
        assert made.max() <= 1
        assert not torch.equal(made, cases.x)
        assert torch.allclose(made[:1], mutate(cases[slice(0, 1)]), atol=1e-5)
        made.requires_grad_()  # what is made may be climbed


def test_the_mutator_takes_the_number_of_the_candidate(small: Aeg, mutate: Callable[[Cases], Tensor]) -> None:
    cases = data().cases
    numbers = torch.arange(60) + 3
    assert torch.equal(mutate(cases.note(candidate=numbers)), small.made(cases.x, numbers))


def test_without_a_number_one_of_the_plain_ways_is_drawn(small: Aeg, mutate: Callable[[Cases], Tensor]) -> None:
    cases = data().cases
    made = mutate(cases)
    ways = torch.stack([small.made(cases.x, torch.full((60,), way)) for way in range(8)])
    same = (ways - made).flatten(2).abs().amax(2)
    chosen = same.argmin(0)
    assert same.amin(0).max() < 1e-5
    assert set(chosen.tolist()) == {0, 1, 2, 3}


def test_a_rehearsal_trains_nothing_and_refuses_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.stages.aeg.training.trained", _never)
    given = data()
    none = given.cases[slice(0, 0)]
    rng = Stream(0).rows(none.origin)
    assert bind("mutator", "cyclegan", {})(bench(given, given), none, rng=rng).shape == (0, 1, 9, 10)
    flat = data((12,))
    with pytest.raises(UsageError, match="vectors of 12 numbers"):
        bind("mutator", "cyclegan", {})(bench(flat, flat), flat.cases[slice(0, 0)], rng=rng)
    with pytest.raises(UsageError, match="width must be at least 1"):
        bind("mutator", "cyclegan", {"width": 0})(bench(given, given), none, rng=rng)
    with pytest.raises(UsageError, match=r"assay aeg DATA --out gone\.safetensors"):
        bind("mutator", "cyclegan", {"aeg": "gone.safetensors"})(bench(given, given), none, rng=rng)


def test_a_file_for_other_images_and_no_data_to_learn_from(small: Aeg, tmp_path: Path) -> None:
    small.save(tmp_path / "aeg.safetensors")
    wide = data((1, 9, 10), (0.0, 2.0))
    rng = Stream(0).rows(wide.cases.origin)
    with pytest.raises(UsageError, match=r"made for images 1×9×10 in \[0, 1\], the model takes 1×9×10 in \[0, 2\]"):
        bind("mutator", "cyclegan", {"aeg": str(tmp_path / "aeg.safetensors")})(bench(wide, None), wide.cases, rng=rng)
    with pytest.raises(UsageError, match="none are known here; give them, labels are not needed: --training DATA"):
        bind("mutator", "cyclegan", TEXT)(bench(wide, None), wide.cases, rng=rng)


def test_padded_images_come_back_in_their_place() -> None:
    """28 pixels are padded to 32, two on each side: what is cut out again must be the middle, or digits move."""
    made = trained(data((1, 28, 28)), replace(SMALL, images=8, epochs=1), CPU, Unwatched())
    x = torch.zeros(1, 1, 28, 28)
    x[0, 0, 0, 0] = 1.0
    frame = scaled(x, (1, 28, 28), (0.0, 1.0))
    assert torch.equal(made._cropped(frame), x)
