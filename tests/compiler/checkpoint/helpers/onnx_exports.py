"""Small encoders as folders with an ONNX export alone, by PyTorch's exporters, and changed ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch

from tests.compiler.models.helpers.encoder_checkpoints import CASES, RERANKERS, make_encoder


class _Named(torch.nn.Module):
    """The module that is exported: plain inputs, one output."""

    def __init__(self, model: Any, inner: str) -> None:
        super().__init__()
        self.inner = inner
        self.add_module(inner, model)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return getattr(self, self.inner)(input_ids=input_ids, attention_mask=attention_mask)[0]


def export(
    case: str,
    folder: Path,
    *,
    name: str = "model.onnx",
    inner: str = "model",
    newer: bool = False,
    prepare: Callable[[Any], None] = lambda model: None,
    **options: Any,
) -> Path:
    """The folder of a case, with `model.safetensors` and the export of the same weights.

    inner: what stands before names. newer: by the exporter that needs onnxscript. prepare: changes
    the weights before. Returns the export.
    """
    model = make_encoder({**CASES, **RERANKERS}[case], folder).to(torch.float32)
    prepare(model)
    model.save_pretrained(folder)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    ids, mask = torch.randint(5, 60, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    names = ["input_ids", "attention_mask"]
    if newer:
        batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
        sizes = {name: {0: batch, 1: length} for name in names}
        options |= {"dynamic_shapes": sizes, "external_data": False}
    else:
        options |= {"dynamic_axes": {name: {0: "batch", 1: "length"} for name in names}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Named(model, inner), (ids, mask), str(path), input_names=names, dynamo=newer, **options
        )
    return path


def change(path: Path, how: Callable[[Any], None]) -> None:
    """Write the model again, its GraphProto changed."""
    model = onnx.load(path)
    how(model.graph)
    onnx.save(model, path)


def halved(graph: Any) -> None:
    """float16 weights behind casts, as a conversion that keeps the arithmetic leaves them."""
    casts = []
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
            whole = onnx.numpy_helper.to_array(tensor)
            name, half = tensor.name, tensor.name + "_half"
            tensor.CopyFrom(onnx.numpy_helper.from_array(whole.astype("float16"), half))
            casts.append(onnx.helper.make_node("Cast", [half], [name], name=f"cast_{name}", to=1))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
