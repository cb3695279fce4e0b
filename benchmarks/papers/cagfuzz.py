"""The experiments of CAGFuzz (Zhang et al. 2022): rows appended to a file, and the page made from them.

    python benchmarks/papers/cagfuzz.py subjects aeg --data mnist             (nets and generator, kept in --work)
    python benchmarks/papers/cagfuzz.py rq1 rq2 rq3 --data mnist --seeds 0 1 2 --device cuda
    python benchmarks/papers/cagfuzz.py trained --data mnist --device cuda    (RQ2 with generators trained less)
    python benchmarks/papers/cagfuzz.py smoke --device cpu                    (20 images of 224×224: cagfuzz_smoke.py)
    python benchmarks/papers/cagfuzz.py page                                  (or: make papers)

Rows that are there are not computed again. Processes side by side share --work, whose nets and generators are to be
made first, none of them by two, and each have a --rows file of their own; cat joins the files. --data takes any data
set, an .npz too. With --small all is small enough for a CPU, and the page leaves its rows out.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.cagfuzz

from assay.core.errors import AssayError
from papers import cagfuzz_rq1, cagfuzz_rq2, cagfuzz_rq3, cagfuzz_trained
from papers.cagfuzz_page import write_page
from papers.cagfuzz_smoke import run_smoke
from papers.cagfuzz_subject import DATA, REFERENCE, SMALL, WITNESS, Ground, Params, Scale
from papers.cagfuzz_tools import CAGFUZZ, TOOLS, Bank
from papers.rows import Rows

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "docs" / "papers" / "cagfuzz.jsonl"
NETS = ("models", "reference", "witness")
TASKS = ("subjects", "aeg", "rq1", "rq2", "rq3", "trained", "smoke", "page")
SIZES = ("train", "test", "grey", "colour", "images", "sample", "small_epochs", "retrain_epochs", "fresh", "candidates")


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    os.environ["ASSAY_CACHE"] = str(args.work / "cache")  # where generators are kept
    rows, started = Rows(args.rows), time.perf_counter()
    if {*args.task} - {"page", "smoke"}:
        for data in args.data:
            _Work(args, rows, data, started).run()
    if "smoke" in args.task:
        run_smoke(rows, args.work, args.device, args.small)
    if "page" in args.task:
        write_page(list(rows), args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="+", choices=TASKS)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--models", nargs="+", default=[], help="of the family; all where none are named")
    parser.add_argument(
        "--nets", nargs="+", default=["models", "reference", "witness"], help="of the subjects to train"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=[], help="of RQ1 and RQ3; all where none are named")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=TOOLS, help="of RQ2")
    parser.add_argument("--terms", nargs="+", default=list(cagfuzz_rq2.TERMS), choices=cagfuzz_rq2.TERMS)
    parser.add_argument("--aeg", default="", help="how the generator is made: epochs=8, width=32, …")
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="few images and epochs: a trial of the commands")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing that would not end by then")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/cagfuzz"), help="folder of nets, generators and sheets")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "papers", help="folder of the page")
    return parser


def scale_of(args: argparse.Namespace) -> Scale:
    """Sizes as asked for."""
    asked = {name: getattr(args, name) for name in (*SIZES, "aeg") if getattr(args, name)}
    return replace(SMALL if args.small else Scale(), **asked)


class _Work:
    """The rows of one data set."""

    def __init__(self, args: argparse.Namespace, rows: Rows, data: str, started: float) -> None:
        self.args, self.rows, self.started = args, rows, started
        self.ground = Ground(data, device=args.device, work=args.work, scale=scale_of(args))
        self.longest: dict[str, float] = {}

    @property
    def _models(self) -> list[str]:
        return [m for m in self.ground.models if m in self.args.models or not self.args.models]

    def run(self) -> None:
        """The tasks in their order."""
        tasks: dict[str, Callable[[], None]] = {
            "subjects": self._nets,
            "aeg": self._aeg,
            "rq1": self._rq1,
            "rq2": self._rq2,
            "rq3": self._rq3,
            "trained": self._trained,
        }
        for name, task in tasks.items():
            if name in self.args.task:
                task()

    def _nets(self) -> None:
        wanted: list[tuple[str, int]] = []
        if "models" in self.args.nets:
            wanted += product(self._models, self.args.seeds)
        for name, table in (("reference", REFERENCE), ("witness", WITNESS)):
            if name in self.args.nets:
                wanted.append(table[self.ground.kind])
        for name, seed in wanted:
            began = time.perf_counter()
            told = self.ground.accuracy(self.ground.net(name, seed), self.ground.part("val"))
            print(f"{self.ground.data} {name} {seed}: validation {told}, {_since(began)}", flush=True)

    def _aeg(self) -> None:
        """Train the generator, or find it, and draw its sheet."""
        began = time.perf_counter()
        bank, some = Bank(self.ground, self.ground.net(*REFERENCE[self.ground.kind])), self.ground.part("val")[:500]
        tests = bank.tests(CAGFUZZ, some, self.ground.rng("aeg"))
        print(f"{self.ground.data} aeg: {len(tests)} of {len(some)} above 0.9, {_since(began)}", flush=True)

    # ---- rows ----

    def _rq1(self) -> None:
        arms = self._arms(cagfuzz_rq1.arms_of(self.ground))
        for seed in self.args.seeds:
            ready = cache(partial(cagfuzz_rq1.Small, self.ground, seed))
            for model, arm in product(self._models, arms):
                protocol = cagfuzz_rq1.protocol(self.ground, model, arm, seed)
                self._row("rq1", f"{model} {arm} {seed}", protocol, _then(ready, model, arm))

    def _rq2(self) -> None:
        for seed, model in product(self.args.seeds, self._models):
            ready = cache(partial(cagfuzz_rq2.Errors, self.ground, model, seed))
            for tool, terms in product(self.args.tools, self.args.terms):
                protocol = cagfuzz_rq2.protocol(self.ground, model, tool, terms, seed)
                self._row("rq2", f"{model} {tool} {terms} {seed}", protocol, _then(ready, tool, terms))

    def _trained(self) -> None:
        """RQ2 of one model with generators that were trained less."""
        model, usual = cagfuzz_trained.MODEL, self.ground
        for pairs, making in cagfuzz_trained.MAKINGS.items():
            scale = replace(usual.scale, aeg=making, candidates=cagfuzz_trained.CANDIDATES)
            ground = Ground(usual.data, device=self.args.device, work=self.args.work, scale=scale)
            for seed in self.args.seeds:
                ready = cache(partial(cagfuzz_rq2.Errors, ground, model, seed))
                for tool, terms in product(cagfuzz_trained.TOOLS, self.args.terms):
                    own = cagfuzz_rq2.protocol(ground, model, tool, terms, seed)
                    protocol = own | {"experiment": "trained", "pairs": pairs}
                    self._row("trained", f"{pairs} {tool} {terms} {seed}", protocol, _then(ready, tool, terms))

    def _rq3(self) -> None:
        arms = self._arms(cagfuzz_rq3.ARMS)
        for seed, model in product(self.args.seeds, self._models):
            ready = cache(partial(cagfuzz_rq3.Retraining, self.ground, model, seed))
            for arm in arms:
                protocol = cagfuzz_rq3.protocol(self.ground, model, arm, seed)
                self._row("rq3", f"{model} {arm} {seed}", protocol, _then(ready, arm))

    def _arms(self, known: Sequence[str]) -> list[str]:
        return [arm for arm in known if arm in self.args.arms or not self.args.arms]

    def _row(self, kind: str, label: str, protocol: Params, compute: Callable[[], Mapping[str, Any]]) -> None:
        protocol = protocol | ({"small": True} if self.args.small else {})
        if self.rows.has(protocol) or self._late(kind, label):
            return
        began = time.perf_counter()
        try:
            told = _told(self.rows.fill(protocol, compute)["numbers"])
        except (RuntimeError, ImportError, AssayError) as error:  # one row less is no reason to lose the others
            told = f"no row, {type(error).__name__}: {error}"
        self.longest[kind] = max(self.longest.get(kind, 0.0), time.perf_counter() - began)
        print(f"{self.ground.data} {kind} {label}: {told}, {_since(began)}", flush=True)

    def _late(self, kind: str, label: str) -> bool:
        now = time.perf_counter() - self.started
        late = bool(now + self.longest.get(kind, 0.0) > self.args.seconds)
        if late:
            print(f"{self.ground.data} {kind} {label}: not begun, {now:.0f} s are over", flush=True)
        return late


def _then(ready: Callable[[], Any], *which: str) -> Callable[[], Params]:
    """The numbers of a row, by what is made ready for the first one of several."""
    return lambda: ready().numbers(*which)


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.1f} s"


def _told(numbers: Mapping[str, Any]) -> str:
    shown = ["small", "whole", "tests", "errors", "held", "witness", "l2", "cosine", "clean", "mixed", "fresh"]
    return " ".join(f"{k} {numbers[k]}" for k in shown if numbers.get(k) is not None)


if __name__ == "__main__":
    sys.exit(main())
