"""An object server in a process of its own: moto's, which speaks S3."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from assay.core.remote import Objects

BUCKET = "s3://bucket"
_PROGRAM = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Server:
    """The server, and what is needed to ask it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def env(self) -> dict[str, str]:
        """What makes a command use it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "not-so-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def serving() -> Iterator[Server]:
    """A server with an empty bucket; this process uses it too."""
    server = Server()
    before = dict(os.environ)
    os.environ.update(server.env())
    try:
        fs, _ = Objects(BUCKET)._place
        fs.clear_instance_cache()  # which would ask the server of an earlier test
        fs, _ = Objects(BUCKET)._place
        fs.mkdir("bucket")
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.close()


class Door:
    """A way to the server that can be shut, by the test or by a request with a word in it, and opened again."""

    def __init__(self, server: Server) -> None:
        self._server, self.shut_at, self.busy = server, b"", 0
        self.knocks = 0  # connections that were made
        self.answer: bytes | None = None  # what all are told instead of what the server would
        self._listening: socket.socket | None = None
        self.port = 0
        self.open()

    def env(self) -> dict[str, str]:
        return self._server.env() | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    def open(self) -> None:
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._listening, self.shut_at = listening, b""
        threading.Thread(target=self._let_in, args=(listening,), daemon=True).start()

    def shut(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _let_in(self, listening: socket.socket) -> None:
        while True:
            try:
                guest, _ = listening.accept()
            except OSError:  # shut
                return
            threading.Thread(target=self._serve, args=(guest,), daemon=True).start()

    def _serve(self, guest: socket.socket) -> None:
        with guest:
            head = guest.recv(65536)
            self.knocks += 1
            if self.answer is not None:
                guest.sendall(self.answer)
                return
            if self.shut_at and self.shut_at in head.partition(b"\r\n")[0]:
                self.shut()
                return
            if self.busy > 0:
                self.busy -= 1
                guest.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._server.port)) as server:
                server.sendall(head)
                back = threading.Thread(target=_pass_on, args=(server, guest), daemon=True)
                back.start()
                _pass_on(guest, server)
                back.join()


def _pass_on(giver: socket.socket, taker: socket.socket) -> None:
    try:
        while content := giver.recv(65536):
            taker.sendall(content)
        taker.shutdown(socket.SHUT_WR)
    except OSError:  # one of them is gone, and then there is nothing to pass on
        return
