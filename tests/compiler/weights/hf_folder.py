"""Builds small Hugging Face folders, sound and broken, for the tests of readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

CONFIG = {"model_type": "llama", "vocab_size": 16, "eos_token_id": 2}
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "</s>": 2}},
    "added_tokens": [{"id": 5, "content": "<|im_end|>"}],
}
TENSORS = {"a": np.ones((2, 3), np.float32), "b": np.arange(4, dtype=np.float16)}


def hf_folder(folder: Path, **files: Any) -> Path:
    """A sound folder; `files` adds or, with None, removes by name with `.` spelled `__`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(TENSORS, folder / "model.safetensors")
    written = {"config__json": CONFIG, "tokenizer__json": TOKENIZER, **files}
    for key, content in written.items():
        path = folder / key.replace("__", ".")
        if content is None:
            path.unlink(missing_ok=True)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, encoding="utf-8")
    return folder


def sharded(folder: Path, shards: dict[str, dict[str, Any]], index: dict[str, str]) -> Path:
    """A folder whose tensors lie in shards, with the index given."""
    hf_folder(folder, model__safetensors=None)
    for name, tensors in shards.items():
        save_file(tensors, folder / name)
    text = json.dumps({"metadata": {}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return folder


def raw_safetensors(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A file with any header, true or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path
