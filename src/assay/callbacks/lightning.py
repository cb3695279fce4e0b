"""Robustness between the epochs of a Lightning training.

>>> from assay.callbacks.lightning import RobustnessCallback        # doctest: +SKIP
>>> trainer = Trainer(callbacks=[RobustnessCallback("dir:images/val", eps="8/255")])        # doctest: +SKIP
"""

from typing import Any

from assay.callbacks.measuring import Measuring
from assay.core.extras import needed

_lightning = needed("lightning.pytorch", "train", "assay.callbacks.lightning")


class RobustnessCallback(Measuring, _lightning.Callback):  # type: ignore[misc, name-defined]  # not there for mypy
    """Evaluates the live module every ``every`` epochs, on ``n`` cases, and logs ``assay/robust``, ``assay/clean`` …

    The numbers go through the module's own ``log``: to the trainer's logger, to the progress bar's dict, and to whoever
    monitors them (``ModelCheckpoint(monitor="assay/robust", mode="max")``). ``require="robust>=0.4"`` makes ``fit``
    raise ``RequirementNotMet`` at the end where the last numbers do not reach it; ``stop_when_met`` ends the training
    as soon as they do. Training goes on bit for bit as it would have without the callback.

    Of several processes the first one measures; the module must be whole there (DDP, not FSDP).
    """

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        epochs = trainer.current_epoch + 1
        if not self.due(epochs):
            return
        numbers = self._measured(trainer, pl_module, epochs)
        pl_module.log_dict(numbers, on_step=False, on_epoch=True, batch_size=len(self.data))
        if trainer.strategy.broadcast(self.stops):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.requirement is None:
            return
        epochs = trainer.current_epoch
        if trainer.strategy.broadcast(self.measured_at) != epochs:
            numbers = self._measured(trainer, pl_module, epochs)
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)
        if trainer.is_global_zero:
            self.judge()

    def state_dict(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = list(state_dict["history"])

    def _measured(self, trainer: Any, module: Any, epochs: int) -> dict[str, float]:
        """The numbers, the same in every process."""
        numbers = self.measure(module, epochs) if trainer.is_global_zero else {}
        told: dict[str, float] = trainer.strategy.broadcast(numbers)
        return told
