"""The trust checks, one by one, on models whose fault is known."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind, names
from assay.engines.cascade import Effort
from assay.engines.checks import checks_only, warnings_of
from assay.engines.checks.contests import black_box_beats_white_box, more_steps_help, single_step_beats_iterative
from assay.engines.checks.labels import bad_clean_accuracy, wrong_range
from assay.engines.checks.look import SAMPLE, Ball, Facts, Look
from assay.engines.checks.modes import batch_dependent, batch_norm_changing, train_mode
from assay.engines.checks.outputs import nonfinite
from assay.engines.checks.slopes import jumps, slopes
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Outcome, Share
from assay.subjects.bench import Data
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Need

SPEC = InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b", "c"))
LINF = Ball(0.1, "linf")


class Linear(nn.Module):
    """Scores of the mean brightness of three rows of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(20.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x[:, 0, :3].mean(2)


def given(n: int = 60) -> Cases:
    """Inputs with their brightest row's number for label, a third of them near the next class."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    x = 0.3 + 0.02 * torch.rand(n, 1, 4, 4, generator=rng)
    x[torch.arange(n), 0, y] += torch.where(torch.arange(n) % 4 == 0, 0.05, 0.35)[:, None]
    return Cases.of(x, y)


def look(
    net: nn.Module,
    cases: Cases | None = None,
    ball: Ball | None = LINF,
    attacks: dict[str, Bound] | None = None,
    **facts: Any,
) -> Look:
    cases = given() if cases is None else cases
    target = ModuleTarget(net, SPEC)
    with torch.no_grad():
        clean = Share(int((target(cases.x).argmax(1) == cases.y).sum()), len(cases))
    told = {"outcomes": {}, "worst": None, "cascade": True, **facts}
    return Look(target, cases, Facts(clean, attacks or {}, ball, **told), Stream(0))


def test_every_check_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checks.md").read_text()
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert set(names("check")) <= set(headings)
    assert all(f"--ignore {name}" in page for name in names("check"))


def test_warnings_say_where_they_are_explained() -> None:
    data = Data("made", given(), SPEC)
    result = evaluate(nn.Sequential(Linear(), nn.Softmax(1)), data, suite="fgsm", eps=0.1, device="cpu")
    (warning,) = result.warnings
    assert warning["name"] == "softmax_output"
    assert warning["see"] == "docs/checks.md#softmax_output"


def test_checks_can_be_suppressed_by_name() -> None:
    data = Data("made", given(), SPEC)
    net = nn.Sequential(Linear(), nn.Softmax(1))
    assert evaluate(net, data, suite="fgsm", eps=0.1, ignore=["softmax-output"], device="cpu").warnings == []
    with pytest.raises(UsageError, match=r"unknown check 'softmax'; did you mean 'softmax_output'"):
        evaluate(net, data, suite="fgsm", eps=0.1, ignore=["softmax"], device="cpu")


def test_checks_alone_find_what_an_evaluation_finds() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Linear()((x * 16).round() / 16)
            return out

    target = ModuleTarget(Rounded(), SPEC)
    alone = checks_only(target, given(), 0.1, "linf", Stream(0))
    assert {w["name"] for w in alone} >= {"zero_gradient", "discontinuous"}
    assert alone == checks_only(target, given(), 0.1, "linf", Stream(0)), "the same seed, the same words"
    without_ball = {w["name"] for w in checks_only(target, given(), None, "linf", Stream(0))}
    assert without_ball == {"zero_gradient", "discontinuous"}, "there is no eps to attack with"
    assert checks_only(ModuleTarget(Linear(), SPEC), given(), 0.1, "l2", Stream(0)) == []


def test_the_sample_comes_from_all_over_the_data() -> None:
    """Data are often sorted by class."""
    x = torch.rand(300, 1, 4, 4)
    sample = look(Linear(), Cases.of(x, torch.arange(300) // 100)).sample
    assert len(sample) == SAMPLE
    assert sample.y.bincount().tolist() == [21, 22, 21]


class Black:
    """A target that gives nothing but a class, and counts how often it is asked."""

    spec = SPEC
    device = torch.device("cpu")
    gives: frozenset[Need] = frozenset(("label",))

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, x: Tensor) -> Tensor:
        assert not x.requires_grad
        self.asked += len(x)
        return torch.nn.functional.one_hot(Linear()(x).argmax(1), 3).float()

    def ready(self) -> nullcontext[None]:
        return nullcontext()

    def fingerprint(self) -> str:
        return "black"


def test_black_boxes_are_asked_little_and_never_for_gradients() -> None:
    target = Black()
    assert checks_only(target, given(), 0.1, "linf", Stream(0)) == []
    assert target.asked < 500


def test_gradients_of_an_honest_net_lead_uphill() -> None:
    for slope in slopes(look(Linear())):
        assert not (slope.lost | slope.faint | slope.blind).any()


def test_jumps_are_told_from_steep_slopes() -> None:
    class Steep(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 200 * (x[:, 0, :3].mean(2) - 0.5)

    class Stepped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x[:, 0, :3].mean(2) > 0.41).float()

    start, end = torch.full((2, 1, 4, 4), 0.3), torch.full((2, 1, 4, 4), 0.6)
    start[:, 0, 0], end[:, 0, 0] = 0.7, 0.7
    assert jumps(look(Steep()), start, end).max() < 1e-3
    assert jumps(look(Stepped()), start, end).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: (y + 1) % 3, "with every label moved by -1"),
        (lambda y: torch.tensor([1, 0, 2])[y], "in another order"),
        (lambda y: torch.where(torch.arange(len(y)) % 10 == 0, y, 2), "always answering 'c'"),
    ],
)
def test_labels_that_do_not_fit_are_named(change: Callable[[Tensor], Tensor], words: str) -> None:
    cases = given(120)
    message = bad_clean_accuracy(look(Linear(), Cases.of(cases.x, change(cases.y))))
    assert message is not None
    assert words in message
    assert bad_clean_accuracy(look(Linear(), cases)) is None


@pytest.mark.parametrize(
    ("seen", "words"),
    [(lambda x: (x - 60).clamp_min(0), "in [0, 255]"), (lambda x: x.clamp_max(0.25), "in [-1, 1]")],
)
def test_nets_that_expect_another_range_are_found(seen: Callable[[Tensor], Tensor], words: str) -> None:
    class Off(nn.Module):
        """Sees nothing of inputs in [0, 1]."""

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Linear()(seen(x))
            return out

    message = wrong_range(look(Off()))
    assert message is not None
    assert words in message
    assert wrong_range(look(Linear())) is None


def test_training_mode_and_moving_statistics_are_found() -> None:
    class Sleepless(nn.Module):
        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: Tensor) -> Tensor:
            self.part.train()
            out: Tensor = Linear()(self.part(x))
            return out

    dropping, normalising = Sleepless(nn.Dropout(0.3)), Sleepless(nn.BatchNorm2d(1))
    for net in (dropping, normalising):
        message = train_mode(look(net))
        assert message is not None
        assert "(part)" in message
    assert train_mode(look(Sleepless(nn.Dropout(0.0)))) is None, "it drops nothing"
    assert batch_norm_changing(look(dropping)) is None
    changing = batch_norm_changing(look(normalising))
    assert changing is not None
    assert "part.running_mean, part.running_var" in changing
    assert torch.equal(normalising.state_dict()["part.running_mean"], torch.zeros(1)), "given back as it was"
    assert not normalising.part._forward_pre_hooks


def test_answers_that_depend_on_neighbours_are_found() -> None:
    class Together(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Linear()(x - x.mean(0))
            return out

    message = batch_dependent(look(Together()))
    assert message is not None
    assert "other inputs of the batch" in message
    assert train_mode(look(Together())) is None, "no part of it is in training mode"
    assert batch_dependent(look(Linear())) is None


def test_nets_that_fail_on_noise_only_are_found() -> None:
    class Fragile(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where((x > 0.36).sum((1, 2, 3), keepdim=True)[:, :, 0, 0] > 4, torch.nan, Linear()(x))

    message = nonfinite(look(Fragile()))
    assert message is not None
    assert "with noise" in message
    assert nonfinite(look(Linear())) is None


def outcome(tried: int, broken: int, left: int, n: int = 100) -> Outcome:
    return Outcome(Share(left, n), tried, broken, Effort(0.0, 0, 0))


def suite(*members: str, eps: float = 0.1) -> dict[str, Bound]:
    return {name: bind("attack", name, {}, {"eps": eps, "norm": "linf"}) for name in members}


def met(attacks: dict[str, Bound], outcomes: dict[str, Outcome], *, cascade: bool) -> Look:
    return look(Linear(), attacks=attacks, outcomes=outcomes, cascade=cascade)


def test_the_evaluation_itself_shows_a_black_box_that_wins() -> None:
    attacks = suite("pgd", "square")
    cascade = {"pgd": outcome(60, 20, 40), "square": outcome(40, 12, 28)}
    message = black_box_beats_white_box(met(attacks, cascade, cascade=True))
    assert message is not None
    assert "square breaks 12 of 60 inputs that pgd leaves standing" in message
    few = cascade | {"square": outcome(40, 2, 38)}
    assert black_box_beats_white_box(met(attacks, few, cascade=True)) is None, "two may be luck"
    each = {"pgd": outcome(60, 20, 40), "square": outcome(60, 35, 25)}
    message = black_box_beats_white_box(met(attacks, each, cascade=False))
    assert message is not None
    assert "breaks 15 of 60" in message
    other_way = {"square": outcome(60, 35, 25), "pgd": outcome(60, 36, 24)}
    assert black_box_beats_white_box(met(suite("square", "pgd"), other_way, cascade=False)) is None


def test_attacks_of_other_parts_or_other_balls_are_not_compared() -> None:
    """An attack of another part of the suite saw all inputs, one in a larger ball has an easier task."""
    apart = {"pgd": outcome(60, 20, 40), "square": outcome(60, 30, 30)}
    assert black_box_beats_white_box(met(suite("pgd", "square"), apart, cascade=True)) is None
    wider = {**suite("pgd"), **suite("square", eps=0.2)}
    shown = {"pgd": outcome(60, 20, 40), "square": outcome(40, 30, 10)}
    assert black_box_beats_white_box(met(wider, shown, cascade=True)) is None


def test_the_evaluation_itself_shows_a_single_step_that_wins() -> None:
    shown = {"pgd": outcome(60, 10, 50), "fgsm": outcome(50, 20, 30)}
    message = single_step_beats_iterative(met(suite("pgd", "fgsm"), shown, cascade=True))
    assert message is not None
    assert "fgsm, a single step, breaks 20 of 60" in message
    # The other way round a cascade shows nothing, and a probe finds nothing on an honest net.
    shown = {"fgsm": outcome(60, 20, 40), "pgd": outcome(40, 10, 30)}
    assert single_step_beats_iterative(met(suite("fgsm", "pgd"), shown, cascade=True)) is None


def test_attacks_that_have_not_converged_are_found() -> None:
    ball = Ball(0.2, "linf")
    slow = {"pgd": bind("attack", "pgd", {"eps": 0.2, "steps": 5, "step": 0.12, "random_start": False})}
    message = more_steps_help(look(Linear(), ball=ball, attacks=slow, worst=Share(45, 60)))
    assert message is not None
    assert "with 15 steps, pgd breaks" in message
    done = {"pgd": bind("attack", "pgd", {"eps": 0.2})}
    assert more_steps_help(look(Linear(), ball=ball, attacks=done, worst=Share(0, 60))) is None
    # The rest of the suite has found them: the number is right, whatever this one attack missed.
    assert more_steps_help(look(Linear(), ball=ball, attacks=slow, worst=Share(0, 60))) is None
    single = {"square": bind("attack", "square", {"eps": 0.2, "queries": 5})}
    assert more_steps_help(look(Linear(), ball=ball, attacks=single)) is None, "a black box was asked for"


def test_checks_leave_the_net_as_it_was() -> None:
    net = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 3))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    checks_only(ModuleTarget(net, SPEC), given(), 0.1, "linf", Stream(0))
    assert all(m.training for m in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert not any(m._forward_pre_hooks for m in net.modules())


def test_an_evaluation_without_any_right_answer_is_checked_too() -> None:
    cases = given()
    facts = evaluate(Linear(), Data("wrong", Cases.of(cases.x, (cases.y + 1) % 3), SPEC), suite="fast", eps=0.1)
    assert facts.clean.right == 0
    assert [w["name"] for w in facts.warnings] == ["bad_clean_accuracy"]


def test_a_check_costs_as_it_says(digits_model: str) -> None:
    """docs/checks.md promises at most the cost of some hundred gradients on the sample, whatever the data's size."""
    from assay.subjects.counted import Counted
    from assay.subjects.data.load import load_data
    from assay.subjects.sources.load import load_target

    data = load_data("digits/test")
    target = load_target(digits_model, data=data, device="cpu")
    result = evaluate(target, data, suite="fast", eps=0.05, device="cpu")
    counted = Counted(target)
    attacks = {"fgsm": bind("attack", "fgsm", {"eps": 0.05}), "pgd": bind("attack", "pgd", {"eps": 0.05, "steps": 20})}
    assert warnings_of(counted, data.cases, result, attacks, Stream(0)) == []
    assert counted.gradient < 60 * SAMPLE
    assert counted.forward < 120 * SAMPLE


def test_a_suite_far_weaker_than_plain_pgd_is_told(digits_model: str, tmp_path: Path) -> None:
    """A user's attack that hardly moves: nothing about the net is wrong, but its number is."""
    (tmp_path / "weak.py").write_text(
        "def nudge(target, x, y, *, rng, eps: float):\n    'A hundredth of the ball.'\n"
        "    return (x + 0.01 * eps).clamp(0, 1)\n"
    )
    weak = evaluate(digits_model, "digits/test[:100]", suite=f"{tmp_path}/weak.py:nudge", eps=0.2)
    assert "weak_attacks" in {w["name"] for w in weak.warnings}
    strong = evaluate(digits_model, "digits/test[:100]", suite="apgd_ce", eps=0.2)
    assert not strong.warnings
