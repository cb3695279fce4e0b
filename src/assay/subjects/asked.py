"""A target whose every question is counted, answered once, and kept."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.core.cases import InputSpec
from assay.core.errors import BudgetSpent, UsageError
from assay.subjects.answer_book import AnswerBook, Rows, content_key
from assay.subjects.passed_on import PassedOn
from assay.subjects.queries import Queries, Why
from assay.subjects.target import Need, Target

FLOOR = 1e-12  # the least probability that is told apart from 0
_PART = 256  # inputs a question where the target does not say
_ANSWERS: frozenset[Need] = frozenset({"label", "prob"})


class Asked:
    """Another target as a black box: no input is sent twice, but for declared repeats and for retries.

    With ``repeats`` every input is sent that often, for targets that do not always answer the same: probabilities are
    averaged, labels go by majority, of equals the lowest. ``labels`` hides probabilities.
    """

    def __init__(
        self,
        target: Target,
        *,
        queries: int | None = None,
        repeats: int = 1,
        labels: bool = False,
        batch: int | None = None,
    ) -> None:
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise UsageError(f"repeats is how often each input is sent, from 1 up, got {repeats!r}")
        self.target, self.repeats, self.labels = target, repeats, bool(labels)
        self.batch = batch or int(getattr(target, "batch", _PART))  # the most inputs that go in one question
        self.book = AnswerBook(Queries(queries))
        if hasattr(target, "on_retry"):
            target.on_retry = lambda n: self.book.take(n, "retries")

    @property
    def queries(self) -> Queries:
        return self.book.queries

    @property
    def spec(self) -> InputSpec:
        return self.target.spec

    @property
    def gives(self) -> frozenset[Need]:
        return self.target.gives & (frozenset({"label"}) if self.labels else _ANSWERS)

    @property
    def device(self) -> torch.device:
        return self.target.device

    @property
    def unsteady(self) -> int:
        """How many inputs were given different labels when they were sent again."""
        return sum(len({int(a.argmax()) for a in answers[: self.repeats]}) > 1 for answers in self.book.all())

    def affordable(self) -> int | None:
        """How many new inputs the budget still allows, as long as none has to be sent again; None without a limit."""
        left = self.queries.left()
        return None if left is None else left // self.repeats

    def knows(self, x: Tensor) -> Tensor:
        """Which inputs of a batch have all their answers, (N,)."""
        rows = np.ascontiguousarray(x.detach().cpu().float().numpy())
        return torch.tensor([len(self.book.of(content_key(row))) >= self.repeats for row in rows], dtype=torch.bool)

    def unknown(self, x: Tensor) -> int:
        """How many different inputs of a batch have no answer yet."""
        rows = np.ascontiguousarray(x[~self.knows(x)].detach().cpu().float().numpy())
        return len({content_key(row) for row in rows})

    def keep(self, path: Path) -> None:
        """Write the answers and the count to that file from now on, and know those it has."""
        self.book.keep(path, self.fingerprint(), self._about())

    def see(self, x: Tensor, path: Path | None = None) -> None:
        """Send one input, be it known or not, to learn what the target answers with.

        With a path it is counted there before it is sent, as is every further attempt; the file is left afterwards,
        for whoever has the run to go on with.
        """
        if path is not None:
            self.book.keep(path, self.fingerprint(), {})
        try:
            left = self.queries.left()
            if left is not None and left < self.repeats:
                raise BudgetSpent(self.queries.limit or 0, self.queries.asked, self.repeats)
            rows = np.ascontiguousarray(x.detach().cpu().float().numpy())
            self._send([content_key(row) for row in rows], rows, "first")
            self.book.settle(self.fingerprint(), self._about())
        finally:
            if path is not None:
                self.book.leave()

    def _about(self) -> dict[str, object]:
        return {"kind": getattr(self.target, "kind", None), "classes": list(self.spec.classes)}

    def ready(self) -> AbstractContextManager[object]:
        return self.target.ready()

    def fingerprint(self) -> str:
        how = f" labels={self.labels} repeats={self.repeats}" if self.labels or self.repeats > 1 else ""
        return self.target.fingerprint() + how.replace(" ", "-")

    def __call__(self, x: Tensor) -> Tensor:
        """Scores (N, K); inputs that are not in the book yet are sent, each once."""
        rows = np.ascontiguousarray(x.detach().cpu().float().numpy())
        keys = [content_key(row) for row in rows]
        new: dict[bytes, int] = {}
        for i, key in enumerate(keys):
            if len(self.book.of(key)) < self.repeats:
                new.setdefault(key, i)
        self.queries.known += len(keys) - len(new)
        waiting = list(new.items())
        while waiting:
            part = self._affordable(waiting[: self.batch])
            if not part:
                raise BudgetSpent(self.queries.limit or 0, self.queries.asked, sum(map(self._lacking, new)))
            self._ask(part, rows)
            waiting = waiting[len(part) :]
        width = len(self.spec.classes)
        found = [self._combined(self.book.of(key)[: self.repeats]) for key in keys]
        out = np.stack(found) if found else np.zeros((0, width), np.float32)
        return torch.from_numpy(out).to(x.device)

    def anew(self, x: Tensor) -> Tensor:
        """Scores (N, K) of inputs that are sent whether they are known or not; what is answered joins the book."""
        rows = np.ascontiguousarray(x.detach().cpu().float().numpy())
        wanted, left = len(rows) * self.repeats, self.queries.left()
        if left is not None and left < wanted:
            raise BudgetSpent(self.queries.limit or 0, self.queries.asked, wanted)
        found = []
        for row in rows:
            key = content_key(row)
            for _ in range(self.repeats):
                self._send([key], row[None], "repeats" if self.book.of(key) else "first")
            found.append(self._combined(self.book.of(key)[-self.repeats :]))
        return torch.from_numpy(np.stack(found)).to(x.device)

    def _lacking(self, key: bytes) -> int:
        return self.repeats - min(self.repeats, len(self.book.of(key)))

    def _affordable(self, part: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """As many of the part, from its start, as the budget still holds with all their repeats."""
        left = self.queries.left()
        costs = accumulate(self._lacking(key) for key, _ in part)
        return part if left is None else part[: sum(cost <= left for cost in costs)]

    def _ask(self, part: Sequence[tuple[bytes, int]], rows: Rows) -> None:
        """Send a part until each of its inputs has all its answers, one commit a question."""
        for turn in range(self.repeats):
            lacking = [(key, i) for key, i in part if len(self.book.of(key)) <= turn]
            if lacking:
                self._send([key for key, _ in lacking], rows[[i for _, i in lacking]], "repeats" if turn else "first")

    def _send(self, keys: Sequence[bytes], rows: Rows, why: Why) -> None:
        self.book.take(len(keys), why)
        try:
            with torch.no_grad():
                out = self._shown(self.target(torch.from_numpy(rows).to(self.device)).float().cpu())
        except BaseException:
            self.queries.lost(len(keys), why)
            raise
        self.book.add(keys, out.numpy(), why)

    def _shown(self, scores: Tensor) -> Tensor:
        """Of a target that gives more, no more than a black box shows."""
        if self.labels:
            return F.one_hot(scores.argmax(1), scores.shape[1]).float()
        return log_probabilities(scores) if "logit" in self.target.gives else scores

    def _combined(self, answers: Sequence[Rows]) -> Rows:
        """One row of scores from the answers to one input."""
        if self.labels or "prob" not in self.target.gives:
            votes = np.bincount([int(answer.argmax()) for answer in answers], minlength=len(answers[0]))
            one: Rows = np.eye(len(votes), dtype=np.float32)[votes.argmax()]
            return one
        if len(answers) == 1:
            return answers[0]
        mean: Rows = log_probabilities(torch.from_numpy(np.stack(answers)), mean=True).numpy()
        return mean


class Anew(PassedOn):
    """A target whose every question is sent, be its answer known or not: for who asks whether answers have changed."""

    def __init__(self, target: Asked) -> None:
        super().__init__(target)
        self.asked = target

    def __call__(self, x: Tensor) -> Tensor:
        return self.asked.anew(x)


def log_probabilities(scores: Tensor, *, mean: bool = False) -> Tensor:
    """The logarithm of softmax(scores), at least 1e-12 and summing to 1, as float32; of all rows' mean if so asked."""
    p = scores.double().softmax(1)
    p = (p.mean(0) if mean else p).clamp_min(FLOOR)
    return (p / p.sum(-1, keepdim=True)).log().float()
