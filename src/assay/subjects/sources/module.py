"""Targets that are torch modules."""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from assay.core import deadline, passes
from assay.core.allocator import few_kernels
from assay.core.cases import InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import AssayError, ModelFailed, OutOfMemory, UsageError, is_out_of_memory
from assay.core.modes import eval_mode
from assay.subjects.sources.patience import printable
from assay.subjects.target import NEEDS, Need, answer

log = logging.getLogger("assay")


class Normalised(nn.Module):
    """A net behind its normalisation, so that the outside speaks pixels and eps means pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        view = (1, -1, *([1] * (x.dim() - 2)))
        return scores_in(self.net((x - self.mean.view(view).to(x.dtype)) / self.std.view(view).to(x.dtype)))


def scores_in(out: Any) -> Tensor:
    """The scores of an answer: itself, or the ``logits`` of an object that holds them, as those of transformers do."""
    scores: Tensor = out if isinstance(out, Tensor) else getattr(out, "logits", out)
    return scores


def normalised(net: nn.Module, spec: InputSpec, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """The net behind a normalisation with these values; the net itself where there are none."""
    if not (mean or std):
        return net
    if len(mean) != len(std) or len(mean) not in (1, spec.shape[0]) or any(s <= 0 for s in std):
        raise UsageError(
            f"mean and std need one value each, or one a channel ({spec.shape[0]}), std above 0; "
            f"got {list(mean)} and {list(std)}"
        )
    return Normalised(net, mean, std)


def behind(module: nn.Module) -> nn.Module:
    """The net behind its normalisation: names of its modules are those its author gave."""
    return module.net if isinstance(module, Normalised) else module


def before(module: nn.Module) -> str:
    """What stands before the names of the net's own weights among those of the module."""
    return "net." if isinstance(module, Normalised) else ""


def moments_of(module: nn.Module) -> tuple[list[float], list[float]]:
    """Mean and standard deviation that the module normalises by, each empty where it does not."""
    return (module.mean.tolist(), module.std.tolist()) if isinstance(module, Normalised) else ([], [])


class ModuleTarget:
    """A torch module as a target: white box, left exactly as it was found."""

    gives: frozenset[Need] = frozenset(NEEDS)

    def __init__(self, module: nn.Module, spec: InputSpec, device: torch.device | None = None) -> None:
        few_kernels()  # whatever runs a net of ours makes a target of it first
        self.module = module
        self.spec = spec
        self.device = device or next((p.device for p in module.parameters()), torch.device("cpu"))
        self._dtype: torch.dtype | None = None
        self._sessions = 0
        self.answers: int | None = None  # scores an input, once it is known

    def __call__(self, x: Tensor) -> Tensor:
        if self._sessions:
            # A net in half or double precision answers in its own; inputs and eps stay in that of the data.
            out = self._asked(x if self._dtype is None else x.to(self._dtype))
            if isinstance(out, Tensor):
                passes.answered(out)
            return out.float() if isinstance(out, Tensor) and out.dtype in (torch.bfloat16, torch.float16) else out
        with self.ready():
            return self(x)

    def _asked(self, x: Tensor) -> Tensor:
        """What the net says; an error of its own is the model's failure, not ours."""
        try:
            if deadline.limit() is None:
                out = scores_in(self.module(x.clone()))  # nets normalise in place: the case must stay what it is
            else:
                out = deadline.in_time(lambda: self._waited_for(x.clone()))
        except AssayError:  # what looks at its layers has something to say
            raise
        except Exception as error:  # a user's net may raise anything
            # Too little memory is for who chose the batch, a missing forward derivative for who asked for one.
            if is_out_of_memory(error) or forward_ad.unpack_dual(x).tangent is not None:
                raise
            known = self.answers or len(self.spec.classes)
            if not len(x) and known:  # many nets cannot reshape nothing, and what they would say of it is known
                return x.flatten(1)[:, :1].expand(-1, known)
            raise ModelFailed(raised(error)) from error
        except SystemExit as left:  # its exit code would be taken for ours
            raise ModelFailed(f"the model called exit({left.code})") from left
        if self.answers is not None:
            form = (tuple(out.shape), out.dtype) if isinstance(out, Tensor) else type(out).__name__
            if not isinstance(out, Tensor) or out.shape != (len(x), self.answers) or not out.is_floating_point():
                raise ModelFailed(
                    f"the model answered {len(x)} inputs with {form}, not ({len(x)}, {self.answers}) scores"
                )
        # A net may answer in one buffer every time.
        return out if not isinstance(out, Tensor) or out.requires_grad else out.clone()

    def _waited_for(self, x: Tensor) -> Tensor:
        """The same when the device has done it, where it may be asked: a graph under record must not wait."""
        out = scores_in(self.module(x))
        if self.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(self.device)
        return out

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """Evaluation mode, weights without gradients, for as long as the block lasts; blocks may be nested."""
        if self._sessions:
            yield
            return
        self._dtype = next((p.dtype for p in self.module.parameters() if p.is_floating_point()), None)
        with eval_mode(self.module):
            self._sessions += 1
            try:
                yield
            finally:
                self._sessions -= 1

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.module!r}{self.spec!r}".encode())
        # Buffers one by one: a normalisation keeps its own out of the state dict.
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            digest.update(
                name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            )
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<{type(self.module).__name__} on {self.device}: {self.spec}>"


def raised(error: Exception) -> str:
    """What the model raised, in one line."""
    return f"the model raised {_named(error)}"


def _named(error: BaseException) -> str:
    """An error of somebody else's code: its kind, and the first line of what it says, if it can say anything."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  whatever it is
        text = ""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}{': ' if first else ''}{printable(first)}"


def tell_of_training(module: nn.Module) -> None:
    """Tell of a net that comes in training mode; to be asked once a command."""
    if any(m.training for m in module.modules()):
        log.warning(
            "train_mode: the net came in training mode; it is tested in evaluation mode and given back as it was"
        )


def probed(module: nn.Module, spec: InputSpec, device: torch.device, sample: Tensor | None = None) -> ModuleTarget:
    """The module as a target, after one call that shows what it is; nonsense is refused."""
    if sample is None or not len(sample):
        sample = torch.full((2, *spec.shape), sum(spec.bounds) / 2)
    tell_of_training(module)
    target = ModuleTarget(module, spec, device)
    try:
        out = answer(target, sample[:64], Chunks(64))
    except OutOfMemory:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, ModelFailed) else error
        if cause is None:  # it hangs
            raise
        raise UsageError(f"the net does not take inputs of shape {spec.shape}: {_named(cause)}") from error
    n = len(sample[:64])
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != n:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise UsageError(f"the net must answer {n} inputs with scores ({n}, classes), it gave {shape}")
    target.spec = grown(spec, out.shape[1], "the net")
    if not out.is_floating_point():
        raise UsageError(f"the net answers with {out.dtype}; scores must be floating-point")
    target.answers = out.shape[1]
    bad = (~out.isfinite().all(1)).sum().item()
    if bad > n / 2:
        raise UsageError(
            f"the net answers NaN or infinity on {bad} of {n} inputs; it is broken or the inputs do not fit it"
        )
    if looks_like_probabilities(out):
        log.warning("the net answers with probabilities, and scores take a softmax of them; let it return its logits")
    return target


def grown(spec: InputSpec, outputs: int, who: str) -> InputSpec:
    """The spec with as many classes as there are outputs; refused where the data have more."""
    k = len(spec.classes)
    if outputs < 2:
        raise UsageError(f"{who} has one output; a classifier needs a score for each of two or more classes")
    if outputs < k:
        raise UsageError(f"{who} has {outputs} outputs, the data have {k} classes; they do not fit each other")
    if outputs == k:
        return spec
    # Data that happen to lack the last classes. Classes that are mere numbers were counted from the labels, and
    # unlabelled data have none.
    tell = log.info if all(c.isdigit() for c in spec.classes) else log.warning
    tell("%s has %d outputs, the data name %d classes; the others go by number", who, outputs, k)
    numbers = [str(i) for i in range(outputs)]
    # Data named 2, 3, 6 lack other classes than the last: then all go by number, and labels are matched to them.
    own = [] if all(c.isdigit() for c in spec.classes) else spec.classes
    return InputSpec(spec.shape, spec.bounds, (*own, *numbers[len(own) :]))


def looks_like_probabilities(out: Tensor) -> bool:
    """Whether rows are all in [0, 1] and sum to 1: then the net ends in a softmax and attacks on it are weak."""
    return bool(len(out)) and bool(((out >= 0) & (out <= 1)).all()) and bool(((out.sum(1) - 1).abs() < 1e-4).all())
