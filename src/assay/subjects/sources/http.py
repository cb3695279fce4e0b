"""Targets behind an address: a small JSON contract over HTTP (docs/black-box.md), with the standard library."""

import base64
import email.utils
import http.client
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import numpy as np

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.files import canonical_json
from assay.subjects.bench import Data
from assay.subjects.sources.answering import Answering, Inputs, Kind
from assay.subjects.sources.asking import Asking
from assay.subjects.sources.patience import BadAnswer, TryAgain, printable

log = logging.getLogger("assay")

TOKEN = "ASSAY_TOKEN"  # the environment variable; its value is sent, never written
_MOST = 64 << 20  # bytes of one answer
_TIMEOUT, _RETRIES, _BATCH = 30.0, 5, 64
_IDLE = 4.0  # seconds after which a server may have hung up on us
_TOLD = (200, 401, 403, 408, 429)  # what a GET may bring besides silence and trouble
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Client:
    """A connection that is kept open, one attempt at a time; whoever calls decides whether to try again."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url, self.timeout = _parsed(url), timeout
        self.encoding = "list"
        self._open: http.client.HTTPConnection | None = None
        self._used = 0.0
        self._token = os.environ.get(TOKEN, "")
        if self._token and self.url.scheme == "http" and self.url.hostname not in _LOOPBACK:
            log.warning("%s is sent to %s unencrypted; use https", TOKEN, self.url.hostname)

    def about(self) -> Mapping[str, Any]:
        """What the server says of itself; nothing where it says nothing."""
        status, body, _ = self._request("GET", None)
        if status == 501 or (status < 500 and status not in _TOLD):
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
        deadline = time.monotonic() + self.timeout
        try:
            connection = self._connection()
            connection.request(method, self._path(), body, self._headers(body))
            response = connection.getresponse()
            content = _content(response, deadline)
        except BaseException as error:
            self._close()
            if isinstance(error, (TimeoutError, socket.timeout)):
                raise TryAgain(f"did not answer within {self.timeout:g} s") from error
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise TryAgain(f"cannot be reached: {printable(str(error)) or type(error).__name__}") from error
            raise
        self._used = time.monotonic()
        return response.status, content, {name.lower(): told for name, told in response.headers.items()}

    def _connection(self) -> http.client.HTTPConnection:
        if self._open is not None and time.monotonic() - self._used > _IDLE:
            self._close()  # a request on a connection the server has dropped would be an attempt in vain
        if self._open is None:
            kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
            self._open = kind(cast(str, self.url.hostname), self.url.port, timeout=self.timeout)
            self._open.connect()
            self._open.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._open

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

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
        if status == 200:
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
    client = Client(url, how.timeout or _TIMEOUT)
    patience = how.patience(_RETRIES)
    told = patience.persist(client.about, client.url.geturl(), again=lambda: None)  # no question, and not counted
    spec = _spec(told, data, url)
    if "base64" in told.get("encodings", ()):
        client.encoding = "base64"
    most = told.get("batch")
    most = most if isinstance(most, int) and most > 0 else None
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
        patience=patience,
    )


def _spec(told: Mapping[str, Any], data: Data | None, url: str) -> InputSpec:
    if not {"shape", "bounds", "classes"} <= told.keys():
        if data is None:
            raise UsageError(f"{url} does not say what inputs it takes; give the data too (data=… or --data)")
        return data.spec
    try:
        low, high = (float(b) for b in told["bounds"])
        shape, classes = tuple(int(n) for n in told["shape"]), tuple(str(c) for c in told["classes"])
    except (TypeError, ValueError) as error:
        raise UsageError(f"{url} says of itself what cannot be read: shape, bounds or classes") from error
    if not shape or min(shape) < 1 or not low < high or len(classes) < 2:
        told_so = f"shape {shape}, bounds {low}..{high}, {len(classes)} classes"
        raise UsageError(f"{url} says of itself what cannot be: {told_so}")
    return InputSpec(shape, (low, high), classes)


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or any(c.isspace() or not c.isprintable() for c in url):
            raise ValueError("no host")
    except ValueError as error:
        raise UsageError(f"{printable(url)!r} is no address; write http://host:8000/path") from error
    if parts.username or parts.password:
        raise UsageError(f"an address with a password in it would be written down; set {TOKEN} instead")
    return parts._replace(fragment="")


def _content(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, if it comes in time and is of a size that can be."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        size += len(part)
        if size > _MOST:
            raise http.client.HTTPException(f"an answer of more than {_MOST >> 20} MB")
        if time.monotonic() > deadline:
            raise TimeoutError
        parts.append(part)
    if response.length:  # of the length it announced, this much never came
        raise http.client.IncompleteRead(b"", response.length)
    response.read()  # nothing is left, and only so is the connection free for the next question
    return b"".join(parts)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"sent what is no JSON: {printable(body[:800].decode('utf-8', 'replace'), 60)!r}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _rows(told: Any) -> Any:
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
