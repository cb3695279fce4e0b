"""Arrays to cases: the one reading is taken with a notice, all else is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay.core.errors import NothingToTest, UsageError
from assay.subjects.data.arrays import to_data

Array = np.ndarray[Any, Any]


def pixels(*shape: int) -> Array:
    """Distinct values in [0, 1)."""
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.float32) / max(size, 1)).reshape(shape)


def test_float32_images_come_through_unchanged() -> None:
    x = pixels(4, 1, 5, 6)
    data = to_data("d", x, np.array([0, 1, 2, 1]))
    assert np.array_equal(data.cases.x.numpy(), x)
    assert data.cases.y.tolist() == [0, 1, 2, 1]
    assert data.cases.origin.tolist() == [0, 1, 2, 3]
    assert (data.spec.shape, data.spec.bounds, data.spec.classes) == ((1, 5, 6), (0.0, 1.0), ("0", "1", "2"))


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)))
def test_uint8_is_divided_by_255_and_nothing_is_lost(x: Array) -> None:
    cases = to_data("d", x).cases
    assert cases.x.dtype == torch.float32
    assert np.array_equal((cases.x * 255).round().to(torch.uint8).numpy(), x)
    assert float(cases.x.min()) >= 0
    assert float(cases.x.max()) <= 1


def test_uint8_ends_of_the_range_are_exact(notices: pytest.LogCaptureFixture) -> None:
    cases = to_data("d", np.array([[0, 255, 51]], np.uint8)).cases
    assert torch.equal(cases.x, torch.tensor([[0.0, 1.0, 51.0 / 255.0]]))
    assert "d: uint8 pixels divided by 255" in notices.text


def test_float64_is_converted_with_a_notice(notices: pytest.LogCaptureFixture) -> None:
    x = pixels(3, 4, 4).astype(np.float64)
    cases = to_data("d", x, [0, 1, 0]).cases
    assert np.array_equal(cases.x.numpy(), x[:, None].astype(np.float32))
    assert "d: float64 inputs converted to float32" in notices.text


def test_float16_is_converted_with_a_notice(notices: pytest.LogCaptureFixture) -> None:
    cases = to_data("d", np.full((2, 3), 0.5, np.float16)).cases
    assert torch.equal(cases.x, torch.full((2, 3), 0.5))
    assert "float16 inputs converted" in notices.text


def test_rounding_just_outside_the_range_is_clamped() -> None:
    cases = to_data("d", np.array([[-1e-6, 1 + 1e-6, 0.5]], np.float32)).cases
    assert torch.equal(cases.x, torch.tensor([[0.0, 1.0, 0.5]]))


def test_grey_images_get_their_channel_axis() -> None:
    x = pixels(2, 4, 5)
    data = to_data("d", x)
    assert data.spec.shape == (1, 4, 5)
    assert np.array_equal(data.cases.x[:, 0].numpy(), x)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_last_is_read_where_only_that_fits(channels: int, notices: pytest.LogCaptureFixture) -> None:
    x = pixels(2, 5, 6, channels)
    data = to_data("d", x)
    assert data.spec.shape == (channels, 5, 6)
    assert np.array_equal(data.cases.x.numpy(), x.transpose(0, 3, 1, 2))
    assert f"channels-last images (2, 5, 6, {channels})" in notices.text


def test_channels_first_needs_no_notice(notices: pytest.LogCaptureFixture) -> None:
    x = pixels(2, 3, 5, 6)
    assert np.array_equal(to_data("d", x).cases.x.numpy(), x)
    assert notices.text == ""


@pytest.mark.parametrize("shape", [(2, 3, 8, 3), (2, 1, 5, 4), (2, 3, 4, 4)])
def test_shapes_with_two_readings_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"channels first or last\? transpose to \(N, C, H, W\)") as told:
        to_data("d", pixels(*shape))
    assert str(shape) in str(told.value)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 2, 8, 8), r"shape \(2, 2, 8, 8\); images have 1, 3 or 4 channels"),
        ((4,), r"shape \(4,\); expected a batch"),
        ((), r"shape \(\); expected a batch"),
        ((2, 3, 4, 5, 6), r"have 5 axes"),
    ],
)
def test_other_shapes_are_refused(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        to_data("d", pixels(*shape))


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((2, 3), np.int64),
        np.zeros((2, 3), np.uint16),
        np.zeros((2, 3), np.int8),
        np.zeros((2, 3), np.bool_),
        np.zeros((2, 3), np.complex64),
        np.array([["a", "b"]]),
        np.array([[{}, 1]], dtype=object),
    ],
    ids=lambda x: str(x.dtype),
)
def test_other_input_types_are_refused_and_named(x: Array) -> None:
    with pytest.raises(UsageError, match=r"give uint8 \(0\.\.255\) or floating-point in \[0, 1\]") as told:
        to_data("the data", x)
    assert f"inputs of the data have type {x.dtype}" in str(told.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_inputs_are_refused_with_their_rows(value: float) -> None:
    x = pixels(9, 4)
    x[2, 1] = x[7, 3] = value
    with pytest.raises(
        UsageError, match=r"inputs of d hold NaN or infinity in 2 cases \(first rows: 2, 7\); mend or drop them$"
    ):
        to_data("d", x)


def test_many_bad_rows_are_cut_short() -> None:
    with pytest.raises(UsageError, match=r"in 9 cases \(first rows: 0, 1, 2, 3, 4, …\);"):
        to_data("d", np.full((9, 4), np.nan, np.float32))


@pytest.mark.parametrize(
    ("scale", "shift", "words"), [(2, -1, "[-1, 0.9"), (255, 0, "[0, 254.9"), (1, 1e-3, "[0.001, 1.00")]
)
def test_other_ranges_are_refused_and_never_rescaled(scale: float, shift: float, words: str) -> None:
    x = np.linspace(0, 0.9999, 24, dtype=np.float32).reshape(6, 4) * scale + shift
    with pytest.raises(UsageError, match=r"expected \[0, 1\] \(first rows: .*nothing is rescaled silently") as told:
        to_data("d", x)
    assert words in str(told.value)
    assert "--mean and --std" in str(told.value)


@pytest.mark.parametrize("shape", [(0, 8, 8), (0, 3, 8, 8), (0, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_no_rows_is_nothing_to_test(shape: tuple[int, ...], dtype: Any) -> None:
    with pytest.raises(NothingToTest, match="d holds no case"):
        to_data("d", np.zeros(shape, dtype), np.zeros(0, np.int64))


def test_no_labels_is_unlabelled() -> None:
    data = to_data("d", pixels(3, 4))
    assert data.cases.y.tolist() == [-1, -1, -1]
    assert data.spec.classes == ("0", "1")


def test_minus_one_means_unlabelled() -> None:
    data = to_data("d", pixels(3, 4), [-1, 4, -1])
    assert data.cases.y.tolist() == [-1, 4, -1]
    assert len(data.spec.classes) == 5


def test_labels_below_minus_one_are_refused_with_their_rows() -> None:
    with pytest.raises(UsageError, match=r"must be from 0 up, or -1 for unlabelled; got -2 \(rows 1, 3\)$"):
        to_data("d", pixels(4, 4), [0, -2, 1, -7])


def test_a_label_beyond_the_named_classes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"labels of d must be in 0\.\.2, got 3 \(first rows: 1, 2\)$"):
        to_data("d", pixels(4, 4), [0, 3, 3, 1], ("a", "b", "c"))


def test_class_names_are_kept_also_of_absent_classes() -> None:
    assert to_data("d", pixels(2, 4), [0, 1], ("a", "b", "c")).spec.classes == ("a", "b", "c")


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64])
def test_every_integer_type_of_label_is_read(dtype: Any) -> None:
    y = to_data("d", pixels(3, 4), np.array([2, 0, 1], dtype)).cases.y
    assert y.dtype == torch.int64
    assert y.tolist() == [2, 0, 1]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.sampled_from([np.uint8, np.float32, np.bool_]))
def test_one_hot_labels_are_the_column_that_is_one(labels: list[int], dtype: Any) -> None:
    hot = np.eye(7)[labels].astype(dtype)
    assert to_data("d", pixels(len(labels), 4), hot).cases.y.tolist() == labels


def test_one_hot_labels_give_a_notice(notices: pytest.LogCaptureFixture) -> None:
    to_data("d", pixels(2, 4), np.eye(2))
    assert "d: one-hot labels read as class numbers" in notices.text


@pytest.mark.parametrize("rows", [[[0.5, 0.5], [1, 0]], [[1, 1], [1, 0]], [[0, 0], [0, 1]], [[np.nan, 1], [0, 1]]])
def test_rows_that_are_not_one_hot_are_refused(rows: list[list[float]]) -> None:
    with pytest.raises(UsageError, match=r"shape \(2, 2\) and are not one-hot; give class numbers"):
        to_data("d", pixels(2, 4), np.array(rows))


def test_a_column_of_labels_is_read() -> None:
    assert to_data("d", pixels(3, 4), np.array([[2], [0], [1]])).cases.y.tolist() == [2, 0, 1]


def test_whole_float_labels_are_read_with_a_notice(notices: pytest.LogCaptureFixture) -> None:
    assert to_data("d", pixels(3, 4), np.array([2.0, 0.0, -1.0])).cases.y.tolist() == [2, 0, -1]
    assert "floating-point labels read as class numbers" in notices.text


@pytest.mark.parametrize(
    "y",
    [
        np.array([0.5, 1]),
        np.array([np.nan, 1]),
        np.array([np.inf, 1]),
        np.array(["cat", "dog"]),
        np.array([b"0", b"1"]),
        np.array([0, None], dtype=object),
        np.array([True, False]),
    ],
    ids=lambda y: f"{y.dtype}-{y[0]}",
)
def test_labels_that_are_no_class_numbers_are_refused(y: Array) -> None:
    with pytest.raises(UsageError, match="expected class numbers from 0") as told:
        to_data("d", pixels(2, 4), y)
    assert f"labels of d have type {y.dtype}" in str(told.value)


@pytest.mark.parametrize("y", [np.zeros((2, 2, 2), np.int64), np.array(3)])
def test_labels_of_other_shapes_are_refused(y: Array) -> None:
    with pytest.raises(UsageError, match="expected one number per case") as told:
        to_data("d", pixels(2, 4), y)
    assert str(y.shape) in str(told.value)


def test_inputs_and_labels_must_be_as_many() -> None:
    with pytest.raises(UsageError, match="d has 4 inputs but 3 labels"):
        to_data("d", pixels(4, 4), [0, 1, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_the_caller_s_arrays_are_the_caller_s(dtype: Any) -> None:
    x, y = (pixels(3, 4) * 2).round().clip(0, 1).astype(dtype), np.array([0, 1, 0])
    cases = to_data("d", x, y).cases
    seen = cases.x.clone()
    x[:], y[:] = 1 - x, 1
    assert torch.equal(cases.x, seen)
    assert cases.y.tolist() == [0, 1, 0]


def test_clamping_does_not_write_to_the_caller_s_array() -> None:
    x = np.array([[-1e-6, 1 + 1e-6]], np.float32)
    before = x.copy()
    x.flags.writeable = False
    assert to_data("d", x).cases.x.tolist() == [[0.0, 1.0]]
    assert np.array_equal(x, before)


def test_a_tensor_is_not_shared() -> None:
    x = torch.full((2, 3), 0.5)
    cases = to_data("d", x).cases
    x.zero_()
    assert cases.x.tolist() == [[0.5] * 3] * 2


def test_one_hot_labels_tell_the_number_of_classes() -> None:
    assert to_data("d", pixels(2, 4), np.eye(7)[[0, 1]]).spec.classes == tuple("0123456")


def test_a_label_beyond_reason_is_refused() -> None:
    with pytest.raises(UsageError, match="labels of d go up to 1000000001; class numbers start at 0 and have no gaps"):
        to_data("d", pixels(2, 4), [0, 1_000_000_001])
