"""Format of a library's KV pages: dtype (`--kv`), and the identity for KV transfer.

A library is compiled for one KV dtype. The identity tells whether pages of another process are
valid here (`mlcc.engine.migration`). Standard library only.
"""

from __future__ import annotations

import hashlib
import json

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.records import to_plain
from mlcc.artifact.schema import CacheInfo
from mlcc.engine.migration import Identity
from mlcc.errors import UnsupportedError

KV_DTYPES = {"f16": "float16", "f32": "float32", "int8": "int8", "fp8": "fp8"}
"""Values of `--kv`, and their dtypes in the manifest; int8 and fp8 (E4M3) have a float32 scale per
token and head."""
_SCALES = {"kv_scale": "int8", "kv_scale_fp8": "fp8"}
"""Tensors of scales, and what they scale (GPUs pack four numbers in a word)."""
_TOKENIZER = "tokenizer.json"


def kv_dtype(cache: CacheInfo) -> str:
    """The dtypes of a cache group as text; int8 or fp8 if it has scales."""
    kinds = dict.fromkeys(tensor.dtype for tensor in cache.tensors)
    scaled = scaled_dtype(cache)
    return f"{scaled} with scales" if scaled else ", ".join(kinds) or "none"


def scaled_dtype(cache: CacheInfo) -> str | None:
    """ "int8" or "fp8" if a group is quantized to 8 bits."""
    names = (tensor.name.partition(".")[0] for tensor in cache.tensors)
    return next((_SCALES[name] for name in names if name in _SCALES), None)


def check_kv(manifest: Manifest, wanted: str | None) -> None:
    """Raises UnsupportedError if the KV dtype is not the one that `--kv` requests; None = any."""
    if wanted is None:
        return
    if wanted not in KV_DTYPES:
        raise UnsupportedError(f"--kv {wanted!r:.40}: use one of {', '.join(KV_DTYPES)}")
    of = [cache for cache in manifest.caches if cache.kind != "state"]
    found = [scaled_dtype(cache) or cache.tensors[0].dtype for cache in of]
    names = {dtype: name for name, dtype in KV_DTYPES.items()}
    if any(dtype != KV_DTYPES[wanted] for dtype in found) or not found:
        kinds = " and ".join(names.get(dtype, dtype) for dtype in dict.fromkeys(found))
        raise UnsupportedError(
            f"--kv {wanted} is requested, but the library was compiled for {kinds or 'no pages'}; "
            f"compile the model again with `mlcc compile --kv {wanted}` or leave "
            "--kv out"
        )


def kv_identity(manifest: Manifest) -> Identity:
    """Identity of a library's pages: their layout, the model and its tokenizer."""
    groups = [
        (
            *(c.kind, c.page_size, c.window, c.layers, c.form),
            [(t.name, t.dtype, t.shape) for t in c.tensors],
        )
        for c in manifest.caches
    ]
    model, files = manifest.model, {entry.path: entry.sha256 for entry in manifest.files}
    shards = [files.get(shard, "") for shard in manifest.weights.shards]
    of = [model.architecture, model.config, model.vocab_size, manifest.quantization, shards]
    return Identity(
        layout=_hash([manifest.abi, groups]),
        model=_hash(of),
        tokenizer=files.get(_TOKENIZER, "")[:32],
    )


def _hash(value: object) -> str:
    """32 hex digits."""
    text = json.dumps(to_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
