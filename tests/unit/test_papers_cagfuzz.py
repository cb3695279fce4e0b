"""CAGFuzz's experiments: which candidate becomes a test, what tools make, rows that are computed once."""

import json
from pathlib import Path

import pytest
import torch

from assay.core.cases import Cases
from assay.stages.aeg import Aeg
from papers import cagfuzz
from papers.cagfuzz_checks import CANDIDATES, CODE_LAYERS, counted, ranked
from papers.cagfuzz_choice import Counter, chosen, distances
from papers.cagfuzz_rq1 import Small, arms_of
from papers.cagfuzz_rq2 import Errors
from papers.cagfuzz_rq3 import Retraining
from papers.cagfuzz_subject import REFERENCE, SMALL, Ground
from papers.cagfuzz_tools import CAGFUZZ, FGSM, FIXED, NOISE, TOOLS, XPLORE, Bank
from papers.rows import Rows


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cagfuzz")


@pytest.fixture(scope="module", autouse=True)
def _own_cache(work: Path) -> object:
    patch = pytest.MonkeyPatch()
    patch.setenv("ASSAY_CACHE", str(work / "cache"))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def ground(work: Path) -> Ground:
    return Ground("digits", device="cpu", work=work, scale=SMALL)


@pytest.fixture(scope="module")
def bank(ground: Ground) -> Bank:
    nets = [ground.net(name, 0) for name in ground.models]
    return Bank(ground, nets[2], nets[:2])


@pytest.fixture(scope="module")
def images(ground: Ground) -> Cases:
    return ground.part("test")[:20]


# ---- the choice ----


def test_the_most_similar_candidate_with_more_active_neurons_is_the_test() -> None:
    cosine = torch.tensor([[0.99, 0.95, 0.93], [0.99, 0.95, 0.80], [0.90, 0.50, 0.10], [0.95, 0.96, 0.94]])
    active = torch.tensor([[5, 7, 9], [5, 5, 9], [9, 9, 9], [4, 6, 9]])
    base, changed = torch.tensor([5, 5, 5, 5]), torch.ones(4, 3, dtype=torch.bool)
    # Row 1 has one with more that is not similar enough, row 2 none above 0.9: 0.9 itself is too little.
    assert chosen(cosine, active, base, changed, must=False).tolist() == [1, 0, -1, 1]
    assert chosen(cosine, active, base, changed, must=True).tolist() == [1, -1, -1, 1]
    changed[3, 1] = changed[1, 0] = False
    assert chosen(cosine, active, base, changed, must=False).tolist() == [1, 1, -1, 2], "no change, no test"


def test_active_neurons_are_counted_as_the_paper_does(ground: Ground, images: Cases) -> None:
    target = ground.net("lenet1", 0)
    counts = Counter.of(target)(images.x, ground.chunks)
    seen: list[torch.Tensor] = []
    net = target.module.net  # type: ignore[attr-defined]  # a module behind its normalisation
    hooks = [
        getattr(net, name).register_forward_hook(lambda m, given, taken: seen.append(taken.detach()))
        for name in ("act1", "pool1", "act2", "pool2")
    ]
    for row in range(3):
        seen.clear()
        with torch.no_grad():
            logits = target(images.x[row : row + 1])
        total = 0
        for layer in (*seen, logits, logits.softmax(1)):
            flat = (layer[0] - layer.min()) / (layer.max() - layer.min())
            total += int(((flat.flatten(1).mean(1) if flat.dim() > 1 else flat) > 0.1).sum())
        assert total == int(counts[row])
    for hook in hooks:
        hook.remove()


def test_distances_by_hand(ground: Ground) -> None:
    clean = torch.zeros(2, 1, 8, 8)
    moved = clean.clone()
    moved[0, 0, 0, :2] = torch.tensor([0.3, 0.4])
    told = distances(moved, clean, (0.0, 1.0), ground.chunks)
    assert told["l2"] == pytest.approx(0.25)
    assert told["linf"] == pytest.approx(0.2)
    assert told["ssim"] is not None
    assert told["ssim"] < 1
    assert distances(moved[:0], clean[:0], (0.0, 1.0), ground.chunks)["l2"] is None


# ---- tools ----


def test_controls_are_as_long_as_the_generators_candidates(bank: Bank, ground: Ground, images: Cases) -> None:
    def lengths(tool: str) -> torch.Tensor:
        every = torch.stack(list(bank.candidates(tool, images, ground.rng("test"))))
        assert bool(((every >= 0) & (every <= 1)).all())
        size: torch.Tensor = (every - images.x).flatten(2).norm(dim=2)
        return size

    made = lengths(CAGFUZZ)
    assert made.shape == (SMALL.candidates, len(images))
    torch.testing.assert_close(lengths(NOISE), made, atol=1e-3, rtol=1e-3)
    reached = lengths(FGSM)  # along one direction the bounds may come first
    assert bool((reached <= made + 1e-3).all())
    fixed = list(bank.candidates(FIXED, images, ground.rng("test")))
    assert len(fixed) == 1
    assert float((fixed[0] - images.x).abs().max()) <= ground.eps + 1e-6


def test_deepxplores_light_moves_all_pixels_of_an_image_alike(bank: Bank, ground: Ground, images: Cases) -> None:
    first = next(iter(bank.candidates(XPLORE, images, ground.rng("test"))))
    delta = first - images.x
    free = (first > 0) & (first < 1)
    for row in range(len(images)):
        moves = delta[row][free[row]]
        assert len(moves) < 2 or float(moves.max() - moves.min()) < 1e-5


def test_every_tool_keeps_the_terms(bank: Bank, ground: Ground, images: Cases) -> None:
    for tool in TOOLS:
        tests = bank.tests(tool, images, ground.rng("test")).cases
        assert bool((tests.info["cosine"] > 0.9).all())
        assert torch.equal(tests.y, images.y[tests.origin])
        assert torch.equal(tests.info["seed_x"], images.x[tests.origin])
        assert bool((tests.x != tests.info["seed_x"]).flatten(1).any(1).all())
        strict = bank.tests(tool, images, ground.rng("test"), must=True).cases
        more = bank.counter(strict.x, ground.chunks) > bank.counter(strict.info["seed_x"], ground.chunks)
        assert bool(more.all())
        assert len(strict) <= len(tests)


# ---- rows ----


def test_arms_without_tests_differ_in_nothing_but_steps(ground: Ground) -> None:
    small = Small(ground, 0)
    assert len(small.learn) == 100
    assert small.learn.y.bincount().tolist() == [10] * 10
    assert small.test.y.bincount().tolist() == [4] * 10
    assert arms_of(ground)[:3] == ("original", "twice", "noise")
    told = small.numbers("lenet5", "twice")
    assert told["tests"] == 0
    nothing = small._trained("lenet5", small.learn[:0])
    again = small._trained("lenet5", small.learn)  # every image with itself for a test
    for one, other in zip(nothing.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    alone = small._trained("lenet5", None)
    assert any(not torch.equal(a, b) for a, b in zip(alone.parameters(), again.parameters(), strict=True))


def test_noise_has_the_images_and_lengths_of_the_generators_tests(ground: Ground) -> None:
    small = Small(ground, 1)
    made, noise = small._extra("lenet4", "cagfuzz"), small._extra("lenet4", "noise")
    assert torch.equal(made.cases.origin, noise.cases.origin)
    for x in (made.cases.x, noise.cases.x):
        assert x.shape[1:] == (1, 8, 8)
    clean = small.learn.x[made.cases.origin]
    size = [(x - clean).flatten(1).norm(dim=1) for x in (made.cases.x, noise.cases.x)]
    torch.testing.assert_close(*size, atol=1e-3, rtol=1e-3)


def test_errors_are_of_images_that_the_model_gets_right(ground: Ground) -> None:
    errors = Errors(ground, "lenet5", 0)
    assert ground.accuracy(errors.target, errors.images) == 1.0
    told = errors.numbers("fgsm-eps", "own")
    assert told["tests"] <= told["images"] == len(errors.images)
    assert 0 <= told["held"] <= told["errors"] <= told["tests"]


def test_every_arm_of_retraining_takes_as_many_cases(ground: Ground) -> None:
    retraining = Retraining(ground, "lenet5", 0)
    retraining.learn["noise"] = retraining.learn["noise"][:5]
    told = {arm: retraining.numbers(arm) for arm in ("plain", "twice", "cagfuzz", "noise")}
    assert told["plain"]["extra"] == 0
    assert told["twice"]["extra"] == told["cagfuzz"]["extra"] == told["noise"]["extra"] > told["noise"]["distinct"] == 3
    assert set(told["cagfuzz"]["static"]) == set(retraining.measure)


def test_retraining_learns_from_training_images_and_measures_on_test_images(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    retraining = Retraining(ground, "lenet5", 0)

    def inside(cases: Cases, part: str) -> torch.Tensor:
        clean, known = cases.info["seed_x"].flatten(1), ground.part(part).x.flatten(1)
        return (clean[:, None] == known).all(2).any(1)

    for tool in retraining.learn:
        for made, own, other in ((retraining.learn, "train", "test"), (retraining.measure, "test", "train")):
            assert bool(inside(made[tool], own).all())
            assert not bool(inside(made[tool], other).any())
    test, mine, target = ground.part("test"), retraining.measure["cagfuzz"], retraining.target
    assert ground.accuracy(target, test) != ground.accuracy(target, ground.part("train")), "else nothing is told apart"
    attacked: list[Cases] = []
    monkeypatch.setattr(retraining, "_fresh", lambda target, cases: attacked.append(cases))
    told = retraining.numbers("before")
    assert told["clean"] == ground.accuracy(target, test)
    assert told["mixed"] == ground.accuracy(target, Cases.of(torch.cat([test.x, mine.x]), torch.cat([test.y, mine.y])))
    assert torch.equal(attacked[0].x, test.x[: SMALL.fresh])


def test_checks_rank_tests_and_count_layers(ground: Ground, bank: Bank, images: Cases) -> None:
    next(iter(bank.candidates(CAGFUZZ, images, ground.rng("test"), 1)))  # the generator is made by now
    aeg = next(thing for thing in bank.bench.kept.values() if isinstance(thing, Aeg))
    name, seed = REFERENCE["grey"]
    ranks = ranked(bank.target, f"{name}@{ground.file(name, seed)}", aeg, images.x)
    assert 0 < len(ranks) <= len(images)
    assert 0 <= int(ranks.min()) <= int(ranks.max()) < CANDIDATES
    made = aeg.made(images.x, torch.zeros(len(images), dtype=torch.int64))
    more = bank.counter(made, ground.chunks) > bank.counter(images.x, ground.chunks)
    every, code = counted(bank.target, aeg, images.x)
    assert every == pytest.approx(float(more.double().mean()))
    seen: list[torch.Tensor] = []
    net = bank.target.module.net  # type: ignore[attr-defined]  # a module behind its normalisation
    hooks = [
        getattr(net, layer).register_forward_hook(lambda m, given, taken: seen.append(taken.detach()))
        for layer in CODE_LAYERS
    ]
    with torch.no_grad():
        for x in (images.x, made):
            bank.target(x)
    for hook in hooks:
        hook.remove()
    counts = [sum(_active(layer) for layer in seen[first : first + 2]) for first in (0, 2)]
    assert code == pytest.approx(float((torch.as_tensor(counts[1]) > counts[0]).double().mean()))


def _active(layer: torch.Tensor) -> torch.Tensor:
    low, high = layer.flatten(1).amin(1), layer.flatten(1).amax(1)
    scaled = (layer.flatten(2).mean(2) - low[:, None]) / (high - low)[:, None]
    return (scaled > 0.1).sum(1)


def test_rows_are_computed_once_and_a_page_is_made(work: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    common = [
        "--data",
        "digits",
        "--small",
        "--device",
        "cpu",
        "--seeds",
        "0",
        "--work",
        str(work),
        "--rows",
        str(rows),
    ]
    asked = ["rq1", "rq2", "rq3", "--models", "lenet1", "--arms", "original", "cagfuzz", "plain", "--tools", "cagfuzz"]
    assert cagfuzz.main([*asked, *common]) == 0
    first = rows.read_text()
    assert [json.loads(line)["protocol"]["experiment"] for line in first.splitlines()].count("rq1") == 2
    assert len(Rows(rows).all) == 2 + 2 + 2
    assert cagfuzz.main([*asked, *common]) == 0
    assert rows.read_text() == first
    assert cagfuzz.main(["aeg", *common]) == 0
    assert (work / "sheets" / "digits-aeg.png").exists()
