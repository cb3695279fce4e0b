"""Selection from a run: which cases, which model is asked, and what the run keeps."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import assay
from assay.core import store, userfile
from assay.core.cases import Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.core.registry import bind
from assay.core.shards import decode
from assay.engines import select as module
from assay.engines.blocks import load_examples
from assay.engines.found import Found, load_failures
from assay.engines.select import load_selection, select
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from planted import hairsplitter
from thresholds import Threshold, line


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
    picked = assay.select("live", by="random", k=5).cases
    every = found_rows(live.load())
    assert len(picked) == 5
    assert len(set(found_rows(picked))) == 5
    assert set(found_rows(picked)) <= set(every)
    assert {"pred", "l2", "seed_x"} <= set(picked.info)


def test_the_same_call_reads_what_the_first_one_kept(live: Found) -> None:
    first = select("live", by="random", k=4, seed=3)
    journal = (live.run / "journal.jsonl").read_bytes()
    again = select(live.run, by="random", k=4, seed=3)
    assert (first.new, again.new) == (True, False)
    assert first.number == again.number == 1
    assert torch.equal(first.cases.x, again.cases.x)
    assert (live.run / "journal.jsonl").read_bytes() == journal
    for change in ({"seed": 4}, {"k": 5}, {"by": "top(score=l2)"}):
        assert select("live", **({"by": "random", "k": 4, "seed": 3} | change)).new  # type: ignore[arg-type]
    assert kept(live) == [f"selected-00{i}.safetensors" for i in (1, 2, 3, 4)]
    assert not store.read(live.run).damage


def test_a_run_that_grew_is_selected_from_anew_and_keeps_the_old_choice(live: Found) -> None:
    first = select("live", by="random", k=4)
    grown = assay.fuzz("noise", Threshold(), line(), run="live", eps=0.15, cases=4 * live.cases)
    assert grown.failures > live.failures
    assert torch.equal(load_selection(store.read(live.run), 1).cases.x, first.cases.x)
    second = select("live", by="random", k=4)
    assert (second.number, second.of) == (2, grown.failures)


def test_a_stored_column_is_a_score_and_asks_no_model(digits_run: Found, weights: Path) -> None:
    weights.unlink()
    l2 = digits_run.load().info["l2"]
    picked = select("digits", by="top(score=l2, largest=false)", k=6)
    assert picked.score == "l2"
    assert torch.equal(picked.cases.info["l2"].float(), l2.sort().values[:6])
    with pytest.raises(UsageError, match=r"model of run digits cannot be used: no such checkpoint.*give --model"):
        assay.select("digits", by="top(score=gini)", k=6)
    assert kept(digits_run) == ["selected-001.safetensors"], "what failed left nothing"


def test_the_runs_own_model_gives_the_scores(digits_run: Found, digits_model: str) -> None:
    cases = digits_run.load()
    share = load_target(digits_model)(cases.x).softmax(1)
    gini = 1 - share.square().sum(1)
    picked = select("digits", by="top(score=gini)", k=8)
    assert picked.of == len(cases)
    assert torch.allclose(picked.cases.info["gini"].float(), gini.sort(descending=True).values[:8], atol=1e-5)
    stored = decode((digits_run.run / picked.file).read_bytes())
    assert torch.equal(cases.x[stored["rows"]], picked.cases.x)


def test_training_data_of_ones_own(digits_run: Found, weights: Path) -> None:
    """Of data that nobody finds again they are not known; given, they are part of what is asked."""
    data = load_data("digits/train[:150]")
    fuzzed = assay.fuzz("noise", f"lenet5@{weights}", replace(data, name="made", source=""), run="unknown", eps=0.4)
    by = "top(score=mdsa)"
    with pytest.raises(UsageError, match="give --training"):
        select("unknown", by=by, k=5)
    picked = select("unknown", by=by, k=5, training="digits/train")
    bench = Bench(load_target(f"lenet5@{weights}"), training=load_data("digits/train"))
    values: Tensor = bind("score", "mdsa", {})(bench, fuzzed.load())
    assert torch.allclose(picked.cases.info["mdsa"].float(), values.sort(descending=True).values[:5], rtol=1e-3)
    assert not select("unknown", by=by, k=5, training="digits").new, "the training part is meant"
    other = select("unknown", by=by, k=5, training="digits/train[:400]")
    assert other.new
    assert not torch.equal(other.cases.info["mdsa"], picked.cases.info["mdsa"])
    assert [select("digits", by=by, k=5).new for _ in range(2)] == [True, False]
    wrong = Data("wide", Cases.of(torch.zeros(3, 4)), InputSpec((4,), (0.0, 1.0), ("a", "b")))
    with pytest.raises(UsageError, match="shape"):
        select("digits", by=by, k=5, training=wrong)


def test_eps_and_norm_reach_the_score(digits_run: Found) -> None:
    plain, scaled = (select("digits", by="bi_end", k=6, eps=eps, norm=norm) for eps, norm in ((None, ""), (2.0, "l2")))
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
        same = select("live", by="top(score=true_prob)", k=3, model=Threshold())
    assert "not the one" not in caplog.text
    other = select("live", by="top(score=true_prob)", k=3, model=Threshold(0.4))
    assert "not the one run live was made with" in caplog.text
    assert (same.number, other.number) == (1, 2), "another model makes another choice"
    assert not select("live", by="top(score=true_prob)", k=3, model=Threshold()).new


def test_the_normalisation_of_the_run_comes_with_its_net(tmp_path: Path) -> None:
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
    picked = select("kept", by="top(score=fol)", k=10**6, every=True, eps=0.1, norm="linf")
    assert picked.of == len(picked.cases) == sum(o.tried for o in result.attacks.values())
    seeds = data.cases.x[picked.cases.origin - 20]
    assert torch.equal(picked.cases.info["seed_x"], seeds)
    slope = Bench(load_target(digits_model)).gradient(picked.cases)
    by_hand = (0.1 * slope.abs() - (picked.cases.x - seeds) * slope).flatten(1).sum(1)
    assert torch.allclose(picked.cases.info["fol"].float(), by_hand, atol=1e-5)
    with caplog.at_level(logging.WARNING, "assay"):
        lost = select("kept", by="top(score=fol)", k=10**6, eps=0.1, norm="linf", data="digits/test[:60]")
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
    assert torch.equal(assay.select("live", by="mine.py:last", k=3).cases.x, live.load().x[-3:])


def test_where_there_are_fewer_all_are_taken(live: Found) -> None:
    assert len(assay.select("live", by="random", k=10**6)) == len(load_failures(store.read(live.run)))


def test_mistakes_are_told(live: Found) -> None:
    with pytest.raises(UsageError, match=r"-k is a number of cases from 1 up, or a share such as 10%, got 0"):
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


@pytest.mark.parametrize(
    ("asked", "reason", "success"),
    [({}, "static", [1]), ({"static": True}, "white-box", [1]), ({"every": True}, "static", [0, 1])],
)
def test_of_an_evaluation_failing_examples_of_one_column(
    asked: dict[str, bool], reason: str, success: list[int]
) -> None:
    assay.evaluate(Threshold(), line(), suite="fgsm", eps=0.1, static_from=Threshold(0.48), save="kept")
    every = load_examples("kept")
    assert sorted({(int(s), int(f)) for s, f in zip(every.info["static"], every.info["success"], strict=True)}) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    mine = every.info["static"].bool() == asked.get("static", False)
    fails = every.info["success"].bool()
    rows = (mine & (fails | asked.get("every", False))).nonzero().flatten()
    picked = select("kept", by="random", k=10**6, **asked)  # type: ignore[arg-type]
    quiet = {} if len(success) == 2 else {"not failing": int((mine & ~fails).sum())}
    assert picked.dropped == {reason: int((~mine).sum())} | quiet
    assert picked.of == len(picked.cases) == len(rows)
    folder = store.read(picked.run)
    assert decode(folder.file(picked.file))["rows"].sort().values.tolist() == rows.tolist()
    assert next(folder.commits("select")).meta["dropped"] == picked.dropped
    assert sorted(picked.cases.info["success"].int().unique().tolist()) == success
    assert torch.equal(load_selection(folder, 1).cases.x, picked.cases.x)


def test_an_evaluation_without_such_examples_has_none_to_pick(live: Found) -> None:
    assay.evaluate(Threshold(), line(), suite="fgsm", eps=0.0, save="robust")
    with pytest.raises(NothingToTest, match="robust holds no failing cases among its 60; see --all"):
        assay.select("robust", by="random", k=1)
    assert len(assay.select("robust", by="random", k=1, every=True)) == 1
    with pytest.raises(NothingToTest, match="live holds no static failing cases"):
        assay.select("live", by="random", k=1, static=True)


def test_a_share_is_of_what_is_left_to_pick_from(live: Found) -> None:
    count = len(live.load())
    assert select("live", by="random", k="10%").k == round(0.1 * count)
    assert len(assay.select("live", by="random", k="100%")) == count
    assert len(assay.select("live", by="random", k="0.001%")) == 1
    assert not select("live", by="random", k=round(0.1 * count)).new, "the same number is the same choice"
    for wrong in ("0%", "101%", "ten", "-3", "2.5", ""):
        with pytest.raises(UsageError, match=r"-k is a number of cases from 1 up, or a share such as 10%, got"):
            assay.select("live", by="random", k=wrong)


@pytest.mark.parametrize("by", ["mine.py:pick", "top(score=mine.py:rank)"])
def test_an_edited_file_selects_anew(live: Found, tmp_path: Path, by: str) -> None:
    def written(first: str, sign: str) -> None:
        (tmp_path / "mine.py").write_text(
            "import torch\n"
            f"def pick(bench, cases, k, *, rng):\n    'Some.'\n    return torch.arange(len(cases))[{first}]\n"
            f"def rank(bench, cases):\n    'Their place.'\n    return {sign}cases.x.flatten(1).sum(1)\n"
        )
        userfile._load_file.cache_clear()  # as a new process does
        module._digest.cache_clear()

    written(":3", "")
    before = select("live", by=by, k=3, model=Threshold())
    assert not select("live", by=by, k=3, model=Threshold()).new
    written("-3:", "-1 * ")
    after = select("live", by=by, k=3, model=Threshold())
    assert (after.number, after.new) == (2, True)
    assert not torch.equal(before.cases.x, after.cases.x)


def planted() -> Splits:
    """Two classes a hair apart in the second number, which no training pulls apart."""

    def part(name: str, n: int) -> Data:
        y = torch.arange(n) % 2
        x = torch.stack([torch.full((n,), 0.5), 0.5 + 0.03 * (2.0 * y - 1)], 1)
        return Data(f"planted/{name}", Cases.of(x, y), InputSpec((2,), (0.0, 1.0), ("a", "b")))

    return Splits("planted", part("train", 60), part("val", 32), part("test", 32))


def hardened(model: str | nn.Module) -> Path:
    told = assay.harden(
        "noise",
        model,
        planted(),
        until="pgd>=0.95",
        eps=0.15,
        run="h",
        rounds=2,
        fuzz_cases=300,
        per_round=20,
        changes={"train.epochs": 1, "train.lr": 0.3},
        device="cpu",
    )
    return told.run


@pytest.fixture
def by_text(tmp_path: Path) -> str:
    save_file(hairsplitter().state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "net.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 2)\n")
    return "net.py:net@w.safetensors"


def test_a_hardening_gives_the_failures_of_all_its_rounds(by_text: str) -> None:
    run = hardened(by_text)
    parts = [load_failures(store.read(run / f"round-00{i}")) for i in (1, 2)]
    picked = select("h", by="top(score=gini)", k=10**6, device="cpu")
    assert picked.of == len(picked.cases) == sum(map(len, parts))
    rows = decode((run / picked.file).read_bytes())["rows"]
    assert torch.equal(torch.cat([part.x for part in parts])[rows], picked.cases.x)
    first = torch.arange(picked.of) < len(parts[0])
    assert torch.equal(picked.cases.info["round"] == 1, first[rows])
    assert picked.classes == ("a", "b")
    share = load_target(by_text, data=planted().train)(picked.cases.x).softmax(1)
    assert torch.allclose(picked.cases.info["gini"].float(), 1 - share.square().sum(1), atol=1e-5), "the original's"
    assert hardened(by_text) == run, "what was added does not stop the hardening from being continued"


def test_a_round_of_a_hardening_has_the_model_it_fuzzed(by_text: str) -> None:
    run = hardened(by_text)
    picked = select(run / "round-002", by="top(score=gini)", k=5, device="cpu")
    share = load_target(f"net.py:net@{run}/models/round-001.safetensors")(picked.cases.x).softmax(1)
    assert torch.allclose(picked.cases.info["gini"].float(), 1 - share.square().sum(1), atol=1e-5)


def test_a_hardening_of_a_live_net_names_its_weights() -> None:
    run = hardened(hairsplitter())
    assert len(assay.select("h", by="random", k=3)) == 3
    for place, file in ((run, "round-000"), (run / "round-002", "round-001")):
        with pytest.raises(UsageError, match=rf"give --model NET@.*/h/models/{file}\.safetensors"):
            assay.select(place, by="top(score=gini)", k=3)


def test_a_round_that_lost_cases_is_told(by_text: str) -> None:
    run = hardened(by_text)
    next((run / "round-001" / "cases").iterdir()).unlink()
    with pytest.raises(UsageError, match=r"round-001 holds \d+ failures, round 1 had \d+; it is damaged"):
        assay.select("h", by="random", k=3)
