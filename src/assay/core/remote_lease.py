"""One writer per run in an object store: a lease in numbered objects, the highest of which is the writer's.

Taking the lease is creating the next number where there is none, which one of several can do. The holder renews its
object; one that was not renewed for ``FOREIGN_SECONDS`` is passed over, as a lock file of another host is. Numbers come
again after a run that came to nothing, so a holder knows its object by what it wrote there, not by the number.
"""

import json
import os
import socket
import time
import uuid
from typing import Any

from assay.core.errors import StorageError, UsageError
from assay.core.lock import FOREIGN_SECONDS
from assay.core.remote import Objects

FOLDER = "LOCK"
BEAT_SECONDS = FOREIGN_SECONDS / 10
_SURE_SECONDS = BEAT_SECONDS / 2  # a lease confirmed no longer ago is not looked at again before a commit
_TURNS = 20  # others who took and gave back the lease while we looked
# It goes on while the machine sleeps. Elsewhere than on Linux, where it has no name of its own, the other one does so.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """The right to write to the run below an address; ``scratch`` names the folder it is worked in here."""

    def __init__(self, objects: Objects, scratch: str) -> None:
        self.objects, self.scratch = objects, scratch
        self.number = 0
        self.is_lost = False
        self.token = uuid.uuid4().hex
        self._confirmed = 0.0

    def take(self) -> None:
        """Become the writer; one elsewhere that lives is a usage error that names it.

        Whoever asks has the lock of the scratch folder: a holder that worked in the same one is dead.
        """
        for _ in range(_TURNS):
            numbers = self._numbers()
            last = max(numbers, default=0)
            told = self._told(last) if last else {}
            if told is None:  # gone meanwhile, for somebody took the next one
                continue
            if self._lives(told):
                raise self._in_use(told)
            if self.objects.create(_name(last + 1), self._signed()):
                self.number, self._confirmed = last + 1, _now()
                if not {*numbers, self.number}.issuperset(self._numbers()):
                    self.withdraw()  # the last one is gone, and another began with 1: both see it, and look again
                    continue
                for number in numbers:
                    self.objects.delete(_name(number))
                return
        raise UsageError(f"{self.objects.url} is taken and given back again and again; try once more")

    def reserve(self) -> bool:
        """Mark a name as used where nothing is; whether it was us who did."""
        return self.objects.create(_name(1), self._signed(released=True))

    def holder(self) -> dict[str, str] | None:
        """Who holds it, if one elsewhere that lives does."""
        told = self._told(max(self._numbers(), default=0)) or {}
        return {"pid": str(told["pid"]), "host": str(told["host"])} if self._lives(told) else None

    def is_due(self) -> bool:
        """Whether it is time to renew."""
        return _now() - self._confirmed >= BEAT_SECONDS

    def renew(self) -> None:
        """Show that the holder lives, if it still holds."""
        self.is_lost = self.is_lost or not self._holds(tries=1)
        if not self.is_lost:
            self.objects.put(_name(self.number), self._signed(), tries=1)
            self._confirmed = _now()

    def confirm(self, *, now: bool = False) -> None:
        """Stop a writer whose lease another one has taken over, as it may after a sleep."""
        if not self.is_lost and not now and _now() - self._confirmed < _SURE_SECONDS:
            return
        if self.is_lost or not self._holds():
            raise self.lost()
        self._confirmed = _now()

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        if self.number and self._holds(tries=1):
            self.objects.put(_name(self.number), self._signed(released=True), tries=1)
        self.number = 0

    def withdraw(self) -> None:
        """Give it back and leave no trace, for the run has come to nothing."""
        self.objects.delete(_name(self.number))
        self.number = 0

    def lost(self) -> StorageError:
        """What a writer is told that finds another one at work."""
        self.is_lost = True
        told = self._told(max(self._numbers(), default=0)) or {}
        return StorageError(
            f"{_who(told)} writes to {self.objects.url} now: this command was silent for too long, or ran beside it; "
            "what was committed is kept, the same command goes on from there once that one has ended"
        )

    def _holds(self, **options: int) -> bool:
        last = max(self._numbers(**options), default=0)
        return last == self.number and (self._told(last, **options) or {}).get("token") == self.token

    def _numbers(self, **options: int) -> list[int]:
        names = (name.removeprefix(f"{FOLDER}/").removesuffix(".json") for name in self.objects.all(FOLDER, **options))
        return [int(name) for name in names if name.isdecimal()]

    def _told(self, number: int, **options: int) -> dict[str, Any] | None:
        content = self.objects.read(_name(number), **options)
        if content is None:
            return None
        try:
            told = json.loads(content)
        except ValueError:
            told = {}
        return told if isinstance(told, dict) else {}

    def _signed(self, *, released: bool = False) -> bytes:
        told = {"pid": os.getpid(), "host": socket.gethostname(), "scratch": self.scratch, "token": self.token}
        return json.dumps({**told, "when": time.time(), "released": released}).encode()

    def _lives(self, told: dict[str, Any]) -> bool:
        when = told.get("when")
        if not {"pid", "host"} <= told.keys():  # it is nobody's
            return False
        if told.get("released") or told.get("scratch") == self.scratch or not isinstance(when, (int, float)):
            return False
        return abs(time.time() - when) < FOREIGN_SECONDS  # abs: clocks of two hosts differ, and clocks jump

    def _in_use(self, told: dict[str, Any]) -> UsageError:
        left = FOREIGN_SECONDS - abs(time.time() - told["when"])
        return UsageError(
            f"the run {self.objects.url} is in use by {_who(told)}; wait for it, stop it, or start another run with "
            f"--fresh. If it is dead already, its lease ends in {left:.0f} s"
        )


def _name(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"


def _now() -> float:
    return time.clock_gettime(_CLOCK)


def _who(told: dict[str, Any]) -> str:
    return "somebody else" if "pid" not in told else f"process {told.get('pid', '?')} on {told.get('host', '?')}"
