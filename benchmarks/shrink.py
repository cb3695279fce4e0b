"""How long shrinking takes: 256 cases of 28×28, a planted model that looks at three pixels, and LeNet-5.

    python benchmarks/shrink.py [MODEL] [--data mnist/test] [--cases 256] [--eps 0.2] [--by blocks,pixels] [--threads 2]

The cases of LeNet-5 are what PGD makes of inputs it gets right; where no MODEL is given, one is trained for an epoch
on the training part of the data. Exit 1 where a case of the planted model differs from its seed in anything but the
three pixels, or they take longer than 10 s; LeNet-5 has no bar, as what is left of its cases is hundreds of pixels.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.engines.attack import attack
from assay.engines.shrunk import shrunk
from assay.engines.train import train
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

BAR = 10.0
SIDE = 28
LOOKED_AT = [37, 402, 700]


class ThreePixels(nn.Module):
    """Class 1 where each of three pixels is above 0.3, else 0."""

    def forward(self, x: Tensor) -> Tensor:
        least = x.flatten(1)[:, LOOKED_AT].amin(1) - 0.3
        return torch.stack([-least, least], 1)


def planted(n: int) -> tuple[Bench, Cases]:
    """Cases that differ from their seeds everywhere."""
    rng = torch.Generator().manual_seed(0)
    seeds, x = (torch.rand(n, 1, SIDE, SIDE, generator=rng) for _ in range(2))
    cases = Cases.of(0.5 + 0.5 * x, torch.zeros(n, dtype=torch.int64)).note(seed_x=0.25 * seeds)
    spec = InputSpec((1, SIDE, SIDE), (0.0, 1.0), ("no", "yes"))
    return Bench(ModuleTarget(ThreePixels(), spec, torch.device("cpu"))), cases


def attacked(model: str, text: str, n: int, eps: float) -> tuple[Bench, Cases]:
    """Inputs that PGD turned."""
    data = load_data(text, part="test")
    target = load_target(model, data=data, device="cpu")
    some = data.cases[: 8 * n]
    made = attack("pgd(steps=10)", target, some.x, some.y, eps=eps)
    turned = (made.info["success"] & (made.info["size"] > 0)).nonzero().squeeze(1)[:n]
    return Bench(target), made[turned].note(seed_x=some.x[turned])


def told(name: str, bench: Bench, cases: Cases, by: str) -> tuple[Cases, float]:
    shrunk(bench, cases[:2], by=by)  # what is done once only
    began = time.perf_counter()
    made = shrunk(bench, cases, by=by)
    seconds = time.perf_counter() - began
    before, after = (made.info[column].double().median() for column in ("changed_before", "changed"))
    questions = made.info["questions"].double()
    print(
        f"{name:10} {len(made):6} {before:9.0f} {after:7.0f} {questions.mean():10.0f} {questions.max():6.0f} "
        f"{int(made.info['minimal'].sum()):8} {seconds:8.2f}"
    )
    return made, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data", default="mnist/test")
    parser.add_argument("--cases", type=int, default=256)
    parser.add_argument("--eps", type=float, default=0.2)
    parser.add_argument("--by", default="blocks,pixels")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print("model       cases   changed    left  questions   most  minimal  seconds")
    bench, cases = planted(given.cases)
    made, seconds = told("planted", bench, cases, given.by)
    expected = cases.info["seed_x"].clone()
    expected.flatten(1)[:, LOOKED_AT] = cases.x.flatten(1)[:, LOOKED_AT]
    exact = torch.equal(made.x, expected)
    with TemporaryDirectory() as scratch:
        model = given.model
        if model is None:
            path = Path(scratch) / "w.safetensors"
            train("lenet5", given.data.partition("/")[0], path, params={"epochs": 1})
            model = f"lenet5@{path}"
        told("LeNet-5", *attacked(model, given.data, given.cases, given.eps), given.by)
    print(f"planted cases keep exactly the three pixels: {'yes' if exact else 'NO'}; bar {BAR:g} s")
    return int(not exact or seconds > BAR)


if __name__ == "__main__":
    sys.exit(main())
