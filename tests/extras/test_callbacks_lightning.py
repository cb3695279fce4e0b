"""The Lightning callback with the real library: what it logs, and a training that is not touched by it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.callbacks.measuring import RequirementNotMet
from assay.core.errors import UsageError
from assay.core.registry import names
from assay.subjects.data.load import load_data

lightning = pytest.importorskip("lightning.pytorch", reason="pip install 'assay[train]'")

from assay.callbacks.lightning import RobustnessCallback  # noqa: E402  needs lightning

HOW: dict[str, Any] = {"eps": 0.1, "n": 40, "suite": "fgsm"}

CHECKS = tuple(names("check"))  # a net that has hardly learned cannot be trusted, and that is not asked here


class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]  # not there for mypy
    """Dropout and batch normalisation: randomness and state that a careless look would change."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10)
        )
        self.modes: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        self.modes.append(self.net[4].training)
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def fit(*callbacks: Any, epochs: int = 2, logger: Any = False) -> tuple[Net, Any]:
    lightning.seed_everything(5)
    data = load_data("digits/train[:200]").cases
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data.x, data.y), 50, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=logger,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(c, lightning.callbacks.ModelCheckpoint) for c in callbacks),
        default_root_dir=str(Path.cwd()),
    )
    net = Net()
    trainer.fit(net, loader)
    return net, trainer


def test_training_is_the_same_to_the_bit_with_and_without_it() -> None:
    plain, _ = fit()
    watch = RobustnessCallback("digits/test", **HOW)
    seen, trainer = fit(watch)
    for (name, one), other in zip(plain.state_dict().items(), seen.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert all(seen.modes)
    assert [row["epoch"] for row in watch.history] == [1, 2]
    metrics = trainer.callback_metrics
    assert metrics["assay/n"] == 40
    assert 0 <= metrics["assay/robust"] <= metrics["assay/clean"] <= 1
    assert metrics["assay/robust_low"] <= metrics["assay/robust"] <= metrics["assay/robust_high"]


def test_an_attack_that_draws_from_every_generator_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import random\nimport numpy\nimport torch\n"
        "def shaky(target, x, y, *, rng, eps: float):\n"
        "    random.random(), numpy.random.rand(), random.seed(1), torch.manual_seed(1)\n"
        "    return (x + eps * torch.rand_like(x)).clamp(0, 1)\n"
    )
    plain, _ = fit()
    seen, _ = fit(RobustnessCallback("digits/test", **HOW | {"suite": "mine.py:shaky"}))
    assert all(torch.equal(one, other) for one, other in zip(plain.parameters(), seen.parameters(), strict=True))


def test_every_k_epochs_through_the_trainers_own_logger(tmp_path: Path) -> None:
    logger = lightning.loggers.CSVLogger(str(tmp_path), name="csv", version="one")
    watch = RobustnessCallback("digits/test", every=2, **HOW)
    fit(watch, epochs=3, logger=logger)
    header, *rows = (tmp_path / "csv/one/metrics.csv").read_text().splitlines()
    assert "assay/robust" in header.split(",")
    assert len(rows) == 1
    assert [row["epoch"] for row in watch.history] == [2]


def test_others_can_monitor_the_numbers(tmp_path: Path) -> None:
    best = lightning.callbacks.ModelCheckpoint(str(tmp_path / "best"), monitor="assay/robust", mode="max")
    watch = RobustnessCallback("digits/test", **HOW)
    fit(best, watch)
    assert float(best.best_model_score) == pytest.approx(max(row["assay/robust"] for row in watch.history))


def test_what_is_required_and_not_reached_fails_the_training_at_its_end() -> None:
    watch = RobustnessCallback("digits/test", every=5, require="robust>=0.99", **HOW)
    with pytest.raises(RequirementNotMet, match=r"after 2 epochs the model does not reach robust>=0.99, n=40: robust"):
        fit(watch)
    assert [row["epoch"] for row in watch.history] == [2]  # the end is measured where something is required


def test_what_is_reached_ends_the_training() -> None:
    watch = RobustnessCallback("digits/test", require="clean>=0.01", stop_when_met=True, ignore=CHECKS, **HOW)
    _, trainer = fit(watch, epochs=5)
    assert trainer.current_epoch == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"require": "clean_drop<=0.1"}, "a callback cannot measure 'clean_drop'"),
        ({"require": "robst>=0.1"}, "did you mean 'robust'"),
        ({"every": 0}, "numbers from 1 up"),
        ({"stop_when_met": True}, "needs require"),
    ],
)
def test_what_can_never_be_is_refused_before_the_training(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RobustnessCallback("digits/test", **HOW | given)


def test_cases_of_the_users_own(linear_target: Any) -> None:
    target = linear_target()
    x = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    watch = RobustnessCallback((x, target(x).argmax(1)), eps=0.05, suite="fgsm")
    numbers = watch.measure(target.module, 1)
    assert numbers["assay/clean"] == 1
    assert numbers["assay/n"] == 30
