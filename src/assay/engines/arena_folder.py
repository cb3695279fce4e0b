"""The folder of an arena: its protocol, one JSON a row and seed, and what is under way."""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import UsageError
from assay.core.files import make_folder, write_atomic
from assay.core.lock import InUse, folder_lock
from assay.core.sealed import json_of, sealed_json

log = logging.getLogger("assay")

FORMAT = 1
ROWS, STATE, RUNS, NOT_RUN, CLAIMS = "rows", "state", "runs", "not-run", "claims"
PROTOCOL = "arena.json"
SETTLED = 10.0  # seconds to wait for others who begin at the same time
_FREE = ("versions",)  # told in the protocol, and no reason to keep numbers apart


@dataclass(frozen=True, slots=True)
class Folder:
    """A place on the disk that holds rows of one protocol."""

    path: Path

    def open(self, protocol: Mapping[str, Any]) -> None:
        """For rows of this protocol, here and in other processes; those of another one are refused."""
        make_folder(self.path)
        until = time.monotonic() + SETTLED
        while True:
            try:
                with folder_lock(self.path):
                    self._settle(protocol)
                    for name in (ROWS, STATE, RUNS, NOT_RUN, CLAIMS):
                        make_folder(self.path / name)
                return
            except InUse:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    @contextmanager
    def claimed(self, slug: str, seed: int) -> Iterator[bool]:
        """Whether a row is for this process to make: not where another one is at it, for as long as the block lasts."""
        place = self.path / CLAIMS / f"{slug}-seed-{seed}"
        make_folder(place)
        with ExitStack() as held:
            try:
                held.enter_context(folder_lock(place))
            except InUse:
                yield False
            else:
                yield True

    def _settle(self, protocol: Mapping[str, Any]) -> None:
        known = self._read(self.path / PROTOCOL)
        if known is None:
            others = sorted(p.name for p in self.path.iterdir() if p.name not in ("LOCK", PROTOCOL))
            if others:
                raise UsageError(f"{self.path} holds other things ({', '.join(others[:3])}); choose another --out")
            write_atomic(self.path / PROTOCOL, sealed_json(protocol))
            return
        unlike = differences(known, json.loads(json.dumps(protocol)))
        if unlike:
            raise UsageError(
                f"{self.path} holds rows of another protocol, and numbers of two cannot share a table: "
                f"{'; '.join(unlike)}; choose another --out, or ask as before"
            )

    def finished(self, slug: str, seed: int) -> dict[str, Any] | None:
        """A row that is done, None where it is not."""
        return self._read(self._file(ROWS, slug, seed))

    def finish(self, slug: str, seed: int, told: Mapping[str, Any]) -> None:
        """Keep a row that is done; what was kept while it was under way is not needed any more."""
        write_atomic(self._file(ROWS, slug, seed), sealed_json(told))
        self._file(STATE, slug, seed).unlink(missing_ok=True)
        self._file(NOT_RUN, slug, seed).unlink(missing_ok=True)

    def state(self, slug: str, seed: int) -> dict[str, Any]:
        """What is known of a row under way."""
        return self._read(self._file(STATE, slug, seed)) or {}

    def keep(self, slug: str, seed: int, state: Mapping[str, Any]) -> None:
        write_atomic(self._file(STATE, slug, seed), sealed_json(state))

    def leave_out(self, slug: str, seed: int, row: str, why: str) -> None:
        """Say why a row is not there."""
        write_atomic(self._file(NOT_RUN, slug, seed), sealed_json({"row": row, "seed": seed, "why": why}))

    def _file(self, kind: str, slug: str, seed: int) -> Path:
        return self.path / kind / f"{slug}-seed-{seed}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        told = json_of(content, sealed=True)
        if told is None:
            log.warning("%s is damaged and does not count; it is made anew", path)
        elif told.get("format", FORMAT) != FORMAT:
            raise UsageError(f"{path} is of format {told['format']}, this version knows {FORMAT}; update assay")
        return told

    def contents(self) -> dict[str, Any]:
        """All that is there: the protocol, once, the rows by name and seed, and those that could not be run."""
        protocol = self._read(self.path / PROTOCOL)
        if protocol is None:
            raise UsageError(f"{self.path} is no arena: it has no {PROTOCOL}; assay arena MODEL --data DATA makes one")
        rows, left = (
            [told for path in sorted((self.path / kind).glob("*.json")) if (told := self._read(path)) is not None]
            for kind in (ROWS, NOT_RUN)
        )
        return {"protocol": protocol, "rows": [_without(row) for row in rows], "not_run": left}


def _without(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row beside its protocol, which all share."""
    return {name: value for name, value in row.items() if name != "protocol"}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In what two protocols differ."""
    keys = [key for key in dict.fromkeys((*one, *other)) if key not in _FREE and one.get(key) != other.get(key)]
    return [_difference(key, one.get(key), other.get(key)) for key in keys]


def _difference(key: str, then: Any, now: Any) -> str:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        inner = [name for name in dict.fromkeys((*then, *now)) if then.get(name) != now.get(name)]
        return "; ".join(f"{key} {name} {_short(then.get(name))}, now {_short(now.get(name))}" for name in inner)
    return f"{key} {_short(then)}, now {_short(now)}"


def _short(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def contents_of(place: str | Path) -> dict[str, Any]:
    """An arena as it stands in a folder, or in a file that ``assay arena FOLDER --json`` wrote."""
    path = Path(place)
    if path.is_dir():
        return Folder(path).contents()
    try:
        told = json.loads(path.read_text("utf-8"))
        found = {name: told[name] for name in ("protocol", "rows", "not_run")}
    except FileNotFoundError:
        raise UsageError(f"no arena {str(place)!r}; to begin one: assay arena MODEL --data DATA --eps EPS") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no arena: neither a folder of one nor its JSON ({error})") from None
    return found
