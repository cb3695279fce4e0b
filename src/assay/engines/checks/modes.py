"""Checks of what the net does while it is asked: training behaviour, and statistics that move."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from assay.core.registry import register
from assay.engines.checks.look import Look

BATCH_DEPENDENT = "{} of {} answers change with the other inputs of the batch"

# Modules that answer otherwise in training mode.
_TRAINING_MATTERS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.modules.batchnorm._NormBase,
    nn.RReLU,
)


@register("check")
def train_mode(look: Look) -> str | None:
    """Parts of the net are in training mode."""
    active = look.once(training_parts)
    if not active:
        return None
    named = ", ".join(active[:3]) + (", …" if len(active) > 3 else "")
    return (
        f"parts of the net are in training mode when it is asked ({named}), although it was put in evaluation "
        "mode: its forward pass switches them back"
    )


@register("check")
def batch_dependent(look: Look) -> str | None:
    """An answer depends on the other inputs of its batch."""
    if not look.swayed or look.restless:
        return None
    return (
        f"{BATCH_DEPENDENT.format(look.swayed, len(look.sample))}: the net works with statistics of the batch, as in "
        "training, so a number depends on the batch size"
    )


@register("check")
def batch_norm_changing(look: Look) -> str | None:
    """Statistics of the net change while it is asked."""
    module = look.module
    if module is None:
        return None
    with look.target.ready():
        before = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
        look.ask(look.sample.x)
        changed = [
            name
            for name, value in module.named_buffers()
            if value.is_floating_point() and not (name in before and torch.equal(value, before[name]))
        ]
    if not changed:
        return None
    return (
        f"buffers change while the net is asked ({', '.join(changed[:3])}{', …' if len(changed) > 3 else ''}): each "
        "batch alters the net that the next one meets, and the number depends on their order"
    )


def training_parts(look: Look) -> list[str]:
    """Names of the modules that were called in training mode and answer otherwise in it."""
    module = look.module
    if module is None:
        return []
    seen: dict[str, None] = {}
    with look.target.ready(), ExitStack() as hooks:
        for name, part in module.named_modules():
            if isinstance(part, _TRAINING_MATTERS) and getattr(part, "p", 1.0) > 0:

                def note(part: nn.Module, inputs: Any, name: str = name) -> None:
                    if part.training:
                        seen[name or type(part).__name__] = None

                hooks.callback(part.register_forward_pre_hook(note).remove)
        look.ask(look.sample.x)
    return list(seen)
