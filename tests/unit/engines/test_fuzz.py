"""The fuzzing engine: what it commits, how it ends, how it goes on."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.core.shards import decode
from assay.engines.found import Found, summary
from assay.engines.fuzz import fuzz
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data

SPEC = InputSpec((2,), (0.0, 1.0), ("low", "high"))


class Threshold(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        level = x.mean(1, keepdim=True)
        return torch.cat([0.5 - level, level - 0.5], 1)


@pytest.fixture
def foreground() -> Iterator[None]:
    """Ctrl-C works as in a terminal, also where the tests themselves run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def seeds(n: int = 40) -> Data:
    x = torch.linspace(0.3, 0.7, n)[:, None].repeat(1, 2)
    return Data("line", Cases.of(x, (x.mean(1) > 0.5).long()), SPEC)


def shards(found: Found) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((found.run / "cases").glob("*"))}


def rows(found: Found) -> list[tuple[Any, ...]]:
    """The failures as a set of facts, whatever shards they lie in."""
    cases = found.load()
    return sorted(
        zip(
            cases.origin.tolist(),
            cases.info["cycle"].tolist(),
            cases.info["step"].tolist(),
            cases.x.tolist(),
            strict=True,
        )
    )


def test_failures_are_real_and_inside_the_ball() -> None:
    data = seeds()
    found = fuzz("noise", Threshold(), data, run="a", eps=0.1, unit=16)
    cases = found.load()
    assert found.failures == len(found) == len(cases) > 5
    assert (Threshold()(cases.x).argmax(1) != cases.y).all()
    assert torch.equal(cases.y, data.cases.y[cases.origin])
    assert torch.equal(cases.info["seed_x"], data.cases.x[cases.origin])
    assert ((cases.x - data.cases.x[cases.origin]).abs().amax(1) <= 0.1 + 1e-6).all()
    assert torch.allclose(cases.info["linf"], (cases.x - data.cases.x[cases.origin]).abs().amax(1))
    assert found.seeds == 40
    assert found.complete


def test_every_seed_that_can_break_is_found_and_no_other() -> None:
    """Noise of 0.1 moves the mean of two values by less than 0.1: seeds farther than that from 0.5 are safe."""
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1)
    level = seeds().cases.x.mean(1)
    near = set(((level - 0.5).abs() < 0.07).nonzero().flatten().tolist())
    far = set(((level - 0.5).abs() > 0.1).nonzero().flatten().tolist())
    broken = set(found.load().origin.tolist())
    assert near <= broken
    assert not broken & far


@pytest.mark.parametrize("lanes", [1, 7, 64, 300])
def test_lanes_do_not_change_the_bytes(lanes: int) -> None:
    one = fuzz("noise", Threshold(), seeds(), run="one", eps=0.1, unit=16, lanes=16)
    other = fuzz("noise", Threshold(), seeds(), run="other", eps=0.1, unit=16, lanes=lanes)
    assert shards(one) == shards(other)
    assert (one.run / "journal.jsonl").read_bytes() == (other.run / "journal.jsonl").read_bytes()


def test_another_seed_gives_other_cases() -> None:
    a, b = (fuzz("noise", Threshold(), seeds(), run=f"s{s}", eps=0.1, seed=s) for s in (0, 1))
    assert rows(a) != rows(b)


def test_the_same_command_again_adds_nothing() -> None:
    first = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1)
    journal = (first.run / "journal.jsonl").read_bytes()
    again = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1)
    assert (first.run / "journal.jsonl").read_bytes() == journal
    assert again.failures == first.failures


def test_repeats_that_cannot_be_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(UsageError, match="--confirm is K/N"):
        fuzz("noise", "lenet5@nowhere.safetensors", "nowhere.npz", eps=0.1, confirm="5/4")


def test_another_configuration_is_refused_with_the_difference() -> None:
    fuzz("noise", Threshold(), seeds(), run="a", eps=0.1)
    with pytest.raises(UsageError, match=r"recipe\.mutate: noise\(eps=0\.1, norm=linf\) in the run, noise\(eps=0\.2"):
        fuzz("noise", Threshold(), seeds(), run="a", eps=0.2)
    with pytest.raises(UsageError, match=r"run\.seed: 0 in the run, 5 asked"):
        fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, seed=5)
    fresh = fuzz("noise", Threshold(), seeds(), run="a", eps=0.2, fresh=True)
    assert fresh.run.name == "a-2"


def test_a_budget_of_cases_is_met_to_a_seed_and_raising_it_goes_on() -> None:
    small = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, cases=200)
    assert 200 <= small.cases < 200 + 64
    more = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, cases=1500)
    assert 1500 <= more.cases < 1500 + 64
    at_once = fuzz("noise", Threshold(), seeds(), run="b", eps=0.1, unit=16, cases=1500)
    assert rows(at_once) == rows(more)


def test_cycles_go_on_with_new_randomness() -> None:
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, cases=6000)
    cases = found.load()
    assert int(cases.info["cycle"].max()) >= 1
    per_seed = cases.x[cases.origin == cases.origin[0]]
    assert len(per_seed.unique(dim=0)) == len(per_seed) > 1


def test_time_ends_a_run_and_finished_seeds_are_kept() -> None:
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, time=0.4)
    assert found.complete
    assert found.cases > 0
    spent = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, time=0.4)
    assert spent.cases == found.cases, "the budget counts over all sessions"
    bigger = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, time=1.2)
    assert bigger.cases > found.cases


@pytest.mark.usefixtures("foreground")
def test_an_interrupt_commits_what_is_done_and_the_rest_follows() -> None:
    calls = 0

    def press(numbers: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 150:
            signal.raise_signal(signal.SIGINT)

    stopped = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, lanes=8, progress=press)
    assert stopped.interrupted
    assert not stopped.complete
    assert 0 < stopped.seeds < 40
    resumed = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, lanes=8)
    assert resumed.seeds == 40
    alone = fuzz("noise", Threshold(), seeds(), run="b", eps=0.1, unit=16, lanes=8)
    assert rows(alone) == rows(resumed)
    assert alone.cases == resumed.cases


@pytest.mark.usefixtures("foreground")
def test_two_interrupts_stop_at_once_and_nothing_is_lost() -> None:
    def press(numbers: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, progress=press)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16)
    alone = fuzz("noise", Threshold(), seeds(), run="b", eps=0.1, unit=16)
    assert shards(resumed) == shards(alone)


def test_runs_in_a_thread_too() -> None:
    """Signals can be caught in the main thread only; elsewhere the engine does without."""
    out: list[Found] = []
    thread = threading.Thread(target=lambda: out.append(fuzz("noise", Threshold(), seeds(), run="a", eps=0.1)))
    thread.start()
    thread.join()
    assert out[0].failures > 0


def test_answers_that_are_not_numbers_are_failures_of_their_own_kind() -> None:
    class Brittle(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = Threshold()(x)
            return torch.where((x[:, :1] > 0.6) & (x[:, 1:] < 0.58), torch.nan, out)

    found = fuzz("noise", Brittle(), seeds(), run="a", eps=0.1)
    kinds = found.load().info["kind"]
    assert set(kinds.tolist()) == {0, 1}
    assert "NaN" not in (found.run / "journal.jsonl").read_text()


def test_a_model_that_answers_at_random_fills_flaky_not_failures() -> None:
    class Dice(nn.Module):
        """Right on clean seeds (whole hundredths), a coin elsewhere."""

        def forward(self, x: Tensor) -> Tensor:
            coin = torch.rand(len(x), 1, generator=torch.Generator().manual_seed(int(x.sum() * 1e6) + self.count))
            self.count += 1
            out = Threshold()(x)
            seed = ((x - x[:, :1]).abs().amax(1, keepdim=True)) == 0
            return torch.where(seed, out, torch.cat([coin - 0.5, 0.5 - coin], 1))

        count = 0

    found = fuzz("noise", Dice(), seeds(), run="a", eps=0.01)
    assert found.flaky > 0
    assert list((found.run / "flaky").glob("*.safetensors"))


def test_unlabelled_seeds_take_the_prediction() -> None:
    data = seeds()
    blind = Data("blind", Cases.of(data.cases.x), SPEC)
    found = fuzz("noise", Threshold(), blind, run="a", eps=0.1)
    assert found.seeds == 40
    assert torch.equal(found.load().y, (found.load().info["seed_x"].mean(1) > 0.5).long())


def test_no_seed_left_is_nothing_to_test() -> None:
    wrong = Data("wrong", Cases.of(seeds().cases.x, 1 - seeds().cases.y), SPEC)
    with pytest.raises(NothingToTest, match="gets every one wrong"):
        fuzz("noise", Threshold(), wrong, run="a", eps=0.1)


def test_shards_can_be_read_without_us(digits_model: str) -> None:
    found = fuzz("noise", digits_model, load_data("digits/train[:200]"), run="a", eps=0.4)
    name = next(iter(shards(found)))
    columns = decode((found.run / "cases" / name).read_bytes())
    assert {"x", "y", "origin", "seeds", "seed", "pred", "step", "linf", "l2", "ssim"} <= set(columns)
    assert columns["x"].shape[1:] == (1, 8, 8)
    assert ((columns["ssim"] > -1) & (columns["ssim"] <= 1)).all()
    stats = json.loads((found.run / "stats.json").read_text())
    assert stats["failures"] == found.failures


def test_counts_come_from_the_journal_not_from_stats() -> None:
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1)
    (found.run / "stats.json").write_text('{"failures": 999, "seconds": 1.0}')
    assert summary(store.read(found.run)).failures == found.failures


def test_damage_is_set_aside_and_done_again() -> None:
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=8)
    before = shards(found)
    victim = found.run / "cases" / list(before)[-1]
    victim.write_bytes(b"\x00" + victim.read_bytes()[1:])
    repaired = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=8)
    assert shards(repaired) == before
    assert list((found.run / "quarantine").iterdir())


def test_a_users_own_recipe_and_mutator(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from assay import Recipe\n"
        "def push(bench, cases, *, rng, by: float = 0.25):\n"
        "    'Adds a constant.'\n"
        "    return (cases.x + by).clamp(0, 1)\n"
        "mine = Recipe(name='mine', summary='Adds.', mutate=__file__ + ':push', schedule='per_seed(steps=1)')\n"
    )
    found = fuzz(f"{file}:mine", Threshold(), seeds(), run="a")
    low = int((seeds().cases.x.mean(1) <= 0.5).sum())
    assert found.cases == 40
    assert found.failures == int(((seeds().cases.x.mean(1) + 0.25 > 0.5) & (seeds().cases.y == 0)).sum())
    assert found.failures <= low


def test_a_background_process_goes_on_ignoring_interrupts() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = fuzz(
            "noise", Threshold(), seeds(), run="a", eps=0.1, progress=lambda _: signal.raise_signal(signal.SIGINT)
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.complete


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("after", [20, 50, 90])
def test_an_interrupt_under_a_budget_of_cases_changes_nothing(after: int) -> None:
    calls = 0

    def press(numbers: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            signal.raise_signal(signal.SIGINT)

    settings: dict[str, Any] = {"eps": 0.1, "unit": 16, "lanes": 8, "cases": 3000}
    fuzz("noise", Threshold(), seeds(), run="a", progress=press, **settings)
    resumed = fuzz("noise", Threshold(), seeds(), run="a", **settings)
    alone = fuzz("noise", Threshold(), seeds(), run="b", **settings)
    assert rows(resumed) == rows(alone)
    assert resumed.cases == alone.cases


def test_distinct_counts_pairs_once_over_all_cycles() -> None:
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, unit=16, cases=6000)
    cases = found.load()
    true = len(set(zip(cases.origin.tolist(), cases.info["pred"].tolist(), strict=True)))
    assert found.distinct == true < found.failures


def test_seeds_that_share_an_origin_are_all_worked() -> None:
    """Failures of an earlier run as seeds: several grew from one root, and each has its own randomness."""
    data = seeds(4)
    x = data.cases.x[torch.tensor([0, 0, 3, 3])]
    doubled = Data("doubled", Cases(x, data.cases.y[[0, 0, 3, 3]], torch.tensor([0, 0, 3, 3])), SPEC)
    found = fuzz("noise", Threshold(), doubled, run="a", eps=0.3)
    assert found.seeds == 4
    cases = found.load()
    assert len(cases.x.unique(dim=0)) == len(cases) == 4


def test_what_leaves_the_bounds_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def far(bench, cases, *, rng):\n    'Leaves the bounds.'\n    return cases.x + 5\n")
    found = fuzz("noise", Threshold(), seeds(), run="a", changes={"mutate": f"{file}:far"})
    assert found.failures == 0


def test_a_seeder_may_make_seeds_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def brighter(bench, cases, *, rng):\n    'Makes new inputs.'\n"
        "    return cases.with_x((cases.x + 0.02).clamp(0, 1))\n"
    )
    found = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, changes={"seeds": f"{file}:brighter"})
    cases = found.load()
    assert torch.allclose(cases.info["seed_x"], seeds().cases.x[cases.origin] + 0.02)
    again = fuzz("noise", Threshold(), seeds(), run="a", eps=0.1, changes={"seeds": f"{file}:brighter"})
    assert again.failures == found.failures
