"""An ONNX graph said in the older words that onnx2torch knows; what it computes stays the same."""

import logging
from typing import Any

log = logging.getLogger("assay")

_NEWEST = 17  # onnx2torch 1.5 reads no later one whole: of 18 it lacks reductions, of 19 constants and reshapes


def plain(model: Any) -> Any:
    """The graph in an operator set that can be read, with paddings as numbers and shapes without their zero rule."""
    from onnx import shape_inference, version_converter

    own = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if own > _NEWEST:
        log.info("the ONNX file is of operator set %d, it is read as %d", own, _NEWEST)
        model = version_converter.convert_version(model, _NEWEST)
    shapes = _shapes(shape_inference.infer_shapes(model).graph)
    constants = _constants(model.graph)
    for node in model.graph.node:
        if node.op_type == "Reshape":
            _without_zero_rule(node, constants)
        elif node.op_type in ("Conv", "MaxPool", "AveragePool"):
            _with_pads(node, shapes)
    return model


def _shapes(graph: Any) -> dict[str, list[int | None]]:
    """The shapes of all values that are known, an axis of unknown length being None."""
    return {
        value.name: [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    } | {tensor.name: list(tensor.dims) for tensor in graph.initializer}


def _constants(graph: Any) -> dict[str, Any]:
    from onnx import numpy_helper

    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def _without_zero_rule(node: Any, constants: dict[str, Any]) -> None:
    """``allowzero`` changes nothing where no length asked for is 0; a computed one is 0 for empty batches only."""
    shape = constants.get(node.input[1])
    if shape is None or (shape != 0).all():
        _drop(node, "allowzero")


def _with_pads(node: Any, shapes: dict[str, list[int | None]]) -> None:
    """``auto_pad`` as the numbers it stands for, where sizes are known or strides make them unimportant."""
    from onnx import helper

    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    how = given.get("auto_pad", b"NOTSET").decode()
    if how == "NOTSET":
        return
    kernel = given.get("kernel_shape") or (shapes.get(node.input[1], []) if node.op_type == "Conv" else [])[2:]
    sizes = shapes.get(node.input[0], [])[2:] or [None] * len(kernel)
    strides = given.get("strides") or [1] * len(kernel)
    totals: list[int] = []
    for size, k, stride in zip(sizes, kernel, strides, strict=True):  # onnxruntime takes no dilation with auto_pad
        if stride != 1 and size is None and how != "VALID":
            return  # onnx2torch will say that it does not know this
        rest = stride if size is None or size % stride == 0 else size % stride
        totals.append(0 if how == "VALID" else max(0, k - rest))
    lower = [(t + 1) // 2 if how == "SAME_LOWER" else t // 2 for t in totals]
    _drop(node, "auto_pad")
    _drop(node, "pads")
    node.attribute.append(helper.make_attribute("pads", lower + [t - s for t, s in zip(totals, lower, strict=True)]))


def _drop(node: Any, name: str) -> None:
    for attribute in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(attribute)
