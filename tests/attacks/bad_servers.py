"""Servers that answer to hurt whoever asks: each answer is bytes, or pieces of them that never end."""

import itertools
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

EVIL = "\x1b]0;t\x07\x1b[31m[red]\nerror: all is lost\n<script>\u202e"


def answer(body: bytes, *lines: str, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        "Connection: close",
        *lines,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def endless() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    yield from itertools.repeat(b"[" * 65536)


def drip() -> Iterator[bytes]:
    """A byte now and then, each of which would begin a socket's own time-out anew."""
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    while True:
        time.sleep(0.2)
        yield b" "


ANSWERS: dict[str, bytes | Iterable[bytes]] = {
    "to a file": answer(b"", "Location: file:///etc/passwd", status="302 Found"),
    "to another host": answer(b"", "Location: http://evil.example/", status="307 Temporary Redirect"),
    "gzip bomb": answer(zlib.compress(bytes(200 << 20), 9), "Content-Encoding: gzip"),
    "too short": answer(b"{}", length=1000),
    "deep": answer(b"[" * 1_000_000),
    "huge number": answer(b'{"probabilities": [[' + b"9" * 100_000 + b"]]}"),
    "no number": answer(b'{"probabilities": [[NaN, Infinity]]}'),
    "evil error": answer(EVIL.encode(), status="400 Bad"),
    "evil json error": answer(b'{"error": "\\u001b[31m\\nerror: all is lost\\n\\ud800"}', status="403 No"),
    "evil status": b"HTTP/1.1 500 \x1b[31mred\r\nContent-Length: 0\r\n\r\n",
    "evil header": answer(b"", "Retry-After: 99999999999999999999", status="429 Slow"),
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    "long line": b"HTTP/1.1 200 " + b"x" * 200_000 + b"\r\n\r\n",
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
}
ENDLESS = {"endless": endless, "drip": drip}


@contextmanager
def serving(pieces: Iterable[bytes] | bytes) -> Iterator[str]:
    """A server that gives this to whoever asks, whatever they ask."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        ended = threading.Event()

        def give(connection: socket.socket) -> None:
            with connection:
                try:
                    connection.settimeout(5)
                    connection.recv(1 << 20)
                    for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
                        if ended.is_set():
                            return
                        connection.sendall(piece)
                except OSError:  # the client left, as it should
                    return

        def work() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=give, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            ended.set()
            thread.join()
