"""DARE's experiments: smallest examples, arms that start from one net, numbers that say what they say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.stages.trainers.dare import Dare
from assay.subjects.sources.module import ModuleTarget
from papers import dare
from papers.dare_arms import ABLATIONS, MAIN, PENULTIMATE, Maker, arms
from papers.dare_attacks import ATTACKS, CLIMBS, GRID, Bisected, Examples, first_step
from papers.dare_measure import Measure, Sizes, averaged, moved, with_means
from papers.dare_subject import Subject
from papers.dare_tables import ORDER
from papers.rows import Rows

FEW = Sizes(static=40, static_few=10, learn=60, learn_few=30, fresh=12, small=12, few=5, draws=2, fresh_draws=1)


@pytest.fixture(scope="module")
def subject() -> Subject:
    """A small net of digits."""
    return Subject("digits", "lenet5", 0, device="cpu", epochs=8, limit=0)


@pytest.fixture(scope="module")
def maker(subject: Subject) -> Maker:
    return Maker(subject, Measure(subject, FEW))


# ---- the smallest change ----


def linear(width: int = 12, seed: int = 0) -> tuple[ModuleTarget, Tensor, Tensor, Tensor]:
    """A net of two classes, inputs that it gives class 0, and how far ahead the score of that class is."""
    draw = torch.Generator().manual_seed(seed)
    net = nn.Linear(width, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.stack([torch.randn(width, generator=draw), torch.zeros(width)]))
    x = 0.5 + 0.02 * torch.rand(40, width, generator=draw)
    score = x @ net.weight[0].detach()
    x, score = (t[score > 0] for t in (x, score)) if (score > 0).any() else (x, score)
    target = ModuleTarget(net, InputSpec((width,), (0.0, 1.0), ("0", "1")))
    return target, x, torch.zeros(len(x), dtype=torch.int64), score.detach()


@pytest.mark.parametrize("name", ["fgsm", "pgd", "bim"])
def test_the_smallest_example_of_a_linear_net_lies_at_its_boundary(name: str) -> None:
    target, x, y, score = linear(seed=3)
    assert len(x) > 3
    weight = target.module.weight[0].detach()  # type: ignore[index]
    with target.ready():
        if name == "fgsm":
            made, hit = first_step(target, x, y, 100)
        else:
            made, hit = replace(CLIMBS[name], searches=14)(target, x, y)
        assert hit.all()
        assert (target(made).argmax(1) == 1).all()
    delta = made - x
    if name == "bim":  # along the gradient, the size is the mean absolute change
        size = delta.abs().mean(1)
        need = score / weight.square().sum() * weight.abs().mean()
    else:
        size, need = delta.abs().amax(1), score / weight.abs().sum()
    assert (size >= need - 1e-6).all()
    # FGSM's grid; climbs come in strides of a share of the eps they end with.
    near = need + 1 / GRID if name == "fgsm" else need * (1 + CLIMBS[name].step) + 1e-3
    assert (size <= near + 1e-6).all()


@pytest.mark.parametrize("most", [1, 7, 5000])
def test_fgsm_takes_the_first_eps_of_the_grid_that_fools(subject: Subject, most: int) -> None:
    test = subject.part("test")[:12]
    test = test[subject.right(subject.target, test)]
    x = test.x[:4].clone().requires_grad_()
    loss = nn.functional.cross_entropy(subject.target(x), test.y[:4], reduction="sum")
    direction = torch.autograd.grad(loss, x)[0].sign()
    with subject.target.ready():
        made, hit = first_step(subject.target, test.x[:4], test.y[:4], most)
    for row in range(4):
        tries = [(test.x[row] + k / GRID * direction[row]).clamp(0, 1) for k in range(1, GRID + 1)]
        with torch.no_grad():
            wrong = subject.target(torch.stack(tries)).argmax(1) != test.y[row]
        assert bool(hit[row]) == bool(wrong.any())
        expected = tries[int(wrong.int().argmax())] if wrong.any() else test.x[row]
        assert torch.allclose(made[row], expected, atol=1e-6)


def test_a_row_that_nothing_fools_comes_back_as_it_was() -> None:
    target, x, y, _ = linear(seed=3)
    still = ModuleTarget(nn.Linear(12, 2), target.spec)
    with torch.no_grad():
        still.module.weight.zero_()  # type: ignore[operator]
        still.module.bias.copy_(torch.tensor([1.0, 0.0]))  # type: ignore[operator]
    with still.ready():
        for made, hit in (first_step(still, x, y, 50), *(Bisected(norm, 3)(still, x, y) for norm in ("linf", "l1"))):
            assert not hit.any()
            assert torch.equal(made, x)


def test_examples_are_of_images_that_the_net_gets_right_and_fool_it(subject: Subject, maker: Maker) -> None:
    made: Examples = maker.measure.examples
    for name in ATTACKS:
        few = name in ("jsma", "cw")
        for cases, part, count in (
            (made.test[name], "test", FEW.static_few if few else FEW.static),
            (made.learn[name], "train", FEW.learn_few if few else FEW.learn),
        ):
            clean = subject.part(part)[:count]
            assert 0 < len(cases) <= count, name
            assert torch.equal(clean.x[cases.origin], cases.parent)
            assert torch.equal(clean.y[cases.origin], cases.y)
            assert not subject.right(subject.target, cases).any()
            assert subject.right(subject.target, cases.with_x(cases.parent)).all()
            assert float(cases.x.min()) >= 0
            assert float(cases.x.max()) <= 1
    assert made.told["fgsm"]["fooling"] == len(made.test["fgsm"]) <= made.told["fgsm"]["tried"]


# ---- the net and its arms ----


def test_the_net_never_saw_the_half_that_is_mined(subject: Subject) -> None:
    own, held = subject.part("train"), subject.held.cases
    assert abs(len(own) - len(held)) <= 1
    seen = {row.numpy().tobytes() for row in own.x}
    assert not any(row.numpy().tobytes() in seen for row in held.x)
    assert sorted(subject.watch.weights) == [4, 5, 6, 7, 8]
    assert subject.snapshots.epochs == (4, 5, 6, 7, 8)
    last = subject.watch.weights[8]
    assert any(not torch.equal(last[k], subject.watch.weights[4][k]) for k in last), "each epoch's own weights"
    best = int(subject.watch.told()["epoch"])
    if best >= 4:
        kept = subject.watch.weights[best]
        assert all(torch.equal(v, kept[k]) for k, v in subject.original.state_dict().items())
    assert len(subject.whole.part("train")) == len(own) + len(held)


def test_every_arm_can_say_how_it_is_made() -> None:
    known = arms(60, 20)
    assert tuple(known) == ORDER == (*MAIN, *ABLATIONS), "what the verdict asks for comes first"
    for arm in known.values():
        json.dumps(arm.how)
        if arm.make == "dare":
            Dare(**{k: v for k, v in arm.how.items() if k != "history"}).check()
    assert known["dare-last"].how["layer"] == "softmax"
    assert known["layer=penultimate"].how["layer"] == PENULTIMATE
    assert known["whole"].how["epochs"] == 30, "as many steps on twice the data"
    steps = known["code"].how
    assert steps["count"] == 10 * steps["batch"] == 1280
    assert (steps["epochs"], steps["lr"]) == (1, 1e-5)


@pytest.mark.parametrize(("of", "control"), [("dare", "noise"), ("dare-noslice", "noise-noslice")])
def test_noise_moves_what_dare_moves_and_as_far(maker: Maker, of: str, control: str) -> None:
    tuned = maker(arms(8, 1)[of])
    noise = maker(arms(8, 1)[control])
    assert tuned["moved"]["weights"] > 0
    assert noise["moved"]["l2"] == pytest.approx(tuned["moved"]["l2"], rel=1e-3)
    assert noise["moved"]["weights"] == pytest.approx(tuned["moved"]["weights"], rel=0.05)
    assert tuned["trained"]["used"] > 0
    assert tuned["trained"]["inputs_from"] == "held-out part"
    assert set(noise["small"]) == {"fgsm", "bim", "pgd", "cw"}


@pytest.mark.parametrize("name", ["original", "ce", "at-fgsm", "distilled", "whole", "code", "layer=penultimate"])
def test_arms_leave_the_original_as_it_is_and_tell_their_numbers(subject: Subject, maker: Maker, name: str) -> None:
    before = subject.target.fingerprint()
    told = maker(arms(8, 2)[name])
    assert subject.target.fingerprint() == before
    assert json.loads(json.dumps(told)) == told
    assert set(told["static"]) == set(ATTACKS)
    assert set(told["fresh"]) == set(ATTACKS)
    shares = [told["clean"], *told["static"].values(), *told["fresh"].values(), *told["small"].values()]
    assert all(0 <= value <= 1 for value in shares)
    assert told["small"]["pgd"] >= told["fresh"]["pgd"], "a smaller ball holds fewer examples"
    if name == "original":
        assert told["static_mean"] == 0
        assert told["moved"]["weights"] == 0
        assert told["trained"]["examples"]["cw"]["fooling"] > 0
    else:
        assert told["moved"]["weights"] > 0
        assert told["trained"]["epochs"] >= 1
    if name == "at-fgsm":
        assert told["static"]["fgsm"] > 0.2, "it was trained on such"
        assert told["trained"]["cases"] < len(maker.measure.examples.learn["fgsm"]), "some are kept back"
    if name == "code":
        assert told["trained"]["epochs"] == 1
    if name == "layer=penultimate":
        assert told["trained"]["layer"] == "act4"


def test_too_few_examples_are_an_arm_without_a_net(
    subject: Subject, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("papers.dare_arms.FEWEST", 10**6)
    assert "fewer than" in maker(arms(8, 1)["at-cw"])["why"]


def test_columns_are_means_of_their_attacks_and_never_mixed() -> None:
    numbers = {"static": {"fgsm": 0.2, "cw": 0.4, "jsma": None}, "small": {"fgsm": 0.9}}
    told = with_means(numbers)
    assert told["static_mean"] == pytest.approx(0.3)
    assert told["small_mean"] == 0.9
    assert "fresh_mean" not in told
    several = averaged([{"a": 1.0, "b": {"c": 0.2}}, {"a": None, "b": {"c": 0.4, "d": 1.0}}])
    assert several == {"a": 1.0, "b": {"c": 0.3, "d": 1.0}}


def test_how_far_weights_moved() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.load_state_dict(one.state_dict())
    with torch.no_grad():
        other.weight[0, 0] += 3.0
        other.bias[1] -= 4.0
    assert moved(one, other) == {"weights": 2, "of": 6, "l2": pytest.approx(5.0, rel=1e-4)}


# ---- rows ----

SMALL = ["arms", "--data", "digits", "--nets", "lenet5", "--seeds", "0", "--device", "cpu", "--epochs", "3"]
SMALL += ["--limit", "250", "--static", "10", "--static-few", "3", "--learn", "20", "--learn-few", "5"]
SMALL += ["--fresh", "4", "--small", "4", "--few", "2", "--draws", "1"]


def test_a_stopped_experiment_goes_on_where_the_net_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    command = [*SMALL, "--rows", str(file)]
    assert dare.main([*command, "--arms", "original", "ce"]) == 0
    first = file.read_text()
    assert [r["protocol"]["arm"] for r in Rows(file)] == ["original", "ce"]
    assert dare.main([*command, "--arms", "original", "ce", "at-fgsm"]) == 0
    assert file.read_text().startswith(first), "on a CPU the net comes out the same"
    assert len(Rows(file).all) == 3
    other = json.loads(first.splitlines()[0])
    other["numbers"]["fingerprint"] = "of another net"
    file.write_text(json.dumps(other) + "\n" + first.splitlines()[1] + "\n")
    assert dare.main([*command, "--arms", "original", "ce"]) == 0
    assert len({r["numbers"]["fingerprint"] for r in Rows(file)}) == 1
    assert {r["protocol"]["arm"] for r in Rows(file)} == {"original", "ce"}
    before = file.read_text()
    assert dare.main([*command, "--arms", "original", "ce"]) == 0, "complete: nothing to do"
    assert file.read_text() == before


def test_no_arm_begins_after_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    assert dare.main([*SMALL, "--rows", str(file), "--arms", "original", "--seconds", "0"]) == 0
    assert not Rows(file).all
    assert "original: not begun" in capsys.readouterr().out
