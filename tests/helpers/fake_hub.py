"""A hub on this machine: repositories with commits, branches and files, as the hub's own library asks for them."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repo:
    """A repository: files of every commit, and what branches and tags mean."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False

    def commit(self, files: Mapping[str, bytes], *refs: str) -> str:
        """A new commit with these files; ``refs`` (main, where none is named) mean it from now on."""
        digest = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode()).hexdigest()
        self.commits[digest] = dict(files)
        self.refs |= dict.fromkeys(refs or ("main",), digest)
        return digest


class FakeHub:
    """The hub; ``asked`` are the requests it got, ``down`` makes it answer 503."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.asked: list[str] = []
        self.down = False
        self.url = ""

    def add(self, name: str, files: Mapping[str, bytes] | Path, kind: str = "models") -> Repo:
        """A repository with one commit on main, of these files or of a folder."""
        repo = self.repos[(kind, name)] = Repo()
        repo.commit(files_in(files) if isinstance(files, Path) else files)
        return repo


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub, answering on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if self.hub.down:
            self._send(503, b"down")
            return
        api = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+))?(/.*)?", path)
        file = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if api:
            self._about(api[1], api[2], api[3] or "revision", api[4] or "main", (api[5] or "").strip("/"), content)
        elif file:
            self._file("datasets" if file[1] else "models", file[2], file[3], file[4])
        else:
            self._send(404, b"{}")

    def _found(self, kind: str, name: str, revision: str) -> tuple[Repo, str] | None:
        repo = self.hub.repos.get((kind, name))
        if repo is None:
            self._refuse(404, "RepoNotFound")
            return None
        if repo.gated:
            self._refuse(403, "GatedRepo")
            return None
        sha = repo.refs.get(revision, revision)
        if sha not in repo.commits:
            self._refuse(404, "RevisionNotFound")
            return None
        return repo, sha

    def _about(self, kind: str, name: str, what: str, revision: str, under: str, content: bytes) -> None:
        found = self._found(kind, name, revision)
        if found is None:
            return
        repo, sha = found
        files = repo.commits[sha]
        entries = [
            {"type": "file", "path": path, "size": len(text), "oid": hashlib.sha1(text).hexdigest()}
            for path, text in files.items()
        ]
        folders = sorted({path.rpartition("/")[0] for path in files if "/" in path})
        entries += [{"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in folders]
        if what == "tree":
            inside = [e for e in entries if not under or str(e["path"]).startswith(f"{under}/")]
            if under and not inside:
                self._refuse(404, "EntryNotFound")
            else:
                self._send_json(inside)
        elif what == "paths-info":
            wanted = json.loads(content).get("paths", []) if content[:1] == b"{" else []
            self._send_json([e for e in entries if e["path"] in wanted])
        else:
            names = [{"rfilename": path} for path in files]
            self._send_json(
                {"_id": "0" * 24, "id": name, "modelId": name, "sha": sha, "siblings": names, "private": False,
                 "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [],
                 "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z"}
            )  # fmt: skip

    def _file(self, kind: str, name: str, revision: str, path: str) -> None:
        found = self._found(kind, name, revision)
        if found is None:
            return
        repo, sha = found
        content = repo.commits[sha].get(path)
        if content is None:
            self._refuse(404, "EntryNotFound", sha)
            return
        start, end = 0, len(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            start, end = int(asked[1]), min(int(asked[2]) + 1 if asked[2] else end, end)
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        self._send(206 if asked else 200, content[start:end], headers)

    def _refuse(self, status: int, code: str, sha: str = "") -> None:
        self._send(status, b'{"error": "no"}', {"X-Error-Code": code, **({"X-Repo-Commit": sha} if sha else {})})

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
