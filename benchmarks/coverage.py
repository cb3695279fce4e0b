"""What coverage costs beside the forward pass it comes with, and that its memory does not grow.

    python benchmarks/coverage.py [--device cuda] [--batch 128] [--repeats 15]
    python benchmarks/coverage.py --soak 10000

The first times a bare pass of VGG-16 over inputs of CIFAR-10's size against one with NC, KMNC(1000), NBC and TKNC
updated, in turns within one run, and every criterion by itself; it fails above 1.5 times the bare pass. The second
sends that many batches through LeNet-5 and every criterion, and fails where what they hold, or the process, has grown
since the first tenth. Weights and inputs are random: costs do not depend on them.
"""

import argparse
import gc
import itertools
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from assay.core.allocator import keep_blocks
from assay.core.cases import InputSpec
from assay.core.chunks import Chunks
from assay.core.registry import bind
from assay.core.specs import split, step
from assay.stages.coverage import Coverage
from assay.stages.coverage.passes import Pass
from assay.stages.coverage.profile import Profile
from assay.subjects.observer import Observer
from assay.subjects.sources.load import pick_device
from assay.subjects.sources.module import ModuleTarget

BAR = 1.5
TOGETHER = "nc, kmnc(k=1000), nbc, tknc"
EACH = f"{TOGETHER}, nc(scaled=false), nbc(buckets=10), snac, tknc(k=10), bknc, tknp, nlc, cc(layers=logits)"
SOAKED = "nc, kmnc(k=1000), nbc(buckets=10), snac, tknc, bknc, tknp, nlc, cc(distance=0.05, most=500)"
GROWN = 64 << 20  # bytes by which a process may differ; the neurons of each batch, kept, would be 1.2 GB


def made(net: str, shape: tuple[int, ...], device: torch.device) -> ModuleTarget:
    torch.manual_seed(0)
    spec = InputSpec(shape, (0.0, 1.0), tuple(map(str, range(10))))
    return ModuleTarget(bind("model", net, {}, {"shape": shape, "classes": 10})().to(device), spec, device)


def begun(target: ModuleTarget, texts: str, x: Tensor) -> tuple[Observer, dict[str, Coverage]]:
    """The criteria over all layers, with ranges taken from one batch."""
    criteria = {text: bind("criterion", *step(text))() for text in split(texts)}
    observer = Observer.of([target], "auto", ends=any(c.ends for c in criteria.values()))
    with torch.no_grad():
        values = observer(x).neurons
    ranges = Profile(values.amin(0), values.amax(0), values.mean(0), values.std(0), len(x))
    return observer, {text: c.begin(observer, ranges) for text, c in criteria.items()}


def passing(target: ModuleTarget, texts: str, x: Tensor, batches: list[Tensor]) -> Callable[[], object]:
    """One pass of the next batch with the criteria updated, as `assay coverage` does it."""
    observer, coverages = begun(target, texts, x)
    work, turns = Pass(observer, list(coverages.values()), Chunks(len(x))), itertools.cycle(batches)
    return lambda: work(next(turns))


def clocked(jobs: Mapping[str, Callable[[], object]], repeats: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each job; they take turns, forwards and backwards, so that drift hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 2):
        for name in jobs if turn % 2 else reversed(list(jobs)):
            _wait(device)
            start = time.perf_counter()
            for _ in range(10 if device.type == "cuda" else 1):
                jobs[name]()
            _wait(device)
            if turn > 1:  # the first two warm up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) / (10 if device.type == "cuda" else 1) for name, taken in times.items()}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def overhead(device: torch.device, batch: int, repeats: int) -> int:
    target = made("vgg16", (3, 32, 32), device)
    batches = [torch.rand(batch, 3, 32, 32, device=device) for _ in range(4)]
    place = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    with torch.no_grad(), target.ready():
        bare: dict[str, Callable[[], object]] = {"bare pass": lambda: target(batches[0])}
        watched, blind = Observer.of([target], "auto"), Observer.of([target], "none")
        alone, neurons = (Pass(observer, [], Chunks(batch)) for observer in (blind, watched))
        jobs = bare | {
            "the same, a graph on a GPU": lambda: alone(batches[0]),
            "with neurons": lambda: neurons(batches[0]),
            f"with {TOGETHER}": passing(target, TOGETHER, batches[0], batches),
        }
        print(f"VGG-16, batch {batch}, {watched.text()}, {place}")
        taken = clocked(jobs, repeats, device)
        ratio = taken[f"with {TOGETHER}"] / taken["bare pass"]
        for name, seconds in taken.items():
            print(f"  {name:45} {seconds * 1e3:9.2f} ms {seconds / taken['bare pass']:7.3f} of the bare pass")
        for text in split(EACH):
            one = clocked(bare | {text: passing(target, text, batches[0], batches)}, max(3, repeats // 4), device)
            print(f"  {text:45} {one[text] * 1e3:9.2f} ms {one[text] / one['bare pass']:7.3f}")
    print(f"{'held' if ratio <= BAR else 'MISSED'}: {ratio:.3f} of the bare pass, bar {BAR}")
    return int(ratio > BAR)


def soak(device: torch.device, batch: int, count: int) -> int:
    target = made("lenet5", (1, 28, 28), device)
    rng = torch.Generator(device).manual_seed(0)
    observer, coverages = begun(target, SOAKED, torch.rand(batch, 1, 28, 28, generator=rng, device=device))
    work = Pass(observer, list(coverages.values()), Chunks(batch))
    told: list[tuple[int, int, int]] = []
    print(f"LeNet-5, {count} batches of {batch}, {observer.text()}; MB held by each criterion and by the process")
    with torch.no_grad(), target.ready():
        for turn in range(1, count + 1):
            work(torch.rand(batch, 1, 28, 28, generator=rng, device=device))
            if turn % max(1, count // 10) == 0:
                held = {text: _bytes(coverage) for text, coverage in coverages.items()}
                told.append((turn, sum(held.values()), _process(device)))
                each = " ".join(f"{step(text)[0]} {size / 1e6:.2f}" for text, size in held.items())
                print(f"  {turn:7} {each}; in all {told[-1][1] / 1e6:.2f}; process {told[-1][2] / 1e6:.0f}", flush=True)
    for text, coverage in coverages.items():
        print(f"  {text}: {coverage.covered():g} covered of {coverage.total or 'no upper end'}")
    state, process = (told[-1][i] - told[0][i] for i in (1, 2))
    held_up = state == 0 and process < GROWN
    print(f"{'held' if held_up else 'MISSED'}: what they hold grew by {state} bytes, the process by {process}")
    return int(not held_up)


def _bytes(thing: Any) -> int:
    """What the tensors inside of a thing hold."""
    if isinstance(thing, Tensor):
        return thing.untyped_storage().nbytes()
    parts = thing if isinstance(thing, (tuple, list)) else ()
    fields = getattr(type(thing), "__dataclass_fields__", {})
    return sum(map(_bytes, parts)) + sum(_bytes(getattr(thing, name)) for name in fields)


def _process(device: torch.device) -> int:
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--soak", type=int, default=0, metavar="BATCHES")
    args = parser.parse_args()
    keep_blocks()
    device = pick_device(args.device)
    return soak(device, args.batch, args.soak) if args.soak else overhead(device, args.batch, args.repeats)


if __name__ == "__main__":
    sys.exit(main())
