"""The Hugging Face callback with the real Trainer on an image classifier made here."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.callbacks.measuring import RequirementNotMet
from assay.core.registry import names
from assay.subjects.data.load import load_data

transformers = pytest.importorskip("transformers", reason="pip install 'assay[train]'")

from assay.callbacks.huggingface import RobustnessCallback  # noqa: E402  needs transformers

HOW: dict[str, Any] = {"eps": 0.1, "n": 30, "suite": "fgsm", "mean": (0.5,), "std": (0.5,)}


CHECKS = tuple(names("check"))  # a net that has hardly learned cannot be trusted, and that is not asked here


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Digits as the trainer wants them, normalised as an image processor would."""

    def __init__(self, n: int) -> None:
        self.cases = load_data(f"digits/train[:{n}]").cases

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"pixel_values": (self.cases.x[row] - 0.5) / 0.5, "labels": self.cases.y[row]}


def trainer(folder: Path, *callbacks: Any, epochs: int = 2, **more: Any) -> Any:
    transformers.set_seed(3)
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=10,
        hidden_dropout_prob=0.1,
    )
    args = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=40,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=3,
        **more,
    )
    net = transformers.ViTForImageClassification(config)
    return transformers.Trainer(
        net, args, train_dataset=Rows(120), eval_dataset=Rows(20), callbacks=list(callbacks) or None
    )


def weights(made: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in made.model.state_dict().items()}


def test_training_is_the_same_to_the_bit_with_and_without_it(tmp_path: Path) -> None:
    plain, watched = trainer(tmp_path / "a"), trainer(tmp_path / "b")
    watch = RobustnessCallback("digits/test", **HOW).attach(watched)
    heard: list[dict[str, float]] = []

    class Reporter(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # not there for mypy
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            heard.append(dict(logs))

    watched.add_callback(Reporter())
    for made in (plain, watched):
        transformers.set_seed(7)  # dropout and the order of batches are drawn from one generator for all
        made.train()
    for (name, one), other in zip(weights(plain).items(), weights(watched).values(), strict=True):
        assert torch.equal(one, other), name
    assert [row["epoch"] for row in watch.history] == [1, 2]
    told = [row for row in watched.state.log_history if "assay/robust" in row]
    assert [row["epoch"] for row in told] == [1, 2]
    assert 0 <= told[0]["assay/robust"] <= told[0]["assay/clean"] <= 1
    assert sum("assay/robust" in logs for logs in heard) == 2  # whatever report_to names hears it


def test_given_as_a_callback_the_numbers_are_in_the_history_and_among_the_metrics(tmp_path: Path) -> None:
    watch = RobustnessCallback("digits/test", every=2, **HOW)
    made = trainer(tmp_path, watch, eval_strategy="epoch", metric_for_best_model="eval_loss")
    seen: list[dict[str, float]] = []

    class Last(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # not there for mypy
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **rest: Any) -> None:
            seen.append(dict(metrics))

    made.add_callback(Last())
    made.train()
    assert [row["epoch"] for row in made.state.log_history if "assay/robust" in row] == [2]
    assert ["eval_assay/robust" in metrics for metrics in seen] == [False, True]


def test_what_is_required_fails_or_ends_the_training(tmp_path: Path) -> None:
    strict = trainer(tmp_path / "a", epochs=1)
    RobustnessCallback("digits/test", require="robust>=0.99", **HOW).attach(strict)
    with pytest.raises(RequirementNotMet, match=r"after 1 epoch the model does not reach robust>=0.99"):
        strict.train()
    easy = trainer(tmp_path / "b", epochs=5)
    RobustnessCallback("digits/test", require="clean>=0", stop_when_met=True, ignore=CHECKS, **HOW).attach(easy)
    easy.train()
    assert easy.state.epoch == 1


def test_a_residual_net_is_left_as_it_was() -> None:
    config = transformers.ResNetConfig(
        num_channels=1, embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=10
    )
    net = transformers.ResNetForImageClassification(config).train()
    net(torch.rand(4, 1, 8, 8)).logits.sum().backward()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    grads = {name: None if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}
    state = torch.random.get_rng_state()
    numbers = RobustnessCallback("digits/test", eps=0.1, n=30, suite="fgsm").measure(net, 1)
    assert numbers["assay/n"] == 30
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(module.training for module in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())
    for name, p in net.named_parameters():
        was = grads[name]
        assert (p.grad is None) == (was is None)
        assert was is None or p.grad is None or torch.equal(p.grad, was)
