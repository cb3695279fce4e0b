"""Targets that are ONNX files: asked through onnxruntime, or opened as a torch module by onnx2torch when asked to."""

import importlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.files import sha256
from assay.subjects.bench import Data
from assay.subjects.sources.answering import Answering, Inputs
from assay.subjects.sources.asking import Asking
from assay.subjects.sources.module import grown, normalised
from assay.subjects.sources.onnx_plain import plain

log = logging.getLogger("assay")

_BATCH = 256
_FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_LABELS = ("tensor(int64)", "tensor(int32)", "tensor(string)")


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A file that onnxruntime has loaded: what goes in, which output is the answer, and what is known of both."""

    path: Path
    session: Any
    spec: InputSpec
    shape: tuple[int, ...]  # of one input as the file wants it: flat where the data are not
    batch: int | None  # the only number of inputs it takes at once, where it takes no other
    output: int
    scored: bool  # whether that output holds scores, not labels
    known: bool  # whether the file says how many

    def __call__(self, rows: Inputs) -> Any:
        """The answer to a batch; one too small for a fixed batch is filled up with its last input."""
        (entry,) = self.session.get_inputs()
        x = rows.reshape(len(rows), *self.shape).astype(_FLOATS[entry.type])
        if self.batch is not None and len(x) < self.batch:
            x = np.concatenate([x, np.repeat(x[-1:], self.batch - len(x), 0)])
        try:
            out = self.session.run([self.session.get_outputs()[self.output].name], {entry.name: x})[0]
        except Exception as error:  # the runtime's errors have no class in common but this one
            raise UsageError(f"{self.path} fails on a batch of {len(x)}: {_first_line(error)}") from error
        return out[: len(rows)]


def onnx_target(text: str, data: Data | None, how: Asking) -> Answering:
    """The file as a target that only answers."""
    how.refuse("an ONNX file", "timeout", "retries")
    file = loaded(Path(text), data)
    batch = file.batch or how.batch or _BATCH
    if how.batch and batch != how.batch:
        raise UsageError(f"{text} takes batches of {file.batch} and no other; leave out --ask batch")
    return Answering(
        file,
        file.spec,
        name=text,
        identity=f"onnx {digest(file.path)}",
        batch=batch,
        kind=None if file.scored else "labels",
        settled=file.known or not file.scored,
        patience=how.patience(0),
    )


def opened(text: str, data: Data | None, mean: Sequence[float], std: Sequence[float]) -> tuple[nn.Module, InputSpec]:
    """The file as a torch module, which must answer as onnxruntime does."""
    file = loaded(Path(text), data)
    if not file.scored:
        raise UsageError(f"{text} answers with labels only; there are no scores to take gradients of")
    convert, onnx = _wanted("onnx2torch").convert, _wanted("onnx")
    try:
        net = _Opened(convert(plain(onnx.load(text))), file.shape, file.output).eval()
    except Exception as error:  # converters raise anything on a graph they do not know
        raise UsageError(
            f"onnx2torch cannot open {text}: {_first_line(error)}; without --white-box it can be asked as it is"
        ) from error
    if file.known:
        _compare(file, net, data)
    return normalised(net, file.spec, mean, std), file.spec


class _Opened(nn.Module):
    """A converted graph that takes inputs as the data have them and gives the one output that is the answer."""

    def __init__(self, net: nn.Module, shape: tuple[int, ...], output: int) -> None:
        super().__init__()
        self.net, self.shape, self.output = net, shape, output

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(x.reshape(len(x), *self.shape))
        chosen: Tensor = out[self.output] if isinstance(out, (tuple, list)) else out
        return chosen


def loaded(path: Path, data: Data | None) -> OnnxFile:
    """The file in onnxruntime, if it is a net that takes such inputs and answers with scores or labels."""
    runtime = _wanted("onnxruntime")
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    digest(path)  # looks at the names of further files before anything opens them
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no class in common but this one
        raise UsageError(f"onnxruntime cannot load {path}: {_first_line(error)}") from error
    shape, batch, spec = _input(path, session, data)
    output, scored, width = _output(path, session, len(spec.classes))
    if width is not None:
        spec = grown(spec, width, str(path))
    return OnnxFile(path, session, spec, shape, batch, output, scored, width is not None)


def _input(path: Path, session: Any, data: Data | None) -> tuple[tuple[int, ...], int | None, InputSpec]:
    """The shape of one input, the batch where it is fixed, and what the data say of both."""
    entries = session.get_inputs()
    if len(entries) != 1 or entries[0].type not in _FLOATS:
        told = ", ".join(f"{entry.name} {entry.type}" for entry in entries)
        raise UsageError(f"{path} must have one input of floating-point numbers; it has {told}")
    axes = [axis if isinstance(axis, int) and axis > 0 else None for axis in entries[0].shape or ()]
    if len(axes) < 2:
        raise UsageError(f"{path} takes {entries[0].shape}; a batch of inputs has two or more axes")
    if data is None:
        if None in axes[1:]:
            raise UsageError(f"{path} does not say what inputs it takes; give the data too (data=… or --data)")
        whole = tuple(axis for axis in axes[1:] if axis is not None)
        log.info("%s: inputs are taken to be in [0, 1], since no data say otherwise", path)
        return whole, axes[0], InputSpec(whole, (0.0, 1.0), ())
    shape = data.spec.shape
    if len(axes) - 1 == len(shape) and all(a in (None, b) for a, b in zip(axes[1:], shape, strict=True)):
        return shape, axes[0], data.spec
    flat = int(np.prod(shape))
    if len(axes) == 2 and axes[1] in (None, flat):
        log.info("%s takes rows of %d numbers; inputs of shape %s are laid flat", path, flat, shape)
        return (flat,), axes[0], data.spec
    raise UsageError(f"{path} takes inputs of shape {tuple(axes[1:])}, {data.name} has {shape}")


def _output(path: Path, session: Any, classes: int) -> tuple[int, bool, int | None]:
    """Which output is the answer, whether it holds scores, and how many where the file says it."""
    outputs = session.get_outputs()
    axes = [list(out.shape) if out.type.startswith("tensor") and out.shape is not None else None for out in outputs]
    scored = [i for i, out in enumerate(outputs) if out.type in _FLOATS and (not axes[i] or len(axes[i] or ()) == 2)]
    if len(scored) > 1:
        scored = [i for i in scored if (axes[i] or [None])[-1] == classes] or scored
    if len(scored) == 1:
        width = (axes[scored[0]] or [None])[-1]
        return scored[0], True, width if isinstance(width, int) and width > 0 else None
    named = ", ".join(f"{out.name} {out.type} {out.shape}" for out in outputs)
    labels = [i for i, out in enumerate(outputs) if out.type in _LABELS and len(axes[i] or ()) <= 2]
    if scored or not labels:
        raise UsageError(f"{path} must have one output of scores (n, classes), or labels; it has {named}")
    if any(out.type.startswith("seq") for out in outputs):
        log.info("%s gives its probabilities as maps, which are not read (export with zipmap=False); labels are", path)
    return labels[0], False, None


def digest(path: Path) -> str:
    """A digest of the file and of those it keeps its weights in, which must lie beside it."""
    onnx = _wanted("onnx")
    content = path.read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf has errors of its own for what is no such file
        raise UsageError(f"{path} is no ONNX file: {_first_line(error)}") from error
    parts = [sha256(content)]
    tensors = [*_tensors(model.graph), *(t for f in model.functions for t in _of_nodes(f.node))]
    names = {entry.value for t in tensors for entry in t.external_data if entry.key == "location"}
    for name in sorted(names):
        beside = path.parent / name
        if not beside.resolve().is_relative_to(path.parent.resolve()) or not beside.is_file():
            raise UsageError(f"{path} keeps weights in {name!r}, which is no file beside it")
        parts.append(sha256(beside.read_bytes()))
    return sha256(" ".join(parts).encode())


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor that a graph holds, those of the graphs in it too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for attribute in (a for node in nodes for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _tensors(graph)


def _compare(file: OnnxFile, net: nn.Module, data: Data | None) -> None:
    """Refuse an opened net that does not answer as the file does."""
    n = file.batch or 8
    grey = torch.full((n, *file.spec.shape), sum(file.spec.bounds) / 2)
    x = data.cases.x[:n] if data is not None and len(data) >= n else grey
    told = torch.as_tensor(file(x.numpy())).float()
    with torch.no_grad():
        out = net(x)
    if out.shape != told.shape or not torch.allclose(out.float(), told, rtol=1e-3, atol=1e-4 * float(told.abs().max())):
        raise UsageError(
            f"onnx2torch misreads {file.path}: opened, it answers otherwise than onnxruntime does; "
            "without --white-box it can be asked as it is"
        )


def _wanted(name: str) -> Any:
    """A package of the extra, or what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = error.name or name
        if missing == "torchvision":
            raise UsageError(
                f"{name} needs torchvision, of the same build as torch; install it as torch was"
            ) from error
        raise UsageError(f"ONNX files need {missing}: pip install 'assay[onnx]'") from error
    except RuntimeError as error:  # torchvision beside a torch of another build
        raise UsageError(
            f"{name} does not import ({_first_line(error)}): its torchvision must be of the same build as torch"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0][:300]
