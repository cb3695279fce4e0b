"""Two models through the engine: what is stored of them, how their seeds come about, how the resistant one does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.images import ssim
from assay.core.shards import decode
from assay.engines.coverage import coverage
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.engines.hardening_models import Models
from assay.engines.select import select
from assay.engines.train import train
from assay.recipes.recipe import resolve
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of, trained_with

EPS = 0.2
SMALL: dict[str, Any] = {"resistant.epochs": 1, "resistant.share": 0.05, "seeds.attacked.count": 200}
SETTINGS: dict[str, Any] = {"eps": EPS, "device": "cpu", "deterministic": True}


def twins(model: Any, run: str, cases: int | None = 600, **changed: Any) -> Found:
    recipe, data = changed.pop("recipe", "twinfuzz"), changed.pop("data", "digits/train[:300]")
    changes = changed.pop("changes", {})
    given = {} if "resistant" in changed else SMALL
    return fuzz(recipe, model, data, run=run, cases=cases, changes=given | changes, **(SETTINGS | changed))


@pytest.fixture(scope="module")
def whole(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """One run, with a resistant model that it built itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_RUNS", str(tmp_path_factory.mktemp("twins")))
        return twins(digits_model, "whole")


@pytest.fixture(scope="module")
def resistant(whole: Found) -> str:
    return f"lenet5@{whole.run}/models/resistant.safetensors"


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_data("digits/train[:300]")


@pytest.fixture(scope="module")
def bare(digits: Data) -> Data:
    """The same digits without their labels."""
    return Data("bare", Cases.of(digits.cases.x), digits.spec)


def said(model: str, x: Tensor) -> Tensor:
    """The classes that the net gives, asked without the engine."""
    net = module_of(load_target(model, device="cpu")).eval()
    with torch.no_grad():
        classes: Tensor = net(x).argmax(1)
    return classes


def linf(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs().flatten(1).amax(1)


def shards(found: Found) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((found.run / "cases").glob("*"))}


def test_what_is_stored_leaves_the_mined_class_and_is_wrong(whole: Found, resistant: str, digits_model: str) -> None:
    cases = whole.load()
    own = said(resistant, cases.x)
    assert whole.failures == whole.wrong == len(cases) > 50
    assert (own != cases.info["mined"]).all()
    assert (own != cases.y).all()
    assert (cases.info["mined"] != cases.y).all(), "a mined class is wrong already"
    assert torch.equal(own, cases.info["pred"])
    assert torch.equal(cases.info["others_pred"], said(digits_model, cases.x)[:, None])
    assert (cases.info["others_pred"][:, 0] != cases.info["pred"]).any(), "two models"


def test_distances_are_to_the_clean_parent(whole: Found, digits: Data) -> None:
    cases = whole.load()
    clean = digits.cases.x[cases.origin]
    assert torch.equal(cases.info["seed_x"], clean)
    assert torch.equal(cases.y, digits.cases.y[cases.origin])
    assert (linf(cases.x, clean) <= EPS + 1e-6).all()
    assert torch.allclose(cases.info["linf"], linf(cases.x, clean))
    assert torch.allclose(cases.info["l2"], (cases.x - clean).flatten(1).norm(dim=1))
    assert torch.allclose(cases.info["ssim"], ssim(cases.x, clean), atol=1e-6)
    assert (cases.info["ssim"] >= whole.seeding["levels"]["ssim"] - 1e-6).all()


def test_the_seeds_are_attacked_images_that_fool_both(
    whole: Found, resistant: str, digits_model: str, digits: Data
) -> None:
    kept = decode(store.read(whole.run).file("state/seeds.safetensors"))
    x, clean, y = kept["x"], digits.cases.x[kept["place"]], digits.cases.y[kept["place"]]
    assert torch.equal(kept["y"], y)
    assert (said(digits_model, clean) == y).all()
    for model in (digits_model, resistant):
        assert torch.equal(said(model, x), kept["mined"])
    assert (kept["mined"] != y).all()
    assert (linf(x, clean) <= EPS + 1e-6).all()
    assert (linf(x, clean) > EPS / 2).all(), "they were moved"
    assert (ssim(x, clean) >= whole.seeding["levels"]["ssim"] - 1e-6).all()


def test_how_the_seeds_came_about_is_told(whole: Found) -> None:
    told = whole.seeding
    assert list(told["steps"]) == ["attacked", "quality", "agreed"]
    assert (told["of"], told["steps"]["attacked"], told["steps"]["quality"]) == (300, 200, 120)
    assert told["steps"]["agreed"] == whole.stats["seed_list"] < 120
    assert (told["unlabelled"], told["grown"]) == (0, True)
    assert json.loads((whole.run / "stats.json").read_text())["seeding"] == told
    assert 0 < told["levels"]["ssim"] < 1


def test_who_only_leaves_is_counted_too(whole: Found) -> None:
    """Of what leaves the mined class some becomes right, and near-copies are not stored."""
    assert list(whole.opinions) == ["leaves", "leaves_wrong"]
    assert whole.failures <= whole.opinions["leaves_wrong"] < whole.opinions["leaves"] <= whole.cases
    assert "leaves" not in whole.kept


def test_the_count_is_that_of_the_oracle(digits_model: str, resistant: str) -> None:
    """Where everything that leaves is stored, as many are stored as counted, and those wrong as the opinion says."""
    changes = {"oracle": "leaves", "opinions": "leaves_wrong", "schedule": "per_seed(steps=4, failures=1000)"}
    found = twins(digits_model, "a", resistant=resistant, changes=changes)
    cases = found.load()
    assert (cases.info["pred"] != cases.info["mined"]).all()
    assert found.opinions["leaves_wrong"] == found.wrong == int((cases.info["pred"] != cases.y).sum())
    assert 0 < found.wrong < found.failures == len(cases)


def test_sessions_with_growing_budgets_are_one_run(whole: Found, digits_model: str) -> None:
    first = twins(digits_model, "b", 150)
    level = first.seeding["levels"]
    again = twins(digits_model, "b", 600)
    assert 0 < first.failures < again.failures
    assert again.seeding == first.seeding == whole.seeding
    assert again.seeding["levels"] == level
    assert list(again.seeding["steps"]) == ["attacked", "quality", "agreed"], "in their order, also when read back"
    for name in ("cases", "failures", "wrong", "distinct", "broken", "opinions", "kept", "seeds"):
        assert getattr(again, name) == getattr(whole, name), name
    mine, theirs = again.load(), whole.load()
    # The budget cuts a unit in two, and its rest is worked in another batch, whose last bits may differ.
    assert torch.allclose(mine.x, theirs.x, rtol=0, atol=1e-5)
    assert torch.equal(mine.y, theirs.y)
    assert torch.equal(mine.origin, theirs.origin)
    for name, column in theirs.info.items():
        if column.is_floating_point():
            assert torch.allclose(mine.info[name], column, rtol=1e-4, atol=1e-5), name
        elif name != "seed":
            assert torch.equal(mine.info[name], column), name
    for file in ("state/seeds.safetensors", "models/resistant.safetensors"):
        assert (again.run / file).read_bytes() == (whole.run / file).read_bytes()


def test_the_resistant_model_is_built_once(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    own = Models.trained

    def counted(*given: Any) -> Any:
        nonlocal built
        built += 1
        return own(*given)

    monkeypatch.setattr(Models, "trained", counted)
    first = twins(digits_model, "a", 50)
    weights = (first.run / "models/resistant.safetensors").read_bytes()
    twins(digits_model, "a", 100)
    assert built == 1
    assert (first.run / "models/resistant.safetensors").read_bytes() == weights
    assert len(list(store.read(first.run).commits("resistant"))) == 1
    with pytest.raises(UsageError, match="another configuration"):
        twins(digits_model, "a", 100, changes={"resistant.epochs": 2})


def test_a_building_that_was_stopped_goes_on(whole: Found, digits_model: str) -> None:
    """The training of one epoch is stopped inside it, and ends with the same weights."""

    def press(numbers: Any) -> None:
        if numbers.get("phase") == "resistant":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        twins(digits_model, "a", progress=press)
    assert not list(store.read(store.runs_root() / "a").commits("resistant"))
    again = twins(digits_model, "a")
    place = "models/resistant.safetensors"
    assert (again.run / place).read_bytes() == (whole.run / place).read_bytes()
    assert shards(again) == shards(whole)


def test_what_the_vulnerable_model_had_seen_the_built_one_has(digits_model: str, tmp_path: Path) -> None:
    old = tmp_path / "v.safetensors"
    train(digits_model, "digits", old, trainer="adversarial(attack=mim(steps=1))", eps=0.1, params={"epochs": 1})
    for run, model, seen in (("a", f"lenet5@{old}", ["mim", "fgsm", "pgd"]), ("b", digits_model, ["fgsm", "pgd"])):
        found = twins(model, run, 20)
        told = trained_with(f"lenet5@{found.run}/models/resistant.safetensors")
        assert [attack[0] for attack in told or ()] == seen
    live = twins(module_of(load_target(digits_model, device="cpu")), "c", 20)
    assert trained_with(f"lenet5@{live.run}/models/resistant.safetensors") is None, "nobody knows"


def test_a_given_one_is_not_built(
    whole: Found, resistant: str, digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Models, "trained", lambda *given: pytest.fail("it was given"))
    found = twins(digits_model, "a", resistant=resistant, changes={"seeds.attacked.count": 200})
    assert not (found.run / "models").exists()
    assert list(shards(found).values()) == list(shards(whole).values()), "the same pair gives the same cases"
    told = store.read(found.run).config["target"]
    assert told["fingerprint"] == load_target(digits_model).fingerprint()
    assert told["resistant_fingerprint"] == load_target(resistant).fingerprint()
    assert told["resistant"] == resistant


def test_another_pair_is_another_run(resistant: str, digits_model: str) -> None:
    twins(digits_model, "a", 50, resistant=resistant)
    net = module_of(load_target(resistant))
    with torch.no_grad():
        next(net.parameters()).mul_(1.01)
    with pytest.raises(UsageError, match="another configuration"):
        twins(digits_model, "a", 50, resistant=net)
    with pytest.raises(UsageError, match="another configuration"):
        twins(digits_model, "a", 50)


def refused(message: str, *given: Any, **named: Any) -> None:
    with pytest.raises(UsageError, match=message):
        fuzz(*given, run="refused", **(SETTINGS | named))
    assert not (store.runs_root() / "refused").exists(), "before there is a run"


@pytest.mark.parametrize("attacks", ["fgsn", "pgd(targeted=true)", ""])
def test_attacks_that_cannot_work_are_refused_before_a_model_is_built(
    attacks: str, digits_model: str, digits: Data
) -> None:
    told = {"fgsn": "did you mean 'fgsm'", "": "needs attacks to resist"}.get(attacks, "is targeted")
    refused(told, "twinfuzz", digits_model, digits, changes={"resistant.attacks": attacks})


def test_what_cannot_be_a_pair_is_refused(digits_model: str, resistant: str, digits: Data, bare: Data) -> None:
    refused("is the vulnerable model itself: the two", "twinfuzz", digits_model, digits, resistant=digits_model)
    refused("'robot' knows no resistant model", "robot", digits_model, digits, resistant=resistant)
    one = "asks a vulnerable model beside the resistant one it tests; take recipe twinfuzz"
    refused(one, "robot", digits_model, digits, changes={"oracle": "agreed"})
    refused("give the model itself .--resistant", "twinfuzz", digits_model, bare)
    refused("name them .--training", "twinfuzz", digits_model, bare, training=bare)
    refused("needs eps", "twinfuzz", digits_model, digits, resistant=resistant, eps=None)


def test_a_recipe_of_one_model_becomes_one_of_two(digits_model: str) -> None:
    """What the refusal of robot with the oracle advises."""
    changes = {"oracle": "agreed", "resistant": "resistant", "resistant.epochs": 1, "resistant.share": 0.05}
    found = fuzz("robot", digits_model, "digits/train[:60]", run="a", cases=300, changes=changes, **SETTINGS)
    cases = found.load()
    assert found.failures > 0
    assert torch.equal(said(digits_model, cases.x), cases.info["pred"])
    assert torch.equal(said(f"lenet5@{found.run}/models/resistant.safetensors", cases.x), cases.info["pred"])
    assert (cases.info["pred"] != cases.y).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": "atacked"}, "unknown seeder 'atacked'; did you mean 'attacked'"),
        ({"seeds": ""}, "a recipe needs seeds; give a seeder: --set seeds=correct"),
        ({"seeds.qualty.keep": 0.9}, "seeds has no member 'qualty'; did you mean 'quality'"),
        ({"seeds.quality.kep": 0.9}, "filter 'quality' has no parameter 'kep'"),
        ({"seeds.quality.keep": 1.5}, "keep is the share of the seeds"),
        ({"seeds": "attacked, attacked"}, "seeds names attacked twice"),
        ({"seeds": "attacked, rises, quality"}, "filter 'rises' asks for 'fol', which seeds do not have"),
        ({"seeds": "attacked, agreed(on=error)"}, "ssim knows its level from the seeds, and no step of theirs asked"),
        ({"seeds": "correct"}, "ssim knows its level from the seeds"),
        ({"opinions": "leves"}, "unknown oracle 'leves'"),
        ({"resistant": "resistent"}, "unknown trainer 'resistent'"),
    ],
)
def test_chains_that_cannot_work_are_refused_before_a_run_exists(
    changes: dict[str, Any], message: str, digits_model: str, digits: Data, resistant: str
) -> None:
    refused(message, "twinfuzz", digits_model, digits, resistant=resistant, changes=changes)


def test_a_filter_that_fits_no_level_is_refused_for_one_model_too(digits_model: str, digits: Data) -> None:
    told = "valid has quality: .*let the seeds end with the same filter"
    refused(told, "noise", digits_model, digits, changes={"valid": "quality"})
    found = fuzz("noise", digits_model, digits, run="a", changes={"valid": "quality(least=0.5)"}, **SETTINGS)
    assert (found.load().info["ssim"] >= 0.5).all()


def test_a_chain_that_leaves_nothing_says_where(digits_model: str, digits: Data, resistant: str) -> None:
    with pytest.raises(NothingToTest, match=r"of 300 cases correct left \d+, agreed left 0"):
        twins(digits_model, "a", resistant=resistant, changes={"seeds": "correct, agreed(on=error)", "valid": ()})


def test_steps_of_a_chain_take_their_own_parameters() -> None:
    ball = {"eps": EPS, "norm": "linf"}
    seeds = resolve("twinfuzz", {"seeds.quality.keep": 0.9, "seeds.attacked.count": 7}, ball).seeds
    assert [bound.entry.kind for bound in seeds.values()] == ["seeder", "filter", "seeder"]
    assert (seeds["quality"].params["keep"], seeds["attacked"].params["count"]) == (0.9, 7)
    assert (seeds["attacked"].params["eps"], seeds["agreed"].params["on"]) == (EPS, "error")
    one = resolve("robot-code", {"seeds.count": 5}, {})
    assert one.seeds["steep"].params["count"] == 5
    assert one.config()["seeds"].startswith("steep(count=5"), "one step alone is a text, as it was"
    assert len(resolve("twinfuzz", {}, ball).config()["seeds"]) == 3
    with pytest.raises(UsageError, match="seeds has no member 'count'"):
        resolve("twinfuzz", {"seeds.count": 5}, ball)
    assert list(resolve("twinfuzz", {"seeds": "correct"}, ball).seeds) == ["correct"]


def test_the_share_kept_sets_the_level(whole: Found, digits_model: str, resistant: str) -> None:
    changes = {"seeds.attacked.count": 200, "seeds.quality.keep": 0.9}
    found = twins(digits_model, "a", 100, resistant=resistant, changes=changes)
    assert found.seeding["steps"]["quality"] == 180
    assert found.seeding["levels"]["ssim"] < whole.seeding["levels"]["ssim"]


@pytest.mark.parametrize("built", [True, False])
def test_data_without_labels(built: bool, digits_model: str, resistant: str, digits: Data, bare: Data) -> None:
    pair: dict[str, Any] = {"training": "digits"} if built else {"resistant": resistant}
    found = twins(digits_model, "a", data=bare, **pair)
    cases = found.load()
    assert found.failures > 20
    assert found.seeding["unlabelled"] == found.stats["seed_list"] == found.seeding["steps"]["agreed"]
    assert torch.equal(cases.y, said(digits_model, bare.cases.x[cases.origin])), "what V says of the clean parent"
    tested = f"lenet5@{found.run}/models/resistant.safetensors" if built else resistant
    assert torch.equal(said(tested, cases.x), cases.info["pred"])


def test_of_data_that_have_some_labels_the_others_are_counted(digits_model: str, resistant: str, digits: Data) -> None:
    y = digits.cases.y.where(torch.arange(300) % 2 == 0, -1)
    found = twins(digits_model, "a", data=Data("half", Cases.of(digits.cases.x, y), digits.spec), resistant=resistant)
    kept = decode(store.read(found.run).file("state/seeds.safetensors"))
    assert found.seeding["unlabelled"] == int((kept["place"] % 2 == 1).sum()) > 0
    assert (kept["y"] >= 0).all()


def test_the_label_as_reference(digits_model: str, resistant: str, whole: Found) -> None:
    changes = {"seeds.attacked.count": 200, "seeds.agreed.reference": "label"}
    found = twins(digits_model, "a", resistant=resistant, changes=changes)
    cases = found.load()
    assert "mined" not in cases.info
    assert found.seeding == whole.seeding | {"mined": False}, "the same seeds"
    assert (cases.info["pred"] != cases.y).all()
    assert found.failures > whole.failures, "they are wrong from the start"
    assert found.opinions["leaves"] >= found.failures


def test_no_mining(digits_model: str, resistant: str) -> None:
    changes = {"seeds.agreed.on": "any", "seeds.attacked.model": "vulnerable"}
    found = twins(digits_model, "a", resistant=resistant, changes=changes)
    steps = found.seeding["steps"]
    assert steps["agreed"] == steps["quality"]
    cases, kept = found.load(), decode(store.read(found.run).file("state/seeds.safetensors"))
    assert (kept["mined"] == kept["y"]).any(), "also what R gets right"
    assert ((cases.info["pred"] != cases.info["mined"]) & (cases.info["pred"] != cases.y)).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_public_codes_variant(norm: str, digits_model: str, resistant: str, digits: Data) -> None:
    eps = EPS if norm == "linf" else 1.5
    changes = {"seeds.attacked.count": 200}
    found = twins(digits_model, "a", recipe="twinfuzz-code", resistant=resistant, changes=changes, eps=eps, norm=norm)
    cases = found.load()
    assert list(found.seeding["steps"]) == ["attacked", "tenengrad", "agreed"]
    assert (cases.info["pred"] != cases.info["mined"]).all()
    assert (cases.info["pred"] == cases.y).any(), "what became right counts there"
    assert found.opinions["leaves_wrong"] <= found.wrong < found.failures
    far = cases.info["linf" if norm == "linf" else "l2"]
    assert (far > eps + 1e-6).any(), "and nothing keeps it near the clean parent"
    assert torch.equal(cases.info["seed_x"], digits.cases.x[cases.origin]), "which distances are to all the same"
    gradient = _slope(resistant, cases)
    assert torch.allclose(cases.info["fol"], gradient.flatten(1).norm(dim=1), rtol=1e-3, atol=1e-5)


def _slope(model: str, cases: Cases) -> Tensor:
    """The gradient of the cross-entropy of the mined class."""
    x = cases.x.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(module_of(load_target(model)).eval()(x), cases.info["mined"])
    return torch.autograd.grad(loss * len(x), x)[0]


def test_scores_are_of_the_mined_class_and_logged_apart(whole: Found, resistant: str) -> None:
    cases = whole.load()
    with torch.no_grad():
        logits = module_of(load_target(resistant)).eval()(cases.x)
    loss = torch.nn.functional.cross_entropy(logits, cases.info["mined"], reduction="none")
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    assert torch.allclose(cases.info["zol"], loss, rtol=1e-3, atol=1e-4)
    assert torch.allclose(cases.info["entropy"], entropy, rtol=1e-3, atol=1e-4)
    assert torch.allclose(cases.info["lib"], loss + 10 * entropy, rtol=1e-3, atol=1e-3)
    fol = _slope(resistant, cases).flatten(1).norm(dim=1)  # the paper's, whatever the ball is
    assert torch.allclose(cases.info["fol"], fol, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("schedule", ["", "pool(mutants=5)"])
def test_neurons_are_those_of_the_resistant_model(
    schedule: str, digits_model: str, resistant: str, digits: Data
) -> None:
    changes = {"coverage": "nc", "keep": "gains"} | ({"schedule": schedule} if schedule else {})
    found = twins(digits_model, "a", resistant=resistant, changes=changes)
    assert found.failures > 20
    assert found.coverage is not None
    assert 0 < found.coverage["covered"] <= found.coverage["total"] == 268, "one model's neurons, not two"
    assert found.kept["gains"] > 0
    if schedule:  # V covers others with the same seeds
        kept = decode(store.read(found.run).file("state/seeds.safetensors"))
        covered = [_covered(model, kept["x"]) for model in (resistant, digits_model)]
        assert found.coverage["seeds"] == covered[0] != covered[1]


def _covered(model: str, x: Tensor) -> float:
    """What these inputs cover in that model alone."""
    seeds = Data("seeds", Cases.of(x), load_target(model).spec)
    return coverage(model, seeds, by="nc(scaled=true, threshold=0.5)", device="cpu")["nc"].covered


def test_a_pool_of_parents_measures_to_the_clean_ones(digits_model: str, resistant: str, digits: Data) -> None:
    changes = {"schedule": "pool(mutants=5)"}
    found = twins(digits_model, "a", 1500, resistant=resistant, changes=changes)
    assert found.stats["pool"] > found.stats["seed_list"], "some joined"
    cases = found.load()
    clean = digits.cases.x[cases.origin]
    assert torch.equal(cases.info["seed_x"], clean)
    assert (linf(cases.x, clean) <= EPS + 1e-6).all()
    assert (cases.info["ssim"] >= found.seeding["levels"]["ssim"] - 1e-6).all()
    own = said(resistant, cases.x)
    assert ((own != cases.info["mined"]) & (own != cases.y)).all()
    resumed = twins(digits_model, "b", 500, resistant=resistant, changes=changes)
    resumed = twins(digits_model, "b", 1500, resistant=resistant, changes=changes)
    assert resumed.seeding == found.seeding
    assert torch.equal(resumed.load().x[:50], cases.x[:50])


def test_a_selection_asks_the_model_that_was_tested(whole: Found, resistant: str, digits_model: str) -> None:
    given = twins(digits_model, "a", resistant=resistant)
    for run in (whole.run, given.run):
        picked = select(run, by="top(score=gini)", k=10)
        x = picked.cases.x
        scores = []
        for model in (resistant, digits_model):
            with torch.no_grad():
                scores.append(1 - module_of(load_target(model)).eval()(x).softmax(1).square().sum(1))
        assert torch.allclose(picked.cases.info["gini"].float(), scores[0], atol=1e-4)
        assert not torch.allclose(scores[0], scores[1], atol=1e-2)
    by_fol = select(whole.run, by="bi_end", k=10)
    assert torch.isin(by_fol.cases.info["fol"], whole.load().info["fol"]).all(), "that of the run, of the mined class"


def test_of_live_models_the_built_one_can_be_named(digits_model: str, whole: Found) -> None:
    net = module_of(load_target(digits_model, device="cpu"))
    before = [p.clone() for p in net.parameters()]
    found = twins(net, "a")
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)), "V stays what it was"
    assert torch.equal(found.load().x, whole.load().x)
    with pytest.raises(UsageError, match=r"give --model NET@.*models/resistant.safetensors"):
        select(found.run, by="top(score=gini)", k=5)
    picked = select(found.run, by="top(score=gini)", k=5, model=f"lenet5@{found.run}/models/resistant.safetensors")
    assert len(picked) == 5
