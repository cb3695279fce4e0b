"""Runs in object stores: each is worked in a folder on this machine, and what happens there is done in the store too.

A commit writes its files as objects and then one object ``journal/000042.json`` with the line, each only where there is
none of that name. **That object is the commit.** The rest (``campaign.toml``, ``stats.json``, ``report/`` …) follows
behind. Opening makes the folder here what the store holds, and then all is as in any run folder.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from assay.core import journal
from assay.core.errors import StorageError, UsageError
from assay.core.files import sha256
from assay.core.remote import Objects, md5_of
from assay.core.remote_fetch import fetch
from assay.core.remote_lease import Lease
from assay.core.remote_names import JOURNAL, LINE, is_strict, line_name, local_files
from assay.core.remote_record import Record
from assay.core.repair import GUIDANCE

_logger = logging.getLogger("assay")

SWEEP_SECONDS = 2.0  # between two looks for what has changed beside the commits
_BYTES_A_SECOND = 5e6  # what follows behind takes no more of the line: large files wait longer


class Mirror:
    """A run in an object store and the folder it is worked in here."""

    def __init__(self, url: str, folder: Path) -> None:
        self.objects, self.folder = Objects(url), folder
        self.record = Record(folder.with_name(f".{folder.name}.seen"))
        self.there: set[str] = set()  # the objects of the run, as far as this process knows
        self.lease: Lease | None = None
        self.unmade = False  # whether the run came to nothing, and was taken away here
        self._begun: set[str] = set()  # files written for a commit whose line is not there yet
        self._next: dict[str, float] = {}
        self._warned = False

    @property
    def is_open(self) -> bool:
        """Whether this process writes to the run."""
        return self.lease is not None

    def fetch(self) -> None:
        """Make the folder here what the store holds."""
        self.record.load()
        self.there = fetch(self.objects, self.folder, self.record)
        if self.record.names():
            self.record.compact()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The one who writes to the run, from a folder that is as the store is; on leaving, all of it is there."""
        self.record.load()
        lease = Lease(self.objects, self.record.scratch)
        self.record.compact()  # with the name of this folder, which tells later that a holder of the lease was here
        lease.take()
        try:
            self.fetch()
            self.lease = lease
            try:
                with self._followed(lease):
                    yield
            except BaseException:
                self._leave_behind(lease)
                raise
            self._leave(lease)
        finally:
            self.lease = None
            self._release(lease)

    @contextmanager
    def _followed(self, lease: Lease) -> Iterator[None]:
        over = threading.Event()
        follower = threading.Thread(target=self._follow, args=(lease, over), daemon=True, name="assay-mirror")
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()

    def reserve(self) -> bool:
        """Take the name for a new run; whether it was free."""
        return Lease(self.objects, self.record.scratch).reserve()

    def writer(self) -> dict[str, str] | None:
        """Who writes to the run now, from elsewhere."""
        return Lease(self.objects, self.record.scratch).holder()

    def commit(self, run: Path, line: journal.Line, files: Mapping[str, bytes], before: bytes) -> None:
        """Write the files of a commit and then its line, in the run itself or in one inside it; ``before`` is the line
        before it, which is checked when the lines are read: two histories never become one.
        """
        assert self.lease is not None
        self.lease.confirm()
        inside = self._inside(run)
        for name, content in files.items():
            self._create(inside + name, content)
        told = line.meta.get(GUIDANCE)
        if isinstance(told, Mapping):  # it replaces an older one, which the commit before the last one named
            name = f"{inside}{GUIDANCE}/{told['file']}"
            self._put(name, self.folder / name)
        self._create(line_name(inside, line.step), self._sealed(line, before))
        self._begun.clear()

    def has(self, run: Path, line: journal.Line, before: bytes) -> bool:
        """Whether the line got there, after a commit that was cut short; where nobody answers it counts as not."""
        try:
            return self.objects.read(line_name(self._inside(run), line.step)) == self._sealed(line, before)
        except (StorageError, UsageError):
            return False

    def settle(self) -> None:
        """Do in the store what was done here: after a repair, which moves what is bad to the quarantine."""
        self.push()
        files = dict(local_files(self.folder))
        runs = {match[1] for name in self.there if (match := LINE.fullmatch(name))}
        lines = {inside: len(journal.read(self.folder / inside / JOURNAL)[0]) for inside in runs}
        for name in sorted(self.there, reverse=True):  # lines from the last one: a kill in between leaves no gap
            line = LINE.fullmatch(name)
            gone = int(line[2]) >= lines[line[1]] if line else name not in files
            if gone:
                self._delete(name)

    def push(self, under: str = "", *, tries: int | None = None) -> None:
        """Write what has changed beside the commits."""
        more = {} if tries is None else {"tries": tries}
        for name, path in local_files(self.folder):
            if not is_strict(name) and name.startswith(under):
                self._follow_up(name, path, **more)

    def drop(self, under: str) -> None:
        """Remove the objects beside the commits whose files are no longer here."""
        beside = [name for name in tuple(self.there) if name.startswith(under) and not is_strict(name)]
        for name in beside:
            if not LINE.fullmatch(name) and not (self.folder / name).exists():
                self._delete(name)

    def _inside(self, run: Path) -> str:
        """What stands before the names of a run inside this one."""
        return "" if run == self.folder else f"{run.relative_to(self.folder).as_posix()}/"

    def _sealed(self, line: journal.Line, before: bytes) -> bytes:
        """The object of a line: the line, and below it who wrote it after which one."""
        assert self.lease is not None
        return line.encode() + json.dumps({"after": sha256(before), "writer": self.lease.token}).encode()

    def _create(self, name: str, content: bytes) -> None:
        assert self.lease is not None
        if name in self._begun:  # by a commit of ours that was cut short
            self.objects.put(name, content)
        elif not self.objects.create(name, content) and self.objects.read(name) != content:
            raise self.lease.lost()
        self.there.add(name)
        if not LINE.fullmatch(name):
            self._begun.add(name)
        self.record.note(name, None if LINE.fullmatch(name) else (self.folder / name).stat(), md5_of(content))

    def _put(self, name: str, path: Path, **options: int) -> None:
        here = path.stat()
        content = path.read_bytes()
        self.objects.put(name, content, **options)
        self.there.add(name)
        stamp = self.objects.stamp(name, **options)
        self.record.note(name, here, stamp.token if stamp is not None else "")

    def _follow_up(self, name: str, path: Path, **options: int) -> None:
        """Write a file that is not as it was last written."""
        try:
            if not self.record.unchanged(name, path.stat()) or name not in self.there:
                self._put(name, path, **options)
        except FileNotFoundError:  # of a file that was replaced or moved meanwhile; the next look finds the other
            return

    def _delete(self, name: str) -> None:
        self.objects.delete(name)
        self.there.discard(name)
        self.record.forget(name)

    def _follow(self, lease: Lease, over: threading.Event) -> None:
        """While the run is open: renew the lease, and write what changes beside the commits. It never fails the run."""
        while not over.wait(SWEEP_SECONDS):
            try:
                if lease.is_due():
                    lease.renew()
                if lease.is_lost:  # the next commit will say so
                    return
                self._sweep(lease)
            except (StorageError, UsageError, OSError) as error:
                if not self._warned:
                    _logger.warning("%s: what stands beside the commits is late (%s)", self.objects.url, error)
                self._warned = True

    def _sweep(self, lease: Lease) -> None:
        for name, path in local_files(self.folder):
            if lease.is_due():  # many files take long, and the machine may have slept between two of them
                return
            if is_strict(name) or time.monotonic() < self._next.get(name, 0.0):
                continue
            try:
                size = path.stat().st_size
            except OSError:
                continue
            self._follow_up(name, path, tries=1)
            self._next[name] = time.monotonic() + max(SWEEP_SECONDS, size / _BYTES_A_SECOND) * 0.9

    def _leave(self, lease: Lease) -> None:
        """Write all that is left, or undo what came to nothing.

        Commits are never undone here: what is missing or damaged on this machine is fetched at the next opening.
        """
        lease.confirm(now=True)
        if not self.unmade:
            if self.folder.exists():  # else the cache was cleared meanwhile
                self.push()
                self.drop("")
                self.record.compact()
            return
        for name in sorted(self.there, reverse=True):  # a refused command leaves nothing behind
            self._delete(name)
        lease.withdraw()
        self.record.path.unlink(missing_ok=True)

    def _leave_behind(self, lease: Lease) -> None:
        """The same after an error, which is the one to be told."""
        try:
            self._leave(lease)
        except (StorageError, UsageError, OSError) as error:
            _logger.warning("%s: what stands beside the commits is not all there (%s)", self.objects.url, error)

    def _release(self, lease: Lease) -> None:
        try:
            lease.release()
        except (StorageError, UsageError) as error:
            _logger.warning("%s: the lease could not be given back (%s)", self.objects.url, error)
