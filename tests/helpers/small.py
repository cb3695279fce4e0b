"""A run so small that hundreds of it fit into a test: a linear net known in closed form, a few digits as seeds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

NET = """
from torch import nn

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""
MODEL = "tiny.py:net@tiny.safetensors"
CAMPAIGN = """
[run]
seed = 3
unit = 8
[data]
training = "seeds.npz"
[recipe]
name = "noise"
mutate = "noise(eps=0.9)"
schedule = "pool(mutants=4)"
coverage = "kmnc(k=20)"
keep = ["gains"]
"""
# Commands on it; {} stands for the name of the run.
EVAL = ["eval", MODEL, "--data", "seeds.npz", "--suite", "fast", "--eps", "0.1", "--batch", "8", "--save", "{}"]
HARDEN = ["harden", MODEL, "--data", "digits", "--recipe", "noise", "--eps", "0.1", "--fuzz-cases", "200"]
HARDEN += ["--per-round", "5%", "--set", "train.epochs=1", "--set", "mutate.eps=0.9", "--rounds", "1"]
HARDEN += ["--val-cases", "20", "--test-cases", "20", "--until", "clean>=0.999", "--no-control", "--deterministic"]
HARDEN += ["--run", "{}", "--quiet"]
SEEDS = 16
_OWN = ("LOCK", "stats.json", "plot.csv", "environment.json")  # clocks and machines
_ASIDE = ("quarantine", "report", "training")


def prepare(folder: Path, campaign: str = CAMPAIGN, seeds: int = SEEDS) -> None:
    """The net (each class known by its mean image), seeds and campaign, as files in a folder."""
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32)[:, None], digits.target
    means = np.stack([x[y == c].mean(0).ravel() for c in range(10)])
    save_file({"1.weight": means * 4, "1.bias": -2 * (means**2).sum(1)}, folder / "tiny.safetensors")
    np.savez(folder / "seeds.npz", x=x[:seeds], y=y[:seeds])
    (folder / "tiny.py").write_text(NET)
    (folder / "campaign.toml").write_text(campaign)


def fuzz(run: str, *more: str) -> list[str]:
    """The command of the campaign, in the folder where it was prepared."""
    base = ["fuzz", MODEL, "--data", "seeds.npz", "--config", "campaign.toml", "--lanes", "8"]
    return [*base, "--run", run, "--json", "--quiet", *more]


def committed(run: Path) -> dict[str, bytes]:
    """What a run and the rounds in it hold, to compare with another: journals and orders without their clocks."""
    return {
        str(path.relative_to(run)): timeless(path.read_bytes())
        if path.suffix in (".json", ".jsonl")
        else path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in _OWN and not set(path.relative_to(run).parts) & set(_ASIDE)
    }


def timeless(content: bytes) -> bytes:
    """Lines of JSON without what a clock said, and without the digests of what holds it."""
    return b"".join(json.dumps(_without(json.loads(line))).encode() + b"\n" for line in content.splitlines())


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _without(one) for name, one in value.items() if name != "sum" and not name.endswith("seconds")}
    if "effort" in kept:
        kept["effort"] = {name: counts[1:] for name, counts in kept["effort"].items()}
    return {name: "" if "/orders-" in name else one for name, one in kept.items()}
