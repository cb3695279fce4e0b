"""How many candidates a second CAGFuzz makes and judges, and what its parts take.

    python benchmarks/cagfuzz.py lenet5@m.safetensors --data mnist/train --seconds 20
    python benchmarks/cagfuzz.py lenet5@m.safetensors --data mnist/train --of 'cyclegan(aeg=aeg.safetensors)'
    python benchmarks/cagfuzz.py lenet5@m.safetensors --data mnist --device cuda --features 'vgg19(weights=random)'

A campaign is run, with its generator and reference net trained before the clock starts (or found in the cache): all of
it counts, the choice of parents, candidates, features, coverage, oracle and commits. Then each part is timed by itself
on as many cases as the campaign has lanes. A candidate is one of the ten that are made of a parent, its features taken;
a test one of the five that the target is asked about. Random weights serve for a rate and for nothing else.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from assay.core.allocator import keep_blocks
from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.specs import step
from assay.engines.fuzz import LANES, fuzz
from assay.recipes.recipe import Stages, resolve
from assay.stages.extractors import features_of
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data, training_of
from assay.subjects.observer import Observer
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target


class Part(NamedTuple):
    """A part of the work: rows a second, and how many of its rows a candidate takes."""

    name: str
    rate: float
    rows: float


def rate(work: Callable[[], int], device: torch.device, seconds: float) -> float:
    """Rows a second of some work that says how many rows it did."""
    work()  # warms up
    done, began = 0, _now(device)
    while _now(device) - began < seconds:
        done += work()
    return done / (_now(device) - began)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def parts_of(target: Target, data: Data, stages: Stages, lanes: int, seconds: float) -> tuple[list[Part], str]:
    """The parts, each timed by itself, and whose features they are."""
    bench = Bench(target, observer=Observer.of([target], "auto", ends=True), training=training_of(data))
    told = stages.mutate.params
    candidates, top = int(told["candidates"]), int(told["top"])
    name, params = step(told["of"])
    make, features = bind("mutator", name, params), features_of(bench, told["features"])
    cases = Cases.of(data.cases.x[:lanes], data.cases.y[:lanes]).to(target.device)
    cases = cases.note(seed_x=cases.x)
    turn = 0

    def generated() -> int:
        nonlocal turn
        turn += 1
        number = torch.full_like(cases.origin, turn % candidates)
        make(bench, cases.note(candidate=number), rng=Stream(turn).rows(cases.origin))
        return len(cases)

    def looked_at() -> int:
        bench.chunks.map(features, cases.x)
        return len(cases)

    def answered() -> int:
        bench.seen(cases)
        return len(cases)

    device = target.device
    with target.ready():
        found = [
            Part("generator", rate(generated, device, seconds), 1.0),
            # And of the parent, once for all its candidates; of the root too where that is another.
            Part("features", rate(looked_at, device, seconds), 1 + 1 / candidates),
            Part("target and its neurons", rate(answered, device, seconds), top / candidates),
        ]
    return found, features.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", default="cagfuzz")
    parser.add_argument("--of", help="the mutator that makes candidates, where it is not the recipe's")
    parser.add_argument("--features", help="the extractor, where it is not the recipe's")
    parser.add_argument("--seconds", type=float, default=20.0, help="of fuzzing; a sixth of it of each part")
    parser.add_argument("--lanes", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    keep_blocks()
    data = load_data(args.data, part="train")
    target = load_target(args.model, data=data, device=args.device)
    lanes = args.lanes or LANES.get(target.device.type, 256)
    asked = {"mutate.of": args.of, "mutate.features": args.features}
    changes = {name: text for name, text in asked.items() if text}
    stages = resolve(args.recipe, changes, {})
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_RUNS"] = folder
        found = fuzz(args.recipe, target, data, time=args.seconds, lanes=lanes, device=args.device, changes=changes)
    each = int(stages.mutate.params["candidates"]) / int(stages.mutate.params["top"])
    candidates = found.cases * each / found.seconds
    parts, features = parts_of(target, data, stages, lanes, args.seconds / 6)
    print(f"{args.model}, {data.name}, {target.device}, {torch.get_num_threads()} threads, {lanes} lanes")
    print(f"mutate: {stages.mutate.text}")
    print(f"features: {features}")
    print("part                      rows/s  rows a candidate  share of the time")
    for part in parts:
        print(
            f"{part.name:22}  {part.rate:8.0f}  {part.rows:16.2f}  {100 * part.rows * candidates / part.rate:15.1f} %"
        )
    print(
        f"whole campaign: {candidates:.0f} candidates/s, {found.cases / found.seconds:.0f} tests/s, "
        f"{found.failures / found.seconds:.1f} failures/s, {found.seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
