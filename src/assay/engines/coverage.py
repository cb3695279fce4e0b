"""Coverage: what a test set reaches in a net, by any criteria, in one pass."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from assay.core.chunks import Chunks
from assay.core.deadline import limited
from assay.core.environment import version_of
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.core.specs import did_you_mean, steps
from assay.engines.blocks import BLOCK, Progress
from assay.engines.cluster import Cluster, cluster_of
from assay.engines.covering import Covering, CoverPool, points_of
from assay.engines.jobs import refuse_black_box
from assay.engines.pool import check_travels
from assay.engines.session import session
from assay.engines.siblings import siblings_of
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import Bitmap
from assay.stages.coverage.profile import profile_of
from assay.subjects.bench import Data, fitted
from assay.subjects.data.load import load_data, training_of
from assay.subjects.observer import Observer
from assay.subjects.sources.hub import pinned
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target

Model = str | nn.Module | Target


@dataclass(frozen=True, slots=True)
class Reached:
    """What one criterion found covered, of ``total`` (0 where it has no upper end).

    ``growth`` is what was covered after so many cases; ``layers`` have label, covered and total each, where the
    criterion counts cells of neurons.
    """

    covered: float
    total: int
    growth: tuple[tuple[int, float], ...]
    layers: tuple[tuple[str, int, int], ...]

    @property
    def share(self) -> float | None:
        return self.covered / self.total if self.total else None

    def to_json(self) -> dict[str, Any]:
        share = self.share
        told: dict[str, Any] = {
            "covered": self.covered,
            "total": self.total or None,
            "share": None if share is None else round(share, 6),
            "growth": [{"cases": n, "covered": covered} for n, covered in self.growth],
        }
        if self.layers:
            told["layers"] = [{"layer": name, "covered": c, "total": t} for name, c, t in self.layers]
        return told


@dataclass(frozen=True, slots=True)
class Covered:
    """What a test set covers, by criterion, with the layers that every number stands on."""

    criteria: dict[str, Reached]
    layers: str
    protocol: dict[str, Any]

    def __getitem__(self, name: str) -> Reached:
        """The numbers of a criterion, by its name or its whole text."""
        found = [reached for text, reached in self.criteria.items() if name in (text, text.partition("(")[0])]
        if len(found) != 1:
            what = "several criteria are" if found else "no criterion here is"
            raise UsageError(f"{what} called {name!r}; {did_you_mean(name, self.criteria)}")
        return found[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "criteria": {text: reached.to_json() for text, reached in self.criteria.items()},
            "layers": self.layers,
            "protocol": self.protocol,
        }

    def __repr__(self) -> str:
        numbers = ", ".join(f"{text} {_number(reached)}" for text, reached in self.criteria.items())
        return f"<{numbers}; {self.layers}>"


def _number(reached: Reached) -> str:
    return f"{reached.covered:g}" if reached.share is None else f"{reached.share:.4f}"


@limited
def coverage(
    model: Model | Callable[..., Any],
    data: str | Data,
    *,
    by: Any = "nc,kmnc,nbc,tknc",
    layers: str = "auto",
    training: str | Data | None = None,
    siblings: Sequence[Model] = (),
    white_box: bool = False,
    batch: int = BLOCK,
    size: str = "",
    device: str = "auto",
    deterministic: bool = False,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    call_timeout: str | float | None = None,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    progress: Progress | None = None,
) -> Covered:
    """What ``data`` cover in a model, by each of the criteria, in one forward pass for all of them.

    ``layers`` are auto, last, or patterns of names. Criteria that go by the range of neurons take it from ``training``,
    the training part of the same data set unless given. With ``siblings`` the neurons of those models count, too.
    ``white_box`` opens an ONNX file, which otherwise only answers. A call of the model that takes longer than
    ``call_timeout`` ends it. With ``ray`` (local, auto or an address) the data are looked at by ``workers`` of a Ray
    cluster, each with a ``gpu_share`` of a GPU where the model is on one; the numbers are the same.
    """
    cluster = cluster_of(ray, workers, gpu_share)
    if cluster is not None:
        refuse_black_box(model, None, "", white_box=white_box)
    criteria = {bound.text: bound() for bound in (bind("criterion", *step) for step in steps(by))}
    if not criteria:
        raise UsageError("name a criterion, such as nc or kmnc(k=1000); see assay list criterion")
    model = pinned(model)
    given = load_data(data, part="test", size=size, like=model)
    target = load_target(model, data=given, device=device, mean=mean, std=std, white_box=white_box)
    given = fitted(target, given)
    if cluster is not None:
        check_travels(target)
    nets = (target, *siblings_of(siblings, target, given, device, mean, std))
    observer = Observer.of(nets, layers, ends=any(criterion.ends for criterion in criteria.values()))
    known = None
    if any(criterion.profiled for criterion in criteria.values()):
        known = fitted(target, _training(training, given, size))
    with ExitStack() as open_for_run:
        open_for_run.enter_context(session(deterministic=deterministic))
        for net in nets:
            open_for_run.enter_context(net.ready())
        chunks = Chunks(batch)
        profile = None if known is None else profile_of(observer, known, chunks)
        coverages = {text: criterion.begin(observer, profile) for text, criterion in criteria.items()}
        work, x = _Work(coverages, progress or (lambda _: None)), given.cases.x
        if cluster is None:
            for cases, _ in Covering(observer, coverages, chunks).over(x, points_of(len(x))):
                work.note(cases, len(x))
        else:
            elsewhere = CoverPool(cluster, observer, coverages, batch)
            with closing(elsewhere.all(x, deterministic=deterministic)) as parts:  # workers go whatever happens here
                for cases, workers_now in parts:
                    work.note(cases, len(x), workers=workers_now)
    return Covered(work.result(), observer.text(), _protocol(model, observer, given, known, criteria))


def _training(training: str | Data | None, data: Data, size: str) -> Data:
    known = training_of(data, training, size=size)
    if known is None:
        raise UsageError(
            f"nothing says what the model was trained with, and {data.name} has no training part; give --training "
            "(training=… in Python), or criteria that need no profile: nc, tknc, bknc, tknp, nlc, cc"
        )
    return known


class _Work:
    """What each criterion found covered, and how it grew."""

    def __init__(self, coverages: dict[str, Coverage], progress: Progress) -> None:
        self.coverages, self.progress = coverages, progress
        self.growth: dict[str, list[tuple[int, float]]] = {text: [] for text in coverages}

    def note(self, cases: int, n: int, **told: Any) -> None:
        """So many of ``n`` cases are added; at 1, 2, 4, 8 … and all it is written down what is covered."""
        if cases == n or cases & (cases - 1) == 0:
            for text, coverage in self.coverages.items():
                self.growth[text].append((cases, coverage.covered()))
        self.progress({"done": cases, "of": n, **told})

    def result(self) -> dict[str, Reached]:
        return {
            text: Reached(
                self.growth[text][-1][1],
                coverage.total,
                tuple(self.growth[text]),
                tuple(coverage.per_layer()) if isinstance(coverage, Bitmap) else (),
            )
            for text, coverage in self.coverages.items()
        }


def _protocol(
    model: object, observer: Observer, data: Data, training: Data | None, criteria: dict[str, Criterion]
) -> dict[str, Any]:
    return {
        "model": model if isinstance(model, str) else "module",
        "model_fingerprint": [target.fingerprint() for target in observer.targets],
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "n": len(data),
        "training": None if training is None else training.name,
        "training_fingerprint": None if training is None else training.fingerprint(),
        "criteria": list(criteria),
        "layers": [
            [{"name": layer.label, "kind": layer.kind, "neurons": layer.width} for layer in layers.each]
            for layers in observer.layers
        ],
        "assay": version_of("assay"),
        "torch": torch.__version__,
    }
