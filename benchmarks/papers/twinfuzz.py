"""The experiments of TwinFuzz (AAAI 2026): rows appended to a file, and the page made from them.

    python benchmarks/papers/twinfuzz.py arms filters --data mnist fashion-mnist --device cuda
    python benchmarks/papers/twinfuzz.py page            (or: make papers)

arms      the resistant net retrained without cases, with those of each fuzzer, of TwinFuzz's ablations and of controls
filters   fuzzing alone, with other levels of the quality filter
A row that is in the file (or in one of --known) is not computed again, so a stopped command goes on where it was.
Processes side by side each take one net and seed and a --rows file of their own; cat joins the files.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.twinfuzz

from papers.rows import Row, Rows, key
from papers.twinfuzz_arms import ARMS, FILTERS, TRIED, Arm, Maker
from papers.twinfuzz_measure import IMAGES, Measure
from papers.twinfuzz_measure import protocol as measured_how
from papers.twinfuzz_page import write_page
from papers.twinfuzz_subject import KNOWN, MAIN_EPS, NETS, Twins, plan_of

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "docs" / "papers" / "twinfuzz.jsonl"
TASKS = ("arms", "filters")
BEFORE = ("plain", "resistant")  # the two nets as they are, measured like the others
Job = tuple[dict[str, Any], Any]  # a protocol, and what computes its numbers


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    rows = Rows(args.rows)
    known = [Rows(path) for path in args.known if path.resolve() != args.rows.resolve()]
    tasks = [task for task in args.task if task != "page"]
    for data in args.data if tasks else []:
        for net in args.nets or NETS[data]:
            for eps in args.eps or [MAIN_EPS[data]]:
                for seed in args.seeds:
                    _Work(args, (rows, *known), data, net, eps, seed).run(tasks)
    if "page" in args.task:
        write_page(joined([*known, rows]), args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="+", choices=[*TASKS, "page"])
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"], choices=list(NETS))
    parser.add_argument("--nets", nargs="+", choices=sorted(KNOWN), help="default: the two of each data set")
    parser.add_argument("--eps", nargs="+", type=float, help="default: mnist 0.3, fashion-mnist 0.1, cifar10 8/255")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--arms", nargs="+", default=[*BEFORE, *ARMS], choices=[*BEFORE, *ARMS, *TRIED])
    parser.add_argument("--cases", type=int, default=2000, help="cases that every arm with cases trains on")
    parser.add_argument("--pool", type=int, default=0, help="failures to pick from; default: three times --cases")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of fuzzing between two looks at the pool")
    parser.add_argument("--most", type=float, default=24.0, help="seconds of fuzzing after which a pool is what it is")
    parser.add_argument("--epochs", type=int, default=0, help="of retraining; default: 5")
    parser.add_argument("--resistant-epochs", type=int, default=0, help="default: 10")
    parser.add_argument("--limit", type=int, default=0, help="train on so many images, test on a fifth of that")
    parser.add_argument("--images", type=int, default=IMAGES, help="test images under attack; AutoAttack has half")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--known", nargs="*", type=Path, default=[ROWS], help="files with rows that are there already")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "papers-twinfuzz", help="where nets and runs are")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "papers", help="folder of the page")
    return parser


def joined(files: Sequence[Rows]) -> list[Row]:
    """The rows of all files, the last of those that are alike."""
    return list({key(row["protocol"]): row for rows in files for row in rows}.values())


class _Work:
    """The rows of one data set, net, eps and seed; the nets are made when the first row asks for them."""

    def __init__(
        self, args: argparse.Namespace, rows: Sequence[Rows], data: str, net: str, eps: float, seed: int
    ) -> None:
        self.args, self.rows, self.data, self.net, self.eps, self.seed = args, rows, data, net, eps, seed
        self.plan = plan_of(data, net, args.epochs, args.resistant_epochs)
        self.pool = args.pool or 3 * args.cases
        self._twins: Twins | None = None

    @property
    def twins(self) -> Twins:
        if self._twins is None:
            a, started = self.args, time.perf_counter()
            place = {"device": a.device, "work": a.work, "limit": a.limit}
            self._twins = Twins(self.data, self.net, self.eps, self.seed, **place, plan=self.plan)
            self._measure = Measure(self._twins, a.images)
            self._maker = Maker(self._twins, a.cases, self.pool, a.slice, a.most)
            print(f"{self.data} {self.net} {self.seed}: nets, {time.perf_counter() - started:.1f} s", flush=True)
        return self._twins

    def run(self, tasks: Sequence[str]) -> None:
        """Fill what is missing."""
        for task in tasks:
            for protocol, compute in getattr(self, task)():
                if any(rows.has(protocol) for rows in self.rows):
                    continue
                _ = self.twins  # before the clock starts
                started = time.perf_counter()
                numbers = self.rows[0].fill(protocol, compute)["numbers"]
                shown = ("clean", "fooling_new", "white_new", "near_new", "auto_near", "found", "cases")
                told = " ".join(f"{k} {numbers[k]:.4g}" for k in shown if numbers.get(k) is not None)
                print(f"{_label(protocol)}: {told}, {time.perf_counter() - started:.1f} s", flush=True)

    def protocol(self, experiment: str, arm: str, recipe: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "experiment": experiment,
            "data": self.data,
            "net": self.net,
            "eps": round(self.eps, 6),
            "norm": "linf",
            "seed": self.seed,
            "arm": arm,
            "recipe": dict(recipe),
            "base": self.plan.base,
            "resistant": self.plan.resistant,
            **more,
            **({"limit": self.args.limit} if self.args.limit else {}),
        }

    def arms(self) -> Iterator[Job]:
        more = {"retrain": self.plan.retrain, "cases": self.args.cases, **measured_how(self.args.images)}
        for name in self.args.arms:
            if name in BEFORE:
                yield self.protocol("arms", name, {}, **more), lambda n=name: self._as_is(n)
            else:
                arm = (ARMS | TRIED)[name]
                yield self.protocol("arms", name, self._made_how(arm), **more), lambda a=arm: self._arm(a)

    def filters(self) -> Iterator[Job]:
        for name, arm in FILTERS.items():
            yield self.protocol("filters", name, self._made_how(arm)), lambda a=arm: self._maker.fuzzed(a)

    def _made_how(self, arm: Arm) -> dict[str, Any]:
        """The arm's own part of a protocol; how long fuzzing may take says nothing without the machine."""
        told = arm.config(self.eps)
        if arm.make in ("fuzz", "mined"):
            told |= {"pool": self.pool, "slice": self.args.slice, "most": self.args.most}
        return told | ({"train": self.plan.adversarial} if arm.make == "adversarial" else {})

    def _as_is(self, name: str) -> dict[str, Any]:
        twins = self.twins
        target = twins.vulnerable if name == "plain" else twins.resistant
        heap = {"heap": len(twins.heap.learn), "kept_back": len(twins.heap.check)} if name == "resistant" else {}
        return self._measure(twins.module(target)) | heap

    def _arm(self, arm: Arm) -> dict[str, Any]:
        extra, told = self._maker.cases(arm)
        net, trained = self.twins.adversarial() if arm.make == "adversarial" else self.twins.retrained(extra)
        return self._measure(net) | told | trained


def _label(protocol: Mapping[str, Any]) -> str:
    return " ".join(str(protocol[k]) for k in ("experiment", "data", "net", "eps", "seed", "arm"))


if __name__ == "__main__":
    sys.exit(main())
