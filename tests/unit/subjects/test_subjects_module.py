"""Modules as targets: understood, refused, and given back as they were."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget, Normalised, looks_like_probabilities, normalised, probed
from assay.subjects.target import NEEDS, Target

CPU = torch.device("cpu")
SPEC = InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b", "c"))


class Odd(nn.Module):
    """Dropout, batch norm, a frozen weight, and a buffer that counts calls even in evaluation mode."""

    calls: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.BatchNorm2d(1)
        self.drop = nn.Dropout(0.5)
        self.dense = nn.Linear(16, 3)
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(3))
        self.norm.eval()  # one part was already in evaluation mode
        for weight in self.dense.parameters():
            weight.grad = torch.full_like(weight, 7.0)
        self.dense.register_forward_hook(lambda module, given, out: None)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.frozen(self.dense(self.drop(self.norm(x)).flatten(1)))
        self.last = out.detach().mean(0)  # replaces the buffer instead of writing to it
        return out


def state(net: nn.Module) -> dict[str, Any]:
    """Everything about a module that a borrower could change, by value and by identity."""
    return {
        "training": [m.training for m in net.modules()],
        "hooks": [(len(m._forward_hooks), len(m._backward_hooks), len(m._forward_pre_hooks)) for m in net.modules()],
        "requires_grad": [p.requires_grad for p in net.parameters()],
        "grads": [None if p.grad is None else (id(p.grad), p.grad.clone().tolist()) for p in net.parameters()],
        "identity": [id(t) for t in (*net.parameters(), *net.buffers())],
        "values": [t.detach().clone().tolist() for t in (*net.parameters(), *net.buffers())],
    }


def test_a_module_comes_back_as_it_was_after_calls() -> None:
    net = Odd()
    before = state(net)
    target = probed(net, SPEC, CPU)
    target(torch.rand(5, 1, 4, 4))
    with target.ready():
        target(torch.rand(5, 1, 4, 4))
        target(torch.rand(2, 1, 4, 4, requires_grad=True)).sum().backward()
    assert state(net) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_module_comes_back_as_it_was_after_an_exception(error: type[BaseException]) -> None:
    net = Odd()
    before = state(net)
    target = ModuleTarget(net, SPEC)

    def borrow() -> None:
        with target.ready():
            target(torch.rand(5, 1, 4, 4))
            raise error

    with pytest.raises(error):
        borrow()
    assert state(net) == before
    with pytest.raises(RuntimeError, match="running_mean"):
        target(torch.rand(2, 9, 4, 4))
    assert state(net) == before
    assert target(torch.rand(2, 1, 4, 4)).shape == (2, 3)  # and it is still of use


def test_inside_ready_nothing_trains() -> None:
    net = Odd()
    target = ModuleTarget(net, SPEC)
    with target.ready():
        assert not any(m.training for m in net.modules())
        assert not any(p.requires_grad for p in net.parameters())


def test_ready_may_be_nested() -> None:
    net = Odd()
    before = state(net)
    target = ModuleTarget(net, SPEC)
    x = torch.rand(3, 1, 4, 4)
    with target.ready():
        with target.ready():
            inner = target(x)
        assert not any(m.training for m in net.modules())  # the outer block still holds it
        with pytest.raises(ValueError, match="inner"), target.ready():
            raise ValueError("inner")
        assert torch.equal(target(x), inner)
    assert state(net) == before


def test_answers_are_those_of_evaluation_mode() -> None:
    net, twin = Odd(), Odd().eval()
    x = torch.rand(6, 1, 4, 4)
    target = ModuleTarget(net, SPEC)
    assert torch.equal(target(x), twin(x))
    with target.ready():
        assert torch.equal(target(x), twin(x))


def test_inputs_get_gradients_and_weights_do_not() -> None:
    net = Odd()
    x = torch.rand(2, 1, 4, 4, requires_grad=True)
    ModuleTarget(net, SPEC)(x).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0
    assert all(bool((p.grad == 7).all()) for p in net.dense.parameters() if p.grad is not None)


def test_a_module_target_is_a_target_that_gives_everything() -> None:
    target = ModuleTarget(Odd(), SPEC)
    assert isinstance(target, Target)
    assert target.gives == frozenset(NEEDS)
    assert target.device == CPU


def test_the_fingerprint_follows_weights_and_structure() -> None:
    one, other = Odd(), Odd()
    target = ModuleTarget(one, SPEC)
    first = target.fingerprint()
    assert first == ModuleTarget(other, SPEC).fingerprint()
    target(torch.rand(3, 1, 4, 4))
    assert target.fingerprint() == first
    with torch.no_grad():
        other.dense.bias[0] += 1e-6
    assert ModuleTarget(other, SPEC).fingerprint() != first
    assert ModuleTarget(Normalised(one, [0.5], [0.5]), SPEC).fingerprint() != first


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.25]), ([0.1, 0.2, 0.3], [1.0, 2.0, 4.0])])
def test_normalisation_is_what_it_says(mean: list[float], std: list[float]) -> None:
    net = nn.Flatten()
    x = torch.rand(2, len(mean), 3, 3)
    shape = (1, len(mean), 1, 1)
    expected = net((x - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape))
    assert torch.equal(Normalised(net, mean, std)(x), expected)


def test_normalisation_of_vectors() -> None:
    x = torch.rand(4, 5)
    assert torch.equal(Normalised(nn.Identity(), [0.5], [0.25])(x), (x - 0.5) / 0.25)


def test_normalisation_adds_nothing_to_the_weights() -> None:
    wrapped = Normalised(nn.Linear(2, 2), [0.5], [0.5])
    assert set(wrapped.state_dict()) == {"net.weight", "net.bias"}


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ([0.5], []),
        ([], [0.5]),
        ([0.5], [0.0]),
        ([0.5], [-1.0]),
        ([1, 2], [1]),
        ([1, 2], [1, 2]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 3], [1, 0, 3]),
    ],
)
def test_wrong_normalisation_is_refused(mean: list[float], std: list[float]) -> None:
    colour = InputSpec((3, 4, 4), (0.0, 1.0), ("a", "b"))
    with pytest.raises(
        UsageError, match=r"mean and std need one value each, or one a channel \(3\), std above 0"
    ) as told:
        normalised(nn.Identity(), colour, mean, std)
    assert f"got {mean} and {std}" in str(told.value)


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.25]), ([0.1, 0.2, 0.3], [1.0, 0.5, 0.25])])
def test_normalisation_has_one_value_or_one_a_channel(mean: list[float], std: list[float]) -> None:
    colour = InputSpec((3, 4, 4), (0.0, 1.0), ("a", "b"))
    x = torch.rand(2, 3, 4, 4)
    expected = (x - torch.tensor(mean).view(1, -1, 1, 1)) / torch.tensor(std).view(1, -1, 1, 1)
    assert torch.equal(normalised(nn.Identity(), colour, mean, std)(x), expected)


def test_without_values_there_is_no_normalisation() -> None:
    net = nn.Identity()
    assert normalised(net, SPEC, (), ()) is net


class Answers(nn.Module):
    """Answers with what a function makes of the inputs."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(x)


def first_rows(n: int) -> Callable[[Tensor], Tensor]:
    """NaN on the first n rows."""

    def answer(x: Tensor) -> Tensor:
        out = torch.zeros(len(x), 3)
        out[:n] = float("nan")
        return out

    return answer


def fail(x: Tensor) -> Tensor:
    raise ValueError("expected 3 channels\nand more lines")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: torch.zeros(len(x)), r"must answer 8 inputs with scores \(8, classes\), it gave \(8,\)$"),
        (lambda x: torch.zeros(len(x), 3, 2), r"it gave \(8, 3, 2\)"),
        (lambda x: torch.zeros(1, 3), r"it gave \(1, 3\)"),
        (lambda x: (torch.zeros(len(x), 3), 1), "it gave tuple"),
        (lambda x: None, "it gave NoneType"),
        (lambda x: torch.zeros(len(x), 1), "the net has one output; a classifier needs a score for each"),
        (lambda x: torch.zeros(len(x), 2), "the net has 2 outputs, the data have 3 classes"),
        (lambda x: torch.zeros(len(x), 3, dtype=torch.int64), r"answers with torch\.int64; scores must be floating"),
        (first_rows(8), "answers NaN or infinity on 8 of 8 inputs"),
        (first_rows(5), "answers NaN or infinity on 5 of 8 inputs; it is broken or the inputs do not fit"),
        (fail, r"does not take inputs of shape \(1, 4, 4\): ValueError: expected 3 channels$"),
    ],
)
def test_nonsense_is_refused(answer: Callable[[Tensor], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        probed(Answers(answer), SPEC, CPU, torch.rand(8, 1, 4, 4))


def test_nan_on_some_inputs_is_a_finding_and_not_a_refusal() -> None:
    assert probed(Answers(first_rows(4)), SPEC, CPU, torch.rand(8, 1, 4, 4)).spec == SPEC


def test_more_outputs_than_named_classes_go_by_number(notices: pytest.LogCaptureFixture) -> None:
    target = probed(Answers(lambda x: torch.zeros(len(x), 5)), SPEC, CPU)
    assert target.spec == InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b", "c", "3", "4"))
    assert "the net has 5 outputs, the data name 3 classes" in notices.text


def test_without_a_sample_the_middle_of_the_range_is_asked() -> None:
    asked: list[Tensor] = []

    def answer(x: Tensor) -> Tensor:
        asked.append(x)
        return torch.zeros(len(x), 3)

    probed(Answers(answer), InputSpec((2, 3), (-1.0, 2.0), ("a", "b", "c")), CPU)
    assert len(asked) == 1
    assert torch.equal(asked[0], torch.full((2, 2, 3), 0.5))


def test_a_probe_takes_at_most_64_rows() -> None:
    asked: list[int] = []

    def answer(x: Tensor) -> Tensor:
        asked.append(len(x))
        return torch.zeros(len(x), 3)

    probed(Answers(answer), SPEC, CPU, torch.rand(500, 1, 4, 4))
    assert asked == [64]


def test_training_mode_is_told_once(notices: pytest.LogCaptureFixture) -> None:
    probed(Odd(), SPEC, CPU)
    assert notices.text.count("the net came in training mode") == 1
    notices.clear()
    probed(Odd().eval(), SPEC, CPU)
    assert "training mode" not in notices.text


def test_probabilities_are_told_from_logits() -> None:
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.9]])
    assert looks_like_probabilities(logits.softmax(1))
    assert looks_like_probabilities(torch.eye(3))
    assert not looks_like_probabilities(logits)
    assert not looks_like_probabilities(logits.sigmoid())
    assert not looks_like_probabilities(logits.log_softmax(1))
    assert not looks_like_probabilities(torch.cat([logits.softmax(1), logits]))
    assert not looks_like_probabilities(torch.full((2, 3), float("nan")))
    assert not looks_like_probabilities(torch.zeros(0, 3))


def test_the_note_of_a_net_with_more_classes_than_the_data_counts_all(
    tmp_path: Path, notices: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(4, 3)\n")
    save_file(nn.Linear(4, 3).state_dict(), tmp_path / "w.safetensors")
    data = Data("two", Cases.of(torch.rand(4, 4), torch.tensor([0, 1, 0, 1])), InputSpec((4,), (0.0, 1.0), ("0", "1")))
    target = load_target(f"{tmp_path}/net.py:net@{tmp_path}/w.safetensors", data=data, device="cpu")
    note = next(line for line in notices.messages if line.startswith("target: "))
    assert str(target.spec) in note
    assert str(data.spec) not in note
