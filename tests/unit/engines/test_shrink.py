"""Shrinking a run: which cases, which models are asked, and what the run keeps of it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.core import store, userfile
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.images import to_bytes, to_float
from assay.core.shards import decode, encode
from assay.engines import shrink as module
from assay.engines.found import Found, load_failures
from assay.engines.shrink import shrink
from assay.engines.shrinkings import load_shrunk
from assay.engines.shrunk import shrunk
from assay.outputs.shrunk import shrunk_facts
from assay.subjects.sources.load import load_target
from thresholds import Threshold, line


@pytest.fixture
def weights(digits_weights: Path, tmp_path: Path) -> Path:
    """A copy of the trained net that a test may spoil."""
    return Path(shutil.copy(digits_weights, tmp_path / "w.safetensors"))


@pytest.fixture
def digits_run(weights: Path) -> Found:
    changes = {"score": "zol"}
    return assay.fuzz("noise", f"lenet5@{weights}", "digits/train[:200]", run="digits", eps=0.4, changes=changes)


def kept(found: Found) -> list[str]:
    return sorted(path.name for path in (found.run / "state").glob("shrunk-*"))


def test_a_run_keeps_its_failures_and_what_is_left_of_them(digits_run: Found, weights: Path) -> None:
    before = load_failures(store.read(digits_run.run))
    made = assay.shrink("digits", by="blocks,pixels")
    assert (made.of, made.failing, made.new, made.complete) == (len(before), len(before), True, True)
    after = load_failures(store.read(digits_run.run))
    assert torch.equal(after.x, before.x), "the originals stay"
    # Every case: some of its own change and nothing else, the same wrong class, and no pixel to spare.
    cases, seeds = made.cases, before.info["seed_x"]
    assert bool(((cases.x == before.x) | (cases.x == seeds)).all())
    assert torch.equal(cases.info["pred"], before.info["pred"])
    assert "zol" in before.info
    assert "zol" not in cases.info, "it was the score of another input"
    target = load_target(f"lenet5@{weights}", data=None)
    with torch.no_grad():
        assert torch.equal(target(cases.x).argmax(1), before.info["pred"])
        for x, seed, pred in zip(cases.x[:5], seeds, cases.info["pred"], strict=False):
            places = (x != seed).any(0).nonzero()
            fewer = x.repeat(len(places), 1, 1, 1)
            for row, (i, j) in enumerate(places.tolist()):
                fewer[row, :, i, j] = seed[:, i, j]
            assert not bool((target(fewer).argmax(1) == pred).any())
    medians = made.medians()
    assert medians["changed"] < medians["changed_before"]  # type: ignore[operator]  # there are failures

    again = shrink("digits", by="blocks(side=4), pixels")
    assert not again.new
    assert torch.equal(again.cases.x, cases.x)
    assert kept(digits_run) == ["shrunk-001-000000.safetensors"]
    loaded = load_shrunk(store.read(digits_run.run), 1)
    assert torch.equal(loaded.cases.x, cases.x)
    with pytest.raises(UsageError, match="its last one is 1"):
        load_shrunk(store.read(digits_run.run), 2)


def test_a_shrunk_case_fails_as_its_picture_is_read_where_it_says_so(digits_run: Found, weights: Path) -> None:
    before = load_failures(store.read(digits_run.run))
    made = shrink("digits")
    cases, seeds = made.cases, before.info["seed_x"]
    assert 0 < made.eight_bit <= len(cases)  # type: ignore[operator]  # the pass was among them
    assert bool(cases.info["minimal"].all())
    assert bool(((cases.x - seeds).abs() <= (before.x - seeds).abs()).all()), "in every ball that the case lay in"
    target = load_target(f"lenet5@{weights}", data=None)
    with torch.no_grad():
        assert torch.equal(target(cases.x).argmax(1), before.info["pred"])
        read = target(to_float(to_bytes(cases.x))).argmax(1)
    assert bool((read == before.info["pred"])[cases.info["eight_bit"]].all())


def test_shrinkings_made_before_there_were_levels_are_read(digits_run: Found) -> None:
    made = shrink("digits", by="pixels", k=3)
    name = Path(made.files[0])
    columns = {key: value for key, value in decode((made.run / name).read_bytes()).items() if key != "eight_bit"}
    with store.continued(made.run) as run:
        asked = run.lines[-1].meta["asked"] | {"by": "blocks(side=4), pixels"}
        files = {"state/shrunk-002-000000.safetensors": encode(columns)}
        run.commit(files, kind="shrink", number=2, cases=3, of=3, asked=asked)
    old = load_shrunk(store.read(made.run), 2)
    assert (old.eight_bit, old.failing, old.complete) == (None, 3, True)
    assert shrunk_facts(old)["cases"] == "3"
    assert "shrunk: " in assay.report(made.run).read_text()


def test_reading_what_is_there_needs_no_model(digits_run: Found, weights: Path) -> None:
    first = shrink("digits", k=3)
    weights.unlink()
    assert torch.equal(shrink("digits", k=3).cases.x, first.cases.x)
    with pytest.raises(UsageError, match="cannot be used"):
        shrink("digits", k=4)


def test_what_is_asked_for_otherwise_is_kept_beside_it(digits_run: Found) -> None:
    more: tuple[dict[str, Any], ...] = ({}, {"by": "pixels"}, {"any_failure": True}, {"budget": 9})
    numbers = [shrink("digits", k=k, **given).number for k, given in [(5, {}), *((4, given) for given in more)]]
    assert numbers == [1, 2, 3, 4, 5]
    assert shrink("digits", k=4, by="eight_bit,blocks(side=4), pixels,line,eight_bit").number == 2, "auto is just that"
    short = load_shrunk(store.read(digits_run.run), 5)
    assert not bool(short.cases.info["minimal"].any())


def test_a_selection_is_shrunk_in_its_order(digits_run: Found) -> None:
    picked = assay.select("digits", by="random", k=5, seed=3)
    made = shrink("digits", selected=1, k=4)
    assert torch.equal(made.cases.origin, picked.cases.origin[:4])
    every = load_failures(store.read(digits_run.run))
    assert torch.equal(every.x[made.cases.info["row"]], picked.cases.x[:4])


def test_a_shrinking_that_was_stopped_goes_on(digits_run: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shrink("digits", by="pixels", k=10)
    monkeypatch.setattr(module, "BLOCK", {"cpu": 4})
    calls = []

    def stopped(*args: object, **given: object) -> Cases:
        calls.append(len(args[1]))  # type: ignore[arg-type]  # the cases
        if len(calls) == 2:
            raise KeyboardInterrupt
        return shrunk(*args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "shrunk", stopped)
    with pytest.raises(KeyboardInterrupt):
        shrink("digits", k=10)
    halfway = load_shrunk(store.read(digits_run.run), 2)
    assert (halfway.of, halfway.complete) == (4, False)
    made = shrink("digits", k=10)
    assert calls == [4, 4, 4, 2], "the first block is not done again"
    assert (made.number, made.of, made.complete) == (2, 10, True)
    assert len(made.files) == 3
    assert torch.equal(made.cases.origin, whole.cases.origin)
    assert store.read(digits_run.run).damage == []


def test_a_run_that_found_more_is_shrunk_anew(weights: Path) -> None:
    given = {"run": "grows", "eps": 0.4, "unit": 20}
    assay.fuzz("noise", f"lenet5@{weights}", "digits/train[:200]", cases=300, **given)  # type: ignore[arg-type]
    first = shrink("grows")
    assay.fuzz("noise", f"lenet5@{weights}", "digits/train[:200]", cases=4000, **given)  # type: ignore[arg-type]
    more = shrink("grows")
    assert (first.number, more.number) == (1, 2)
    assert more.of > first.of
    assert torch.equal(load_shrunk(store.read(more.run), 1).cases.x, first.cases.x)


def test_a_live_model_is_given_again_and_another_may_not_fail() -> None:
    found = assay.fuzz("noise", Threshold(), line(width=6), run="live", eps=0.15)
    with pytest.raises(UsageError, match="give --model"):
        shrink("live")
    made = shrink("live", model=Threshold())
    assert made.by == "entries, line(steps=10)"
    assert made.failing == len(found)
    # A net that says "low" of everything: only cases that are high by label fail on it.
    fixed = shrink("live", model=Threshold(9.0))
    every = load_failures(store.read(found.run))
    assert (fixed.of, fixed.failing) == (len(every), int((every.y == 1).sum()))
    assert bool((fixed.cases.info["changed"] == 0).all()), "their seeds fail there, too"


def test_models_that_are_compared_are_found_again(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    assay.train("lenet5", "digits", other, params={"epochs": 3, "batch": 32, "lr": 2e-3}, seed=5)
    data, changes = "digits/train[:150]", {"oracle": "disagree", "seeds": "agreed"}
    given = {"run": "pair", "eps": 0.4, "siblings": [f"lenet5@{other}"], "changes": changes}
    found = assay.fuzz("noise", f"lenet5@{weights}", data, **given)  # type: ignore[arg-type]
    assert len(found)
    made = shrink("pair", k=10)
    assert made.failing == min(10, len(found))
    nets = [load_target(f"lenet5@{path}") for path in (weights, other)]
    with torch.no_grad():
        own, others = (net(made.cases.x).argmax(1) for net in nets)
    assert bool((own != others).all())
    assert torch.equal(own, made.cases.info["pred"])
    moved = other.rename(tmp_path / "moved.safetensors")
    with pytest.raises(UsageError, match=r"other\.safetensors"):
        shrink("pair", k=5)
    assert shrink("pair", k=5, siblings=[f"lenet5@{moved}"]).failing == min(5, len(found))


def test_live_models_that_were_compared_are_asked_for(weights: Path) -> None:
    changes = {"oracle": "disagree", "seeds": "agreed"}
    sibling = Threshold(0.45)
    assay.fuzz("noise", Threshold(), line(width=6), run="live", eps=0.2, siblings=[sibling], changes=changes)
    with pytest.raises(UsageError, match="--with MODEL"):
        shrink("live", model=Threshold())
    assert shrink("live", model=Threshold(), siblings=[sibling]).failing


def test_an_oracle_of_the_users_own_decides_and_its_code_counts(tmp_path: Path) -> None:
    """A wrong class is a failure only while two entries differ, which are the same in the seeds."""
    file = tmp_path / "mine.py"

    def written(entry: int) -> None:
        file.write_text(
            "def moved(bench, cases):\n    'Whether it moved.'\n"
            f"    return (bench.logits(cases).argmax(1) != cases.y) & (cases.x[:, {entry}] != cases.x[:, 2])\n"
        )
        userfile._load_file.cache_clear()  # as a new process does
        module._digest.cache_clear()

    written(0)
    assay.fuzz("noise", Threshold(), line(width=6), run="own", eps=0.15, changes={"oracle": f"{file}:moved"})
    first = shrink("own", model=Threshold())
    assert first.failing
    assert bool((first.cases.x[:, 0] != first.cases.x[:, 2]).all())
    assert not shrink("own", model=Threshold()).new
    written(1)
    second = shrink("own", model=Threshold())
    assert (second.number, second.new) == (2, True)
    assert bool((second.cases.x[:, 1] != second.cases.x[:, 2]).all())


def test_other_kinds_of_runs_are_refused(digits_model: str) -> None:
    assay.evaluate(digits_model, "digits/test[:20]", suite="fgsm", eps=0.1, save="kept")
    with pytest.raises(UsageError, match="keeps no seeds"):
        shrink("kept")
    with pytest.raises(UsageError, match="no run"):
        shrink("nothing")
    with pytest.raises(UsageError, match="-k"):
        shrink("kept", k=0)
    assay.fuzz("noise", digits_model, "digits/train[:5]", run="clean", eps=0.0001)
    with pytest.raises(NothingToTest):
        shrink("clean")
