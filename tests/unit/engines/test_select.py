"""Selection from a run: which cases, which model is asked, and what the run keeps."""

import logging
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.core.shards import decode
from assay.engines.found import Found, load_failures
from assay.engines.select import load_selection, selection
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.load import load_target

SPEC = InputSpec((2,), (0.0, 1.0), ("low", "high"))


class Threshold(nn.Module):
    def __init__(self, level: float = 0.5) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(level))

    def forward(self, x: Tensor) -> Tensor:
        above = x.mean(1, keepdim=True) - self.level
        return torch.cat([-above, above], 1)


def line(n: int = 60) -> Data:
    x = torch.linspace(0.3, 0.7, n)[:, None].repeat(1, 2)
    return Data("line", Cases.of(x, (x.mean(1) > 0.5).long()), SPEC)


@pytest.fixture
def live() -> Found:
    """A run of a live net on pairs of numbers: it keeps no model."""
    return assay.fuzz("noise", Threshold(), line(), run="live", eps=0.15)


@pytest.fixture
def weights(digits_weights: Path, tmp_path: Path) -> Path:
    """A copy of the trained net that a test may spoil."""
    return Path(shutil.copy(digits_weights, tmp_path / "w.safetensors"))


@pytest.fixture
def digits_run(weights: Path) -> Found:
    return assay.fuzz("noise", f"lenet5@{weights}", "digits/train[:150]", run="digits", eps=0.4)


def kept(found: Found) -> list[str]:
    return sorted(path.name for path in (found.run / "state").glob("selected-*"))


def found_rows(cases: Cases) -> list[tuple[float, ...]]:
    return [tuple(row) for row in torch.cat([cases.x, cases.y[:, None], cases.origin[:, None]], 1).tolist()]


def test_random_rows_are_distinct_failures_of_the_run_and_need_no_model(live: Found) -> None:
    picked = assay.select("live", by="random", k=5)
    every = found_rows(live.load())
    assert len(picked) == 5
    assert len(set(found_rows(picked))) == 5
    assert set(found_rows(picked)) <= set(every)
    assert {"pred", "l2", "seed_x"} <= set(picked.info)


def test_the_same_call_reads_what_the_first_one_kept(live: Found) -> None:
    first = selection("live", by="random", k=4, seed=3)
    journal = (live.run / "journal.jsonl").read_bytes()
    again = selection(live.run, by="random", k=4, seed=3)
    assert (first.new, again.new) == (True, False)
    assert first.number == again.number == 1
    assert torch.equal(first.cases.x, again.cases.x)
    assert (live.run / "journal.jsonl").read_bytes() == journal
    for change in ({"seed": 4}, {"k": 5}, {"by": "top(score=l2)"}):
        assert selection("live", **({"by": "random", "k": 4, "seed": 3} | change)).new  # type: ignore[arg-type]
    assert kept(live) == [f"selected-00{i}.safetensors" for i in (1, 2, 3, 4)]
    assert not store.read(live.run).damage


def test_a_run_that_grew_is_selected_from_anew_and_keeps_the_old_choice(live: Found) -> None:
    first = selection("live", by="random", k=4)
    grown = assay.fuzz("noise", Threshold(), line(), run="live", eps=0.15, cases=4 * live.cases)
    assert grown.failures > live.failures
    assert torch.equal(load_selection(store.read(live.run), 1).cases.x, first.cases.x)
    second = selection("live", by="random", k=4)
    assert (second.number, second.of) == (2, grown.failures)


def test_a_stored_column_is_a_score_and_asks_no_model(digits_run: Found, weights: Path) -> None:
    weights.unlink()
    l2 = digits_run.load().info["l2"]
    picked = selection("digits", by="top(score=l2, largest=false)", k=6)
    assert picked.score == "l2"
    assert torch.equal(picked.cases.info["l2"].float(), l2.sort().values[:6])
    with pytest.raises(UsageError, match=r"model of run digits cannot be used: no such checkpoint.*give --model"):
        assay.select("digits", by="top(score=gini)", k=6)
    assert kept(digits_run) == ["selected-001.safetensors"], "what failed left nothing"


def test_the_runs_own_model_gives_the_scores(digits_run: Found, digits_model: str) -> None:
    cases = digits_run.load()
    share = load_target(digits_model)(cases.x).softmax(1)
    gini = 1 - share.square().sum(1)
    picked = selection("digits", by="top(score=gini)", k=8)
    assert picked.of == len(cases)
    assert torch.allclose(picked.cases.info["gini"].float(), gini.sort(descending=True).values[:8], atol=1e-5)
    stored = decode((digits_run.run / picked.file).read_bytes())
    assert torch.equal(cases.x[stored["rows"]], picked.cases.x)


def test_eps_and_norm_reach_the_score(digits_run: Found) -> None:
    plain, scaled = (
        selection("digits", by="bi_end", k=6, eps=eps, norm=norm) for eps, norm in ((None, ""), (2.0, "l2"))
    )
    assert "eps=2.0" in scaled.by
    assert torch.allclose(2 * plain.cases.info["fol"], scaled.cases.info["fol"])


def test_other_weights_under_the_same_name_are_refused(digits_run: Found, weights: Path) -> None:
    assay.train("lenet5", "digits", weights.with_name("v.safetensors"), params={"epochs": 1})
    weights.unlink()
    weights.with_name("v.safetensors").rename(weights)
    with pytest.raises(UsageError, match="is not the model that run digits was made with"):
        assay.select("digits", by="top(score=gini)", k=3)


def test_a_live_net_has_to_be_given_again(live: Found, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match="made with a live one; give --model"):
        assay.select("live", by="top(score=gini)", k=3)
    with caplog.at_level(logging.WARNING, "assay"):
        same = selection("live", by="top(score=true_prob)", k=3, model=Threshold())
    assert "not the one" not in caplog.text
    other = selection("live", by="top(score=true_prob)", k=3, model=Threshold(0.4))
    assert "not the one run live was made with" in caplog.text
    assert (same.number, other.number) == (1, 2), "another model makes another choice"
    assert not selection("live", by="top(score=true_prob)", k=3, model=Threshold()).new


def test_the_normalisation_of_the_run_comes_with_its_net(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    (tmp_path / "net.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), tmp_path / "w.safetensors")
    assay.fuzz(
        "noise",
        "net.py:net@w.safetensors",
        "digits/train[:60]",
        run="a",
        changes={"seeds": "all"},
        mean=(0.3,),
        std=(0.4,),
    )
    assert len(assay.select("a", by="top(score=gini)", k=3)) == 3


def test_examples_of_a_saved_evaluation_get_their_seeds_back(
    digits_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = assay.load_data("digits/test[20:60]")
    result = assay.evaluate(digits_model, data, suite="fgsm,pgd(steps=5)", eps=0.1, save="kept")
    picked = selection("kept", by="top(score=fol)", k=10**6, eps=0.1, norm="linf")
    assert picked.of == len(picked.cases) == sum(o.tried for o in result.attacks.values())
    seeds = data.cases.x[picked.cases.origin - 20]
    assert torch.equal(picked.cases.info["seed_x"], seeds)
    slope = Bench(load_target(digits_model)).gradient(picked.cases)
    by_hand = (0.1 * slope.abs() - (picked.cases.x - seeds) * slope).flatten(1).sum(1)
    assert torch.allclose(picked.cases.info["fol"].float(), by_hand, atol=1e-5)
    with caplog.at_level(logging.WARNING, "assay"):
        lost = selection("kept", by="top(score=fol)", k=10**6, eps=0.1, norm="linf", data="digits/test[:60]")
    assert "the seeds of run kept are not known" in caplog.text
    assert lost.new
    assert "seed_x" not in lost.cases.info


@pytest.mark.parametrize("rows", ["[0, 0, 1]", "[0, 1]", "[0, 1, 10**6]", "[0., 1., 2.]", "[-1, 0, 1]"])
def test_a_selector_that_returns_nonsense_is_named(live: Found, tmp_path: Path, rows: str) -> None:
    (tmp_path / "mine.py").write_text(
        f"import torch\ndef bad(bench, cases, k, *, rng):\n    'Bad.'\n    return torch.tensor({rows})\n"
    )
    with pytest.raises(UsageError, match="bad' must return 3 distinct rows"):
        assay.select("live", by="mine.py:bad", k=3)
    assert kept(live) == []


def test_a_users_selector_is_as_good_as_ours(live: Found, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\ndef last(bench, cases, k, *, rng):\n    'The last.'\n    return torch.arange(len(cases))[-k:]\n"
    )
    assert torch.equal(assay.select("live", by="mine.py:last", k=3).x, live.load().x[-3:])


def test_where_there_are_fewer_all_are_taken(live: Found) -> None:
    assert len(assay.select("live", by="random", k=10**6)) == len(load_failures(store.read(live.run)))


def test_mistakes_are_told(live: Found) -> None:
    with pytest.raises(UsageError, match="from 1 up; got 0"):
        assay.select("live", by="random", k=0)
    with pytest.raises(UsageError, match="unknown selector 'randum'; did you mean 'random'"):
        assay.select("live", by="randum", k=1)
    with pytest.raises(UsageError, match="no run 'nowhere'"):
        assay.select("nowhere", by="random", k=1)
    with pytest.raises(UsageError, match="has no selection 1; make one with assay select"):
        load_selection(store.read(live.run), 1)
    assay.fuzz("noise", Threshold(), line(), run="none", eps=0.0001)
    with pytest.raises(NothingToTest, match="run none holds no failures"):
        assay.select("none", by="random", k=1)
