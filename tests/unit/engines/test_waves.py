"""Waves in one process: units that begin alike, and what they learnt merged in their order."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.cli import run as command
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind
from assay.engines.guidance import Guidance
from assay.engines.waves import WAVE, Waves, wave_of
from assay.stages.coverage import Coverage
from assay.stages.strategies import Chooser
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.module import ModuleTarget
from small import committed, fuzz, prepare


@pytest.fixture
def eyes(linear_target: Callable[..., ModuleTarget]) -> Observer:
    """Six neurons: three logits and three of the softmax."""
    return Observer.of([linear_target()], "auto", ends=True)


def seen(values: Tensor) -> Seen:
    n = len(values)
    return Seen(torch.zeros(n, 3), torch.zeros(n, 0, 3), values, torch.zeros(n, 2), torch.ones(n, 2))


def coverage(name: str, eyes: Observer) -> Coverage:
    made: Coverage = bind("criterion", name, {})().begin(eyes, None)
    return made


def values(seed: int, eyes: Observer) -> Tensor:
    return torch.rand(5, eyes.neurons, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["nlc", "nc", "tknp", "cc"])
def test_what_units_of_a_wave_cover_is_what_one_after_another_covers(name: str, eyes: Observer) -> None:
    whole, guidance = coverage(name, eyes), Guidance(coverage(name, eyes))
    waves = Waves(2, guidance)
    for keeper in (whole, guidance.coverage):
        assert keeper is not None
        keeper.add(seen(values(0, eyes)))
    waves.known = guidance.known()
    base = waves.base(0)
    news = []
    for unit in (0, 1):  # each from the base, whatever was learnt before
        waves.open(unit)
        assert guidance.coverage is not None
        for keeper in (guidance.coverage, guidance.added):
            if keeper is not None:
                keeper.add(seen(values(unit + 1, eyes)))
        news.append(waves.news())
        whole.add(seen(values(unit + 1, eyes)))
    for unit, learnt in enumerate(news):
        waves.commit(unit, learnt)
    assert guidance.coverage is not None
    assert guidance.coverage.covered() == pytest.approx(whole.covered(), rel=1e-9)
    assert waves.base(1) is base
    assert waves.base(2) is waves.known, "the next wave begins with what both have learnt"


def began(eyes: Observer, name: str, **params: object) -> Chooser:
    made: Chooser = bind("strategy", name, params)().begin(eyes, Stream(7))
    return made


def worked(chooser: Chooser, eyes: Observer, seed: int, n: int = 5) -> None:
    """A seed in each of n lanes, from its first case to its last."""
    no = torch.zeros(n, dtype=torch.bool)
    lanes = Cases.of(torch.zeros(n, 1, 4, 4)).note(opening=no, ended=no, step=torch.ones(n, dtype=torch.int64))
    lanes, here = chooser.start(lanes), seen(values(seed, eyes))
    rng: Rows = Stream(seed).rows(torch.arange(n))
    chooser.choose(lanes, here, coverage("nc", eyes), rng)
    chooser.end(chooser.learn(lanes, here, failing=~no, counted=~no))


@pytest.mark.parametrize(
    ("name", "params"),
    [("often", {"k": 2}), ("near", {"k": 2}), ("mixed", {"of": "often, rare", "m": 2}), ("adapt", {"k": 2})],
)
def test_a_chooser_merges_what_two_others_learnt_from_the_same_state(
    name: str, params: dict[str, Any], eyes: Observer
) -> None:
    first, second, both, alone = (began(eyes, name, **params) for _ in range(4))
    for chooser in (first, second, both, alone):
        worked(chooser, eyes, 0)
        chooser.load(chooser.state())  # what comes now is news
    worked(first, eyes, 1)
    worked(second, eyes, 2)
    worked(alone, eyes, 1)
    worked(alone, eyes, 2)
    both.merge(first.news())
    both.merge(second.news())
    merged, whole = both.state(), alone.state()
    assert set(merged) == set(whole)
    for part in (part for part in merged if part.endswith(("counts", "failing", "places"))):
        assert torch.equal(merged[part], whole[part]), part
    if name == "adapt":
        assert torch.equal(merged["covered"], whole["covered"]), "records in the order of units"


def test_what_was_bred_elsewhere_breeds_on(eyes: Observer) -> None:
    there, here = (began(eyes, "adapt", k=2, population=4) for _ in range(2))
    there.load(here.state())
    worked(there, eyes, 1, n=5)
    here.merge(there.news())
    assert here.state()["places"].tolist() == [1, 0, 0], "five seeds spend a generation of four"
    assert torch.equal(here.state()["used"], there.state()["used"])


class Forgetful:
    """A strategy of somebody's own, from before there were waves."""

    k = 1

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        return


def test_how_many_units_a_wave_has() -> None:
    plain, own = Guidance(), Guidance(chooser=Forgetful())  # type: ignore[arg-type]  # that is the point
    assert wave_of("auto", {}, plain, at_once=False) == 1
    assert wave_of("auto", {}, plain, at_once=True) == WAVE
    assert wave_of("auto", {"unit": 8}, plain, at_once=True) == 1, "a run goes on as it began"
    assert wave_of("auto", {"wave": 7}, plain, at_once=False) == 7
    assert wave_of(3, {"wave": 7}, plain, at_once=False) == 3
    assert wave_of("auto", {}, own, at_once=True) == 1
    for asked, words in ((2, "--wave 1"), (0, "from 1 up")):
        with pytest.raises(UsageError, match=words):
            wave_of(asked, {}, own, at_once=True)


def test_a_run_in_waves_goes_on_from_wherever_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(tmp_path, seeds=60)
    assert command(fuzz("whole", "--deterministic", "--wave", "3", "--cases", "500")) == 0
    for cases in range(40, 501, 46):
        assert command(fuzz("parts", "--deterministic", "--wave", "3", "--cases", str(cases))) == 0
    assert command(fuzz("parts", "--deterministic", "--cases", "500")) == 0, "its wave is known"
    one, other = (committed(tmp_path / "runs" / name) for name in ("whole", "parts"))
    del one["campaign.toml"], other["campaign.toml"]
    assert one == other
    capsys.readouterr()
    assert command(fuzz("parts", "--deterministic", "--wave", "2", "--cases", "500")) == 4
    assert "wave" in capsys.readouterr().err


def test_units_of_a_wave_know_nothing_of_each_other(tmp_path: Path) -> None:
    """With waves as long as the run every unit begins with what the seeds cover; one by one they do not."""
    prepare(tmp_path, seeds=60)
    for name, wave in (("one", "1"), ("many", "100"), ("more", "200")):
        assert command(fuzz(name, "--deterministic", "--wave", wave, "--cases", "300")) == 0
    shards = [committed(tmp_path / "runs" / name) for name in ("one", "many", "more")]
    kept = [{n: c for n, c in files.items() if n.startswith(("cases/", "state/"))} for files in shards]
    assert kept[1] == kept[2]
    assert kept[0] != kept[1]
