"""Errors carry the exit codes of the contract."""

import pytest

from assay.core import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.AssayError, 3),
        (errors.UsageError, 4),
        (errors.NothingToTest, 5),
        (errors.StorageError, 3),
        (errors.Interrupted, 2),
    ],
)
def test_exit_codes(kind: type[errors.AssayError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(kind, errors.AssayError)


def test_the_codes_are_those_of_pytest() -> None:
    assert (errors.PASSED, errors.NOT_MET, errors.INTERRUPTED, errors.INTERNAL) == (0, 1, 2, 3)
    assert (errors.USAGE, errors.NOTHING_TO_TEST) == (4, 5)
    codes = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert codes == (errors.PASSED, errors.NOT_MET, errors.INTERRUPTED)
    codes = (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert codes == (errors.INTERNAL, errors.USAGE, errors.NOTHING_TO_TEST)
