"""Does the model answer the same when it is asked again, or alone? Asked once a run, before its first case."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import ModelFailed, UsageError
from assay.core.modes import changed_by
from assay.core.randomness import Stream
from assay.core.store import Store
from assay.engines.checks.look import Facts, Look
from assay.engines.checks.modes import BATCH_DEPENDENT
from assay.engines.checks.outputs import RANDOMISED
from assay.engines.evaluation import Share
from assay.engines.once_more import once_more
from assay.subjects.asked import Asked
from assay.subjects.target import Target, answer

log = logging.getLogger("assay")

KIND = "stability"  # of the commit
TIMES = 4  # the seeds are asked as one batch: a net that tosses one coin a batch escapes once in eight
ALONE = 16  # seeds that are asked without company too
MOST = 1000  # repeats


@dataclass(frozen=True, slots=True)
class Confirm:
    """A failure is stored where it fails in at least ``k`` of ``n`` repeats, each ``alone`` in its batch or not."""

    k: int = 1
    n: int = 1
    alone: bool = False

    @staticmethod
    def parse(text: str) -> "Confirm":
        """From ``4/5``.

        >>> Confirm.parse("4/5")
        Confirm(k=4, n=5, alone=False)
        """
        match = re.fullmatch(r"\s*(\d{1,5})\s*/\s*(\d{1,5})\s*", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MOST:
            raise UsageError(
                f"--confirm is K/N, in how many of N repeats a failure must fail, such as 4/5; got {text!r}"
            )
        return Confirm(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.k}/{self.n}"


UNSTABLE = Confirm(4, 5)  # of a model that changes its mind, unless asked otherwise


def check_confirm(text: str, target: Target) -> None:
    """Refuse, before the run, repeats that cannot be asked."""
    if not text:
        return
    Confirm.parse(text)
    if isinstance(target, Asked):
        raise UsageError(
            f"--confirm {text} asks again, and this target's answers are kept and never asked for twice; "
            '--ask "repeats=5" has every input answered by a vote'
        )


def stability_of(folder: Store, target: Target, seeds: Cases, rng: Stream, asked: str) -> Confirm:
    """How failures of this run are confirmed: by what the probe found, committed, unless ``asked`` says."""
    if next(folder.commits(KIND), None) is None and not any(folder.commits("fuzz")):
        found = _probe(target, seeds, rng)
        confirm = Confirm.parse(asked) if asked else UNSTABLE if found["warnings"] else Confirm()
        folder.commit({}, kind=KIND, confirm=str(confirm), **found)
    told = stability(folder)
    if told is None:  # begun before there was a probe: it goes on as it began
        return Confirm.parse(asked) if asked else Confirm()
    for name in told["warnings"]:
        log.warning("%s: %s", name, words(told)[name])
    return replace(Confirm.parse(told["confirm"]), alone="batch_dependent" in told["warnings"])


def keeps_still(targets: Iterable[Target], x: Tensor) -> bool:
    """Whether no net changes when it is asked, so that it may be asked twice at the same time.

    One that counts its calls or keeps a running mean may not: two streams of a GPU would write into each other's.
    """
    for target in targets:
        net = _net(target)
        if net is None:
            continue
        try:
            with target.ready():
                if changed_by(net, lambda target=target: answer(target, x, Chunks(len(x)))):  # type: ignore[misc]  # bound now
                    return False
        except ModelFailed:  # what it does to itself is not known
            return False
    return True


def _net(target: object) -> nn.Module | None:
    """The net of a target, or of the one that it stands before."""
    while target is not None:
        module = getattr(target, "module", None)
        if isinstance(module, nn.Module):
            return module
        target = getattr(target, "target", None)
    return None


def stability(folder: Store) -> dict[str, Any] | None:
    """What the probe of a run told: of how many seeds ``asked`` how many kept their class and their scores."""
    line = next(folder.commits(KIND), None)
    if line is None:
        return None
    names = ("asked", "same_class", "same_scores", "warnings", "reason", "confirm")
    told = {name: line.meta[name] for name in names if name in line.meta}
    return {"share": round(told["same_class"] / told["asked"], 6) if told["asked"] else None, **told}


def words(told: dict[str, Any]) -> dict[str, str]:
    """The warnings of a probe, as the trust checks word them, with what comes of it."""
    k, _, n = told["confirm"].partition("/")
    moved = told["asked"] - told["same_scores"]
    after = f"a failure is stored where it fails {k} of {n} times, others go to flaky/"
    texts = {
        "randomised": f"{RANDOMISED} ({moved} of {told['asked']} seeds); {after}",
        "batch_dependent": f"{BATCH_DEPENDENT.format(moved, told['asked'])}; {after}, asked alone",
    }
    return {name: texts[name] for name in told["warnings"]}


def _probe(target: Target, seeds: Cases, rng: Stream) -> dict[str, Any]:
    none: dict[str, Any] = {"asked": 0, "same_class": 0, "same_scores": 0, "warnings": []}
    if isinstance(target, Asked):
        return none | {"reason": "no input is asked twice: answers are kept; --ask repeats=3 tells"}
    look = Look(target, seeds, Facts(Share(0, 0), {}, None, {}, None, cascade=True), rng)
    try:
        return once_more(lambda: _asked_again(look), "asking whether its answers stay the same")
    except ModelFailed as error:  # a unit of seeds that it fails on is skipped; the others are worth working
        log.warning("whether the model's answers stay the same is not known: %s", error)
        return none | {"reason": str(error)}


def _asked_again(look: Look) -> dict[str, Any]:
    x = look.sample.x
    first = look.ask(x)
    moved = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    turned = moved.clone()
    for _ in range(TIMES - 1):
        again = look.ask(x)
        now = look.unlike(first, again)
        moved |= now
        turned |= now & (again.argmax(1) != first.argmax(1))  # a tie that rounding breaks is no change of mind
    warnings = ["randomised"] if bool(moved.any()) else []
    if not warnings:
        there = torch.linspace(0, len(x) - 1, min(ALONE, len(x)), device=x.device).round().long()
        alone = torch.cat([look.ask(x[row : row + 1]) for row in there.tolist()])
        moved[there] = look.unlike(first[there], alone)
        turned[there] = moved[there] & (alone.argmax(1) != first[there].argmax(1))
        warnings = ["batch_dependent"] if bool(moved.any()) or look.swayed else []
    kept = {"same_class": int((~turned).sum()), "same_scores": int((~moved).sum())}
    return {"asked": len(x), **kept, "warnings": warnings}
