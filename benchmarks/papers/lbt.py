"""The experiments of LBT (Rahman and Eisty 2025): rows appended to a file, and the page made from them.

    python benchmarks/papers/lbt.py subjects pools --data mnist --mut resnet20       (nets and pools, kept in --work)
    python benchmarks/papers/lbt.py orders --data mnist --mut resnet20 --groups lbt --seeds 0 1 --device cuda
    python benchmarks/papers/lbt.py retrain sweep …
    python benchmarks/papers/lbt.py page            (or: make papers)

Rows that are there are not computed again. Processes side by side share --work, whose nets and pools are to be made
first, none of them by two, and each have a --rows file of their own; cat joins the files. Training on a GPU does not
give the same net twice: rows tell the model's fingerprint, and the page has those of one model of each subject. With
--small all is small enough for a CPU, and the page leaves its rows out.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.lbt

from assay.core.errors import AssayError
from papers.lbt_methods import DRAWS, GROUPS, METHODS, NO_SEED, of_group
from papers.lbt_orders import Ground, Ordered, Orders, keep_first, protocol
from papers.lbt_page import write_page
from papers.lbt_retrain import ARMS, BEFORE, Retraining
from papers.lbt_retrain import protocol as retraining_of
from papers.lbt_subject import DATA, EPS, NETS, OTHER, POOLS, SMALL, Params, Scale, Subject
from papers.lbt_sweep import SWEEPS, Sweep
from papers.rows import Rows

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "docs" / "papers" / "lbt.jsonl"
TASKS = ("subjects", "pools", "orders", "retrain", "sweep", "page")
BESIDE = ("target", "witness", "other")  # the model under test, the net of the features, the other model
KEPT = ("lbt", "control", "gini")  # orders whose first cases are kept for retraining
WHITE = (("gini", "max_p", "margin", "entropy"), ("lsa", "dsa"))  # in one call each, and so CTM, and so CAM


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    rows, started = Rows(args.rows), time.perf_counter()
    if any(task != "page" for task in args.task):
        for data, mut in product(args.data, args.mut):
            _Work(args, rows, data, mut, started).run()
    if "page" in args.task:
        write_page(list(rows), args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="+", choices=TASKS)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(EPS))
    parser.add_argument("--mut", nargs="+", default=list(NETS), choices=list(OTHER), help="model under test")
    parser.add_argument("--nets", nargs="+", default=list(BESIDE), choices=BESIDE, help="of the subjects to train")
    parser.add_argument("--attacks", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=GROUPS, help="of methods, for orders")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="of those groups")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS, help="of retraining")
    parser.add_argument("--sweeps", nargs="+", default=list(SWEEPS), choices=list(SWEEPS))
    parser.add_argument("--values", nargs="+", default=[], help="of a sweep; all where none are given")
    parser.add_argument("--epochs", type=int, default=0, help="of the model under test")
    parser.add_argument("--retrain-epochs", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="few images, epochs and mutants: a trial of the commands")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing that would not end by then")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/lbt"), help="folder of nets and pools")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "papers", help="folder of the page")
    return parser


def scale_of(args: argparse.Namespace) -> Scale:
    """Sizes as asked for."""
    base = SMALL if args.small else Scale()
    asked = {name: getattr(args, name) for name in ("epochs", "retrain_epochs") if getattr(args, name)}
    return replace(base, **asked)


class _Work:
    """The rows of one subject."""

    def __init__(self, args: argparse.Namespace, rows: Rows, data: str, mut: str, started: float) -> None:
        self.args, self.rows, self.started = args, rows, started
        self.subject = Subject(data, mut, device=args.device, work=args.work, scale=scale_of(args))
        self.orders = Orders(self.subject, args.small)
        self.grounds: dict[str, Ground] = {}
        self.longest: dict[str, float] = {}

    def run(self) -> None:
        """The tasks in their order."""
        tasks: dict[str, Callable[[], None]] = {
            "subjects": self._nets,
            "pools": self._pools,
            "orders": self._orders,
            "retrain": self._retrain,
            "sweep": self._sweep,
        }
        for name, task in tasks.items():
            if name in self.args.task:
                task()

    # ---- nets and pools ----

    def _nets(self) -> None:
        subject = self.subject
        for name in self.args.nets:
            began = time.perf_counter()
            print(f"{subject.title} {name}: {getattr(subject, name).fingerprint()} {_since(began)}", flush=True)

    def _pools(self) -> None:
        for attack, part in product(self.args.attacks, ("test", "held")):
            began = time.perf_counter()
            pool = self.subject.pool(attack, part)
            print(
                f"{self.subject.title} {attack} {part}: {pool.faults} of {len(pool)} wrong, {_since(began)}", flush=True
            )

    # ---- orders ----

    def _orders(self) -> None:
        groups = [group for group in GROUPS if group in self.args.groups]
        for group in groups:
            if group == "white":
                for attack in self.args.attacks:
                    self._white(attack)
                continue
            seeds = range(DRAWS) if group == "random" else self.args.seeds
            # A seed with all its pools, because they share the stand-in.
            for seed, attack, name in product(seeds, self.args.attacks, self._asked(group)):
                self._fill(group, attack, name, seed)

    def _asked(self, group: str) -> list[str]:
        return [name for name in of_group(group) if name in self.args.methods]

    def _white(self, attack: str) -> None:
        names = self._asked("white")
        parts = [*WHITE, *(tuple(n for n in names if n.startswith(how)) for how in ("ctm", "cam"))]
        for part in parts:
            left = [n for n in part if n in names and not self.rows.has(self._protocol(attack, n, NO_SEED))]
            if not left or self._late(f"white {part[0]}", attack):
                continue
            began = time.perf_counter()
            for made in self.orders.white(self._ground(attack).pool, left):
                self._fill("measure", attack, made.name, NO_SEED, made)
            self.longest[f"white {part[0]}"] = time.perf_counter() - began

    def _fill(self, kind: str, attack: str, name: str, seed: int, made: Ordered | None = None) -> None:
        """The row of an order; of one that was ``made`` already only the measures."""
        protocol = self._protocol(attack, name, seed)
        if self.rows.has(protocol) or self._late(kind, f"{attack} {name} {seed}"):
            return

        def compute() -> Params:
            ground = self._ground(attack)
            order = made or self.orders.one(name, ground.pool, seed)
            if name in KEPT:
                keep_first(self.orders, ground.pool, order, seed)
            return ground.numbers(order)

        self._row(kind, f"{attack} {name} {seed}", protocol, compute)

    def _protocol(self, attack: str, name: str, seed: int) -> Params:
        method = METHODS[name]
        return protocol(self.subject, attack, name, method, seed, self.orders.how(method)) | self._small

    def _ground(self, attack: str) -> Ground:
        if attack not in self.grounds:
            self.grounds[attack] = Ground(self.subject, attack)
        return self.grounds[attack]

    # ---- the rest ----

    def _retrain(self) -> None:
        retraining = Retraining(self.orders)
        for seed, arm, attack in product(self.args.seeds, self.args.arms, self.args.attacks):
            if arm == BEFORE and seed != self.args.seeds[0]:
                continue
            at = NO_SEED if arm == BEFORE else seed
            how = self.orders.how(METHODS[arm]) if arm in METHODS else {}
            protocol = retraining_of(self.subject, attack, arm, at, how) | self._small
            if not self.rows.has(protocol) and not self._late("retrain", f"{attack} {arm}"):
                self._row("retrain", f"{attack} {arm} {at}", protocol, partial(retraining.numbers, attack, arm, at))

    def _sweep(self) -> None:
        sweep = Sweep(self.orders)
        for attack, seed, what in product(self.args.attacks, self.args.seeds, self.args.sweeps):
            for value, name in sweep.values(what, self.args.values):
                protocol = sweep.protocol(attack, what, value, name, seed) | self._small
                label = f"{attack} {what}={value} {name} {seed}"
                if not self.rows.has(protocol) and not self._late(f"{what} {value}", label):
                    compute = partial(sweep.numbers, self._ground(attack), what, value, name, seed)
                    self._row(f"{what} {value}", label, protocol, compute)

    def _row(self, kind: str, label: str, protocol: Params, compute: Callable[[], Mapping[str, Any]]) -> None:
        began = time.perf_counter()
        try:
            told = _told(self.rows.fill(protocol, compute)["numbers"])
        except (RuntimeError, ImportError, AssayError) as error:  # one row less is no reason to lose the others
            told = f"no row, {type(error).__name__}: {error}"
        self.longest[kind] = max(self.longest.get(kind, 0.0), time.perf_counter() - began)
        print(f"{self.subject.title} {label}: {told}, {_since(began)}", flush=True)

    def _late(self, kind: str, label: str) -> bool:
        now = time.perf_counter() - self.started
        late = bool(now + self.longest.get(kind, 0.0) > self.args.seconds)
        if late:
            print(f"{self.subject.title} {label} ({kind}): not begun, {now:.0f} s are over", flush=True)
        return late

    @property
    def _small(self) -> Params:
        return {"small": True} if self.args.small else {}


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.1f} s"


def _told(numbers: Mapping[str, Any]) -> str:
    shown = ["faults", "fdr_mean", "apfd_norm", "agreement", "agreement_pool", "queries"]
    shown += ["clean_held", "static", "fresh"]
    return " ".join(f"{k} {numbers[k]}" for k in shown if numbers.get(k) is not None)


if __name__ == "__main__":
    sys.exit(main())
