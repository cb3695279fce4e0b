"""``assay serve`` under attack: from a page in the user's browser, from slow and endless clients, by wrong tokens."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from assay.core.errors import UsageError
from assay.engines.serve import CONNECTIONS, serving
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from served import served

BODY = json.dumps({"inputs": [[[[0.5] * 8] * 8]]}).encode()
JSON = {"Content-Type": "application/json"}
TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def address(digits_model: str) -> Iterator[tuple[str, int]]:
    """A server on loopback without a token, as a process of its own; it must live through all of this file."""
    with served(digits_model) as url:
        yield _place(url)


@pytest.fixture(scope="module")
def guarded(digits_model: str) -> Iterator[tuple[str, int]]:
    with served(digits_model, ASSAY_TOKEN=TOKEN) as url:
        yield _place(url)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def ask(
    address: tuple[str, int], method: str = "POST", headers: dict[str, str] | None = None, body: bytes = BODY
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.request(method, "/", body if method == "POST" else None, JSON | (headers or {}))
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def raw(address: tuple[str, int], content: bytes) -> bytes:
    """What comes back for these bytes, until the server hangs up."""
    with socket.create_connection(address, 20) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_it_answers_whoever_asks_rightly(address: tuple[str, int]) -> None:
    status, headers, content = ask(address)
    assert status == 200
    assert len(json.loads(content)["probabilities"][0]) == 10
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[2001:db8::1]:80", ""])
def test_a_name_that_was_bound_to_loopback_gets_nothing(address: tuple[str, int], host: str) -> None:
    """DNS rebinding: the browser believes the page's own server has answered."""
    status, _, content = ask(address, headers={"Host": host})
    assert status in (400, 403)
    assert b"probabilities" not in content


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_of_a_browser_get_nothing(address: tuple[str, int], guarded: tuple[str, int], origin: str) -> None:
    """Every browser sends Origin with a POST from a page; programs do not."""
    for place, more in ((address, {}), (guarded, {"Authorization": f"Bearer {TOKEN}"})):
        for kind in ("text/plain", "application/json"):
            status, headers, content = ask(place, headers={"Origin": origin, "Content-Type": kind, **more})
            assert status == 403
            assert b"probabilities" not in content
            assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_refused(address: tuple[str, int], kind: str) -> None:
    """These need no leave of the server's, so an old browser sends them without asking; JSON does."""
    status, _, content = ask(address, headers={"Content-Type": kind})
    assert status == 415
    assert b"application/json" in content


def test_a_browser_that_asks_for_leave_gets_none(address: tuple[str, int]) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    status, headers, _ = ask(address, "OPTIONS", asked, b"")
    assert status >= 400
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", f"bearer {TOKEN}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer t\xf6ken"]
)
def test_wrong_tokens_learn_nothing(guarded: tuple[str, int], given: str) -> None:
    for method in ("GET", "POST"):
        status, headers, content = ask(guarded, method, {"Authorization": given} if given else {})
        assert status == 401
        assert headers["WWW-Authenticate"] == "Bearer"
        assert b"classes" not in content
        assert TOKEN.encode() not in content
    assert ask(guarded, headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch, digits_model: str) -> None:
    import hmac
    import threading

    seen = []

    def compare(one: bytes, other: bytes) -> bool:
        seen.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    target = load_target(digits_model, data=load_data("digits/test[:5]"), device="cpu")
    with serving(target, token=TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert ask(_place(server.url))[0] == 401
        finally:
            server.shutdown()
            thread.join()
    assert seen == [(b"", f"Bearer {TOKEN}".encode())]


@pytest.mark.parametrize("token", ["a b", "a\r\nX-Evil: 1", "käse", "a\x00b"])
def test_a_token_is_one_word_of_a_header(digits_model: str, token: str) -> None:
    target = load_target(digits_model, data=load_data("digits/test[:5]"), device="cpu")
    with pytest.raises(UsageError, match="token"), serving(target, token=token):
        pass


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", b"413"),
        (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", b"413"),
        (HEAD + b"Content-Length: -1\r\n\r\n", b"411"),
        (HEAD + b"Content-Length: 0x10\r\n\r\n", b"411"),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", b"411"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nabcde", b"411"),
        (HEAD + b"Content-Length: 50\r\n\r\n{}", b"408"),
        (b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 200004\r\n\r\n" + b"[" * 200_004, b"400"),
        (HEAD + b'Content-Length: 300013\r\n\r\n{"inputs": [' + b"[]," * 100_000 + b"]", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"400"),
    ],
)
def test_requests_that_are_none_are_refused(address: tuple[str, int], content: bytes, status: bytes) -> None:
    told = raw(address, content)
    assert status in told.split(b"\r\n")[0], told[:200]
    assert b"Traceback" not in told
    assert ask(address)[0] == 200  # and it answers others as before


def test_names_of_this_machine_are_known_however_they_are_written(address: tuple[str, int]) -> None:
    for host in ("LOCALHOST", "localhost.", "127.0.0.1", "[::1]:80"):
        assert ask(address, "GET", {"Host": host})[0] == 200, host
    status, headers, content = ask(address, "HEAD")
    assert (status, content, int(headers["Content-Length"]) > 0) == (200, b"", True)


def test_requests_sent_ahead_are_answered_one_by_one(address: tuple[str, int]) -> None:
    one = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    assert raw(address, one * 5).count(b"HTTP/1.1 200") == 5
    for body in (f"Content-Length: {len(one)}", "Transfer-Encoding: chunked"):  # a GET has none; it is no next request
        told = raw(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + body.encode() + b"\r\n\r\n" + one)
        assert told.count(b"HTTP/1.1 ") == 1
        assert told.startswith(b"HTTP/1.1 400")
    # What follows a refused request is not read as another: it may have been the refused one's body.
    assert raw(address, HEAD + b"Content-Length: -1\r\n\r\n" + one).count(b"HTTP/1.1 200") == 0


@pytest.mark.slow
def test_connections_that_say_nothing_do_not_lock_others_out_for_ever(digits_model: str) -> None:
    """So many at a time and no more; a slow one is cut off, which frees its place."""
    import threading

    target = load_target(digits_model, data=load_data("digits/test[:5]"), device="cpu")
    with serving(target, seconds=1.0) as server, ExitStack() as stack:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        place = _place(server.url)
        slow = [stack.enter_context(socket.create_connection(place, 20)) for _ in range(CONNECTIONS)]
        for connection in slow:
            connection.sendall(b"POST / HT")
        for connection in slow:  # each is hung up on, whatever was or was not sent to it before
            while connection.recv(4096):
                pass
        assert ask(place)[0] == 200
