"""Where the things that stages fit are made and kept: in the run, and while they are being trained, in the cache."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.core.cache import cache_folder
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.engines.hardening_models import Keeper, state_file
from assay.stages.trainers.watch import Watch
from assay.stages.workshop import Columns, Shown

MADE = "made"  # the kind of their commits


class RunWorkshop:
    """The workshop of one run; ``tell`` hears how far a training is."""

    def __init__(self, folder: Store, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self.folder, self.tell = folder, tell

    def find(self, what: str, key: str) -> Columns | None:
        """The thing as this run has committed it."""
        for line in self.folder.commits(MADE):
            if (line.meta["what"], line.meta["key"]) == (what, key):
                return decode(self.folder.file(_file(what, key)))
        return None

    def watch(self, what: str, key: str) -> Watch:
        """Who looks on; the state of the training lies in the cache, so that any run that needs the thing goes on."""
        out = self._place(what, key)

        def told(numbers: Mapping[str, Any]) -> None:
            self.tell({"phase": MADE, "what": what, **numbers})

        return Keeper(out, {"training": {"what": what, "key": key}}, told)

    def keep(self, what: str, key: str, columns: Columns, shown: Shown) -> None:
        """Commit the thing with what is to be seen of it, and forget the state of its training."""
        pictures = {f"models/{name}": content for name, content in shown.pictures.items()}
        self.folder.commit(
            {_file(what, key): encode(columns), **pictures}, kind=MADE, what=what, key=key, facts=shown.facts
        )
        state_file(self._place(what, key)).unlink(missing_ok=True)

    def _place(self, what: str, key: str) -> Path:
        """Where a training keeps its state: in the cache, or where that cannot be written to, in the run."""
        for folder in (cache_folder() / what, self.folder.path / "training"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{key}.part").touch()
                (folder / f"{key}.part").unlink()
            except OSError:
                continue
            return folder / f"{key}.safetensors"
        return self.folder.path / "training" / f"{key}.safetensors"


def made_in(folder: Store) -> list[dict[str, Any]]:
    """What was made for a run: what, key and facts of each thing, in order."""
    return [{name: line.meta[name] for name in ("what", "key", "facts")} for line in folder.commits(MADE)]


def _file(what: str, key: str) -> str:
    return f"models/{what}-{key[:16]}.safetensors"
