"""MetaSel: the cases that a model of the model expects to be wrong, from its own answers and those of a stand-in."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import UsageError
from assay.core.ids import input_ids
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.core.specs import did_you_mean
from assay.stages.imitation import Extraction
from assay.stages.selectors.ranking import ranked
from assay.stages.stand_in import begin, stand_in
from assay.subjects.bench import Bench
from assay.subjects.target import answer

Numbers = NDArray[np.float64]

METAS = ("mlp", "logistic")
FLOOR = float(np.log(1e-12))  # the smallest log probability that targets which only answer can tell
LEAST = 5  # inputs that the target gets wrong, and right: below, nothing can be learned from them


# Paper: a fine-tuned model and the pre-trained one it came from; their logits, the difference of these, whether the two
# classes are equal, and the ODIN score of each; a meta-model learns from labelled inputs which ones are misclassified.
# Here: the target and its stand-in, because a black box has no other model; log probabilities in the place of logits,
# which a black box does not tell; ODIN's temperature without its step along the gradient, which a black box does not
# have. Which meta-model the paper takes could not be read: a small net, or a logistic regression (meta=logistic).
@register("selector", paper="Abbasishahkoo et al. 2025 (MetaSel)", needs=("prob", "start"))
def metasel(
    bench: Bench,
    cases: Cases,
    k: int,
    *,
    rng: Stream,
    net: str = "lenet5",
    tau: float = 0.95,
    rounds: int = 6,
    start: int = 200,
    check: int = 1000,
    labelled: int = 5000,
    temperature: float = 1000.0,
    meta: str = "mlp",
) -> Tensor:
    """The k cases that are most likely wrong by a meta-model of the target's and its stand-in's answers.

    The meta-model learns from ``labelled`` inputs of the training data with labels, which are no others than those:
    none of the stand-in's, and none of the cases. ``net`` to ``check`` are those of the stand-in, see ``lbt``.

    Formula: the k largest P(wrong | ln p, ln q, ln p − ln q, [argmax p = argmax q], ODIN p, ODIN q), p of the
    target, q of its stand-in.
    """
    if meta not in METAS:
        raise UsageError(f"metasel has no meta-model {meta!r}; {did_you_mean(meta, METAS)}")
    if labelled < 2 * LEAST or temperature <= 0:
        raise UsageError(
            f"metasel needs {2 * LEAST} labelled inputs at least and a temperature above 0, got {labelled} and "
            f"{temperature}"
        )
    if not len(cases):
        return torch.empty(0, dtype=torch.int64)
    how = Extraction(net, tau, rounds, start, check)
    shared = Stream(rng.seed, ("lbt",))  # the stand-in is that of lbt, and variants ask about the same inputs
    made = stand_in(bench, how, shared, cases.x)
    bench.kept["stand-in"] = made
    known = _labelled(bench, [*begin(bench, how, shared, cases.x), cases.x], labelled, shared.at("labelled"))

    def seen(some: Cases) -> Cases:
        """With the answers of both."""
        return some.note(logits=bench.logits(some).cpu(), other=answer(made.target, some.x, bench.chunks).cpu())

    def told(some: Cases) -> Numbers:
        return features(some.info["logits"], some.info["other"], temperature)

    known = seen(known)
    wrong = known.info["logits"].argmax(1) != known.y
    model = Meta.of(told(known), wrong.numpy(), meta, rng.at("meta"))
    facts = {"labelled": len(known), "labelled_wrong": int(wrong.sum()), "meta": meta}
    bench.tell({"stand_in": made.to_json(), **facts})
    return ranked(torch.from_numpy(model.wrong(told(seen(cases)))), largest=True)[:k]


def features(own: Tensor, other: Tensor, temperature: float) -> Numbers:
    """What the meta-model looks at, (N, 3 K + 3) float64: the log probabilities of the target and of its stand-in,
    their difference, whether the classes are equal, and how sure each is at that temperature.
    """
    scores = [log_probabilities(answers) for answers in (own, other)]
    equal = (scores[0].argmax(1) == scores[1].argmax(1)).double()[:, None]
    sure = [(some / temperature).softmax(1).amax(1, keepdim=True) for some in scores]
    return torch.cat([*scores, scores[0] - scores[1], equal, *sure], 1).numpy()


def log_probabilities(scores: Tensor) -> Tensor:
    """The logarithms of the softmax, none smaller than a black box can tell, (N, K) float64."""
    return scores.double().log_softmax(1).clamp_min(FLOOR)


@dataclass(frozen=True, slots=True)
class Meta:
    """A classifier of answers: which of them are wrong; features have mean 0 and deviation 1 where it learned."""

    model: Any
    mean: Numbers
    scale: Numbers

    @staticmethod
    def of(x: Numbers, wrong: NDArray[np.bool_], kind: str, rng: Stream) -> "Meta":
        """Learned from features (N, F) and whether the target is wrong, (N,)."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.neural_network import MLPClassifier

        count = int(wrong.sum())
        if min(count, len(wrong) - count) < LEAST:
            raise UsageError(
                f"metasel learns from inputs that the model gets wrong, and of {len(wrong)} labelled ones it gets "
                f"{count} wrong; {LEAST} of each kind are needed: give more, metasel(labelled=…), or labelled inputs "
                "that it was not trained with: --training DATA"
            )
        mean, scale = x.mean(0), x.std(0)
        scale = np.where(scale > 0, scale, 1.0)
        seed = rng.generator().initial_seed() % 2**31
        model = (
            LogisticRegression(max_iter=2000, class_weight="balanced")
            if kind == "logistic"
            else MLPClassifier((64,), alpha=1e-2, max_iter=200, random_state=seed)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # some way to the end is near enough for an order
            model.fit((x - mean) / scale, wrong)
        return Meta(model, mean, scale)

    def wrong(self, x: Numbers) -> Numbers:
        """The probability that each answer is wrong, (N,) float64."""
        place = list(self.model.classes_).index(True)
        told: Numbers = self.model.predict_proba((x - self.mean) / self.scale)[:, place]
        return told


def _labelled(bench: Bench, apart: list[Tensor], number: int, rng: Stream) -> Cases:
    """So many drawn inputs of the training data that have labels, none of them one of those ``apart``."""
    assert bench.training is not None  # the stand-in has refused it
    cases, seen = bench.training.cases, {name for some in apart for name in input_ids(some)}
    rows: list[int] = []
    for row in torch.randperm(len(cases), generator=rng.generator()).tolist():
        if int(cases.y[row]) == UNLABELLED:
            continue
        (name,) = input_ids(cases.x[row : row + 1])
        if name not in seen:
            seen.add(name)
            rows.append(row)
        if len(rows) == number:
            break
    return Cases.of(cases.x[rows], cases.y[rows])
