"""Events as a run in MLflow."""

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from assay.core.cache import cache_folder
from assay.core.extras import needed
from assay.core.files import canonical_json, make_folder, sha256, whole_text, write_atomic
from assay.core.registry import register
from assay.outputs.track import Event, Take
from assay.outputs.track.home import Home
from assay.outputs.track.numbers import clean_name, flat

PARAMS, METRICS = 100, 1000  # most of them that MLflow takes at a time
DATABASE = "mlflow.db"
LONGEST = 500  # characters of a parameter, which every store takes
RUN = "assay.run"  # the tag by which the same run is found again
_STATUS = {"failed": "FAILED", "interrupted": "KILLED"}


@register("sink")
def mlflow(home: Home, *, place: str = "", experiment: str = "assay") -> Take:
    """A run in MLflow: at the address PLACE, at $MLFLOW_TRACKING_URI, or in a database in the run folder."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report home at import
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # stdout carries results
    needed("mlflow", "track", "--log mlflow")
    uri = place or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        home.check("mlflow", "ADDRESS")
    if uri.startswith("sqlite:") or not uri:
        # Here, and not while the work goes on: two threads that import get in each other's way.
        needed("mlflow.store.tracking.sqlalchemy_store", "track", "--log mlflow")
    book = _Book(home, uri, experiment)
    return book.take


class _Book:
    """A run of MLflow under way."""

    def __init__(self, home: Home, uri: str, experiment: str) -> None:
        self.home, self.uri, self.experiment = home, uri, experiment
        self.client: Any = None
        self.id = ""

    def take(self, event: Event) -> None:
        if event["event"] == "open":
            self._open()
        elif event["event"] == "begin":
            self._begin(event)
        elif event["event"] == "image":
            told = f"{event['number']:02d}-{event['true']}-to-{event['predicted']}-{event['id']}"
            file = clean_name(told.replace("/", "_")).replace(" ", "_")[-120:].lstrip(".-_")
            self.client.log_image(self.id, event["picture"], artifact_file=f"failures/{file}.png")
        else:
            self._log(event)
        if event["event"] == "end":
            for name in ("status", "verdict", "report", "error"):
                if event.get(name):
                    self.client.set_tag(self.id, f"assay.{name}", _text(event[name]))
            self.client.set_terminated(self.id, _STATUS.get(event["status"], "FINISHED"))

    def _open(self) -> None:
        from mlflow import MlflowClient

        for name in ("mlflow.store.db.utils", "alembic"):  # what they say of making tables is no news of ours
            logging.getLogger(name).setLevel(logging.WARNING)
        if not self.uri:
            folder = self.home.place("mlflow").resolve()
            make_folder(folder)
            if not (folder / DATABASE).exists():
                write_atomic(folder / DATABASE, _new_database())
            self.uri = f"sqlite:///{folder / DATABASE}"
            self.artifacts: str | None = (folder / "artifacts").as_uri()
        else:
            self.artifacts = None  # where the server puts them
        self.client = MlflowClient(tracking_uri=self.uri)

    def _begin(self, event: Event) -> None:
        """The run in MLflow; the one from before where this run is continued."""
        from mlflow.entities import Param, RunTag

        place = self._experiment()
        key = sha256(f"{event['run']} {canonical_json(event['identity'])}".encode())[:32]
        told = self.client.search_runs([place], f"tags.`{RUN}` = '{key}'", max_results=1) if event["run"] else []
        if told:
            self.id = told[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        name = _text(event["name"]) or event["verb"]
        self.id = self.client.create_run(place, run_name=name, tags={RUN: key}).info.run_id
        params = [Param(clean_name(name), _text(value)) for name, value in flat(event["config"])]
        tags = {"assay.verb": event["verb"], "assay.version": event["assay"], "assay.folder": event["run"] or ""}
        for first in range(0, len(params), PARAMS):
            self.client.log_batch(self.id, params=params[first : first + PARAMS])
        self.client.log_batch(self.id, tags=[RunTag(name, _text(value)) for name, value in tags.items()])

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                return str(self.client.create_experiment(self.experiment, artifact_location=self.artifacts))
            except MlflowException:  # another run made it meanwhile
                found = self.client.get_experiment_by_name(self.experiment)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _log(self, event: Event) -> None:
        from mlflow.entities import Metric

        when, step = int(event["time"] * 1000), event["step"]
        named = {clean_name(name): value for name, value in event["numbers"].items()}
        metrics = [Metric(name, value, when, step) for name, value in named.items()]
        for first in range(0, len(metrics), METRICS):
            self.client.log_batch(self.id, metrics=metrics[first : first + METRICS])


def _new_database() -> bytes:
    """A database without runs. MLflow takes ten seconds to make one, so that it is made once, in a process of its own:
    in this one it would take those seconds from the work.
    """
    from mlflow import __version__

    kept = cache_folder() / f"mlflow-{__version__}.db"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            made = Path(folder) / DATABASE
            code = f"from mlflow import MlflowClient; MlflowClient(tracking_uri={f'sqlite:///{made}'!r})"
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=folder)
            made.replace(kept)
    return kept.read_bytes()


def _text(value: Any) -> str:
    """Text that every store takes."""
    return whole_text(str(value)).replace("\0", "\\0")[:LONGEST]
