"""How near FOL-Fuzz comes to the bare batched step, bookkeeping and commits included.

    taskset -c 0 python benchmarks/fuzzing.py lenet5@m.safetensors --data mnist/train --threads 1
    python benchmarks/fuzzing.py lenet5@m.safetensors --data mnist/train --device cuda --lanes 2048 8192 32768
    python benchmarks/fuzzing.py lenet5@m.safetensors --data mnist/train --recipe robot twinfuzz --resistant R --eps 0.3

The bare step is written out here: forward, gradient of the loss, gradient of the objective through it (double
backward), on one batch that never changes, folded as the engine folds it, timed before and after each run of the
engine. Prints steps per second of both, their ratio, distinct cases and seeds broken per second; raw counts of
near-copies are not counted by anybody. Several recipes are run in turn, twice; one that tests a resistant model is
given it, so that nothing is built, and the others test it too.
"""

import argparse
import os
import tempfile
import time

import torch
from torch import Tensor

from assay.core import store
from assay.core.allocator import keep_blocks
from assay.core.losses import cross_entropy
from assay.engines.fuzz import fuzz
from assay.recipes.recipe import ball_of, resolve
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.folded import folded
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target


def bare_step(target: Target, x: Tensor, y: Tensor) -> Tensor:
    """What one step of FOL-Fuzz cannot do without."""
    x = x.detach().requires_grad_()
    logits = target(x)
    (gradient,) = torch.autograd.grad(cross_entropy(logits, y).sum(), x, create_graph=True)
    own = logits.softmax(1).gather(1, y[:, None]).sum()
    length = (gradient.flatten(1).square().sum(1) + 1e-12).sqrt().sum()
    return torch.autograd.grad(length + 1 - 2 * own, x)[0]


def bare_rate(target: Target, x: Tensor, y: Tensor, seconds: float) -> float:
    """Steps of all rows per second."""
    bare_step(target, x, y)
    _wait(x)
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        bare_step(target, x, y)
        _wait(x)
        done += len(x)
    return done / (time.perf_counter() - began)


def _wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", nargs="+", default=["robot"])
    parser.add_argument("--resistant", help="the model that twinfuzz tests")
    parser.add_argument("--eps", type=float)
    parser.add_argument("--lanes", type=int, nargs="+", default=[256])
    parser.add_argument("--curvature", default="auto")
    parser.add_argument("--seconds", type=float, default=30.0, help="of fuzzing; a third of it of the bare step")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    keep_blocks()
    data = load_data(args.data, part="train")
    target = load_target(args.resistant or args.model, data=data, device=args.device)
    faster = folded(target, data.cases.x)
    print(f"{args.model}, {data.name}, {target.device}, {torch.get_num_threads()} threads")
    print("recipe      lanes  bare steps/s  fuzz steps/s  ratio  curvature  distinct/s  broken/s  failures/s")
    with tempfile.TemporaryDirectory() as folder, faster.ready():
        os.environ["ASSAY_RUNS"] = folder
        for lanes in args.lanes:
            turns = args.recipe if len(args.recipe) == 1 else 2 * args.recipe
            rates: dict[str, list[float]] = {}
            for recipe in turns:
                rates.setdefault(recipe, []).append(_turn(args, recipe, target, faster, data, lanes))
            first = min(rates[args.recipe[0]])
            for recipe in args.recipe[1:]:
                told = [first / max(rates[recipe]), max(rates[args.recipe[0]]) / min(rates[recipe])]
                print(
                    f"a step of {recipe} takes {told[0]:.2f} to {told[1]:.2f} times as long as one of {args.recipe[0]}"
                )


def _turn(args: argparse.Namespace, recipe: str, target: Target, faster: Target, data: Data, lanes: int) -> float:
    """Gradient steps per second of one run, printed beside the bare ones."""
    x, y = data.cases.x[:lanes].to(target.device), data.cases.y[:lanes].to(target.device)
    before = bare_rate(faster, x, y, args.seconds / 6)
    pair = resolve(recipe, {}, ball_of(args.eps, None)).resistant is not None
    found = fuzz(
        recipe,
        args.model if pair else target,
        data,
        resistant=target if pair else None,
        time=args.seconds,
        eps=args.eps,
        lanes=lanes,
        curvature=args.curvature,
        device=args.device,
    )
    bare = (before + bare_rate(faster, x, y, args.seconds / 6)) / 2
    way = next(store.read(found.run).commits("look")).meta["curvature"]
    per = found.seconds
    print(
        f"{recipe:10}  {lanes:5}  {bare:12.0f}  {found.gradient_steps / per:12.0f}  "
        f"{found.gradient_steps / per / bare:5.2f}  {way:9}  {found.distinct / per:10.1f}  "
        f"{found.broken / per:8.1f}  {found.failures / per:10.1f}",
        flush=True,
    )
    return found.gradient_steps / per


if __name__ == "__main__":
    main()
