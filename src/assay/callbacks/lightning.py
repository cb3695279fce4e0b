"""Robustness between the epochs of a Lightning training.

>>> from assay.callbacks.lightning import RobustnessCallback        # doctest: +SKIP
>>> trainer = Trainer(callbacks=[RobustnessCallback("dir:images/val", eps="8/255")])        # doctest: +SKIP
"""

from collections.abc import Sequence
from typing import Any

from assay.callbacks.measuring import Measuring
from assay.core.extras import needed
from assay.engines.columns import Eps
from assay.subjects.bench import Data

_lightning = needed("lightning.pytorch", "train", "assay.callbacks.lightning")


class RobustnessCallback(_lightning.Callback):  # type: ignore[misc, name-defined]  # not there for mypy
    """Evaluates the live module every ``every`` epochs, on ``n`` cases, and logs ``assay/robust``, ``assay/clean`` …

    The numbers go through the module's own ``log``: to the trainer's logger, to the progress bar's dict, and to whoever
    monitors them (``ModelCheckpoint(monitor="assay/robust", mode="max")``). ``require="robust>=0.4"`` makes ``fit``
    raise ``RequirementNotMet`` at the end where the last numbers do not reach it; ``stop_when_met`` ends the training
    as soon as they do. Training goes on bit for bit as it would have without the callback.

    Of several processes the first one measures; the module must be whole there (DDP, not FSDP).
    """

    def __init__(
        self,
        data: str | Data | tuple[Any, Any],
        *,
        suite: Any = "fast",
        eps: Eps,
        norm: str = "linf",
        every: int = 1,
        n: int = 500,
        require: str | None = None,
        stop_when_met: bool = False,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
        ignore: Sequence[str] = (),
        seed: int = 0,
        batch: int = 256,
    ) -> None:
        self.measuring = Measuring(
            data,
            suite=suite,
            eps=eps,
            norm=norm,
            every=every,
            n=n,
            require=require,
            stop_when_met=stop_when_met,
            mean=mean,
            std=std,
            ignore=ignore,
            seed=seed,
            batch=batch,
        )

    @property
    def history(self) -> list[dict[str, float]]:
        """The numbers of every measurement."""
        return self.measuring.history

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        epochs = trainer.current_epoch + 1
        if not self.measuring.due(epochs):
            return
        numbers = self._measured(trainer, pl_module, epochs)
        pl_module.log_dict(numbers, on_step=False, on_epoch=True, batch_size=len(self.measuring.data))
        if trainer.strategy.broadcast(self.measuring.stops):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.measuring.requirement is None:
            return
        epochs = trainer.current_epoch
        if trainer.strategy.broadcast(self.measuring.measured_at) != epochs:
            numbers = self._measured(trainer, pl_module, epochs)
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)
        if trainer.is_global_zero:
            self.measuring.judge()

    def state_dict(self) -> dict[str, Any]:
        return {"history": list(self.measuring.history)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.measuring.history = list(state_dict["history"])

    def _measured(self, trainer: Any, module: Any, epochs: int) -> dict[str, float]:
        """The numbers, the same in every process."""
        numbers = self.measuring.measure(module, epochs) if trainer.is_global_zero else {}
        told: dict[str, float] = trainer.strategy.broadcast(numbers)
        return told
