"""What the reference tests share: contests between our attacks and the same ones of other libraries.

Digits in every run. MNIST where ``$ASSAY_DATA`` has it, on a LeNet-5 and on one trained adversarially (marked slow);
the nets are trained once and kept in pytest's cache.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.stats import wilson
from assay.engines.evaluate import evaluate
from assay.engines.train import train
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget
from peers import PEERS, Setting, wanted


@dataclass(frozen=True, slots=True)
class Contest:
    """One attack set up alike for all: ``steps`` are the peers', ``params`` ours; sizes are numbers of images.

    Without a ``norm`` it looks for the nearest example in L2 (or knows no ball), and its ``eps`` says nothing.
    """

    attack: str
    steps: int = 20
    params: dict[str, Any] = field(default_factory=dict)
    norm: Norm | None = "linf"
    aimed: bool = False
    nearest: bool = False
    digits: int = 360
    mnist: int = 1000


CONTESTS = {
    "fgsm": Contest("fgsm", 1),
    "bim": Contest("bim", params={"steps": 20, "step": 0.1}),
    "mim": Contest("mim", params={"steps": 20, "step": 0.1}),
    "pgd": Contest("pgd", params={"steps": 20, "step": 0.1}),
    "pgd_l2": Contest("pgd", params={"steps": 20, "step": 0.1}, norm="l2"),
    "apgd_ce": Contest("apgd_ce", 100, {"steps": 100}),
    "apgd_dlr": Contest("apgd_dlr", 100, {"steps": 100}),
    "apgd_t": Contest("apgd_t", 100, {"steps": 100}, digits=100),
    "fab_t": Contest("fab_t", 100, {"steps": 100}, digits=100),
    "square": Contest("square", 500, {"queries": 500}),
    "cw": Contest("cw", 100, {"steps": 100}, norm=None, nearest=True, digits=100, mnist=200),
    "deepfool": Contest("deepfool", 50, norm=None, nearest=True, digits=100, mnist=200),
    "jsma": Contest("jsma", params={"targeted": True}, norm=None, aimed=True, digits=40, mnist=100),
    "hop_skip_jump": Contest("hop_skip_jump", 10, {"queries": 2500}, None, nearest=True, digits=20, mnist=50),
    "boundary": Contest("boundary", 1000, {"queries": 1500}, None, nearest=True, digits=20, mnist=50),
    "spatial": Contest("spatial", norm=None, digits=100, mnist=500),
    "autoattack": Contest("autoattack", 100, digits=40),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A net, its data and how large the ball is there."""

    target: ModuleTarget
    data: Data
    linf: float
    l2: float

    def cases(self, contest: Contest) -> Cases:
        return self.data.cases[: contest.digits if "digits" in self.data.name else contest.mnist]

    def eps(self, norm: Norm | None) -> float:
        return self.l2 if norm == "l2" else self.linf


def ours(contest: Contest, field: Field, cases: Cases) -> Tensor:
    """Our attack's examples."""
    offered = {} if contest.norm is None else {"eps": field.eps(contest.norm), "norm": contest.norm}
    params = dict(contest.params)
    if contest.attack == "spatial":
        params["shift"] = 3 / field.target.spec.shape[-1]  # the peer's three pixels
    goal = wanted(cases.y, len(field.target.spec.classes)) if contest.aimed else cases.y
    made: Tensor = bind("attack", contest.attack, params, offered)(
        field.target, cases.x, goal, rng=Stream(0).rows(cases.origin)
    )
    return made


def standing(contest: Contest, field: Field, cases: Cases, made: Tensor) -> Tensor:
    """Which rows are not fooled (N,), judged anew: right, or outside ball or bounds, or not at the class wanted."""
    made = made.detach().to(cases.x)
    with torch.no_grad():
        answers = field.target(made).argmax(1)
    if contest.aimed:
        left = answers != wanted(cases.y, len(field.target.spec.classes))
    else:
        left = answers == cases.y
    left |= ((made < -1e-5) | (made > 1 + 1e-5)).flatten(1).any(1)
    if contest.norm is not None:
        left |= norms.size(made - cases.x, contest.norm) > field.eps(contest.norm) * (1 + 1e-4) + 1e-5
    return left


Agree = Callable[[str, str, Field], None]


@pytest.fixture
def agree() -> Agree:
    """Checks that our attack is as strong as the peer's: no more images stand than its 95 % interval allows.

    Of attacks that look for the nearest example also that ours are as near, on the images both fool.
    """

    def check(library: str, name: str, field: Field) -> None:
        contest = CONTESTS[name]
        cases, net, spec = field.cases(contest), field.target.module.eval(), field.target.spec
        setting = Setting(net, spec.shape, len(spec.classes), len(cases), field.eps(contest.norm), contest.steps)
        theirs = PEERS[name][library](setting)(cases.x, cases.y)
        net.zero_grad(set_to_none=True)
        peer = standing(contest, field, cases, theirs)
        if name == "autoattack":
            some = Data(field.data.name, cases, spec)
            left = evaluate(field.target, some, suite="autoattack", eps=field.linf).worst.right
            assert left <= int(peer.sum()) + len(cases) / 200
            return
        made = ours(contest, field, cases)
        own = standing(contest, field, cases, made)
        assert float(own.float().mean()) <= wilson(int(peer.sum()), len(cases))[1]
        if contest.nearest:
            with torch.no_grad():
                both = ~own & ~peer & (field.target(cases.x).argmax(1) == cases.y)
            assert both.any()
            sizes = [norms.size((t - cases.x)[both], "l2").mean() for t in (made, theirs)]
            assert sizes[0] <= 1.05 * sizes[1]

    return check


@pytest.fixture(scope="session")
def on_digits(digits_model: str) -> Field:
    return _field(digits_model, load_data("digits/test"), 0.1, 0.8)


@pytest.fixture(scope="session")
def mnist() -> Data:
    try:
        return load_data("mnist/test[:1000]")
    except UsageError as why:
        pytest.skip(f"MNIST is not at hand: {why}")


@pytest.fixture(scope="session")
def plain_net(mnist: Data, request: pytest.FixtureRequest) -> Path:
    path = _kept(request, "mnist-plain")
    if not path.exists():
        train("lenet5", "mnist", path, params={"epochs": 5}, device="cpu")
    return path


@pytest.fixture(scope="session")
def on_mnist(mnist: Data, plain_net: Path) -> Field:
    return _field(f"lenet5@{plain_net}", mnist, 0.1, 1.0)


@pytest.fixture(scope="session")
def on_hardened(mnist: Data, plain_net: Path, request: pytest.FixtureRequest) -> Field:
    """The same net after three epochs of adversarial training at 0.2, attacked at 0.2."""
    path = _kept(request, "mnist-adversarial")
    if not path.exists():
        params = {"epochs": 3, "batch": 128}
        train(f"lenet5@{plain_net}", "mnist", path, trainer="adversarial", params=params, eps=0.2, device="cpu")
    return _field(f"lenet5@{path}", mnist, 0.2, 2.0)


def _kept(request: pytest.FixtureRequest, name: str) -> Path:
    assert request.config.cache is not None
    return request.config.cache.mkdir("assay-nets") / f"{name}.safetensors"


def _field(model: str, data: Data, linf: float, l2: float) -> Field:
    target = load_target(model, device="cpu")
    assert isinstance(target, ModuleTarget)
    return Field(target, data, linf, l2)
