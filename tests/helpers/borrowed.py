"""A user's session with a live net, as a process of its own: what every public function leaves behind, as JSON.

``python borrowed.py NAME...`` runs these works, each undisturbed, with a net that raises at some call, and with one
that is interrupted; what is told is every difference in the net and in the process that is left afterwards.
"""

import hashlib
import json
import logging
import random
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import assay
from assay.core.cases import Cases
from assay.core.registry import names
from assay.subjects.bench import Splits

SHAPE, CLASSES = (1, 6, 6), 4
ATTACKS = {
    "apgd_t": "apgd_t(steps=3, targets=2)",
    "boundary": "boundary(queries=30)",
    "cw": "cw(steps=3, searches=2)",
    "deepfool": "deepfool(steps=3)",
    "fab_t": "fab_t(steps=3, targets=2)",
    "fgsm": "fgsm",
    "hop_skip_jump": "hop_skip_jump(queries=60)",
    "jsma": "jsma(candidates=4)",
    "spatial": "spatial(angles=3, shifts=3)",
    "square": "square(queries=10)",
    "corrupt": "corrupt",
}
FUZZERS = ("noise", "robot", "deephunter", "dlfuzz", "tensorfuzz", "adapt", "deepxplore-alone", "lbt")


class Net(nn.Module):
    """In training mode, with all that a user may have done to it; ``fails`` at a call, if so told."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.still = nn.Dropout(0.5), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())
        self.fc = nn.Linear(4 * 36, CLASSES)
        self.register_buffer("seen", torch.zeros(3))
        self.calls, self.at, self.error = 0, 0, BaseException

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise self.error("as the test wants it")
        self.seen.add_(1)  # a net may count, and may clear what it finds
        self.fc.weight.grad = None
        out: Tensor = self.fc(self.drop(self.still(self.norm(self.conv(x)))).flatten(1))
        return out


def prepared() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = Net().train()
        net(torch.rand(8, *SHAPE)).square().mean().backward()
    net.still.eval()
    net.conv.weight.requires_grad_(False)
    net.fc.bias.grad = None
    net.conv.register_forward_hook(lambda module, given, out: None)
    net.fc.register_full_backward_hook(lambda module, given, out: None)
    net.norm.register_forward_pre_hook(lambda module, given: None)
    net.calls = 0
    return net


def digest(tensor: Tensor | None) -> str:
    return "none" if tensor is None else hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()[:12]


def net_now(net: nn.Module) -> dict[str, Any]:
    """Everything of the net that must be as it was."""
    now: dict[str, Any] = {}
    for name, part in net.named_modules():
        hooks = [len(value) for key, value in sorted(vars(part).items()) if key.endswith("_hooks")]
        now[f"module {name}"] = (part.training, hooks, sorted(part._buffers), sorted(part._parameters))
    for name, weight in net.named_parameters():
        now[f"weight {name}"] = (id(weight), digest(weight), weight.requires_grad)
        now[f"grad {name}"] = (id(weight.grad), digest(weight.grad))
    for name, buffer in net.named_buffers():
        now[f"buffer {name}"] = (id(buffer), digest(buffer))
    return now


def world_now() -> dict[str, Any]:
    """Everything of the process that must be as it was."""
    log = logging.getLogger("assay")
    return {
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "type": str(torch.get_default_dtype()),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled),
        "torch's random numbers": digest(torch.get_rng_state()),
        "numpy's random numbers": hashlib.sha256(np.random.get_state()[1].tobytes()).hexdigest()[:12],  # type: ignore[index]
        "python's random numbers": hash(random.getstate()),
        "handlers": [len(log.handlers), log.level, log.propagate, len(logging.getLogger().handlers)],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
        "warnings": len(warnings.filters),
    }


def data_of(net: nn.Module, count: int, seed: int) -> assay.Data:
    x = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))
    target = assay.load_target(net, data=assay.Data("start", Cases.of(x), spec()))
    with torch.no_grad():
        return assay.Data(f"made-{seed}", Cases.of(x, target(x).argmax(1)), spec())


def spec() -> assay.InputSpec:
    return assay.InputSpec(SHAPE, (0.0, 1.0), tuple(map(str, range(CLASSES))))


class Works:
    """The works by name, each a call with a net."""

    def __init__(self) -> None:
        calm = prepared()
        self.data, self.more = data_of(calm, 12, 1), data_of(calm, 40, 2)
        self.number = 0
        assay.fuzz("noise", calm, self.data, run="base", cases=150, changes={"mutate.eps": 0.5})

    def run(self) -> str:
        self.number += 1
        return f"run-{self.number}"

    def splits(self) -> Splits:
        return Splits("made", train=self.more, val=self.data, test=self.data)

    def named(self) -> dict[str, Callable[[Net], object]]:
        x, y = self.data.cases.x, self.data.cases.y

        def attack(text: str) -> Callable[[Net], object]:
            ball = {} if text.startswith(("spatial", "corrupt", "jsma")) else {"eps": 0.2}
            return lambda net: assay.attack(text, net, x, y, **ball)  # type: ignore[arg-type]

        def fuzzing(recipe: str) -> Callable[[Net], object]:
            ball = {"eps": 0.1} if recipe == "lbt" else {}
            return lambda net: assay.fuzz(recipe, net, self.data, run=self.run(), cases=12, training=self.more, **ball)  # type: ignore[arg-type]

        works: dict[str, Callable[[Net], object]] = {
            "load": lambda net: assay.load_target(net, data=self.data)(x),
            "evaluate": lambda net: assay.evaluate(net, self.data, suite="fgsm, pgd(steps=2)", eps=0.05),
            "coverage": lambda net: assay.coverage(net, self.data, by="nc, kmnc", training=self.more),
            "prioritise": lambda net: assay.prioritise(
                net, self.data, by="gini, dsa, fol, mc_dropout(passes=3)", training=self.more
            ),
            "select": lambda net: assay.select(
                "base", by="top(score=fol)", k=3, model=net, seed=len(self.run()) + self.number
            ),
            "shrink": lambda net: assay.shrink("base", k=3, model=net, budget=20 + len(self.run()) + self.number),
            "replay": lambda net: assay.replay("base", k=3, model=net, repeats=2),
            "transfer": lambda net: assay.transfer(
                [net, prepared().eval()], self.data, suite="pgd(steps=2)", eps=0.1, names=["a", "b"]
            ),
            "harden": lambda net: assay.harden(
                "noise",
                net,
                self.splits(),
                until="fgsm>=0.99",
                eps=0.05,
                rounds=1,
                fuzz_cases=20,
                suite="fgsm",
                control=False,
                run=self.run(),
                changes={"train.epochs": 1},
            ),
        }
        works |= {f"attack {name}": attack(ATTACKS.get(name, f"{name}(steps=3)")) for name in names("attack")}
        return works | {f"fuzz {recipe}": fuzzing(recipe) for recipe in FUZZERS}


class Notices(logging.Handler):
    """How often the net's training mode was told."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "training mode" in record.getMessage()


def tried(work: Callable[[Net], object], at: int, error: type[BaseException]) -> dict[str, Any]:
    """What a work left behind that was not there before, how it ended, and how often training mode was told."""
    net = prepared()
    net.at, net.error = at, error
    notices = Notices()
    logging.getLogger("assay").addHandler(notices)
    before, world = net_now(net), world_now()
    ended = "well"
    try:
        work(net)
    except BaseException as raised:  # noqa: BLE001  whatever comes of it, the net is to be as it was
        ended = f"{type(raised).__name__}: {raised}"
    after, there = net_now(net), world_now()
    logging.getLogger("assay").removeHandler(notices)
    left = [
        f"{key}: {before.get(key)} before, {value} after" for key, value in after.items() if before.get(key) != value
    ]
    left += [f"{key} is gone" for key in before if key not in after]
    left += [f"{key}: {world[key]} before, {value} after" for key, value in there.items() if world[key] != value]
    return {"ended": ended, "left": left, "told": notices.count, "calls": net.calls}


def main(wanted: list[str]) -> None:
    logging.getLogger("assay").setLevel(logging.INFO)
    torch.set_num_threads(1)
    named = Works().named()
    told: dict[str, Any] = {}
    for name in wanted or named:
        tried(named[name], 0, ValueError)  # what is imported on the way may change the world, once
        told[name] = {"well": tried(named[name], 0, ValueError)}
        calls = told[name]["well"]["calls"]
        for at in sorted({1, 2, max(1, calls // 2), max(1, calls)}):
            told[name][f"raises at {at}"] = tried(named[name], at, ValueError)
        for at in sorted({1, max(1, calls // 2)}):
            told[name][f"interrupted at {at}"] = tried(named[name], at, KeyboardInterrupt)
    Path("told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
