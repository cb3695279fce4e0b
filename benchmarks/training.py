"""How fast trainers train, alone and beside others: passes a second, judging included, and where time goes.

    python benchmarks/training.py lenet5@m.safetensors --data mnist --eps 0.3 --time 12s --beside 1 6 \
        --trainer "adversarial(attack=pgd(steps=3, step=0.6, early_stop=false), batch=128)"

Each line is one training of several that run at once; the first epoch, which makes what is made once, is not counted.
On a GPU start NVIDIA's MPS first (nvidia-cuda-mps-control -d). --profile shows what Python does in one more of each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("model")
    asked.add_argument("--data", required=True)
    asked.add_argument("--eps", required=True)
    asked.add_argument("--trainer", action="append", required=True)
    asked.add_argument("--time", default="12s")
    asked.add_argument("--beside", type=int, nargs="+", default=[1], help="how many at once")
    asked.add_argument("--amp", action="store_true")
    asked.add_argument("--profile", type=int, default=0, help="lines of what takes longest in Python")
    told = asked.parse_args()
    print("| trainer | at once | epochs | passes/s | score |\n|---|---:|---:|---:|---:|", flush=True)
    for trainer in told.trainer:
        for count in told.beside:
            for row in _trained(told, trainer, count):
                print("| " + " | ".join([f"`{trainer}`", str(count), *row]) + " |", flush=True)
        if told.profile:
            _profiled(told, trainer)


def _trained(told: argparse.Namespace, trainer: str, count: int) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        begun = [
            subprocess.Popen(
                [sys.executable, *_words(told, trainer, f"{folder}/{i}.safetensors"), "--seed", str(i), "--json"],
                stdout=subprocess.PIPE,
                env={"OMP_NUM_THREADS": "1"} | os.environ,
            )
            for i in range(count)
        ]
        answers = [one.communicate()[0] for one in begun]
        return [_row(json.loads(answer)) for answer in answers]


def _words(told: argparse.Namespace, trainer: str, out: str) -> list[str]:
    amp = ["--amp"] if told.amp else []
    given = ["--data", told.data, "--eps", told.eps, "--time", told.time, "--trainer", trainer, "--out", out, *amp]
    return ["-m", "assay", "train", told.model, *given, "--quiet"]


def _row(answer: dict[str, Any]) -> list[str]:
    log = answer["log"][1:] or answer["log"]
    seconds = sum(row["seconds"] for row in log)
    passes = sum(row["passes"] for row in log)
    return [str(answer["epochs"]), f"{passes / seconds:.0f}", f"{answer['score']:.3f}"]


def _profiled(told: argparse.Namespace, trainer: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "cProfile", "-o", f"{folder}/told", *_words(told, trainer, f"{folder}/net.safetensors")]
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        import pstats

        pstats.Stats(f"{folder}/told").sort_stats("tottime").print_stats(told.profile)


if __name__ == "__main__":
    main()
