"""What the tables of docs/explanation/scale.md stand on: passes that are counted exactly, ratios, marks in a page."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.core.cases import InputSpec
from assay.core.losses import cross_entropy
from assay.core.registry import names
from assay.subjects.sources.module import Normalised
from costs import Passes, counting, put
from subjects import images, labelled_by, resnet50, untrained

ROOT = Path(__file__).parents[2]


def net() -> Normalised:
    torch.manual_seed(0)
    return Normalised(nn.Linear(3, 2, bias=False).requires_grad_(False), (0.0,), (1.0,))


def test_an_answer_is_one_forward_pass_a_row() -> None:
    with counting() as seen, torch.no_grad():
        net()(torch.rand(5, 3))
    assert seen == Passes(forward=5, flops=5 * 2 * 3 * 2)


def test_a_gradient_adds_one_backward_pass() -> None:
    x = torch.rand(5, 3, requires_grad=True)
    with counting() as seen:
        torch.autograd.grad(cross_entropy(net()(x), torch.zeros(5, dtype=torch.int64)).sum(), x)
    assert seen == Passes(forward=5, backward=5, flops=2 * 5 * 2 * 3 * 2)


def test_the_gradient_of_a_gradient_goes_through_the_backward_pass_once_more() -> None:
    x = torch.rand(5, 3, requires_grad=True)
    with counting() as seen:
        loss = cross_entropy(net()(x), torch.zeros(5, dtype=torch.int64)).sum()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        torch.autograd.grad(gradient.square().sum(), x)
    assert (seen.forward, seen.backward, seen.double) == (5, 10, 5)


def test_nothing_is_counted_afterwards_nor_of_other_modules() -> None:
    with counting() as seen:
        nn.Identity()(torch.rand(5, 3))
    net()(torch.rand(5, 3))
    assert seen == Passes()


def test_a_table_is_put_between_its_marks_and_only_there(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- costs: x -->\nold\n<!-- end: x -->\nb\n<!-- costs: y -->\n<!-- end: y -->\n")
    put(page, "x", "new\n")
    put(page, "x", "newer\n")
    assert page.read_text() == (
        "a\n<!-- costs: x -->\n\nnewer\n\n<!-- end: x -->\nb\n<!-- costs: y -->\n<!-- end: y -->\n"
    )
    with pytest.raises(SystemExit, match="costs: z"):
        put(page, "z", "new")


def test_the_page_has_every_recipe_that_fuzzes_every_attack_and_every_suite() -> None:
    page = (ROOT / "docs/explanation/scale.md").read_text(encoding="utf-8")
    known = [*names("recipe"), *names("attack"), *(f"suite `{name}" for name in names("suite"))]
    lacking = [name for name in known if f"| {name}" not in page and f"| `{name}` |" not in page]
    assert lacking == ["assay", "dare", "dare-last", "dare-noslice", "dare-notransform", "suite `seen"]  # no cases


def test_scaling_compares_with_serial_and_with_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the script sets for itself
    from scale import Done, places, table

    asked = Namespace(lanes=[], workers=[2, 1], weak=True)
    where = places(asked)
    assert [(p.name, p.workers, p.work) for p in where] == [("serial", 0, 1), ("1 worker", 1, 1), ("2 workers", 2, 2)]
    done = [Done(100, 1.0, "7"), Done(100, 1.25, "7"), Done(200, 1.5625, "14")]
    lines = [line.split() for line in table(list(zip(where, done, strict=True)), "cases", weak=True)]
    assert lines[1] == ["serial", "100", "1.0", "100", "7", "1.00×"]
    assert lines[2] == ["1", "worker", "100", "1.2", "80", "7", "0.80×", "1.00×", "1.00"]
    assert lines[3] == ["2", "workers", "200", "1.6", "128", "14", "1.28×", "1.60×", "0.80"]


def test_scaling_over_lanes_has_the_fewest_as_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    from scale import places

    asked = Namespace(lanes=[1024, 256], workers=[1, 2], weak=True)
    assert [(p.name, p.workers, p.lanes, p.work) for p in places(asked)] == [
        ("256 lanes", 0, 256, 1),
        ("1024 lanes", 0, 1024, 4),
    ]
    asked.weak = False
    assert [p.work for p in places(asked)] == [1, 1]


def test_resnet50_has_the_weights_of_the_paper() -> None:
    with torch.device("meta"):
        made = resnet50(InputSpec((3, 224, 224), (0.0, 1.0), tuple(map(str, range(1000)))))
    assert sum(weight.numel() for weight in made.parameters()) == 25_557_032


def test_random_images_are_right_for_a_random_net_that_labels_them() -> None:
    data = images("random(3x8x8,4)", 70)
    made = untrained("resnet20", data, "cpu")
    labelled = labelled_by(made, data)
    assert labelled.cases.x.shape == (70, 3, 8, 8)
    assert len(data.spec.classes) == 4
    assert torch.equal(made(data.cases.x).argmax(1), labelled.cases.y)


def test_images_of_a_set_come_again() -> None:
    known = len(images("digits", 1).cases), images("digits", 1200 + 7).cases
    assert known[0] == 1
    assert torch.equal(known[1].x[1200:], known[1].x[:7])
