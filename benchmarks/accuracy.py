"""Accuracy that `assay train` reaches on the full data sets, seeds stated; each row names its command.

    make bench-accuracy       (or: python benchmarks/accuracy.py mnist fashion-mnist [cifar10] [--seeds 0 1 2])

Needs the data sets in $ASSAY_DATA or a network to fetch them. MNIST and Fashion-MNIST take about 3 and 4 minutes on
2 CPU cores; CIFAR-10 is for a GPU (7 minutes on an H200).
"""

import argparse
import shlex
import sys
from tempfile import TemporaryDirectory

from assay.engines.evaluate import evaluate
from assay.engines.train import train

ARMS = {
    "mnist": ("lenet5", {"epochs": 15, "augment": "shift=0.08"}, 0.990),
    "fashion-mnist": ("lenet5", {"epochs": 20, "augment": "flip"}, 0.905),
    "cifar10": (
        "resnet20",
        {
            "epochs": 110,
            "batch": 128,
            "lr": 0.1,
            "optimiser": "sgd",
            "weight_decay": 5e-4,
            "augment": "flip,shift=0.125",
        },
        0.91,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["mnist", "fashion-mnist"], choices=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    args = parser.parse_args()
    rows = []
    for name in args.data:
        net, params, bar = ARMS[name]
        for seed in args.seeds:
            with TemporaryDirectory() as scratch:
                out = f"{scratch}/w.safetensors"
                done = train(net, name, out, params=dict(params), seed=seed)
                clean = evaluate(f"{net}@{out}", f"{name}/test", suite="fgsm", eps=0.01).clean
            flags = " ".join(f"--{key.replace('_', '-')} {shlex.quote(str(value))}" for key, value in params.items())
            command = f"assay train {net} --data {name} {flags} --seed {seed} --out w.safetensors"
            rows.append((name, net, seed, clean, bar, done.seconds, command))
            print(f"{name}, seed {seed}: {clean.accuracy:.4f}", file=sys.stderr)
    print(f"{'data':15} {'net':9} {'seed':>4} {'test':>7} {'ci95':>17} {'bar':>6} {'seconds':>8}  command")
    for name, net, seed, clean, bar, seconds, command in rows:
        low, high = clean.ci95
        print(
            f"{name:15} {net:9} {seed:4} {clean.accuracy:7.4f} {low:8.4f}–{high:.4f} {bar:6} {seconds:8.0f}  {command}"
        )
    return int(any(clean.accuracy < bar for _, _, _, clean, bar, _, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
