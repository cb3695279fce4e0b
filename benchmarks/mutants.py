"""What mutants cost: their answers, with and without the early stop, in bare forward passes of as many images.

    python benchmarks/mutants.py lenet5@m.safetensors --data mnist/test
    python benchmarks/mutants.py lenet5@m.safetensors --data mnist/test --device cuda --stacked 5 10 30
    python benchmarks/mutants.py --small

The bare passes are those of the net itself over the same batches, as many as there are mutants, and are spread over the
run between the jobs. The bars are 1.2 of them without the early stop, 0.6 with it at delta = 0.5 kappa. "No shortcuts"
runs every mutant from its first layer on. The answers are compared with full copies of the net, one mutant at a time.
``--stacked`` also runs groups of so many mutants at once, their weights stacked under ``torch.func.vmap``, against a
plain loop over the same mutants. ``--small`` trains a net on the embedded digits for a moment and takes few mutants and
inputs: it shows in seconds that all of it runs, not what it costs.
"""

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from assay.core.chunks import Chunks
from assay.core.errors import is_out_of_memory
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.core.sprt import SENSITIVE, STABLE, UNDECIDED, Sprt, upper_mean
from assay.stages.mutant_scores import MutantScores, scored
from assay.stages.mutants import Mutants, made
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of, pick_device

EARLY = {"early stop, delta 0.5 kappa": 0.5, "early stop, delta 0.1 kappa": 0.1}
BARS = {"all mutants": 1.2, "early stop, delta 0.5 kappa": 0.6}
VALID = 0.9  # of the net's accuracy that a mutant keeps
Job = Callable[[], MutantScores]


def family(net: nn.Module, x: Tensor, y: Tensor, count: int, seed: int) -> Mutants:
    """Valid mutants: nearly as accurate as the net on (x, y), and not the same."""
    own = net(x).argmax(1)
    least = VALID * float((own == y).float().mean())

    def valid(mutant: nn.Module) -> bool:
        label = mutant(x).argmax(1)
        return bool((label != own).any()) and float((label == y).float().mean()) >= least

    return made(net, valid, count=count, rng=Stream(seed, ("benchmark",)))


@contextmanager
def no_shortcuts(net: nn.Module) -> Iterator[None]:
    """A net with a hook is not taken apart."""
    hook = net.register_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        hook.remove()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def clocked(job: Callable[[], object], device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    job()
    wait(device)
    return time.perf_counter() - start


def measured(
    jobs: Mapping[str, Job], bare: Callable[[], object], passes: int, turns: int, device: torch.device
) -> tuple[dict[str, float], float, dict[str, MutantScores]]:
    """Median seconds of the jobs and of ``passes`` bare passes, a part of which comes before every job."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    taken: list[float] = []
    found: dict[str, MutantScores] = {}
    part = max(1, passes // len(jobs))
    clocked(bare, device)
    for turn in range(turns):
        for name in reversed(list(jobs)) if turn % 2 else jobs:
            taken.append(clocked(lambda: [bare() for _ in range(part)], device) / part)
            times[name].append(clocked(lambda name=name: found.update({name: jobs[name]()}), device))  # type: ignore[misc]
    # The mean of the bare passes: what other work on the machine costs, it costs the long jobs too.
    return {n: statistics.median(t) for n, t in times.items()}, passes * statistics.fmean(taken), found


def copied(net: nn.Module, mutants: Mutants, i: int) -> nn.Module:
    """Mutant i as a net of its own."""
    own = copy.deepcopy(net)
    weights = dict(own.named_parameters())
    for name, (index, values) in mutants.difference(i).items():
        weights[name].data.flatten()[index] = values
    return own


def by_hand(net: nn.Module, mutants: Mutants, x: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Changes and mean distance of each input by full copies of the net and plain batches."""
    own = torch.cat([net(b) for b in x.split(batch)])
    label, p = own.argmax(1), own.softmax(1)
    changes, distance = torch.zeros(len(x), dtype=torch.int64), torch.zeros(len(x), dtype=torch.float64)
    for i in range(len(mutants)):
        mutant = copied(net, mutants, i)
        answers = torch.cat([mutant(b) for b in x.split(batch)])
        changes += (answers.argmax(1) != label).cpu()
        distance += (answers.softmax(1) - p).abs().sum(1).cpu() / 2
    return changes, distance / len(mutants)


def stacked(net: nn.Module, mutants: Mutants, group: int, x: Tensor, batch: int) -> Tensor:
    """The classes that mutants give, (mutants, N), a group at a time with stacked weights."""
    found = []
    own = dict(net.named_parameters())
    for first in range(0, len(mutants.each), group):
        rows = range(first, min(first + group, len(mutants)))
        stack = {n: w.detach().expand(len(rows), *w.shape).clone() for n, w in own.items()}
        for place, i in enumerate(rows):
            for name, (index, values) in mutants.difference(i).items():
                stack[name][place].view(-1)[index] = values
        run = vmap(lambda weights, b: functional_call(net, weights, (b,)), in_dims=(0, None))
        found.append(torch.cat([run(stack, b).argmax(2) for b in x.split(batch)], 1))
    return torch.cat(found)


def looped(net: nn.Module, mutants: Mutants, x: Tensor, batch: int) -> Tensor:
    """The same, one mutant after the other."""
    found = []
    for i in range(len(mutants)):
        with mutants.applied(i):
            found.append(torch.cat([net(b).argmax(1) for b in x.split(batch)]))
    return torch.stack(found)


def compare(net: nn.Module, mutants: Mutants, x: Tensor, told: argparse.Namespace, device: torch.device) -> None:
    """Stacked weights against a loop on the first mutants, in batches as large as the loop's in all and each."""
    few = copy.copy(mutants)
    few.each = mutants.each[: told.of]
    print(
        f"\nstacked weights under vmap, {len(few)} mutants, in the time of a plain loop with batches of {told.batch}:"
    )
    for group in told.stacked:
        for batch in dict.fromkeys((max(1, told.batch // group), min(told.batch, len(x)))):
            print(f"  groups of {group:3}, batches of {batch:5}: ", end="")
            ways = (partial(looped, net, few, x, told.batch), partial(stacked, net, few, group, x, batch))
            try:
                print(beside(ways, told.turns, device), flush=True)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                print("out of memory", flush=True)


def beside(ways: tuple[Callable[[], Tensor], Callable[[], Tensor]], turns: int, device: torch.device) -> str:
    """The second way in the time of the first, after one turn that warms up."""
    same = float((ways[0]() == ways[1]()).float().mean())
    times = [[clocked(way, device) for way in ways] for _ in range(turns)]
    loop, stack = (statistics.median(column) for column in zip(*times, strict=True))
    return f"{stack / loop:6.2f} ({stack:.2f} s, loop {loop:.2f} s), {same:.6f} of the answers the same"


def equal(one: MutantScores, other: MutantScores, *columns: str) -> str:
    rows = sum(int((getattr(one, c) != getattr(other, c)).sum()) for c in columns)
    return "the same" if not rows else f"different in {rows} of {len(columns) * len(one.asked)}"


def table(seconds: Mapping[str, float], bare: float, found: Mapping[str, MutantScores], judged: bool) -> bool:
    """Prints the ratios; whether every bar holds."""
    print(f"\n{'':32} {'seconds':>9} {'of bare':>8} {'asked':>7}  bar")
    print(f"{'bare forward passes':32} {bare:9.2f} {1:8.3f}")
    held = True
    for name, taken in seconds.items():
        bar = BARS.get(name) if judged else None
        good = bar is None or taken / bare <= bar
        held &= good
        asked = float(found[name].asked.double().mean())
        word = "" if bar is None else f"{bar} {'held' if good else 'MISSED'}"
        print(f"{name:32} {taken:9.2f} {taken / bare:8.3f} {asked:7.1f}  {word}")
    return held


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--data", default="mnist/test")
    parser.add_argument("--check", default="mnist/train[:2000]", help="half shows what is valid, half gives kappa")
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--batch", type=int, default=0, help="512 on the CPU, 10000 on a GPU")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--by-hand", type=int, default=1000, help="inputs that full copies of the net answer too")
    parser.add_argument("--stacked", type=int, nargs="*", default=None, help="groups; on a GPU 5 10 30 100 unless told")
    parser.add_argument("--of", type=int, default=100, help="mutants that are run stacked")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true")
    told = parser.parse_args()
    if not (told.model or told.small):
        parser.error("name a model, such as lenet5@m.safetensors, or --small")
    return told


def main() -> int:
    told = arguments()
    if told.threads:
        torch.set_num_threads(told.threads)
    if told.small:
        told.model, told.data, told.check = told.model or "lenet5", "digits/test[:300]", "digits/train[:400]"
        told.mutants, told.by_hand, told.of = 30, 100, 12
    device = pick_device(told.device)
    told.batch = told.batch or (10_000 if device.type == "cuda" else 512)
    told.stacked = ([5, 10, 30, 100] if device.type == "cuda" else []) if told.stacked is None else told.stacked
    return run(told, device)


def subject(told: argparse.Namespace, device: torch.device) -> nn.Module:
    if "@" in told.model or not told.small:
        return module_of(load_target(told.model, data=load_data(told.data), device=str(device)))
    from assay.engines.train import train

    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "small.safetensors"
        train(told.model, "digits", weights, params={"epochs": 3, "lr": 2e-3})
        return module_of(load_target(f"{told.model}@{weights}", data=load_data(told.data), device=str(device)))


def run(told: argparse.Namespace, device: torch.device) -> int:
    net, chunks = subject(told, device), Chunks(told.batch)
    x, check = load_data(told.data).cases.x.to(device), load_data(told.check).cases.to(device)
    half = len(check) // 2
    place = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    with eval_mode(net), torch.no_grad():
        start = time.perf_counter()
        mutants = family(net, check.x[:half], check.y[:half], told.mutants, told.seed)
        took = time.perf_counter() - start
        right = net(check.x[half:]).argmax(1) == check.y[half:]
        kappa = upper_mean(scored(net, mutants, check.x[half:][right], chunks=chunks).lcr)
        print(
            f"{len(mutants)} mutants of {told.model}, {len(x)} inputs of {told.data}, batches of {told.batch}, {place}"
        )
        print(
            f"made in {took:.1f} s, rejected {mutants.rejected}, rates {mutants.rates}; kappa {kappa:.4f}", flush=True
        )
        wide = Sprt.around(kappa, 0.5)
        ask = partial(scored, net, mutants, x, chunks=chunks)

        def plain() -> MutantScores:
            with no_shortcuts(net):
                return ask(sprt=wide, early=False)

        def bare() -> None:
            with torch.inference_mode():
                chunks.map(net, x)

        jobs: dict[str, Job] = {"all mutants": lambda: ask(sprt=wide, early=False)}
        jobs |= {name: partial(ask, sprt=Sprt.around(kappa, delta)) for name, delta in EARLY.items()}
        jobs["all mutants, no shortcuts"] = plain
        seconds, whole, found = measured(jobs, bare, len(mutants), told.turns, device)
        held = table(seconds, whole, found, not told.small)
        report(net, mutants, x, found, told)
        if told.stacked:
            compare(net, mutants, x, told, device)
    return int(not held)


def report(
    net: nn.Module, mutants: Mutants, x: Tensor, found: Mapping[str, MutantScores], told: argparse.Namespace
) -> None:
    """What the test decided, and whether other ways come to the same."""
    print()
    for name in EARLY:
        decided = {w: int((found[name].decision == d).sum()) for w, d in WORDS.items()}
        print(f"{name}: {decided}")
    everything, early = found["all mutants"], found["early stop, delta 0.5 kappa"]
    print(f"decisions with and without early stop: {equal(everything, early, 'decision', 'at')}")
    columns = [f.name for f in fields(MutantScores) if f.name != "distance"]
    print(f"with and without shortcuts: {equal(everything, found['all mutants, no shortcuts'], *columns)}")
    n = min(told.by_hand, len(x))
    changes, distance = by_hand(net, mutants, x[:n], told.batch)
    wrong, off = int((changes != everything.changes[:n]).sum()), float((distance - everything.distance[:n]).abs().max())
    print(f"full copies of the net, {n} inputs: changes differ in {wrong}, distances by {off:.1e} at most")


WORDS = {"sensitive": SENSITIVE, "undecided": UNDECIDED, "stable": STABLE}


if __name__ == "__main__":
    sys.exit(main())
