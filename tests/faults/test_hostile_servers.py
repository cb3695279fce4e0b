"""Servers that answer to hurt: one message, in time, within memory; the token goes nowhere else and is never shown."""

from collections.abc import Iterable

import pytest

from assay.core.errors import INTERNAL, USAGE
from bad_servers import ANSWERS, ENDLESS, serving
from bad_strings import steers
from commands import Nursery

TOKEN = "very-secret-word"


@pytest.mark.parametrize("name", [*ANSWERS, *ENDLESS])
def test_no_answer_does_more_than_end_the_command(home: Nursery, name: str) -> None:
    pieces: bytes | Iterable[bytes] = ENDLESS[name]() if name in ENDLESS else ANSWERS[name]
    with serving(pieces) as url:
        asked = ("--data", "digits/test[:5]", "--suite", "square", "--eps", "0.1", "--ask", "timeout=2, retries=0")
        done = home.run("eval", url, *asked, env={"ASSAY_TOKEN": TOKEN})
    assert done.code in (USAGE, INTERNAL), done.err
    assert "Traceback" not in done.err, done.err
    assert url.rstrip("/") in done.said
    assert not steers(done.out + done.err)
    assert TOKEN not in done.out + done.err
    assert "passwd:" not in done.err
    if name in ("to a file", "to another host"):
        assert "do not follow" in done.said


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "a b", "käse", "a\x1b[31m"])
def test_a_token_cannot_add_a_header(home: Nursery, token: str) -> None:
    done = home.run("eval", "http://127.0.0.1:9/", "--data", "digits/test[:5]", env={"ASSAY_TOKEN": token})
    done.ended(USAGE, "ASSAY_TOKEN")
    assert "X-Evil" not in done.err
    assert not steers(done.err)
