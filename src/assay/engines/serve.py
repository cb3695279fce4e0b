"""A model behind HTTP: the reference server of the contract that ``http://`` targets speak."""

import contextlib
import hashlib
import hmac
import io
import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.engines.contract import Refused, answer_of, description, inputs_of
from assay.subjects.sources.module import looks_like_probabilities
from assay.subjects.target import Target

log = logging.getLogger("assay")

BATCH = 256  # inputs one request may bring
SECONDS = 30.0  # from the first byte of a request to its last
SILENCE = 600.0  # between two requests of a connection: whoever asks may have work of its own in between
CONNECTIONS = 64  # at a time; each has a thread
MOST = 64 << 20  # bytes of a body, whatever the inputs: parsed, it takes some twenty times as much
_CHUNKED = "Transfer-Encoding"
BYTES_A_NUMBER = 32  # of a body: more than any float32 takes as decimal text with its comma and brackets


@contextlib.contextmanager
def serving(
    target: Target,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    labels: bool = False,
    batch: int = BATCH,
    seconds: float = SECONDS,
) -> Iterator["Server"]:
    """A server that is bound and answers once its ``serve_forever`` runs; without a token on loopback only."""
    if batch < 1 or not 0 <= port < 1 << 16 or seconds <= 0:
        raise UsageError(
            f"a server needs batch from 1, port 0 to 65535, seconds above 0; got {batch}, {port}, {seconds:g}"
        )
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise UsageError("a token is plain text without blanks: it travels in a header")
    if not token and not _is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines: give a token (--token, or ASSAY_TOKEN in the environment), "
            "or serve on 127.0.0.1"
        )
    asked = Questions(target, labels=labels or "prob" not in target.gives, batch=batch)
    kind = type("_Server", (Server,), {"address_family": socket.AF_INET6}) if ":" in host else Server
    try:
        server = kind((host, port), asked, token, seconds)
    except OSError as error:
        raise UsageError(
            f"cannot serve on {host} port {port}: {error.strerror or error}; choose another --port"
        ) from error
    with server, target.ready():
        yield server


class Questions:
    """A target with the shape of its answers; asked one batch at a time, whoever asks."""

    def __init__(self, target: Target, *, labels: bool, batch: int) -> None:
        self.target, self.labels, self.batch = target, labels, max(1, min(batch, MOST // _bytes_of(target)))
        self.answered = 0
        self.parsing = threading.Lock()  # one body at a time, for it takes many times its size
        self._lock = threading.Lock()
        self._shares = self._gives_shares()

    def body(self, x: Tensor) -> bytes:
        """The answer to inputs (n, *shape) as it is sent."""
        with self._lock, torch.no_grad():
            scores = self.target(x.to(self.target.device)).float().cpu() if len(x) else torch.zeros(0, 1)
            self.answered += len(x)
        if not bool(scores.isfinite().all()):
            raise Refused(500, "the model's answer to some of these inputs is no number")
        return answer_of(scores if self._shares else scores.softmax(1), labels=self.labels)

    def describe(self) -> bytes:
        spec = self.target.spec
        # The same model with fewer words is another black box.
        own = f"{self.target.fingerprint()} {'labels' if self.labels else 'probabilities'}"
        mark = hashlib.sha256(own.encode()).hexdigest()[:16]
        return json.dumps(description(spec, labels=self.labels, batch=self.batch, fingerprint=mark)).encode()

    @property
    def bytes_at_most(self) -> int:
        return 65_536 + self.batch * _bytes_of(self.target)

    def _gives_shares(self) -> bool:
        """Whether the model ends in a softmax of its own; another one would flatten what it says."""
        low, high = self.target.spec.bounds
        some = low + (high - low) * torch.rand(8, *self.target.spec.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            return looks_like_probabilities(self.target(some.to(self.target.device)).float().cpu())


class Server(ThreadingHTTPServer):
    """Threads that read questions; so many connections at a time and no more."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], questions: Questions, token: str, seconds: float) -> None:
        self.questions, self.token, self.seconds = questions, token, seconds
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self.arriving: dict[socket.socket, float] = {}  # requests of which not all is there, and when it must be
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, (bytes, bytearray)) else host
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.sendall(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def service_actions(self) -> None:
        """Called every so often: a request that takes too long to arrive is cut off, however steadily it trickles."""
        now = time.monotonic()
        for request, end in list(self.arriving.items()):
            if now > end:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection ended early", exc_info=True)  # clients go away as they like


class _Handler(BaseHTTPRequestHandler):
    """One connection; every way out is a small JSON object."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "assay", ""
    known = False  # whether a request of this connection was admitted: until then it may not be silent for long
    disable_nagle_algorithm = True  # head and body are two writes, and the second would wait 40 ms for the client

    def handle_one_request(self) -> None:
        arriving = self._server.arriving
        self.connection.settimeout(SILENCE if self.known else self._server.seconds)
        try:
            if not cast(io.BufferedReader, self.rfile).peek(1):
                self.close_connection = True
                return
            self.connection.settimeout(self._server.seconds)
            arriving[self.connection] = time.monotonic() + self._server.seconds
            super().handle_one_request()
        except OSError:
            self.close_connection = True
        finally:
            arriving.pop(self.connection, None)

    def do_GET(self) -> None:
        self._reply(self._server.questions.describe)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._reply(self._answered)

    def _reply(self, work: Callable[[], bytes]) -> None:
        try:
            self._admit()
            self.known = True
            status, body = 200, work()
        except Refused as refused:
            self.close_connection = True
            self._send(refused.status, _told(refused.reason))
            self._drain()
            return
        except OSError:  # of the connection; nobody is there to be told
            raise
        except Exception:
            log.exception("the model failed")  # for whoever serves; a client learns no more than that
            status, body = 500, _told("the model failed on these inputs")
        self._send(status, body)

    def _drain(self) -> None:
        """Read on for a moment: a connection closed with bytes unread may be reset before its client reads why."""
        self.connection.shutdown(socket.SHUT_WR)
        self._server.arriving[self.connection] = time.monotonic() + 2.0
        while self.rfile.read1(1 << 20):
            pass

    def _admit(self) -> None:
        if self.path.partition("?")[0] != "/":
            raise Refused(404, "there is nothing here; ask /")
        if self.command != "POST" and (self.headers.get("Content-Length", "0") != "0" or _CHUNKED in self.headers):
            raise Refused(400, "only a POST has a body")  # what is left unread would pass for the next request
        if len(self.headers.get_all("Host", [])) > 1:
            raise Refused(400, "two hosts")
        if "Origin" in self.headers:  # browsers send it for the pages they show; no page has business here
            raise Refused(403, "pages of a browser get no answers")
        if not self._server.token:
            # A page in the user's browser may reach loopback under a name of its own; it gets nothing.
            if not _is_loopback(_name_of(self.headers.get("Host", ""))):
                raise Refused(403, "this server answers to loopback names only")
            return
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._server.token}".encode()):
            raise Refused(401, "a token is needed: Authorization: Bearer …")

    def _answered(self) -> bytes:
        questions = self._server.questions
        if self.headers.get_content_type() != "application/json":  # what forms of any page may send is something else
            raise Refused(415, "the body must be JSON: Content-Type: application/json (curl: -H)")
        body = self._body(questions.bytes_at_most)
        with questions.parsing:
            inputs = inputs_of(body, questions.target.spec.shape, questions.batch)
        return questions.body(inputs)

    def _body(self, most: int) -> bytes:
        """What was sent, if it says how much it is, is not too much, and arrives in time."""
        length = self.headers.get("Content-Length", "")
        if len(self.headers.get_all("Content-Length", [])) > 1:
            raise Refused(400, "two lengths of one body")
        if not (length.isascii() and length.isdigit()) or _CHUNKED in self.headers:
            raise Refused(411, "say the length of the body: Content-Length")
        if len(length) > 12 or int(length) > most:
            raise Refused(413, f"the body is larger than {most} bytes, what {self._server.questions.batch} inputs take")
        left, parts = int(length), list[bytes]()
        while left:
            part = self.rfile.read1(min(left, 1 << 20))
            if not part:
                raise Refused(408, "the body did not arrive as a whole and in time")
            parts.append(part)
            left -= len(part)
        self._server.arriving.pop(self.connection, None)
        return b"".join(parts)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Requests that the library itself refuses; its page would be HTML."""
        self.close_connection = True
        self.command, self.request_version = self.command or "", self.protocol_version  # the line may have been none
        self._send(code, _told(message or self.responses.get(code, ("refused",))[0]))
        self._drain()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.address_string(), format % args)

    @property
    def _server(self) -> Server:
        return cast(Server, self.server)


def _bytes_of(target: Target) -> int:
    """The most that one input takes as text."""
    return BYTES_A_NUMBER * int(torch.Size(target.spec.shape).numel())


def _told(reason: str) -> bytes:
    return json.dumps({"error": reason}).encode()


def _name_of(host: str) -> str:
    """The name in a ``Host`` header without its port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
