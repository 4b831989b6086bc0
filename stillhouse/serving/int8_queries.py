"""Encodes queries with ONNX Runtime, with 8-bit weights and inputs of linear layers.

The graph is built from the weights of a `PlainBert`: nothing is exported or stored on the disk. Each row of a weight
has its own scale, and each text's inputs have one per layer, which ONNX Runtime computes on the fly. So every text is
computed alone: in a batch its scales, and therefore its vector, would change. Embeddings, sums, norms, attention and
pooling stay in fp32.

Shape suffixes: Q texts, L tokens of a text, D width, E width of a layer's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from stillhouse.retrieval.models.pooling import normalized, pool
from stillhouse.retrieval.models.query_encoder import PlainBert

FUSED = "com.microsoft"
"""The domain of ONNX Runtime's own operators, each of which fuses several of ONNX's."""
LARGEST = 127
ACTIVATIONS = {gelu: ("Gelu", FUSED), relu: ("Relu", "")}


class Int8Bert:
    """The model of a `PlainBert` on the CPU, for several texts, in 8 bits."""

    def __init__(self, plain: PlainBert) -> None:
        options = onnxruntime.SessionOptions()
        # A text is too short to split: threads would spend longer waiting for each other than computing.
        options.intra_op_num_threads = 1
        graph = GraphOfBert(plain).serialized()
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._plain = plain.without_layers()
        self.tokenize = plain.tokens.cut

    @torch.inference_mode()
    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Float32 [Q, D]."""
        plain = self._plain
        vectors_QD = np.empty((len(ids), plain.width), dtype=np.float32)
        for number, each in enumerate(ids):
            vector_1D = pool(self._hidden(each), torch.ones(1, len(each)), plain.pooling)
            vectors_QD[number] = (normalized(vector_1D) if plain.normalize else vector_1D)[0].numpy()
        return vectors_QD

    @torch.inference_mode()
    def token_states(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """What is pooled: float32 [L, D] of a text."""
        return self._hidden(ids)[0].numpy()

    def _hidden(self, ids: Sequence[int]) -> Tensor:
        """The hidden states [1, L, D] of a text."""
        states_1LD = self._plain.embedded(torch.tensor([list(ids)]), torch.arange(len(ids)))
        [hidden_1LD] = self._session.run(None, {"states": states_1LD.numpy()})
        return torch.from_numpy(cast("NDArray[np.float32]", hidden_1LD))


class GraphOfBert:
    """The layers of a `PlainBert` as an ONNX graph from `states` [1, L, D] to `hidden` [1, L, D]."""

    def __init__(self, plain: PlainBert) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._width = plain.width
        states = "states"
        for number, layer in enumerate(plain.layers):
            assert isinstance(layer, nn.TransformerEncoderLayer)
            states = self._layer(f"layer{number}", layer, states)
        self._nodes.append(helper.make_node("Identity", [states], ["hidden"]))

    def serialized(self) -> bytes:
        """The model as bytes that ONNX Runtime reads."""
        given, found = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "L", self._width])
            for name in ("states", "hidden")
        )
        graph = helper.make_graph(self._nodes, "bert", [given], [found], self._weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
        result: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        return result

    def _layer(self, name: str, layer: nn.TransformerEncoderLayer, states: str) -> str:
        attention = layer.self_attn
        three = self._linear(f"{name}.into", attention.in_proj_weight, attention.in_proj_bias, states)
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        self._nodes.append(helper.make_node("Split", [three], parts, axis=2))
        seen = self._node("MultiHeadAttention", parts, f"{name}.seen", num_heads=attention.num_heads)
        out = self._linear(f"{name}.out", attention.out_proj.weight, attention.out_proj.bias, seen)
        states = self._added(f"{name}.norm1", layer.norm1, states, out)
        up = self._linear(f"{name}.up", layer.linear1.weight, layer.linear1.bias, states)
        kind, domain = ACTIVATIONS[layer.activation]
        active = self._node(kind, [up], f"{name}.active", domain)
        down = self._linear(f"{name}.down", layer.linear2.weight, layer.linear2.bias, active)
        return self._added(f"{name}.norm2", layer.norm2, states, down)

    def _linear(self, name: str, weight_ED: Tensor, bias_E: Tensor, states: str) -> str:
        quantized_ED, scales_E = quantized(weight_ED.detach().numpy())
        tensors: dict[str, NDArray[Any]] = {
            "weight": np.ascontiguousarray(quantized_ED.T),
            "scales": scales_E,
            "zeros": np.zeros(len(scales_E), np.int8),
            "bias": bias_E.detach().numpy(),
        }
        inputs = [states, *(self._constant(f"{name}.{part}", values) for part, values in tensors.items())]
        return self._node("DynamicQuantizeMatMul", inputs, name)

    def _added(self, name: str, norm: nn.LayerNorm, states: str, more: str) -> str:
        scale, shift = (
            self._constant(f"{name}.{part}", values.detach().numpy())
            for part, values in (("scale", norm.weight), ("shift", norm.bias))
        )
        return self._node("SkipLayerNormalization", [states, more, scale, shift], name, epsilon=norm.eps)

    def _node(self, kind: str, inputs: Sequence[str], output: str, domain: str = FUSED, **settings: object) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **settings))  # type: ignore[arg-type]
        return output

    def _constant(self, name: str, values: NDArray[np.generic]) -> str:
        self._weights.append(numpy_helper.from_array(values, name))
        return name


def quantized(weight_ED: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A weight as int8 [E, D], and each row's scale, float32 [E], which maps its largest value to 127."""
    scales_E = np.maximum(np.abs(weight_ED).max(axis=1), np.float32(1e-12)) / np.float32(LARGEST)
    return np.rint(weight_ED / scales_E[:, None]).astype(np.int8), scales_E
