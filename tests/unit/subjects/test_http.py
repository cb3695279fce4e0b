"""Targets behind an address, against a small server that does as it is told."""

import base64
import http.server
import json
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.cases import Cases, InputSpec
from assay.core.errors import BudgetSpent, NoAnswer, UsageError
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.sources import http as source
from assay.subjects.sources import patience
from assay.subjects.sources.load import load_target

SPEC = InputSpec((1, 2, 2), (0.0, 1.0), ("cat", "dog", "owl"))
ABOUT = {
    "assay": 1,
    "shape": [1, 2, 2],
    "bounds": [0, 1],
    "classes": ["cat", "dog", "owl"],
    "gives": "probabilities",
    "batch": 4,
    "fingerprint": "f00",
    "encodings": ["list", "base64"],
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *told: object) -> None:
        """The test prints nothing."""

    def do_GET(self) -> None:
        self.server.gets += 1
        status, body, headers = self.server.about
        self._send(status, body, headers)

    def do_POST(self) -> None:
        raw = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((raw, dict(self.headers), self.client_address))
        x = decoded(raw["inputs"])
        self.server.received += len(x)
        status, body, headers = self.server.script.pop(0) if self.server.script else (200, None, {})
        if body is None:
            p = np.stack([x.mean((1, 2, 3)) / 2, x.max((1, 2, 3)) / 2], 1)
            body = {"probabilities": np.concatenate([p, 1 - p.sum(1, keepdims=True)], 1).tolist()}
        self._send(status, body(len(x)) if callable(body) else body, headers)

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        if body == "hang":
            time.sleep(0.6)
            self.close_connection = True
            return
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class Server(http.server.ThreadingHTTPServer):
    """What it answers comes from ``script``, then it answers well; ``received`` counts inputs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.about: tuple[int, Any, dict[str, str]] = (200, ABOUT, {})
        self.script: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[Any] = []
        self.received = self.gets = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/predict?v=1"


def decoded(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        assert inputs["dtype"] == "float32"
        return np.frombuffer(base64.b64decode(inputs["base64"]), "<f4").reshape(inputs["shape"])
    return np.array(inputs, np.float32)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST", 0.001)
    monkeypatch.delenv(source.TOKEN, raising=False)


@pytest.fixture
def data() -> Data:
    x = torch.rand(6, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return Data("made", Cases.of(x, torch.arange(6) % 3), SPEC)


def load(server: Server, data: Data | None = None, **more: Any) -> Asked:
    target = load_target(server.url, data=data, **more)
    assert isinstance(target, Asked)
    return target


def expected(x: torch.Tensor) -> torch.Tensor:
    first, second = x.mean((1, 2, 3)) / 2, x.amax((1, 2, 3)) / 2
    return torch.stack([first, second, 1 - first - second], 1)


def test_a_server_that_tells_of_itself_needs_no_data_and_no_question(server: Server, data: Data) -> None:
    target = load(server)
    assert target.spec == SPEC
    assert target.gives == {"label", "prob"}
    assert target.batch == 4
    assert server.received == target.queries.asked == 0
    x = data.cases.x
    assert torch.allclose(target(x).softmax(1), expected(x), atol=1e-6)
    assert server.received == target.queries.asked == 6
    assert all("base64" in raw["inputs"] for raw, _, _ in server.asked)
    assert np.array_equal(decoded(server.asked[0][0]["inputs"]), x[:4].numpy())
    assert len({client for _, _, client in server.asked}) == 1  # one connection, kept open


@pytest.mark.parametrize("about", [(404, {"error": "no"}, {}), (405, b"", {}), (501, b"", {}), (200, b"hello", {})])
def test_a_mute_server_is_seen_through_by_one_question(server: Server, data: Data, about: Any) -> None:
    server.about = about
    target = load(server, data)
    assert target.spec == SPEC
    assert server.received == target.queries.asked == 1
    x = data.cases.x
    assert torch.allclose(target(x).softmax(1), expected(x), atol=1e-6)
    assert server.received == target.queries.asked == 6
    sent = server.asked[0][0]["inputs"]
    assert sent == x[:1].double().tolist()  # lists, exact
    with pytest.raises(UsageError, match="does not say what inputs it takes"):
        load(server)


def test_labels_by_number_and_by_name(server: Server, data: Data) -> None:
    server.about = (200, {**ABOUT, "gives": "labels"}, {})
    server.script = [(200, lambda n: {"labels": [2] * n}, {}), (200, lambda n: {"labels": ["dog"] * n}, {})]
    target = load(server)
    assert target.gives == {"label"}
    assert target(data.cases.x).argmax(1).tolist() == [2, 2, 2, 2, 1, 1]


def test_trouble_is_tried_again_and_every_attempt_is_counted(server: Server, data: Data) -> None:
    troubles = [
        (500, {"error": "oops"}, {}),
        (200, b"{broken", {}),
        (200, {"probabilities": [[0.5, 0.5, 0.0]] * 3}, {}),
        (200, {"probabilities": [[0.5, 0.1]] * 4}, {}),
        (200, b'{"probabilities": [[NaN, 0, 1]]}', {}),
        (503, b"", {"Retry-After": "0"}),
        (429, b"", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        (200, {"labels": [0, 1, 2, 0]}, {}),
        (200, b"abc", {"Content-Length": "9000", "Connection": "close"}),
    ]
    server.script = list(troubles)
    target = load(server, ask="retries=9")
    x = data.cases.x
    assert torch.allclose(target(x).softmax(1), expected(x), atol=1e-6)
    assert server.received == target.queries.asked == 6 + 4 * len(troubles)
    assert target.queries.retries == 4 * len(troubles)


def test_a_server_that_hangs_is_left_after_the_timeout(server: Server, data: Data) -> None:
    server.script = [(200, "hang", {})]
    target = load(server, ask="timeout=0.2, retries=2")
    assert torch.allclose(target(data.cases.x[:2]).softmax(1), expected(data.cases.x[:2]), atol=1e-6)
    assert server.received == target.queries.asked == 4
    server.script = [(200, "hang", {})] * 2
    with pytest.raises(NoAnswer, match=r"did not answer within 0.2 s \(2 attempts\)"):
        load(server, ask="timeout=0.2, retries=1")(data.cases.x[:2])


def test_retries_stop_at_the_budget(server: Server, data: Data) -> None:
    server.script = [(500, {"error": "oops"}, {})] * 10
    target = load(server, queries=9)
    with pytest.raises(BudgetSpent):
        target(data.cases.x)
    assert server.received == target.queries.asked == 8


def test_what_is_wrong_for_good_is_not_tried_again(server: Server, data: Data) -> None:
    for status, headers, message in (
        (400, {}, r"answered 400: <b>no \[31m such</b>"),
        (401, {}, "answered 401: .*; set ASSAY_TOKEN"),
        (413, {}, 'answered 413: .*--ask "batch=16"'),
        (302, {"Location": "http://elsewhere.invalid/"}, "sends us on to http://elsewhere.invalid/, which we do not"),
    ):
        server.script = [(status, {"error": "<b>no\x1b[31m such</b>" + "x" * 900}, headers)]
        target = load(server)
        before = server.received
        with pytest.raises(UsageError, match=message) as caught:
            target(data.cases.x[:1])
        assert server.received == before + 1
        assert len(str(caught.value)) < 400
        assert target.queries.asked == 1


def test_a_server_that_is_not_there(data: Data) -> None:
    with Server() as gone:
        url = gone.url
    with pytest.raises(NoAnswer, match=r"cannot be reached: .*\(2 attempts\)"):
        load_target(url, data=data, ask="retries=1")


def test_an_answer_without_end_is_cut_off(server: Server, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_MOST", 1000)
    server.script = [(200, b"x" * 5000, {})]
    with pytest.raises(NoAnswer, match="an answer of more than"):
        load(server, ask="retries=0")(data.cases.x[:1])


def test_the_token_is_sent_and_not_told(
    server: Server, data: Data, monkeypatch: pytest.MonkeyPatch, notices: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(source.TOKEN, "s3cret")
    server.script = [(500, b"", {})]
    target = load(server)
    target(data.cases.x[:1])
    assert server.asked[0][1]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in notices.text + repr(target.fingerprint())


def test_a_server_is_known_by_its_own_fingerprint(server: Server) -> None:
    first = load(server).fingerprint()
    with Server() as other:
        threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02}).start()
        assert load(other).fingerprint() == first  # the same model at another address
        other.about = (200, {**ABOUT, "gives": "labels"}, {})
        assert load(other).fingerprint() != first
        other.about = (200, {**ABOUT, "fingerprint": "other"}, {})
        assert load(other).fingerprint() != first
        other.shutdown()


def test_the_smaller_batch_counts(server: Server, data: Data) -> None:
    assert load(server, ask="batch=2").batch == 2
    assert load(server, ask="batch=50").batch == 4
    server.about = (404, b"", {})
    assert load(server, data, ask="batch=50").batch == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": "big"}, "cannot be read"),
        ({"bounds": [0]}, "cannot be read"),
        ({"shape": [0, 2]}, "what cannot be"),
        ({"bounds": [1, 0]}, "what cannot be"),
        ({"classes": ["one"]}, "what cannot be"),
        ({"classes": ["one", "two", "one"]}, "3 classes, 2 different"),
        ({"classes": "abc"}, "cannot be read"),
        ({"classes": [["a"], ["b"]]}, "cannot be read"),
        ({"classes": ["a", "\ud800"]}, "cannot be read"),
        ({"shape": [1.5, 2]}, "cannot be read"),
        ({"shape": [True, 2]}, "cannot be read"),
        ({"shape": [1 << 20, 1 << 20]}, "what cannot be"),
        ({"bounds": [False, True]}, "cannot be read"),
        ({"bounds": ["0", "1"]}, "cannot be read"),
        ({"bounds": [0, 10**400]}, "cannot be read"),
    ],
)
def test_a_server_that_tells_nonsense_of_itself(server: Server, change: dict[str, Any], message: str) -> None:
    server.about = (200, {**ABOUT, **change}, {})
    with pytest.raises(UsageError, match=message):
        load(server)


@pytest.mark.parametrize(
    ("name", "told", "message"),
    [
        ("shape", "[1e999, 8, 8]", "cannot be read"),
        ("bounds", "[0, 1e999]", "what cannot be"),
        ("bounds", "[-1e999, 1]", "what cannot be"),
    ],
)
def test_a_server_whose_numbers_have_no_end(server: Server, name: str, told: str, message: str) -> None:
    about = json.dumps({**ABOUT, name: "HERE"}).replace('"HERE"', told)
    server.about = (200, about.encode(), {})
    with pytest.raises(UsageError, match=message):
        load(server)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://", "is no address"),
        ("http://host:port/", "is no address"),
        ("http://a b/", "is no address"),
        ("http://a..b/", "is no address"),
        (f"http://{'a' * 70}.org/", "is no address"),
        ("http://127.0.0.1/é", "has letters that no address has"),
        ("http://é.org/", "has letters that no address has"),
        ("http://me:pw@host/", "a password in it would be written down; set ASSAY_TOKEN instead"),
        ("http://pw@host/", "a password in it would be written down; set ASSAY_TOKEN instead"),
    ],
)
def test_texts_that_are_no_address(url: str, message: str, data: Data) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_target(url, data=data)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("token", ["s3cret\nvalue", "s3cret value", "s3crét", "s3cret\x7f"])
def test_a_token_that_cannot_be_sent_is_refused_unquoted(
    server: Server, monkeypatch: pytest.MonkeyPatch, notices: pytest.LogCaptureFixture, token: str
) -> None:
    monkeypatch.setenv(source.TOKEN, token)
    with pytest.raises(UsageError, match="ASSAY_TOKEN must be plain ASCII text without blanks") as caught:
        load(server)
    assert "s3cr" not in "".join(traceback.format_exception_only(caught.value)) + notices.text
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert server.gets == 0


def test_a_token_from_a_file_with_a_last_newline(server: Server, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(source.TOKEN, " s3cret\r\n")
    load(server)(data.cases.x[:1])
    assert server.asked[0][1]["Authorization"] == "Bearer s3cret"


@contextmanager
def dripping(start: bytes, drop: bytes) -> Iterator[str]:
    """A server that never falls silent and never ends its answer."""
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        while not over.is_set():
            try:
                made, _ = listening.accept()
            except OSError:
                return
            with made, suppress(OSError):
                made.recv(1 << 16)
                made.sendall(start)
                while not over.wait(0.03):
                    made.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n0\r\n"),
    ],
    ids=["status", "header", "continue", "body", "open body", "chunks"],
)
def test_the_timeout_is_of_the_whole_exchange(start: bytes, drop: bytes) -> None:
    with dripping(start, drop) as url:
        client, began = source.Client(url, 0.3), time.monotonic()
        for ask in (client.about, lambda: client(np.zeros((1, 1, 2, 2), np.float32))):
            with pytest.raises(patience.TryAgain, match=r"did not answer within 0\.3 s"):
                ask()
        assert 0.5 < time.monotonic() - began < 3


def test_no_deadline_outlives_its_question(server: Server, data: Data) -> None:
    before = threading.active_count()
    target = load(server, ask="timeout=0.3, batch=1")
    for row in data.cases.x:
        target(row[None])
        time.sleep(0.1)
    assert server.received == target.queries.asked == 6  # none was cut off by the end of an earlier one
    assert threading.active_count() <= before + 1  # the server's own, of the one connection


@pytest.mark.parametrize("status", [201, 202, 299])
def test_any_status_of_success_is_one(server: Server, data: Data, status: int) -> None:
    server.about = (status, ABOUT, {})
    server.script = [(status, None, {})]
    target = load(server)
    assert target.spec == SPEC
    assert torch.allclose(target(data.cases.x[:2]).softmax(1), expected(data.cases.x[:2]), atol=1e-6)
    assert target.queries.asked == 2


@pytest.mark.parametrize("encodings", [None, 5, "base64", {"base64": 1}, []])
def test_encodings_that_are_no_list_mean_lists(server: Server, data: Data, encodings: Any) -> None:
    server.about = (200, {**ABOUT, "encodings": encodings, "batch": True}, {})
    target = load(server)
    target(data.cases.x[:1])
    assert isinstance(server.asked[0][0]["inputs"], list)
    assert target.batch == 64


@pytest.mark.parametrize(
    "table",
    [
        [["0.2", "0.3", "0.5"]],
        [[True, False, False]],
        [[1.0, False, 0.0]],
        [[None, 0.5, 0.5]],
        [[0.5, [0.5], 0.0]],
        [0.2, 0.3, 0.5],
        "0.5",
        {"a": 1},
        [[10**400, 0, 0]],
    ],
)
def test_probabilities_are_numbers_in_a_table(server: Server, data: Data, table: Any) -> None:
    server.script = [(200, {"probabilities": table}, {})]
    with pytest.raises(UsageError, match="no table of numbers"):
        load(server, ask="retries=0")(data.cases.x[:1])


def test_what_is_called_probabilities_and_sums_to_less_was_cut(
    server: Server, data: Data, notices: pytest.LogCaptureFixture
) -> None:
    server.script = [(200, {"probabilities": [[0.2, 0.05, 0.0], [0.3, 0.3, 0.4]]}, {})]
    out = load(server, ask="retries=0")(data.cases.x[:2]).softmax(1)
    assert torch.allclose(out, torch.tensor([[0.8, 0.2, 0.0], [0.3, 0.3, 0.4]]), atol=1e-6)
    assert "sum to no more than 0.25, as if cut or rounded" in notices.text
    server.script = [(200, {"probabilities": [[0.0, 0.0, 0.0]]}, {}), (200, {"probabilities": [[0.9, 0.9, 0.0]]}, {})]
    for _ in range(2):
        with pytest.raises(UsageError, match="answered with scores"):
            load(server, ask="retries=0")(data.cases.x[:1])


def test_the_timeout_holds_after_an_answer_that_was_the_last_of_its_connection(server: Server, data: Data) -> None:
    server.script = [(200, None, {"Connection": "close"})]
    client = source.Client(server.url, 0.3)
    client(data.cases.x[:1].numpy())
    client(data.cases.x[:1].numpy())
    assert client._open is not None
    assert client._sock is client._open.sock
