"""Scores, mutators, rules and oracles of DeepXplore, DLFuzz and ADAPT: by hand, and slopes against differences."""

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind
from assay.stages.objective import Look
from assay.stages.strategies.activity import SEED_COVERED
from assay.subjects.bench import Bench
from assay.subjects.observer import COLUMNS, Observer, Seen
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((5,), (0.0, 1.0), ("a", "b", "c", "d"))


def target(seed: int) -> ModuleTarget:
    """Relatives: the same net, weights a little different."""
    torch.manual_seed(0)
    first, last = nn.Linear(5, 8), nn.Linear(8, 4)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer, grey in ((first, 0.5), (last, 0.0)):
            layer.weight.mul_(3.0).add_(0.2 * seed * torch.randn(layer.weight.shape, generator=rng))
            layer.bias.copy_(-grey * layer.weight.sum(1))  # grey is undecided
    return ModuleTarget(nn.Sequential(first, nn.Tanh(), last).double(), SPEC)


def bench(siblings: int = 2) -> Bench:
    nets = [target(seed) for seed in range(1 + siblings)]
    roles = {f"sibling{i}": net for i, net in enumerate(nets[1:], 1)}
    return Bench(nets[0], roles, observer=Observer.of(nets, "auto", ends=True))


def cases(n: int = 6) -> Cases:
    rng = torch.Generator().manual_seed(1)
    made = Cases.of(torch.rand(n, 5, generator=rng, dtype=torch.float64), torch.randint(4, (n,), generator=rng))
    pushed = torch.randint(48, (n, 3), generator=rng)
    return made.note(pushed=pushed, signs=torch.tensor([[1.0, -1.0, 0.0]]).repeat(n, 1))


def test_neurons_is_the_signed_sum_of_those_pushed() -> None:
    ground, some = bench(), cases()
    assert ground.observer is not None
    values = ground.observer(some.x).neurons
    rows = torch.arange(6)
    expected = values[rows, some.info["pushed"][:, 0]] - values[rows, some.info["pushed"][:, 1]]
    assert torch.allclose(bind("score", "neurons", {})(ground, some), expected)
    with pytest.raises(UsageError, match="give one: --set strategy=random"):
        bind("score", "neurons", {})(ground, some.drop("pushed"))


def test_disagreement_is_the_others_scores_less_the_targets() -> None:
    ground, some = bench(), cases()
    label = some.y[:, None]
    own, *others = (model(some.x).gather(1, label).squeeze(1) for model in (ground.target, *ground.roles.values()))
    score = bind("score", "disagreement", {"weight": 2.0})
    assert torch.allclose(score(ground, some), others[0] + others[1] - 2 * own)
    assert torch.allclose(score(ground, ground.observed(some)), others[0] + others[1] - 2 * own), "from the columns"
    with pytest.raises(UsageError, match="give one: --with MODEL"):
        score(Bench(ground.target), some)


def test_scores_before_the_softmax() -> None:
    ground, some = bench(), cases()
    logits = ground.target(some.x)
    assert torch.allclose(bind("score", "true_logit", {})(ground, some), logits[torch.arange(6), some.y])
    at_seed = torch.tensor([[4.0, 3.0, 2.0, 1.0]], dtype=torch.float64).repeat(6, 1)
    given = some.note(seed_logits=at_seed)
    others = [[c for c in range(4) if c != y] for y in some.y.tolist()]
    for k in (2, 3, 4, 9):
        expected = torch.stack([logits[i, rest[: k - 1]].sum() for i, rest in enumerate(others)])
        assert torch.allclose(bind("score", "rivals", {"k": k, "logits": True})(ground, given), expected)
    share = torch.stack([logits.softmax(1)[i, rest[:2]].sum() for i, rest in enumerate(others)])
    assert torch.allclose(bind("score", "rivals", {"k": 3})(ground, given), share), "as it was without the parameter"


@pytest.mark.parametrize(
    "score", ["neurons", "true_logit", ("rivals", {"k": 3, "logits": True}), ("disagreement", {"weight": 1.5})]
)
def test_slopes_are_the_derivatives(score: str | tuple[str, dict[str, object]]) -> None:
    name, params = (score, {}) if isinstance(score, str) else score
    ground, some = bench(), cases()
    some = some.note(seed_logits=ground.logits(some))
    look = Look({name: bind("score", name, params)}, {name: -0.7}, {})
    slope = look(ground, some).info["slope"]

    def value(x: Tensor) -> Tensor:
        worth: Tensor = look.objective[name](ground, some.with_x(x))
        return -0.7 * worth

    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    differences = torch.stack([(value(some.x + d) - value(some.x - d)) / 2e-6 for d in step], 1)
    assert torch.allclose(slope, differences, atol=1e-6)
    assert slope.abs().max() > 1e-3


def test_models_disagree_when_one_does() -> None:
    ground, some = bench(), cases(40)
    judge = bind("oracle", "disagree", {})
    logits = torch.eye(4)[[0, 0, 0, 1]]
    others = torch.eye(4)[torch.tensor([[0, 0], [0, 1], [1, 1], [1, 1]])]
    told = some[:4].note(logits=logits, others=others)
    assert judge(ground, told).tolist() == [False, True, True, False]
    classes = torch.stack([m(some.x).argmax(1) for m in (ground.target, *ground.roles.values())], 1)
    expected = (classes != classes[:, :1]).any(1)
    assert expected.any()
    assert not expected.all()
    assert torch.equal(judge(ground, some), expected), "asked anew"
    with pytest.raises(UsageError, match="give one: --with MODEL"):
        judge(Bench(ground.target), some)


def test_seeds_are_what_all_models_agree_on() -> None:
    ground, some = bench(), cases(200)
    classes = torch.stack([m(some.x).argmax(1) for m in (ground.target, *ground.roles.values())], 1)
    same = (classes == classes[:, :1]).all(1)
    chosen = bind("seeder", "agreed", {})(ground, some, rng=Stream(0))
    assert torch.equal(chosen.origin, some.origin[same & (classes[:, 0] == some.y)])
    assert len(chosen)
    nameless = Cases(some.x, torch.full_like(some.y, UNLABELLED), some.origin)
    chosen = bind("seeder", "agreed", {})(ground, nameless, rng=Stream(0))
    assert torch.equal(chosen.origin, some.origin[same])
    assert torch.equal(chosen.y, classes[same, 0])


# Mutators.

IMAGES = InputSpec((1, 4, 4), (-1.0, 3.0), ("a", "b"))
GROUND = Bench(ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), IMAGES))


def moved(name: str, slope: Tensor, x: Tensor | None = None, key: int = 0, **params: object) -> Tensor:
    n = len(slope)
    start = torch.ones(n, 1, 4, 4) if x is None else x
    some = Cases.of(start).note(slope=slope, seed_x=torch.ones(n, 1, 4, 4))
    rng = Stream(key).rows(torch.arange(n))
    made: Tensor = bind("mutator", name, params)(GROUND, some, rng=rng)
    return made


def test_ascend_can_scale_by_the_root_mean_square() -> None:
    slope = torch.zeros(2, 1, 4, 4)
    slope[0, 0, 0, 0], slope[1, 0, 0, 0] = 8.0, 8e-7  # of root mean square 2 and 2e-7
    made = moved("ascend", slope, lr=0.025, low=1.0, high=1.0, scale="rms") - 1
    # The inputs' range is 4 wide, and lr is meant for one of 1.
    assert float(made[0, 0, 0, 0]) == pytest.approx(4 * 0.025 * 8 / (2 + 1e-5), rel=1e-5)
    assert float(made[1, 0, 0, 0]) == pytest.approx(0.1 * 8e-7 / (2e-7 + 1e-5), rel=1e-2), "what vanishes stays small"
    assert (made.flatten(1)[:, 1:] == 0).all()
    plain = moved("ascend", slope, lr=0.01, low=1.0, high=1.0) - 1
    assert float(plain[0, 0, 0, 0]) == pytest.approx(4**2 * 0.01 * 8, rel=1e-5)
    assert torch.equal(moved("ascend", slope), moved("ascend", slope, scale="none"))
    with pytest.raises(UsageError, match="scale is one of none, rms"):
        moved("ascend", slope, scale="l2")


def test_light_is_even_also_after_pixels_met_the_bounds() -> None:
    """Up, up, down: as one shift of the seed, clipped once, not as three that are clipped in turn."""
    seed = torch.linspace(-1.0, 3.0, 16).view(1, 1, 4, 4)
    bench = Bench(ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), IMAGES))
    x, total = seed, 0.0
    for sign in (1.0, 1.0, -1.0):
        cases = Cases.of(x).note(seed_x=seed, slope=torch.full_like(x, sign))
        x = bind("mutator", "constrained", {"step": 0.2, "reach": 0.5})(bench, cases, rng=Rows(torch.zeros(1).long()))
        total += sign * 0.2 * 4 * 1 / (1 + 1e-5)
        assert torch.allclose(x, (seed + total).clamp(-1, 3), atol=1e-5)


def test_light_moves_all_pixels_alike() -> None:
    slope = torch.zeros(3, 1, 4, 4)
    slope[0, 0, :2] = 2.0  # mean 1, root mean square 2^0.5
    slope[1, 0, :2] = -2.0
    made = moved("constrained", slope, step=0.1) - 1
    expected = 4 * 0.1 / 2**0.5  # the range is 4
    for row, change in enumerate((expected, -expected, 0.0)):
        assert torch.allclose(made[row], torch.full((1, 4, 4), change), atol=1e-4)
    far = moved("constrained", slope, step=10.0, reach=0.25)
    assert far.flatten(1)[:, 0].tolist() == [2.0, 0.0, 1.0], "no further than a quarter of the range from the seed"
    assert moved("constrained", slope, step=10.0, reach=1.0).flatten(1)[:, 0].tolist() == [3.0, -1.0, 1.0], "the bounds"


def test_occlusion_changes_its_rectangle_alone() -> None:
    slope = torch.full((1, 1, 4, 4), 2.0)
    slope[0, 0, 1, 2] = -2.0
    made = moved("constrained", slope, kind="occl", step=0.1, top=1, left=2, height=2, width=9) - 1
    expected = torch.zeros(4, 4)
    expected[1:3, 2:] = 0.4
    expected[1, 2] = -0.4
    assert torch.allclose(made[0, 0], expected, atol=1e-4)
    corner = moved("constrained", slope, kind="occl", step=0.1) - 1
    assert (corner != 0).all(), "10 by 10 from the corner is all of a 4 by 4 image"


def test_blackout_darkens_one_patch_where_that_climbs() -> None:
    n = 400
    slope = torch.ones(n, 1, 4, 4)
    slope[:, 0, :, 2:] = -3.0  # of a 2 by 2 patch the mean is 1, -1 or -3
    made = (moved("constrained", slope, kind="blackout", step=0.1, patch=2) - 1)[:, 0]
    seen: dict[tuple[int, int], int] = {}
    for image in made:
        rows, columns = (image != 0).any(1).nonzero().flatten(), (image != 0).any(0).nonzero().flatten()
        if len(rows):
            assert torch.allclose(image[image != 0], torch.tensor(-0.4), atol=1e-4)
            assert len(rows) == len(columns) == 2
            assert rows[1] - rows[0] == columns[1] - columns[0] == 1
        place = (int(rows[0]), int(columns[0])) if len(rows) else (-1, -1)
        seen[place] = seen.get(place, 0) + 1
    assert set(seen) == {(-1, -1), *((r, c) for r in range(3) for c in (1, 2))}
    assert seen.pop((-1, -1)) == pytest.approx(n / 3, abs=35)
    assert all(count == pytest.approx(n / 9, abs=25) for count in seen.values()), "every place is as likely"
    whole = moved("constrained", slope, kind="blackout", step=10.0, patch=9)
    assert (whole == -1.0).all(), "a patch larger than the image is the image, and black is the lower bound"


def test_rows_of_a_constraint_do_not_know_their_neighbours() -> None:
    slope = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    for kind in ("light", "occl", "blackout"):
        params: dict[str, object] = {"kind": kind, "patch": 2, "height": 2, "width": 2}
        some = Cases.of(torch.ones(20, 1, 4, 4)).note(slope=slope, seed_x=torch.ones(20, 1, 4, 4))
        rng, stage = Stream(0).rows(torch.arange(20)), bind("mutator", "constrained", params)
        assert torch.equal(stage(GROUND, some, rng=rng)[5:9], stage(GROUND, some[5:9], rng=rng[5:9]))


def test_constraints_refuse_nonsense() -> None:
    slope = torch.ones(1, 1, 4, 4)
    for params, message in (
        ({"kind": "dark"}, "kind is one of light, occl, blackout"),
        ({"step": 0.0}, "above 0"),
        ({"top": -1}, "above 0"),
        ({"patch": 0}, "above 0"),
    ):
        with pytest.raises(UsageError, match=message):
            moved("constrained", slope, **params)
    with pytest.raises(UsageError, match="needs images, and this target takes vectors; use kind=light"):
        bind("mutator", "constrained", {"kind": "occl"})(bench(), cases(), rng=Stream(0).rows(torch.arange(6)))
    with pytest.raises(UsageError, match="climbs an objective, and there is none"):
        bind("mutator", "constrained", {})(bench(), cases(), rng=Stream(0).rows(torch.arange(6)))


# What is worth going on from.


def gained(gain: list[float], x: list[float] | None = None, coverage: str = "nc") -> tuple[Bench, Cases]:
    """Cases of a target with 16 neurons, at a distance from seeds of length 1, which are the rows 0, 1, 2, ..."""
    net = target(0)
    eyes = Observer.of([net], "auto", ends=True)
    made = bind("criterion", coverage, {})().begin(eyes, None)
    n = len(gain)
    seed = torch.zeros(n, 5)
    seed[:, 0] = 1.0
    away = seed.clone()
    away[:, 1] = torch.tensor([0.0] * n if x is None else x)
    some = Cases.of(away).note(seed_x=seed, gain=torch.tensor(gain), row=torch.arange(n))
    return Bench(net, observer=eyes, kept={"coverage": made}), some


def test_gains_is_a_share_of_all_there_is() -> None:
    ground, some = gained([0.0, 1.0, 2.0, 3.0])
    judge = bind("filter", "gains", {})
    assert judge(ground, some).tolist() == [False, True, True, True]
    assert bind("filter", "gains", {"least": 2 / 16})(ground, some).tolist() == [False, False, False, True]
    # 6/16 for seed 0, 3/16 for seed 1, 2/16 for seed 2, 1.5/16 for seed 3: more than that, not as much
    waning = bind("filter", "gains", {"least": 6 / 16, "wanes": True})
    assert waning(ground, some).tolist() == [False, False, False, True]
    assert waning(ground, some.note(gain=torch.tensor([7.0, 4.0, 3.0, 1.0]))).tolist() == [True, True, True, False]


def test_gains_keeps_near_the_seed() -> None:
    ground, some = gained([1.0] * 4, [0.0, 0.019, 0.021, 0.5])
    assert bind("filter", "gains", {"within": 0.02})(ground, some).tolist() == [True, True, False, False]


def test_without_an_upper_end_the_gain_counts_itself() -> None:
    ground, some = gained([0.0, 1.0, 3.0], coverage="tknp")
    assert bind("filter", "gains", {"least": 2.0})(ground, some).tolist() == [False, False, True]


def test_gains_by_seed_asks_what_its_own_cases_covered() -> None:
    ground, some = gained([0.0] * 3)
    values = torch.zeros(3, 16)
    values[:, 4] = 1.0
    ends = torch.zeros(3, 3), torch.ones(3, 3)
    seen = Seen(torch.zeros(3, 4), torch.zeros(3, 0, 4), values, *ends)
    done = torch.zeros(3, 16, dtype=torch.bool)
    done[1] = True
    done[2, :4] = True
    some = some.note(**{SEED_COVERED: done}, **{name: getattr(seen, name) for name in COLUMNS})
    assert bind("filter", "gains", {"by": "seed"})(ground, some).tolist() == [True, False, True]
    assert bind("filter", "gains", {"by": "seed", "least": 1 / 16})(ground, some).tolist() == [False] * 3
    with pytest.raises(UsageError, match="adapt or uncovered"):
        bind("filter", "gains", {"by": "seed"})(ground, some.drop(SEED_COVERED))
    with pytest.raises(UsageError, match="by is one of all, seed"):
        bind("filter", "gains", {"by": "lane"})(ground, some)


def test_gains_needs_a_criterion() -> None:
    ground, some = gained([1.0])
    with pytest.raises(UsageError, match="give one: --set coverage=nc"):
        bind("filter", "gains", {})(ground, some.drop("gain"))
