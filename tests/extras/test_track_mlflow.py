"""MLflow: a real tracking server on loopback, and servers that do not behave."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import small
from assay.cli import run as command
from assay.core import store
from assay.outputs.track.stream import tracked
from bad_strings import AS_TEXT
from bad_strings import NAMES as BAD
from commands import assay

pytest.importorskip("mlflow", reason="pip install 'assay[track]'")
SECONDS = 240  # to start, however busy the machine


@pytest.fixture(autouse=True)
def _as_the_command_line_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_RETRIES", "2"), ("BACKOFF_FACTOR", "1"), ("TIMEOUT", "20")):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's own tracking server."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    words = ["server", "--backend-store-uri", f"sqlite:///{folder}/m.db", "--artifacts-destination", str(folder / "a")]
    words += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    env = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "ASSAY_TEST_NETWORK": str(folder / "asked")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + SECONDS
        while not answers(f"{address}/health"):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.2)
        ask(address, "experiments/search", {"max_results": 1})  # its first answer takes seconds
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def ask(address: str, what: str, body: dict[str, Any] | None = None) -> Any:
    """MLflow's REST interface, without its package."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{what}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def runs_in(address: str, experiment: str) -> list[Any]:
    found = ask(address, f"experiments/get-by-name?experiment_name={experiment}")["experiment"]["experiment_id"]
    runs: list[Any] = ask(address, "runs/search", {"experiment_ids": [found]}).get("runs", [])
    return runs


def named(items: list[Any]) -> dict[str, Any]:
    return {item["key"]: item["value"] for item in items}


def test_a_run_on_a_real_server_and_its_continuation(server: str, tmp_path: Path) -> None:
    small.prepare(tmp_path)
    log = ["--log", f"mlflow(place={server}, experiment=fuzzing)"]
    first = assay(*small.fuzz("a", "--cases", "60", *log)).ended(0)
    assert first.json["failures"] > 0  # stdout is the result and nothing else
    assert "left out" not in first.err
    (run,) = runs_in(server, "fuzzing")
    params, metrics, tags = (named(run["data"].get(part, [])) for part in ("params", "metrics", "tags"))
    assert run["info"]["run_name"] == "a"
    assert run["info"]["status"] == "FINISHED"
    assert params["recipe/name"] == "noise"
    assert metrics["result/failures"] == first.json["failures"]
    assert tags["assay.verdict"].startswith(f"{first.json['failures']} failures in ")
    told = ask(server, f"artifacts/list?run_id={run['info']['run_id']}&path=failures")
    assert 0 < len(told["files"]) <= 64
    picture = f"{server}/get-artifact?run_uuid={run['info']['run_id']}&path={told['files'][0]['path']}"
    with urllib.request.urlopen(picture, timeout=60) as answer:
        assert answer.read(4) == b"\x89PNG"
    second = assay(*small.fuzz("a", "--cases", "200", *log)).ended(0)
    (run,) = runs_in(server, "fuzzing")  # still one: the same run goes on
    assert named(run["data"]["metrics"])["result/failures"] == second.json["failures"]


def test_names_of_any_kind_get_there(server: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        tracked(f"mlflow(place={server}, experiment=hostile)", "fuzz") as tell,
        store.opened("a", {"run": {"kind": "fuzz"}, "target": {"model": "".join(AS_TEXT)}}, {}) as folder,
    ):
        tell(dict.fromkeys(BAD, 1.0) | {"phase": BAD[0]})
        folder.commit({}, kind="round", round=1, numbers=dict.fromkeys(AS_TEXT, 0.5))
        tell.result({"met": True, "unreliable": False, **dict.fromkeys(BAD, 2.0)})
    assert "left out" not in caplog.text
    (run,) = runs_in(server, "hostile")
    assert run["info"]["status"] == "FINISHED"
    assert named(run["data"]["metrics"])["result/met"] == 1


def test_a_database_in_the_run_folder(tmp_path: Path) -> None:
    small.prepare(tmp_path)
    assert command(small.fuzz("a", "--cases", "60", "--log", "mlflow")) == 0
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/runs/a/mlflow/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("assay").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["result/cases"] >= 60
    assert not (tmp_path / "mlruns").exists()
    assert not (tmp_path / "mlflow.db").exists()
    pictures = list((tmp_path / "runs/a/mlflow/artifacts").rglob("failures/*.png"))
    assert 0 < len(pictures) <= 64


# Servers that do not behave: the run ends as it would have without them


@contextmanager
def silent() -> Iterator[str]:
    """Accepts every connection and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


class _Broken(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b"<script>alert(1)</script>")

    do_GET = do_POST = do_PUT = _answer  # noqa: N815  names of http.server

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def broken() -> Iterator[str]:
    """Answers everything with 500."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Broken)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@contextmanager
def absent() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize("kind", [silent, broken, absent])
def test_a_server_that_gives_nothing_changes_nothing(kind: Any, tmp_path: Path) -> None:
    small.prepare(tmp_path)
    with kind() as address:
        told = assay(*small.fuzz("a", "--cases", "60", "--log", f"mlflow:{address}")).ended(0)
    assert told.json["complete"]
    assert told.err.count("warning: --log mlflow:") == 1, told.err
    assert "is left out from here on, the work goes on" in told.err
    assert command(small.fuzz("b", "--cases", "60")) == 0
    assert small.committed(tmp_path / "runs/a") == small.committed(tmp_path / "runs/b")


class Between:
    """A way to a server that can be cut."""

    def __init__(self, to: str) -> None:
        host, _, port = to.removeprefix("http://").partition(":")
        self.to = (host, int(port))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.listening.accept()
                there = socket.create_connection(self.to)
            except OSError:  # it was cut
                return
            self.open += [here, there]
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(65536):
                other.sendall(content)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def cut(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for connection in self.open:
            connection.close()


def test_a_server_that_dies_half_way(
    server: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.outputs.track import stream

    monkeypatch.setattr(stream, "EVERY", 0.0)
    way, done = Between(server), 0
    with tracked(f"mlflow(place={way.address}, experiment=dies)", "fuzz", run=False) as tell:
        tell({"cases": 1})
        until = time.monotonic() + SECONDS
        while not _got(server, "dies") and time.monotonic() < until:
            time.sleep(0.2)
        way.cut()
        for cases in range(2, 100):
            tell({"cases": cases})
            done = cases
        tell.result({"failures": 1, "cases": 100, "broken": 1, "seeds": 1})
    assert done == 99
    assert [record.getMessage() for record in caplog.records if "left out" in record.getMessage()] != []
    (run,) = runs_in(server, "dies")
    assert named(run["data"]["metrics"])["fuzz/cases"] == 1
    assert run["info"]["status"] == "RUNNING"  # nobody could tell it otherwise


def _got(server: str, experiment: str) -> bool:
    try:
        return any(run["data"].get("metrics") for run in runs_in(server, experiment))
    except urllib.error.HTTPError:  # there is none of that name yet
        return False
