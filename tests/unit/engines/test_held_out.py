"""The part of the data that a model has not learned from: who gets it, when there is none, what is refused."""

import copy
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.cli import run
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.engines.harden import harden
from assay.engines.train import train
from assay.recipes.recipe import Recipe
from assay.stages import mining, slicing
from assay.stages.trainers import dare
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Data, Splits, held_out, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources import checkpoint

SHARE = 0.5
HARDENING: dict[str, Any] = {
    "until": "fgsm>=1",
    "eps": 0.1,
    "suite": "fgsm",
    "run": "h",
    "val_cases": 30,
    "test_cases": 20,
    "control": False,
    "device": "cpu",
}
SEEN: list[tuple[Splits, str]] = []  # what trainers were given


def mining_spy(
    module: nn.Module, data: Splits, extra: Cases | None, *, rng: Stream, watch: Watch, history: str = ""
) -> nn.Module:
    """Learns nothing."""
    SEEN.append((data, history))
    return copy.deepcopy(module)


def plain_spy(module: nn.Module, data: Splits, extra: Cases | None, *, rng: Stream, watch: Watch) -> nn.Module:
    """Learns nothing, and mines nothing."""
    SEEN.append((data, ""))
    return copy.deepcopy(module)


@pytest.fixture(autouse=True, scope="module")
def _known() -> None:
    """Not at import: tests over the registry are collected then."""
    register("trainer", name="mining_spy", needs=("train", "history"))(mining_spy)
    register("trainer", name="plain_spy", needs=("train",))(plain_spy)


@pytest.fixture(autouse=True)
def _unseen() -> Iterator[None]:
    yield
    SEEN.clear()


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A net trained on half of digits, its epochs kept, as a person does it."""
    out = tmp_path_factory.mktemp("half") / "half.safetensors"
    words = ["train", "lenet1", "--data", "digits", "--hold-out", f"{SHARE}", "--history", "all", "--out", str(out)]
    assert run([*words, "--epochs", "4", "--batch", "100", "--quiet"]) == 0
    return f"lenet1@{out}"


@pytest.fixture(scope="module")
def parts() -> tuple[Splits, Data]:
    """The data whose training part is T, and D."""
    return held_out(load_splits("digits"), SHARE)


def history(model: str) -> str:
    return model.partition("@")[2].replace(".safetensors", ".history")


def same(one: Data | None, other: Data | None) -> bool:
    """The same inputs with the same labels in the same order."""
    assert one is not None
    assert other is not None
    return torch.equal(one.cases.x, other.cases.x) and torch.equal(one.cases.y, other.cases.y)


def seen_by(model: str, data: str | Splits = "digits", out: str = "spied", spy: str = "mining_spy") -> Splits:
    """What a trainer is given for that model."""
    train(model, data, f"{out}.safetensors", trainer=spy)
    return SEEN[-1][0]


def trained(model: str, out: str, **options: object) -> str:
    """A plain training that goes on from it."""
    path = Path(f"{out}.safetensors").absolute()
    train(model, "digits", path, params={"epochs": 1, "batch": 100}, **options)  # type: ignore[arg-type]
    return f"lenet1@{path}"


# What is held out.


def test_one_that_mines_gets_what_the_model_has_not_seen_and_what_it_has(half: str, parts: tuple[Splits, Data]) -> None:
    whole, (kept, out) = with_validation(load_splits("digits")), parts
    assert len(kept.part("train")) + len(out) == len(whole.part("train"))
    given = seen_by(half)
    assert same(given.part("train"), kept.part("train")), "T: what the model was trained on"
    assert same(given.held_out, out), "D: what it was not"
    assert not same(given.part("train"), out)
    assert same(given.part("val"), whole.part("val"))
    assert SEEN[-1][1] == history(half)
    fingerprint = checkpoint.read_meta(Path(half.partition("@")[2]))["training"]["train_fingerprint"]
    assert given.part("train").fingerprint() == fingerprint


def test_hardening_gives_the_same(half: str, parts: tuple[Splits, Data]) -> None:
    recipe = Recipe(name="spies", summary="Looks.", train="mining_spy", control="plain_spy")
    harden(recipe, half, "digits", **HARDENING | {"control": True})
    (own, folder), (control, _) = SEEN
    assert same(own.part("train"), parts[0].part("train"))
    assert same(own.held_out, parts[1])
    assert folder == history(half)
    assert same(control.part("train"), parts[1]), "the control learns from what was mined"


def test_dare_mines_only_what_was_held_out(
    half: str, parts: tuple[Splits, Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, out = parts
    asked: list[Cases] = []
    profiled: list[Tensor] = []

    def mined(module: nn.Module, snapshots: object, cases: Cases, **named: object) -> mining.Mined:
        asked.append(cases)
        return mining.mined(module, snapshots, cases, **named)  # type: ignore[arg-type]

    def sliced(kind: str, module: nn.Module, cut: object, cases: Cases, *rest: object, **named: object) -> object:
        profiled.append(cases.x)
        return slicing.slice_of(kind, module, cut, cases, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(dare, "mined", mined)
    monkeypatch.setattr(dare, "slice_of", sliced)
    notes = train(half, "digits", "d.safetensors", trainer="dare(epochs=1)").notes
    (learn,) = asked
    assert torch.equal(learn.x, out.cases.x[learn.origin])
    assert torch.equal(learn.y, out.cases.y[learn.origin])
    assert notes["inputs"] == len(learn)
    assert notes["inputs"] + notes["checked"] == len(out)
    assert 0 < notes["used"] <= notes["inputs"]
    assert notes["inputs_from"] == "held-out part"
    assert notes["history"] == history(half)
    assert torch.equal(profiled[0], kept.part("train").cases.x), "units are profiled on what the net has learned from"


def test_others_get_the_whole_training_part(half: str) -> None:
    seen_by(half, spy="plain_spy")
    harden(Recipe(name="spies", summary="Looks.", train="plain_spy"), half, "digits", **HARDENING)
    assert len(SEEN) == 2
    for given, _ in SEEN:
        assert same(given.part("train"), with_validation(load_splits("digits")).part("train"))
        assert given.held_out is None


# When there is none.


def test_a_model_trained_on_everything_has_none(
    digits_model: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("assay"), "propagate", True)  # a command line takes the log for itself
    given = seen_by(digits_model)
    assert given.held_out is None
    assert same(given.part("train"), with_validation(load_splits("digits")).part("train"))
    assert "--hold-out" in caplog.text


def test_what_mined_it_has_learned_from_it(half: str) -> None:
    seen_by(half, out="mined")
    assert seen_by("lenet1@mined.safetensors", out="again").held_out is None


def test_goes_on_from_one_that_knows_it(half: str, digits_model: str, parts: tuple[Splits, Data]) -> None:
    """Held out of the second training is not held out of the first."""
    same_half = trained(half, "same", hold_out=SHARE)
    assert same(seen_by(same_half, out="a").held_out, parts[1])
    everything = trained("lenet1", "everything")
    assert seen_by(trained(everything, "late", hold_out=SHARE), out="b").held_out is None
    assert seen_by(trained(half, "more"), out="c").held_out is None, "nothing was held out from its second training"
    assert seen_by(trained(half, "other", hold_out=0.25), out="d").held_out is None, "D of one half is T of the other"


def test_what_a_user_holds_out_is_kept(half: str, parts: tuple[Splits, Data]) -> None:
    whole = with_validation(load_splits("digits"))
    own = replace(whole, train=whole.part("train")[:300], held_out=whole.part("train")[300:420])
    given = seen_by(half, own)
    assert same(given.part("train"), own.train)
    assert same(given.held_out, own.held_out)


# What is refused.


def other_data() -> dict[str, Splits]:
    """Data that look alike: one label, one input, the order is another."""
    whole = with_validation(load_splits("digits"))
    cases = whole.part("train").cases
    relabelled = replace(cases, y=torch.cat([(cases.y[:1] + 1) % 10, cases.y[1:]]))
    turned = cases[torch.arange(len(cases)).flip(0)]
    return {
        name: replace(whole, train=replace(whole.part("train"), cases=changed))
        for name, changed in {"fewer": cases[:-1], "relabelled": relabelled, "turned": turned}.items()
    }


@pytest.mark.parametrize("name", ["fewer", "relabelled", "turned"])
def test_other_data_are_refused(half: str, name: str) -> None:
    """What would be held out of them the model may have learned from."""
    data = other_data()[name]
    with pytest.raises(UsageError, match="held out a part of other data than digits"):
        train(half, data, "d.safetensors", trainer="mining_spy")
    recipe = Recipe(name="spies", summary="Looks.", train="mining_spy")
    with pytest.raises(UsageError, match="held out a part of other data than digits"):
        harden(recipe, half, data, **HARDENING)
    assert not SEEN
    assert not Path("d.safetensors").exists()


def test_a_share_that_is_not_the_models_is_refused(half: str, digits_model: str, parts: tuple[Splits, Data]) -> None:
    def asked(model: str, share: float, out: str) -> Splits:
        train(model, "digits", f"{out}.safetensors", trainer="mining_spy", hold_out=share)
        return SEEN[-1][0]

    for model, share in ((half, 0.3), (digits_model, SHARE)):
        with pytest.raises(UsageError, match="leave it out"):
            asked(model, share, "a")
    seen_by(half, out="mined")
    with pytest.raises(UsageError, match="leave it out"):
        asked("lenet1@mined.safetensors", SHARE, "a")
    assert same(asked(half, SHARE, "b").held_out, parts[1]), "what it says itself may be said again"
    # A model that says nothing of its training is believed.
    weights, facts = checkpoint.read(Path(half.partition("@")[2]))
    bare = Path("bare.safetensors")
    checkpoint.write(bare, weights, {name: told for name, told in facts.items() if name not in ("training", "history")})
    assert seen_by(f"lenet1@{bare}", out="c").held_out is None
    assert same(asked(f"lenet1@{bare}", SHARE, "d").held_out, parts[1])
