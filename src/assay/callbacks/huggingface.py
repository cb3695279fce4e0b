"""Robustness between the epochs of a Hugging Face ``Trainer``.

>>> from assay.callbacks.huggingface import RobustnessCallback        # doctest: +SKIP
>>> RobustnessCallback("dir:images/val", eps="8/255", mean=(0.5,), std=(0.5,)).attach(trainer)        # doctest: +SKIP
"""

from typing import Any

import torch

from assay.callbacks.measuring import Measuring
from assay.core.extras import needed

_transformers = needed("transformers", "train", "assay.callbacks.huggingface")


class RobustnessCallback(Measuring, _transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # not there for mypy
    """Evaluates the live model every ``every`` epochs, on ``n`` cases, and logs ``assay/robust``, ``assay/clean`` …

    ``attach(trainer)`` adds the callback to a trainer and logs through the trainer's own ``log``, so that the numbers
    reach its ``report_to``. Given as ``callbacks=[…]`` instead, it has no trainer to log with: the numbers are in
    ``trainer.state.log_history`` only. Either way they are among the metrics of the evaluation that follows, as
    ``eval_assay/robust``, for ``metric_for_best_model``. ``mean`` and ``std`` are those of the image processor: the
    data are pixels, and eps means pixels.

    ``require="robust>=0.4"`` makes ``train`` raise ``RequirementNotMet`` at the end where the last numbers do not reach
    it; ``stop_when_met`` ends the training as soon as they do. Training goes on bit for bit as it would have without
    the callback. Of several processes the first one measures; the model must be whole there (DDP, not FSDP).
    """

    _trainer: Any = None  # to log through

    def attach(self, trainer: Any) -> "RobustnessCallback":
        """Add it to a trainer, and log through it."""
        self._trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        return self

    # The trainer hands everything it has to every callback by name: the rest is of no use here.
    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> Any:
        epochs = round(state.epoch)
        self.numbers = {}
        if self.due(epochs):
            self._measure(state, model, epochs)
            if _from_first(self.stops):
                control.should_training_stop = True
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **rest: Any) -> None:
        if metrics is not None:
            metrics.update({f"eval_{name}": value for name, value in self.numbers.items()})

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        if self.requirement is None:
            return
        epochs = round(state.epoch or 0)
        if _from_first(self.last is None or self.measured_at != epochs):
            self._measure(state, model, epochs)
        if state.is_world_process_zero:
            self.judge()

    def _measure(self, state: Any, model: Any, epochs: int) -> None:
        """Measure in the first process, and log in all of them."""
        first = state.is_world_process_zero
        numbers = self.numbers = _from_first(self.measure(_whole(model), epochs) if first else {})
        if self._trainer is not None:
            self._trainer.log(dict(numbers))
        else:
            state.log_history.append({**numbers, "epoch": state.epoch, "step": state.global_step})


def _from_first(value: Any) -> Any:
    """The value of the first process, in all of them."""
    spread = torch.distributed
    if not (spread.is_available() and spread.is_initialized()):
        return value
    told = [value]
    spread.broadcast_object_list(told, src=0)
    return told[0]


def _whole(model: Any) -> Any:
    """The model behind what trains it on several devices."""
    return getattr(model, "module", model)
