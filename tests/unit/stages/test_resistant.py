"""The resistant trainer: what its heap holds, what is kept back, and which epoch is kept."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from assay.cli import app
from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.specs import step
from assay.engines.evaluate import evaluate
from assay.engines.train import train
from assay.stages.trainers import resistant as made_resistant
from assay.stages.trainers.kept_back import Parted, among, judge, kept_back, score
from assay.stages.trainers.loop import fit
from assay.stages.trainers.resistant import chosen, heap_for, heap_of, resistant, with_heap
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.bench import Data, Splits, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target, trained_with
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import answer

SPEC = InputSpec((1,), (0.0, 1.0), ("low", "high"))
RNG = Stream(3, ("test",))


class Step(nn.Module):
    """Class 1 above ``at``, for one number."""

    def __init__(self, at: float = 0.5) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(at))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.at - x, x - self.at], 1) * 20


def line(n: int) -> Cases:
    x = (torch.arange(n) + 0.5)[:, None] / n
    return Cases.of(x, (x[:, 0] > 0.5).long())


def made(cases: Cases, attacks: str = "fgsm, bim(steps=3, step=0.5)", eps: float = 0.1, **given: Any) -> Parted:
    target = ModuleTarget(Step(), SPEC)
    settings: dict[str, Any] = {"attacks": chosen(attacks, target, eps, "linf"), "share": 0.1, "rng": RNG}
    return heap_of(target, cases, **(settings | given))


def pairs(cases: Cases) -> list[tuple[int, int]]:
    return list(zip(cases.info["attack"].tolist(), cases.origin.tolist(), strict=True))


def test_counts_and_quotas_are_exact() -> None:
    heap = made(line(1000), share=0.11)
    assert (len(heap.learn), len(heap.check)) == (110, 11)
    assert heap.learn.info["attack"].bincount().tolist() == [55, 55]
    assert heap.check.info["attack"].bincount().tolist() == [6, 5]


def test_it_holds_successes_on_right_labelled_images_only_and_none_twice() -> None:
    cases = line(1000)
    y = cases.y.clone()
    y[400:480] = 1  # wrong, and near the limit
    y[480:490] = UNLABELLED
    cases = Cases(cases.x, y, cases.origin)
    heap = made(cases, share=0.12)
    both = Cases.cat([heap.learn, heap.check])
    assert torch.equal(both.y, cases.y[both.origin]), "the label is that of the image"
    assert not ((both.origin >= 400) & (both.origin < 490)).any()
    assert ((both.x[:, 0] > 0.5).long() != both.y).all()
    assert ((both.x - cases.x[both.origin]).abs() <= 0.1 + 1e-6).all()
    assert len(set(pairs(both))) == len(both)


def test_kept_back_cases_share_no_image_with_those_to_learn_from() -> None:
    heap = made(line(1000), share=0.15)
    assert not set(heap.learn.origin.tolist()) & set(heap.check.origin.tolist())
    assert kept_back(heap.check.origin, RNG.seed).all(), "as in the rounds of hardening"
    assert not kept_back(heap.learn.origin, RNG.seed).any()


def test_what_one_attack_lacks_another_fills() -> None:
    """One with a fifth of the eps reaches a fifth of the images: about 40 x 0.8 to learn from."""
    weak = "fgsm(eps=0.02), bim(steps=3, step=0.5)"
    heap = made(line(1000), weak, share=0.12)
    counts = heap.learn.info["attack"].bincount()
    reach = [i for i in range(480, 520) if not bool(kept_back(torch.tensor([i]), RNG.seed))]
    assert counts.tolist() == [len(reach), 120 - len(reach)]
    assert sorted(o for a, o in pairs(heap.learn) if a == 0) == reach


def test_where_all_is_tried_there_are_fewer_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "assay"):
        heap = made(line(1000), "fgsm", share=0.5)
    reach = torch.arange(400, 600)
    back = kept_back(reach, RNG.seed)
    assert sorted(heap.learn.origin.tolist()) == reach[~back].tolist()
    assert sorted(heap.check.origin.tolist()) == reach[back].tolist()
    assert f"{int((~back).sum())} of 500 cases to learn from" in caplog.text


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_and_chunks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    once = made(line(600), share=0.13)
    assert pairs(made(line(600), share=0.13, chunks=Chunks(5)).learn) == pairs(once.learn)
    monkeypatch.setattr(made_resistant, "BLOCK", block)
    again = made(line(600), share=0.13)
    for part in ("learn", "check"):
        assert pairs(getattr(again, part)) == pairs(getattr(once, part))
        assert torch.equal(getattr(again, part).x, getattr(once, part).x)


def test_another_seed_gives_another_heap() -> None:
    assert pairs(made(line(600)).learn) != pairs(made(line(600), rng=Stream(4, ("test",))).learn)


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_image_is_no_error(n: int) -> None:
    heap = made(line(1000)[500 : 500 + n], share=1.0)
    assert len(heap.learn) + len(heap.check) <= 2 * n
    assert heap.learn.x.shape[1:] == heap.check.x.shape[1:] == (1,)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"share": 0.0}, "share must be above 0"),
        ({"attacks": ""}, "needs attacks"),
        ({"attacks": "pgd(targeted=true)"}, "is targeted"),
        ({"attacks": "pdg"}, "did you mean 'pgd'"),
    ],
)
def test_nonsense_is_refused(given: dict[str, Any], says: str) -> None:
    share, attacks = given.get("share", 0.1), given.get("attacks", "fgsm")
    with pytest.raises(UsageError, match=says):
        made(line(100), attacks, share=share)


def test_the_score_puts_epochs_that_lose_clean_accuracy_behind() -> None:
    assert score(clean=0.99, failures=0.3, start=1.0) == 0.3, "a point exactly is allowed"
    assert score(clean=0.98, failures=0.3, start=0.97) == 0.3
    assert score(clean=0.979, failures=0.9, start=0.99) == pytest.approx(-0.1)
    epochs = [(0.99, 0.2), (0.98, 0.4), (0.9, 0.95)]
    assert max(epochs, key=lambda e: score(e[0], e[1], 0.99)) == (0.98, 0.4)


def test_the_floor_judge_tells_clean_cases_from_failures() -> None:
    clean = Data("clean", line(200), SPEC)
    failures = Cases.of(torch.tensor([[0.45], [0.48], [0.52], [0.55]]), torch.tensor([1, 1, 0, 0]))
    judged = judge("floor", Step())
    assert judged is not None
    moved = judged(Step(0.47), among(clean, failures).cases)  # right on 0.48; wrong on 6 of 200
    assert (moved["val_accuracy"], moved["failures_accuracy"]) == (0.97, 0.25)
    assert moved["score"] == pytest.approx(-0.75)
    near = judged(Step(0.49), among(clean, failures).cases)
    assert (near["val_accuracy"], near["score"]) == (0.99, 0.0)
    assert judged(Step(), clean.cases)["score"] == 1.0, "without failures it is plain accuracy"
    with pytest.raises(UsageError, match="floor"):
        judge("roof", Step())


def test_failures_stay_failures_when_more_come_behind_them() -> None:
    clean = Data("clean", line(20), SPEC)
    first, second = line(3), line(2)
    both = among(among(clean, first), second).cases
    assert both.info["failure"].tolist() == [0] * 20 + [1] * 5
    assert torch.equal(both.x, torch.cat([line(20).x, first.x, second.x]))


class Learned(Unwatched):
    """Notes the log, and stops where it is told to."""

    def __init__(self, state: State | None = None, stop: int = 99) -> None:
        self.state, self.stop = state, stop

    def resume(self) -> State | None:
        return self.state

    def epoch(self, state: State, net: nn.Module) -> None:
        copied = {name: {k: v.clone() for k, v in getattr(state, name).items()} for name in ("weights", "best")}
        self.state = State(state.epoch, copied["weights"], {}, {}, copied["best"], list(state.log))
        if state.epoch == self.stop:
            raise KeyboardInterrupt


def splits() -> Splits:
    return Splits("line", Data("train", line(400), SPEC), Data("val", line(100), SPEC))


def test_it_trains_on_the_heap_and_never_on_what_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Cases] = {}

    def noted(module: nn.Module, train: Cases, val: Cases, *given: Any, **named: Any) -> nn.Module:
        seen.update(train=train, val=val)
        return fit(module, train, val, *given, **named)

    monkeypatch.setattr(made_resistant, "fit", noted)
    extra = Cases.of(torch.tensor([[0.5]]), torch.tensor([0]))
    attacks = {"attacks": "fgsm", "share": 0.1, "eps": 0.1}
    resistant(Step(), splits(), extra, rng=RNG, watch=Learned(), epochs=1, **attacks)  # type: ignore[arg-type]
    heap = made(line(400), "fgsm")
    assert torch.equal(seen["train"].x, torch.cat([line(400).x, heap.learn.x, extra.x]))
    assert torch.equal(seen["val"].x, torch.cat([line(100).x, heap.check.x]))
    assert len(heap.learn) == 40
    assert len(heap.check) == 4
    stage = bind("trainer", "resistant", attacks)
    assert pairs(heap_for(stage, ModuleTarget(Step(), SPEC), line(400), RNG).learn) == pairs(heap.learn)
    none = heap_for(bind("trainer", "plain", {}), ModuleTarget(Step(), SPEC), line(400), RNG)
    assert (len(none.learn), len(none.check)) == (0, 0)


def test_it_takes_the_heap_it_is_given_and_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = bind("trainer", "resistant", {"eps": 0.1, "attacks": "fgsm", "share": 0.1, "epochs": 2, "lr": 0.01})
    extra = Cases.of(torch.tensor([[0.5]]), torch.tensor([0]))
    own = stage(Step(), splits(), extra, rng=RNG, watch=Learned())
    heap = heap_for(stage, ModuleTarget(Step(), SPEC), line(400), RNG)
    given = with_heap(stage, heap)
    monkeypatch.setattr(made_resistant, "heap_of", lambda *_, **__: pytest.fail("it has one"))
    again = given(Step(), splits(), extra, rng=RNG, watch=Learned())
    assert torch.equal(own.state_dict()["at"], again.state_dict()["at"])
    assert float(own.state_dict()["at"]) != 0.5
    assert given.text == stage.text
    fewer = with_heap(stage, Parted(heap.learn[:1], heap.check))
    assert not torch.equal(
        fewer(Step(), splits(), extra, rng=RNG, watch=Learned()).state_dict()["at"], own.state_dict()["at"]
    )
    other = bind("trainer", "adversarial", {"eps": 0.1})
    assert with_heap(other, heap) is other, "what attacks as it trains has none"


def test_without_a_single_success_it_is_refused() -> None:
    """A net that gets nothing right, and an eps that reaches nothing."""
    given: dict[str, Any] = {"attacks": "fgsm", "share": 0.1, "epochs": 1}
    for at, eps in ((5.0, 0.1), (0.5, 1e-9)):
        data = splits() if at == 0.5 else Splits("line", Data("train", line(400)[200:], SPEC), splits().val)
        with pytest.raises(NothingToTest, match="must be a trained net, and more eps"):
            resistant(Step(at), data, None, rng=RNG, watch=Learned(), eps=eps, **given)
        stage = bind("trainer", "resistant", given | {"eps": eps})
        with pytest.raises(NothingToTest, match="nothing to become resistant by"):
            heap_for(stage, ModuleTarget(Step(at), SPEC), data.part("train").cases, RNG)
    some = line(400)[190:210]  # in hardening there are the cases of the rounds
    resistant(Step(), splits(), some, rng=RNG, watch=Learned(), eps=1e-9, **given)


def test_a_stopped_training_makes_the_same_heap_and_ends_the_same() -> None:
    """The heap comes from the module as it was given, not from the half-trained one."""
    given: dict[str, Any] = {"eps": 0.1, "attacks": "fgsm", "share": 0.2, "epochs": 4, "optimiser": "sgd"}
    given |= {"momentum": 0.0, "lr": 0.01}  # no state of the optimiser to carry over
    start = Step()
    whole = resistant(start, splits(), None, rng=RNG, watch=Learned(), **given)
    cut = Learned(stop=2)
    with pytest.raises(KeyboardInterrupt):
        resistant(start, splits(), None, rng=RNG, watch=cut, **given)
    assert cut.state is not None
    assert float(cut.state.weights["at"]) != 0.5
    again = resistant(start, splits(), None, rng=RNG, watch=Learned(cut.state), **given)
    assert torch.equal(whole.state_dict()["at"], again.state_dict()["at"])
    assert start.at.item() == 0.5, "the module itself is not touched"


@pytest.fixture(scope="module")
def trained(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("resistant") / "r.safetensors"
    done = train(digits_model, "digits", out, trainer="resistant", eps=0.1, params={"epochs": 10, "batch": 32})
    assert all({"val_accuracy", "failures_accuracy", "score"} <= row.keys() for row in done.log)
    return out


def test_the_resistant_net_resists(trained: Path, digits_model: str) -> None:
    old, new = (load_target(model) for model in (digits_model, f"lenet5@{trained}"))
    cases = with_validation(load_splits("digits")).part("train").cases
    stage = bind("trainer", "resistant", {"eps": 0.1})
    heap = heap_for(stage, old, cases, Stream(0, ("train",)))
    assert len(heap.learn) == round(0.2 * len(cases))
    right = [int((answer(net, heap.check.x, Chunks()).argmax(1) == heap.check.y).sum()) for net in (old, new)]
    assert right[0] == 0, "all of them are failures of the net it starts from"
    assert right[1] > len(heap.check) / 2
    before = evaluate(digits_model, "digits/test", suite="fgsm", eps=0.1)
    after = evaluate(f"lenet5@{trained}", "digits/test", suite="fgsm", eps=0.1)
    assert after.accuracy() > before.accuracy() + 0.03
    assert after.clean.accuracy > before.clean.accuracy - 0.03


def test_the_checkpoint_says_which_attacks_it_has_seen(trained: Path) -> None:
    known = trained_with(f"lenet5@{trained}")
    assert known == (("fgsm", {"random_start": True}), ("pgd", {"steps": 10, "step": 0.125}))
    parts = evaluate(f"lenet5@{trained}", "digits/test[:20]", suite="seen,unseen", eps=0.1)
    assert {"fgsm", "pgd"} <= parts.attacks.keys()
    assert parts.parts["seen"].right >= parts.parts["unseen"].right


def test_what_the_start_has_seen_is_told_on(trained: Path, tmp_path: Path) -> None:
    """Of a net of ours that is trained on; of weights that say nothing, nobody knows; a new net has seen none."""
    attacks = trained_with(f"lenet5@{trained}") or ()
    small: dict[str, Any] = {"eps": 0.1, "params": {"epochs": 1}}
    again, mim = tmp_path / "again.safetensors", "adversarial(attack=mim(steps=1))"
    train(f"lenet5@{trained}", "digits", again, trainer=mim, **small)
    assert trained_with(f"lenet5@{again}") == (*attacks, ("mim", {"steps": 1}))
    last = tmp_path / "last.safetensors"
    train(f"lenet5@{again}", "digits", last, **small)
    assert trained_with(f"lenet5@{last}") == (*attacks, ("mim", {"steps": 1})), "plain training forgets none"
    kept = last.read_bytes()
    train(f"lenet5@{again}", "digits", last, **small)
    assert last.read_bytes() == kept, "the same training again"
    bare = tmp_path / "bare.safetensors"
    weights, facts = checkpoint.read(trained)
    checkpoint.write(bare, weights, {k: v for k, v in facts.items() if k != "training"})
    train(f"lenet5@{bare}", "digits", tmp_path / "c.safetensors", trainer=mim, **small)
    assert trained_with(f"lenet5@{tmp_path}/c.safetensors") is None
    train("lenet5", "digits", tmp_path / "d.safetensors", **small)
    assert "seen" not in checkpoint.read_meta(tmp_path / "d.safetensors")["training"]


def test_weights_that_do_not_tell_what_their_start_had_seen_are_the_same_training(
    digits_model: str, tmp_path: Path
) -> None:
    """As those of earlier versions; such as tell something else are not."""
    out = tmp_path / "r.safetensors"

    def go() -> None:
        train(digits_model, "digits", out, params={"epochs": 1})

    go()
    weights, facts = checkpoint.read(out)
    assert facts["training"]["seen"] == []
    checkpoint.write(out, weights, facts | {"training": {k: v for k, v in facts["training"].items() if k != "seen"}})
    go()
    checkpoint.write(out, weights, facts | {"training": facts["training"] | {"seen": [["pgd", {}]]}})
    with pytest.raises(UsageError, match="another training"):
        go()


def test_the_command_line_takes_several_attacks(digits_model: str, tmp_path: Path) -> None:
    out = tmp_path / "r.safetensors"
    trainer = 'resistant(attacks="fgsm, bim(steps=3)", share=0.05)'
    words = ["train", digits_model, "--data", "digits", "--trainer", trainer, "--eps", "0.1", "--epochs", "1"]
    told = CliRunner().invoke(app, [*words, "--out", str(out), "--quiet"])
    assert told.exit_code == 0, told.output
    assert trained_with(f"lenet5@{out}") == (("fgsm", {}), ("bim", {"steps": 3}))
    assert bind("trainer", *step(trainer), {"eps": 0.1}).params["share"] == 0.05


def test_plain_training_may_use_the_same_rule() -> None:
    assert bind("trainer", "plain", {}).params["best"] == "accuracy"
    stage = bind("trainer", "plain", {"best": "floor", "epochs": 1})
    failures = Cases.of(torch.tensor([[0.52]]), torch.tensor([0]))
    data = splits()
    both = Splits(data.name, data.train, among(data.part("val"), failures))
    watch = Learned()
    stage(Step(), both, None, rng=RNG, watch=watch)
    assert watch.state is not None
    assert watch.state.log[0]["failures_accuracy"] in (0.0, 1.0)
