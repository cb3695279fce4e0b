"""Fault 10: data from which little or nothing follows. What is undefined is said to be, and never 0 or NaN."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.core.registry import names
from commands import Nursery, Result

NET = """from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, {classes}))
"""
UNCHECKED = tuple(word for name in names("check") for word in ("--ignore", name))
SUITE = "apgd_ce(steps=3), apgd_dlr(steps=3), apgd_t(steps=3), fab_t(steps=3), square(queries=10)"


@dataclass(frozen=True, slots=True)
class Small:
    """A net of few classes with inputs it is right on."""

    model: str
    x: Tensor
    y: Tensor

    def save(self, name: str, rows: Tensor | slice = slice(None), shift: int = 0) -> str:
        """Some of the inputs as a file, their labels moved by ``shift``; its name."""
        x, y = self.x[rows], (self.y[rows] + shift) % (int(self.y.max()) + 1)
        np.savez(f"{name}.npz", x=x.numpy(), y=y.numpy())
        return f"{name}.npz"

    def rows(self, kind: str) -> Tensor | slice:
        kinds: dict[str, Tensor | slice] = {
            "none": slice(0, 0),
            "one image": slice(0, 1),
            "one class": (self.y == int(self.y[0])).nonzero().flatten()[:12],
            "duplicates": torch.zeros(12, dtype=torch.int64),
            "more classes than data": slice(0, 2),
            "all wrong": slice(0, 24),
        }
        return kinds[kind]

    def data(self, kind: str) -> str:
        return self.save(kind.replace(" ", "_"), self.rows(kind), shift=int(kind == "all wrong"))


def small(classes: int) -> Small:
    Path(f"net{classes}.py").write_text(NET.format(classes=classes))
    with torch.random.fork_rng():
        torch.manual_seed(classes)
        net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, classes))
        x = torch.rand(200, 1, 8, 8)
    save_file(net.state_dict(), f"w{classes}.safetensors")
    with torch.no_grad():
        return Small(f"net{classes}.py:net@w{classes}.safetensors", x, net(x).argmax(1))


def read(result: Result) -> Any:
    """The JSON of a command, which holds no NaN and no infinity."""

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} in {result.out}")

    return json.loads(result.ended(0).out, parse_constant=refuse)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_impossible_attacks_are_dropped_where_all_can_see(home: Nursery, classes: int) -> None:
    net = small(classes)
    data = net.save("data", slice(0, 16))
    arguments = ("eval", net.model, "--data", data, "--suite", SUITE, "--eps", "0.02", *UNCHECKED)
    told = read(shown := home.run(*arguments, "--json", "--save", "few"))
    dropped = {"apgd_dlr"} if classes < 3 else set()
    dropped |= {"apgd_t"} if classes < 4 else set()
    assert set(told["attacks"]) == {"apgd_ce", "apgd_dlr", "apgd_t", "fab_t", "square"} - dropped
    limited = told["protocol"]["limited"]
    assert {name for name, why in limited.items() if why.startswith("dropped")} == dropped
    for name in dropped:
        assert f"attack {name} is dropped" in shown.err
        assert f"there are {classes}" in limited[name]
    assert f"towards {classes - 1} other class" in limited["fab_t"]
    assert f"targets={classes - 1}" in told["protocol"]["attacks"]["fab_t"]
    table = " ".join(home.run(*arguments, "--save", "few").ended(0).out.split())
    assert all(f"{name} is dropped" in table for name in dropped)
    for verb in ("status", "report"):
        home.run(verb, "few").ended(0)


def test_a_suite_of_impossible_attacks_alone_is_refused(home: Nursery) -> None:
    net = small(2)
    data = net.save("data", slice(0, 8))
    arguments = ("eval", net.model, "--data", data, "--suite", "apgd_dlr, apgd_t", "--eps", "0.02", "--save", "none")
    home.run(*arguments).ended(4, "2 classes", "apgd_dlr", "apgd_ce")
    assert not Path("runs/none").exists()


def test_a_requirement_on_an_impossible_attack_is_refused(home: Nursery) -> None:
    net = small(2)
    np.savez("set.npz", x_train=net.x[:40], y_train=net.y[:40], x_test=net.x[40:60], y_test=net.y[40:60])
    arguments = ("harden", net.model, "--data", "set.npz", "--recipe", "noise", "--until", "apgd_dlr>=0.5")
    home.run(*arguments, "--eps", "0.02", "--run", "none").ended(4, "apgd_dlr", "3 classes")
    assert not Path("runs/none").exists()


@pytest.mark.parametrize("recipe", ["noise", "robot", "deephunter"])
@pytest.mark.parametrize("kind", ["none", "all wrong"])
def test_nothing_to_fuzz_is_said_so(home: Nursery, kind: str, recipe: str) -> None:
    net = small(3)
    data = net.data(kind)
    arguments = ("fuzz", net.model, "--data", data, "--recipe", recipe, "--training", net.save("known"))
    words = ("holds no case",) if kind == "none" else ("'correct'", "24 cases", "every one wrong")
    home.run(*arguments, "--cases", "20", "--run", "none").ended(5, *words)
    if Path("runs/none").exists():
        home.run("status", "none").ended(0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one image", "one class", "duplicates", "more classes than data"])
def test_little_data_is_fuzzed_and_reported(home: Nursery, kind: str) -> None:
    net = small(3)
    data = net.data(kind)
    for recipe in ("noise", "robot", "deephunter", "tensorfuzz"):
        arguments = ("fuzz", net.model, "--data", data, "--recipe", recipe, "--training", data, "--cases", "20")
        told = read(home.run(*arguments, "--run", recipe, "--json"))
        assert told["cases"] >= 20
        for verb in ("status", "report"):
            home.run(verb, recipe).ended(0)
        page = Path("runs", recipe, "report", "index.html").read_text()
        assert ">nan<" not in page.lower()
        assert ">inf<" not in page.lower()


@pytest.mark.parametrize("kind", ["none", "all wrong", "one image", "one class", "duplicates"])
def test_evaluation(home: Nursery, kind: str) -> None:
    net = small(3)
    arguments = ("eval", net.model, "--data", net.data(kind), "--suite", "fgsm, square(queries=5)", "--eps", "0.02")
    if kind == "none":
        home.run(*arguments).ended(5, "holds no case")
        return
    told = read(home.run(*arguments, "--json"))
    assert told["clean"]["accuracy"] == (0.0 if kind == "all wrong" else 1.0)
    if kind == "all wrong":  # no attack had anything to do, so none has a rate
        assert [outcome["success_rate"] for outcome in told["attacks"].values()] == [None, None]
        assert [outcome["tried"] for outcome in told["attacks"].values()] == [0, 0]
    assert all(numbers["n"] for numbers in told["per_class"].values())  # a class without inputs has no accuracy


@pytest.mark.parametrize("kind", ["none", "one image", "one class", "duplicates", "all wrong"])
def test_prioritising(home: Nursery, kind: str) -> None:
    net = small(3)
    pool = net.data(kind)
    by = "gini, dsa, lsa, mdsa, random"
    arguments = ("prioritise", net.model, "--pool", pool, "--by", by, "--training", net.save("known"))
    if kind == "none":
        home.run(*arguments).ended(5, "holds no case")
        return
    told = read(home.run(*arguments, "--json"))
    assert told["faults"] == (24 if kind == "all wrong" else 0)
    if kind != "all wrong":  # nothing fails: how early failures come is not defined
        assert all(method["apfd"] is None for method in told["methods"])
        assert "no case of the pool is wrong" in (shown := home.run(*arguments).ended(0)).out + shown.err


@pytest.mark.parametrize("kind", ["none", "one image", "one class", "duplicates"])
def test_coverage(home: Nursery, kind: str) -> None:
    net = small(3)
    arguments = ("coverage", net.model, "--data", net.data(kind), "--by", "nc, kmnc, nbc, nlc, tknp")
    result = home.run(*arguments, "--training", net.save("known"), "--json")
    if kind == "none":
        result.ended(5, "holds no case")
        return
    read(result)


def test_a_profile_of_one_image(home: Nursery) -> None:
    net = small(3)
    one = net.data("one image")
    read(home.run("coverage", net.model, "--data", one, "--by", "nc, kmnc, nbc", "--training", one, "--json"))


@pytest.mark.slow
def test_selecting_more_than_there_are(home: Nursery) -> None:
    net = small(3)
    arguments = ("fuzz", net.model, "--data", net.data("one class"), "--recipe", "noise", "--run", "few")
    home.run(*arguments, "--cases", "60", "--set", "mutate.eps=0.6").ended(0)
    for by in ("random", "top(score=fol)", "k_multisection(score=fol)", "bi_end", "spread"):
        result = home.run("select", "few", "-k", "100000", "--by", by)
        assert result.code in (0, 4, 5), result.err
        result.ended(result.code)


@pytest.mark.slow
def test_hardening_where_nothing_fails(home: Nursery) -> None:
    """A net that withstands everything in a ball without a size: hardening has nothing to learn from."""
    net = small(3)
    np.savez("set.npz", x_train=net.x[:60], y_train=net.y[:60], x_test=net.x[60:80], y_test=net.y[60:80])
    arguments: tuple[str, ...] = ("harden", net.model, "--data", "set.npz", "--recipe", "noise")
    arguments += ("--until", "fgsm>=0.999")
    arguments += ("--eps", "0.000001", "--rounds", "1", "--fuzz-cases", "20", "--suite", "fgsm", "--run", "calm")
    result = home.run(*arguments, "--no-control")
    assert result.code in (0, 1, 5), result.err
    result.ended(result.code)
    for verb in ("status", "report"):
        home.run(verb, "calm").ended(0)
