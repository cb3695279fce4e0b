"""What people see of a campaign: read off what is counted anyway, at most twice a second.

A reading copies a few sums from the device; between two readings nothing is counted that a commit does not need. No
clock of it gets into the journal.
"""

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import torch

from assay.core.cases import Cases
from assay.core.memory import memory
from assay.core.plot import Plot
from assay.core.store import Store
from assay.engines.asking import asked_of
from assay.engines.found import Found
from assay.engines.guidance import Guidance
from assay.engines.signs import LOGGED, signs
from assay.engines.unit import Unit
from assay.subjects.target import Target

log = logging.getLogger("assay")

READ_SECONDS = 0.5  # between two readings: as often as a screen is painted
WINDOW_SECONDS = 10.0  # over which the present rate is taken
LEAST_LANES = 16  # with a slope, before their share says anything


class UnderWay(Protocol):
    """What is worked now: lanes, or none where others work."""

    open: list[Unit]

    @property
    def now(self) -> Cases | None: ...


class Gauges:
    """The readings of one campaign, in this session of it."""

    def __init__(
        self, folder: Store, found: Found, target: Target, guidance: Guidance, ignored: Collection[str] = ()
    ) -> None:
        self.found, self.target, self.guidance, self.ignored = found, target, guidance, ignored
        last = folder.stats().get("last_new")
        self.last_new = last if isinstance(last, float) and 0 <= last <= found.seconds else None
        self.plot = Plot(folder.path, found.seconds, found.cases)
        self.warnings: list[dict[str, str]] = []
        self._said: set[str] = set()
        self.kinds: int | None = None
        self.detail: dict[str, Any] = {}
        self.limits: Mapping[str, Any] = {}
        self.fixed: dict[str, Any] = {}
        self.workers: dict[str, int] | None = None  # of a campaign on Ray
        # Of a run begun before valid cases were counted, the commits that tell.
        self._looked = sum(line.meta["counts"]["cases"] for line in _telling(folder))
        self._distinct, self._cases = found.distinct, found.cases
        self._read_at = -READ_SECONDS
        self._rates: deque[tuple[float, int]] = deque()
        self._commit = (time.monotonic(), 0.0)  # when the last one was, and how far the next unit was then

    def begin(self, limits: Mapping[str, Any], seeds: int, kinds: int | None) -> None:
        """What is known before the first step: the budget, and the length of the list of seeds."""
        self.limits, self.kinds = limits, kinds
        self.fixed = {"seed_list": seeds}

    def committed(self, lanes: UnderWay, kinds: int | None) -> None:
        """Note what a commit has changed."""
        self.kinds = kinds
        if self.found.distinct > self._distinct:
            self._distinct, self.last_new = self.found.distinct, self.found.seconds
        self._looked += self.found.cases - self._cases
        self._cases = self.found.cases
        self._commit = (time.monotonic(), _done(lanes))

    def read(self, lanes: UnderWay, *, anew: bool = False) -> dict[str, Any]:
        """The numbers of this moment: counts as of the last step, all else as of the last reading."""
        now = time.monotonic()
        if anew or now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self.detail = self._look(lanes, now)
            self._warn()
        counts = {
            "seconds": self.found.seconds,
            "seeds": self.found.seeds,
            "cases": self.found.cases + sum(unit.tried for unit in lanes.open),
            "failures": self._failures(lanes),
            "waiting": sum(unit.waiting for unit in lanes.open),
        }
        return {**self.detail, **counts}

    def _failures(self, lanes: UnderWay) -> int:
        return self.found.failures + sum(unit.waiting for unit in lanes.open)

    def _look(self, lanes: UnderWay, now: float) -> dict[str, Any]:
        found, limits = self.found, self.limits
        more, valid_more = _under_way(lanes.now)
        ended = sum(unit.tried for unit in lanes.open)
        tried, looked = found.cases + ended + more, self._looked + ended + more
        valid = found.valid + sum(unit.valid for unit in lanes.open) + valid_more
        coverage = self.coverage()
        stability = found.stability or {}
        return {
            **self.fixed,
            "failures": self._failures(lanes),
            "waiting": sum(unit.waiting for unit in lanes.open),
            "tried": tried,
            "rate": round(self._rate(now, tried), 1),
            "rate_mean": round(tried / found.seconds, 1) if found.seconds else 0.0,
            **({"time_limit": limits["time"]} if "time" in limits else {}),
            **({"cases_limit": limits["cases"]} if "cases" in limits else {}),
            "since_new": None if self.last_new is None else max(0.0, found.seconds - self.last_new),
            **{name: getattr(found, name) for name in ("distinct", "broken", "nonfinite", "flaky", "skipped")},
            "valid": valid / looked if looked else None,
            **({} if coverage is None else {"coverage": coverage}),
            "rules": dict(found.kept),
            **({"operators": {name: dict(told) for name, told in found.operators.items()}} if found.operators else {}),
            "stability": stability.get("share"),
            "flat": _flat(lanes.now),
            **({} if (asked := asked_of(self.target)) is None else {"queries": asked}),
            **({} if self.workers is None else {"workers": dict(self.workers)}),
            "memory": memory(),
            "next_commit": self._next_commit(lanes, now),
            "kinds": self.kinds,
        }

    def coverage(self) -> float | None:
        """The share of the criterion that is covered; None where there is no criterion, or it has no upper end."""
        coverage = self.guidance.coverage
        return None if coverage is None or not coverage.total else float(coverage.covered() / coverage.total)

    def row(self) -> None:
        """A line of ``plot.csv``, of what is committed."""
        counts = {name: getattr(self.found, name) for name in ("seconds", "seeds", "cases", "failures")}
        counts |= {"distinct": self.found.distinct, "broken": self.found.broken}
        self.plot.add(counts | {"kinds": self.kinds, "coverage": self.coverage()})

    def told(self) -> dict[str, Any]:
        """What ``stats.json`` says besides the counts: when the last new failure came, and the last reading."""
        now = {name: value for name, value in self.detail.items() if name != "warnings"}
        there = {} if self.workers is None else {"workers": dict(self.workers)}
        return {"last_new": self.last_new, "now": now, **there}

    def _rate(self, now: float, tried: int) -> float:
        """Cases a second over the last moments."""
        self._rates.append((now, tried))
        while len(self._rates) > 2 and now - self._rates[1][0] >= WINDOW_SECONDS:
            self._rates.popleft()
        then, before = self._rates[0]
        return max(0, tried - before) / (now - then) if now > then else 0.0

    def _next_commit(self, lanes: UnderWay, now: float) -> float | None:
        """Seconds until the oldest unit is done, if it goes on as since the last commit."""
        (then, before), done = self._commit, _done(lanes)
        if not lanes.open or done <= before or now <= then:
            return None
        return (1 - done) * (now - then) / (done - before)

    def _warn(self) -> None:
        """Note what is wrong, and log what nobody has said yet, once."""
        before = {sign["name"] for sign in self.warnings}
        self.warnings = signs(self.found, self.detail, self.ignored)
        self.detail["warnings"] = self.warnings
        for sign in self.warnings:
            if sign["name"] not in before and sign["name"] not in (*LOGGED, *self._said):
                self._said.add(sign["name"])
                log.warning("%s: %s (%s)", sign["name"], sign["message"], sign["more"])


def _telling(folder: Store) -> list[Any]:
    return [line for line in folder.commits("fuzz") if "valid" in line.meta.get("counts", {})]


def _done(lanes: UnderWay) -> float:
    """How much of the oldest open unit is done."""
    return float(lanes.open[0].ended.float().mean()) if lanes.open else 0.0


def _under_way(lanes: Cases | None) -> tuple[int, int]:
    """Cases made of the seeds that have not ended, and how many of them are valid."""
    if lanes is None:
        return 0, 0
    going = ~lanes.info["ended"]
    tried, valid = torch.stack([lanes.info["step"] * going, lanes.info["fired"][:, -1] * going]).sum(1).tolist()
    return tried, valid


def _flat(lanes: Cases | None) -> float | None:
    """The share of seeds under way whose slope is zero everywhere; None where no slope is climbed, or too few."""
    if lanes is None or "slope" not in lanes.info:
        return None
    going = ~lanes.info["ended"] & ~lanes.info["opening"] & (lanes.info["step"] > 0)
    zero = (lanes.info["slope"].flatten(1) == 0).all(1) & going
    count, of = torch.stack([zero, going]).sum(1).tolist()
    return count / of if of >= LEAST_LANES else None
