"""Surprise against slow, obvious references, at its edges, and with tables of any size."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.specs import step
from assay.stages.surprise.clusters import fit_clusters
from assay.stages.surprise.distances import fit_distances
from assay.stages.surprise.gaussians import fit_gaussians
from assay.stages.surprise.kernels import fit_kernels
from assay.stages.surprise.mixtures import fit_mixtures
from assay.stages.surprise.nearest import Points
from assay.stages.surprise.spread import FEW, steady, variance, varying
from assay.stages.surprise.training import Surprise
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.observer import Observer
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

WIDTH, CLASSES = 5, 3
RNG = Stream(0)
FITS: dict[str, Callable[[Tensor, Tensor, int], Surprise]] = {
    "lsa": fit_kernels,
    "dsa": lambda *given: fit_distances(*given, rng=RNG),
    "mdsa": fit_gaussians,
    "mlsa": lambda *given: fit_mixtures(*given, rng=RNG),
    "mmdsa": lambda *given: fit_clusters(*given, rng=RNG),
}
NAMES = tuple(FITS)
Traces = tuple[Tensor, Tensor]


def some(n: int, seed: int, offset: float = 0.0) -> Traces:
    """Traces of three classes, each a stretched cloud of its own, and their classes."""
    rng = torch.Generator().manual_seed(seed)
    fixed = torch.Generator().manual_seed(99)
    middle = torch.randn(CLASSES, WIDTH, generator=fixed) * 3
    stretch = torch.randn(CLASSES, WIDTH, WIDTH, generator=fixed)
    labels = torch.randint(CLASSES, (n,), generator=rng)
    round_ = torch.randn(n, 1, WIDTH, generator=rng)
    return (round_ @ stretch[labels]).squeeze(1) + middle[labels] + offset, labels


@pytest.fixture(scope="module")
def known() -> Traces:
    return some(240, 1)


@pytest.fixture(scope="module")
def asked() -> Traces:
    return some(60, 2)


def by_class(asked: Traces, known: Traces, one: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Tensor:
    """``one(training traces, traces)`` of every class, put back into rows."""
    found = np.full(len(asked[0]), np.nan)
    for c in range(CLASSES):
        own = known[0][known[1] == c].double().numpy()
        rows = (asked[1] == c).numpy()
        found[rows] = one(own, asked[0][asked[1] == c].double().numpy())
    return torch.from_numpy(found)


# ---- against references


def test_lsa_is_the_kernel_density_of_scipy(known: Traces, asked: Traces) -> None:
    want = by_class(asked, known, lambda own, x: -gaussian_kde(own.T).logpdf(x.T))
    assert torch.allclose(fit_kernels(*known, CLASSES, jitter=0.0)(*asked), want, rtol=1e-9)
    assert torch.allclose(fit_kernels(*known, CLASSES)(*asked), want, rtol=1e-3), "jitter must not be felt"


def test_lsa_leaves_out_neurons_that_hardly_vary_in_the_class(known: Traces, asked: Traces) -> None:
    def widened(traces: Traces) -> Traces:
        x, labels = traces
        flat = 7 + 1e-3 * x[:, :1] * (labels == 1)[:, None]  # varies in one class only, and too little
        return torch.cat([x[:, :2], flat, x[:, 2:]], 1), labels

    plain = fit_kernels(*known, CLASSES)(*asked)
    assert torch.allclose(fit_kernels(*widened(known), CLASSES, least=1e-3)(*widened(asked)), plain, rtol=1e-9)
    told = fit_kernels(*widened(known), CLASSES, least=1e-9)(*widened(asked))
    same = torch.isclose(told, plain, rtol=1e-6)
    assert not same[asked[1] == 1].any()
    assert same[asked[1] != 1].all(), "each class has its own neurons"


def test_lsa_keeps_the_neurons_that_vary_most(known: Traces, asked: Traces) -> None:
    def one(own: np.ndarray, x: np.ndarray) -> np.ndarray:
        kept = np.sort(np.argsort(-own.var(0))[:2])
        result: np.ndarray = -gaussian_kde(own[:, kept].T).logpdf(x[:, kept].T)
        return result

    want = by_class(asked, known, one)
    assert torch.allclose(fit_kernels(*known, CLASSES, most=2, jitter=0.0)(*asked), want, rtol=1e-9)


def brute_dsa(asked: Traces, known: Traces) -> Tensor:
    (x, labels), (points, classes) = ((t.double(), c) for t, c in (asked, known))
    found = []
    for row, label in zip(x, labels, strict=True):
        same, other = points[classes == label], points[classes != label]
        away = [math.dist(row.tolist(), p.tolist()) for p in same]
        nearest = same[int(np.argmin(away))]
        found.append(min(away) / min(math.dist(nearest.tolist(), p.tolist()) for p in other))
    return torch.tensor(found, dtype=torch.float64)


def test_dsa_is_that_of_every_pair(known: Traces, asked: Traces) -> None:
    assert torch.allclose(fit_distances(*known, CLASSES, rng=RNG)(*asked), brute_dsa(asked, known), rtol=1e-12)


def test_dsa_finds_the_nearest_where_the_matrix_product_cancels() -> None:
    # Classes 1000 apart: the squares of the lengths are 5e6, and float32 knows these to within 0.5, while neighbours
    # are less than 0.1 apart. Centring does not help.
    def narrow(traces: Traces) -> Traces:
        x, labels = traces
        return x * 0.01 + (labels[:, None] - 1.0) * 1000, labels

    near, far = narrow(some(240, 1)), narrow(some(60, 2))
    assert torch.allclose(fit_distances(*near, CLASSES, rng=RNG)(*far), brute_dsa(far, near), rtol=1e-12)


def test_mdsa_is_the_mahalanobis_distance_and_not_its_square(known: Traces, asked: Traces) -> None:
    def one(own: np.ndarray, x: np.ndarray) -> np.ndarray:
        away, inverse = x - own.mean(0), np.linalg.inv(np.cov(own.T))
        return np.array([math.sqrt(row @ inverse @ row) for row in away])

    want = by_class(asked, known, one)
    assert torch.allclose(fit_gaussians(*known, CLASSES, jitter=0.0)(*asked), want, rtol=1e-9)
    assert torch.allclose(fit_gaussians(*known, CLASSES)(*asked), want, rtol=1e-3)


def test_mlsa_is_the_mixture_of_scikit_learn(known: Traces, asked: Traces) -> None:
    fitted = fit_mixtures(*known, CLASSES, rng=RNG)

    def one(own: np.ndarray, x: np.ndarray) -> np.ndarray:
        c = next(c for c in range(CLASSES) if len(own) == int((known[1] == c).sum()))
        seed = int(torch.randint(2**31 - 1, (), generator=RNG.at(c).generator()))
        little = 1e-6 * own.var(0, ddof=1).mean()
        result: np.ndarray = -GaussianMixture(3, reg_covar=little, random_state=seed).fit(own).score_samples(x)
        return result

    assert len({int((known[1] == c).sum()) for c in range(CLASSES)}) == CLASSES, "classes are told apart by their sizes"
    assert torch.allclose(fitted(*asked), by_class(asked, known, one), rtol=1e-7)


def test_mlsa_of_one_component_is_a_gaussian(known: Traces, asked: Traces) -> None:
    from scipy.stats import multivariate_normal

    want = by_class(asked, known, lambda own, x: -multivariate_normal(own.mean(0), np.cov(own.T)).logpdf(x))
    found = fit_mixtures(*known, CLASSES, components=1, jitter=0.0, rng=RNG)(*asked)
    assert torch.allclose(found, want, rtol=1e-9)


def test_mmdsa_finds_planted_clusters_and_measures_within_the_nearest() -> None:
    rng = torch.Generator().manual_seed(5)
    middles = torch.tensor([[0.0, 0.0], [40.0, 0.0], [0.0, 40.0]])
    place = torch.arange(300) % 3
    x = torch.randn(300, 2, generator=rng) * torch.tensor([1.0, 3.0]) + middles[place]
    fitted = fit_clusters(x, torch.zeros(300, dtype=torch.int64), 1, jitter=0.0, rng=RNG)
    assert [len(c) for c in fitted.centres] == [3]
    test = torch.randn(30, 2, generator=rng) * 2 + middles[torch.arange(30) % 3]
    want = []
    for i, row in enumerate(test.double().numpy()):
        own = x[place == i % 3].double().numpy()
        away = row - own.mean(0)
        want.append(math.sqrt(away @ np.linalg.inv(np.cov(own.T)) @ away))
    found = fitted(test, torch.zeros(30, dtype=torch.int64))
    assert torch.allclose(found, torch.tensor(want, dtype=torch.float64), rtol=1e-6)
    one = fit_gaussians(x, torch.zeros(300, dtype=torch.int64), 1)(middles.mean(0, keepdim=True), torch.tensor([0]))
    between = fitted(middles.mean(0, keepdim=True), torch.tensor([0]))
    assert float(between) > 3 * float(one), "between the clusters nothing was seen, though it is near their mean"


def test_a_cluster_of_few_traces_takes_the_covariance_of_its_class() -> None:
    rng = torch.Generator().manual_seed(6)
    x = torch.randn(66, WIDTH, generator=rng)
    x[60:] = x[60:] * 0.1 + 50
    fitted = fit_clusters(x, torch.zeros(66, dtype=torch.int64), 1, clusters=2, jitter=0.0, rng=RNG)
    assert sorted(map(len, fitted.centres)) == [2]
    parts = [part.double() for part in (x[:60], x[60:])]
    away = torch.cat([part - part.mean(0) for part in parts]).numpy()
    own, test = parts[1].mean(0).numpy(), np.full(WIDTH, 53.0)
    want = math.sqrt((test - own) @ np.linalg.inv(np.cov(away.T)) @ (test - own))
    assert float(fitted(torch.from_numpy(test).float()[None], torch.tensor([0]))) == pytest.approx(want, rel=1e-6)


def test_a_mixture_has_no_more_parts_than_its_traces_can_tell_apart() -> None:
    rng = torch.Generator().manual_seed(6)
    x = torch.cat([torch.randn(n, WIDTH, generator=rng) for n in (40, 5, 3, 1)] + [torch.ones(40, WIDTH)])
    labels = torch.arange(5).repeat_interleave(torch.tensor([40, 5, 3, 1, 40]))
    fitted = fit_mixtures(x, labels, 6, rng=RNG)
    assert [None if one is None else len(one.parts) for one in fitted.each] == [3, 2, 1, 1, 1, None]


# ---- chunks and memory


class Largest(TorchDispatchMode):
    """Counts the numbers in the largest tensor that anything makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return made


@pytest.mark.parametrize("fit", [fit_kernels, FITS["dsa"]], ids=["lsa", "dsa"])
def test_small_tables_give_the_same(fit: Callable[..., Any], known: Traces, asked: Traces) -> None:
    whole = fit(*known, CLASSES)(*asked)
    small = partial_block(fit, 97)(*known, CLASSES)(*asked)
    assert torch.allclose(whole, small, rtol=1e-12)


def partial_block(fit: Callable[..., Any], block: int) -> Callable[..., Any]:
    if fit is fit_kernels:
        return lambda *given: fit_kernels(*given, block=block)
    return lambda *given: fit_distances(*given, rng=RNG, block=block)


@pytest.mark.parametrize("fit", [fit_kernels, FITS["dsa"]], ids=["lsa", "dsa"])
def test_no_table_is_larger_than_its_block(fit: Callable[..., Any]) -> None:
    known, asked = some(3000, 1), some(2000, 2)
    block = 20_000
    fitted = partial_block(fit, block)(*known, CLASSES)
    with Largest() as seen:
        fitted(*asked)
    assert 5000 < seen.numbers <= block, "a table of all pairs of a class would hold some 600 000 numbers"


def test_rows_do_not_depend_on_their_neighbours(known: Traces, asked: Traces) -> None:
    for fit in FITS.values():
        whole = fit(*known, CLASSES)(*asked)
        fitted = fit(*known, CLASSES)
        alone = torch.cat([fitted(asked[0][i : i + 1], asked[1][i : i + 1]) for i in range(len(whole))])
        assert torch.allclose(whole, alone, rtol=1e-9)


def test_the_way_to_other_classes_is_measured_once_and_only_where_it_is_asked_for(known: Traces) -> None:
    fitted = fit_distances(*known, CLASSES, rng=RNG)
    few = (known[0][:4] + 0.01, known[1][:4])
    first = fitted(*few)
    assert int((~fitted.beyond.isnan()).sum()) == 4
    fitted.known = replace(fitted.known, halves=torch.full_like(fitted.known.halves, torch.nan))
    before = fitted.beyond.clone()
    assert torch.allclose(fitted(*few), first), "nothing is measured again but the way to the case itself"
    assert torch.equal(fitted.beyond.isnan(), before.isnan())


def test_nearest_takes_the_first_of_equals_and_tells_of_nothing() -> None:
    points = Points.of(torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    for block in (1, 5, 1000):
        rows, away = points.nearest(torch.zeros(1, 2), slice(0, 4), block)
        assert (rows.tolist(), away.tolist()) == ([1], [1.0])
    assert points.nearest(torch.zeros(2, 2), slice(3, 3))[1].tolist() == [torch.inf, torch.inf]
    assert (
        points.nearest(torch.tensor([[torch.nan, 0.0], [0.0, torch.inf]]), slice(0, 5))[1].tolist() == [torch.inf] * 2
    )
    assert points.nearest(torch.zeros(0, 2), slice(0, 5))[0].shape == (0,)


def test_nearest_where_products_overflow() -> None:
    points = Points.of(torch.tensor([[-3e20, 0.0], [1e20, -1e20], [3e19, 9e19]]))
    rows, away = points.nearest(torch.tensor([[2e20, -1e20]]), slice(0, 3))
    assert rows.tolist() == [1]
    assert float(away) == pytest.approx(1e20)


def test_products_of_fewer_digits_find_the_same_neighbours(
    known: Traces, asked: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = torch.addmm

    def rough(add: Tensor, left: Tensor, right: Tensor, **kwargs: Any) -> Tensor:
        return exact(add, left.bfloat16().float(), right.bfloat16().float(), **kwargs)

    monkeypatch.setattr(torch, "addmm", rough)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    found = fit_distances(*known, CLASSES, rng=RNG)(*asked)
    assert torch.allclose(found, brute_dsa(asked, known), rtol=1e-12)


# ---- edges


@pytest.mark.parametrize("name", NAMES)
def test_far_out_is_large_and_finite(name: str, known: Traces) -> None:
    fitted = FITS[name](*known, CLASSES)
    away = torch.tensor([1e1, 1e2, 1e4, 1e8, 1e16, 1e25])[:, None].expand(6, WIDTH)
    values = fitted(away, torch.zeros(6, dtype=torch.int64))
    assert values.isfinite().all()
    assert (values.diff() > 0).all()
    assert values[-1] > 1e20


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_was_never_seen_is_infinitely_surprising(name: str, known: Traces, asked: Traces) -> None:
    fitted = FITS[name](*known, CLASSES + 2)
    assert fitted(asked[0], torch.full_like(asked[1], CLASSES + 1)).tolist() == [torch.inf] * len(asked[1])
    assert torch.allclose(fitted(*asked), FITS[name](*known, CLASSES)(*asked))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_class_of_few_traces_grows_with_distance(name: str, n: int, known: Traces) -> None:
    x = torch.cat([known[0], torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(n)) + 8])
    labels = torch.cat([known[1], torch.full((n,), CLASSES)])
    fitted = FITS[name](x, labels, CLASSES + 1)
    own = x[-n:].mean(0)
    steps = own + torch.tensor([[0.0], [0.5], [1.0], [2.0], [4.0], [8.0]]) * torch.ones(WIDTH)
    values = fitted(steps, torch.full((6,), CLASSES))
    assert values.isfinite().all()
    assert (values[2:].diff() > 0).all(), "from outside the few traces on"


def test_a_class_of_one_trace_borrows_how_the_others_spread(known: Traces) -> None:
    x, labels = torch.cat([known[0], torch.full((1, WIDTH), 8.0)]), torch.cat([known[1], torch.tensor([CLASSES])])
    within = np.mean([known[0][known[1] == c].numpy().var(0).sum() * (known[1] == c).sum() for c in range(CLASSES)])
    scale = within * CLASSES / (len(known[0]) - CLASSES) / WIDTH
    step_ = torch.full((1, WIDTH), 8.0)
    step_[0, 0] += 1
    values = fit_gaussians(x, labels, CLASSES + 1)(step_, torch.tensor([CLASSES]))
    assert float(values) == pytest.approx(1 / math.sqrt(FEW * scale), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_constant_neurons_and_classes_do_no_harm(name: str) -> None:
    x, labels = some(240, 1)
    x[:, 3] = 2.0
    fitted = FITS[name](x, labels, CLASSES)
    inside, outside = x[labels == 0][:5], x[labels == 0][:5] + torch.tensor([9.0, 9, 9, 0, 9])
    zeros = torch.zeros(5, dtype=torch.int64)
    assert fitted(inside, zeros).isfinite().all()
    assert (fitted(outside, zeros) > fitted(inside, zeros)).all()
    x[labels == 1] = 5.1  # a class whose every trace is the same
    fitted = FITS[name](x, labels, CLASSES)
    at = torch.tensor([[5.1] * WIDTH, [5.5] * WIDTH, [7.0] * WIDTH])
    values = fitted(at, torch.ones(3, dtype=torch.int64))
    assert values.isfinite().all()
    assert (values.diff() > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_where_nothing_varies_at_all(name: str) -> None:
    x, labels = torch.full((20, WIDTH), 1.1), torch.arange(20) % 2  # not a number of few binary digits
    x[labels == 1] = 2.3
    values = FITS[name](x, labels, 2)(torch.tensor([[1.1] * WIDTH, [1.5] * WIDTH]), torch.zeros(2, dtype=torch.int64))
    assert values.isfinite().all()
    assert values[1] > values[0]


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_and_nan_rows(name: str, known: Traces, asked: Traces) -> None:
    fitted = FITS[name](*known, CLASSES)
    assert fitted(asked[0][:0], asked[1][:0]).shape == (0,)
    broken = asked[0].clone()
    broken[7, 2] = torch.nan
    values, plain = fitted(broken, asked[1]), fitted(*asked)
    assert values[7].isnan()
    rest = torch.arange(len(values)) != 7
    assert torch.allclose(values[rest], plain[rest])


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_traces(name: str, known: Traces, asked: Traces) -> None:
    single = FITS[name](*known, CLASSES)(*asked)
    double = FITS[name](known[0].double(), known[1], CLASSES)(asked[0].double(), asked[1])
    assert torch.allclose(single, double, rtol=1e-5)


def test_dsa_of_a_trace_that_two_classes_share() -> None:
    x = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 0.0]])
    fitted = fit_distances(x, torch.tensor([0, 0, 1]), 2, rng=RNG)
    at = torch.tensor([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]])
    assert fitted(at, torch.zeros(3, dtype=torch.int64)).tolist() == [0.0, torch.inf, 1 / 5]


def test_dsa_needs_two_classes() -> None:
    with pytest.raises(UsageError, match="compares classes"):
        fit_distances(torch.zeros(3, 2), torch.ones(3, dtype=torch.int64), 5, rng=RNG)


def test_a_share_of_the_traces_is_drawn_from_every_class(known: Traces, asked: Traces) -> None:
    def kept(share: float, rng: Stream = RNG) -> list[int]:
        return [run.stop - run.start for run in fit_distances(*known, CLASSES, share=share, rng=rng).runs]

    sizes = known[1].bincount().tolist()
    assert kept(1.0) == sizes
    assert kept(0.3) == [round(n * 0.3) for n in sizes]
    assert kept(1e-9) == [1, 1, 1]
    part = fit_distances(*known, CLASSES, share=0.3, rng=RNG)
    assert torch.equal(part(*asked), fit_distances(*known, CLASSES, share=0.3, rng=RNG)(*asked))
    assert not torch.equal(part(*asked), fit_distances(*known, CLASSES, share=0.3, rng=Stream(1))(*asked))
    rows = [torch.cdist(point[None], known[0]).argmin() for point in part.known.points]
    assert torch.allclose(part(*asked), brute_dsa(asked, (known[0][rows], known[1][rows])))


def test_a_singular_covariance_without_jitter_is_refused() -> None:
    x, labels = some(240, 1)
    x[:, 3] = x[:, 2]
    with pytest.raises(UsageError, match="jitter"):
        fit_gaussians(x, labels, CLASSES, jitter=0.0)


def test_all_groups_are_steadied_alike_where_traces_are_few_for_their_neurons() -> None:
    sizes = [torch.arange(n) for n in (17, 0, 3)]
    assert steady(1e-6, sizes, 5) == 1e-6
    assert steady(1e-6, sizes, 6) == FEW
    assert steady(0.5, sizes, 6) == 0.5


def test_what_is_constant_has_no_variance_at_all() -> None:
    assert variance(torch.full((37, 2), 5.1)).tolist() == [0.0, 0.0]


def test_which_neurons_are_kept() -> None:
    own, within = torch.tensor([0.0, 3.0, 1.0, 2.0]), torch.tensor([9.0, 0.0, 0.0, 0.0])
    assert varying(own, within, 1e-5, 300).tolist() == [1, 2, 3]
    assert varying(own, within, 1e-5, 2).tolist() == [1, 3]
    assert varying(own, within, 0.0, 300).tolist() == [0, 1, 2, 3]
    assert varying(torch.zeros(4), within, 1e-5, 300).tolist() == [0]
    assert varying(torch.zeros(4), torch.zeros(4), 1e-5, 300).tolist() == [0, 1, 2, 3]


# ---- on a bench

SPEC = InputSpec((4,), (-10.0, 10.0), ("a", "b", "c"))


def bench_of(training: bool = True, seed: int = 0) -> Bench:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(7))
    wrong = torch.zeros(200, dtype=torch.int64)  # labels that no answer has: only predicted classes may count
    return Bench(ModuleTarget(net, SPEC), training=Data("made/train", Cases.of(x, wrong), SPEC) if training else None)


def cases_of(n: int = 12) -> Cases:
    return Cases.of(torch.randn(n, 4, generator=torch.Generator().manual_seed(8)))


def scored(bench: Bench, cases: Cases, text: str) -> Tensor:
    values = bind("score", *step(text))(bench, cases)
    assert isinstance(values, Tensor)
    return values


@pytest.mark.parametrize("name", NAMES)
def test_a_score_fits_to_predicted_classes_of_the_training_data(name: str) -> None:
    bench, cases = bench_of(), cases_of()
    assert bench.training is not None
    observer = Observer.of([bench.target], "last")
    known, asked = (observer.all(c.x, bench.chunks) for c in (bench.training.cases, cases))
    rng = {} if name in ("lsa", "mdsa") else {"rng": Stream(0).at(name)}
    fit: Any = {"lsa": fit_kernels, "dsa": fit_distances, "mdsa": fit_gaussians}
    fit |= {"mlsa": fit_mixtures, "mmdsa": fit_clusters}
    want = fit[name](known.neurons, known.logits.argmax(1), 3, **rng)(asked.neurons, asked.logits.argmax(1))
    found = scored(bench, cases, name)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), want, rtol=1e-5)
    if name != "dsa":
        whole = fit[name](known.neurons, torch.zeros(200, dtype=torch.int64), 1, **rng)
        want = whole(asked.neurons, torch.zeros(12, dtype=torch.int64))
        assert torch.allclose(scored(bench, cases, f"{name}(per_class=false)").double(), want, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_columns_spare_the_pass_and_fits_are_kept(name: str) -> None:
    bench, cases = bench_of(), cases_of()
    plain = scored(bench, cases, name)
    whole = replace(bench, observer=Observer.of([bench.target], "auto"))
    looked = whole.observed(cases)
    target = bench.target
    assert isinstance(target, ModuleTarget)
    hook = target.module.register_forward_pre_hook(lambda *_: pytest.fail("the net was asked again"))
    assert torch.equal(scored(whole, looked, name), plain)
    hook.remove()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [False, True])
def test_surprise_can_be_climbed(name: str, columns: bool) -> None:
    bench, cases = bench_of(), cases_of()
    x = cases.x.clone().requires_grad_()
    view = cases.with_x(x)
    if columns:
        bench = replace(bench, observer=Observer.of([bench.target], "auto"))
        assert bench.observer is not None
        seen = bench.observer(x)
        view = view.note(logits=seen.logits, neurons=seen.neurons)
    values = scored(bench, view, name)
    (slope,) = torch.autograd.grad(values.sum(), x)
    assert slope.isfinite().all()
    moved = scored(bench, cases.with_x(cases.x + 1e-3 * slope / slope.norm(dim=1, keepdim=True)), name)
    assert moved.sum() > values.sum()


@pytest.mark.parametrize("name", NAMES)
def test_surprise_without_training_data_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} compares .* --training"):
        scored(bench_of(training=False), cases_of(), name)


def test_what_is_too_large_for_its_type_stays_finite() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 3))
    training = bench_of().training
    bench = Bench(ModuleTarget(net, SPEC), training=training)
    values = scored(bench, Cases.of(torch.full((1, 4), 1e25)), "lsa")
    assert values.tolist() == [torch.finfo(torch.float32).max]


def test_training_data_that_break_the_net_are_refused() -> None:
    bench = bench_of()
    assert bench.training is not None
    x = bench.training.cases.x.clone()
    x[3] = torch.nan
    bench = replace(bench, training=replace(bench.training, cases=bench.training.cases.with_x(x)))
    with pytest.raises(UsageError, match="1 cases of made/train"):
        scored(bench, cases_of(), "mdsa")


@pytest.mark.parametrize(
    "text",
    [
        "lsa(variance=-1)",
        "lsa(most=0)",
        "lsa(jitter=-0.1)",
        "dsa(share=0)",
        "dsa(share=1.5)",
        "mdsa(jitter=-1)",
        "mlsa(components=0)",
        "mmdsa(clusters=1)",
    ],
)
def test_parameters_without_meaning_are_refused(text: str) -> None:
    name, params = step(text)
    with pytest.raises(UsageError, match=rf"^{name}: {next(iter(params))} "):
        scored(bench_of(), cases_of(), text)


def test_parameters_are_told_apart() -> None:
    bench, cases = bench_of(), cases_of()
    texts = ("lsa", "lsa(most=2)", "lsa(jitter=0.5)", "lsa(layers=1*)", "lsa(layers=logits)", "lsa(per_class=false)")
    values = [scored(bench, cases, text) for text in texts]
    for i, one in enumerate(values):
        for other in values[:i]:
            assert not torch.allclose(one, other)


# ---- quality


@pytest.mark.parametrize("name", NAMES)
def test_planted_outliers_come_first(name: str, digits_model: str) -> None:
    """Pictures of no digit among digits that nobody trained on: most of the most surprising must be theirs."""
    bench = Bench(load_target(digits_model), training=load_data("digits/train"))
    usual = load_data("digits/test").cases
    rng = torch.Generator().manual_seed(0)
    blocks = torch.rand(20, *usual.x.shape[1:], generator=rng)
    values = scored(bench, Cases.cat([usual, Cases.of(blocks)]), name)
    first = values.argsort(descending=True, stable=True)[:20]
    assert int((first >= len(usual)).sum()) >= 12
