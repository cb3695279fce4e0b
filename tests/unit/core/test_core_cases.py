"""Cases: rows, columns and what they refuse."""

import pytest
import torch

from assay.core.cases import MINED, UNLABELLED, Cases, InputSpec
from assay.core.errors import UsageError


def three() -> Cases:
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    return Cases.of(x, torch.tensor([7, 8, 9])).note(fol=torch.tensor([0.5, 1.5, 2.5]), pair=torch.arange(6).view(3, 2))


def test_fresh_cases_are_their_own_seeds_and_unlabelled() -> None:
    cases = Cases.of(torch.zeros(3, 2))
    assert len(cases) == 3
    assert cases.origin.tolist() == [0, 1, 2]
    assert cases.y.tolist() == [UNLABELLED] * 3
    assert dict(cases.info) == {}


def test_a_slice_takes_every_column() -> None:
    part = three()[1:]
    assert part.x.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert part.y.tolist() == [8, 9]
    assert part.origin.tolist() == [1, 2]
    assert part.info["fol"].tolist() == [1.5, 2.5]
    assert part.info["pair"].tolist() == [[2, 3], [4, 5]]


def test_a_mask_takes_every_column() -> None:
    part = three()[torch.tensor([True, False, True])]
    assert part.y.tolist() == [7, 9]
    assert part.origin.tolist() == [0, 2]
    assert part.info["fol"].tolist() == [0.5, 2.5]


def test_indices_may_repeat_and_reorder() -> None:
    part = three()[torch.tensor([2, 0, 2])]
    assert part.x.tolist() == [[4.0, 5.0], [0.0, 1.0], [4.0, 5.0]]
    assert part.origin.tolist() == [2, 0, 2]


def test_no_rows_is_fine() -> None:
    part = three()[torch.zeros(3, dtype=torch.bool)]
    assert len(part) == 0
    assert part.x.shape == (0, 2)
    assert part.info["pair"].shape == (0, 2)


def test_cat_joins_in_order_and_keeps_shared_columns_only() -> None:
    left = three()[:1]
    right = three()[2:].drop("pair").note(extra=torch.tensor([1]))
    joined = Cases.cat([left, right])
    assert joined.y.tolist() == [7, 9]
    assert joined.origin.tolist() == [0, 2]
    assert list(joined.info) == ["fol"]
    assert joined.info["fol"].tolist() == [0.5, 2.5]


def test_cat_of_one_part_keeps_the_order_of_columns() -> None:
    assert list(Cases.cat([three()]).info) == ["fol", "pair"]


def test_cat_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one part"):
        Cases.cat([])


def test_note_adds_and_replaces_without_touching_the_original() -> None:
    before = three()
    after = before.note(fol=torch.zeros(3), new=torch.ones(3))
    assert after.info["fol"].tolist() == [0.0, 0.0, 0.0]
    assert after.info["new"].tolist() == [1.0, 1.0, 1.0]
    assert before.info["fol"].tolist() == [0.5, 1.5, 2.5]
    assert "new" not in before.info


def test_drop_removes_columns_and_ignores_unknown_ones() -> None:
    assert list(three().drop("pair", "nowhere").info) == ["fol"]


def test_with_x_keeps_labels_and_origins() -> None:
    other = three().with_x(torch.ones(3, 5))
    assert other.x.shape == (3, 5)
    assert other.y.tolist() == [7, 8, 9]


def test_the_reference_is_what_was_mined_else_the_label() -> None:
    cases = three()
    assert cases.reference is cases.y
    mined = cases.note(mined=torch.tensor([1, 2, 3]))
    assert mined.reference.tolist() == [1, 2, 3]
    assert mined.y.tolist() == [7, 8, 9]
    assert mined[1:].reference.tolist() == [2, 3]
    assert mined.drop(MINED).reference is cases.y


def test_the_parent_is_the_seed_else_the_case_itself() -> None:
    cases = three()
    assert cases.parent is cases.x
    seeds = torch.zeros(3, 2)
    assert cases.note(seed_x=seeds).parent is seeds


def test_to_moves_every_column() -> None:
    moved = three().to("meta")
    columns = [moved.x, moved.y, moved.origin, *moved.info.values()]
    assert {column.device.type for column in columns} == {"meta"}


@pytest.mark.parametrize("name", ["y", "origin", "fol"])
def test_a_column_of_another_length_is_refused_by_name(name: str) -> None:
    columns = {"y": torch.zeros(3), "origin": torch.zeros(3), "fol": torch.zeros(3)} | {name: torch.zeros(2)}
    with pytest.raises(UsageError, match=rf"column '{name}' has shape \(2,\), expected 3 rows"):
        Cases(torch.zeros(3, 2), columns["y"], columns["origin"], {"fol": columns["fol"]})


def test_a_column_without_rows_axis_is_refused() -> None:
    with pytest.raises(UsageError, match=r"shape \(\)"):
        three().note(total=torch.tensor(1.0))


def test_with_x_of_another_length_is_refused() -> None:
    with pytest.raises(UsageError, match="expected 4 rows"):
        three().with_x(torch.zeros(4, 2))


def test_input_spec_reads_as_people_read_it() -> None:
    spec = InputSpec((1, 8, 8), (0.0, 1.0), ("a", "b"))
    assert spec.kind == "image"
    assert str(spec) == "1×8×8 in [0, 1], 2 classes"
    assert InputSpec((4,), (-1.0, 1.0), ("a",)).kind == "vector"
