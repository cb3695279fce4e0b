"""The reference server: what it answers, what it refuses, and that nothing of it reaches a client but that."""

import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.engines.serve import Server, serving
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

Make = Callable[..., ModuleTarget]


JSON = {"Content-Type": "application/json"}


@contextmanager
def running(target: Target, **how: Any) -> Iterator[Server]:
    with serving(target, **how) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def sent(
    server: Server, method: str = "GET", body: Any = None, path: str = "/", **headers: str
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, raw, JSON | headers)
    reply = connection.getresponse()
    told = reply.read()
    connection.close()
    return reply.status, json.loads(told) if told else {}


def address(server: Server) -> tuple[str, int]:
    return "127.0.0.1", server.server_address[1]


def inputs(n: int = 5) -> Tensor:
    return torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(n))


def encoded(x: Tensor) -> dict[str, Any]:
    raw = base64.b64encode(x.numpy().astype("<f4").tobytes()).decode()
    return {"dtype": "float32", "shape": list(x.shape), "base64": raw}


def test_it_says_what_it_takes_and_gives(linear_target: Make) -> None:
    target = linear_target()
    with running(target, batch=7) as server, running(target, labels=True) as other:
        status, told = sent(server)
        assert status == 200
        mark = told.pop("fingerprint")
        assert told == {
            "assay": 1,
            "shape": [1, 4, 4],
            "bounds": [0.0, 1.0],
            "classes": ["0", "1", "2"],
            "gives": "probabilities",
            "batch": 7,
            "encodings": ["list", "base64"],
        }
        fewer = sent(other)[1]
        assert fewer["gives"] == "labels"
        assert fewer["fingerprint"] != mark, "the same net with fewer words is another black box"


@pytest.mark.parametrize("encode", [Tensor.tolist, encoded], ids=["lists", "base64"])
def test_answers_are_exactly_the_nets_own(encode: Callable[[Tensor], Any], linear_target: Make) -> None:
    target, x = linear_target(), inputs()
    with torch.no_grad():
        expected = target(x).softmax(1)
    with running(target) as server, running(target, labels=True) as other:
        status, told = sent(server, "POST", {"inputs": encode(x)})
        assert status == 200
        assert torch.equal(torch.tensor(told["probabilities"]), expected)
        assert sent(other, "POST", {"inputs": encode(x)})[1] == {"labels": expected.argmax(1).tolist()}
        assert sent(server, "POST", {"inputs": []}) == (200, {"probabilities": []})
        assert server.questions.answered == 5


def test_a_net_that_ends_in_a_softmax_gets_no_second_one(linear_target: Make) -> None:
    plain, x = linear_target(), inputs()
    ended = ModuleTarget(nn.Sequential(plain.module, nn.Softmax(1)), plain.spec)
    with torch.no_grad():
        expected = plain(x).softmax(1)
    with running(ended) as server:
        told = sent(server, "POST", {"inputs": x.tolist()})[1]
    assert torch.allclose(torch.tensor(told["probabilities"]), expected, atol=1e-7)


def test_several_questions_go_over_one_connection(linear_target: Make) -> None:
    with running(linear_target()) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
        sockets = set()
        for n in (1, 2, 3):
            connection.request("POST", "/", json.dumps({"inputs": inputs(n).tolist()}), JSON)
            assert len(json.loads(connection.getresponse().read())["probabilities"]) == n
            sockets.add(connection.sock)
        connection.close()
    assert len(sockets) == 1
    assert None not in sockets


GOOD = encoded(torch.zeros(1, 1, 4, 4))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "no JSON"),
        (b"{", 400, "no JSON"),
        (b"[" * 50_000, 400, "more lists"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[]", 400, '"inputs"'),
        ({"input": []}, 400, '"inputs"'),
        ({"inputs": 3}, 400, "shape"),
        ({"inputs": None}, 400, "numbers"),
        ({"inputs": [[1, 2], [3]]}, 400, "one shape"),
        ({"inputs": [[[["a"]]]]}, 400, "numbers"),
        ({"inputs": torch.zeros(2, 4, 4).tolist()}, 400, "(n, 1, 4, 4)"),
        ({"inputs": torch.full((1, 1, 4, 4), torch.nan).tolist()}, 400, "finite"),
        ({"inputs": [[[[1e300] * 4] * 4]]}, 400, "finite"),
        ({"inputs": torch.zeros(9, 1, 4, 4).tolist()}, 413, "at most 8"),
        ({"inputs": {**GOOD, "dtype": "float64"}}, 400, "float32"),
        ({"inputs": {**GOOD, "shape": [1, 1, 4, 5]}}, 400, "80 bytes"),
        ({"inputs": {**GOOD, "shape": [-1, 1, 4, 4]}}, 400, "shape"),
        ({"inputs": {**GOOD, "shape": "4"}}, 400, "shape"),
        ({"inputs": {**GOOD, "base64": "!"}}, 400, "base64"),
        (b" " * 200_000, 413, "larger than"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(body: Any, status: int, words: str, linear_target: Make) -> None:
    with running(linear_target(), batch=8) as server:
        got, told = sent(server, "POST", body)
        assert (got, list(told)) == (status, ["error"])
        assert words in told["error"]
        assert sent(server, "POST", {"inputs": inputs().tolist()})[0] == 200, "it goes on answering"
        assert server.questions.answered == 5


def test_other_methods_and_places_are_refused_as_json(linear_target: Make) -> None:
    with running(linear_target()) as server:
        assert sent(server, "PUT")[0] == 501
        assert sent(server, path="/else")[0] == 404
        assert sent(server, path="/?x=1")[0] == 200
        assert sent(server, Host="evil.example")[0] == 403
        assert sent(server, Host="localhost:1")[0] == 200
        chunked = sent(server, "POST", b"0\r\n\r\n", **{"Transfer-Encoding": "chunked"})
        assert chunked[0] == 411
        with socket.create_connection(address(server), timeout=5) as raw:
            raw.sendall(b"nonsense\r\n\r\n")
            told = raw.makefile("rb").read()
        assert told.startswith(b"HTTP/1.1 400 ")
        assert b'{"error": ' in told


class Broken(nn.Module):
    """Fails on inputs above a half, and answers NaN to those below a quarter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        level = x.flatten(1).amax(1)
        if bool((level > 0.5).any()) and len(x) == 1:
            raise RuntimeError("secret /home/someone")
        scores = torch.stack([level, -level], 1)
        return torch.where((level < 0.25)[:, None], torch.nan, scores) if len(x) == 1 else scores


def test_a_client_learns_nothing_of_a_models_failure() -> None:
    target = ModuleTarget(Broken(), InputSpec((2,), (0.0, 1.0), ("a", "b")))
    with running(target) as server:
        assert sent(server, "POST", {"inputs": [[0.9, 0.9]]}) == (500, {"error": "the model failed on these inputs"})
        status, told = sent(server, "POST", {"inputs": [[0.1, 0.1]]})
        assert status == 500
        assert "no number" in told["error"]
        assert sent(server, "POST", {"inputs": [[0.4, 0.1]]})[0] == 200


def test_a_token_is_asked_of_everyone(linear_target: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(linear_target(), token="s3cret") as server:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"}):
            assert sent(server, "POST", {"inputs": inputs().tolist()}, **headers)[0] == 401
        right = {"Authorization": "Bearer s3cret", "Host": "somewhere.example"}
        assert sent(server, "POST", {"inputs": inputs().tolist()}, **right)[0] == 200
        assert server.questions.answered == 5


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_machines_need_a_token(host: str, linear_target: Make) -> None:
    with pytest.raises(UsageError, match="token"), serving(linear_target(), host=host):
        pass


def test_what_cannot_be_served_is_said_at_once(linear_target: Make) -> None:
    target = linear_target()
    with serving(target) as server:
        taken = server.server_address[1]
        with pytest.raises(UsageError, match="another --port"), serving(target, port=taken):
            pass
    for wrong in ({"batch": 0}, {"port": 70_000}, {"seconds": 0.0}, {"token": "two words"}):
        with pytest.raises(UsageError), serving(target, **wrong):
            pass


def test_a_request_that_trickles_is_cut_off(linear_target: Make) -> None:
    with running(linear_target(), seconds=0.3) as server:
        with socket.create_connection(address(server), timeout=5) as raw:
            head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            raw.sendall(head + b"Content-Length: 1000\r\n\r\n")
            started = time.monotonic()
            heard = b""
            while time.monotonic() - started < 3 and not heard:
                raw.sendall(b" ")  # never silent for long
                raw.settimeout(0.05)
                try:
                    heard = raw.recv(4096)
                except TimeoutError:
                    continue
            assert b" 408 " in heard
            assert 0.2 < time.monotonic() - started < 2
        assert sent(server)[0] == 200
        end = time.monotonic() + 5
        while server.arriving and time.monotonic() < end:  # its threads may still be clearing up
            time.sleep(0.01)
        assert server.arriving == {}


def test_more_connections_than_it_has_room_for_are_told_so(
    linear_target: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.engines.serve.CONNECTIONS", 2)
    with running(linear_target()) as server:
        with socket.create_connection(address(server)), socket.create_connection(address(server)):
            time.sleep(0.1)
            with socket.create_connection(address(server), timeout=5) as third:
                assert third.recv(100).startswith(b"HTTP/1.1 503")
        time.sleep(0.1)
        assert sent(server)[0] == 200


def test_many_ask_at_once_and_each_gets_its_own(linear_target: Make) -> None:
    target = linear_target()
    results: dict[int, bool] = {}
    with running(target) as server:

        def ask(seed: int) -> None:
            x = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
            told = sent(server, "POST", {"inputs": x.tolist()})[1]
            with torch.no_grad():
                results[seed] = np.allclose(told["probabilities"], target(x).softmax(1).numpy(), atol=1e-7)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.questions.answered == 36
    assert results == dict.fromkeys(range(12), True)


def test_who_was_not_admitted_may_not_be_silent_for_long(linear_target: Make) -> None:
    with running(linear_target(), seconds=0.3, token="s3cret") as server:
        started = time.monotonic()
        with socket.create_connection(address(server), timeout=5) as raw:
            assert raw.recv(100) == b""
        assert 0.2 < time.monotonic() - started < 3
        connection = http.client.HTTPConnection(*address(server), timeout=5)
        used = []
        for _ in range(2):
            connection.request("GET", "/", headers={"Authorization": "Bearer s3cret"})
            assert len(connection.getresponse().read()) > 50
            used.append(connection.sock)
            time.sleep(0.8)  # work of its own
        assert used[0] is used[1]
        connection.close()


def test_a_body_in_two_ways_at_once_is_refused(linear_target: Make) -> None:
    body = json.dumps({"inputs": inputs(1).tolist()}).encode()
    with running(linear_target()) as server:
        told = sent(server, "POST", body, **{"Transfer-Encoding": "chunked", "Content-Length": str(len(body))})
        assert told == (411, {"error": "say the length of the body: Content-Length"})
        assert server.questions.answered == 0
