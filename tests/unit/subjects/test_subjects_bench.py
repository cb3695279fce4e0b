"""Data in parts, and whether they fit a target."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.cases import Cases, InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.subjects.bench import Bench, Data, Splits, cut, fitted
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import require


def data(n: int, shape: tuple[int, ...] = (1, 4, 4), classes: int = 3) -> Data:
    """Cases whose first pixel is their number."""
    x = torch.zeros(n, *shape)
    x.flatten(1)[:, 0] = torch.arange(n, dtype=torch.float32)
    spec = InputSpec(shape, (0.0, 1.0), tuple(map(str, range(classes))))
    return Data("made", Cases.of(x, torch.arange(n) % classes), spec)


def numbers(part: Data) -> list[int]:
    return [int(v) for v in part.cases.x.flatten(1)[:, 0]]


@given(st.integers(1, 60), st.data(), st.integers(0, 5))
def test_cut_parts_disjointly_and_keeps_everything(n: int, draw: st.DataObject, seed: int) -> None:
    share = draw.draw(st.integers(0, n))
    first, second = cut(data(n), ("one", "two"), share, seed)
    assert (first.name, second.name) == ("one", "two")
    assert (len(first), len(second)) == (n - share, share)
    assert sorted(numbers(first) + numbers(second)) == list(range(n))
    assert numbers(first) == sorted(numbers(first))
    assert numbers(second) == sorted(numbers(second))


def test_cut_keeps_inputs_with_their_labels_and_numbers_rows_anew() -> None:
    first, second = cut(data(20), ("one", "two"), 6)
    for part in (first, second):
        assert part.cases.y.tolist() == [number % 3 for number in numbers(part)]
        assert part.cases.origin.tolist() == list(range(len(part)))
        assert part.spec == data(20).spec


def test_cut_is_the_same_every_time_and_another_for_another_seed() -> None:
    whole = data(50)
    assert numbers(cut(whole, ("a", "b"), 10)[1]) == numbers(cut(whole, ("a", "b"), 10)[1])
    assert numbers(cut(whole, ("a", "b"), 10, seed=1)[1]) != numbers(cut(whole, ("a", "b"), 10)[1])


def test_cut_does_not_touch_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    cut(data(50), ("a", "b"), 10)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_slice_keeps_the_place_in_the_whole() -> None:
    part = data(10)[4:8]
    assert numbers(part) == [4, 5, 6, 7]
    assert part.cases.origin.tolist() == [4, 5, 6, 7]


def test_fingerprint_tells_inputs_labels_and_shape_apart() -> None:
    one = data(6)
    other_y = Data("made", Cases.of(one.cases.x, one.cases.y.flip(0)), one.spec)
    other_x = Data("made", Cases.of(one.cases.x + 1, one.cases.y), one.spec)
    other_shape = Data("made", Cases.of(one.cases.x.reshape(6, 1, 2, 8), one.cases.y), one.spec)
    renamed = Data("other", one.cases, one.spec)
    assert one.fingerprint() == data(6).fingerprint() == renamed.fingerprint()
    assert len({d.fingerprint() for d in (one, other_y, other_x, other_shape)}) == 4


def test_fingerprint_does_not_depend_on_memory_layout() -> None:
    one = data(6, (2, 3, 4))
    strided = one.cases.x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert not strided.is_contiguous()
    assert Data("made", Cases.of(strided, one.cases.y), one.spec).fingerprint() == one.fingerprint()


def test_parts_by_name() -> None:
    splits = Splits("s", train=data(3), test=data(2))
    assert len(splits.part("train")) == 3
    with pytest.raises(UsageError, match="s has no part 'val'; it has train, test"):
        splits.part("val")
    with pytest.raises(UsageError, match=r"unknown part 'trian' of s; did you mean 'train'\?"):
        splits.part("trian")
    with pytest.raises(UsageError, match="unknown part 'name' of s"):
        splits.part("name")


def test_fitting_data_pass(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target((1, 4, 4), 3)
    few = data(4, classes=2)
    fitted(target, few)
    fitted(target, Data("unlabelled", Cases.of(few.cases.x), few.spec))
    assert target(few.cases.x).shape == (4, 3)


def test_another_shape_is_refused(linear_target: Callable[..., ModuleTarget]) -> None:
    with pytest.raises(
        UsageError,
        match=r"the target takes inputs of shape \(1, 4, 4\), made has \(3, 4, 4\); use the data .* or --size",
    ):
        fitted(linear_target((1, 4, 4), 3), data(4, (3, 4, 4)))


def test_labels_beyond_the_target_are_refused(linear_target: Callable[..., ModuleTarget]) -> None:
    with pytest.raises(
        UsageError, match=r"labels must be in 0\.\.2, the target's classes; made has 4 \(rows 3, 4, 8, 9"
    ):
        fitted(linear_target((1, 4, 4), 3), data(10, classes=5))
    with pytest.raises(UsageError, match=r"\(rows 3, 4, 8, 9, 13, …\)"):
        fitted(linear_target((1, 4, 4), 3), data(20, classes=5))


def test_no_cases_is_nothing_to_test(linear_target: Callable[..., ModuleTarget]) -> None:
    with pytest.raises(NothingToTest, match="made holds no case"):
        fitted(linear_target((1, 4, 4), 3), data(0))


def test_needs_that_are_not_given_are_refused(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target()
    require(target, ("grad", "logit"), "attack 'pgd'")
    target.gives = frozenset({"label"})
    with pytest.raises(UsageError, match="attack 'pgd' needs grad, logit, this target gives label only"):
        require(target, ("logit", "grad"), "attack 'pgd'")


def test_a_filled_logits_column_is_not_asked_for_again(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target()
    cases = data(5).cases
    bench = Bench(target)
    asked = bench.logits(cases)
    assert torch.equal(asked, target(cases.x))
    assert not asked.requires_grad
    assert torch.equal(bench.logits(cases.note(logits=torch.ones(5, 3))), torch.ones(5, 3))


NAMED = ("cat", "dog", "bird", "fish")


@pytest.mark.parametrize(
    ("have", "want", "labels"),
    [
        (("1", "3"), ("0", "1", "2", "3"), [1, 3, 1, 3]),
        (("0", "2"), ("2", "1", "0", "3"), [2, 0, 2, 0]),
        (("1", "3"), NAMED, [1, 3, 1, 3]),  # none of them is a name: what an export of such a target says
        (("dog", "cat"), NAMED, [1, 0, 1, 0]),
        (("0", "1"), NAMED, None),
        (("00", "01"), ("0", "1", "2"), None),
        (("1", "3"), ("1", "3", "9"), None),
        (("dog", "cat"), ("0", "1", "2"), None),
    ],
)
def test_labels_mean_the_classes_of_the_target(
    have: tuple[str, ...], want: tuple[str, ...], labels: list[int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    given, target = named(have, want)
    made = fitted(target, given)
    told = "made lists its classes in another order than the target" in caplog.text
    assert (made is given, told) == ((True, False) if labels is None else (False, True))
    assert made.cases.y.tolist() == (labels or [0, 1, 0, 1])
    assert made.spec.classes == (have if labels is None else want)


@pytest.mark.parametrize(
    ("have", "want", "told"),
    [
        (("1", "4"), NAMED, r"made has the class '4', the target's are 0\.\.3"),
        (("1", "4"), ("0", "1", "2", "3"), "it does not know '4'"),
        (("dog", "cow"), NAMED, "it does not know 'cow'"),
    ],
)
def test_classes_the_target_has_not_are_refused(have: tuple[str, ...], want: tuple[str, ...], told: str) -> None:
    given, target = named(have, want)
    with pytest.raises(UsageError, match=told):
        fitted(target, given)


def named(have: tuple[str, ...], want: tuple[str, ...]) -> tuple[Data, ModuleTarget]:
    """Four cases of two classes, and a target, with classes of these names."""
    cases = Cases.of(torch.zeros(4, 2), torch.arange(4) % 2)
    net = torch.nn.Linear(2, len(want))
    data = Data("made", cases, InputSpec((2,), (0.0, 1.0), have))
    return data, ModuleTarget(net, InputSpec((2,), (0.0, 1.0), want))


def test_a_nameless_net_reads_numbers_as_its_classes() -> None:
    """Data of the classes 2, 3 and 6 alone, asked of a net with ten outputs."""
    from torch import nn

    from assay.subjects.sources.load import load_target

    spec = InputSpec((4,), (0.0, 1.0), ("2", "3", "6"))
    data = Data("some", Cases.of(torch.rand(3, 4), torch.tensor([0, 1, 2])), spec)
    assert fitted(load_target(nn.Linear(4, 10), data=data), data).cases.y.tolist() == [2, 3, 6]
