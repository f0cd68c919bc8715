"""Arrange an export of onnxruntime-genai as transformers.js loads it: `RAW CHECKPOINT OUT`.

Runs in the exporter's environment. Two things differ: names of files, which the graph repeats, and
the width of the KV cache, which transformers.js reads from the graph's inputs.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import onnx


def main(raw: Path, checkpoint: Path, out: Path) -> None:
    (out / "onnx").mkdir(parents=True)
    config = json.loads((checkpoint / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    graph = onnx.load(raw / "model.onnx", load_external_data=False)
    for tensor in graph.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "model_q4.onnx_data"
    for value in (*graph.graph.input, *graph.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == "kv_cache_dim":
                size.dim_value = head
    onnx.save(graph, out / "onnx" / "model_q4.onnx")
    shutil.copyfile(raw / "model.onnx.data", out / "onnx" / "model_q4.onnx_data")
    config["transformers.js_config"] = {"use_external_data_format": {"model_q4.onnx": 1}}
    (out / "config.json").write_text(json.dumps(config))
    for path in (*raw.glob("tokenizer*"), *checkpoint.glob("generation_config.json")):
        shutil.copyfile(path, out / path.name)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
