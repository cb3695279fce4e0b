"""A server that speaks the contract of http:// targets, badly on purpose, and writes down all that it receives."""

import base64
import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

Answer = Callable[[NDArray[np.float32]], NDArray[np.float32]]

FINE = "fine"
FAULTS = ("error", "busy", "late", "broken", "short", "cut")


@dataclass(frozen=True, slots=True)
class Received:
    """One question: the inputs in it by their content, and what came of it."""

    inputs: tuple[bytes, ...]
    outcome: str


@dataclass(slots=True)
class FaultyServer:
    """``faults`` are shares of questions: ``error`` 500, ``busy`` 429, ``late`` answered after ``delay`` seconds,
    ``broken`` JSON, ``short`` one answer too few, ``cut`` connections. ``flaky`` is the share of answers to single
    inputs that are wrong, drawn anew each time.
    """

    answer: Answer
    about: Mapping[str, Any] | None
    faults: Mapping[str, float] = field(default_factory=dict)
    flaky: float = 0.0
    delay: float = 3.0
    url: str = ""
    log: list[Received] = field(default_factory=list)
    pause: float = 0.0  # seconds each question takes, for those who want to strike in the middle
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def inputs(self) -> int:
        """How many inputs came, each as often as it came."""
        return sum(len(one.inputs) for one in self.log)

    def answered(self) -> Counter[bytes]:
        """How often each input got a whole answer in time."""
        return Counter(key for one in self.log if one.outcome == FINE for key in one.inputs)

    def count(self, outcome: str) -> int:
        return sum(one.outcome == outcome for one in self.log)

    def drawn(self) -> str:
        lot = self.dice.random()
        for fault, share in self.faults.items():
            lot -= share
            if lot < 0:
                return fault
        return FINE

    def shares(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The answer, some of it wrong."""
        told = np.array(self.answer(x))
        for row in range(len(told)):
            if self.dice.random() < self.flaky:
                wrong = (int(told[row].argmax()) + self.dice.randrange(1, told.shape[1])) % told.shape[1]
                told[row] = np.eye(told.shape[1], dtype=np.float32)[wrong]
        return told


@contextlib.contextmanager
def faulty(answer: Answer, about: Mapping[str, Any] | None, **how: Any) -> Iterator[FaultyServer]:
    """The server, at work on a free port of loopback."""
    faults = FaultyServer(answer, about, **how)
    assert set(faults.faults) <= set(FAULTS)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"faults": faults}))
    server.daemon_threads = True
    faults.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    faults: FaultyServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.faults.about is None:
            self._send(404, b"{}")
        else:
            self._send(200, json.dumps({"assay": 1, **self.faults.about}).encode())

    def do_POST(self) -> None:
        with contextlib.suppress(OSError):  # a client that was killed does not wait for its answer
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"])

    def _serve(self, given: Any) -> None:
        faults, x = self.faults, _decoded(given)
        keys = tuple(row.tobytes() for row in x)
        with faults.lock:
            outcome = faults.drawn()
            faults.log.append(Received(keys, outcome))
            body = json.dumps({"probabilities": faults.shares(x).tolist()}).encode()
        time.sleep(faults.pause)
        if outcome == "cut":
            self.close_connection = True
            return
        if outcome == "late":
            time.sleep(faults.delay)
        status = {"error": 500, "busy": 429}.get(outcome, 200)
        if outcome == "broken":
            body = body[: len(body) // 2]
        if outcome == "short":
            told = json.loads(body)["probabilities"]
            body = json.dumps({"probabilities": told[:-1]}).encode()
        self._send(status, b'{"error": "on purpose"}' if status != 200 else body)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests look at ``log``."""


def _decoded(given: Any) -> NDArray[np.float32]:
    if isinstance(given, dict):
        return np.frombuffer(base64.b64decode(given["base64"]), "<f4").reshape(given["shape"])
    return np.array(given, np.float32)
