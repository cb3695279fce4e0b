"""What `dynamic` saves: passes of its training and robust accuracy, beside `adversarial` with as many and fewer steps.

python benchmarks/dynamic.py --data digits --eps 0.15 --epochs 30 --seeds 5
"""

import argparse
import logging
import statistics
import tempfile
from pathlib import Path

from assay.engines.evaluate import evaluate
from assay.engines.train import train

PGD = "attack=pgd(steps={}, step=0.25, early_stop=false)"
ROWS = (f"adversarial({PGD.format(10)})", f"adversarial({PGD.format(7)})", "dynamic")
COLUMNS = "| trainer | passes | of `adversarial` | clean | robust | of each seed |\n|---|---:|---:|---:|---:|---|"


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--model", default="lenet5")
    said.add_argument("--data", default="digits")
    said.add_argument("--part", default="test", help="val, to choose by")
    said.add_argument("--cases", type=int, default=1000)
    said.add_argument("--eps", default="0.15")
    said.add_argument("--epochs", type=int, default=30)
    said.add_argument("--seeds", type=int, default=5)
    said.add_argument("--device", default="cpu")
    said.add_argument("--row", action="append", default=[], help="another trainer")
    told = said.parse_args()
    logging.disable(logging.WARNING)
    rows = [*ROWS, *told.row]
    found = {row: [measured(row, seed, told) for seed in range(told.seeds)] for row in rows}
    print(
        f"{told.model}, {told.data}, eps {told.eps}, {told.epochs} epochs, {told.seeds} seeds; APGD-CE and APGD-T on ",
        end="",
    )
    print(f"{told.part}[:{told.cases}]\n\n{COLUMNS}")
    whole = statistics.mean(passes for passes, _, _ in found[rows[0]])
    for row, seeds in found.items():
        passes, clean, robust = (statistics.mean(column) for column in zip(*seeds, strict=True))
        each = ", ".join(f"{100 * one:.1f}" for _, _, one in seeds)
        shares = f"{passes / whole:.2f} | {100 * clean:.1f} | {100 * robust:.1f}"
        print(f"| `{row}` | {passes / 1e6:.2f} M | {shares} | {each} |")


def measured(row: str, seed: int, told: argparse.Namespace) -> tuple[float, float, float]:
    """Passes of a training, and what is right of its net without and under attack."""
    with tempfile.TemporaryDirectory() as folder:
        out, how = Path(folder) / "net.safetensors", {"device": told.device}
        done = train(
            told.model, told.data, out, trainer=row, params={"epochs": told.epochs}, eps=told.eps, seed=seed, **how
        )
        data = f"{told.data}/{told.part}[:{told.cases}]"
        result = evaluate(f"{told.model}@{out}", data, suite="apgd_ce, apgd_t", eps=told.eps, **how)
    return sum(epoch["passes"] for epoch in done.log), result.clean.accuracy, result.worst.accuracy


if __name__ == "__main__":
    main()
