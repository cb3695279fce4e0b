"""LBT's experiments: measures by hand, pools that keep failed attacks, rows that are computed once."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch

from assay.core.randomness import Stream
from papers import lbt
from papers.lbt_measure import Diversity, a12, features_of, found, k_means, log_volume, size_of, within
from papers.lbt_methods import METHODS, NO_SEED, PROBABILITIES, of_group, params_of
from papers.lbt_orders import Ground, Ordered, Orders, first_of
from papers.lbt_retrain import Retraining
from papers.lbt_subject import POOLS, SMALL, Pool, Subject
from papers.lbt_sweep import SWEEPS, Sweep
from papers.rows import Rows


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lbt")


@pytest.fixture(scope="module")
def subject(work: Path) -> Subject:
    """A small net of digits."""
    return Subject("digits", "lenet5", device="cpu", work=work, scale=SMALL)


# ---- measures ----


def bits(text: str) -> torch.Tensor:
    return torch.tensor([c == "1" for c in text])


def test_rates_by_hand() -> None:
    told = found(bits("11010000000000000010"))  # 20 cases, 4 faults at ranks 1, 2, 4, 19
    # Budgets of 1, 2, 4, 6 and 10 cases hold 1, 2, 3, 3 and 3 faults of 1, 2, 4, 4 and 4 possible.
    assert told["fdr"] == {"5": 1.0, "10": 1.0, "20": 0.75, "30": 0.75, "50": 0.75}
    assert told["fdr_mean"] == pytest.approx(0.85)
    assert told["share"] == {"5": 1.0, "10": 1.0, "20": 0.75, "30": 0.5, "50": 0.3}
    apfd = 1 - (1 + 2 + 4 + 19) / (20 * 4) + 1 / 40
    assert told["apfd"] == pytest.approx(apfd)
    low, high = 4 / 40, 1 - 4 / 40
    assert told["apfd_norm"] == pytest.approx((apfd - low) / (high - low))


def test_without_faults_and_with_nothing_else_there_is_nothing_to_tell() -> None:
    none, all_of_them = found(bits("0" * 20)), found(bits("1" * 20))
    assert none["fdr_mean"] is None
    assert none["apfd"] is None
    assert all_of_them["fdr_mean"] == 1.0
    assert all_of_them["apfd"] == 0.5
    assert all_of_them["apfd_norm"] is None
    assert found(bits(""))["fdr_mean"] is None


def test_a_part_of_a_pool_is_measured_in_its_own_order() -> None:
    wrong, mask = bits("10011"), bits("11010")
    order = torch.tensor([4, 1, 3, 0, 2])
    told = within(order, mask, wrong)  # of rows 1, 3, 0: no fault, fault, fault
    assert (told["n"], told["faults"]) == (3, 2)
    assert told["apfd_norm"] == 0.0
    assert told["fdr_mean"] == pytest.approx((0 + 0 + 0 + 0 + 0.5) / 5), "budgets of 1, 1, 1, 1 and 2 cases"


def test_a_budget_is_a_share_and_one_case_at_least() -> None:
    assert [size_of(b, 300) for b in (5, 10, 50)] == [15, 30, 150]
    assert size_of(5, 2) == 1


def test_the_volume_is_that_of_the_parallelepiped() -> None:
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.5, 3.0, 0.0]])
    assert log_volume(rows) == pytest.approx(2 * torch.log(torch.tensor(3.0)).item(), abs=1e-4)
    assert log_volume(torch.cat([rows, rows[:1]])) is None, "one row twice"
    assert log_volume(torch.rand(4, 3)) is None, "more rows than features"


def test_k_means_finds_clusters_that_lie_apart() -> None:
    draw = torch.Generator().manual_seed(0)
    centres = 10 * torch.eye(4)
    truth = torch.arange(60) % 4
    points = centres[truth] + 0.1 * torch.randn(60, 4, generator=draw)
    got = k_means(points, 4, Stream(0))
    assert all((truth[a] == truth[b]) == (got[a] == got[b]) for a, b in combinations(range(60), 2))
    assert len(k_means(points[:0], 4, Stream(0))) == 0
    assert len(k_means(torch.zeros(5, 2), 4, Stream(0)).unique()) == 1, "copies of one point"


def test_diversity_counts_faults_only() -> None:
    y = torch.arange(20) % 2
    pred = torch.where(torch.arange(20) < 4, 5 + torch.arange(20) % 3, y)  # rows 0 to 3 are wrong
    pool = Pool("fgsm", torch.zeros(20, 1), y, pred)
    told = Diversity.of(pool, torch.eye(20), Stream(0))
    assert told.whole() == {"pairs": 4, "clusters": 4}
    first = told(torch.tensor([3, 10, *range(3), *range(4, 10), *range(11, 20)]))
    assert first == {"volume": 0.0, "pairs": 1, "clusters": 1}, "of two cases one is a fault"


def test_a12_is_the_share_of_pairs_won() -> None:
    first, second = [0.3, 0.5, 0.5, 0.9], [0.5, 0.2]
    assert a12(first, second) == (0 + 1 + 0.5 + 1 + 0.5 + 1 + 1 + 1) / 8


# ---- pools ----


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_has_an_input_of_every_image_and_is_kept(subject: Subject, name: str) -> None:
    pool, clean = subject.pool(name), subject.images("test")
    assert len(pool) == len(clean) == 300
    assert torch.equal(pool.y, clean.y)
    assert 0 < pool.faults < len(pool), "failed attacks are kept"
    assert torch.equal(pool.pred, subject.predicted(subject.target, pool.x))
    assert bool(((pool.x >= 0) & (pool.x <= 1)).all())
    again = subject.pool(name)
    assert torch.equal(again.x, pool.x)
    if POOLS[name].attack == "fgsm":
        size = (pool.x - clean.x).abs().flatten(1).amax(1)
        assert bool((size <= 0.2 + 1e-6).all())
        moved = (size > 0.19).float().mean()
        assert (moved < 0.1) if POOLS[name].drawn else (moved > 0.9), "FGSM moves every image, right or wrong"
    else:
        assert bool(((pool.x != clean.x).flatten(1).sum(1) <= 0.12 * 64).all())


def test_a_pool_of_another_net_is_not_taken(subject: Subject, work: Path) -> None:
    pool = subject.pool("fgsm")
    other = Subject("digits", "lenet5", device="cpu", work=work, scale=SMALL, seed=1)
    assert other.fingerprint != subject.fingerprint
    assert not torch.equal(other.pool("fgsm").x, pool.x)
    assert torch.equal(subject.pool("fgsm").x, pool.x), "made again for its own net"


def test_held_images_are_in_no_other_part(subject: Subject) -> None:
    held = {row.numpy().tobytes() for row in subject.images("held").x}
    for part in ("train", "val", "test"):
        assert not held & {row.numpy().tobytes() for row in subject.splits.part(part).cases.x}, part


# ---- orders ----


def test_methods_that_see_more_are_marked() -> None:
    assert {METHODS[name].sees for name in of_group("lbt")} == {"labels"}
    assert METHODS["gini"].sees == METHODS["metasel"].sees == PROBABILITIES
    assert METHODS["nmutant"].sees == METHODS["cam-kmnc"].sees == "white box"
    assert params_of(METHODS["lbt"], "fashion-mnist", small=False) == {"tau": 0.9}
    assert params_of(METHODS["lbt-half"], "mnist", small=False) == {"tau": 0.95, "delta": 0.5}
    assert params_of(METHODS["gini"], "mnist", small=False) == {}


@pytest.fixture(scope="module")
def orders(subject: Subject) -> Orders:
    return Orders(subject, small=True)


def test_variants_share_a_stand_in_that_asks_for_labels_only(orders: Orders) -> None:
    ground = Ground(orders.subject, "fgsm-drawn")
    told = {name: orders.one(name, ground.pool, 0) for name in ("lbt", "lbt-ms", "control")}
    for one in told.values():
        assert torch.equal(one.order.sort().values, torch.arange(300))
    queries = {one.facts["queries"] for one in told.values()}
    assert len(queries) == 1, "asked once for all of them"
    assert queries.pop() >= 500, "400 to begin with and 100 to be checked on"
    numbers = ground.numbers(told["lbt"])
    agree = told["lbt"].facts["agree"]
    assert numbers["agreement_pool"] == pytest.approx(float(agree.double().mean()), abs=1e-6)
    assert numbers["agree"]["n"] + numbers["disagree"]["n"] == 300
    assert numbers["agree"]["faults"] + numbers["disagree"]["faults"] == ground.pool.faults
    assert numbers["fdr_mean"] == found(ground.pool.wrong[told["lbt"].order])["fdr_mean"]
    assert json.loads(json.dumps(numbers)) == numbers, "a row can be written"


def test_a_sweep_counts_the_queries_of_one_value(orders: Orders) -> None:
    ground, sweep = Ground(orders.subject, "fgsm-drawn"), Sweep(orders)
    first = sweep.numbers(ground, "tau", 0.8, "control", 0)
    again = sweep.numbers(ground, "tau", 0.9, "control", 0)
    assert again["queries"] < 1.8 * first["queries"], "not added up"
    assert sweep.protocol("fgsm-drawn", "tau", 0.8, "control", 0)["how"]["tau"] == 0.8
    assert {name for _, name in sweep.values("net")} == {"lbt", "control"}
    assert [value for value, _ in sweep.values("rate", ["0.01"])] == [0.01]
    assert [value for value, _ in sweep.values("rate")] == list(SWEEPS["rate"])


def test_random_orders_are_permutations_of_their_own(orders: Orders) -> None:
    pool = orders.subject.pool("fgsm")
    first, second = orders.random(pool, 0).order, orders.random(pool, 1).order
    assert torch.equal(first.sort().values, torch.arange(300))
    assert not torch.equal(first, second)
    assert torch.equal(first, orders.random(pool, 0).order)


def test_perfect_and_worst_order_are_told_apart(orders: Orders) -> None:
    ground = Ground(orders.subject, "fgsm-drawn")
    best = (~ground.pool.wrong).long().argsort(stable=True)
    assert ground.numbers(Ordered("gini", best, {}))["fdr_mean"] == 1.0
    assert ground.numbers(Ordered("gini", best.flip(0), {}))["apfd_norm"] == 0.0


def test_features_have_length_one(subject: Subject) -> None:
    features = features_of(subject.witness, subject.images("test").x[:7], subject.chunks)
    assert features.shape[0] == 7
    assert features.square().sum(1).tolist() == pytest.approx([1.0] * 7, abs=1e-5)
    assert subject.witness.fingerprint() != subject.fingerprint


# ---- retraining ----


def test_retraining_has_a_static_and_a_fresh_column(orders: Orders) -> None:
    retraining = Retraining(orders)
    before = retraining.numbers("fgsm", "before", NO_SEED)
    held = orders.subject.pool("fgsm", "held")
    assert before["static"] == pytest.approx(1 - held.faults / len(held), abs=1e-6)
    assert before["extra"] == 0
    after = retraining.numbers("fgsm", "random", 0)
    assert after["extra"] == 30
    rows = first_of(orders, orders.subject.pool("fgsm"), "random", 0)
    assert torch.equal(rows, orders.random(orders.subject.pool("fgsm"), 0).order[:30])
    none = retraining.numbers("fgsm", "none", 0)
    assert none["extra"] == 0
    told = ("static", "fresh", "clean_held")
    assert [none[key] for key in told] != [before[key] for key in told], "it was trained further"
    assert retraining.numbers("fgsm", "none", 0)["static"] == none["static"]


def test_clean_accuracy_is_not_of_images_that_were_learned(orders: Orders) -> None:
    retraining, subject = Retraining(orders), orders.subject
    before, after = (retraining.numbers("fgsm", arm, NO_SEED) for arm in ("before", "random"))
    held = subject.images("held")
    right = subject.predicted(subject.target, held.x) == held.y
    assert before["clean_held"] == pytest.approx(float(right.double().mean()), abs=1e-6)
    assert "clean_held" in after
    assert "clean" in before, "test images, of which nothing was learned"
    assert "clean" not in after, "attacked test images were learned"


def test_the_first_cases_of_other_parameters_are_not_taken(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = orders.subject.pool("fgsm")
    turns = iter([torch.arange(300), torch.arange(300).flip(0)])
    monkeypatch.setattr(Orders, "black", lambda self, name, *rest: Ordered(name, next(turns), {}))
    first = first_of(orders, pool, "lbt-half", 77)
    assert torch.equal(first, torch.arange(30))
    assert torch.equal(first_of(orders, pool, "lbt-half", 77), first), "kept"
    monkeypatch.setitem(METHODS, "lbt-half", replace(METHODS["lbt-half"], how={"delta": 0.4}))
    assert torch.equal(first_of(orders, pool, "lbt-half", 77), torch.arange(299, 269, -1))


# ---- the commands ----


def test_rows_are_computed_once(
    subject: Subject, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    common = ["--data", "digits", "--mut", "lenet5", "--attacks", "fgsm-drawn", "--seeds", "0", "--small"]
    common += ["--device", "cpu", "--work", str(work), "--rows", str(rows)]
    chosen = ["--groups", "lbt", "random", "white", "--methods", "lbt", "control", "random", "gini", "ctm-nbc"]
    assert lbt.main(["subjects", "pools", "orders", *common, *chosen]) == 0
    told = list(Rows(rows))
    assert {r["protocol"]["method"] for r in told} == {"lbt", "control", "random", "gini", "ctm-nbc"}
    assert len(told) == 2 + 20 + 2
    assert all(r["protocol"]["small"] for r in told)
    first = rows.read_text()
    assert lbt.main(["orders", *common, *chosen]) == 0
    assert rows.read_text() == first
    capsys.readouterr()
    assert lbt.main(["orders", *common, "--groups", "bound", "--seconds", "0"]) == 0
    assert "not begun" in capsys.readouterr().out
    assert rows.read_text() == first


def test_one_row_that_fails_does_not_stop_the_others(
    subject: Subject, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Orders, name: str, *rest: object, **more: object) -> Ordered:
        raise ImportError("no sklearn here")

    monkeypatch.setattr(Orders, "black", fails)
    rows = tmp_path / "rows.jsonl"
    common = ["--data", "digits", "--mut", "lenet5", "--attacks", "fgsm-drawn", "--seeds", "0", "--small"]
    common += ["--device", "cpu", "--work", str(work), "--rows", str(rows)]
    assert lbt.main(["orders", *common, "--groups", "rival", "random"]) == 0
    assert "no row, ImportError: no sklearn here" in capsys.readouterr().out
    assert {r["protocol"]["method"] for r in Rows(rows)} == {"random"}
