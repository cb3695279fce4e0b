"""Images a second of a training: in one process with one thread, and on Ray with 1, 2, … workers (strong scaling).

    python benchmarks/scale_train.py [--model lenet5] [--data digits | --images 4000] [--epochs 5] [--workers 1 2]
    python benchmarks/scale_train.py --model resnet20 --images 2000 --trainer "adversarial(eps=8/255)"

``--images`` takes so many random images of CIFAR-10's size instead of a data set: the cost does not depend on what
they show. The first epoch warms up and is not counted, nor is the start of Ray; an epoch's seconds are those that the
log of the training tells. One thread a worker and one in the process alone, so that they are compared like with like.
"""

import argparse
import tempfile
from pathlib import Path

import torch

from assay.core.cases import Cases, InputSpec
from assay.engines.train import train
from assay.subjects.bench import Data, Splits, with_validation
from assay.subjects.data.load import load_splits

SIZE = (3, 32, 32)
VALIDATED = 100  # images: what is measured is learning


def random_images(count: int) -> Splits:
    rng = torch.Generator().manual_seed(0)
    spec = InputSpec(SIZE, (0.0, 1.0), tuple(map(str, range(10))))

    def part(name: str, n: int) -> Data:
        x, y = torch.rand(n, *SIZE, generator=rng), torch.randint(10, (n,), generator=rng)
        return Data(f"random/{name}", Cases.of(x, y), spec)

    return Splits("random", train=part("train", count), val=part("val", VALIDATED))


def rate(given: argparse.Namespace, data: Splits, workers: int) -> float:
    """Images a second; ``workers`` 0 is this process alone."""
    chosen = {"epochs": given.epochs, "batch": given.batch}
    on = {"ray": given.ray, "workers": workers} if workers else {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.safetensors"
        done = train(given.model, data, out, trainer=given.trainer, params=chosen, deterministic=True, **on)
    learned: int = len(data.part("train")) * (given.epochs - 1)
    return learned / sum(row["seconds"] for row in done.log[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--images", type=int, default=0)
    parser.add_argument("--trainer", default="plain")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ray", default="local")
    given = parser.parse_args()
    if given.epochs < 2:
        parser.error("--epochs must be at least 2: the first is not counted")
    data = random_images(given.images) if given.images else with_validation(load_splits(given.data))
    alone = rate(given, data, 0)
    print(f"{given.model}, {given.trainer}, {len(data.part('train'))} images, batch {given.batch}")
    print(f"{'one process':>12}  {alone:8.0f} images/s")
    first = None
    for workers in given.workers:
        found = rate(given, data, workers)
        first = first or found
        print(f"{f'{workers} on Ray':>12}  {found:8.0f} images/s  {found / alone:5.2f}x alone  {found / first:5.2f}x")


if __name__ == "__main__":
    main()
