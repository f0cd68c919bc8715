"""Maps the tensors of an ONNX graph to the exported model's weights.

Exporters keep the names of embeddings, norms and biases; constant folding makes matrices anonymous
("onnx::MatMul_123") and transposes them. The graph identifies them: by the bias added to the
product, or the module named in the node. Computes nothing: the arithmetic is config.json's, as with
every other file, and only operators of such models are accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.formats.onnx_data import OnnxTensor

_OPERATORS = (
    "Abs Add And Cast Clip Concat Constant ConstantOfShape Cos CumSum Div Einsum Equal Erf Expand "
    "Flatten Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual Identity IsNaN "
    "LayerNormalization Less LessOrEqual MatMul Max Min Mul Neg Not Or Pow Range Reciprocal "
    "ReduceL2 ReduceMean ReduceSum Relu Reshape Shape Sigmoid Sin Size Slice Softmax Split Sqrt "
    "Squeeze Sub Tanh Transpose Trilu Unsqueeze Where Xor"
)
OPERATORS = frozenset(re.findall(r"\w+", _OPERATORS))
"""Operators in float exports of encoders by PyTorch's two exporters, with and without pooling."""
_HANDED_ON = ("Identity", "Cast", "Transpose")
_DOMAINS = ("", "ai.onnx")
_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata key of torch.onnx's newer exporter with a node's modules, as a Python list."""
_INNERMOST = re.compile(r"'([\w.]+)', '[^']*'\]$")
_OF_SENTENCES = re.compile(r"^(\d+\.)?auto_model\.")
"""Prefix of sentence-transformers' Transformer module."""
_INSTEAD = "compile the repository's model.safetensors, or the float model.onnx that it was made of"


@dataclass(frozen=True)
class Weight:
    """A tensor of the graph as a weight of the model. transposed: it is stored as [K, N]."""

    tensor: OnnxTensor
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The model's shape."""
        return self.tensor.shape[::-1] if self.transposed else self.tensor.shape


def weights_of(path: Path, graph: Any, tensors: Mapping[str, OnnxTensor]) -> dict[str, Weight]:
    """The weights of a GraphProto by the model's names. tensors: its float initializers and
    constants. Raises UnsupportedError for another graph, naming a node."""
    for node in graph.node:
        if node.domain not in _DOMAINS or node.op_type not in OPERATORS:
            kind = ".".join(filter(None, (node.domain, node.op_type)))
            raise UnsupportedError(
                f"{path}: node {name_of(node)!r:.120} is {kind!r:.80}, which no float export of "
                f"an encoder has; {_INSTEAD}"
            )
        least = 2 if node.op_type in ("MatMul", "Gemm") else 0
        if not node.output or len(node.input) < least:
            raise CheckpointError(
                f"{path}: node {name_of(node)!r:.120} ({node.op_type}) lacks inputs or outputs; "
                "fetch the checkpoint again"
            )
    found = _GraphReader(path, graph, tensors).weights()
    return {_OF_SENTENCES.sub("", name): weight for name, weight in found.items()}


def name_of(node: Any) -> str:
    """The name of a NodeProto, or of its first output."""
    return str(node.name or next(iter(node.output), ""))


class _GraphReader:
    """One pass over a graph."""

    def __init__(self, path: Path, graph: Any, tensors: Mapping[str, OnnxTensor]) -> None:
        self.path, self.nodes = path, graph.node
        self.tensors = dict(tensors)
        self.transposed: set[str] = set()
        self.readers: dict[str, list[Any]] = {}
        self.named = {name for name in tensors if _is_named(name)}
        for node in graph.node:
            self._follow(node)
            for name in dict.fromkeys(() if node.op_type in _HANDED_ON else node.input):
                self.readers.setdefault(name, []).append(node)
        self.found: dict[str, Weight] = {}

    def _follow(self, node: Any) -> None:
        """Nodes that pass a tensor on unchanged are aliases: exporters store equal tensors once."""
        source = self.tensors.get(node.input[0]) if len(node.input) == 1 else None
        if source is None or node.op_type not in _HANDED_ON:
            return
        name, transposed = node.output[0], node.input[0] in self.transposed
        if node.op_type == "Transpose":
            if len(source.shape) != 2 or list(_attribute(node, "perm", "ints", [1, 0])) != [1, 0]:
                return
            transposed = not transposed
        self.tensors[name] = source
        if transposed:
            self.transposed.add(name)
        if _is_named(name):
            self.named.add(name)

    def weights(self) -> dict[str, Weight]:
        """The weights by their names. Raises UnsupportedError."""
        products = [node for node in self.nodes if node.op_type in ("MatMul", "Gemm")]
        linear = [node for node in products if any(n in self.tensors for n in node.input[:2])]
        for node in linear:
            self._linear(node)
        claimed = {id(weight.tensor) for weight in self.found.values()}
        for name in sorted(self.named):
            tensor = self.tensors[name]
            if not (tensor.is_matrix and id(tensor) in claimed):  # else a product has claimed it
                self._add(name, Weight(tensor, name in self.transposed), None)
        for node in (n for n in self.nodes if n.op_type == "Gather" and _SCOPES in _keys(n)):
            self._table(node, claimed)
        for node in (*linear, *(n for n in self.nodes if n.op_type == "LayerNormalization")):
            self._vectors(node)
        used = {id(weight.tensor) for weight in self.found.values()}
        for name, tensor in self.tensors.items():
            if tensor.is_matrix and id(tensor) not in used:
                raise self._unknown(name, next(iter(self.readers.get(name, ())), None))
        return self.found

    def _linear(self, node: Any) -> None:
        """A product with a weight: y = x W^T + b."""
        name = node.input[1]
        if name not in self.tensors or len(self.tensors[name].shape) != 2:
            raise self._unknown(next(n for n in node.input if n in self.tensors), node)
        transposed = (name in self.transposed) == (node.op_type == "Gemm" and self._of_gemm(node))
        module = self._module(node, name)
        if module is None:
            raise self._unknown(name, node)
        self._add(f"{module}.weight", Weight(self.tensors[name], transposed), node)

    def _of_gemm(self, node: Any) -> bool:
        """Gemm: handles transB."""
        alike = _attribute(node, "alpha", "f", 1.0) == _attribute(node, "beta", "f", 1.0) == 1.0
        if not alike or _attribute(node, "transA", "i", 0):
            raise UnsupportedError(
                f"{self.path}: node {name_of(node)!r:.120} is a Gemm with a factor or a turned "
                f"input, which is no layer of an encoder; {_INSTEAD}"
            )
        return bool(_attribute(node, "transB", "i", 0))

    def _module(self, node: Any, weight: str) -> str | None:
        """The module of a product: from the weight's name, the bias's, or the node's."""
        for name in (weight, self.tensors[weight].name):
            if name in self.named and name.endswith(".weight"):
                return name.removesuffix(".weight")
        bias = self._bias(node)
        if bias in self.named and bias.endswith(".bias") and len(self.readers.get(bias, ())) == 1:
            return bias.removesuffix(".bias")
        return _scope(node)

    def _bias(self, node: Any) -> str:
        """Name of the bias added to a product; "" without one."""
        if node.op_type == "Gemm":
            return str(node.input[2]) if len(node.input) > 2 else ""
        after = self.readers.get(node.output[0], [])
        if len(after) != 1 or after[0].op_type != "Add":
            return ""
        other = [n for n in after[0].input if n != node.output[0]]
        return other[0] if other and other[0] in self.tensors else ""

    def _table(self, node: Any, claimed: set[int]) -> None:
        """An embedding tied to the head, stored under the head's name only."""
        name, module = node.input[0], _scope(node)
        tensor = self.tensors.get(name)
        if module and tensor is not None and tensor.is_matrix and id(tensor) in claimed:
            self.found.setdefault(f"{module}.weight", Weight(tensor, name in self.transposed))

    def _vectors(self, node: Any) -> None:
        """Norms and biases that share one tensor because they are equal, under their modules'
        names."""
        module = _scope(node)
        if node.op_type == "LayerNormalization":
            parts = dict(zip(("weight", "bias"), node.input[1:], strict=False))
        else:
            parts = {"bias": self._bias(node)}
        for part, name in parts.items():
            tensor = self.tensors.get(name)
            # the zeros of a norm without a bias have no name
            if module and tensor is not None and tensor.name in self.named and not tensor.is_matrix:
                self.found.setdefault(f"{module}.{part}", Weight(tensor))

    def _add(self, name: str, weight: Weight, node: Any) -> None:
        if self.found.setdefault(name, weight) != weight:
            raise UnsupportedError(
                f"{self.path}: the weight {name!r:.120} is there twice, in "
                f"{self.found[name].tensor.name!r:.120} and {weight.tensor.name!r:.120}"
                + (f" (node {name_of(node)!r:.120})" if node is not None else "")
                + f"; {_INSTEAD}"
            )

    def _unknown(self, name: str, node: Any) -> UnsupportedError:
        where = f", which node {name_of(node)!r:.120} ({node.op_type}) reads," if node else ""
        return UnsupportedError(
            f"{self.path}: the tensor {name!r:.120}{where} is no weight of a module that is known "
            f"by its name, its bias or its node; {_INSTEAD}"
        )


def constants(path: Path, graph: Any) -> Iterator[tuple[str, Any]]:
    """(name, TensorProto) of the initializers and of Constant nodes. Raises CheckpointError for a
    duplicate name, UnsupportedError for sparse tensors."""
    if graph.sparse_initializer:
        raise UnsupportedError(f"{path}: has sparse initializers, which are not read; {_INSTEAD}")
    found = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            found += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    name, count = next(iter(Counter(name for name, _ in found).most_common(1)), ("", 0))
    if count > 1:
        raise CheckpointError(f"{path}: tensor {name!r:.120} is there twice; fetch it again")
    yield from found


def _is_named(name: str) -> bool:
    return name.endswith((".weight", ".bias")) and "/" not in name and "::" not in name


def _scope(node: Any) -> str | None:
    """The module of a node: "/encoder/layer.0/output/dense/MatMul" from PyTorch's older exporter, a
    list in the metadata of the newer."""
    for entry in node.metadata_props:
        if entry.key == _SCOPES and (found := _INNERMOST.search(entry.value[-1024:])):
            return found.group(1)
    parts = node.name.split("/")
    return ".".join(parts[1:-1]) if len(parts) > 2 and not parts[0] else None


def _keys(node: Any) -> set[str]:
    return {entry.key for entry in node.metadata_props}


def _attribute(node: Any, name: str, field: str, default: Any) -> Any:
    return next((getattr(a, field) for a in node.attribute if a.name == name), default)
