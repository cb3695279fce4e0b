"""Targets behind an address: a small JSON contract over HTTP (docs/black-box.md), with the standard library."""

import base64
import email.utils
import http.client
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import numpy as np

from assay.core import trust
from assay.core.errors import UsageError
from assay.core.files import canonical_json
from assay.subjects.bench import Data
from assay.subjects.sources.answering import Answering, Inputs, Kind
from assay.subjects.sources.asking import Asking
from assay.subjects.sources.description import spec_told
from assay.subjects.sources.patience import BadAnswer, TryAgain, printable

log = logging.getLogger("assay")

TOKEN = "ASSAY_TOKEN"  # the environment variable; its value is sent, never written
_MOST = 64 << 20  # bytes of one answer
_LISTS = 1 << 17  # in one answer: a row of numbers for each of far fewer inputs
_TIMEOUT, _RETRIES, _BATCH = 30.0, 5, 64
_IDLE = 4.0  # seconds after which a server may have hung up on us
_TOLD = (401, 403, 408, 429)  # what a GET may bring besides a description, silence and trouble
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Client:
    """A connection that is kept open, one attempt at a time; whoever calls decides whether to try again."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url, self.timeout = _parsed(url), timeout
        self.encoding = "list"
        self._open: http.client.HTTPConnection | None = None
        self._sock: socket.socket | None = None
        self._used = 0.0
        self._token = _token()
        if self._token and self.url.scheme == "http" and self.url.hostname not in _LOOPBACK:
            log.warning("%s is sent to %s unencrypted; use https", TOKEN, self.url.hostname)

    def about(self) -> Mapping[str, Any]:
        """What the server says of itself; nothing where it says nothing."""
        status, body, _ = self._request("GET", None)
        if status == 501 or (status < 500 and not _fine(status) and status not in _TOLD):
            return {}  # it does not know such a question
        self._check(status, body, {})
        try:
            told = _json(body)
        except BadAnswer:
            return {}
        return told if isinstance(told, dict) and told.get("assay") == 1 else {}

    def __call__(self, rows: Inputs) -> Any:
        """One attempt at a question: probabilities or labels."""
        status, body, headers = self._request("POST", json.dumps({"inputs": self._encoded(rows)}).encode())
        self._check(status, body, headers)
        told = _json(body)
        if not isinstance(told, dict) or ("probabilities" in told) == ("labels" in told):
            raise BadAnswer("sent JSON with neither probabilities nor labels, or with both")
        if "labels" in told:
            return _listed(told["labels"])
        return _rows(told["probabilities"])

    def _encoded(self, rows: Inputs) -> Any:
        if self.encoding == "list":
            return rows.tolist()
        content = base64.b64encode(rows.astype("<f4").tobytes()).decode()
        return {"dtype": "float32", "shape": list(rows.shape), "base64": content}

    def _request(self, method: str, body: bytes | None) -> tuple[int, bytes, Mapping[str, str]]:
        try:
            with self._deadline() as late:
                connection = self._connection()
                if late.is_set():  # there was nothing to cut yet
                    raise TimeoutError
                connection.request(method, self._path(), body, self._headers(body))
                response = connection.getresponse()
                content = _content(response)
        except BaseException as error:
            self._close()
            if isinstance(error, (TimeoutError, socket.timeout)):
                raise TryAgain(f"did not answer within {self.timeout:g} s") from error
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise TryAgain(f"cannot be reached: {printable(str(error)) or type(error).__name__}") from error
            raise
        self._used = time.monotonic()
        return response.status, content, {name.lower(): told for name, told in response.headers.items()}

    @contextmanager
    def _deadline(self) -> Iterator[threading.Event]:
        """Time for one exchange as a whole: the socket's own time-out begins anew with every byte that comes."""
        end, late = time.monotonic() + self.timeout, threading.Event()

        def cut() -> None:
            late.set()
            if self._sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # below any encryption, which is at work

        timer = threading.Timer(self.timeout, cut)
        timer.daemon = True
        timer.start()
        try:
            yield late
        except (OSError, http.client.HTTPException) as error:
            if late.is_set():
                raise TimeoutError from error
            raise
        finally:
            timer.cancel()
            timer.join()  # or it might cut off the next exchange
        if late.is_set() or time.monotonic() > end:
            raise TimeoutError  # what looks like a whole answer may be one that was cut

    def _connection(self) -> http.client.HTTPConnection:
        if self._open is not None and (self._open.sock is None or time.monotonic() - self._used > _IDLE):
            # One that the server has dropped, or may have: a request on it would be an attempt in vain.
            self._close()
        if self._open is None:
            kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
            self._open = kind(cast(str, self.url.hostname), self.url.port, timeout=self.timeout)
            self._open.connect()
            self._sock = self._open.sock  # which the connection forgets where an answer is to be the last
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._open

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = self._sock = None

    def _path(self) -> str:
        return (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "assay"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _check(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Whether the status speaks of an answer; if not, whether another attempt may help."""
        if _fine(status):
            return
        said = _error_text(body)
        if status in (408, 429) or status >= 500:
            raise TryAgain(f"answered {status}{said}", _wish(headers.get("retry-after")))
        if 300 <= status < 400:
            where = printable(headers.get("location") or "nowhere")
            raise UsageError(f"{self.url.geturl()} sends us on to {where}, which we do not follow; give that address")
        hint = {
            401: f"; set {TOKEN}",
            403: f"; set {TOKEN}",
            413: '; send less at once: --ask "batch=16"',
        }.get(status, "")
        raise UsageError(f"{self.url.geturl()} answered {status}{said}{hint}")


def http_target(url: str, data: Data | None, how: Asking) -> Answering:
    """The target at that address: what it says of itself comes first, then what the data say."""
    trust.check(url)  # inputs and the token go there
    client = Client(url, how.timeout or _TIMEOUT)
    patience = how.patience(_RETRIES)
    told = patience.persist(client.about, client.url.geturl(), again=lambda: None)  # no question, and not counted
    spec = spec_told(told, data, url)
    known_encodings = told.get("encodings")
    if isinstance(known_encodings, list) and "base64" in known_encodings:
        client.encoding = "base64"
    most = told.get("batch")
    most = most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None
    batch = min(b for b in (how.batch, most, None if how.batch or most else _BATCH) if b is not None)
    gives = told.get("gives")
    kind: Kind | None = gives if gives in ("probabilities", "labels") else None
    known = told.get("fingerprint")
    own = {"fingerprint": known} if isinstance(known, str) and known else {"url": url}
    return Answering(
        client,
        spec,
        name=client.url.geturl(),
        identity="http " + canonical_json({**own, "gives": kind}),
        batch=batch,
        kind=kind,
        settled="classes" in told and kind is not None,
        least=0.0,  # it calls them probabilities
        patience=patience,
    )


def _token() -> str:
    """What the environment holds to be sent along. It is quoted nowhere, least of all where it cannot be sent."""
    token = os.environ.get(TOKEN, "").strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise UsageError(f"{TOKEN} must be plain ASCII text without blanks: it travels in a header")
    return token


def _fine(status: int) -> bool:
    return 200 <= status < 300


def _parsed(url: str) -> SplitResult:
    if not url.isascii():
        raise UsageError(f"{printable(url)!r} has letters that no address has; write them as %C3%A9, a host as xn--…")
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or any(c.isspace() or not c.isprintable() for c in url):
            raise ValueError("no host")
        parts.hostname.encode("idna")  # as the library will, which does not complain in words
    except ValueError as error:
        raise UsageError(f"{printable(url)!r} is no address; write http://host:8000/path") from error
    if "@" in parts.netloc:
        raise UsageError(f"an address with a password in it would be written down; set {TOKEN} instead")
    return parts._replace(fragment="")


def _content(response: http.client.HTTPResponse) -> bytes:
    """The body, if it is of a size that can be."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        size += len(part)
        if size > _MOST:
            raise http.client.HTTPException(f"an answer of more than {_MOST >> 20} MB")
        parts.append(part)
    if response.length:  # of the length it announced, this much never came
        raise http.client.IncompleteRead(b"", response.length)
    response.read()  # nothing is left, and only so is the connection free for the next question
    return b"".join(parts)


def _json(body: bytes) -> Any:
    if body.count(b"[") + body.count(b"{") > _LISTS:  # empty ones cost far more memory than bytes
        raise BadAnswer(f"sent JSON of more than {_LISTS} lists and objects")
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"sent what is no JSON: {printable(body[:800].decode('utf-8', 'replace'), 60)!r}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _rows(told: Any) -> Any:
    if not isinstance(told, list) or not all(isinstance(row, list) for row in told):
        raise BadAnswer("sent probabilities that are no table of numbers")
    if {type(each) for row in told for each in row} - {int, float}:  # NumPy would read texts and truths as numbers
        raise BadAnswer("sent probabilities that are no table of numbers")
    try:
        return np.array(told, np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadAnswer("sent probabilities that are no table of numbers") from error


def _listed(told: Any) -> Any:
    if not isinstance(told, list) or len({type(each) for each in told} - {int, str}) or len(set(map(type, told))) > 1:
        raise BadAnswer("sent labels that are no list of whole numbers or of names")
    try:
        return np.array(told, np.int64 if told and isinstance(told[0], int) else str)
    except OverflowError as error:
        raise BadAnswer("sent labels that are no class numbers") from error


def _error_text(body: bytes) -> str:
    """What the server says went wrong, as far as a message may quote it."""
    text = body[:4000].decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict) and isinstance(told.get("error"), str):
        text = told["error"]
    return f": {printable(text)}" if printable(text) else ""


def _wish(told: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if told is None:
        return None
    try:
        return max(0.0, float(told)) if told.strip().isdigit() else _until(told)
    except (ValueError, TypeError, OverflowError):
        return None


def _until(date: str) -> float:
    return max(0.0, email.utils.parsedate_to_datetime(date).timestamp() - time.time())
