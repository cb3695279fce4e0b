"""The experiments of RobOT (ICSE 2021): rows appended to a file, and the page made from them.

    python benchmarks/papers/robot.py rq2 arms rq1 rq3 --data mnist fashion-mnist --device cuda
    python benchmarks/papers/robot.py page            (or: make papers)

rq2   which cases of an attack-made pool to retrain on: BE-ST, KM-ST, DeepGini and random, 1 to 10 % of the pool
arms  what helps under fresh attack too: cases made anew every round, selection inside the rounds
rq1   FOL of fresh examples against robustness, with adversarially trained nets beside the retrained ones
rq3   FOL-Fuzz against an attack-made pool at equal time
A row that is in the file is not computed again, so a stopped command goes on where it was.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.robot

from assay.core.cases import Cases
from assay.core.registry import bind
from assay.core.specs import step
from papers.grid import ADVERSARIAL, ARMS, FACTORS, MAIN_EPS, SELECTORS, SIZES, SOURCES, TIMES
from papers.page import write_page
from papers.rows import Rows
from papers.rq3 import compared
from papers.subject import PLANS, POOL, WHITE, Subject, trainer
from papers.turns import side_by_side

ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    rows = Rows(args.rows)
    for task in args.task:
        if task == "page":
            write_page(rows, args.out)
            continue
        for data in args.data:
            for eps in args.eps or [MAIN_EPS[data]]:
                for seed in args.seeds:
                    _Work(args, rows, data, eps, seed).run(task)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="+", choices=["rq1", "rq2", "arms", "rq3", "page"])
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"], choices=list(PLANS))
    parser.add_argument("--eps", nargs="+", type=float, help="default: 0.1, for cifar10 0.01")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--sizes", nargs="+", type=float, default=list(SIZES), help="shares of the pool")
    parser.add_argument("--select", nargs="+", default=list(SELECTORS), choices=list(SELECTORS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--times", nargs="+", type=float, default=list(TIMES), help="seconds of rq3")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--limit", type=int, default=0, help="train on so many images, test on a fifth of that")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=4, help="rows computed at once on a GPU")
    parser.add_argument("--rows", type=Path, default=ROOT / "docs" / "papers" / "robot.jsonl")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "papers-robot", help="where plain nets are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "papers", help="folder of the page")
    return parser


class _Work:
    """The rows of one data set, eps and seed; the net and its pool are made when the first row asks for them."""

    def __init__(self, args: argparse.Namespace, rows: Rows, data: str, eps: float, seed: int) -> None:
        self.args, self.rows, self.data, self.eps, self.seed = args, rows, data, eps, seed
        self._subject: Subject | None = None

    @property
    def subject(self) -> Subject:
        if self._subject is None:
            a = self.args
            self._subject = Subject(self.data, self.eps, self.seed, a.device, a.work, a.limit)
        return self._subject

    def run(self, task: str) -> None:
        """Fill what is missing. Small nets leave most of a GPU idle, so several rows are computed at once there."""
        tasks = {"rq1": self.rq1, "rq2": self.rq2, "arms": self.arms, "rq3": self.rq3}
        missing = [(protocol, compute) for protocol, compute in tasks[task]() if not self.rows.has(protocol)]
        if not missing:
            return

        def fill(job: tuple[dict[str, Any], Any]) -> None:
            started = time.perf_counter()
            numbers = self.rows.fill(*job)["numbers"]
            told = " ".join(f"{k} {numbers[k]:.3f}" for k in ("clean", "static", "white"))
            print(f"{_label(job[0])}: {told}, {time.perf_counter() - started:.1f} s", flush=True)

        if self.subject.f0.device.type == "cuda" and self.args.workers > 1:
            _ = self.subject.pool, self.subject.static_test, self._validation()  # before the threads, which read them
            side_by_side(fill, missing, self.args.workers, self.subject.turns)
        else:
            for job in missing:
                fill(job)

    def protocol(self, experiment: str, **more: Any) -> dict[str, Any]:
        plan = PLANS[self.data]
        return {
            "experiment": experiment,
            "data": self.data,
            "net": plan.net,
            "base": dict(plan.base),
            "eps": self.eps,
            "norm": "linf",
            "seed": self.seed,
            "pool": list(POOL),
            "white": WHITE,
            **({"limit": self.args.limit} if self.args.limit else {}),
            **more,
        }

    def rq2(self) -> Iterator[tuple[dict[str, Any], Any]]:
        retrain = dict(PLANS[self.data].retrain)
        yield self.protocol("f0"), lambda: self.subject.measured(self.subject.module)
        control = self.protocol("rq2", select="none", share=0.0, trainer="plain", retrain=retrain)
        yield control, lambda: self._selected("none", 0.0)
        for share in self.args.sizes:
            for name in self.args.select:
                told = {"select": SELECTORS[name], "share": share, "trainer": "plain", "retrain": retrain}
                yield self.protocol("rq2", **told), lambda n=name, s=share: self._selected(n, s)

    def _selected(self, name: str, share: float) -> dict[str, Any]:
        """Retrained once on a selection from the pool."""
        subject, extra, told = self.subject, None, {}
        if share:
            extra = chosen(subject, subject.f0, subject.pool, round(len(subject.pool) * share), SELECTORS[name], "rq2")
            told = {"cases": len(extra), "picked": subject.picked(extra)}
        fit = trainer("plain", subject.plan.retrain)
        started = time.perf_counter()
        net = subject.retrained(subject.module, extra, self._validation(), fit, "retrain")
        return subject.measured(net) | told | {"train_seconds": round(time.perf_counter() - started, 2)}

    def _validation(self) -> Any:
        if not hasattr(self, "_val"):
            self._val = self.subject.validation(self.subject.f0)
        return self._val

    def arms(self) -> Iterator[tuple[dict[str, Any], Any]]:
        retrain = dict(PLANS[self.data].retrain)
        for share in self.args.sizes:
            for name in self.args.arms:
                told = {"arm": name, **ARMS[name], "share": share, "trainer": "plain", "retrain": retrain}
                yield self.protocol("arms", **told), lambda n=name, s=share: self._in_rounds(ARMS[n], s)

    def _in_rounds(self, arm: Mapping[str, Any], share: float) -> dict[str, Any]:
        """Retrained in rounds, each on its own cases: PGD examples of random training images."""
        subject, rounds = self.subject, arm["rounds"]
        plan = dict(subject.plan.retrain) | {"epochs": subject.plan.retrain["epochs"] // rounds}
        total = round(2 * len(subject.part("train")) * share)
        each = total if arm["heap"] == "last" else total // rounds
        net, heap = subject.module, list[Cases]()
        for i in range(rounds):
            current = subject.target(net)
            made = self._made(subject.f0 if arm["make"] == "f0" else current, arm, each, i)
            heap = [made] if arm["heap"] == "last" else [*heap, made]
            extra = Cases.cat(heap)
            val = self._validation() if arm["make"] == "f0" else subject.validation(current)
            net = subject.retrained(net, extra, val, trainer("plain", plan), f"round {i}")
        return subject.measured(net) | {"cases": len(extra), "made": rounds * each * arm["candidates"]}

    def _made(self, target: Any, arm: Mapping[str, Any], count: int, i: int) -> Cases:
        subject = self.subject
        rng = subject.rng.at("round", i)
        train = subject.part("train")
        some = torch.randperm(len(train), generator=rng.generator())[: count * arm["candidates"]].to(train.x.device)
        made = subject.attacked(target, train[some], POOL[1], rng)
        made = made.note(fol=subject.score(target, made, "fol"))
        return chosen(subject, target, made, count, arm["select"], f"round {i}")

    def rq1(self) -> Iterator[tuple[dict[str, Any], Any]]:
        for factor in FACTORS:
            told = {"trainer": "adversarial", "retrain": ADVERSARIAL, "train_eps": round(factor * self.eps, 6)}
            yield self.protocol("adversarial", **told), lambda f=factor: self._adversarial(f * self.eps)

    def _adversarial(self, eps: float) -> dict[str, Any]:
        """The upper control: every batch attacked anew."""
        subject = self.subject
        fit = trainer("adversarial", ADVERSARIAL, [("eps", eps), ("norm", "linf")])
        started = time.perf_counter()
        net = subject.retrained(subject.module, None, subject.splits.part("val"), fit, "adversarial")
        return subject.measured(net) | {"train_seconds": round(time.perf_counter() - started, 2)}

    def rq3(self) -> Iterator[tuple[dict[str, Any], Any]]:
        retrain = dict(PLANS[self.data].retrain)
        for seconds in self.args.times:
            for source in self.args.sources:
                told = {"source": source, "time": seconds, "trainer": "plain", "retrain": retrain}
                yield (
                    self.protocol("rq3", **told),
                    lambda s=source, t=seconds: compared(self.subject, self._validation(), s, t),
                )


def chosen(subject: Subject, target: Any, cases: Cases, k: int, select: str, path: str) -> Cases:
    """The k cases a selector picks; fol and gini are read from the columns where they are."""
    name, params = step(select)
    rows = bind("selector", name, params)(subject.bench(target), cases, k, rng=subject.rng.at("select", path))
    return cases[rows.to(cases.x.device)]


def _label(protocol: Mapping[str, Any]) -> str:
    shown = ("experiment", "data", "eps", "seed", "select", "arm", "share", "train_eps", "source", "time")
    return " ".join(str(protocol[k]) for k in shown if k in protocol)


if __name__ == "__main__":
    sys.exit(main())
