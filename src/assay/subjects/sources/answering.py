"""Targets that only answer: a function from inputs to probabilities, scores or labels, and what is checked of it."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.files import sha256
from assay.subjects.asked import FLOOR, log_probabilities
from assay.subjects.sources.module import grown
from assay.subjects.sources.patience import BadAnswer, Patience, printable
from assay.subjects.target import Need

log = logging.getLogger("assay")

Kind = Literal["probabilities", "scores", "labels"]
Inputs = NDArray[np.float32]
Ask = Callable[[Inputs], Any]

_SUM = 0.02  # how far from 1 rows of probabilities may sum: services round them


class Answering:
    """A target made of a function that takes a float32 batch (n, *shape) and answers.

    An answer is (n, K) probabilities, (n, K) raw scores, of which the softmax is taken, or (n,) labels as numbers or
    names of classes. The first answer says which, unless ``kind`` does; another kind later is an error. Scores are
    log p, or one-hot where only labels are known. Until it is ``settled`` the first answer also says how many classes
    there are, where the spec names fewer.

    Rows inside [0, 1] that sum to less than 1, but to more than ``least``, are probabilities that were cut to the
    largest or rounded: they are made to sum to 1.
    """

    def __init__(
        self,
        ask: Ask,
        spec: InputSpec,
        *,
        name: str,
        identity: str,
        batch: int = 256,
        kind: Kind | None = None,
        settled: bool = True,
        least: float = 0.5,
        patience: Patience | None = None,
        on_retry: Callable[[int], None] | None = None,
    ) -> None:
        self.ask, self.spec, self.name, self.identity = ask, spec, name, identity
        self.batch, self.kind, self.settled, self.on_retry = batch, kind, settled, on_retry
        self.least, self._by_itself, self._warned = least, settled, False
        self.patience = patience or Patience()
        self.device = torch.device("cpu")

    @property
    def gives(self) -> frozenset[Need]:
        return frozenset({"label"}) if self.kind == "labels" else frozenset({"label", "prob"})

    def fingerprint(self) -> str:
        return sha256(f"{self.identity}{self.spec!r}".encode())[:16]

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """Nothing has to be set up."""
        yield

    def __call__(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.spec.shape:
            raise UsageError(f"{self.name} takes inputs of shape {self.spec.shape}, got {tuple(x.shape[1:])}")
        rows = np.ascontiguousarray(x.detach().cpu().numpy(), np.float32)
        parts = [self._answered(rows[i : i + self.batch]) for i in range(0, len(rows), self.batch)]
        return (torch.cat(parts) if parts else torch.zeros(0, len(self.spec.classes))).to(x.device)

    def _answered(self, rows: Inputs) -> Tensor:
        """The scores of one question's inputs, asked again as long as patience lasts."""
        return self.patience.persist(
            lambda: self.scores(self.ask(rows), len(rows)),
            self.name,
            inputs=len(rows),
            again=lambda: self.on_retry(len(rows)) if self.on_retry is not None else None,
        )

    def scores(self, answer: Any, n: int) -> Tensor:
        """The answer to ``n`` inputs as scores (n, K), after every check."""
        told = _array(answer)
        if told.ndim == 2 and told.shape[1] == 1 and told.dtype.kind != "f":
            told = told[:, 0]
        if told.ndim not in (1, 2) or len(told) != n:
            raise BadAnswer(
                f"must answer {n} inputs with probabilities ({n}, classes) or labels ({n},); "
                f"it gave {told.dtype} {told.shape}"
            )
        return self._from_labels(told) if told.ndim == 1 else self._from_rows(told)

    def _from_labels(self, told: NDArray[Any]) -> Tensor:
        self._settle("labels")
        k = len(self.spec.classes)
        if k < 2:
            raise UsageError(
                f"{self.name} answers with labels, and nothing tells how many classes there are; "
                'use data that name them, or --ask "classes=10"'
            )
        if told.dtype.kind in "US":
            place = {name: i for i, name in enumerate(self.spec.classes)}
            strange = [str(name) for name in told if str(name) not in place]
            if strange:
                raise BadAnswer(
                    f"answered with the class {printable(strange[0], 60)!r}, which is none of the {k} known"
                )
            told = np.array([place[str(name)] for name in told])
        if told.dtype.kind == "f" and np.isfinite(told).all() and (told == np.rint(told)).all():
            told = told.astype(np.int64)
        if told.dtype.kind not in "iu":
            raise BadAnswer(f"must answer with labels that are whole numbers or names of classes; it gave {told.dtype}")
        if len(told) and not 0 <= told.min() <= told.max() < k:
            wrong = told.min() if told.min() < 0 else told.max()
            raise BadAnswer(f"answered with the label {wrong}, the classes are 0..{k - 1}")
        return F.one_hot(torch.from_numpy(told.astype(np.int64)), k).float()

    def _from_rows(self, told: NDArray[Any]) -> Tensor:
        if told.dtype.kind not in "fiu":
            raise BadAnswer(f"must answer with numbers; it gave {told.dtype}")
        rows = torch.from_numpy(told.astype(np.float64))
        if not rows.isfinite().all():
            bad = int((~rows.isfinite().all(1)).sum())
            raise BadAnswer(f"answered NaN or infinity to {bad} of {len(rows)} inputs")
        self._settle("probabilities" if self._are_shares(rows) else "scores", rows.shape[1])
        return log_probabilities(rows.clamp_min(FLOOR).log() if self.kind == "probabilities" else rows)

    def _are_shares(self, rows: Tensor) -> bool:
        """Whether rows are probabilities, be it cut or rounded ones."""
        sums = rows.sum(1)
        if not bool(((rows >= -1e-6) & (rows <= 1 + 1e-6)).all()) or not bool((sums <= 1 + _SUM).all()):
            return False
        if bool((sums >= 1 - _SUM).all()):
            return True
        if self.kind in ("scores", "labels") or not bool((sums > self.least).all()):
            return False
        if not self._warned:
            log.warning(
                "%s answers with probabilities that sum to no more than %.3g, as if cut or rounded; they are scaled",
                self.name,
                float(sums.min()),
            )
        self._warned = True
        return True

    def _settle(self, kind: Kind, outputs: int | None = None) -> None:
        """Learn from the first answer; hold every later one against it."""
        if outputs is not None and outputs != len(self.spec.classes):
            if self.settled:
                known = len(self.spec.classes)
                right = not self._by_itself and outputs > max(known, 1)  # no --ask has a say in what a target tells
                hint = f'; if it is right, say --ask "classes={outputs}"' if right else ""
                raise BadAnswer(f"answered with {outputs} scores an input, there are {known} classes{hint}")
            self.spec = grown(self.spec, outputs, self.name)
        if self.kind is None:
            if kind == "scores":
                log.warning("%s answers with scores that are no probabilities; the softmax is taken of them", self.name)
            self.kind = kind
        elif kind != self.kind and not (self.kind == "scores" and kind == "probabilities"):
            raise BadAnswer(f"answered with {kind}, and with {self.kind} before (or so it said)")
        self.settled = True


def _array(answer: Any) -> NDArray[Any]:
    """What came back as an array of numbers or names."""
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu().float().numpy() if answer.is_floating_point() else answer.detach().cpu().numpy()
    try:
        told = np.asarray(answer)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadAnswer(f"gave {type(answer).__name__}, which is no array: {error}") from error
    if told.dtype.kind == "O" and told.ndim == 1 and all(isinstance(each, str) for each in told):
        told = told.astype(str)
    if told.dtype.kind not in "fiuUS":
        raise BadAnswer(f"gave {type(answer).__name__} of {told.dtype}; probabilities or labels are wanted")
    return told
