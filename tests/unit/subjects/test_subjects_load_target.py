"""Targets by text and by module."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources import checkpoint
from assay.subjects.sources.load import load_target, module_of, new_net, pick_device
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1, 8, 8), (0.0, 1.0), tuple("0123456789"))


@pytest.fixture
def data() -> Data:
    torch.manual_seed(0)
    return Data("made", Cases.of(torch.rand(6, 1, 8, 8), torch.arange(6)), SPEC)


def facts(**changes: object) -> dict[str, object]:
    told = {"model": "lenet5", "params": {"padding": "valid"}, "shape": [1, 8, 8], "bounds": [0.0, 1.0]}
    return {**told, "classes": list("0123456789"), "mean": [0.3], "std": [0.5], **changes}


def saved(path: Path, **changes: object) -> nn.Module:
    """A LeNet-5 with facts, written to the path."""
    torch.manual_seed(1)
    net = new_net("lenet5(padding=valid)", SPEC, {})
    checkpoint.write(path, net.state_dict(), facts(**changes))
    return net.eval()


def raw(path: Path) -> nn.Module:
    """A LeNet-5 whose file says nothing of it."""
    torch.manual_seed(1)
    net = new_net("lenet5", SPEC, {})
    torch.save(net.state_dict(), path)
    return net.eval()


def test_our_checkpoints_say_everything(data: Data) -> None:
    net = saved(Path("w.safetensors"))
    target = load_target("lenet5@w.safetensors", device="cpu")
    assert target.spec == SPEC
    assert torch.equal(target(data.cases.x), net((data.cases.x - 0.3) / 0.5))


def test_mean_and_std_given_come_over_those_of_the_file(data: Data) -> None:
    net = saved(Path("w.safetensors"))
    target = load_target("lenet5@w.safetensors", device="cpu", mean=(0.1,), std=(0.2,))
    assert torch.equal(target(data.cases.x), net((data.cases.x - 0.1) / 0.2))


def test_other_files_take_shape_and_classes_from_the_data(data: Data) -> None:
    net = raw(Path("w.pt"))
    target = load_target("lenet5@w.pt", data=data, device="cpu")
    assert target.spec == SPEC
    assert torch.equal(target(data.cases.x), net(data.cases.x))
    normalised = load_target("lenet5@w.pt", data=data, device="cpu", mean=(0.5,), std=(0.25,))
    assert torch.equal(normalised(data.cases.x), net((data.cases.x - 0.5) / 0.25))


def test_parameters_in_brackets_reach_the_net(data: Data) -> None:
    saved(Path("w.safetensors"), params={})
    target = load_target("lenet5(padding=valid)@w.safetensors", device="cpu")
    assert target(data.cases.x).shape == (6, 10)
    with pytest.raises(UsageError, match=r"do not fit the net: dense1\.weight is \(120, 16\), the net has"):
        load_target("lenet5@w.safetensors", device="cpu")


def test_other_files_need_the_data() -> None:
    raw(Path("w.pt"))
    with pytest.raises(UsageError, match=r"w\.pt does not say what inputs it takes; give the data too"):
        load_target("lenet5@w.pt", device="cpu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lenet5", "'lenet5' names no weights; write lenet5@weights.safetensors (assay train makes them)"),
        ("lenet5@", "'lenet5@' names no weights"),
        ("lenet6@w.safetensors", "unknown model 'lenet6'; did you mean 'lenet5'?"),
        ("lenet4@w.safetensors", "the weights are those of a lenet5, not of a lenet4; write lenet5@…"),
        ("lenet5@none.safetensors", "no such checkpoint: none.safetensors"),
        ("lenet5(pading=same)@w.safetensors", "model 'lenet5' has no parameter 'pading'; did you mean 'padding'?"),
        ("net.py", "net.py is a file: write net.py:FUNCTION, where the function returns the net"),
        ("net.py@w.safetensors", "net.py is a file: write net.py:FUNCTION@w.safetensors, where"),
        ("net.py:make", "no such file: net.py"),
        ("net.py:make@", "'net.py:make@' names no weights; write net.py:make@weights.safetensors"),
        ("net.py:make@w.safetensors", "no such file: net.py"),
    ],
)
def test_wrong_specs_say_what_to_write(text: str, words: str) -> None:
    saved(Path("w.safetensors"))
    with pytest.raises(UsageError) as told:
        load_target(text, device="cpu")
    assert words in str(told.value)


NET = """
from safetensors.torch import save_file
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 10)
    def forward(self, x):
        return self.dense(x.flatten(1))

def make():
    return Mine()

number = 3

def wrong():
    return {"no": "module"}
"""


def mine() -> nn.Linear:
    """The user's file and its weights, whose dense layer comes back."""
    Path("net.py").write_text(NET)
    torch.manual_seed(3)
    dense = nn.Linear(64, 10)
    torch.save({f"dense.{name}": tensor for name, tensor in dense.state_dict().items()}, "w.pt")
    return dense


@pytest.mark.parametrize("function", ["make", "Mine"])
def test_a_function_or_a_class_of_a_file(function: str, data: Data) -> None:
    dense = mine()
    target = load_target(f"net.py:{function}@w.pt", data=data, device="cpu")
    assert torch.equal(target(data.cases.x), dense(data.cases.x.flatten(1)))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("wrong", "net.py:wrong gave dict, expected a torch.nn.Module"),
        ("number", "net.py:number gave int, expected a torch.nn.Module"),
        ("mak", "has no 'mak'; did you mean 'make'?"),
    ],
)
def test_what_a_file_does_not_hold_is_refused(function: str, words: str, data: Data) -> None:
    mine()
    with pytest.raises(UsageError) as told:
        load_target(f"net.py:{function}@w.pt", data=data, device="cpu")
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def (:\n", "SyntaxError"),
        ("import no_such_package_here\n", "ModuleNotFoundError: No module named 'no_such_package_here'"),
    ],
)
def test_a_file_that_does_not_load_is_refused(content: str, words: str, data: Data) -> None:
    mine()
    Path("broken.py").write_text(content)
    with pytest.raises(UsageError, match=r"broken\.py does not load: ") as told:
        load_target("broken.py:make@w.pt", data=data, device="cpu")
    assert words in str(told.value)


def test_weights_that_do_not_fit_a_user_s_net_are_refused(data: Data) -> None:
    mine()
    raw(Path("other.pt"))
    with pytest.raises(UsageError, match=r"other\.pt do not fit the net: missing dense\.bias, dense\.weight; unknown"):
        load_target("net.py:make@other.pt", data=data, device="cpu")


def test_a_live_module_needs_data(data: Data) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(UsageError, match="a live module needs data="):
        load_target(net)
    target = load_target(net, data=data)
    assert torch.equal(target(data.cases.x), net(data.cases.x))
    assert module_of(target) is net


def test_a_live_module_behind_its_normalisation(data: Data) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    target = load_target(net, data=data, mean=(0.5,), std=(0.25,))
    assert torch.equal(target(data.cases.x), net((data.cases.x - 0.5) / 0.25))


def test_a_live_module_of_another_shape_is_refused(data: Data) -> None:
    with pytest.raises(UsageError, match=r"the net does not take inputs of shape \(1, 8, 8\): RuntimeError"):
        load_target(nn.Sequential(nn.Flatten(), nn.Linear(63, 10)), data=data)


def test_a_target_comes_back_as_it_is(data: Data) -> None:
    target = ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), SPEC)
    assert load_target(target) is target


class Answers:
    """A target that is no module."""

    spec = SPEC
    device = torch.device("cpu")


def test_training_needs_a_module() -> None:
    with pytest.raises(UsageError, match="this needs a torch module; the target only answers"):
        module_of(Answers())  # type: ignore[arg-type]  # what a user without types would hand in


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="unknown device 'tpu7'; use auto, cpu, cuda or cuda:1"):
        pick_device("tpu7")
    with pytest.raises(UsageError, match="no GPU that torch can use; use --device cpu"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


def stated(text: str) -> None:
    """Fitting weights with any text as their facts."""
    torch.manual_seed(1)
    weights = new_net("lenet5(padding=valid)", SPEC, {}).state_dict()
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, "w.safetensors", {"assay": text})


DAMAGED: dict[str, list[object]] = {
    "shape": [
        None,
        3,
        "1,8,8",
        {},
        [1, 8, "8"],
        [1, -8, 8],
        [1, 0, 8],
        [1.0, 8, 8],
        [True, 8, 8],
        [[1, 8, 8]],
        [10**9] * 2,
        [10**400],
    ],
    "bounds": [None, 1, [], [0.0], [0, 1, 2], [1.0, 0.0], [0.5, 0.5], ["0", "1"], [False, True], [float("nan"), 1.0]],
    "classes": [None, 10, "0123456789", [], ["a"], list(range(10)), [None] * 10, {"a": 1}],
    "mean": [None, 0.3, "0.3", ["0.3"], [None], [[0.3]], {"a": 1}],
    "std": [None, 0.5, "0.5", ["0.5"], [True]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in DAMAGED.items() for value in values])
def test_damaged_facts_are_refused_by_name(name: str, value: object) -> None:
    stated(json.dumps(facts(**{name: value})))
    with pytest.raises(UsageError, match=rf"the facts in w\.safetensors are damaged: {name} is "):
        load_target("lenet5@w.safetensors", device="cpu")


@pytest.mark.parametrize("name", ["bounds", "classes"])
def test_missing_facts_are_refused_by_name(name: str) -> None:
    stated(json.dumps({key: value for key, value in facts().items() if key != name}))
    with pytest.raises(UsageError, match=rf"the facts in w\.safetensors are damaged: {name} is None"):
        load_target("lenet5@w.safetensors", device="cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"params": [1]}, "the facts in w.safetensors are damaged: params is [1]"),
        ({"params": None}, "the facts in w.safetensors are damaged: params is None"),
        ({"model": 3}, "the facts in w.safetensors are damaged: model is"),
        ({"params": {"q": 1}}, "model 'lenet5' has no parameter 'q'"),
        ({"params": {"padding": None}}, "padding must be str, got None"),
        ({"params": {"padding": "odd"}}, "padding must be 'same' or 'valid'"),
        ({"params": {"padding": "valid", "classes": -1}}, "cannot be built"),
        ({"params": {"padding": "valid", "shape": [1]}}, "LeNet takes images"),
        ({"shape": []}, "LeNet takes images"),
        ({"shape": [1, 28, 28]}, "do not fit the net"),
        ({"mean": [float("nan")]}, "damaged: mean is [nan]"),
        ({"bounds": [0.0, float("inf")]}, "damaged: bounds is [0.0, inf]"),
        ({"mean": [0.1, 0.2], "std": [1.0, 1.0]}, "mean and std need one value each, or one a channel (1)"),
        ({"mean": []}, "mean and std need one value each"),
        ({"std": []}, "mean and std need one value each"),
        ({"std": [0.0]}, "std above 0"),
    ],
)
def test_facts_that_do_not_fit_are_refused(changes: dict[str, object], words: str) -> None:
    stated(json.dumps(facts(**changes)))
    with pytest.raises(UsageError) as told:
        load_target("lenet5@w.safetensors", device="cpu")
    assert words in str(told.value)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "not json", "", "3", "[]"])
def test_facts_that_cannot_be_read_are_no_facts(text: str) -> None:
    stated(text)
    with pytest.raises(UsageError, match=r"w\.safetensors does not say what inputs it takes"):
        load_target("lenet5@w.safetensors", device="cpu")


@pytest.mark.parametrize(
    ("mean", "std"), [((), (0.5,)), ((0.5,), ()), ((0.1, 0.2), (1.0, 1.0)), ((0.1,) * 3, (1.0,) * 3)]
)
def test_mean_and_std_come_together_and_in_number(mean: tuple[float, ...], std: tuple[float, ...], data: Data) -> None:
    saved(Path("w.safetensors"))
    live = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    models: list[str | nn.Module] = ["lenet5@w.safetensors", live]
    for model in models:
        with pytest.raises(UsageError, match=r"mean and std need one value each, or one a channel \(1\)"):
            load_target(model, data=data, device="cpu", mean=mean, std=std)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raise OSError('no licence')", "net.py:fails() failed: OSError: no licence"),
        ("1 / 0", "net.py:fails() failed: ZeroDivisionError: division by zero"),
        ("open('nowhere.bin')", "net.py:fails() failed: FileNotFoundError"),
    ],
)
def test_a_function_that_raises_is_refused(line: str, words: str, data: Data) -> None:
    mine()
    Path("net.py").write_text(f"def fails():\n    {line}\n")
    with pytest.raises(UsageError) as told:
        load_target("net.py:fails@w.pt", data=data, device="cpu")
    assert words in str(told.value)


def test_a_function_that_wants_arguments_is_refused(data: Data) -> None:
    mine()
    Path("net.py").write_text("def wants(width):\n    return None\n")
    with pytest.raises(UsageError, match=r"net\.py:wants\(\) failed: TypeError: wants\(\) missing 1 required"):
        load_target("net.py:wants@w.pt", data=data, device="cpu")


def test_a_module_object_of_a_file(data: Data) -> None:
    dense = mine()
    Path("net.py").write_text(f"{NET}\nready = Mine()\n")
    target = load_target("net.py:ready@w.pt", data=data, device="cpu")
    assert torch.equal(target(data.cases.x), dense(data.cases.x.flatten(1)))


@pytest.mark.parametrize("text", ["lenet5(classes=4)", "lenet5(shape=[1, 8, 8], classes=10)"])
def test_shape_and_classes_come_from_the_data(text: str) -> None:
    with pytest.raises(UsageError, match="shape and classes of lenet5 come from the data; leave them out of"):
        new_net(text, SPEC, {})


def test_a_function_may_give_its_net_with_its_own_weights() -> None:
    Path("own.py").write_text(
        "import torch\n\n"
        "def net():\n"
        "    made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10, bias=False))\n"
        "    torch.nn.init.constant_(made[1].weight, 0.5)\n"
        "    return made\n"
    )
    data = load_data("digits/test[:4]")
    target = load_target("own.py:net", data=data, device="cpu")
    assert target(data.cases.x).allclose(0.5 * data.cases.x.flatten(1).sum(1, keepdim=True).expand(-1, 10))
    with pytest.raises(UsageError, match="does not say what inputs it takes; give the data too"):
        load_target("own.py:net", device="cpu")
