"""The experiments of RobOT (ICSE 2021): rows appended to a file, and the page made from them.

    python benchmarks/papers/robot.py rq2 arms rq1 pools transfer rq3 --data mnist fashion-mnist --device cuda
    python benchmarks/papers/robot.py page            (or: make papers)

rq2       which cases of an attack-made pool to retrain on: BE-ST, KM-ST, DeepGini and random, 1 to 10 % of the pool
arms      what helps under fresh attack too: cases made anew every round, selection inside the rounds
rq1       FOL of fresh examples against robustness, with adversarially trained nets beside the retrained ones
pools     as rq2, on the pools that DeepXplore, DLFuzz and ADAPT make within a time; of FOL-Fuzz's, random cases
transfer  nets of rq2 on the tests that these tools make of test images (Table IV)
rq3       FOL-Fuzz, the tools, an attack and noise at equal time (Table V)
make      only the pools and tests of these, one after the other: equal times ask for a machine that does nothing else
A row that is in the file is not computed again, so a stopped command goes on where it was.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.robot

from assay.core.cases import Cases
from assay.core.registry import bind
from assay.core.specs import step
from assay.subjects.sources.load import pick_device
from papers.grid import ADVERSARIAL, ARMS, FACTORS, MAIN_EPS, SELECTORS, SIZES, TIMES
from papers.makers import MAKERS, TOOLS, Makers, recipe
from papers.page import write_page
from papers.rows import Rows
from papers.subject import PLANS, POOL, WHITE, Subject, trainer
from papers.turns import side_by_side

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("rq1", "rq2", "arms", "pools", "transfer", "rq3")
Job = tuple[dict[str, Any], Any]  # a protocol, and what computes its numbers


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    rows = Rows(args.rows)
    tasks = [task for task in args.task if task != "page"]
    for data in args.data if tasks else []:
        for eps in args.eps or [MAIN_EPS[data]]:
            for seed in args.seeds:
                work = _Work(args, rows, data, eps, seed)
                for task in tasks:
                    work.run(task)
    if "page" in args.task:
        write_page(rows, args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="+", choices=[*TASKS, "make", "page"])
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"], choices=list(PLANS))
    parser.add_argument("--eps", nargs="+", type=float, help="default: 0.1, for cifar10 0.01")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--sizes", nargs="+", type=float, default=list(SIZES), help="shares of the pool")
    parser.add_argument("--select", nargs="+", default=list(SELECTORS), choices=list(SELECTORS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument(
        "--times", nargs="+", type=float, default=list(TIMES), help="seconds a maker has; pools: the last"
    )
    parser.add_argument("--makers", nargs="+", default=list(MAKERS.values()), choices=list(MAKERS.values()))
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
        self._makers: Makers | None = None

    @property
    def subject(self) -> Subject:
        if self._subject is None:
            a = self.args
            self._subject = Subject(self.data, self.eps, self.seed, a.device, a.work, a.limit)
        return self._subject

    @property
    def makers(self) -> Makers:
        if self._makers is None:
            self._makers = Makers(self.subject, self.args.work / "made", self.args.limit)
        return self._makers

    def run(self, task: str) -> None:
        """Fill what is missing. Small nets leave most of a GPU idle, so several rows are computed at once there."""
        if task == "make":
            wanted = [*self.pools(), *self.transfer(), *self.rq3()]
            self._make([protocol for protocol, _ in wanted if not self.rows.has(protocol)])
            return
        missing = [(protocol, compute) for protocol, compute in getattr(self, task)() if not self.rows.has(protocol)]
        if not missing:
            return
        self._make([protocol for protocol, _ in missing])  # before the threads, with the machine to itself

        def fill(job: Job) -> None:
            started = time.perf_counter()
            numbers = self.rows.fill(*job)["numbers"]
            told = " ".join(f"{k} {numbers[k]:.3f}" for k in ("clean", "static", "white"))
            print(f"{_label(job[0])}: {told}, {time.perf_counter() - started:.1f} s", flush=True)

        if self.subject.f0.device.type == "cuda" and self.args.workers > 1:
            _ = self.subject.static_test, self._validation()  # before the threads, which read them
            _ = self.subject.pool if task in ("rq2", "transfer") else None
            side_by_side(fill, missing, self.args.workers, self.subject.turns)
        else:
            for job in missing:
                fill(job)

    def _make(self, protocols: Sequence[Mapping[str, Any]]) -> None:
        """The pools and tests that rows ask for, one after the other."""
        for maker, seconds in dict.fromkeys((p["maker"], p["time"]) for p in protocols if "maker" in p):
            self.makers.pool(maker, seconds)
        for maker in dict.fromkeys(maker for p in protocols for maker in p.get("tests", ())):
            self.makers.tests(maker)

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

    def rq2(self) -> Iterator[Job]:
        retrain = dict(PLANS[self.data].retrain)
        yield self.protocol("f0"), lambda: self.subject.measured(self.subject.module)
        control = self.protocol("rq2", select="none", share=0.0, trainer="plain", retrain=retrain)
        yield control, lambda: self._selected("none", 0.0)
        for share in self.args.sizes:
            for name in self.args.select:
                told = {"select": SELECTORS[name], "share": share, "trainer": "plain", "retrain": retrain}
                yield self.protocol("rq2", **told), lambda n=name, s=share: self._selected(n, s)

    def _selected(self, name: str, share: float) -> dict[str, Any]:
        """Retrained once on a selection from the attack-made pool."""
        return self._learned(self._chosen(self.subject.pool, name, share) if share else None)[1]

    def _chosen(self, pool: Cases, name: str, share: float) -> Cases:
        """As many cases as that share of the attack-made pool, from this pool or that."""
        count = round(2 * len(self.subject.part("train")) * share)
        return chosen(self.subject, self.subject.f0, pool, count, SELECTORS[name], "rq2")

    def _learned(self, extra: Cases | None) -> tuple[nn.Module, dict[str, Any]]:
        """The net retrained on these cases too, and its numbers."""
        subject = self.subject
        told = {} if extra is None else {"cases": len(extra), "picked": subject.picked(extra)}
        started = time.perf_counter()
        fit = trainer("plain", subject.plan.retrain)
        net = subject.retrained(subject.module, extra, self._validation(), fit, "retrain")
        spent = round(time.perf_counter() - started, 2)
        return net, subject.measured(net) | told | {"train_seconds": spent}

    def _validation(self) -> Any:
        if not hasattr(self, "_val"):
            self._val = self.subject.validation(self.subject.f0)
        return self._val

    def arms(self) -> Iterator[Job]:
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

    def rq1(self) -> Iterator[Job]:
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

    def pools(self) -> Iterator[Job]:
        """FOL-Fuzz's pool is none of the paper's here; random cases of it serve RQ3, as many from each maker."""
        for maker in (m for m in TOOLS.values() if m in self.args.makers):
            for share in self.args.sizes:
                for name in self.args.select if maker != "robot" else ["random"]:
                    told = {"select": SELECTORS[name], "share": share, **self._made_by(maker, self.args.times[-1])}
                    yield self._tested("pools", **told), lambda m=maker, n=name, s=share: self._from_pool(m, n, s)

    def _from_pool(self, maker: str, name: str, share: float) -> dict[str, Any]:
        pool = self.makers.pool(maker, self.args.times[-1])
        net, numbers = self._learned(self._chosen(pool.cases, name, share))
        return numbers | pool.told | {"tests": self.makers.judged(net)}

    def transfer(self) -> Iterator[Job]:
        yield self._tested("transfer", select="f0", share=0.0), lambda: self._judged("f0", 0.0)
        yield self._tested("transfer", select="none", share=0.0), lambda: self._judged("none", 0.0)
        for share in self.args.sizes:
            for name in self.args.select:
                protocol = self._tested("transfer", select=SELECTORS[name], share=share)
                yield protocol, lambda n=name, s=share: self._judged(n, s)

    def _judged(self, name: str, share: float) -> dict[str, Any]:
        """A net of RQ2, trained again, on the tests of the tools."""
        if name == "f0":
            made = {maker: self.makers.tests(maker).told for maker in TOOLS.values()}
            numbers = self.subject.measured(self.subject.module) | {"tests_made": made}
            return numbers | {"tests": self.makers.judged(self.subject.module)}
        net, numbers = self._learned(self._chosen(self.subject.pool, name, share) if share else None)
        return numbers | {"tests": self.makers.judged(net)}

    def rq3(self) -> Iterator[Job]:
        for seconds in self.args.times:
            for maker in self.args.makers:
                protocol = self._tested("rq3", **self._made_by(maker, seconds))
                yield protocol, lambda m=maker, t=seconds: self._all_of(m, t)

    def _all_of(self, maker: str, seconds: float) -> dict[str, Any]:
        """Retrained on all that was found, or as many of it at random as there are training images."""
        pool = self.makers.pool(maker, seconds)
        extra = pool.cases[: len(self.subject.part("train"))]
        net, numbers = self._learned(extra if len(extra) else None)
        return numbers | {"cases": len(extra), **pool.told, "tests": self.makers.judged(net)}

    def _made_by(self, maker: str, seconds: float) -> dict[str, Any]:
        # A time says nothing without the machine.
        return {
            "maker": maker,
            "recipe": recipe(maker, self.eps),
            "time": seconds,
            "device": pick_device(self.args.device).type,
        }

    def _tested(self, experiment: str, **told: Any) -> dict[str, Any]:
        """The protocol of rows that also measure on the tests of tools."""
        retrain = dict(PLANS[self.data].retrain)
        return self.protocol(experiment, **told, tests=list(TOOLS.values()), trainer="plain", retrain=retrain)


def chosen(subject: Subject, target: Any, cases: Cases, k: int, select: str, path: str) -> Cases:
    """The k cases a selector picks; fol and gini are read from the columns where they are."""
    name, params = step(select)
    rows = bind("selector", name, params)(subject.bench(target), cases, k, rng=subject.rng.at("select", path))
    return cases[rows.to(cases.x.device)]


def _label(protocol: Mapping[str, Any]) -> str:
    shown = ("experiment", "data", "eps", "seed", "select", "arm", "share", "train_eps", "maker", "time")
    return " ".join(str(protocol[k]) for k in shown if k in protocol)


if __name__ == "__main__":
    sys.exit(main())
