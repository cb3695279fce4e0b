"""The experiments of DARE (ASE 2022, TOSEM 2024): rows appended to a file, and the page made from them.

    python benchmarks/papers/dare.py arms --data cifar10 fashion-mnist --device cuda
    python benchmarks/papers/dare.py page            (or: make papers)

A subject is a net of one data set and seed. All its arms are computed in one process, one after the other, because they
start from one net, and training on a GPU does not give the same net twice: rows tell its fingerprint, a subject that is
complete is left out, and rows of one that has to be trained again are replaced where the net came out another.
Processes side by side each take subjects of their own and a --rows file of their own; cat joins the files.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.dare

from assay.core.errors import AssayError, NothingToTest
from papers.dare_arms import ABLATIONS, MAIN, Arm, Maker, arms
from papers.dare_measure import Measure, Sizes
from papers.dare_measure import protocol as measured_how
from papers.dare_page import write_page
from papers.dare_subject import CHUNK, DATA, EPOCHS, HALVES, NETS, Params, Subject, plan_of
from papers.rows import Row, Rows

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "docs" / "papers" / "dare.jsonl"
SETS = {"main": MAIN, "ablations": ABLATIONS, "all": (*MAIN, *ABLATIONS)}


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    rows, started = Rows(args.rows), time.perf_counter()
    if "arms" in args.task:
        for data, net, seed in product(args.data, args.nets, args.seeds):
            _Work(args, rows, data, net, seed, started).run()
    if "page" in args.task:
        write_page(list(rows), args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="+", choices=["arms", "page"])
    parser.add_argument("--data", nargs="+", default=_there(), choices=[*DATA, "digits"])
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(CHUNK))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--arms", nargs="+", default=["all"], choices=[*SETS, *SETS["all"]], help="arms, or main, ablations, all"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the original net")
    parser.add_argument("--distil-epochs", type=int, default=20)
    for each in fields(Sizes):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=int, default=each.default, help="see Sizes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no arm that would not end by then")
    parser.add_argument("--limit", type=int, default=0, help="train on so many images, test on a fifth of that")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "papers", help="folder of the page")
    return parser


def _there() -> list[str]:
    """The data sets of the paper; SVHN where somebody has put its file."""
    return [data for data in DATA if data != "svhn" or (Path(os.environ.get("ASSAY_DATA", ".")) / "svhn.npz").exists()]


class _Work:
    """The rows of one subject."""

    def __init__(self, args: argparse.Namespace, rows: Rows, data: str, net: str, seed: int, started: float) -> None:
        self.args, self.rows, self.data, self.net, self.seed, self.started = args, rows, data, net, seed, started
        self.sizes = Sizes(**{each.name: getattr(args, each.name) for each in fields(Sizes)})
        known = arms(args.epochs, args.distil_epochs)
        asked = {name for word in args.arms for name in SETS.get(word, (word,))}
        self.jobs = [(name, arm, self.protocol(name, arm)) for name, arm in known.items() if name in asked]

    def run(self) -> None:
        """Train the net and fill what is missing of it."""
        own = [row for row in self.rows if self._mine(row)]
        if all(self.rows.has(p) for _, _, p in self.jobs) and len({r["numbers"]["fingerprint"] for r in own}) == 1:
            return
        subject = self._timed("net", self._subject)
        print(f"{self._label} net: {subject.watch.told()}", flush=True)
        self.rows.drop(lambda row: self._mine(row) and row["numbers"]["fingerprint"] != subject.fingerprint)
        left = [job for job in self.jobs if not self.rows.has(job[2])]
        if not left:
            return
        maker = Maker(subject, self._timed("examples", lambda: Measure(subject, self.sizes)))
        longest: dict[str, float] = {}  # arm of each kind so far
        for name, arm, protocol in left:
            now = time.perf_counter()
            if now - self.started + longest.get(arm.make, 0.0) > self.args.seconds:
                print(f"{self._label} {name}: not begun, {now - self.started:.0f} s are over", flush=True)
                return
            try:
                told = _told(self.rows.fill(protocol, partial(self._numbers, maker, subject, arm))["numbers"])
            except (RuntimeError, AssayError) as error:  # one arm less is no reason to lose the net and the others
                told = f"no row, {type(error).__name__}: {error}"
            longest[arm.make] = max(longest.get(arm.make, 0.0), time.perf_counter() - now)
            print(f"{self._label} {name}: {told}, {time.perf_counter() - now:.1f} s", flush=True)

    def _numbers(self, maker: Maker, subject: Subject, arm: Arm) -> Params:
        told: Params = {"fingerprint": subject.fingerprint, "device": subject.device.type, "machine": subject.machine}
        try:
            return told | maker(arm)
        except NothingToTest as error:  # no past epoch is any better: an arm without a net
            return told | {"why": str(error)}

    def protocol(self, name: str, arm: Arm) -> Params:
        """What makes the row."""
        return {
            "experiment": "arms",
            "data": self.data,
            "net": self.net,
            "seed": self.seed,
            "arm": name,
            "how": dict(arm.how),
            "base": {**plan_of(self.data, self.net), "epochs": self.args.epochs, **HALVES},
            **measured_how(self.data, self.sizes),
            **({"limit": self.args.limit} if self.args.limit else {}),
        }

    def _mine(self, row: Row) -> bool:
        """Whether a row is of this subject, with the same settings."""
        return subject_of(row["protocol"]) == subject_of(self.protocol("", Arm("")))

    def _subject(self) -> Subject:
        place = {"device": self.args.device, "epochs": self.args.epochs, "limit": self.args.limit}
        return Subject(self.data, self.net, self.seed, **place)

    def _timed(self, what: str, make: Any) -> Any:
        started = time.perf_counter()
        made = make()
        print(f"{self._label} {what}: {time.perf_counter() - started:.1f} s", flush=True)
        return made

    @property
    def _label(self) -> str:
        return f"{self.data} {self.net} {self.seed}"


def subject_of(protocol: Mapping[str, Any]) -> Params:
    """A protocol without the arm."""
    return {k: v for k, v in protocol.items() if k not in ("arm", "how")}


def _told(numbers: Mapping[str, Any]) -> str:
    shown = ("clean", "static_mean", "fresh_mean", "small_mean", "seconds", "measure_seconds", "why")
    return " ".join(f"{k} {numbers[k]}" for k in shown if numbers.get(k) is not None)


if __name__ == "__main__":
    sys.exit(main())
