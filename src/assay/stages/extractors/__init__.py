"""Extractors: what a net that stays as it is sees in inputs, so that two inputs can be told alike.

``(bench, *, …) -> Features``; a user's function may give a module, or any function of inputs, instead.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError, UsageError, is_out_of_memory
from assay.core.registry import Bound, bind
from assay.core.specs import python_file, step
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench
from assay.subjects.layers import trial_of
from assay.subjects.sources.load import pick_device


@dataclass(frozen=True, slots=True)
class Features:
    """A function from inputs to their features.

    ``name`` belongs beside every similarity: 0.9 of one net's features is not 0.9 of another's. ``fingerprint`` is a
    digest of what is computed.
    """

    name: str
    fingerprint: str
    work: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """Features of inputs within the bounds of the target, (N, D) float32, without gradients, where x lies."""
        with torch.no_grad():
            return checked(self.work(x), len(x), self.name).float().to(x.device)


def features_of(bench: Bench, text: str) -> Features:
    """The features that ``reference(model=…)``, ``vgg19``, ``file.py:function`` … give of the target's inputs."""
    return bench.once(f"features {text}", lambda: _made(bench, extractor_of(text)))


def extractor_of(text: str) -> Bound:
    """The extractor of that text with checked parameters; nothing is made yet."""
    name, params = step(text)
    return bind("extractor", name, params)


def place_of(bench: Bench) -> torch.device:
    """Where an extractor lives: with the target, or where torch is fastest when the target is somewhere else."""
    return pick_device() if isinstance(bench.target, Asked) else bench.target.device


def checked(made: Any, rows: int, who: str) -> Tensor:
    """What an extractor gave for that many inputs, if it is a row of numbers each."""
    if not isinstance(made, Tensor) or made.dim() != 2 or len(made) != rows or not made.shape[1]:
        form = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise UsageError(f"features of {rows} inputs are ({rows}, D) numbers; {who} gave {form}; flatten or pool them")
    if not made.is_floating_point():
        raise UsageError(f"features are floating-point numbers; {who} gave {made.dtype}")
    return made


def _made(bench: Bench, extractor: Bound) -> Features:
    made = extractor(bench)
    found = made if isinstance(made, Features) else _wrapped(bench, extractor, made)
    trial = found(trial_of(bench.target.spec, bench.target.device))
    if not bool(trial.isfinite().all()):
        raise UsageError(f"{found.name} gives NaN or infinity; it does not fit these inputs or is broken")
    if torch.equal(trial[0], trial[1]):
        raise UsageError(f"{found.name} gives different inputs the same features, so that everything would be alike")
    bench.tell({"features": f"{found.name} ({found.fingerprint})"})
    return found


def _wrapped(bench: Bench, extractor: Bound, made: Any) -> Features:
    """A module or function as features; what it raises is told as its own."""
    name, place = extractor.text, place_of(bench)
    if not callable(made):
        raise UsageError(f"{name} must return a module or a function of inputs, it gave {type(made).__name__}")
    if isinstance(made, nn.Module):
        made = made.to(place).eval()

    def work(x: Tensor) -> Tensor:
        try:
            taken: Tensor = made(x.to(place))
        except (AssayError, MemoryError):
            raise
        except Exception as error:  # the user's own code; running out of memory is still ours to handle
            if is_out_of_memory(error):
                raise
            raise UsageError(f"{name} failed: {type(error).__name__}: {error}") from error
        return taken

    return Features(name, digest_of(name, made, _content(extractor)), work)


def _content(extractor: Bound) -> bytes:
    """The user's file, for whatever is in it may change what is computed."""
    place = python_file(extractor.entry.name)
    return place[0].read_bytes() if place and place[0].is_file() else b""


def digest_of(text: str, net: object = None, content: bytes = b"") -> str:
    """A digest of a text, of the numbers in a net where it is one, and of more."""
    digest = hashlib.sha256(text.encode() + content)
    if isinstance(net, nn.Module):
        for name, tensor in net.state_dict().items():
            numbers = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(name.encode() + numbers.numpy().tobytes())
    return digest.hexdigest()[:16]
