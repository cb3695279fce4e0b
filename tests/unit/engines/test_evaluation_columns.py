"""Curves, parts, sizes, queries, comparisons and transfer: numbers that can be checked by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.engines.blocks import load_examples
from assay.engines.cost import estimate
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import numbers_table
from assay.engines.transfer import transfer
from assay.recipes.suite import attacks_of
from assay.subjects.bench import Data
from assay.subjects.counted import Counted
from assay.subjects.sources.load import trained_with
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1,), (0.0, 1.0), ("low", "high"))


class Line(nn.Module):
    """Class 1 iff the single input value is above ``at``."""

    def __init__(self, at: float = 0.5) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.at - x, x - self.at], 1) * 4

    def extra_repr(self) -> str:
        return str(self.at)


def line(values: list[float]) -> Data:
    labels = [int(v > 0.5) for v in values]
    return Data("line", Cases.of(torch.tensor(values)[:, None], torch.tensor(labels)), SPEC)


def target(at: float = 0.5) -> ModuleTarget:
    return ModuleTarget(Line(at), SPEC)


DATA = line([0.05, 0.35, 0.45, 0.52, 0.58, 0.9])


def test_several_eps_give_a_curve() -> None:
    result = evaluate(target(), DATA, suite="fgsm,bim", eps="0.2,0.05,0.1", ignore=())
    assert {eps: share.right for eps, share in result.curve.items()} == {0.05: 5, 0.1: 3, 0.2: 2}
    assert result.worst.right == 2
    assert result.protocol["eps"] == 0.2
    alone = evaluate(target(), DATA, suite="fgsm,bim", eps=0.1)
    assert not alone.curve
    assert alone.worst.right == result.curve[0.1].right
    each = evaluate(target(), DATA, suite="fgsm,bim", eps=[0.05, 0.1, 0.2], each=True)
    assert each.curve == result.curve


def test_seen_and_unseen_are_columns_of_their_own() -> None:
    result = evaluate(target(), DATA, suite="seen,unseen(eps=0.1)", eps=0.1, seen="fgsm,pgd(steps=3)")
    assert set(result.parts) == {"seen", "unseen"}
    assert "fgsm" in result.attacks
    assert result.attacks["bim"].tried == 6, "unseen attacks start from every right input, not from what seen ones left"
    assert result.parts["seen"].right == 3
    assert result.accuracy("unseen") == pytest.approx(0.5)
    with pytest.raises(UsageError, match="--seen"):
        evaluate(target(), DATA, suite="unseen", eps=0.1)
    with pytest.raises(UsageError, match="trained without attacks"):
        evaluate(target(), DATA, suite="seen", eps=0.1, seen="")


def test_a_checkpoint_says_what_it_was_trained_with(digits_model: str, tmp_path: Path) -> None:
    assert trained_with(digits_model) == ()
    out = tmp_path / "adv.safetensors"
    assay.train("mlp", "digits", out, trainer="adversarial", eps=0.1, params={"epochs": 1})
    assert trained_with(f"mlp@{out}") == (("pgd", {"steps": 7, "step": 0.25}),)
    result = evaluate(f"mlp@{out}", "digits/test[:20]", suite="seen", eps=0.1)
    assert "steps=7" in result.protocol["attacks"]["pgd"]


def test_minimal_attacks_give_sizes(digits_model: str) -> None:
    result = evaluate(digits_model, "digits/test[:40]", suite="deepfool,fab_t(targets=3, steps=20)", norm="l2")
    assert result.minimal is not None
    assert result.attacks["fab_t"].tried == result.clean.right, "each attack measures every input, no cascade"
    sizes = [outcome.sizes for outcome in result.attacks.values() if outcome.sizes is not None]
    assert len(sizes) == 2
    assert result.minimal.mean <= min(part.mean for part in sizes)
    assert sizes[0].n == result.attacks["deepfool"].broken
    assert 0 < sizes[0].low <= sizes[0].median <= sizes[0].high
    assert result.to_json()["attacks"]["deepfool"]["size"]["median"] == round(sizes[0].median, 6)
    assert result.protocol["eps"] is None


def test_sizes_by_hand() -> None:
    result = evaluate(target(), line([0.4, 0.7, 0.45]), suite="deepfool", norm="linf")
    assert result.minimal is not None
    assert result.minimal.n == 3
    assert result.minimal.median == pytest.approx(0.1, rel=0.05)


def test_queries_are_counted() -> None:
    result = evaluate(target(), DATA, suite="fgsm,bim(steps=4, step=0.3, early_stop=false)", eps=0.1)
    assert result.attacks["fgsm"].effort.gradient == 6
    bim = result.attacks["bim"]
    assert (bim.tried, bim.effort.gradient) == (3, 3 * 4)
    assert result.to_json()["attacks"]["bim"]["queries"] == {"forward": 12, "gradient": 12}
    assert result.to_json()["attacks"]["fgsm"]["success_rate"] == 0.5


def test_a_counted_target_counts_backward_passes() -> None:
    counted = Counted(target())
    x = torch.rand(5, 1, requires_grad=True)
    counted(x.detach())
    out = counted(x)
    torch.autograd.grad(out.sum(), x, retain_graph=True)
    torch.autograd.grad(out[:, 0].sum(), x)
    assert (counted.forward, counted.gradient) == (10, 10)


def test_unlike_numbers_are_not_compared() -> None:
    one, other = (evaluate(target(at), DATA, suite="fgsm", eps=0.1) for at in (0.5, 0.4))
    assert one.compared(other) == pytest.approx(one.accuracy() - other.accuracy())
    weaker = evaluate(target(), DATA, suite="fgsm", eps=0.05)
    with pytest.raises(UsageError, match=r"cannot be compared: eps 0\.1 and 0\.05"):
        one.compared(weaker)
    with pytest.raises(UsageError, match="data_fingerprint"):
        one.compared(evaluate(target(), line([0.1, 0.9]), suite="fgsm", eps=0.1))


def test_the_estimate_counts_what_attacks_may_ask() -> None:
    attacks = attacks_of("pgd(steps=10, restarts=3),square(queries=50)", {"eps": 0.1, "norm": "linf"})
    whole = estimate(target(), DATA.cases, attacks.values())
    assert whole.at_most == pytest.approx(6 * (30 * whole.gradient + 50 * whole.forward))
    assert "up to about" in str(whole)


def test_transfer_by_hand() -> None:
    """Examples move values by 0.1 towards the line of the model they were made on."""
    data = line([0.05, 0.25, 0.45, 0.55, 0.9])
    result = transfer([target(0.5), target(0.6)], data, suite="fgsm", eps=0.1, names=("half", "more"))
    # Both are right on 0.05, 0.25, 0.45 and 0.9; 0.55 is wrong for `more`.
    assert result.fooled["half"]["more"].n == 4
    assert result.fooled["half"]["more"].right == 0, "0.45 goes to 0.55, still low for a line at 0.6"
    assert result.fooled["more"]["half"].right == 1, "0.45 goes to 0.55, high for a line at 0.5"
    assert result.white_box["half"].right == 2
    assert "half" not in result.fooled["half"], "white-box numbers do not stand in the matrix"
    assert result.to_json()["fooled"]["more"]["half"]["rate"] == 0.25


def test_transfer_refuses_one_model() -> None:
    with pytest.raises(UsageError, match="two or more models"):
        transfer([target()], DATA, eps=0.1)


def test_a_curve_of_parts_is_the_worst_of_both() -> None:
    weak = "fgsm(early_stop=true),pgd(steps=1, step=0.01, random_start=false)"
    result = evaluate(target(), DATA, suite="seen,unseen", eps="0.05,0.1,0.2", seen=weak)
    assert result.curve[0.2] == result.worst
    assert [share.right for share in result.curve.values()] == [5, 3, 2]


def test_the_order_of_a_cascade_belongs_to_its_run() -> None:
    evaluate(target(), DATA, suite="bim,fgsm", eps=0.1, save="ordered")
    with pytest.raises(UsageError, match="order"):
        evaluate(target(), DATA, suite="fgsm,bim", eps=0.1, save="ordered")
    with pytest.raises(UsageError, match="attacks"):
        evaluate(target(), DATA, suite="bim,fgsm", eps=0.1).compared(
            evaluate(target(), DATA, suite="fgsm,bim", eps=0.1)
        )


def test_what_was_seen_belongs_to_a_run_and_to_a_number() -> None:
    one = evaluate(target(), DATA, suite="seen,unseen", eps=0.1, seen="fgsm", save="parts")
    with pytest.raises(UsageError, match="order"):
        evaluate(target(), DATA, suite="seen,unseen", eps=0.1, seen="bim", save="parts")
    other = evaluate(target(), DATA, suite="seen,unseen", eps=0.1, seen="bim")
    with pytest.raises(UsageError, match="cannot be compared"):
        one.compared(other, "seen")
    made = load_examples("parts")
    first = made.info["attack"] == 0
    assert int(first.sum()) == one.attacks["fgsm"].tried, "every example says which attack of all made it"


def test_an_attack_stands_in_one_part_only() -> None:
    with pytest.raises(UsageError, match="pgd stands in two parts"):
        evaluate(target(), DATA, suite="pgd,seen", eps=0.1, seen="pgd")
    expanded = evaluate(target(), DATA, suite="seen,unseen", eps=0.1, seen="fast")
    assert expanded.protocol["parts"]["seen"] == ["fgsm", "pgd"]
    assert not {"fgsm", "pgd"} & set(expanded.protocol["parts"]["unseen"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"suite": "pgd(eps=0.3),fgsm", "eps": "0.05,0.1"}, "no curve over eps"),
        ({"suite": "seen", "seen": "fgsm", "eps": 0.1, "static_from": target(0.4)}, "one after the other"),
    ],
)
def test_what_has_no_meaning_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        evaluate(target(), DATA, **arguments)


def test_stray_examples_do_not_count_in_transfer_either(tmp_path: Path) -> None:
    file = tmp_path / "cheat.py"
    file.write_text("def far(target, x, y, *, rng, eps: float):\n    'Jumps across.'\n    return 1 - x\n")
    result = transfer([target(0.5), target(0.6)], DATA, suite=f"{file}:far", eps=0.1, names=("a", "b"))
    assert result.white_box["a"].right == 2, "0.45 and 0.52 jump by no more than 0.1"
    assert result.fooled["a"]["b"].right == 0, "0.05 and 0.9 jump too far"


def test_checks_that_were_left_out_are_told() -> None:
    result = evaluate(target(), DATA, suite="fgsm", eps=0.1, ignore=("randomised",))
    assert result.to_json()["ignored_checks"] == ["randomised"]


def test_a_static_column_of_the_report_holds_static_numbers_only() -> None:
    result = evaluate(target(), DATA, suite="fgsm", eps="0.05,0.1", static_from=target(0.4))
    table = numbers_table(result)
    assert len(table["models"]) == 2
    widths = {row["name"]: len(row["cells"]) for row in table["rows"]}
    assert widths["worst case at eps 0.05"] == 1, "the curve is white-box"
    assert widths["worst case"] == widths["left after fgsm eps=0.1"] == 2


def test_attacks_whose_cost_nobody_knows_are_named() -> None:
    attacks = [*attacks_of("fgsm", {"eps": 0.1}).values(), *attacks_of("spatial", {}).values()]
    whole = estimate(target(), DATA.cases, attacks)
    assert whole.unknown == ("spatial",)
    assert whole.at_most == pytest.approx(6 * whole.gradient), "one gradient an input of fgsm"
