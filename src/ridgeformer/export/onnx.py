"""A model as an ONNX graph, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeformer.errors import optional, refuse
from ridgeformer.export.source import omegas, title
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.validation import Float

OPSET, IR_VERSION = 17, 8  # of 2022: old enough for every runtime in use


class _Graph:
    """Nodes and constants, each of which gives its output's name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Float | list[int]) -> str:
        """A float32 tensor, or a list of indices."""
        from onnx import numpy_helper

        with np.errstate(over="ignore"):
            tensor = np.asarray(value, np.int64 if isinstance(value, list) else np.float32)
        if not np.isfinite(tensor).all():
            received = f"{name} of {np.abs(value).max():.3g}"
            refuse("parameters must fit in float32", received, "Export to python instead.")
        self.constants.append(numpy_helper.from_array(tensor, name))
        return name

    def node(self, kind: str, output: str, *inputs: str, **attributes: Any) -> str:
        """The output of an operator."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"{kind}:{output}", **attributes))
        return output


def to_onnx(model: LinearTransformer, *, about: str = "") -> bytes:
    """Make an ONNX graph in float32. Needs onnx: pip install onnx.

    Inputs: X [batch, context, d], y [batch, context], x_query [batch, queries, d]. Outputs: prediction [batch, queries]
    and weights [batch, d], the w with which it predicts <w, x>. Batch, context and queries may have any length.

    The context's tokens go through the layers, and the readout back through them, r_l = r_{l+1} T_l, as in training.

    Args:
        model: The model.
        about: A remark for the graph's description.

    Returns:
        The graph, serialised.

    Raises:
        InputError: A number of the model does not fit in float32.
        MissingPackageError: onnx is not installed.
    """
    onnx = optional("an ONNX export needs onnx", "onnx")
    helper, graph = onnx.helper, _Graph()
    _layers(graph, model)

    def tensor(name: str, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    X, x_query = tensor("X", "batch", "context", model.dim), tensor("x_query", "batch", "queries", model.dim)
    inputs = [X, tensor("y", "batch", "context"), x_query]
    outputs = [tensor("prediction", "batch", "queries"), tensor("weights", "batch", model.dim)]
    graph_model = helper.make_model(
        helper.make_graph(graph.nodes, "linear transformer", inputs, outputs, graph.constants),
        producer_name="ridgeformer",
        doc_string=f"{title(model)}. {about}".strip(),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(graph_model, full_check=True)
    return bytes(graph_model.SerializeToString())


def _layers(graph: _Graph, model: LinearTransformer) -> None:
    D, room = model.width + 1, model.layout.scratch
    last, eye = graph.constant("last axis", [-1]), graph.constant("identity", np.eye(D))
    column = graph.node("Unsqueeze", "y column", "y", last)
    zeros = [graph.node("MatMul", "room", "X", graph.constant("no x", np.zeros((model.dim, room))))] if room else []
    tokens = graph.node("Concat", "tokens 0", "X", *zeros, column, axis=2)
    maps, omega, (P, Q) = [], omegas(model), model.family.dense(model.dim)
    for layer in range(1, model.layers + 1):
        turned = graph.node("Transpose", f"tokens {layer - 1} transposed", tokens, perm=[0, 2, 1])
        gram = graph.node("MatMul", f"gram {layer - 1}", turned, tokens)
        if omega is None:
            change = _dense(graph, layer, P[layer - 1], Q[layer - 1], gram)
        else:
            change = _diagonal(graph, layer, omega[layer - 1], model.width, gram)
        T = graph.node("Add", f"T {layer}", change, eye)  # a token e becomes T e
        maps.append(T)
        if layer < model.layers:
            turned = graph.node("Transpose", f"T {layer} transposed", T, perm=[0, 2, 1])
            tokens = graph.node("MatMul", f"tokens {layer}", tokens, turned)
    row = graph.constant("readout", -np.eye(D)[None, -1:])  # minus a token's y
    for layer in range(model.layers, 0, -1):
        row = graph.node("MatMul", f"readout of layer {layer - 1}", row, maps[layer - 1])
    start, end = graph.constant("zero", [0]), graph.constant("d", [model.dim])
    w = graph.node("Slice", "weights row", row, start, end, last)  # [batch, 1, d]
    graph.node("Squeeze", "weights", w, graph.constant("middle axis", [1]))
    upright = graph.node("Transpose", "weights column", w, perm=[0, 2, 1])
    graph.node("Squeeze", "prediction", graph.node("MatMul", "prediction column", "x_query", upright), last)


def _diagonal(graph: _Graph, layer: int, omega: Float, dim: int, gram: str) -> str:
    """T - I = omega o G, each of omega's four numbers over its block."""
    blocks = np.repeat(np.repeat(omega, [dim, 1], axis=0), [dim, 1], axis=1)
    return graph.node("Mul", f"change {layer}", gram, graph.constant(f"omega {layer}", blocks))


def _dense(graph: _Graph, layer: int, P: Float, Q: Float, gram: str) -> str:
    """T - I = sum_k P_k G Q_k."""
    heads = []
    for head in range(len(P)):
        at = f"{layer} head {head + 1}"
        left = graph.node("MatMul", f"PG {at}", graph.constant(f"P {at}", P[head]), gram)
        heads.append(graph.node("MatMul", f"PGQ {at}", left, graph.constant(f"Q {at}", Q[head])))
    return graph.node("Sum", f"change {layer}", *heads)
