"""Names: found by reading files, checked before they are called."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core import registry, specs
from assay.core.entries import FOLDERS, Entry, Parameter, read_folder
from assay.core.errors import UsageError
from assay.core.registry import bind, entries, entry, lookup, names, register
from assay.core.specs import canonical
from assay.core.userfile import load_object

STATIC = [(kind, found) for kind in FOLDERS for found in read_folder(kind)]


@pytest.fixture(autouse=True)
def _only_ours() -> Iterator[None]:
    """Forget what a test registered; what importing our own files registered stays, as importing does not repeat."""
    yield
    for key, (told, _) in list(registry._runtime.items()):
        if not told.module.startswith("assay."):
            del registry._runtime[key]


def sample() -> None:
    @register("attack", paper="Nobody 1900", needs=("grad", "logit"), gradients=3)
    def sample_attack(
        target: Any,
        x: Tensor,
        y: Tensor,
        *,
        rng: Any,
        eps: float,
        steps: int = 40,
        norm: str = "linf",
        early: bool = True,
        free: Any = None,
    ) -> tuple[Any, ...]:
        """A sample.

        Its second line.
        """
        return x, eps, steps, norm, early, free, rng


def test_a_decorated_function_is_registered_with_all_it_says() -> None:
    sample()
    told = entry("attack", "sample_attack")
    assert (told.kind, told.name, told.summary) == ("attack", "sample_attack", "A sample.")
    assert (told.paper, told.needs, told.gradients) == ("Nobody 1900", ("grad", "logit"), 3)
    assert told.parameters[:4] == (
        Parameter("rng", "Any", None),
        Parameter("eps", "float", None),
        Parameter("steps", "int", "40"),
        Parameter("norm", "str", "'linf'"),
    )
    assert "sample_attack" in names("attack")


def test_the_decorator_returns_the_function_itself() -> None:
    def plain(x: int) -> int:
        return x + 1

    assert register("selector")(plain) is plain
    assert lookup("selector", "plain")[1] is plain


def test_a_name_of_its_own_and_either_dash() -> None:
    def made() -> None: ...

    register("data", name="my-data")(made)
    assert lookup("data", "my-data")[1] is made
    assert lookup("data", "my_data")[1] is made
    assert entry("data", "my_data").name == "my-data"


def test_entries_are_sorted_and_kinds_are_apart() -> None:
    sample()
    assert names("attack") == sorted(names("attack"))
    assert "sample_attack" not in names("mutator")


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError) as refused:
        entry("attack", "pgdd")
    assert str(refused.value) == "unknown attack 'pgdd'; did you mean 'pgd'?"


def test_an_unknown_name_that_is_near_none_gets_the_list() -> None:
    with pytest.raises(UsageError, match=r"unknown attack 'zzzzzzzz'; known: .*fgsm.*pgd"):
        lookup("attack", "zzzzzzzz")


def test_an_unknown_kind_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown kind 'attacks'; did you mean 'attack'"):
        entries("attacks")
    with pytest.raises(UsageError, match="unknown kind"):
        register("attacks")


def test_every_kind_of_stage_has_an_entry() -> None:
    assert {kind for kind, _ in STATIC} == set(FOLDERS)


@pytest.mark.parametrize(("kind", "static"), STATIC, ids=[f"{kind}-{found.name}" for kind, found in STATIC])
def test_reading_a_file_says_what_importing_it_says(kind: str, static: Entry) -> None:
    runtime, thing = lookup(kind, static.name)
    if kind in ("recipe", "suite"):  # data: the object itself is what importing says
        assert (static.name, static.summary, static.paper) == (thing.name, thing.summary, getattr(thing, "paper", ""))
        return
    assert thing.__name__ == static.attribute
    assert (runtime.kind, canonical(runtime.name), runtime.name) == (kind, canonical(static.name), static.name)
    assert [p.name for p in runtime.parameters] == [p.name for p in static.parameters]
    assert [p.default is None for p in runtime.parameters] == [p.default is None for p in static.parameters]
    assert (runtime.paper, runtime.needs, runtime.gradients) == (static.paper, static.needs, static.gradients)
    assert (runtime.summary, runtime.module, runtime.attribute) == (static.summary, static.module, static.attribute)
    assert (kind, canonical(static.name)) in registry._runtime


def test_names_are_unique_within_a_kind() -> None:
    seen = [(kind, canonical(found.name)) for kind, found in STATIC]
    assert len(set(seen)) == len(seen)


def test_listing_needs_no_torch() -> None:
    code = (
        "import sys; from assay.core.entries import FOLDERS; from assay.core.registry import entries;"
        " n = sum(len(entries(kind)) for kind in FOLDERS); print(n, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(STATIC)), "False"]


def test_listing_attacks_needs_no_torch() -> None:
    code = "import sys; from assay.core.registry import entries; entries('attack'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_bind_fills_in_defaults_and_leaves_engine_arguments_out() -> None:
    sample()
    bound = bind("attack", "sample_attack", {"eps": 0.5})
    assert bound.params == {"eps": 0.5, "steps": 40, "norm": "linf", "early": True, "free": None}
    assert not bound.from_file


def test_a_bound_stage_is_called_with_its_parameters() -> None:
    sample()
    bound = bind("attack", "sample_attack", {"eps": 0.5, "steps": 2})
    x = torch.zeros(1)
    assert bound(None, x, x, rng="r") == (x, 0.5, 2, "linf", True, None, "r")


def test_a_parameter_wins_over_an_offer_and_an_offer_over_the_default() -> None:
    sample()
    offered = {"eps": 0.1, "steps": 7, "norm": None, "unknown": 1}
    bound = bind("attack", "sample_attack", {"eps": 0.5}, offered)
    assert (bound.params["eps"], bound.params["steps"], bound.params["norm"]) == (0.5, 7, "linf")


def test_an_unknown_parameter_gets_the_nearest_one() -> None:
    sample()
    with pytest.raises(UsageError) as refused:
        bind("attack", "sample_attack", {"eps": 0.5, "step": 1})
    assert str(refused.value) == "attack 'sample_attack' has no parameter 'step'; did you mean 'steps'?"


def test_engine_arguments_cannot_be_given() -> None:
    sample()
    with pytest.raises(UsageError, match="has no parameter 'rng'"):
        bind("attack", "sample_attack", {"eps": 0.5, "rng": 1})


def test_a_missing_parameter_is_named() -> None:
    sample()
    with pytest.raises(UsageError) as refused:
        bind("attack", "sample_attack", {})
    assert str(refused.value) == "attack 'sample_attack' needs eps; give it as --eps or in brackets"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("steps", 1.5, "int, got 1.5"),
        ("steps", "40", "int, got '40'"),
        ("steps", True, "int, got True"),
        ("eps", [1], r"float, got \[1\]"),
        ("eps", True, "float, got True"),
        ("norm", 2, "str, got 2"),
        ("early", 1, "bool, got 1"),
        ("early", "yes", "bool, got 'yes'"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: Any, shown: str) -> None:
    sample()
    with pytest.raises(UsageError, match=f"attack 'sample_attack': {key} must be {shown}"):
        bind("attack", "sample_attack", {"eps": 0.5, key: value})


def test_numbers_are_read_as_fractions_and_widened() -> None:
    sample()
    assert bind("attack", "sample_attack", {"eps": "8/255"}).params["eps"] == 8 / 255
    whole = bind("attack", "sample_attack", {"eps": 1}).params["eps"]
    assert (whole, type(whole)) == (1.0, float)
    with pytest.raises(UsageError, match="eps must be a number"):
        bind("attack", "sample_attack", {"eps": "much"})


def test_a_value_without_a_known_type_is_passed_on() -> None:
    sample()
    assert bind("attack", "sample_attack", {"eps": 1.0, "free": [1, "a"]}).params["free"] == [1, "a"]


def test_the_text_of_a_stage_reads_back_to_the_same_stage() -> None:
    bound = bind("attack", "pgd", {"eps": 8 / 255, "steps": 7, "random_start": False, "norm": "l2"})
    name, params = specs.step(bound.text)
    assert name == "pgd"
    assert bind("attack", name, params).params == bound.params
    assert specs.step(bind("seeder", "all", {}).text) == ("all", {})


STAGES = [(kind, found) for kind, found in STATIC if kind not in ("recipe", "suite", "model", "data")]


@pytest.mark.parametrize(("kind", "static"), STAGES, ids=[f"{kind}-{found.name}" for kind, found in STAGES])
def test_the_text_of_every_stage_reads_back(kind: str, static: Entry) -> None:
    bound = bind(kind, static.name, {}, {"eps": 0.1})
    name, params = specs.step(bound.text)
    assert (name, bind(kind, name, params).params) == (static.name, bound.params)


def plugin(folder: Path, text: str) -> Path:
    path = folder / "plugin.py"
    path.write_text(text)
    return path


def test_a_function_of_a_file(tmp_path: Path) -> None:
    path = plugin(tmp_path, 'def mine(target, x, y, *, eps: float = 0.5):\n    "Mine."\n    return x + eps\n')
    bound = bind("attack", f"{path}:mine", {"eps": 2})
    assert (bound.entry.name, bound.entry.summary) == (f"{path}:mine", "Mine.")
    assert bound.text == f"{path}:mine(eps=2.0)"
    assert bound(None, 1.0, None) == 3.0
    assert "mine" not in names("attack")


def test_a_decorated_function_of_a_file_keeps_what_it_says(tmp_path: Path) -> None:
    text = (
        "from assay.core.registry import register\n"
        "@register('attack', paper='Me 2026', needs=('grad',))\n"
        "def mine(target, x, y, *, eps: float = 0.5): return x\n"
    )
    told, _ = lookup("attack", f"{plugin(tmp_path, text)}:mine")
    assert (told.name, told.paper, told.needs) == (f"{tmp_path / 'plugin.py'}:mine", "Me 2026", ("grad",))


def test_a_recipe_of_a_file_is_data(tmp_path: Path) -> None:
    told, thing = lookup("recipe", f"{plugin(tmp_path, 'SYSTEM = 5')}:SYSTEM")
    assert (told.kind, thing) == ("recipe", 5)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("def mine(): ...\n", "mien", "has no 'mien'; did you mean 'mine'"),
        ("mine = 3\n", "mine", "plugin.py:mine is not a function"),
        ("1 / 0\n", "mine", "plugin.py does not load: ZeroDivisionError: division by zero"),
        ("def mine(:\n", "mine", "plugin.py does not load: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, name: str, message: str) -> None:
    path = plugin(tmp_path, text)
    with pytest.raises(UsageError, match=message):
        lookup("attack", f"{path}:{name}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file: .*nowhere\.py"):
        lookup("attack", f"{tmp_path}/nowhere.py:f")


OFFERED = {"eps": 0.1, "shape": (1, 8, 8), "classes": 10}
CALLED = [(kind, found) for kind, found in STATIC if kind in ("model", "data")]


@pytest.mark.parametrize(("kind", "static"), CALLED, ids=[f"{kind}-{found.name}" for kind, found in CALLED])
def test_the_text_of_every_model_reads_back(kind: str, static: Entry) -> None:
    bound = bind(kind, static.name, {}, OFFERED)
    name, params = specs.step(bound.text)
    assert (name, bind(kind, name, params).params) == (static.name, bound.params)


@pytest.mark.parametrize(
    ("kind", "name", "params"),
    [
        ("trainer", "plain", {"augment": "flip, shift=0.1, rotate=10"}),
        ("trainer", "plain", {"augment": '"quoted", (half'}),
        ("model", "mlp", {"shape": (3, 5, 7), "classes": 4, "hidden": (7, 9, 11)}),
    ],
)
def test_tuples_and_commas_read_back(kind: str, name: str, params: dict[str, Any]) -> None:
    bound = bind(kind, name, params)
    assert {key: bound.params[key] for key in params} == params
    read, again = specs.step(bound.text)
    assert (read, bind(kind, read, again).params) == (name, bound.params)


def test_a_parameter_may_be_none() -> None:
    @register("attack")
    def optional(target: Any, *, steps: int | None = None, size: float | None = None) -> tuple[Any, ...]:
        return steps, size

    assert bind("attack", "optional", {})(None) == (None, None)
    assert bind("attack", "optional", {"steps": 3, "size": "1/4"})(None) == (3, 0.25)
    assert bind("attack", "optional", specs.step(bind("attack", "optional", {}).text)[1])(None) == (None, None)
    with pytest.raises(UsageError, match=r"steps must be int \| None, got 'x'"):
        bind("attack", "optional", {"steps": "x"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "nan", "1e999", 10**400])
def test_a_number_must_be_finite(value: Any) -> None:
    sample()
    with pytest.raises(UsageError, match="sample_attack: eps must be"):
        bind("attack", "sample_attack", {"eps": value})


def test_a_name_of_another_module_is_refused() -> None:
    def pgd() -> None: ...

    with pytest.raises(UsageError) as refused:
        register("attack")(pgd)
    assert str(refused.value) == ("attack 'pgd' is registered by assay.stages.attacks.pgd already; choose another name")
    assert lookup("attack", "pgd")[0].module == "assay.stages.attacks.pgd"
    with pytest.raises(UsageError, match="is registered by assay"):
        register("data", name="fashion_mnist")(pgd)


def test_a_function_of_a_file_leaves_a_registered_one_of_its_name_alone(tmp_path: Path) -> None:
    sample()
    before = lookup("attack", "sample_attack")
    path = plugin(tmp_path, "def sample_attack(target, x, y, *, eps: float = 0.5): return x\n")
    assert lookup("attack", f"{path}:sample_attack")[1] is not before[1]
    assert lookup("attack", "sample_attack") == before


def test_a_file_with_late_annotations_and_a_dataclass(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass, field\n"
        "@dataclass\nclass Box:\n    sizes: list[int] = field(default_factory=list)\n"
        "def mine(target, *, steps: int = 2, eps: float | None = None): return Box([steps]).sizes, eps\n"
    )
    bound = bind("attack", f"{plugin(tmp_path, text)}:mine", {"steps": 5})
    assert bound(None) == ([5], None)


@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "raise SystemExit\n"])
def test_a_file_that_exits_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"plugin\.py does not load: SystemExit"):
        lookup("attack", f"{plugin(tmp_path, text)}:mine")


def test_two_functions_of_a_file_run_it_once(tmp_path: Path) -> None:
    text = (
        "from pathlib import Path\n"
        "with (Path(__file__).parent / 'runs.txt').open('a') as out: out.write('x')\n"
        "state = []\n"
        "def add(target): state.append(1)\n"
        "def count(target): return len(state)\n"
    )
    path = plugin(tmp_path, text)
    bind("attack", f"{path}:add", {})(None)
    assert bind("mutator", f"{path}:count", {})(None) == 1
    assert (tmp_path / "runs.txt").read_text() == "x"


def test_a_file_of_a_user_imports_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("FACTOR = 3\n")
    (tmp_path / "uses_it.py").write_text(
        "from neighbour_of_mine import FACTOR\ndef triple(x):\n    return FACTOR * x\n"
    )
    assert load_object(tmp_path / "uses_it.py", "triple")(2) == 6


@pytest.mark.parametrize(("kind", "name"), list(registry.LATER))
def test_parameters_that_came_later_are_told_only_where_they_are_set(kind: str, name: str) -> None:
    """A run is known by the texts of its stages, and one from before a parameter came is the same run still."""
    known = {p.name: p for p in entry(kind, name).parameters}
    for later in registry.LATER[kind, name]:
        if known[later].default == "False":
            values: dict[bool | float, bool] = {False: False, True: True}
        else:
            usual = float(known[later].default or "nan")
            assert usual == (1.0 if later == "temperature" else 0.0)  # which says nothing where nothing is distilled
            values = {usual: False, usual + 0.25: True}
        for value, told in values.items():
            text = bind(kind, name, {later: value}, {"eps": 0.1}).text
            assert (f"{later}=" in text) == told
            assert bind(kind, *specs.step(text)).params[later] == value
