"""ONNX files: small graphs made here, whose answers are known, and a net that torch exports."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.sources.onnx import digest
from assay.subjects.sources.onnx_plain import plain

SPEC = InputSpec((1, 2, 2), (0.0, 1.0), ("0", "1", "2"))
WEIGHT = np.array([[1, 0, -1], [2, 1, 0], [0, -3, 1], [1, 1, 1]], np.float32)
FILE = "net.onnx"
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture
def data() -> Data:
    x = torch.rand(6, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return Data("made", Cases.of(x, torch.arange(6) % 3), SPEC)


@pytest.fixture
def onnx2torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx2torch imports torchvision for two operators that no net here uses, and that may not be had."""
    pytest.importorskip("onnxscript")
    if "onnx2torch" in sys.modules:
        return
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        empty, operators = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
        vars(empty)["ops"] = operators
        vars(operators)["roi_align"] = None
        monkeypatch.setitem(sys.modules, "torchvision", empty)
        monkeypatch.setitem(sys.modules, "torchvision.ops", operators)
    importlib.import_module("onnx2torch")


def write(
    nodes: list[Any],
    outputs: list[tuple[str, int, list[Any]]],
    *,
    shape: tuple[Any, ...] = ("n", 1, 2, 2),
    kind: int = FLOAT,
    weights: dict[str, Any] | None = None,
    opset: int = 17,
    path: str = FILE,
) -> str:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(*out) for out in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {"w": WEIGHT}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return path


def scores(*, batch: Any = "n", **more: Any) -> str:
    """A file with scores W x of the flattened input."""
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["z"])]
    return write(nodes, [("z", FLOAT, [batch, 3])], shape=(batch, 1, 2, 2), **more)


def load(text: str, data: Data | None, **more: Any) -> Asked:
    target = load_target(text, data=data, **more)
    assert isinstance(target, Asked)
    return target


def expected(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1) @ torch.from_numpy(WEIGHT)


def test_scores_are_answered_without_a_question_at_loading(data: Data) -> None:
    target = load(scores(), data, ask="batch=4")
    assert target.queries.asked == 0
    assert target.gives == {"label", "prob"}
    assert target.spec == SPEC
    x = data.cases.x
    assert torch.allclose(target(x), expected(x).log_softmax(1), atol=1e-6)
    assert target.queries.asked == 6


def test_a_file_of_half_or_double_precision(data: Data) -> None:
    for kind, number in ((TensorProto.DOUBLE, np.float64), (TensorProto.FLOAT16, np.float16)):
        nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["z"])]
        write(nodes, [("z", kind, ["n", 3])], kind=kind, weights={"w": WEIGHT.astype(number)})
        target = load(FILE, data)
        assert torch.allclose(target(data.cases.x), expected(data.cases.x).log_softmax(1), atol=1e-2)


def test_a_fixed_batch_is_filled_up(data: Data) -> None:
    target = load(scores(batch=4), data)
    assert target.batch == 4
    x = data.cases.x
    assert torch.allclose(target(x), expected(x).log_softmax(1), atol=1e-6)
    assert target.queries.asked == 6  # what only fills up is no question
    with pytest.raises(UsageError, match="takes batches of 4 and no other"):
        load(FILE, data, ask="batch=2")


def test_inputs_are_laid_flat_where_the_file_wants_rows(data: Data) -> None:
    write([helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", FLOAT, ["n", 3])], shape=("n", 4))
    target = load(FILE, data)
    assert torch.allclose(target(data.cases.x), expected(data.cases.x).log_softmax(1), atol=1e-6)


def test_a_file_that_does_not_say_how_many_classes_is_asked(data: Data) -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
        helper.make_node("Compress", ["y", "which"], ["z"], axis=1),
    ]
    write(nodes, [("z", FLOAT, ["n", "k"])], weights={"w": WEIGHT, "which": np.array([True] * 3)})
    target = load(FILE, data)
    assert target.queries.asked == 1
    assert len(target.spec.classes) == 3
    named = Data("named", data.cases[:2], InputSpec((1, 2, 2), (0.0, 1.0), ("cat", "dog")))
    assert load(FILE, named).spec.classes == ("cat", "dog", "2")


def test_without_data_the_file_tells_the_shape() -> None:
    target = load(scores(), None)
    assert target.spec == SPEC
    write([helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", FLOAT, ["n", 3])], shape=("n", "m"))
    with pytest.raises(UsageError, match="does not say what inputs it takes"):
        load(FILE, None)


def test_of_several_outputs_the_scores_count_and_else_the_labels(data: Data) -> None:
    base = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["z"])]
    label = helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0)
    x = data.cases.x
    write([*base, label], [("label", INT, ["n"]), ("flat", FLOAT, ["n", 4]), ("z", FLOAT, ["n", 3])])
    assert torch.allclose(load(FILE, data)(x), expected(x).log_softmax(1), atol=1e-6)
    write([*base, label], [("label", INT, ["n"])])
    target = load(FILE, data)
    assert target.gives == {"label"}
    assert target.queries.asked == 0
    assert torch.equal(target(x).argmax(1), expected(x).argmax(1))
    write(base, [("flat", FLOAT, ["n", 4]), ("z", FLOAT, ["n", 5])])
    with pytest.raises(UsageError, match=r"one output of scores .* it has flat tensor\(float\) .*, z"):
        load(FILE, data)


def test_maps_of_probabilities_are_left_for_the_labels(data: Data, notices: pytest.LogCaptureFixture) -> None:
    base = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["z"])]
    label = helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0)
    maps = helper.make_node("ZipMap", ["z"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    entry = helper.make_map_type_proto(INT, helper.make_tensor_type_proto(FLOAT, []))
    graph = helper.make_graph(
        [*base, label, maps],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, ("n", 1, 2, 2))],
        [
            helper.make_tensor_value_info("label", INT, ["n"]),
            helper.make_value_info("maps", helper.make_sequence_type_proto(entry)),
        ],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), FILE)
    target = load(FILE, data)
    assert target.gives == {"label"}
    assert "export with zipmap=False" in notices.text
    assert torch.equal(target(data.cases.x).argmax(1), expected(data.cases.x).argmax(1))


def test_the_fingerprint_is_of_the_content_and_of_weights_beside_it(data: Data) -> None:
    first = load(scores(), data).fingerprint()
    assert load(scores(path="same.onnx"), data).fingerprint() == first
    assert load(scores(weights={"w": WEIGHT + 1}), data).fingerprint() != first
    model = onnx.load("same.onnx")
    onnx.save(model, FILE, save_as_external_data=True, location="w.bin", size_threshold=0)
    outside = load(FILE, data).fingerprint()
    Path("w.bin").write_bytes((WEIGHT + 1).tobytes())
    assert load(FILE, data).fingerprint() != outside


def test_weights_elsewhere_are_not_opened(data: Data, tmp_path: Path) -> None:
    scores()
    model = onnx.load(FILE)
    onnx.save(model, FILE, save_as_external_data=True, location="w.bin", size_threshold=0)
    for place in ("../w.bin", "/etc/hostname", "none.bin"):
        told = onnx.load(FILE, load_external_data=False)
        for entry in told.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = place
        Path("bad.onnx").write_bytes(told.SerializeToString())
        with pytest.raises(UsageError, match="which is no file beside it"):
            load("bad.onnx", data)


def test_files_that_are_none(data: Data) -> None:
    with pytest.raises(UsageError, match=r"no such file: none.onnx"):
        load("none.onnx", data)
    Path("page.onnx").write_text("<html>not found</html>")
    with pytest.raises(UsageError, match=r"page.onnx"):
        load("page.onnx", data)
    scores()
    Path("cut.onnx").write_bytes(Path(FILE).read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"cut.onnx"):
        load("cut.onnx", data)


def test_files_that_do_not_fit(data: Data) -> None:
    write([helper.make_node("Flatten", ["x"], ["z"])], [("z", FLOAT, ["n", 27])], shape=("n", 3, 3, 3))
    with pytest.raises(UsageError, match=r"takes inputs of shape \(3, 3, 3\), made has \(1, 2, 2\)"):
        load(FILE, data)
    cast = helper.make_node("Cast", ["x"], ["z"], to=FLOAT)
    write([cast], [("z", FLOAT, ["n", 1, 2, 2])], kind=TensorProto.UINT8)
    with pytest.raises(UsageError, match=r"one input of floating-point numbers; it has x tensor\(uint8\)"):
        load(FILE, data)
    small = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["z"])]
    write(small, [("z", FLOAT, ["n", 2])], weights={"w": WEIGHT[:, :2]})
    with pytest.raises(UsageError, match=r"net.onnx has 2 outputs, the data have 3 classes"):
        load(FILE, data)
    for setting in ("timeout=3", "retries=2"):
        with pytest.raises(UsageError, match="means nothing for an ONNX file"):
            load(scores(), data, ask=setting)


def test_what_is_missing_is_named(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    scores()
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(UsageError, match=r"ONNX files need onnxruntime: pip install 'assay\[onnx\]'"):
            load(FILE, data)
    for package in [name for name in sys.modules if name.partition(".")[0] == "onnx2torch"]:
        monkeypatch.delitem(sys.modules, package)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UsageError, match="onnx2torch needs torchvision, of the same build as torch"):
        load_target(FILE, data=data, white_box=True)


@pytest.mark.usefixtures("onnx2torch")
def test_opened_it_is_a_white_box(data: Data) -> None:
    target = load_target(scores(), data=data, white_box=True, device="cpu")
    assert isinstance(target, ModuleTarget)
    x = data.cases.x.clone().requires_grad_()
    out = target(x)
    assert torch.allclose(out, expected(x), atol=1e-6)
    (grad,) = torch.autograd.grad(out[:, 1].sum(), x)
    assert torch.allclose(grad.flatten(1), torch.from_numpy(WEIGHT[:, 1]).expand(6, 4))
    moved = load_target(FILE, data=data, white_box=True, device="cpu", mean=(0.5,), std=(0.25,))
    assert torch.allclose(moved(data.cases.x), expected((data.cases.x - 0.5) / 0.25), atol=1e-5)


@pytest.mark.usefixtures("onnx2torch")
def test_a_graph_that_is_misread_is_refused(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    scores()
    monkeypatch.setattr(
        "onnx2torch.convert", lambda model: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    )
    with pytest.raises(UsageError, match=r"misreads net.onnx: opened, it answers otherwise"):
        load_target(FILE, data=data, white_box=True)


@pytest.mark.usefixtures("onnx2torch")
def test_a_graph_that_cannot_be_opened_can_still_be_asked(data: Data) -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
        helper.make_node("Det", ["m"], ["d"]),
        helper.make_node("Add", ["y", "d"], ["z"]),
    ]
    write(nodes, [("z", FLOAT, ["n", 3])], weights={"w": WEIGHT, "m": np.eye(2, dtype=np.float32)})
    with pytest.raises(UsageError, match=r"onnx2torch cannot open .*Det.*; without --white-box it can be asked"):
        load_target(FILE, data=data, white_box=True)
    assert torch.allclose(load(FILE, data)(data.cases.x), expected(data.cases.x).log_softmax(1), atol=1e-6)


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "stride"), [(8, 3, 1), (8, 2, 1), (7, 4, 2), (8, 3, 2), (9, 2, 3)])
def test_paddings_as_numbers_compute_the_same(how: str, size: int, kernel: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(2, 1, kernel, kernel)).astype(np.float32)}
    node = helper.make_node("Conv", ["x", "w"], ["z"], auto_pad=how, strides=[stride] * 2, kernel_shape=[kernel] * 2)
    write([node], [("z", FLOAT, ["n", 2, "h", "v"])], shape=("n", 1, size, size), weights=weights)
    x = rng.normal(size=(3, 1, size, size)).astype(np.float32)
    runtime = importlib.import_module("onnxruntime")
    model = plain(onnx.load(FILE))
    assert [a.name for a in model.graph.node[0].attribute if a.name in ("auto_pad", "pads")] == ["pads"]
    told = [runtime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0] for m in (onnx.load(FILE), model)]
    assert np.allclose(told[0], told[1], atol=1e-6)


def test_a_zero_that_means_zero_is_left_alone() -> None:
    for shape, kept in (([-1, 4], False), ([0, 4], True)):
        node = helper.make_node("Reshape", ["x", "s"], ["z"], allowzero=1)
        write([node], [("z", FLOAT, ["n", 4])], weights={"s": np.array(shape)})
        assert bool(plain(onnx.load(FILE)).graph.node[0].attribute) is kept


@pytest.mark.usefixtures("onnx2torch")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_net_that_torch_exports(digits_model: str) -> None:
    from assay.subjects.data.load import load_data

    own = load_target(digits_model, device="cpu")
    data = load_data("digits/test[:20]")
    x = data.cases.x
    axes = ({0: torch.export.Dim("n")},)
    torch.onnx.export(module_of(own).eval(), (x[:2],), FILE, dynamic_shapes=axes, dynamo=True, verbose=False)
    asked = load(FILE, data)
    assert asked.queries.asked == 0
    assert torch.allclose(asked(x).softmax(1), own(x).softmax(1), atol=1e-5)
    opened = load_target(FILE, data=data, white_box=True, device="cpu")
    assert torch.allclose(opened(x), own(x), atol=1e-4)


def far(location: str) -> Any:
    """A tensor that lies in another file."""
    made = helper.make_tensor("far", FLOAT, [1], [0.0])
    del made.float_data[:]
    made.data_location = onnx.TensorProto.EXTERNAL
    made.external_data.add(key="location", value=location)
    return made


def _hidden(where: str, tensor: Any) -> Any:
    """A model that holds the tensor where only a close look finds it."""
    inner = helper.make_graph([helper.make_node("Identity", ["far"], ["y"])], "inner", [], [])
    node = helper.make_node("If", ["c"], ["z"])
    if where == "sub-graph":
        inner.initializer.append(tensor)
        node.attribute.append(helper.make_attribute("then_branch", inner))
    elif where == "graphs":
        inner.node.append(helper.make_node("Constant", [], ["y"], value=tensor))
        node.attribute.append(helper.make_attribute("many", [inner]))
    elif where == "tensors":
        node.attribute.append(helper.make_attribute("many", [tensor]))
    graph = helper.make_graph([node], "net", [], [])
    if where == "sparse":
        graph.sparse_initializer.add().values.CopyFrom(tensor)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if where == "function":
        model.functions.add(name="f", domain="d").node.append(helper.make_node("Constant", [], ["y"], value=tensor))
    return model


@pytest.mark.parametrize("where", ["sub-graph", "graphs", "tensors", "sparse", "function"])
def test_weights_are_found_wherever_a_file_holds_them(where: str) -> None:
    Path("w.bin").write_bytes(b"1234")
    Path(FILE).write_bytes(_hidden(where, far("w.bin")).SerializeToString())
    first = digest(Path(FILE))
    Path("w.bin").write_bytes(b"5678")
    assert digest(Path(FILE)) != first
    Path(FILE).write_bytes(_hidden(where, far("../w.bin")).SerializeToString())
    with pytest.raises(UsageError, match="which is no file beside it"):
        digest(Path(FILE))
