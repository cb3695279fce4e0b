"""Orders of a pool: whose they are, what they are measured by, and what becomes of what does not apply."""

import csv
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import assay
from assay.core.cases import Cases, InputSpec
from assay.core.errors import AssayError, UsageError
from assay.core.registry import names
from assay.engines.evaluate import evaluate
from assay.engines.fuzz import fuzz
from assay.engines.prioritise import prioritise
from assay.engines.prioritisers import REPLICATION, methods_of
from assay.engines.select import select
from assay.outputs.priority import priority_table, reasons, write_order
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Need

LOGITS = torch.tensor([[9.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 0.5], [0, 0, 9]])
SPEC = InputSpec((3,), (0.0, 9.0), ("a", "b", "c"))


class Same(nn.Module):
    """Answers with its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Identity()
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        out: Tensor = self.net(x)
        return out


def target() -> ModuleTarget:
    return ModuleTarget(Same(), SPEC)


def pool(y: list[int], logits: Tensor = LOGITS) -> Data:
    return Data("made", Cases.of(logits, torch.tensor(y)), SPEC)


def test_an_order_and_its_measures_by_hand() -> None:
    told = prioritise(target(), pool([0, 1, 1, 0, 2]), by="gini", k=2)
    (method,) = told.methods
    assert method.order is not None
    assert method.order.tolist() == [3, 1, 2, 0, 4]
    assert (told.labelled, told.faults, told.k) == (5, 2, 2)
    assert method.measures is not None
    assert method.measures.apfd == pytest.approx(1 - (1 + 2) / (2 * 5) + 1 / 10)
    assert method.measures.apfd_norm == pytest.approx(1.0)
    assert (method.measures.faults, method.measures.share, method.measures.found) == (2, 1.0, 1.0)
    assert told.chance is not None
    assert told.chance.expected.faults == pytest.approx(2 * 2 / 5)
    assert told.as_it_stands is not None
    assert told.as_it_stands.apfd == pytest.approx(1 - (2 + 4) / (2 * 5) + 1 / 10)
    assert told["gini"] is method
    assert told.predicted.tolist() == [0, 0, 1, 2, 2]


def test_all_methods_share_one_look_at_the_pool() -> None:
    net, asked = target(), "gini,max_p,margin,entropy,ctm(criterion=nc, layers=logits),cam(criterion=nc, layers=logits)"
    told = prioritise(net, pool([0, 1, 1, 0, 2]), by=asked)
    assert len(told.methods) == 6
    assert all(method.order is not None for method in told.methods)
    assert isinstance(net.module, Same)
    assert net.module.rows == 5 + 2 * 2, "the pool once, and a try of two rows for each that asks where the layers are"


def test_no_method_sees_labels() -> None:
    """zol asks for labels; it gets the model's answers."""
    orders = []
    for y in ([0, 1, 1, 0, 2], [2, 2, 2, 2, 2], [-1] * 5):
        order = prioritise(target(), pool(y), by="zol").methods[0].order
        assert order is not None
        orders.append(order.tolist())
    assert orders == [[3, 1, 2, 0, 4]] * 3


def test_without_labels_there_is_an_order_and_nothing_else() -> None:
    told = prioritise(target(), pool([-1] * 5), by="gini,random", k=3)
    assert (told.chance, told.as_it_stands, told.labelled, told.faults) == (None, None, 0, 0)
    assert all(method.measures is None for method in told.methods)
    text = told.to_json()
    assert json.loads(json.dumps(text, allow_nan=False)) == text
    assert text["methods"][0]["rows"] == [3, 1, 2]
    assert (text["fault_share"], text["random"]) == (None, None)


def test_with_some_labels_those_are_measured() -> None:
    told = prioritise(target(), pool([0, -1, 1, 0, -1]), by="gini", k=2)
    assert (told.labelled, told.faults) == (3, 1)
    measures = told.methods[0].measures
    assert measures is not None
    assert measures.apfd == pytest.approx(1 - 1 / 3 + 1 / 6), "rows 3, 2, 0"


def test_an_answer_that_is_no_number_is_a_fault() -> None:
    logits = LOGITS.clone()
    logits[0, 1] = float("nan")
    told = prioritise(target(), pool([1, 0, 1, 2, 2], logits), by="gini")
    assert told.predicted[0] == 1, "where torch sees the largest"
    assert told.faults == 1


def test_answers_that_are_no_numbers_come_first_in_every_order() -> None:
    logits = LOGITS.clone()
    logits[2, 1] = float("nan")
    logits[4, 0] = float("inf")
    by = "gini,max_p,zol,random,ctm(criterion=nc, layers=logits),cam(criterion=nc, layers=logits),entropy"
    told = prioritise(target(), pool([0, 0, 1, 2, 2], logits), by=by, k=2)
    assert told.faults == 2
    for method in told.methods:
        assert method.order is not None
        assert method.measures is not None
        assert sorted(method.order[:2].tolist()) == [2, 4], method.by
        assert sorted(method.order.tolist()) == [0, 1, 2, 3, 4]
        assert method.measures.apfd_norm == pytest.approx(1.0)
    assert told["gini"].order is not None
    assert told["gini"].order.tolist()[2:] == [3, 1, 0], "the others as they were"


def test_zero_has_no_sign(capsys: pytest.CaptureFixture[str]) -> None:
    """All faults last: APFD, rounded, is a little below its lower bound."""
    told = prioritise(target(), pool([1, 0, 1, 2, 0]), by="gini")
    assert told["gini"].measures is not None
    assert told["gini"].measures.apfd_norm == 0
    Console(width=200).print(priority_table(told))
    shown = capsys.readouterr().out
    assert "0.0000" in shown
    assert "-0.0" not in shown
    assert "-0.0" not in json.dumps(told.to_json())


def test_rows_are_not_mixed_up_over_chunks(digits_model: str) -> None:
    """1500 cases in chunks of 512, against one look at all of them."""
    data = load_data("digits/train")
    rows = torch.randint(len(data), (1500,), generator=torch.Generator().manual_seed(0))
    many = Data("many", Cases.of(data.cases.x[rows], data.cases.y[rows]), data.spec)
    told = prioritise(digits_model, many, by="gini,mdsa", training="digits/train")
    logits = assay.load_target(digits_model)(many.cases.x).detach()
    share = logits.softmax(1).double()
    assert told["gini"].score is not None
    assert torch.allclose(told["gini"].score, 1 - share.square().sum(1), atol=1e-5)
    assert torch.equal(told.predicted, logits.argmax(1))
    together = rows.argsort()
    for method in told.methods:
        assert method.score is not None
        assert method.order is not None
        assert (method.score[method.order].diff() <= 0).all()
        twice, score = rows[together][1:] == rows[together][:-1], method.score[together]
        assert torch.allclose(score[1:][twice], score[:-1][twice], rtol=1e-3), "one case, one score wherever it stands"


def test_every_method_of_the_replication_gives_an_order(digits_model: str) -> None:
    told = prioritise(digits_model, "digits/test[:90]", by="all", k="20%")
    assert [method.by for method in told.methods] == list(REPLICATION)
    for method in told.methods:
        if method.order is None:
            assert method.by == "mc_dropout"
            continue
        assert sorted(method.order.tolist()) == list(range(90)), method.by
        assert method.measures is not None
        assert method.measures.k == 18
    assert told.training == "digits/train"
    assert told.layers == "last, auto: 268 neurons in 8 layers"
    (why,) = reasons(told)
    assert why.startswith("n/a: mc_dropout: mc_dropout needs a net with dropout layers")
    assert told.to_json()["methods"][4] == {
        "by": "mc_dropout",
        "text": "mc_dropout(passes=200, seed=0)",
        "why_not": told.methods[4].why_not,
    }


# MetaSel learns from labelled errors, of which this model has too few: tests/unit/stages/test_metasel.py.
@pytest.mark.parametrize("name", sorted({*names("selector")} - {"ctm", "cam", "metasel"}))
def test_every_selector_orders_the_whole_pool(name: str, digits_model: str) -> None:
    by = {"lbt": "lbt(start=20, check=100, epochs=3, mutants=9)"}.get(name, name)
    order = prioritise(digits_model, "digits/test[:40]", by=by).methods[0].order
    assert order is not None
    assert sorted(order.tolist()) == list(range(40))


def test_what_does_not_apply_is_refused_where_it_is_all_there_is(digits_model: str) -> None:
    with pytest.raises(UsageError, match="dropout layers"):
        prioritise(digits_model, "digits/test[:9]", by="mc_dropout")
    alone = load_data("digits/test[:9]")
    unknown = Data("nobody's", alone.cases, alone.spec)
    with pytest.raises(UsageError, match="training"):
        prioritise(digits_model, unknown, by="cam")
    told = prioritise(digits_model, unknown, by="gini,cam,mdsa")
    assert [method.order is None for method in told.methods] == [False, True, True]
    assert prioritise(digits_model, unknown, by="cam", training="digits/train").methods[0].order is not None


class Closed:
    """A target that answers and shows nothing of itself."""

    spec, device = SPEC, torch.device("cpu")
    gives: frozenset[Need] = frozenset(("label", "prob", "logit"))

    def __call__(self, x: Tensor) -> Tensor:
        return x

    def ready(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fingerprint(self) -> str:
        return "closed"


def test_a_model_that_only_answers_is_ordered_by_its_answers() -> None:
    told = prioritise(Closed(), pool([0, 1, 1, 0, 2]), by="gini,cam,mc_dropout,dsa")
    assert [method.order is None for method in told.methods] == [False, True, True, True]
    refused = "selector 'cam' needs activation, this target gives label, logit, prob only; would work: entropy, gini, "
    assert told.methods[1].why_not.startswith(refused)
    with pytest.raises(UsageError, match="needs activation"):
        prioritise(Closed(), pool([0, 1, 1, 0, 2]), by="cam")


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("ginni", "did you mean 'gini'"),
        ("gini,cam(criterion=kmcn)", "did you mean 'kmnc'"),
        ("gini,top(score=ginni)", "did you mean 'gini'"),
        ("gini,cam(criteria=nc)", "did you mean 'criterion'"),
        ("gini,cam(criterion=kmnc(k=0))", "k must be 1 or more"),
        ("gini,cam(layers=conv9)", "no layer is called"),
        ("", "at least one way"),
    ],
)
def test_a_wrong_name_is_told_whatever_stands_beside_it(by: str, told: str, digits_model: str) -> None:
    with pytest.raises(UsageError, match=told):
        prioritise(digits_model, "digits/test[:9]", by=by)


def test_other_mistakes_are_told(digits_model: str) -> None:
    for k in (0, "0%", "many"):
        with pytest.raises(UsageError, match="-k is a number"):
            prioritise(digits_model, "digits/test[:9]", k=k)
    with pytest.raises(UsageError, match="no run 'nothing'"):
        prioritise(digits_model, "nothing")
    with pytest.raises(UsageError, match="--static is for a saved evaluation"):
        prioritise(digits_model, "digits/test", static=True)


def test_layers_and_seed_go_to_methods_that_leave_them_open() -> None:
    methods = methods_of(["ctm, cam(layers=last)", "mc_dropout(seed=1), dsa", "gini"], "act1", 7)
    told = [{key: method.stage.params.get(key) for key in ("layers", "seed")} for method in methods]
    assert told == [
        {"layers": "act1", "seed": None},
        {"layers": "last", "seed": None},
        {"layers": None, "seed": 1},
        {"layers": "act1", "seed": 7},
        {"layers": None, "seed": None},
    ]
    assert [method.by for method in methods_of("gini, entropy,gini", None, 0)] == ["gini", "entropy"]


def test_functions_of_ones_own(tmp_path: Path, digits_model: str) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import torch\n"
        "def dark(bench, cases):\n    return -cases.x.flatten(1).sum(1)\n"
        "def last(bench, cases, k, *, rng):\n    return torch.arange(len(cases)).flip(0)[:k]\n"
    )
    told = prioritise(digits_model, "digits/test[:20]", by=f"{own}:dark,{own}:last")
    light = load_data("digits/test[:20]").cases.x.flatten(1).sum(1)
    first, second = (method.order for method in told.methods)
    assert first is not None
    assert second is not None
    assert first.tolist() == light.argsort(stable=True).tolist()
    assert second.tolist() == list(range(19, -1, -1))


def test_a_run_is_a_pool(digits_model: str) -> None:
    """Of a saved evaluation all examples, those that fool nobody too; what the run noted of them does not count."""
    evaluate(digits_model, "digits/test[:60]", suite="fgsm", eps=0.1, save="attacked")
    told = prioritise(digits_model, "attacked", by="gini,cam,fol", k=5)
    assert 0 < told.faults < len(told)
    assert told.pool.name == "run attacked"
    assert told.training == "digits/train", "of the set that its examples were made of"
    assert all(method.order is not None for method in told.methods)
    found = fuzz("robot", digits_model, "digits/train[:60]", run="fuzzed", cases=300)
    fuzzed = prioritise(digits_model, found.run, by="fol,gini")
    assert fuzzed.faults == len(fuzzed) == len(found)
    assert fuzzed.methods[0].measures is not None
    assert fuzzed.methods[0].measures.apfd_norm is None, "every order is equal where all fail"
    fol, noted = fuzzed["fol"].score, fuzzed.pool.cases.info["fol"]
    assert fol is not None
    assert not torch.allclose(fol.float(), noted.float(), rtol=0.1), "of the answer, not of the label the run had"


def test_selection_from_a_run_looks_inside_the_net(digits_model: str) -> None:
    fuzz("noise", digits_model, "digits/train[:200]", run="few", cases=2000, eps=0.3)
    for by in ("ctm", "cam(criterion=kmnc(k=2))", "top(score=mdsa)"):
        picked = select("few", by=by, k=5)
        assert len(picked) == 5
        assert len(select("few", by=by, k=5, model=digits_model)) == 5
    with pytest.raises(UsageError, match="dropout layers"):
        select("few", by="top(score=mc_dropout)", k=5)


def test_the_seed_decides_what_is_drawn(digits_model: str) -> None:
    def orders(seed: int) -> list[list[int]]:
        told = prioritise(digits_model, "digits/test[:60]", by="random,mlsa,dsa(share=0.3),gini", seed=seed)
        return [method.order.tolist() for method in told.methods if method.order is not None]

    first = orders(0)
    assert len(first) == 4
    assert first == orders(0)
    assert first[0] != orders(1)[0]
    assert first[3] == orders(1)[3]


def test_orders_are_written(tmp_path: Path, digits_model: str) -> None:
    told = prioritise(digits_model, "digits/test[:30]", by="gini", k=6)
    method = told.methods[0]
    assert method.order is not None
    assert method.score is not None
    write_order(told, "order.csv")
    with Path("order.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["row"]) for row in rows] == method.order.tolist()
    assert [int(row["rank"]) for row in rows] == list(range(1, 31))
    assert [float(row["score"]) for row in rows] == method.score[method.order].tolist()
    assert [int(row["label"]) for row in rows] == told.pool.cases.y[method.order].tolist()
    assert [int(row["predicted"]) for row in rows] == told.predicted[method.order].tolist()
    write_order(told, "first.npz")
    back = load_data("first.npz")
    assert torch.equal(back.cases.x, told.pool.cases.x[method.order[:6]])
    assert torch.equal(back.cases.y, told.pool.cases.y[method.order[:6]])
    with np.load("first.npz") as arrays:
        assert arrays["row"].tolist() == method.order[:6].tolist()
        assert arrays["score"].tolist() == method.score[method.order[:6]].tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.npz", "order.csv"], "nothing is left beside them"
    for out, why in (("order.csv", "not overwritten"), ("a.txt", "ending in"), ("no/a.csv", "no such folder")):
        with pytest.raises(AssayError, match=why):
            write_order(told, out)
    several = prioritise(digits_model, "digits/test[:30]", by="gini,ctm,mc_dropout")
    with pytest.raises(UsageError, match="writes one order"):
        write_order(several, "b.csv")
    with pytest.raises(UsageError, match="dropout layers"):
        write_order(several, "b.csv", by="mc_dropout")
    write_order(several, "b.csv", by="ctm")
    assert Path("b.csv").read_text().splitlines()[1].split(",")[2] == "", "a selector has no score"
