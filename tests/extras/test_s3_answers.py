"""What servers that speak S3 answer, as the package that asks them takes it."""

from collections.abc import Iterator

import pytest

from assay.core import remote
from assay.core.errors import StorageError
from assay.core.remote import Objects
from s3_server import BUCKET, Door, Server, serving

SLOWLY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
# As MinIO words it: unlike that of Amazon, the answer does not name the condition.
THERE_IS_ONE = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>PreconditionFailed</Code><Message>At least one of the pre-conditions you specified did not hold</Message>
<Key>x</Key><BucketName>bucket</BucketName><Resource>/bucket/x</Resource><RequestId>1</RequestId></Error>"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def door(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A way to the server that this process takes."""
    found = Door(server)
    for name, value in found.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    Objects(BUCKET)._place[0].clear_instance_cache()  # which would go the way of an earlier test
    yield found
    found.shut()


def answer(status: bytes, content: bytes) -> bytes:
    length = str(len(content)).encode()
    head = [b"HTTP/1.1 " + status, b"Content-Type: application/xml", b"Content-Length: " + length, b"Connection: close"]
    return b"\r\n".join([*head, b"", content])


def test_a_server_that_is_busy_is_asked_as_often_as_we_say(door: Door) -> None:
    door.answer = answer(b"503 Slow Down", SLOWLY)
    with pytest.raises(StorageError, match="tried 1 times"):
        Objects(BUCKET).read("x", tries=1)
    assert door.knocks == 1
    with pytest.raises(StorageError, match="tried 5 times"):
        Objects(BUCKET).read("x")
    assert door.knocks == 1 + remote.TRIES


def test_there_is_one_already_in_the_words_of_two_servers(door: Door) -> None:
    store = Objects(BUCKET)
    assert store.create("x", b"1")
    assert not store.create("x", b"2")
    door.answer = answer(b"412 Precondition Failed", THERE_IS_ONE)
    assert not Objects(BUCKET).create("y", b"1")
    door.answer = None
    assert Objects(BUCKET).read("x") == b"1"
    assert Objects(BUCKET).read("y") is None
