"""What a user's code does to leave the process is never taken for a result of ours."""

from pathlib import Path

import pytest

import small
from commands import Nursery

RAISES = """
from assay.engines import campaign
class Odd(BaseException):
    pass
def leave(*_):
    raise {}
campaign.Campaign.prepare = leave
"""
KEPT = "what was committed is kept, the same command goes on from there"


@pytest.mark.parametrize(
    ("leaves", "said"),
    [
        ("SystemExit(0)", "called exit(0)"),
        ("SystemExit(1)", "called exit(1)"),
        ("SystemExit", "called exit(None)"),
        ("SystemExit('enough')", "called exit(enough)"),
        ("SystemExit(object())", "called exit(object)"),
        ("GeneratorExit", "raised GeneratorExit"),
        ("Odd('\\x1b[31m')", "raised Odd"),
    ],
)
def test_code_that_leaves_ends_the_command_with_one_message(
    leaves: str, said: str, home: Nursery, tmp_path: Path
) -> None:
    small.prepare(tmp_path)
    ended = home.run(*small.fuzz("a"), before=RAISES.format(leaves)).ended(3, said, KEPT)
    assert ended.said == f"error: code that the command ran {said}; {KEPT}"
    home.run(*small.fuzz("a")).ended(0)


def test_ways_of_leaving_that_are_ours_mean_what_they_say(home: Nursery) -> None:
    home.run("--version").ended(0)
    home.run("fuzz", "--help").ended(0)
    home.run("fuzz", "--no-such-option").ended(4)
