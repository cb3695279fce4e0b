"""What work costs, as tables in Markdown: passes a case, bytes a lane and a failure, rates by the size of the net.

    python benchmarks/costs.py fuzz        # passes a case of every recipe, bytes of a lane and of a stored failure
    python benchmarks/costs.py evaluate    # passes an image of every attack and suite
    python benchmarks/costs.py train       # passes an image and epoch of every trainer
    python benchmarks/costs.py growth      # a campaign by its number of seeds
    python benchmarks/costs.py models --device cuda   # rates and memory by net, and a campaign of ImageNet's size

``--into docs/explanation/scale.md`` puts the table into that page, where the tables are never typed.

Passes are counted where they are made: every batch that goes through a classifier, forwards, backwards from its
answer, and once more through its backward pass (a double backward). All but ``models`` is counts, the same on every
machine; they are taken on digits with a LeNet-5 that is trained first. ``models`` takes nets with random weights and
random images, in which few failures are found: what commits take is hardly in their rates.
"""

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from assay.core import store
from assay.core.losses import cross_entropy
from assay.core.precision import full_precision
from assay.core.registry import lookup, names
from assay.engines.campaign import Campaign
from assay.engines.evaluate import evaluate
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.engines.held_out import MINES
from assay.engines.train import train
from assay.subjects.bench import Data, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import Normalised
from subjects import images, labelled_by, trained_lenet, untrained

SEEDS = 128
COMPARING = ("deepxplore", "regression", "regression-blind")  # recipes that ask other models too
GENERATOR = "cyclegan(epochs=2, images=200)"  # a small one: what it costs to use does not depend on how it was trained
STANDS, FALLS = "0.001", "0.1"  # eps at which nearly every image of digits withstands an attack, and at which few do
CASES_A_SEED = (10, 30, 100, 300)
IMAGENET = {"seeds": 50_000, "minutes": 10_000}
SIZES = {
    "lenet5": ("random(1x28x28)", {"cpu": 256, "cuda": 16384}),
    "resnet20": ("random(3x32x32)", {"cpu": 64, "cuda": 4096}),
    "resnet18": ("random(3x32x32)", {"cpu": 16, "cuda": 1024}),
    "resnet50": ("random(3x224x224,1000)", {"cpu": 4, "cuda": 128}),
}


@dataclass(slots=True)
class Passes:
    """Rows that went through classifiers, and the arithmetic of everything, in floating-point operations."""

    forward: int = 0
    backward: int = 0
    double: int = 0
    flops: int = 0

    def less(self, before: "Passes") -> "Passes":
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Passes(*(now - then for now, then in pairs))


class Arithmetic(TorchDispatchMode):
    """Adds up the operations of convolutions and matrix products, whoever asks for them."""

    def __init__(self, seen: Passes) -> None:
        TorchDispatchMode.__init__(self)
        self.seen = seen

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.seen.flops += count(*args, **(kwargs or {}), out_val=out)
        return out


@contextmanager
def counting() -> Iterator[Passes]:
    """Counts every pass of every classifier behind a normalisation, as all are that were trained by us."""
    seen = Passes()

    def back(grad: Tensor) -> None:
        seen.backward += len(grad)
        if grad.requires_grad:  # its graph is kept: a second derivative may come through it

            def through(bent: Tensor | None) -> None:  # None where nothing came through it after all
                seen.double += 0 if bent is None else len(bent)

            grad.register_hook(through)

    def forth(module: nn.Module, _given: object, out: Any) -> None:
        if isinstance(module, Normalised):
            seen.forward += len(out)
            if out.requires_grad:
                out.register_hook(back)

    hook = nn.modules.module.register_module_forward_hook(forth)
    try:
        with Arithmetic(seen):
            yield seen
    finally:
        hook.remove()


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def told(value: float) -> str:
    """Three digits, or all of a large number."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


class Campaigned(NamedTuple):
    """A campaign, what it took from when its first case was made, and the bytes that one lane keeps."""

    found: Found
    seeds: int
    passes: Passes
    lane: int
    stored: int


def lane_bytes(under_way: Campaign) -> int:
    """What one lane keeps from step to step."""
    one = under_way.lanes_of(iter(()), 1, 1).at(under_way.seeds[:1])
    return one.x.nbytes + sum(column.nbytes for column in one.info.values())


def campaign(recipe: str, model: str, other: str, data: Data, folder: Path) -> Campaigned:
    """Every seed worked once. What comes before the first case is not counted: seeds chosen, a generator trained."""
    begun: dict[str, Any] = {}
    real = Campaign.go

    def go(self: Campaign, *asked: Any, **given: Any) -> Found:
        begun.update(lane=lane_bytes(self), seeds=len(self.seeds), passes=Passes(*astuple(seen)))
        return real(self, *asked, **given)

    stages = lookup("recipe", recipe)[1]
    how: dict[str, Any] = {"training": "digits/train"} | ({"siblings": [other]} if recipe in COMPARING else {})
    how |= {"resistant": other} if recipe.startswith("twinfuzz") else {}
    how |= {"eps": FALLS} if "attacked" in f"{stages.mutate} {stages.seeds}" else {}
    how |= {"changes": {"mutate.of": GENERATOR}} if "cyclegan" in str(stages.mutate) else {}
    with mock.patch.object(Campaign, "go", go), counting() as seen:
        found = fuzz(recipe, model, data, folder=folder, device="cpu", curvature="double", **how)
    taken = seen.less(begun["passes"])
    stored = sum(path.stat().st_size for path in (folder / "cases").glob("*"))
    return Campaigned(found, begun["seeds"], taken, begun["lane"], stored)


def forward_flops(model: str, data: Data) -> float:
    """The arithmetic of one image's forward pass."""
    target = load_target(model, data=data, device="cpu")
    with counting() as seen, torch.no_grad():
        target(data.cases.x[:1])
    return seen.flops


def of_fuzzing(given: argparse.Namespace, folder: Path) -> None:
    data = images("digits", given.seeds)
    model, other = trained_lenet(folder), trained_lenet(folder, seed=1)
    one, size = forward_flops(model, data), data.cases.x[0].nbytes
    print(f"digits, {given.seeds} images, LeNet-5: an input has {size} bytes, a forward pass {one / 1e6:.2f} MFLOP\n")
    heads = ["recipe", "forward", "backward", "double backward", "arithmetic", "cases a seed"]

    def rows() -> Iterator[Sequence[str]]:
        for recipe in given.recipes or [name for name in names("recipe") if lookup("recipe", name)[1].mutate]:
            made = campaign(recipe, model, other, data, folder / recipe)
            n, failures = made.found.cases, made.found.failures
            each = [made.passes.forward / n, made.passes.backward / n, made.passes.double / n]
            cells = [*map(told, (*each, made.passes.flops / one / n, n / made.seeds))]
            stored = f"{made.stored / failures / size:.1f}" if failures else ""
            yield [f"`{recipe}`", *cells, f"{made.lane / size:.1f}", stored]

    markdown([*heads, "a lane, in inputs", "a failure on disk, in inputs"], rows())


def of_evaluation(given: argparse.Namespace, folder: Path) -> None:
    data = images("digits", given.seeds)
    model = trained_lenet(folder)
    print(f"digits, {given.seeds} images, LeNet-5; passes an image that is rightly classified\n")
    heads = ["", f"forward, eps {STANDS}", "gradient", f"forward, eps {FALLS}", "gradient", f"robust at eps {FALLS}"]

    def rows() -> Iterator[Sequence[str]]:
        suites = [(f"suite `{name}`", name) for name in names("suite") if name != "seen"]  # of this model nothing is
        for label, suite in [*((f"`{name}`", name) for name in names("attack")), *suites]:
            cells: list[str] = []
            for eps in (STANDS, FALLS):
                how: dict[str, Any] = _ball(suite, eps)
                result = evaluate(model, data, suite=suite, seen=(), device="cpu", **how)
                efforts = [outcome.effort for outcome in result.attacks.values()]
                cells += [told(sum(e.forward or 0 for e in efforts) / result.clean.right)]
                cells += [told(sum(e.gradient or 0 for e in efforts) / result.clean.right)]
            yield [label, *cells, f"{100 * result.worst.accuracy:.0f} %"]

    markdown(heads, rows())


def _ball(suite: str, eps: str) -> dict[str, str]:
    """The ball that an attack works in; those that look for the smallest change, and corruptions, have none."""
    if suite not in names("attack"):
        return {"eps": eps}
    defaults = {p.name: p.default for p in lookup("attack", suite)[0].parameters}
    norm = defaults.get("norm")
    return ({"norm": norm.strip("'")} if norm else {}) | (
        {"eps": eps} if "eps" in defaults and defaults["eps"] is None else {}
    )


UNEVEN = ("dynamic", "replay")  # whose epochs take more or less than others: the mean of four


def of_training(given: argparse.Namespace, folder: Path) -> None:
    """Two trainings that differ by two epochs: the difference is what epochs take, the rest what comes before them."""
    data = with_validation(load_splits("digits"))
    count, start = len(data.part("train")), trained_lenet(folder)
    print(f"digits, {count} images, LeNet-5; validation on {len(data.part('val'))} images is counted\n")

    def took(trainer: str, epochs: int) -> Passes:
        ball: dict[str, Any] = {} if trainer == "plain" else {"eps": FALLS}
        out = folder / f"{trainer}-{epochs}.safetensors"
        with counting() as seen:
            train(start, data, out, trainer=trainer, params={"epochs": epochs}, device="cpu", **ball)
        return seen

    def rows() -> Iterator[Sequence[str]]:
        for trainer in (name for name in names("trainer") if MINES not in lookup("trainer", name)[0].needs):
            four = took(trainer, 4)
            if trainer in UNEVEN:
                yield [f"`{trainer}`", told(four.forward / 4 / count), told(four.backward / 4 / count), "", ""]
                continue
            two = took(trainer, 2)
            epoch = four.less(two)
            each = [epoch.forward / 2 / count, epoch.backward / 2 / count]
            before = [two.forward / count - 2 * each[0], two.backward / count - 2 * each[1]]
            yield [f"`{trainer}`", *map(told, (*each, *before))]

    markdown(["trainer", "forward", "backward", "forward, before the first epoch", "backward, before"], rows())


def of_growth(given: argparse.Namespace, folder: Path) -> None:
    model = trained_lenet(folder)
    print(f"{given.recipe}, digits, LeNet-5, {given.device}, {torch.get_num_threads()} threads\n")

    def rows() -> Iterator[Sequence[str]]:
        for times in (1, 2, 4, 8):
            place = folder / f"run-{times}"
            data = images("digits", given.seeds * times)
            found = fuzz(given.recipe, model, data, folder=place, device=given.device, curvature="double")
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            cells = [len(data), found.cases, round(found.cases / found.seconds), found.failures, size]
            yield [*map(str, cells), f"{found.seconds:.1f}", told(size / max(1, found.failures))]

    heads = ["images", "cases", "cases/s", "failures", "bytes of the run", "seconds", "bytes a failure"]
    markdown(heads, rows())


class Rates(NamedTuple):
    """Of one net: images a second of bare passes, steps and failures a second of fuzzing, and bytes a lane."""

    forward: float
    gradient: float
    steps: float
    failures: float
    curvature: str
    kept: int
    peak: float


def rate(work: Callable[[], object], rows: int, seconds: float, device: str) -> float:
    """Rows a second, after one turn that warms up."""

    def waited() -> None:
        work()
        if device == "cuda":
            torch.cuda.synchronize()

    waited()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        waited()
        done += rows
    return done / (time.perf_counter() - began)


def bare_rates(net: nn.Module, data: Data, lanes: int, seconds: float, device: str) -> tuple[float, float]:
    """Images a second of what no step can do without: a forward pass, and one with the gradient at the input."""
    x, y = data.cases.x[:lanes].to(device), data.cases.y[:lanes].to(device)

    def forward() -> None:
        with torch.no_grad():
            net(x)

    def gradient() -> None:
        at = x.detach().requires_grad_()
        torch.autograd.grad(cross_entropy(net(at), y).sum(), at)

    with full_precision():
        return rate(forward, lanes, seconds, device), rate(gradient, lanes, seconds, device)


def rates(net: nn.Module, data: Data, lanes: int, given: argparse.Namespace, folder: Path) -> Rates:
    net.requires_grad_(False)
    bare = bare_rates(net, data, lanes, given.seconds / 4, given.device)
    cuda, kept = given.device == "cuda", dict[str, int]()
    real = Campaign.go

    def go(self: Campaign, *asked: Any, **how: Any) -> Found:
        kept["lane"] = lane_bytes(self)
        if cuda:
            kept["before"] = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        return real(self, *asked, **how)

    with mock.patch.object(Campaign, "go", go):
        found = fuzz(
            given.recipe, net, data, folder=folder, lanes=lanes, device=given.device, time=given.seconds, unit=lanes
        )
    peak = (torch.cuda.max_memory_allocated() - kept["before"]) / lanes if cuda else float("nan")
    way = next(store.read(found.run).commits("look")).meta["curvature"]
    steps, failures = found.gradient_steps / found.seconds, found.failures / found.seconds
    return Rates(*bare, steps, failures, way, kept["lane"], peak)


def of_models(given: argparse.Namespace, folder: Path) -> None:
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{given.recipe}, random weights and images, float32, {where}, torch {torch.__version__}\n")
    measured: dict[str, Rates] = {}

    def rows() -> Iterator[Sequence[str]]:
        for name in given.models or [name for name in SIZES if given.device == "cuda" or name != "resnet50"]:
            text, usual = SIZES[name]
            lanes = given.lanes or usual[given.device]
            data = images(text, min(4 * lanes, 65536))
            net = untrained(name, data, given.device)
            data = labelled_by(net, data)
            with counting() as seen, torch.no_grad():
                net(data.cases.x[:1].to(given.device))
            found = measured[name] = rates(net, data, lanes, given, folder / name)
            weights = sum(weight.numel() for weight in net.parameters())
            size = "×".join(map(str, data.spec.shape))
            speeds = (found.forward, found.gradient, found.steps)
            yield [
                f"`{name}`, {size}",
                f"{weights / 1e6:.2f}",
                told(seen.flops / 1e9),
                str(lanes),
                *(f"{speed:.0f}" for speed in speeds),
                f"{found.steps / found.gradient:.2f}",
                told(found.failures),
                found.curvature,
                f"{found.kept / 1e6:.3f}",
                f"{found.peak / 1e6:.2f}" if found.peak == found.peak else "",
            ]

    heads = ["net", "million weights", "GFLOP a pass", "lanes", "forward/s", "gradients/s", "steps/s", "of gradients"]
    markdown([*heads, "failures/s", "curvature", "MB a lane, kept", "MB a lane, at most"], rows())
    if "resnet50" in measured:
        foretold(measured["resnet50"], 3 * 224 * 224 * 4)


def foretold(found: Rates, size: int) -> None:
    """What a campaign of ImageNet's size takes at that rate, for some numbers of cases a seed."""
    seeds, minutes = IMAGENET["seeds"], IMAGENET["minutes"]
    held = f"{seeds * size / 1e9:.0f} GB of the host's memory"
    print(f"\n{seeds} seeds, ResNet-50, one such device; the seeds take {held}\n")
    cells = ([str(n), f"{seeds * n / 1e6:.1f}", f"{seeds * n / found.steps / 60:.0f}"] for n in CASES_A_SEED)
    markdown(["cases a seed", "million cases", "minutes"], cells)
    print(f"\n{minutes} minutes are {told(found.steps * minutes * 60 / 1e6)} million cases, ", end="")
    print(f"{found.steps * minutes * 60 / seeds:.0f} a seed")


class Printed(io.StringIO):
    """Keeps what is printed, and shows it."""

    def __init__(self, shown: TextIO) -> None:
        super().__init__()
        self.shown = shown

    def write(self, text: str) -> int:
        self.shown.write(text)
        self.shown.flush()
        return super().write(text)


def put(page: Path, name: str, text: str) -> None:
    """The text between the marks of that name."""
    begin, end = f"<!-- costs: {name} -->", f"<!-- end: {name} -->"
    before, there, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ends, after = rest.partition(end)
    if not (there and ends):
        raise SystemExit(f"{page} has no {begin} … {end}")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, work in (("fuzz", of_fuzzing), ("evaluate", of_evaluation), ("train", of_training)):
        part = verbs.add_parser(name)
        part.set_defaults(work=work)
        if name != "train":
            part.add_argument("--seeds", type=int, default=SEEDS, help="images of digits")
        if name == "fuzz":
            part.add_argument("--recipes", nargs="+", default=[])
    for name, work in (("growth", of_growth), ("models", of_models)):
        part = verbs.add_parser(name)
        part.set_defaults(work=work)
        part.add_argument("--recipe", default="robot")
        part.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    verbs.choices["growth"].add_argument("--seeds", type=int, default=512, help="images of the smallest campaign")
    part = verbs.choices["models"]
    part.add_argument("--models", nargs="+", choices=list(SIZES), help="on a CPU all but resnet50, which takes minutes")
    part.add_argument("--lanes", type=int, default=0, help="for all nets; each has its own number otherwise")
    part.add_argument("--seconds", type=float, default=12.0, help="of fuzzing each net; half of it of bare passes")
    for name, part in verbs.choices.items():
        part.add_argument("--into", type=Path, help="a page with the marks of this table, which is put between them")
        part.set_defaults(name=name)
    given = parser.parse_args()
    printed = Printed(sys.stdout)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(printed):
        given.work(given, Path(folder))
    if given.into is not None:
        name = f"{given.name} {given.device}" if "device" in given else given.name
        put(given.into, name, printed.getvalue())


if __name__ == "__main__":
    main()
